import type { Alerts } from "../shared/alerts/alerts.ts";
import { createReadinessReports, type ReadinessReports } from "../shared/certificates/readiness-reports.ts";
import { type ComplianceReports, createComplianceReports } from "../shared/compliance/report/reports.ts";
import { type Cryptography, createCryptography } from "../shared/cryptography/cryptography.ts";
import { createDevops, type Devops } from "../shared/devops/devops.ts";
import { ACTIVE, ActiveScans, QUEUES } from "../shared/discovery/scan.ts";
import { scanHistory } from "../shared/discovery/scan-history.ts";
import type { DoctorDeps } from "../shared/doctor/clients.ts";
import { createDoctor, type Doctor } from "../shared/doctor/doctor.ts";
import { createFailedMessages, type FailedMessages } from "../shared/messages/failed-messages.ts";
import { createMetrics, type Metrics } from "../shared/metrics/metrics.ts";
import { createAzureEvents } from "../shared/platform/azure/azure-events.ts";
import type { Config } from "../shared/platform/config/config.ts";
import { createReconciliation, type Reconciliation } from "../shared/reconciliation/reconciliation.ts";
import { auditHistory, createRetention, type Retention } from "../shared/settings/retention.ts";
import { type AuditStreams, createAuditStreams } from "../shared/siem/siem.ts";
import { createSync, type Sync } from "../shared/sync/sync.ts";
import { createHealth, type Health } from "./health.ts";
import { type AccessServices, createAccessServices } from "./services/access.ts";
import { createAlertServices } from "./services/alerts.ts";
import { type ApplicationServices, createApplicationServices } from "./services/applications.ts";
import { type AutomationServices, createAutomation } from "./services/automation.ts";
import { type CertificateRenewalServices, createCertificateRenewal } from "./services/certificate-renewal.ts";
import { createDiscoveryServices, type DiscoveryServices } from "./services/discovery.ts";
import { createInventoryServices, type InventoryServices } from "./services/inventory.ts";
import { createPlatform, type Platform } from "./services/platform.ts";
import { UNICODE_FONT } from "./services/unicode-font.ts";

/** The modules of the app, which handlers receive as `services`. Each file in `services/` creates the modules of one area. */
export interface Services
  extends Platform,
    AccessServices,
    InventoryServices,
    ApplicationServices,
    DiscoveryServices,
    AutomationServices,
    CertificateRenewalServices,
    Operations {
  devops: Devops;
  sync: Sync;
  alerts: Alerts;
  auditStreams: AuditStreams;
}

/** Services that report on the other services or maintain their data. */
interface Operations {
  complianceReports: ComplianceReports;
  certificateReadiness: ReadinessReports;
  cryptography: Cryptography;
  reconciliation: Reconciliation;
  retention: Retention;
  failedMessages: FailedMessages;
  metrics: Metrics;
  health: Health;
  doctor: Doctor;
}

/**
 * Creates all modules, each after the modules that it needs. Where two modules need each other, the first one gets a function
 * such as `() => services`, which it calls only after all modules exist.
 */
export function createServices(config: Config): Services {
  const platform = createPlatform(config);
  const { clock, randomness, log, tables, queues, audit, identity, licensing, serviceKeyVault } = platform;
  const { vaultSecrets, resourceManager } = platform;
  const accessServices = createAccessServices(platform);
  const devops = createDevops({ tables, audit, config, identity, clock, randomness, log });
  const sync = createSync({
    tables,
    queues,
    audit,
    config,
    licensing,
    vault: serviceKeyVault,
    vaultSecrets,
    resourceManager,
    clock,
    randomness,
    log,
  });
  const inventoryServices = createInventoryServices(platform, () => services);
  const { compliance, inventory } = inventoryServices;
  const auditStreams = createAuditStreams({
    tables,
    audit,
    compliance,
    vault: serviceKeyVault,
    azureEvents: createAzureEvents({ config, identity, log }),
    config,
    clock,
    randomness,
  });
  const alerts = createAlertServices(platform, { ...accessServices, compliance, sync, auditStreams }, () => services);
  const applicationServices = createApplicationServices(platform, { ...inventoryServices, alerts }, () => services);
  const discoveryServices = createDiscoveryServices(platform, { ...inventoryServices, alerts }, () =>
    services.metrics.record(),
  );
  const automation = createAutomation({
    ...platform,
    inventory,
    applications: applicationServices.applications,
    rescans: discoveryServices.rescans,
    compliance,
    devops,
    sync,
    watched: () => discoveryServices.subscriptions.watched(),
    isWatched: (subscriptionId) => discoveryServices.isWatched(subscriptionId),
    // Called when alerts may have changed, for example after a discovery of dependencies.
    ended: () => alerts.requestEvaluation(),
  });
  const certificateRenewal = createCertificateRenewal(platform, { inventory, rescans: discoveryServices.rescans });
  const modules = {
    ...platform,
    ...accessServices,
    ...inventoryServices,
    ...applicationServices,
    ...discoveryServices,
    ...automation,
    ...certificateRenewal,
    devops,
    sync,
    alerts,
    auditStreams,
  };
  const services: Services = { ...modules, ...createOperations(modules) };
  return services;
}

