import path from "node:path";
import { SpanKind } from "@opentelemetry/api";
import { type Access, createAccess } from "../shared/access/access.ts";
import { createEntraTokens } from "../shared/access/entra.ts";
import { type Alerts, createAlerts } from "../shared/alerts/alerts.ts";
import { createReferenceNotices } from "../shared/alerts/reference-notices.ts";
import { createSyncNotices } from "../shared/alerts/sync-notices.ts";
import { createUsageNotices } from "../shared/alerts/usage-notices.ts";
import { type ApplicationsRoom, createApplications } from "../shared/applications/applications.ts";
import { type Audit, createAudit } from "../shared/audit/audit.ts";
import { keyVaultAnchor } from "../shared/audit/chain/anchor.ts";
import { type B2c, createB2c } from "../shared/b2c/b2c.ts";
import { type Compliance, createCompliance } from "../shared/compliance/compliance.ts";
import { type ComplianceReports, createComplianceReports } from "../shared/compliance/report/reports.ts";
import { createDevops, type Devops } from "../shared/devops/devops.ts";
import { createActiveScans } from "../shared/discovery/active-scans.ts";
import { createDiscovery, type Discovery } from "../shared/discovery/discovery.ts";
import { createFirstScan } from "../shared/discovery/first-scan.ts";
import { createRescans, type Rescans } from "../shared/discovery/rescans.ts";
import { ACTIVE, ActiveScans, QUEUES } from "../shared/discovery/scan.ts";
import { scanHistory } from "../shared/discovery/scan-history.ts";
import { createScanRun, type ScanRun } from "../shared/discovery/scan-run.ts";
import { readVault, type ScanVaultDeps } from "../shared/discovery/scan-vault.ts";
import { createScanWatch } from "../shared/discovery/scan-watch.ts";
import { createInventory, type Inventory } from "../shared/inventory/inventory.ts";
import { createInventoryWriter } from "../shared/inventory/write.ts";
import { createLicensing, type Licensing } from "../shared/licensing/licensing.ts";
import { createFailedMessages, type FailedMessages } from "../shared/messages/failed-messages.ts";
import { createMetrics, type Metrics } from "../shared/metrics/metrics.ts";
import { createAppConfiguration } from "../shared/platform/azure/app-configuration.ts";
import { createGraph } from "../shared/platform/azure/graph.ts";
import { createIdentity, type Identity } from "../shared/platform/azure/identity.ts";
import { createKeyVaults } from "../shared/platform/azure/key-vault.ts";
import { createMailSender } from "../shared/platform/azure/mail.ts";
import { createRegistrationIdentity } from "../shared/platform/azure/registration-identity.ts";
import { createResourceManager } from "../shared/platform/azure/resource-manager.ts";
import { keyVaultRowKeys } from "../shared/platform/azure/row-keys.ts";
import { createServiceKeyVault } from "../shared/platform/azure/service-key-vault.ts";
import { createVaultSecrets } from "../shared/platform/azure/vault-secrets.ts";
import type { Config } from "../shared/platform/config/config.ts";
import type { Gate } from "../shared/platform/http/admission.ts";
import { createRateLimiter, type RateLimiter } from "../shared/platform/http/rate-limit.ts";
import { type Clock, type Randomness, systemRandomness } from "../shared/platform/runtime.ts";
import { createStoreClock } from "../shared/platform/storage/clock.ts";
import { storageAccount } from "../shared/platform/storage/connection.ts";
import { createQueues, type Queues } from "../shared/platform/storage/queues.ts";
import { createTables, type Tables } from "../shared/platform/storage/tables.ts";
import { withSpan } from "../shared/platform/telemetry.ts";
import { createReconciliation, type Reconciliation } from "../shared/reconciliation/reconciliation.ts";
import { policyView } from "../shared/rotation/policy-view.ts";
import { auditHistory, createRetention, type Retention } from "../shared/settings/retention.ts";
import { createSettings, type Settings, type SettingValues } from "../shared/settings/settings.ts";
import { createSso, type Sso } from "../shared/sso/sso.ts";
import { watchedAllBefore } from "../shared/subscriptions/earlier-version.ts";
import { createSubscriptions, type Subscriptions } from "../shared/subscriptions/subscriptions.ts";
import { createSync, type Sync } from "../shared/sync/sync.ts";
import { type AutomationServices, wireAutomation } from "./automation-services.ts";
import { createGate } from "./gate.ts";
import { createHealth, type Health } from "./health.ts";
import { createLogger } from "./log.ts";
import { storageConnection } from "./storage-connection.ts";

