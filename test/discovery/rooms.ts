import { createAudit } from "../../shared/audit/audit.ts";
import type { AuditEntry } from "../../shared/audit/entry.ts";
import type {
  KeyVaults,
  ListedAsset,
  OnUnreadable,
  UnreadableEntry,
  VaultClient,
} from "../../shared/azure/key-vault.ts";
import type { ResourceManager, VaultPage, VaultResource } from "../../shared/azure/resource-manager.ts";
import { createActiveScans } from "../../shared/discovery/active.ts";
import { createDiscovery } from "../../shared/discovery/discovery.ts";
import { createScanRun } from "../../shared/discovery/run.ts";
import { QUEUES, type ScanMode } from "../../shared/discovery/scan.ts";
import { scanVault } from "../../shared/discovery/scan-vault.ts";
import { createScanWatch } from "../../shared/discovery/watch.ts";
import { createAssetQueries } from "../../shared/inventory/query.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { systemRandomness } from "../../shared/runtime.ts";
import { DEFINITIONS, SETTING_KEYS, type SettingValues } from "../../shared/settings/definitions.ts";
import { createStoreClock } from "../../shared/storage/clock.ts";
import type { Queues } from "../../shared/storage/queues.ts";
import { createTables, type Tables } from "../../shared/storage/tables.ts";

/** The scans' rooms on real tables, with a cloud and queues that the test holds in its hands. */

export const [HERE, THERE] = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"] as const;
export const caller = { actor: "admin", requestId: "request-1" };
export const everything = { limit: 1000, offset: 0, cursor: undefined };
const log = { debug() {}, info() {}, warn() {}, error() {} };

export interface Message {
  queue: string;
  message: { scanId: string; index: string };
  delaySeconds: number;
}

export const resource = (subscriptionId: string, name: string): VaultResource => ({
  id: `/subscriptions/${subscriptionId}/resourceGroups/rg/providers/Microsoft.KeyVault/vaults/${name}`,
  name,
  location: "westeurope",
  subscriptionId,
  resourceGroup: "rg",
  tenantId: "tenant",
  vaultUri: `https://${name}.vault.azure.net/`,
  sku: "standard",
  tags: {},
  softDelete: true,
  purgeProtection: true,
  rbacAuthorization: true,
  publicNetworkAccess: "Enabled",
  networkDefaultAction: "Allow",
  privateEndpoints: 0,
});

type Listed = Partial<Record<"secrets" | "keys" | "certificates", Partial<ListedAsset>[]>>;

/** What the cloud answers; a test changes any of it. Every vault holds one secret and one certificate at first. */
export class FakeCloud {
  vaults = new Map<string, string[]>([
    [HERE, ["kv-one", "kv-two", "kv-three"]],
    [THERE, []],
  ]);
  unreadable: VaultPage["unreadable"] = [];
  listed: Listed = { secrets: [{ name: "password" }], certificates: [{ name: "www" }] };
  /** Of the certificates. */
  unreadableEntries: UnreadableEntry[] = [];
  /** Awaited while a subscription's vaults are listed. */
  whileListing = async (): Promise<void> => {};
  key: () => object = () => ({ version: "1", keyType: "RSA", keySize: 3072 });
  policy: () => object | undefined = () => ({ lifetimeActions: [] });
  certificate: () => object = () => ({ version: "1", subject: "CN=www" });

  readonly keyVaults: KeyVaults = {
    open: () => {
      const client = {
        secrets: () => this.entries("secrets"),
        keys: () => this.entries("keys"),
        certificates: (_: AbortSignal, unreadable: OnUnreadable) => {
          for (const entry of this.unreadableEntries) unreadable(entry);
          return this.entries("certificates");
        },
        key: async () => this.key(),
        rotationPolicy: async () => this.policy(),
        certificate: async () => this.certificate(),
      };
      return client as unknown as VaultClient;
    },
  };

  private async *entries(kind: keyof Listed) {
    const plain = { enabled: true, tags: {}, managed: false, createdOn: 1, kind };
    yield (this.listed[kind] ?? []).map((one) => ({ ...plain, ...one }));
  }

  readonly resourceManager: ResourceManager = {
    subscriptions: async () => ({
      subscriptions: [...this.vaults.keys()].map((subscriptionId) => ({
        subscriptionId,
        displayName: "",
        state: "Enabled",
      })),
      unreadable: [],
    }),
    subscription: async (subscriptionId) => ({ subscriptionId, displayName: "", state: "Enabled" }),
    vaults: (subscriptionId) => this.page(subscriptionId),
    diagnosticSettings: async () => [],
  };

