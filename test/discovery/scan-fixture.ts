/**
 * The discovery module (scans and re-scans) on emulated tables, with a fake cloud. Sent messages are not delivered: tests read
 * them from `sentMessages` and pass them to their handlers. A "re-scan" reads a single vault after an event.
 */
import { createAudit } from "../../shared/audit/audit.ts";
import type { AuditEntry } from "../../shared/audit/entry.ts";
import { createRenewalInformation } from "../../shared/certificates/renewal-information.ts";
import { createActiveScans } from "../../shared/discovery/active-scans.ts";
import { createDiscovery } from "../../shared/discovery/discovery.ts";
import { createFirstScan } from "../../shared/discovery/first-scan.ts";
import { RESCAN_QUEUE } from "../../shared/discovery/rescan-rows.ts";
import { createRescans } from "../../shared/discovery/rescans.ts";
import { QUEUES, type ScanMode } from "../../shared/discovery/scan.ts";
import { createScanRun } from "../../shared/discovery/scan-run.ts";
import { readVault } from "../../shared/discovery/scan-vault.ts";
import { createScanWatch } from "../../shared/discovery/scan-watch.ts";
import { createClaims } from "../../shared/discovery/vault-claims.ts";
import type { VaultEvent, VaultHint } from "../../shared/discovery/vault-event.ts";
import { createAssetQueries } from "../../shared/inventory/query.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import type {
  Answer,
  KeyVaults,
  ListedAsset,
  ListedVersion,
  VaultClient,
} from "../../shared/platform/azure/key-vault.ts";
import type { ResourceManager, VaultPage, VaultResource } from "../../shared/platform/azure/resource-manager.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createStoreClock } from "../../shared/platform/storage/clock.ts";
import type { Queues } from "../../shared/platform/storage/queues.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { DEFINITIONS, SETTING_KEYS, type SettingValues } from "../../shared/settings/definitions.ts";

export const [FIRST_SUBSCRIPTION, SECOND_SUBSCRIPTION] = [
  "11111111-1111-4111-8111-111111111111",
  "22222222-2222-4222-8222-222222222222",
] as const;
export const caller = { actor: "admin", requestId: "request-1" };
export const firstThousand = { limit: 1000, offset: 0, cursor: undefined };
const log = { debug() {}, info() {}, warn() {}, error() {} };

export interface SentMessage {
  queue: string;
  message: { scanId: string; index: string; vaultName: string };
  delaySeconds: number;
}

/** Returns a vault as the resource manager describes it. */
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

/** Returns an event of the vault, as the queue's function passes it to the module. */
export const event = (
  name: string,
  about: VaultHint["about"] = "assets",
  subscriptionId: string = FIRST_SUBSCRIPTION,
): VaultEvent => ({
  hint: { vaultId: resource(subscriptionId, name).id, vaultName: name, subscriptionId, about },
});

/** The list entries of every vault. */
type ListedEntries = Partial<Record<"secrets" | "keys" | "certificates", Partial<ListedAsset>[]>>;

/** A fake cloud whose responses a test can change. Initially every vault contains one secret and one certificate. */
export class FakeCloud {
  vaults = new Map<string, string[]>([
    [FIRST_SUBSCRIPTION, ["kv-one", "kv-two", "kv-three"]],
    [SECOND_SUBSCRIPTION, []],
  ]);
  unreadable: VaultPage["unreadable"] = [];
  /** Differences of a vault's description from `resource()`, by the vault's name. */
  descriptionChanges: Record<string, Partial<VaultResource>> = {};
  listedEntries: ListedEntries = { secrets: [{ name: "password" }], certificates: [{ name: "www" }] };
  /** Thrown by the list of certificates. */
  certificatesFailure: CloudFailure | undefined;
  /** Awaited while a vault's secrets are listed. */
  whileListingSecrets = async (): Promise<void> => {};
  /** Number of times that secrets of a vault were listed. */
  secretListings = 0;
  /** Number of responses with details that were parsed. */
  parsedDetails = 0;
  /** Number of times that the connections to a vault were closed. */
  closedConnections = 0;
  /** Awaited while a subscription's vaults are listed. */
  whileListingVaults = async (): Promise<void> => {};
  /** Details of a key, by its name. */
  key: (name: string) => object = () => ({ version: "1", keyType: "RSA", keySize: 3072 });
  /** Rotation policy of a key, by its name. */
  policy: (name: string) => object | undefined = () => ({ lifetimeActions: [] });
  /** Details of a certificate, by its name. */
  certificate: (name: string) => object = () => ({ version: "1", subject: "CN=www" });
  /** Number of times that versions of a certificate were listed. */
  versionListings = 0;
  /** Versions of a certificate, by its name. */
  versionsOf: (name: string) => Partial<ListedVersion>[] = () => [{ version: "1", createdOn: 1 }];