function createOperations(modules: Omit<Services, keyof Operations>): Operations {
  const { clock, randomness, log, tables, queues, audit, settings, identity, resourceManager } = modules;
  const { serviceKeyVault, appConfiguration, mail, writer, inventory, compliance, subscriptions } = modules;
  const { unreadableRows, activeScans, discovery, rescans, alerts, rotations, sync } = modules;
  const failedMessages = createFailedMessages({ tables, queues, audit, clock, log });
  return {
    complianceReports: createComplianceReports({
      compliance,
      unreadableVaults: async () => (await inventory.assets.figures(await inventory.moment())).unreadable,
      unreadSubscriptions: () => subscriptions.unread(),
      unicodeFont: UNICODE_FONT,
      clock,
    }),
    certificateReadiness: createReadinessReports({
      inventory,
      usesOf: async (vaultName) =>
        (await modules.licensed()) ? await modules.dependencies.certificateUses(vaultName) : undefined,
      ownerTag: modules.config.OWNER_TAG,
      asksAuthorities: modules.config.ARI_DIRECTORIES.length > 0,
      unicodeFont: UNICODE_FONT,
    }),
    cryptography: createCryptography({
      inventory,
      consumersOf: async (vaultName) =>
        (await modules.licensed()) ? await modules.dependencies.consumersOfAssets(vaultName) : undefined,
      ownerTag: modules.config.OWNER_TAG,
      protection: { tag: modules.config.PROTECT_UNTIL_TAG, years: modules.config.PROTECTION_YEARS },
    }),
    reconciliation: createReconciliation({
      writer,
      compliance,
      rescans,
      activeScans,
      unreadableRows,
      hasSignedRows: serviceKeyVault !== undefined,
      tables,
      audit,
      settings,
      clock,
      randomness,
      log,
    }),
    retention: createRetention({
      settings,
      audit,
      clock,
      stores: [
        auditHistory(audit),
        alerts.history.store(),
        scanHistory(tables),
        rotations.store(),
        sync.historyStore(),
      ],
    }),
    failedMessages,
    metrics: createMetrics({
      inventory,
      compliance,
      discovery,
      alerts,
      auditStreams: modules.auditStreams,
      failedMessages,
      unreadableRows,
      clock,
    }),
    health: createHealth({
      tables: readTable(modules),
      queues: readQueue(modules),
      identity,
      resourceManager,
      serviceKeyVault,
      appConfiguration,
      mail,
      clock,
    }),
    doctor: createDoctor(doctorDeps(modules)),
  };
}

/** One inexpensive request to the tables, and one to the queues. */
const readTable =
  ({ tables }: Pick<Platform, "tables">) =>
  () =>
    tables.get(ActiveScans, ACTIVE, ACTIVE);
const readQueue =
  ({ queues }: Pick<Platform, "queues">) =>
  () =>
    queues.checkReachable(QUEUES.plan);

/** Returns the modules whose outgoing calls the doctor makes. */
export function doctorDeps(modules: Omit<Services, keyof Operations>): DoctorDeps {
  const { alerts, subscriptions, sso } = modules;
  return {
    ...modules,
    readTable: readTable(modules),
    readQueue: readQueue(modules),
    watched: () => subscriptions.watched(),
    alertChannels: async () => new Set((await alerts.rules.all()).map(({ deliveryMethod }) => deliveryMethod)),
    ssoConfigured: async () => (await sso.configuration()).isEnabled,
  };
}
