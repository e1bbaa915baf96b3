import "./memory.ts";
import path from "node:path";
import { SpanKind } from "@opentelemetry/api";
import { type Access, createAccess } from "../shared/access/access.ts";
import { createEntraTokens } from "../shared/access/entra.ts";
import { type Alerts, createAlerts } from "../shared/alerts/alerts.ts";
import { createReferenceNews } from "../shared/alerts/reference-news.ts";
import { createRotationNews } from "../shared/alerts/rotation-news.ts";
import { createSyncNews } from "../shared/alerts/sync-news.ts";
import { type ApplicationsRoom, createApplications } from "../shared/applications/applications.ts";
import { type Audit, createAudit } from "../shared/audit/audit.ts";
import { keyVaultAnchor } from "../shared/audit/chain/anchor.ts";
import { createAppConfiguration } from "../shared/azure/app-configuration.ts";
import { createAppConfigurationReferences } from "../shared/azure/app-configuration-references.ts";
import { createArm } from "../shared/azure/arm.ts";
import { createGraph } from "../shared/azure/graph.ts";
import { createIdentity, type Identity } from "../shared/azure/identity.ts";
import { createKeyVaults } from "../shared/azure/key-vault.ts";
import { createMailSender } from "../shared/azure/mail.ts";
import { createRegistrationIdentity } from "../shared/azure/registration-identity.ts";
import { createResourceManager } from "../shared/azure/resource-manager.ts";
import { keyVaultRowKeys } from "../shared/azure/row-keys.ts";
import { createServiceKeyVault } from "../shared/azure/service-key-vault.ts";
import { createSignInProof } from "../shared/azure/sign-in-proof.ts";
import { createVaultSecrets } from "../shared/azure/vault-secrets.ts";
import { type B2c, createB2c } from "../shared/b2c/b2c.ts";
import { type Compliance, createCompliance } from "../shared/compliance/compliance.ts";
import type { Config } from "../shared/config/config.ts";
import { createAzureEdges } from "../shared/dependencies/azure/source.ts";
import { createConsumersOfSecrets } from "../shared/dependencies/consumers/consumers.ts";
import { createDependencies, type Dependencies } from "../shared/dependencies/dependencies.ts";
import { devopsSource } from "../shared/dependencies/devops/source.ts";
import type { EdgeSource } from "../shared/dependencies/source.ts";
import { createSyncSource } from "../shared/dependencies/sync-source.ts";
import { createDevops, type Devops } from "../shared/devops/devops.ts";
import { createActiveScans } from "../shared/discovery/active.ts";
import { createDiscovery, type Discovery } from "../shared/discovery/discovery.ts";
import { scanHistory } from "../shared/discovery/purge.ts";
import { createScanRun, type ScanRun } from "../shared/discovery/run.ts";
import { scanVault } from "../shared/discovery/scan-vault.ts";
import { createScanWatch } from "../shared/discovery/watch.ts";
import type { Gate } from "../shared/http/admission.ts";
import { createRateLimiter, type RateLimiter } from "../shared/http/rate-limit.ts";
import { createInventory, type Inventory } from "../shared/inventory/inventory.ts";
import { createInventoryWriter } from "../shared/inventory/write.ts";
import { createLicensing, type Licensing } from "../shared/licensing/licensing.ts";
import { createFailedMessages, type FailedMessages } from "../shared/messages/failed.ts";
import { createMetrics, type Metrics } from "../shared/metrics/metrics.ts";
import { createReconciliation, type Reconciliation } from "../shared/reconciliation/reconciliation.ts";
import { type AutomaticRotation, createAutomaticRotation } from "../shared/rotation/automatic.ts";
import { type AssetRotation, createAssetRotation } from "../shared/rotation/by-asset.ts";
import { PROOF_LIMITS } from "../shared/rotation/match-proof.ts";
import { createMatches, type MatchFinder } from "../shared/rotation/matches.ts";
import { createPolicies, type RotationPolicies } from "../shared/rotation/policies.ts";
import { policyView } from "../shared/rotation/policies-api.ts";
import { createRotations, type Rotations } from "../shared/rotation/rotations.ts";
import { type Clock, type Randomness, systemRandomness } from "../shared/runtime.ts";
import { auditHistory, createRetention, type Retention } from "../shared/settings/retention.ts";
import { createSettings, type Settings, type SettingValues } from "../shared/settings/settings.ts";
import { createSso, type Sso } from "../shared/sso/sso.ts";
import { createStoreClock } from "../shared/storage/clock.ts";
import { storageAccount } from "../shared/storage/connection.ts";
import { createQueues, type Queues } from "../shared/storage/queues.ts";
import { createTables, type Tables } from "../shared/storage/tables.ts";
import { createSubscriptions, type Subscriptions } from "../shared/subscriptions/subscriptions.ts";
import { createSync, type Sync } from "../shared/sync/sync.ts";
import { copiedOn } from "../shared/sync/vaults.ts";
import { inSpan } from "../shared/telemetry.ts";
import { createGate } from "./gate.ts";
import { createHealth, type Health } from "./health.ts";
import { createLogger } from "./log.ts";
import { storageConnection } from "./storage-connection.ts";

