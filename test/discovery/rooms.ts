import { createAudit } from "../../shared/audit/audit.ts";
import type { AuditEntry } from "../../shared/audit/entry.ts";
import { createActiveScans } from "../../shared/discovery/active.ts";
import { createClaims } from "../../shared/discovery/claims.ts";
import { createDiscovery } from "../../shared/discovery/discovery.ts";
import { createFirstScan } from "../../shared/discovery/first-scan.ts";
import { LOOK_QUEUE } from "../../shared/discovery/look.ts";
import { createLooks } from "../../shared/discovery/looks.ts";
import { createScanRun } from "../../shared/discovery/run.ts";
import { QUEUES, type ScanMode } from "../../shared/discovery/scan.ts";
import { readVault } from "../../shared/discovery/scan-vault.ts";
import type { VaultEvent, VaultHint } from "../../shared/discovery/vault-event.ts";
import { createScanWatch } from "../../shared/discovery/watch.ts";
import { createAssetQueries } from "../../shared/inventory/query.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import type {
  Answer,
  KeyVaults,
  ListedAsset,
  OnUnreadable,
  UnreadableEntry,
  VaultClient,
} from "../../shared/platform/azure/key-vault.ts";
import type { ResourceManager, VaultPage, VaultResource } from "../../shared/platform/azure/resource-manager.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createStoreClock } from "../../shared/platform/storage/clock.ts";
import type { Queues } from "../../shared/platform/storage/queues.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { DEFINITIONS, SETTING_KEYS, type SettingValues } from "../../shared/settings/definitions.ts";

/** The scans' rooms on real tables, with a cloud and queues that the test holds in its hands. */

export const [HERE, THERE] = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"] as const;
export const caller = { actor: "admin", requestId: "request-1" };
export const everything = { limit: 1000, offset: 0, cursor: undefined };
const log = { debug() {}, info() {}, warn() {}, error() {} };

export interface Message {
  queue: string;
  message: { scanId: string; index: string; vaultName: string };
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

/** An event of that vault, as the queue's function hands it over. */
export const event = (
  name: string,
  about: VaultHint["about"] = "assets",
  subscriptionId: string = HERE,
): VaultEvent => ({
  hint: { vaultId: resource(subscriptionId, name).id, vaultName: name, subscriptionId, about },
});

type Listed = Partial<Record<"secrets" | "keys" | "certificates", Partial<ListedAsset>[]>>;

/** What the cloud answers; a test changes any of it. Every vault holds one secret and one certificate at first. */
export class FakeCloud {
  vaults = new Map<string, string[]>([
    [HERE, ["kv-one", "kv-two", "kv-three"]],
    [THERE, []],
  ]);
  unreadable: VaultPage["unreadable"] = [];
  /** What the resource manager says of a vault beside the usual. */
  described: Record<string, Partial<VaultResource>> = {};
  listed: Listed = { secrets: [{ name: "password" }], certificates: [{ name: "www" }] };
  /** Of the certificates. */
  unreadableEntries: UnreadableEntry[] = [];
  /** Awaited while a vault's secrets are listed. */
  whileLooking = async (): Promise<void> => {};
  /** How often a vault's secrets were listed. */
  looked = 0;
  /** How many answers of details were read. */
  read = 0;
  /** Awaited while a subscription's vaults are listed. */
  whileListing = async (): Promise<void> => {};
  key: (name: string) => object = () => ({ version: "1", keyType: "RSA", keySize: 3072 });
  policy: (name: string) => object | undefined = () => ({ lifetimeActions: [] });
  certificate: (name: string) => object = () => ({ version: "1", subject: "CN=www" });

  readonly keyVaults: KeyVaults = {
    open: () => {
      const client = {
        secrets: () => this.secrets(),
        keys: () => this.entries("keys"),
        certificates: (_: AbortSignal, unreadable: OnUnreadable) => {
          for (const entry of this.unreadableEntries) unreadable(entry);
          return this.entries("certificates");
        },
        key: async (name: string) => this.answer(this.key(name)),
        rotationPolicy: async (name: string) => {
          const policy = this.policy(name);
          return policy && this.answer(policy);
        },
        certificate: async (name: string) => this.answer(this.certificate(name)),
      };
      return client as unknown as VaultClient;
    },
  };

  private answer<T>(said: T): Answer<T> {
    const read = () => {
      this.read++;
      return said;
    };
    return { text: JSON.stringify(said), read };
  }