  private async *page(subscriptionId: string): AsyncGenerator<VaultPage> {
    const names = this.vaults.get(subscriptionId) ?? [];
    await this.whileListing();
    yield {
      vaults: names.map((name) => resource(subscriptionId, name)),
      unreadable: subscriptionId === HERE ? this.unreadable : [],
    };
  }
}

export type Rooms = ReturnType<typeof scanRooms>;

/**
 * @param wrap - Lets a test stand between the rooms and their tables; the audit log keeps its own way to them.
 */
export function scanRooms(connectionString: string, wrap: (tables: Tables) => Tables = (tables) => tables) {
  const clock = createStoreClock();
  const cloud = new FakeCloud();
  const sent: Message[] = [];
  const settings = Object.fromEntries(
    SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default]),
  ) as unknown as SettingValues;
  const queues: Queues = {
    reachable: async () => {},
    send: async (queue, message, { delaySeconds = 0 } = {}) => {
      sent.push({ queue, message: message as Message["message"], delaySeconds });
    },
  };
  const plain = createTables({ connectionString }, { clock });
  const tables = wrap(plain);
  const randomness = systemRandomness();
  const audit = createAudit({
    tables: plain,
    clock,
    randomness,
    config: {
      AUDIT_SIGNING_KEYS: [{ kid: "test", key: new Uint8Array(32).fill(7) }],
      AUDIT_MINIMUM_RETENTION_DAYS: 90,
    },
    log,
  });
  const active = createActiveScans({ tables, clock });
  const writer = createInventoryWriter({ tables });
  const run = createScanRun({
    tables,
    queues,
    settings: { values: async () => settings } as never,
    resourceManager: cloud.resourceManager,
    configuredSubscriptions: async () => [],
    active,
    audit,
    ended: async () => {},
    scanVault: (planned, options) =>
      scanVault(planned, options, {
        writer,
        keyVaults: cloud.keyVaults,
        resourceManager: cloud.resourceManager,
        clock,
        prepareChange: async () => async () => {},
      }),
    clock,
    randomness,
    log,
  });
  const discovery = createDiscovery({ tables, queues, active, audit, clock, randomness, log });
  const watch = createScanWatch({ tables, queues, active, run, clock, log });
  const assets = createAssetQueries({ tables, ownerTag: "owner", licensed: async () => true });

  /** Hands one message to its handler, as its first delivery. */
  async function hand({ queue, message }: Message): Promise<void> {
    if (queue === QUEUES.plan) await run.plan(message.scanId, 1);
    else if (queue === QUEUES.vaults) await run.scanVaults(message, 1);
    else await run.finish(message.scanId);
  }

  /** Hands over the messages, the latest first or last, until there is none but delayed ones. */
  async function deliver(order: "first" | "last" = "first"): Promise<void> {
    for (;;) {
      const due = sent.filter((one) => one.delaySeconds === 0);
      const next = order === "first" ? due[0] : due.at(-1);
      if (!next) return;
      sent.splice(sent.indexOf(next), 1);
      await hand(next);
    }
  }

  async function scan(mode: ScanMode, order: "first" | "last" = "first") {
    const { scanId } = await discovery.start({ mode }, caller);
    await deliver(order);
    return await discovery.progress(scanId);
  }

  /** Starts a scan and plans it; the messages of its vaults are in `sent`. */
  async function planned(mode: ScanMode = "full"): Promise<string> {
    const { scanId } = await discovery.start({ mode }, caller);
    sent.length = 0;
    await run.plan(scanId, 1);
    return scanId;
  }

  return {
    tables: plain,
    clock,
    cloud,
    sent,
    settings,
    audit,
    active,
    writer,
    run,
    discovery,
    watch,
    assets,
    hand,
    deliver,
    scan,
    planned,
    /** Lets the rooms' clock hear of a moved storage's time, as any request does. */
    async clockCatchesUp(): Promise<void> {
      await active.all();
    },
    /** Takes the messages out that wait in a queue. */
    take(queue: string): Message[] {
      const taken = sent.filter((one) => one.queue === queue);
      for (const one of taken) sent.splice(sent.indexOf(one), 1);
      return taken;
    },
    async entries(type: string): Promise<AuditEntry[]> {
      return (await audit.list({}, everything)).items.filter((entry) => entry.eventType === type);
    },
    /** Ids of the assets with a filter, as `subscription vault type`, which must be as many as their total says. */
    async ids(filter = {}): Promise<string[]> {
      const moment = { now: clock.now().getTime(), criticalDays: 7, warningDays: 30 };
      const { items, total } = await assets.list(filter, everything, moment);
      if (total !== items.length) throw new Error(`${items.length} assets, but the total says ${total}.`);
      return items.map(({ asset }) => `${asset.subscriptionId.slice(0, 1)} ${asset.vaultName} ${asset.type}`).sort();
    },
  };
}