  readonly keyVaults: KeyVaults = {
    open: () => {
      const client = {
        secrets: () => this.secrets(),
        keys: () => this.entries("keys"),
        certificates: () => {
          if (this.certificatesFailure) throw this.certificatesFailure;
          return this.entries("certificates");
        },
        close: async () => {
          this.closedConnections++;
        },
        key: async (name: string) => this.answer(this.key(name)),
        rotationPolicy: async (name: string) => {
          const policy = this.policy(name);
          return policy && this.answer(policy);
        },
        certificate: async (name: string) => this.answer({ lifetimeActions: [], ...this.certificate(name) }),
        versions: (_kind: string, name: string) => this.versions(name),
      };
      return client as unknown as VaultClient;
    },
  };

  private async *versions(name: string) {
    this.versionListings++;
    yield this.versionsOf(name);
  }

  private answer<T>(content: T): Answer<T> {
    const read = () => {
      this.parsedDetails++;
      return content;
    };
    return { text: JSON.stringify(content), read };
  }

  /** Lists the secrets that exist at the time of the request, also if they change while `whileListingSecrets` waits. */
  private async *secrets() {
    this.secretListings++;
    const listed = this.listedEntries.secrets;
    await this.whileListingSecrets();
    yield* this.entries("secrets", listed);
  }

  private async *entries(kind: keyof ListedEntries, listed = this.listedEntries[kind]) {
    const properties = { enabled: true, tags: {}, managed: false, createdOn: 1, kind };
    yield (listed ?? []).map((one) => ({ ...properties, ...one }));
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
    return { ...resource(subscriptionId, name), ...this.descriptionChanges[name] };
  }

  private async *page(subscriptionId: string): AsyncGenerator<VaultPage> {
    const names = this.vaults.get(subscriptionId) ?? [];
    await this.whileListingVaults();
    yield {
      vaults: names.map((name) => this.resource(subscriptionId, name)),
      unreadable: subscriptionId === FIRST_SUBSCRIPTION ? this.unreadable : [],
    };
  }
}

export type ScanFixture = ReturnType<typeof createScanFixture>;

/**
 * Creates the module with its fake cloud. Several fixtures on one storage account act like several processes.
 *
 * @param wrap - Wraps the tables of the module under test, to make requests fail or wait. The audit log uses the original
 * tables.
 */