  /** As they are when the list is asked for. */
  private async *secrets() {
    this.looked++;
    const listed = this.listed.secrets;
    await this.whileLooking();
    yield* this.entries("secrets", listed);
  }

  private async *entries(kind: keyof Listed, listed = this.listed[kind]) {
    const plain = { enabled: true, tags: {}, managed: false, createdOn: 1, kind };
    yield (listed ?? []).map((one) => ({ ...plain, ...one }));
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
    vault: async (id) => {
      const [, , subscriptionId, , , , , , name] = id.split("/");
      if (!this.vaults.get(subscriptionId!)?.includes(name!)) {
        throw new CloudFailure("notFound", `There is no vault ${name}.`, { remedy: "None." });
      }
      return this.resource(subscriptionId!, name!);
    },
    diagnosticSettings: async () => [],
  };

  private resource(subscriptionId: string, name: string): VaultResource {
    return { ...resource(subscriptionId, name), ...this.described[name] };
  }

  private async *page(subscriptionId: string): AsyncGenerator<VaultPage> {
    const names = this.vaults.get(subscriptionId) ?? [];
    await this.whileListing();
    yield {
      vaults: names.map((name) => this.resource(subscriptionId, name)),
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
    checkReachable: async () => {},
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
  const writer = createInventoryWriter({ tables, clock });
  const scope = { watched: async (_subscriptionId: string): Promise<boolean> => true };
  const changed = { times: 0 };
  const totals = { renew: async (): Promise<void> => {} };
  const vaultDeps = {
    writer,
    keyVaults: cloud.keyVaults,
    resourceManager: cloud.resourceManager,
    clock,
    ownerTag: "owner",
    detailRefreshDays: 7,
    prepareChange: async () => async () => {},
  };
  const looks = createLooks({
    ...vaultDeps,
    tables,
    queues,
    settings: { values: async () => settings },
    active,
    audit,
    config: { SERVICE_KEY_VAULT_URL: "https://kv-service.vault.azure.net" },
    watched: (subscriptionId) => scope.watched(subscriptionId),
    changed: async () => {
      changed.times++;
    },
    randomness,
    log,
  });
  const run = createScanRun({
    tables,
    queues,
    settings: { values: async () => settings } as never,
    resourceManager: cloud.resourceManager,
    subscriptions: {
      watched: async () => ({ all: true, named: [], discovered: [] }),
      discovered: async () => {},
    },
    active,
    audit,
    ended: async () => {},
    renewTotals: () => totals.renew(),
    between: looks.between,
    workerFreed: looks.workerFreed,
    scanLeft: looks.wakeWaiting,
    readVault: (planned, options) => readVault(planned, options, vaultDeps),
    clock,
    randomness,
    log,
  });
  const discovery = createDiscovery({
    tables,
    queues,
    active,
    requireWatched: async () => {},
    audit,
    clock,
    randomness,
    log,
  });
  const startFirstScan = createFirstScan({ tables, discovery, enabled: true, clock, randomness, log });
  const watch = createScanWatch({ tables, queues, active, run, clock, log });
  const assets = createAssetQueries({ tables, ownerTag: "owner", licensed: async () => true });

  /** Hands one message to its handler, as its first delivery. */
  async function hand({ queue, message }: Message): Promise<void> {
    if (queue === QUEUES.plan) await run.scan(message.scanId, 1);
    else if (queue === LOOK_QUEUE) await looks.look(message.vaultName, "request-2");
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

  /** Plans a scan and hands each of its vaults on, as the plan's invocation does with what it can't scan soon. */
  async function plan(scanId: string): Promise<void> {
    const claims = createClaims({ tables, queues, randomness });
    for (const { index, rowKey } of (await run.plan(scanId, 1))?.claims ?? []) {
      await claims.putBack(scanId, rowKey);
      await claims.send(scanId, index);
    }
  }

  /** Starts a scan and plans it; the messages of its vaults are in `sent`. */
  async function planned(mode: ScanMode = "full"): Promise<string> {
    const { scanId } = await discovery.start({ mode }, caller);
    sent.length = 0;
    await plan(scanId);
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
    looks,
    scope,
    changed,
    totals,
    discovery,
    startFirstScan,
    watch,
    assets,
    hand,
    deliver,
    scan,
    plan,
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
