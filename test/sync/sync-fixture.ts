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
import { copiedOn } from "../../shared/sync/record-vaults.ts";
import { createSync, type Sync } from "../../shared/sync/sync.ts";
import { IMPATIENT } from "../azure/config.ts";
import { configIn } from "../azure/live-cloud.ts";
import type { MovedStorage } from "../support/moved-storage.ts";
import { crashable, type Steps } from "../support/simulated-crash.ts";

export const HOUR_MS = 3_600_000;
export const caller: Caller = { actor: "admin", requestId: "test" };
export const PAGE = { limit: 100, offset: 0, cursor: undefined };

/** Source and target of the records of these tests. */
export const SOURCE = "kv-shop";
export const COPIES = "kv-copies";

interface Message {
  queue: string;
  message: { recordId?: string; provider?: string };
  visibleAt: number;
}

export interface FixtureOptions {
  cloud: Cloud;
  connectionString: string;
  /** Whose time leases go by, where it has to move. */
  storage?: MovedStorage;
  config?: Partial<ReturnType<typeof configIn>>;
  /** Milliseconds that its clock is ahead, to begin with. */
  ahead?: number;
}

/** Sync on one storage account: a clock to move, queues to drain, and instances that can die. */
export function openFixture({ cloud, connectionString, storage, ...options }: FixtureOptions) {
  let { ahead = 0 } = options;
  const clock = { now: () => new Date(Date.now() + ahead) };
  const messages: Message[] = [];
  const events: AuditEvent[] = [];
  const logged: string[] = [];
  const write = (message: string, fields?: object) => void logged.push(`${message} ${JSON.stringify(fields)}`);
  const log: Logger = { debug: write, info: write, warn: write, error: write };
  const config = { ...configIn(cloud), ...options.config };
  const identity = createIdentity(config);
  const clients = createVaultSecrets({ config, identity, log, limits: IMPATIENT });
  const resourceManager = createResourceManager({ config, identity, log, limits: IMPATIENT });
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

  async function enter(event: AuditEvent): Promise<void> {
    events.push(event);
    await fixture.whenEntered?.(event);
  }

  function instance(steps: Steps = { taken: 0 }): Sync {
    const isCounted = (name: string) => name !== "pages";
    const vaultSecrets: VaultSecretsClients = { open: (vault) => crashable(clients.open(vault), steps) };
    return createSync({
      tables: crashable<Tables>(tables, steps, isCounted),
      queues: crashable(queues, steps),
      audit: crashable({ append: enter }, steps),
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
    /** What happens while an entry of the audit log is written. */
    whenEntered: undefined as ((event: AuditEvent) => Promise<void>) | undefined,

    /** Lets milliseconds pass, also for leases if the storage's time can be moved. */
    async pass(milliseconds: number): Promise<void> {
      ahead += milliseconds;
      await storage?.move(milliseconds);
    },

    /** Vaults that a scan found. */
    async discover(...vaults: string[]): Promise<void> {
      for (const name of vaults) {
        const vaultUri = `https://${name}.${config.cloud.keyVaultSuffix}:${port}/`;
        const { subscriptionId } = cloud.control.vaults().find((one) => one.name === name)!;
        await tables.put(Vaults, VAULTS, vaultKey(name), { ...vaultOf(name, subscriptionId), vaultUri });
      }
    },

    /** Returns an unused name. */
    fresh: (prefix = "copy"): string => `${prefix}-${names++}`,

    /** A secret in the source's vault. */
    secret(value: string, name: string = fixture.fresh("secret")): string {
      cloud.control.putSecret(SOURCE, { name, value });
      return name;
    },

    /** A record from a new secret to the copies' vault; not run yet. */
    async record(given: Partial<Record<keyof SyncRecordRow, unknown>> = {}): Promise<SyncRecordRow> {
      const sourceSecret = given.sourceSecret ?? fixture.secret("value-one");
      const target = { targetProvider: "azure", targetService: "keyvault", targetRegion: COPIES };
      const ends = { sourceVault: SOURCE, sourceSecret, ...target, targetName: fixture.fresh() };
      return await fixture.sync.records.create(NewSyncRecord.parse({ ...ends, ...given }), caller);
    },

    /** Handles visible messages of the queues until there are none. */
    async drain(sync = first): Promise<void> {
      for (;;) {
        const next = messages.find(({ visibleAt }) => visibleAt <= clock.now().getTime());
        if (!next) return;
        if (next.queue === RUN_QUEUE) await sync.run(next.message.recordId!);
        else await sync.configured(next.message.provider!);
        messages.splice(messages.indexOf(next), 1);
      }
    },

    /** Handles all messages, moving the clock on to each. */
    async drainAll(sync = first): Promise<void> {
      while (messages.length > 0) {
        const wait = Math.min(...messages.map(({ visibleAt }) => visibleAt)) - clock.now().getTime();
        if (wait > 0) await fixture.pass(wait);
        await fixture.drain(sync);
      }
    },

    /** Returns the record after all waiting messages have run. */
    async settled(recordId: string): Promise<SyncRecordRow> {
      await fixture.drainAll();
      return await fixture.sync.get(recordId);
    },

    /** Its time comes. */
    async dueAgain({ scheduleHours }: { scheduleHours: number }): Promise<void> {
      await fixture.pass(scheduleHours * HOUR_MS + 1000);
      await fixture.sync.sendDueRecords();
    },

    /** The vault of the copies, as used by another writer. */
    copies: () => clients.open({ name: COPIES, vaultUri: `https://${COPIES}.${config.cloud.keyVaultSuffix}:${port}/` }),

    /** The source's vault, as a rotation writes it. */
    rotated: () =>
      copiedOn(clients, (vault, secret) => first.runFor(vault, secret)).open({
        name: SOURCE,
        vaultUri: `https://${SOURCE}.${config.cloud.keyVaultSuffix}:${port}/`,
      }),

    /** Takes all records away, so that none runs along with the next test's. */
    async clear(): Promise<void> {
      messages.splice(0);
      const { items } = await first.list({}, { ...PAGE, limit: 1000 });
      for (const { recordId } of items) await first.remove(recordId, false, undefined, caller);
    },

    value: (name: string): string | undefined => cloud.control.secretValue(COPIES, name),

    kinds: async (recordId: string): Promise<string[]> =>
      (await fixture.sync.history(recordId, PAGE)).items.map(({ kind }) => kind),

    /** Every row of sync, as text. */
    async rows(): Promise<string> {
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
