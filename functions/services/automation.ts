import type { AutomationSource } from "../../shared/alerts/automation-events.ts";
import { createRotationNotices } from "../../shared/alerts/rotation-notices.ts";
import type { ApplicationsService } from "../../shared/applications/applications.ts";
import type { Audit } from "../../shared/audit/audit.ts";
import { type CertificateEndpoints, createCertificateEndpoints } from "../../shared/certificates/endpoints.ts";
import type { Compliance } from "../../shared/compliance/compliance.ts";
import { createAzureEdges } from "../../shared/dependencies/azure/source.ts";
import { createConsumersOfSecrets } from "../../shared/dependencies/consumers/consumers.ts";
import { createDependencies, type Dependencies } from "../../shared/dependencies/dependencies.ts";
import { parseDevopsId } from "../../shared/dependencies/devops/ids.ts";
import { devopsSource } from "../../shared/dependencies/devops/source.ts";
import type { EdgeSource } from "../../shared/dependencies/edge-source.ts";
import { createLiteralSource } from "../../shared/dependencies/literals/source.ts";
import { createLogs, type Logs } from "../../shared/dependencies/logs/logs.ts";
import { createSyncSource } from "../../shared/dependencies/sync-source.ts";
import type { Devops } from "../../shared/devops/devops.ts";
import type { Rescans } from "../../shared/discovery/rescans.ts";
import { type KeyPermissions, readKeyPermissions } from "../../shared/doctor/key-permissions.ts";
import type { Inventory } from "../../shared/inventory/inventory.ts";
import { createKeyConsumerReader } from "../../shared/key-rotation/consumers.ts";
import { createKeyRotation, type KeyRotation } from "../../shared/key-rotation/key-rotation.ts";
import type { Licensing } from "../../shared/licensing/licensing.ts";
import { createAppConfigurationReferences } from "../../shared/platform/azure/app-configuration-references.ts";
import { createArm } from "../../shared/platform/azure/arm.ts";
import type { Graph } from "../../shared/platform/azure/graph.ts";
import type { Identity } from "../../shared/platform/azure/identity.ts";
import type { KeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { createLogAnalytics } from "../../shared/platform/azure/log-analytics.ts";
import { createResourceGraph } from "../../shared/platform/azure/resource-graph.ts";
import type { ResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { createRoleAssignments } from "../../shared/platform/azure/role-assignments.ts";
import type { ServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import { createExchangeProof, createSignInProof } from "../../shared/platform/azure/sign-in-proof.ts";
import { createStorageMetrics } from "../../shared/platform/azure/storage-metrics.ts";
import type { VaultKeysClients } from "../../shared/platform/azure/vault-keys.ts";
import type { VaultSecretsClients } from "../../shared/platform/azure/vault-secrets.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { createRateLimiter } from "../../shared/platform/http/rate-limit.ts";
import type { Clock, Logger, Randomness } from "../../shared/platform/runtime.ts";
import type { Queues } from "../../shared/platform/storage/queues.ts";
import type { Tables } from "../../shared/platform/storage/tables.ts";
import { type AssetRotation, createAssetRotation } from "../../shared/rotation/asset-rotation.ts";
import { type AutomaticRotation, createAutomaticRotation } from "../../shared/rotation/automatic.ts";
import { createLoginServers } from "../../shared/rotation/database-logins/login-servers.ts";
import {
  createLoginRegistrations,
  type LoginRegistrations,
} from "../../shared/rotation/database-logins/registrations.ts";
import { type DatabaseServer, listServers } from "../../shared/rotation/database-logins/server-list.ts";
import { PROOF_LIMITS } from "../../shared/rotation/match-verification.ts";
import { createMatches, type MatchFinder } from "../../shared/rotation/matches.ts";
import { createPolicies, type RotationPolicies } from "../../shared/rotation/policies.ts";
import { type Credentials, createCredentials } from "../../shared/rotation/resource-keys/credentials.ts";
import { createKeysClient } from "../../shared/rotation/resource-keys/keys-client.ts";
import { createKeyLinks } from "../../shared/rotation/resource-keys/links.ts";
import { createRotations, type Rotations } from "../../shared/rotation/rotations.ts";
import { createSecretlessRuns, type SecretlessRuns } from "../../shared/secretless/runs.ts";
import { createSecretless, type Secretless } from "../../shared/secretless/secretless.ts";
import { createSharedKeys, type ListSharedKeys } from "../../shared/secretless/shared-keys.ts";
import { readWorkloadClaims } from "../../shared/secretless/workload-claims.ts";
import type { Settings } from "../../shared/settings/settings.ts";
import { startingSyncOnWrite } from "../../shared/sync/record-vaults.ts";
import type { Sync } from "../../shared/sync/sync.ts";

/**
 * The modules of dependencies (which resources use an asset), logs (who read it) and rotation. A match is a vault secret that
 * holds, or may hold, a client secret of an application. A policy says how an application's client secrets are rotated.
 */
export interface AutomationServices {
  dependencies: Dependencies;
  certificateEndpoints: CertificateEndpoints;
  logs: Logs;
  matches: MatchFinder;
  policies: RotationPolicies;
  rotations: Rotations;
  automaticRotation: AutomaticRotation;
  assetRotation: AssetRotation;
  credentials: Credentials;
  /** Registered pairs of database users. */
  logins: LoginRegistrations;
  /** Returns the database servers whose logins can be registered. @throws {CloudFailure} */
  databaseServers: () => Promise<DatabaseServer[]>;
  secretless: Secretless;
  /** Rotations of keys of key vaults. */
  keyRotation: KeyRotation;
  secretlessRuns: SecretlessRuns;
  /** Lists resources that could turn their shared keys off. */
  sharedKeys: ListSharedKeys;
  /** Reads which keys the service's roles permit it to rotate now. @throws {CloudFailure} */
  keyPermissions: () => Promise<KeyPermissions>;
  rotationNotices: AutomationSource;
}

/** Creates and connects the modules of dependencies, logs and rotation. */
export function createAutomation(deps: {
  config: Config;
  identity: Identity;
  tables: Tables;
  queues: Queues;
  audit: Audit;
  settings: Settings;
  licensing: Licensing;
  licensed: () => Promise<boolean>;
  graph: Graph;
  ownTenantId: () => Promise<string>;
  resourceManager: ResourceManager;
  serviceKeyVault: ServiceKeyVault | undefined;
  vaultSecrets: VaultSecretsClients;
  vaultKeys: VaultKeysClients;
  keyVaults: KeyVaults;
  inventory: Inventory;
  applications: ApplicationsService;
  rescans: Pick<Rescans, "requestForChange">;
  compliance: Compliance;
  devops: Devops;
  sync: Sync;
  /** Monitored subscriptions. With `all`, also every subscription that the identity can access. */
  watched: () => Promise<{ all: boolean; named: readonly string[] }>;
  /** Whether a subscription is monitored. */
  isWatched: (subscriptionId: string) => Promise<boolean>;
  /** Called when alerts may need another evaluation. */
  ended: () => Promise<void>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): AutomationServices {
  const { config, identity, tables, queues, audit, settings, licensing, licensed, graph, ownTenantId } = deps;
  const { resourceManager, serviceKeyVault, vaultSecrets, inventory, applications, compliance, devops, sync } = deps;
  const { watched, ended, clock, randomness, log } = deps;

  const arm = createArm({ config, identity, log });
  const ownObjectId = async () => (await identity.describe()).objectId;
  const logs = createLogs({
    tables,
    config,
    logAnalytics: createLogAnalytics({ config, identity, log }),
    ownObjectId,
    settings,
    inventory,
    // Called when the logs show that an asset is unused, or used again. Its compliance is then evaluated.
    unusedChanged: compliance.referencesChanged,
    clock,
    randomness,
  });
  // An edge is one dependency: a resource that uses an asset.
  const azureEdges = createAzureEdges({
    config,
    clock,
    arm,
    appConfiguration: createAppConfigurationReferences({ config, identity, log }),
    resourceManager,
    watched,
    ownObjectId,
  });
  const sources: EdgeSource[] = [
    azureEdges,
    // Finds app settings whose value is a copy of a vault secret.
    createLiteralSource({
      config,
      tables,
      arm,
      resourceManager,
      vaults: vaultSecrets,
      audit,
      randomness,
      // The parts that are read separately: the monitored subscriptions.
      units: azureEdges.units,
      ownObjectId,
      keysOfLinks: (signal) => keyLinks.keysOfLinks(signal),
    }),
    devopsSource({ devops, tenantId: ownTenantId }),
    createSyncSource(sync),
    logs.source,
  ];
  const certificateEndpoints = createCertificateEndpoints({
    tables,
    queues,
    audit,
    config,
    inventory,
    keyVaults: deps.keyVaults,
    licensed,
    problemsFound: ended,
    clock,
    log,
  });
  const dependencies: Dependencies = createDependencies({
    tables,
    queues,
    audit,
    config,
    sources,
    usage: logs.usage,
    inventory,
    // The consumers of these vault secrets also depend on the client secret that they store.
    secretsStoring: async ({ appId, keyId }) => {
      const list = await matches.listMatches(appId);
      const certain = list.matches.filter((match) => match.confidence === "certain" && match.keyId === keyId);
      return certain.map(({ secret: { vaultName, name } }) => ({ vaultName, type: "secret", name }));
    },
    referencesChanged: compliance.referencesChanged,
    ended: async ({ mayHaveChanged }) => {
      if (mayHaveChanged) await certificateEndpoints.replaceDiscovered(await dependencies.servedHosts());
      await ended();
    },
    licensed,
    clock,
    randomness,
    log,
  });

  // If the tenant is unknown, `organizations` lets Entra find it.
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
    app: (appId) => graph.findApplication({ appId }),
    proveSignIn: signIn,
  });
  const keys = createKeysClient(arm, config.cloud);
  const keyLinks = createKeyLinks({ tables, config, vaults: vaultSecrets, keys, index: matches.index, log });
  const loginServers = createLoginServers({ arm, identity, cloud: config.cloud });
  const logins = createLoginRegistrations({
    tables,
    config,
    vaults: vaultSecrets,
    servers: loginServers,
    isWatched: deps.isWatched,
    audit,
    clock,
    log,
  });
  const policies = createPolicies({
    tables,
    settings,
    audit,
    config,
    clock,
    log,
    app: async (appId) => {
      const app = await graph.findApplication({ appId });
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
    // After a rotation writes a vault secret, its sync records copy the new value to their targets.
    vaults: startingSyncOnWrite(vaultSecrets, (vault, secret) => sync.runFor(vault, secret)),
    serviceVault: serviceKeyVault,
    matches,
    keys,
    keyLinks,
    loginServers,
    logins,
    inventory: {
      applicationChanged: (application) => applications.requestRefresh(application),
      vaultChanged: (vaultName) => deps.rescans.requestForChange(vaultName),
    },
    usage: logs.usage,
    consumers: createConsumersOfSecrets({ dependencies, arm, devops, sync, config, clock, tenantId: ownTenantId }),
    clock,
    randomness,
    log,
  });
  const credentials = createCredentials({
    tables,
    config,
    keys,
    vaults: vaultSecrets,
    links: keyLinks,
    logins,
    units: azureEdges.units,
    audit,
    queues,
    readsOf: (vaultName) => logs.unused.readsOf(vaultName),
    clock,
    randomness,
    log,
  });
  const assetRotation = createAssetRotation({
    tables,
    config,
    vaults: vaultSecrets,
    matches,
    keyLinks,
    logins,
    randomness,
  });
  const automaticRotation = createAutomaticRotation({ ...deps, matches, rotations });
  const rotationNotices = createRotationNotices({ tables, clock, log, settings, licensed, policies, rotations });

  const resourceGraph = createResourceGraph(arm);
  const storageMetrics = createStorageMetrics(arm);

  return {
    dependencies,
    certificateEndpoints,
    logs,
    matches,
    policies,
    rotations,
    automaticRotation,
    assetRotation,
    credentials,
    logins,
    databaseServers: async () => listServers(arm, await azureEdges.units()),
    keyRotation: createKeyRotation({
      ...deps,
      vaults: deps.vaultKeys,
      consumers: createKeyConsumerReader({ dependencies, arm, config }),
      vaultChanged: (vaultName) => deps.rescans.requestForChange(vaultName),
    }),
    ...createReplacements({ ...deps, matches, dependencies, rotations, resourceGraph }),
    sharedKeys: createSharedKeys({ storageMetrics, resourceGraph, units: azureEdges.units, credentials, clock }),
    keyPermissions: () =>
      readKeyPermissions({ roles: createRoleAssignments(arm), units: azureEdges.units, ownObjectId }),
    rotationNotices,
  };
}

/** Creates the report about replacing client secrets, and the runs that replace them. */
function createReplacements(
  deps: Omit<Parameters<typeof createSecretless>[0], "cloud"> &
    Pick<Parameters<typeof createSecretlessRuns>[0], "tables" | "queues" | "audit" | "graph" | "devops"> &
    Pick<Parameters<typeof createSecretlessRuns>[0], "clock" | "randomness" | "log"> & {
      config: Config;
      applications: Pick<ApplicationsService, "requestRefresh">;
      rotations: Pick<Rotations, "unfinishedOf">;
      resourceGraph: ReturnType<typeof createResourceGraph>;
    },
): Pick<AutomationServices, "secretless" | "secretlessRuns"> {
  const { config, applications, rotations, resourceGraph } = deps;
  const secretless = createSecretless({ ...deps, cloud: config.cloud });
  const secretlessRuns = createSecretlessRuns({
    ...deps,
    exchange: createExchangeProof(config),
    report: (appId) => secretless.report(appId),
    claimsOf: (consumer) => readWorkloadClaims(resourceGraph, consumer),
    rotationOf: (appId) => rotations.unfinishedOf(appId),
    parseConnection(id) {
      const { projectId, connectionId } = parseDevopsId(id) ?? {};
      return projectId === undefined || connectionId === undefined ? undefined : { projectId, connectionId };
    },
    inventory: { applicationChanged: (application) => applications.requestRefresh(application) },
  });
  return { secretless, secretlessRuns };
}
