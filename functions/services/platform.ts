import { type Audit, createAudit } from "../../shared/audit/audit.ts";
import { keyVaultAnchor } from "../../shared/audit/chain/anchor.ts";
import { createLicensing, type Licensing } from "../../shared/licensing/licensing.ts";
import { type AppConfiguration, createAppConfiguration } from "../../shared/platform/azure/app-configuration.ts";
import { createGraph, type Graph } from "../../shared/platform/azure/graph.ts";
import { createIdentity, type Identity } from "../../shared/platform/azure/identity.ts";
import { createKeyVaults, type KeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { createMailSender, type MailSender } from "../../shared/platform/azure/mail.ts";
import { createResourceManager, type ResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { keyVaultRowKeys } from "../../shared/platform/azure/row-keys.ts";
import { createServiceKeyVault, type ServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import { keyVaultSigningStates } from "../../shared/platform/azure/signing-state.ts";
import { createVaultKeys, type VaultKeysClients } from "../../shared/platform/azure/vault-keys.ts";
import { createVaultSecrets, type VaultSecretsClients } from "../../shared/platform/azure/vault-secrets.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { type Logger, type Randomness, systemRandomness } from "../../shared/platform/runtime.ts";
import { createStoreClock, type StoreClock } from "../../shared/platform/storage/clock.ts";
import { type StorageConnection, storageAccount } from "../../shared/platform/storage/connection.ts";
import { createQueues, type Queues } from "../../shared/platform/storage/queues.ts";
import { createSignedPartitions } from "../../shared/platform/storage/signed-partitions.ts";
import { createStoreFormat, type StoreFormat } from "../../shared/platform/storage/store-format.ts";
import { createTables, type StorageCorrupt, type Tables } from "../../shared/platform/storage/tables.ts";
import { createSettings, type Settings, type SettingValues } from "../../shared/settings/settings.ts";
import { createSignedRows, type SignedRows } from "../../shared/signed-rows/signed-rows.ts";
import { watchedAllBefore } from "../../shared/subscriptions/earlier-version.ts";
import { createUnreadableRows, type UnreadableRows } from "../../shared/unreadable-rows/unreadable-rows.ts";
import { createLogger } from "../log.ts";
import { storageConnection } from "../storage-connection.ts";
import { UNICODE_FONT } from "./unicode-font.ts";

/** Storage, clients of Azure, and the modules that most other modules use. */
export interface Platform {
  config: Config;
  /** Follows the table service's time. */
  clock: StoreClock;
  randomness: Randomness;
  log: Logger;
  /** How the storage account is reached. */
  connection: StorageConnection;
  tables: Tables;
  unreadableRows: UnreadableRows;
  signedRows: SignedRows;
  /** Stops this build if a later build has written rows that it can't read. */
  storeFormat: StoreFormat;
  queues: Queues;
  identity: Identity;
  serviceKeyVault: ServiceKeyVault | undefined;
  appConfiguration: AppConfiguration | undefined;
  mail: MailSender | undefined;
  keyVaults: KeyVaults;
  vaultSecrets: VaultSecretsClients;
  vaultKeys: VaultKeysClients;
  resourceManager: ResourceManager;
  graph: Graph;
  audit: Audit;
  settings: Settings;
  licensing: Licensing;
  /** Returns the ID of the service's own Entra tenant, or an empty text if it is unknown. */
  ownTenantId: () => Promise<string>;
  /** Returns whether the license includes PRO. */
  licensed: () => Promise<boolean>;
}

/** Creates the platform's modules. Sends no request. */
export function createPlatform(config: Config): Platform {
  // The clock follows the time of the storage service, so that all instances agree.
  const clock = createStoreClock();
  const randomness = systemRandomness();
  // The log level is a setting, and the settings log, so the logger first uses the configured level.
  let logLevel = (): SettingValues["logLevel"] => config.LOG_LEVEL ?? "INFO";
  const log = createLogger(() => logLevel());
  const identity = createIdentity(config);
  const serviceKeyVault = createServiceKeyVault({ config, identity, log });
  const connection = storageConnection(config, identity);
  // Keys that sign table rows, so that rows which another program wrote are detected. `unsignedUntil` is the time up to which
  // rows without a signature are accepted, because an earlier version wrote them. The signing state stores it.
  const signingStates = serviceKeyVault && keyVaultSigningStates(serviceKeyVault, storageAccount(connection), clock);
  const keys = serviceKeyVault && {
    ...keyVaultRowKeys(serviceKeyVault, randomness),
    unsignedUntil: () => signingStates!.unsignedUntil(),
  };
  const onUnreadable = (rows: readonly StorageCorrupt[]) => unreadableRows.report(rows);
  const tables = createTables(connection, { log, clock, keys, onUnreadable });
  const queues = createQueues(connection, { log });
  // The anchor stores outside of the tables where the audit log begins and ends, so that a truncated log is detected.
  const anchor = serviceKeyVault && keyVaultAnchor(serviceKeyVault, storageAccount(connection));
  const audit = createAudit({ tables, clock, randomness, config, log, anchor, unicodeFont: UNICODE_FONT });
  const unreadableRows: UnreadableRows = createUnreadableRows({ tables, audit, clock, randomness, log });
  const signedRows = createSignedRows({
    partitions: keys && createSignedPartitions(connection, { tables, keys, clock }),
    states: signingStates,
    unreadableRows,
    audit,
    clock,
    log,
  });
  const appConfiguration = createAppConfiguration({ config, identity });
  const settings = createSettings({
    tables,
    config,
    clock,
    audit,
    log,
    appConfiguration,
    // Earlier versions had no setting `watchAll`. Its first value is what the earlier version did.
    watchedAllBefore: () => watchedAllBefore(tables, config),
  });
  logLevel = () => settings.current()?.logLevel ?? config.LOG_LEVEL ?? "INFO";
  const licensing = createLicensing({ config, clock });
  return {
    config,
    clock,
    randomness,
    log,
    connection,
    tables,
    unreadableRows,
    signedRows,
    storeFormat: createStoreFormat({ tables, log }),
    queues,
    identity,
    serviceKeyVault,
    appConfiguration,
    mail: createMailSender({ config, identity }),
    keyVaults: createKeyVaults({ config, identity, log }),
    vaultSecrets: createVaultSecrets({ config, identity, log }),
    vaultKeys: createVaultKeys({ config, identity, log }),
    resourceManager: createResourceManager({ config, identity, log }),
    graph: createGraph({ config, identity, log }),
    ownTenantId: async () => config.AZURE_TENANT_ID ?? (await identity.describe()).tenantId ?? "",
    audit,
    settings,
    licensing,
    licensed: async () => (await licensing.tier()) === "pro",
  };
}
