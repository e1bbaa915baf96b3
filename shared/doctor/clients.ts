import type { B2c } from "../b2c/b2c.ts";
import type { Devops } from "../devops/devops.ts";
import { createApiManagement } from "../platform/azure/api-management.ts";
import type { AppConfiguration } from "../platform/azure/app-configuration.ts";
import { createAppConfigurationReferences } from "../platform/azure/app-configuration-references.ts";
import { createAppService } from "../platform/azure/app-service.ts";
import { createArm } from "../platform/azure/arm.ts";
import type { CallLimits } from "../platform/azure/calls.ts";
import { createContainerApps } from "../platform/azure/container-apps.ts";
import { createDataFactory } from "../platform/azure/data-factory.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import { createFrontDoor } from "../platform/azure/front-door.ts";
import { createGraph } from "../platform/azure/graph.ts";
import type { Identity } from "../platform/azure/identity.ts";
import { createKeyVaults } from "../platform/azure/key-vault.ts";
import { createLogAnalytics } from "../platform/azure/log-analytics.ts";
import type { MailSender } from "../platform/azure/mail.ts";
import { createResourceGraph } from "../platform/azure/resource-graph.ts";
import { createResourceManager } from "../platform/azure/resource-manager.ts";
import { createRoleAssignments, readAssignmentRecord } from "../platform/azure/role-assignments.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import { createSql } from "../platform/azure/sql.ts";
import { createStorageMetrics } from "../platform/azure/storage-metrics.ts";
import { createVaultSecrets } from "../platform/azure/vault-secrets.ts";
import type { Config } from "../platform/config/config.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import type { StorageConnection } from "../platform/storage/connection.ts";
import { isUnclear, SigningKeysMissing } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import type { Sync } from "../sync/sync.ts";

// The modules and clients through which the doctor makes the service's calls.

/** The modules of the service whose calls the doctor makes. */
export interface DoctorDeps {
  config: Config;
  identity: Identity;
  log: Logger;
  clock: Clock;
  licensed(): Promise<boolean>;
  /** The subscriptions to watch: `named`, and with `all` every one that the identity can see. */
  watched(): Promise<{ all: boolean; named: readonly string[] }>;
  /** Address and credentials of the storage account. */
  connection: StorageConnection;
  /** Reads one row of a table, at little cost. */
  readTable(): Promise<unknown>;
  /** Sends one request to a queue. */
  readQueue(): Promise<unknown>;
  serviceKeyVault: ServiceKeyVault | undefined;
  appConfiguration: AppConfiguration | undefined;
  mail: MailSender | undefined;
  devops: Devops;
  b2c: B2c;
  sync: Pick<Sync, "configurations" | "everyRecord" | "plan">;
  /** The delivery methods of the alert rules, such as `webhook`. */
  alertChannels(): Promise<ReadonlySet<string>>;
  /** Whether single sign-on is configured. */
  ssoConfigured(): Promise<boolean>;
}

/** A call is sent once more if there was no response, and not again after a response that tells the service to wait. */
const LIMITS: Partial<CallLimits> = {
  throttledTries: 1,
  concurrencyTries: 1,
  unreachableTries: 2,
  requestTimeoutMs: 15 * SECOND_MS,
};

export type Clients = ReturnType<typeof createClients>;

/** Creates the clients of Azure and Microsoft Graph that the check uses. The service uses the same clients, with more retries. */
export function createClients(deps: DoctorDeps) {
  const services = { ...deps, limits: LIMITS };
  const arm = createArm(services);
  return {
    resourceManager: createResourceManager(services),
    keyVaults: createKeyVaults(services),
    vaultSecrets: createVaultSecrets(services),
    resourceGraph: createResourceGraph(arm),
    roles: createRoleAssignments(arm),
    readAssignment: (id: string) => readAssignmentRecord(arm, id),
    graph: createGraph(services),
    logAnalytics: createLogAnalytics(services),
    appService: createAppService(arm),
    apiManagement: createApiManagement(arm),
    frontDoor: createFrontDoor(arm),
    dataFactory: createDataFactory(arm),
    sql: createSql(arm),
    storageMetrics: createStorageMetrics(arm),
    containerApps: createContainerApps(arm),
    appConfigurationReferences: createAppConfigurationReferences(services),
  };
}

/** Returns whether the service's own tables could not be read, or were read without the key that verifies their rows. */
export const isStoreFailure = (error: unknown): error is Error =>
  error instanceof Problem ||
  error instanceof CloudFailure ||
  error instanceof SigningKeysMissing ||
  (error instanceof Error && (error.name === "RestError" || isUnclear(error)));