/** All rooms of the app, wired. The only place that knows which room gets which. */
export interface Services {
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
  watchScans: () => Promise<void>;
  health: Health;
  subscriptions: Subscriptions;
  retention: Retention;
  sync: Sync;
  b2c: B2c;
  alerts: Alerts;
  compliance: Compliance;
  reconciliation: Reconciliation;
  matches: MatchFinder;
  policies: RotationPolicies;
  rotations: Rotations;
  automaticRotation: AutomaticRotation;
  assetRotation: AssetRotation;
  dependencies: Dependencies;
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
  });
  const licensing = createLicensing({ config, clock });
  const licensed = async () => (await licensing.tier()) === "pro";
  const compliance = createCompliance({
    tables,
    queues,
    settings,
    audit,
    licensed,
    references: (vaultName) => dependencies.references.of(vaultName),
    clock,
    randomness,
    log,
  });
  level = () => settings.current()?.logLevel ?? config.LOG_LEVEL ?? "INFO";
  settings.onChange((keys) => compliance.policyChanged(keys));
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
  const sync = createSync({
    tables,
    queues,
    audit,
    config,
    licensing,
    vault: serviceKeyVault,
    vaultSecrets,
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
      { notices: (type, from) => rotationNews.notices(type, from) },
      createSyncNews(sync),
      createReferenceNews({ news: (from) => dependencies.references.news(from) }),
    ],
  });
  const writer = createInventoryWriter({ tables });
  const inventory = createInventory({
    tables,
    settings,
    clock,
    randomness,
    ownerTag: config.OWNER_TAG,
    licensed,
    writer,
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
      const found = await policies.of(appIds);
      return new Map([...found].map(([appId, policy]) => [appId, policyView(policy)]));
    },
    clock,
    randomness,
    log,
  });

  const arm = createArm({ config, identity, log });
  const resourceManager = createResourceManager({ config, identity, log });
  const sources: EdgeSource[] = [
    createAzureEdges({
      config,
      clock,
      arm,
      appConfiguration: createAppConfigurationReferences({ config, identity, log }),
      resourceManager,
      configured: () => subscriptions.configured(),
    }),
    devopsSource({ devops, tenantId: ownTenantId }),
    createSyncSource(sync),
  ];
  const dependencies: Dependencies = createDependencies({
    tables,
    queues,
    audit,
    config,
    sources,
    inventory,
    holdersOf: async ({ appId, keyId }) => {
      const found = await matches.of(appId);
      const certain = found.matches.filter((one) => one.confidence === "certain" && one.keyId === keyId);
      return certain.map(({ secret: { vaultName, name } }) => ({ vaultName, type: "secret", name }));
    },
    referencesChanged: compliance.referencesChanged,
    ended: () => alerts.requestEvaluation(),
    licensed,
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

  const keyVaults = createKeyVaults({ config, identity, log });
  const active = createActiveScans({ tables, clock });
  const subscriptions = createSubscriptions({
    tables,
    config,
    clock,
    audit,
    resourceManager,
    keyVaults,
    identity,
    inventory: {
      refuseWhileScanned: (subscriptionId) => active.refuseWhileScanned(subscriptionId),
      forget: (subscriptionId) => inventory.forgetSubscription(subscriptionId),
    },
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
    configuredSubscriptions: () => subscriptions.configured(),
    ended: async () => {
      await alerts.requestEvaluation();
      if (config.OTEL_EXPORTER_OTLP_ENDPOINT !== undefined) await metrics.record();
    },
    scanVault: (planned, options) =>
      inSpan({ name: "scan vault", kind: SpanKind.INTERNAL, attributes: { "vault.name": planned.name } }, () =>
        scanVault(planned, options, {
          writer,
          keyVaults,
          resourceManager,
          clock,
          prepareChange: compliance.prepareChange,
        }),
      ),
  });
  const discovery = createDiscovery({ tables, queues, active, audit, clock, randomness, log });
  const watchScans = createScanWatch({ tables, queues, active, run: scanRun, clock, log });
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
  const proveSignIn = createSignInProof(config);
  const signIn = async (appId: string, secret: string) =>
    await proveSignIn(appId, secret, config.AZURE_TENANT_ID ?? (await identity.describe()).tenantId ?? "organizations");
  const matches = createMatches({
    tables,
    audit,
    config,
    clock,
    log,
    limiter: createRateLimiter({ tables, clock, name: "matchProofs", limits: PROOF_LIMITS }),
    vaults: vaultSecrets,
    app: (appId) => graph.application({ appId }),
    proveSignIn: signIn,
  });
  const policies = createPolicies({
    tables,
    settings,
    audit,
    config,
    clock,
    log,
    app: async (appId) => {
      const app = await graph.application({ appId });
      return app && { ...app, reasons: (await applications.reasonsAgainst(app)).map(({ message }) => message) };
    },
    passwordPolicy: graph.passwordPolicy,
    matches,
  });
  const rotations = createRotations({
    tables,
    queues,
    settings,
    licensing,
    audit,
    config,
    graph,
    signIn,
    // What a rotation writes is copied on.
    vaults: copiedOn(vaultSecrets, (vault, secret) => sync.runFor(vault, secret)),
    own: serviceKeyVault,
    matches,
    consumers: createConsumersOfSecrets({ dependencies, arm, devops, sync, config, clock, tenantId: ownTenantId }),
    clock,
    randomness,
    log,
  });
  const assetRotation = createAssetRotation({ tables, config, vaults: vaultSecrets, matches, randomness });
  const automaticRotation = createAutomaticRotation({
    tables,
    queues,
    settings,
    clock,
    log,
    licensed,
    graph,
    matches,
    rotations,
  });
  const rotationNews = createRotationNews({ tables, clock, log, settings, licensed, policies, rotations });
  const retention = createRetention({
    settings,
    audit,
    clock,
    stores: [auditHistory(audit), alerts.history.store(), scanHistory(tables), rotations.store(), sync.historyStore()],
  });
  const failedMessages = createFailedMessages({ tables, queues, audit, clock, log });
  const metrics = createMetrics({ inventory, compliance, discovery, alerts, failedMessages, clock });
  const gate = createGate({ access, licensing, audit, limiter, signInLimiter });
  const health = createHealth({
    tables,
    queues,
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
    watchScans,
    health,
    subscriptions,
    retention,
    sync,
    b2c,
    alerts,
    compliance,
    reconciliation,
    matches,
    policies,
    rotations,
    automaticRotation,
    assetRotation,
    dependencies,
    failedMessages,
    metrics,
  };
}