export function createScanFixture(connectionString: string, wrap: (tables: Tables) => Tables = (tables) => tables) {
  const clock = createStoreClock();
  const cloud = new FakeCloud();
  const sentMessages: SentMessage[] = [];
  const settings = Object.fromEntries(
    SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default]),
  ) as unknown as SettingValues;
  const queues: Queues = {
    checkReachable: async () => {},
    send: async (queue, message, { delaySeconds = 0 } = {}) => {
      sentMessages.push({ queue, message: message as SentMessage["message"], delaySeconds });
    },
  };
  const plainTables = createTables({ connectionString }, { clock });
  const tables = wrap(plainTables);
  const randomness = systemRandomness();
  const audit = createAudit({
    tables: plainTables,
    clock,
    randomness,
    config: {
      AUDIT_SIGNING_KEYS: [{ kid: "test", key: new Uint8Array(32).fill(7) }],
      AUDIT_MINIMUM_RETENTION_DAYS: 90,
    },
    log,
  });
  const active = createActiveScans({ tables, clock, audit });
  const writer = createInventoryWriter({ tables, clock });
  const scope = { watched: async (_subscriptionId: string): Promise<boolean> => true };
  const inventoryChanges = { times: 0 };
  const totals = { renew: async (): Promise<void> => {} };
  const vaultDeps = {
    writer,
    keyVaults: cloud.keyVaults,
    resourceManager: cloud.resourceManager,
    clock,
    ownerTag: "owner",
    detailRefreshDays: 7,
    renewalInformation: createRenewalInformation({ config: { ARI_DIRECTORIES: [] }, clock }),
    log,
    // Writes nothing: in the service, this callback writes the compliance results of changed assets.
    prepareChange: async () => async () => {},
  };
  const rescans = createRescans({
    ...vaultDeps,
    tables,
    queues,
    settings: { values: async () => settings },
    active,
    audit,
    config: { SERVICE_KEY_VAULT_URL: "https://kv-service.vault.azure.net" },
    watched: (subscriptionId) => scope.watched(subscriptionId),
    onInventoryChanged: async () => {
      inventoryChanges.times++;
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
      storeReadable: async () => {},
    },
    active,
    audit,
    onEnded: async () => {},
    renewTotals: () => totals.renew(),
    // Called by workers between two vaults, and by a worker without a further vault.
    runWaitingRescan: rescans.runWaitingRescan,
    onWorkerFreed: rescans.onWorkerFreed,
    onScanRemoved: rescans.wakeNextRescan,
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

  /** Passes one message to its handler, as its first delivery. */
  async function handleMessage({ queue, message }: SentMessage): Promise<void> {
    if (queue === QUEUES.plan) await run.scan(message.scanId, 1);
    else if (queue === RESCAN_QUEUE) await rescans.rescan(message.vaultName, "request-2");
    else if (queue === QUEUES.vaults) await run.scanVaults(message, 1);
    else await run.finish(message.scanId);
  }

  /** Delivers messages, the oldest or the latest first, until only delayed ones are left. */
  async function deliverMessages(order: "first" | "last" = "first"): Promise<void> {
    for (;;) {
      const dueMessages = sentMessages.filter((one) => one.delaySeconds === 0);
      const next = order === "first" ? dueMessages[0] : dueMessages.at(-1);
      if (!next) return;
      sentMessages.splice(sentMessages.indexOf(next), 1);
      await handleMessage(next);
    }
  }

  async function scan(mode: ScanMode, order: "first" | "last" = "first") {
    const { scanId } = await discovery.start({ mode }, caller);
    await deliverMessages(order);
    return await discovery.progress(scanId);
  }

  /**
   * Plans a scan and sends a message for each vault that the plan claimed, so that no other worker takes it. The planning process
   * does this with vaults that it can't scan soon.
   */
  async function plan(scanId: string): Promise<void> {
    const claims = createClaims({ tables, queues, randomness });
    for (const claim of (await run.plan(scanId, 1))?.claims ?? []) {
      await claims.release(scanId, claim);
      await claims.send(scanId, claim.index);
    }
  }

  /** Starts a scan and plans it, without scanning. The messages of its vaults are then in `sentMessages`. */
  async function startAndPlan(mode: ScanMode = "full"): Promise<string> {
    const { scanId } = await discovery.start({ mode }, caller);
    sentMessages.length = 0;
    await plan(scanId);
    return scanId;
  }

  return {
    tables: plainTables,
    clock,
    cloud,
    sentMessages,
    settings,
    audit,
    active,
    writer,
    run,
    rescans,
    scope,
    inventoryChanges,
    totals,
    discovery,
    startFirstScan,
    watch,
    assets,
    handleMessage,
    deliverMessages,
    scan,
    plan,
    startAndPlan,
    /** Sends a request to storage. Its response sets the fixture's clock to the storage time, which a test may have moved. */
    async syncClock(): Promise<void> {
      await active.all();
    },
    /** Removes and returns the messages of a queue. */
    takeMessages(queue: string): SentMessage[] {
      const messages = sentMessages.filter((one) => one.queue === queue);
      for (const one of messages) sentMessages.splice(sentMessages.indexOf(one), 1);
      return messages;
    },
    async auditEntriesOf(type: string): Promise<AuditEntry[]> {
      return (await audit.list({}, firstThousand)).items.filter((entry) => entry.eventType === type);
    },
    /** Returns the matching assets as lines `<first digit of the subscription> <vault> <type>`, and checks the list's total. */
    async assetLines(filter = {}): Promise<string[]> {
      const moment = { now: clock.now().getTime(), criticalDays: 7, warningDays: 30 };
      const { items, total } = await assets.list(filter, firstThousand, moment);
      if (total !== items.length) throw new Error(`The list has ${items.length} assets, but its total is ${total}.`);
      return items.map(({ asset }) => `${asset.subscriptionId.slice(0, 1)} ${asset.vaultName} ${asset.type}`).sort();
    },
  };
}
