import { TableClient } from "@azure/data-tables";
import type { Cloud } from "simulated-cloud/cloud.ts";
import type { AuditEvent } from "../../shared/audit/audit.ts";
import { VAULTS, type VaultRecord, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { keyVaultRowKeys } from "../../shared/platform/azure/row-keys.ts";
import { createServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import { createVaultSecrets, type VaultSecretsClients } from "../../shared/platform/azure/vault-secrets.ts";
import type { Caller, Tier } from "../../shared/platform/http/endpoint.ts";
import { type Logger, systemRandomness } from "../../shared/platform/runtime.ts";
import type { Queues } from "../../shared/platform/storage/queues.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { NewSyncRecord } from "../../shared/sync/api.ts";
import { RUN_QUEUE, type SyncRecordRow } from "../../shared/sync/record.ts";
import { startingSyncOnWrite } from "../../shared/sync/record-vaults.ts";
import { createSync, type Sync } from "../../shared/sync/sync.ts";
import { SHORT_WAITS } from "../azure/config.ts";
import { configFor } from "../azure/live-cloud.ts";
import type { MovedStorage } from "../support/moved-storage.ts";
import { crashable, type Steps } from "../support/simulated-crash.ts";

// Fixture of sync: the modules run on real tables and the simulated cloud, and the test controls the queue and the clock.

export const HOUR_MS = 3_600_000;
export const caller: Caller = { actor: "admin", requestId: "test" };
export const PAGE = { limit: 100, offset: 0, cursor: undefined };

/** Key vaults from which and to which the records of these tests copy secrets. */
export const SOURCE = "kv-shop";
export const COPIES = "kv-copies";

/** A queue message that waits until `visibleAt`. */
interface Message {
  queue: string;
  message: { recordId?: string; provider?: string };
  visibleAt: number;
}

export interface FixtureOptions {
  cloud: Cloud;
  connectionString: string;
  /** The storage whose clock moves with the fixture's, so that leases expire. Not needed if a test does not move the clock. */
  storage?: MovedStorage;
  config?: Partial<ReturnType<typeof configFor>>;
  /** Milliseconds by which the fixture's clock is ahead of the system's at first. Can be negative. */
  clockOffsetMs?: number;
}

/**
 * Fixture of sync on one storage account and the simulated cloud. A sync record copies a secret of a key vault (the source) to
 * another vault or provider (the target). The test moves the clock, handles the queued messages, and can crash instances.
 */
export function openFixture({ cloud, connectionString, storage, ...options }: FixtureOptions) {
  let { clockOffsetMs = 0 } = options;
  const clock = { now: () => new Date(Date.now() + clockOffsetMs) };
  const messages: Message[] = [];
  const events: AuditEvent[] = [];
  const logged: string[] = [];
  const write = (message: string, fields?: object) => void logged.push(`${message} ${JSON.stringify(fields)}`);
  const log: Logger = { debug: write, info: write, warn: write, error: write };
  const config = { ...configFor(cloud), ...options.config };
  const identity = createIdentity(config);
  const clients = createVaultSecrets({ config, identity, log, limits: SHORT_WAITS });
  const resourceManager = createResourceManager({ config, identity, log, limits: SHORT_WAITS });
  const vault = createServiceKeyVault({ config, identity, log })!;
  const tables = createTables({ connectionString }, { keys: keyVaultRowKeys(vault, systemRandomness()) });
  const { port } = new URL(config.SERVICE_KEY_VAULT_URL!);
  const licence = { tier: "pro" as Tier };
  let names = 0;

  const queues: Queues = {
    async send(queue, message, { delaySeconds = 0 } = {}) {
      const visibleAt = clock.now().getTime() + delaySeconds * 1000;
      messages.push({ queue, message: message as Message["message"], visibleAt });
    },
    checkReachable: async () => {},
  };

  async function appendAuditEvent(event: AuditEvent): Promise<void> {
    events.push(event);
    await fixture.onAuditEvent?.(event);
  }

  /** Creates the module as one instance of the service has it. The instance crashes at one of its steps if `steps` says so. */
  function instance(steps: Steps = { taken: 0 }): Sync {
    const isCounted = (name: string) => name !== "pages";
    const vaultSecrets: VaultSecretsClients = { open: (vault) => crashable(clients.open(vault), steps) };
    return createSync({
      tables: crashable<Tables>(tables, steps, isCounted),
      queues: crashable(queues, steps),
      audit: crashable({ append: appendAuditEvent }, steps),
      config,
      licensing: { tier: async () => licence.tier },
      vault,
      vaultSecrets,
      resourceManager,
      clock,
      randomness: systemRandomness(),
      log,
    });
  }

  const first = instance();
  const fixture = {
    connectionString,
    tables,
    clock,
    config,
    messages,
    events,
    logged,
    licence,
    instance,
    sync: first,
    /** Called while an audit event is written. */
    onAuditEvent: undefined as ((event: AuditEvent) => Promise<void>) | undefined,

    /** Lets time pass, also for leases if the fixture has a storage whose clock can be moved. */
    async passTime(milliseconds: number): Promise<void> {
      clockOffsetMs += milliseconds;
      await storage?.move(milliseconds);
    },

    /** Adds vaults of the simulated cloud to the inventory, as a scan does. */
    async discover(...vaults: string[]): Promise<void> {
      for (const name of vaults) {
        const vaultUri = `https://${name}.${config.cloud.keyVaultSuffix}:${port}/`;
        const { subscriptionId } = cloud.control.vaults().find((vault) => vault.name === name)!;
        await tables.put(Vaults, VAULTS, vaultKey(name), { ...vaultOf(name, subscriptionId), vaultUri });
      }
    },

    unusedName: (prefix = "copy"): string => `${prefix}-${names++}`,

    /** Writes a secret, or a new version of it, to the source vault and returns its name. */
    putSourceSecret(value: string, name: string = fixture.unusedName("secret")): string {
      cloud.control.putSecret(SOURCE, { name, value });
      return name;
    },

    /** Creates a record that copies a new secret with the value `value-one` to the vault of copies. Does not run it. */
    async createRecord(given: Partial<Record<keyof SyncRecordRow, unknown>> = {}): Promise<SyncRecordRow> {
      const sourceSecret = given.sourceSecret ?? fixture.putSourceSecret("value-one");
      const target = { targetProvider: "azure", targetService: "keyvault", targetRegion: COPIES };
      const defaults = { sourceVault: SOURCE, sourceSecret, ...target, targetName: fixture.unusedName() };
      return await fixture.sync.records.create(NewSyncRecord.parse({ ...defaults, ...given }), caller);
    },

    /** Handles visible messages until there are none. */
    async drain(sync = first): Promise<void> {
      for (;;) {
        const next = messages.find(({ visibleAt }) => visibleAt <= clock.now().getTime());
        if (!next) return;
        if (next.queue === RUN_QUEUE) await sync.run(next.message.recordId!);
        else await sync.retryFailedRecords(next.message.provider!);
        messages.splice(messages.indexOf(next), 1);
      }
    },

    /** Handles all messages. Moves the clock until delayed messages are visible. */
    async drainAll(sync = first): Promise<void> {
      while (messages.length > 0) {
        const wait = Math.min(...messages.map(({ visibleAt }) => visibleAt)) - clock.now().getTime();
        if (wait > 0) await fixture.passTime(wait);
        await fixture.drain(sync);
      }
    },

    /** Handles all messages and returns the record afterwards. */
    async runAndGet(recordId: string): Promise<SyncRecordRow> {
      await fixture.drainAll();
      return await fixture.sync.get(recordId);
    },

    /** Moves the clock until the record is due, and runs the timer that sends messages for due records. */
    async makeDue({ scheduleHours }: { scheduleHours: number }): Promise<void> {
      await fixture.passTime(scheduleHours * HOUR_MS + 1000);
      await fixture.sync.sendDueRecords();
    },

    /** Opens the vault of the copies, as another writer does. */
    openCopiesVault: () =>
      clients.open({ name: COPIES, vaultUri: `https://${COPIES}.${config.cloud.keyVaultSuffix}:${port}/` }),

    /** Opens the source vault as a rotation does: its writes start the records of the written secret. */
    openSourceForRotation: () =>
      startingSyncOnWrite(clients, (vault, secret) => first.runFor(vault, secret)).open({
        name: SOURCE,
        vaultUri: `https://${SOURCE}.${config.cloud.keyVaultSuffix}:${port}/`,
      }),

    /** Deletes all records and messages, so that they don't run in the next test. */
    async removeAllRecords(): Promise<void> {
      messages.splice(0);
      const { items } = await first.list({}, { ...PAGE, limit: 1000 });
      for (const { recordId } of items) await first.remove(recordId, false, undefined, caller);
    },

    /** Returns the value of a secret in the vault of copies. */
    copyValue: (name: string): string | undefined => cloud.control.secretValue(COPIES, name),

    /** Returns the kinds of the record's history entries, newest first. */
    historyKinds: async (recordId: string): Promise<string[]> =>
      (await fixture.sync.history(recordId, PAGE)).items.map(({ kind }) => kind),

    /** Returns all rows of the table `Sync` as JSON. */
    async rowsAsText(): Promise<string> {
      const client = TableClient.fromConnectionString(connectionString, "Sync", { allowInsecureConnection: true });
      const rows: unknown[] = [];
      for await (const row of client.listEntities()) rows.push(row);
      return JSON.stringify(rows);
    },
  };
  return fixture;
}
export type Fixture = ReturnType<typeof openFixture>;

const vaultOf = (name: string, subscriptionId: string): VaultRecord => ({
  name,
  id: `/subscriptions/${subscriptionId}/resourceGroups/rg-security/providers/Microsoft.KeyVault/vaults/${name}`,
  vaultUri: "",
  location: "westeurope",
  subscriptionId,
  resourceGroup: "rg-security",
  tenantId: "22222222-2222-4222-8222-222222222222",
  sku: "standard",
  softDelete: true,
  purgeProtection: true,
  rbacAuthorization: true,
  publicNetworkAccess: "Enabled",
  networkDefaultAction: "Allow",
  privateEndpoints: 0,
  firstSeenAt: new Date(0).toISOString(),
  listedAt: {},
  failures: {},
  failedScans: 0,
  listings: {},
  contents: {},
  pending: false,
});