/** All rooms of the app, wired: here, and those of dependencies and rotation in automation-services.ts. */
export interface Services extends AutomationServices {
  config: Config;
  clock: Clock;
  randomness: Randomness;
  tables: Tables;
  queues: Queues;
  identity: Identity;
  audit: Audit;
  settings: Settings;
  access: Access;
  sso: Sso;
  licensing: Licensing;
  limiter: RateLimiter;
  signInLimiter: RateLimiter;
  gate: Gate;
  inventory: Inventory;
  applications: ApplicationsRoom;
  devops: Devops;
  discovery: Discovery;
  scanRun: ScanRun;
  rescans: Rescans;
  watchScans: () => Promise<void>;
  startFirstScan: (requestId: string) => Promise<void>;
  health: Health;
  subscriptions: Subscriptions;
  retention: Retention;
  sync: Sync;
  b2c: B2c;
  alerts: Alerts;
  compliance: Compliance;
  complianceReports: ComplianceReports;
  reconciliation: Reconciliation;
  failedMessages: FailedMessages;
  metrics: Metrics;
}

/** Sign-ins per address and per username: https://owasp.org/API-Security/editions/2023/en/0xa2-broken-authentication/ */
const SIGN_IN_LIMITS = { perMinute: 10, perHour: 100 };

/** Anybody may have an issuer looked at, per address: the contract's figure. */
const DISCOVER_LIMITS = { perMinute: 10, perHour: 0 };

/** Beside the bundle's files, where the build puts it. */
const UNICODE_FONT = path.join(import.meta.dirname, "fonts", "unifontex-latin-400-normal.woff");

export function createServices(config: Config): Services {
  const clock = createStoreClock();
  const randomness = systemRandomness();
  let level = (): SettingValues["logLevel"] => config.LOG_LEVEL ?? "INFO";
  const log = createLogger(() => level());
  const identity = createIdentity(config);
  const connection = storageConnection(config, identity);
  const serviceKeyVault = createServiceKeyVault({ config, identity, log });
  const keys = serviceKeyVault && keyVaultRowKeys(serviceKeyVault, randomness);
  const tables = createTables(connection, { log, clock, keys });
  const queues = createQueues(connection, { log });
  const anchor = serviceKeyVault && keyVaultAnchor(serviceKeyVault, storageAccount(connection));
  const audit = createAudit({ tables, clock, randomness, config, log, anchor, unicodeFont: UNICODE_FONT });
  const appConfiguration = createAppConfiguration({ config, identity });
  const mail = createMailSender({ config, identity });
  const settings = createSettings({
    tables,
    config,
    clock,
    audit,
    log,
    appConfiguration,
    watchedAllBefore: () => watchedAllBefore(tables, config),
  });
  const licensing = createLicensing({ config, clock });
  const licensed = async () => (await licensing.tier()) === "pro";
  const compliance = createCompliance({
    tables,
    queues,
    settings,
    audit,
    licensed,
    references: async (vaultName) => [
      ...(await automation.dependencies.references.of(vaultName)),
      ...(await automation.logs.unused.of(vaultName)),
    ],
    ownerTag: config.OWNER_TAG,
    clock,
    randomness,
    log,
  });
  level = () => settings.current()?.logLevel ?? config.LOG_LEVEL ?? "INFO";
  settings.onChange((keys) => compliance.policyChanged(keys));
  settings.onChange(async (keys) => {
    if (keys.includes("watchAll")) await subscriptions.refreshScope({ actor: "system", requestId: "settings" });
  });
  const limits = { perMinute: config.RATE_LIMIT_PER_MINUTE, perHour: config.RATE_LIMIT_PER_HOUR };
  const limiter = createRateLimiter({ tables, clock, name: "calls", limits });
  const signInLimiter = createRateLimiter({ tables, clock, name: "signIn", limits: SIGN_IN_LIMITS });
  const access = createAccess({
    tables,
    config,
    clock,
    randomness,
    audit,
    log,
    limiter: signInLimiter,
    entra: createEntraTokens({ config, clock, log }),
    passwordSignIn: (username) => sso.passwordSignIn(username),
    roleMapped: () => sso.roleMapped(),
  });
  const sso: Sso = createSso({
    tables,
    config,
    audit,
    access,
    licensing,
    vault: serviceKeyVault,
    discoverLimiter: createRateLimiter({ tables, clock, name: "ssoDiscover", limits: DISCOVER_LIMITS }),
    clock,
    randomness,
    log,
  });
  const devops = createDevops({ tables, audit, config, identity, clock, randomness, log });
  const vaultSecrets = createVaultSecrets({ config, identity, log });
  const resourceManager = createResourceManager({ config, identity, log });
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
  const alerts = createAlerts({
    tables,
    queues,
    settings,
    audit,
    config,
    clock,
    randomness,
    log,
    mail,
    vault: serviceKeyVault,
    licensed,
    violations: compliance,
    credentials: [access.apiTokens, sso, licensing, sync.configurations, { expiring: (by) => b2c.expiring(by) }],
    entries: audit,
    automation: [
      { notices: (type, from) => automation.rotationNotices.notices(type, from) },
      createSyncNotices(sync),
      createReferenceNotices({ unresolved: (from) => automation.dependencies.references.unresolved(from) }),
      createUsageNotices({ unexpected: (from) => automation.logs.usage.unexpected(from) }),
    ],
  });
  const keyVaults = createKeyVaults({ config, identity, log });
  const writer = createInventoryWriter({ tables, clock });
  const inventory = createInventory({
    tables,
    settings,
    clock,
    randomness,
    ownerTag: config.OWNER_TAG,
    licensed,
    writer,
    keyVaults,
    vaultLeaves: (vault) => compliance.prepareChange({ vault, vaultBefore: vault, vaultGone: true }),
  });

  const graph = createGraph({ config, identity, log });
  const ownTenantId = async () => config.AZURE_TENANT_ID ?? (await identity.describe()).tenantId ?? "";
  const applications = createApplications({
    tables,
    queues,
    graph,
    tenantId: ownTenantId,
    inventory: { writer, prepareChange: compliance.prepareChange },
    moment: () => inventory.moment(),
    licensed,
    audit,
    ended: () => alerts.requestEvaluation(),
    policiesOf: async (appIds) => {
      const found = await automation.policies.of(appIds);
      return new Map([...found].map(([appId, policy]) => [appId, policyView(policy)]));
    },
    clock,
    randomness,
    log,
  });

  const b2c: B2c = createB2c({
    tables,
    queues,
    audit,
    vault: serviceKeyVault,
    graphOf: (registration) => createGraph({ config, identity: createRegistrationIdentity(config, registration), log }),
    ownTenantId,
    inventory: { writer, prepareChange: compliance.prepareChange },
    moment: () => inventory.moment(),
    licensed,
    ended: () => alerts.requestEvaluation(),
    clock,
    randomness,
    log,
  });

  const active = createActiveScans({ tables, clock });
  const subscriptions: Subscriptions = createSubscriptions({
    tables,
    config,
    settings,
    clock,
    audit,
    resourceManager,
    keyVaults,
    identity,
    inventory: {
      counts: () => inventory.bySubscription(),
      rejectWhileScanned: (subscriptionId) => active.rejectWhileScanned(subscriptionId),
      forget: (subscriptionId) => inventory.forgetSubscription(subscriptionId),
    },
  });
  const vaultDeps: ScanVaultDeps = {
    writer,
    keyVaults,
    resourceManager,
    clock,
    ownerTag: config.OWNER_TAG,
    detailRefreshDays: config.DETAIL_REFRESH_DAYS,
    prepareChange: compliance.prepareChange,
  };
  const rescans = createRescans({
    ...vaultDeps,
    tables,
    queues,
    settings,
    active,
    config,
    audit,
    watched: async (subscriptionId) => {
      const { all, named, discovered } = await subscriptions.watched();
      const id = subscriptionId.toLowerCase();
      // Until the first scan nothing is discovered.
      return named.includes(id) || (all && (discovered.length === 0 || discovered.includes(id)));
    },
    changed: () => alerts.requestEvaluation(),
    randomness,
    log,
  });
  const scanRun = createScanRun({
    tables,
    queues,
    settings,
    resourceManager,
    active,
    audit,
    clock,
    randomness,
    log,
    subscriptions,
    renewTotals: async () => {
      await Promise.all([inventory.renewTotals(), compliance.renewTotals()]);
    },
    ended: async (scan) => {
      await subscriptions.scanned(scan);
      await alerts.requestEvaluation();
      if (config.OTEL_EXPORTER_OTLP_ENDPOINT !== undefined) await metrics.record();
    },
    between: rescans.between,
    workerFreed: rescans.workerFreed,
    scanLeft: rescans.wakeNextRescan,
    readVault: async (planned, options) => {
      const span = { kind: SpanKind.INTERNAL, attributes: { "vault.name": planned.name } };
      const read = await withSpan({ name: "read vault", ...span }, () => readVault(planned, options, vaultDeps));
      return { ...read, write: () => withSpan({ name: "write vault", ...span }, read.write) };
    },
  });
  const discovery = createDiscovery({
    tables,
    queues,
    active,
    requireWatched: (ids) => subscriptions.requireWatched(ids),
    audit,
    clock,
    randomness,
    log,
  });
  const watchScans = createScanWatch({ tables, queues, active, run: scanRun, clock, log });
  const enabled = config.FIRST_SCAN === "on";
  const startFirstScan = createFirstScan({ tables, discovery, enabled, clock, randomness, log });
  const reconciliation = createReconciliation({
    writer,
    compliance,
    tables,
    audit,
    settings,
    clock,
    randomness,
    log,
  });
  const automation: AutomationServices = wireAutomation({
    config,
    identity,
    tables,
    queues,
    audit,
    settings,
    licensing,
    licensed,
    graph,
    ownTenantId,
    resourceManager,
    serviceKeyVault,
    vaultSecrets,
    inventory,
    applications,
    compliance,
    devops,
    sync,
    watched: () => subscriptions.watched(),
    ended: () => alerts.requestEvaluation(),
    clock,
    randomness,
    log,
  });
  const retention = createRetention({
    settings,
    audit,
    clock,
    stores: [
      auditHistory(audit),
      alerts.history.store(),
      scanHistory(tables),
      automation.rotations.store(),
      sync.historyStore(),
    ],
  });
  const failedMessages = createFailedMessages({ tables, queues, audit, clock, log });
  const complianceReports = createComplianceReports({
    compliance,
    unreadableVaults: async () => (await inventory.assets.figures(await inventory.moment())).unreadable,
    unreadSubscriptions: () => subscriptions.unread(),
    unicodeFont: UNICODE_FONT,
    clock,
  });
  const metrics = createMetrics({ inventory, compliance, discovery, alerts, failedMessages, clock });
  const gate = createGate({ access, licensing, audit, limiter, signInLimiter });
  const health = createHealth({
    tables: () => tables.get(ActiveScans, ACTIVE, ACTIVE),
    queues: () => queues.checkReachable(QUEUES.plan),
    identity,
    resourceManager,
    serviceKeyVault,
    appConfiguration,
    mail,
    clock,
  });

  return {
    config,
    clock,
    randomness,
    tables,
    queues,
    identity,
    audit,
    settings,
    access,
    sso,
    licensing,
    limiter,
    signInLimiter,
    gate,
    inventory,
    applications,
    devops,
    discovery,
    scanRun,
    rescans,
    watchScans,
    startFirstScan,
    health,
    subscriptions,
    retention,
    sync,
    b2c,
    alerts,
    compliance,
    complianceReports,
    reconciliation,
    ...automation,
    failedMessages,
    metrics,
  };
}
