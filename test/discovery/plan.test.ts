import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import type { Audit } from "../../shared/audit/audit.ts";
import { CloudFailure } from "../../shared/azure/failure.ts";
import type { KeyVaults } from "../../shared/azure/key-vault.ts";
import type { ResourceManager, VaultResource } from "../../shared/azure/resource-manager.ts";
import { createActiveScans } from "../../shared/discovery/active.ts";
import { createDiscovery } from "../../shared/discovery/discovery.ts";
import { createScanRun } from "../../shared/discovery/run.ts";
import { QUEUES, SCAN_ROW, type ScanMode, Scans, scanPartition } from "../../shared/discovery/scan.ts";
import { scanVault } from "../../shared/discovery/scan-vault.ts";
import { createScanWatch } from "../../shared/discovery/watch.ts";
import { createAssetQueries } from "../../shared/inventory/query.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { systemRandomness } from "../../shared/runtime.ts";
import { DEFINITIONS, SETTING_KEYS, type SettingValues } from "../../shared/settings/definitions.ts";
import type { Queues } from "../../shared/storage/queues.ts";
import { createTables, RowChanged, type Tables } from "../../shared/storage/tables.ts";

/** The scans' rooms on real tables, with an estate and queues that the test holds in its hands. */

const [HERE, THERE] = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"] as const;
const caller = { actor: "admin", requestId: "request-1" };
const log = { debug() {}, info() {}, warn() {}, error() {} };
const ACCOUNTS = Array.from({ length: 16 }, (_, at) => `account${at}`);

let azurite: Azurite;
let used = 0;
beforeAll(async () => {
  azurite = await startAzurite({ accounts: ACCOUNTS });
});
afterAll(() => azurite?.stop());

interface Message {
  queue: string;
  message: { scanId: string; index: string };
  delaySeconds: number;
}

let tables: Tables;
let estate: Map<string, string[]>;
/** Awaited while a subscription's vaults are listed. */
let whileListing: () => Promise<void>;
let sent: Message[];
let now: number;
const clock = { now: () => new Date(now) };
let settings: SettingValues;

beforeEach(() => {
  tables = createTables({ connectionString: azurite.connectionString(ACCOUNTS[used++]!) });
  estate = new Map([
    [HERE, ["kv-one", "kv-two", "kv-three"]],
    [THERE, []],
  ]);
  whileListing = async () => {};
  sent = [];
  now = Date.parse("2026-11-21T10:00:00.000Z");
  settings = Object.fromEntries(SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default])) as unknown as SettingValues;
});

const resource = (subscriptionId: string, name: string): VaultResource => ({
  ...{ id: `/vaults/${subscriptionId}/${name}`, name, location: "westeurope", subscriptionId, resourceGroup: "rg" },
  ...{ tenantId: "tenant", vaultUri: `https://${name}.vault.azure.net/`, sku: "standard", tags: {} },
  ...{ softDelete: true, purgeProtection: true, rbacAuthorization: true, privateEndpoints: 0 },
  ...{ publicNetworkAccess: "Enabled", networkDefaultAction: "Allow" },
});

/** Every vault holds one secret and one certificate; what `details` answers or throws are the certificate's. */
let details: () => Record<string, unknown>;
beforeEach(() => {
  details = () => ({ version: "1", subject: "CN=www" });
});
const listed = { enabled: true, tags: {}, managed: false, createdOn: 1 };
async function* page<T>(item: T) {
  yield [item];
}
async function* noPage() {}
const keyVaults: KeyVaults = {
  open: () =>
    ({
      secrets: () => page({ ...listed, kind: "secret", name: "password" }),
      keys: noPage,
      certificates: () => page({ ...listed, kind: "certificate", name: "www" }),
      certificate: async () => details(),
    }) as unknown as ReturnType<KeyVaults["open"]>,
};
const resourceManager: ResourceManager = {
  subscriptions: async () => ({
    subscriptions: [...estate.keys()].map((subscriptionId) => ({ subscriptionId, displayName: "", state: "Enabled" })),
    unreadable: [],
  }),
  subscription: async (subscriptionId) => ({ subscriptionId, displayName: "", state: "Enabled" }),
  async *vaults(subscriptionId) {
    const names = estate.get(subscriptionId) ?? [];
    await whileListing();
    yield { vaults: names.map((name) => resource(subscriptionId, name)), unreadable: [] };
  },
  diagnosticSettings: async () => [],
};

function rooms() {
  const queues: Queues = {
    reachable: async () => {},
    send: async (queue, message, { delaySeconds = 0 } = {}) => {
      sent.push({ queue, message: message as Message["message"], delaySeconds });
    },
  };
  const audit = { append: async () => {} } as unknown as Audit;
  const randomness = systemRandomness();
  const active = createActiveScans({ tables, clock });
  const writer = createInventoryWriter({ tables });
  const run = createScanRun({
    ...{ tables, queues, resourceManager, active, audit, clock, randomness, log },
    settings: { values: async () => settings } as never,
    configuredSubscriptions: async () => [],
    ended: async () => {},
    scanVault: (planned, options) =>
      scanVault(planned, options, { writer, keyVaults, resourceManager, clock, prepareChange: async () => async () => {} }),
  });
  return {
    ...{ run, active, writer },
    discovery: createDiscovery({ tables, queues, active, audit, clock, randomness, log }),
    watch: createScanWatch({ tables, queues, active, run, clock, log }),
    assets: createAssetQueries({ tables, ownerTag: "owner" }),
  };
}

/** Hands over the messages, the latest first or last, until there is none but delayed ones. */
async function deliver(order: "first" | "last" = "first"): Promise<void> {
  const { run } = rooms();
  for (;;) {
    const due = sent.filter((one) => one.delaySeconds === 0);
    const next = order === "first" ? due[0] : due.at(-1);
    if (!next) return;
    sent.splice(sent.indexOf(next), 1);
    const { scanId } = next.message;
    if (next.queue === QUEUES.plan) await run.plan(scanId, 1);
    else if (next.queue === QUEUES.vaults) await run.scanVaults(next.message, 1);
    else await run.finish(scanId);
  }
}

async function scan(mode: ScanMode, order: "first" | "last" = "first") {
  const { discovery } = rooms();
  const { scanId } = await discovery.start({ mode }, caller);
  await deliver(order);
  return await discovery.progress(scanId);
}

const everything = { limit: 1000, offset: 0, cursor: undefined };
const moment = () => ({ now, criticalDays: 7, warningDays: 30 });
const ids = async (filter = {}) => {
  const { items, total } = await rooms().assets.list(filter, everything, moment());
  expect(total).toBe(items.length);
  return items.map(({ asset }) => `${asset.subscriptionId.slice(0, 1)} ${asset.vaultName} ${asset.type}`).sort();
};

describe("a plan", () => {
  test("two messages for one plan at the same time: one plan stands, every vault is scanned once", async () => {
    const { discovery } = rooms();
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    sent = [];
    let arrived = 0;
    let go = () => {};
    const both = new Promise<void>((resolve) => {
      go = resolve;
    });
    whileListing = async () => {
      if (++arrived === 4) go();
      await both;
    };
    await Promise.all([1, 2].map(() => rooms().run.plan(scanId, 1).then(go)));
    expect(
      sent
        .filter(({ queue }) => queue === QUEUES.vaults)
        .map(({ message }) => message.index)
        .sort(),
    ).toEqual([...["000000", "000001", "000002"]]);
    await deliver();
    expect(await discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("one that was overtaken while it listed the vaults writes nothing over the scan that runs", async () => {
    const { discovery } = rooms();
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    sent = [];
    let overtaken = false;
    whileListing = async () => {
      if (overtaken) return;
      overtaken = true;
      await rooms().run.plan(scanId, 1);
      await deliver();
    };
    await rooms().run.plan(scanId, 1);
    await deliver();
    expect(await discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsTotal: 3, vaultsDone: 3 });
    expect((await discovery.results(scanId, everything)).page.items).toHaveLength(3);
  });

  test("a message to spare starts no vault again; a second delivery of the plan's own does", async () => {
    const { discovery, run } = rooms();
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    await run.plan(scanId, 1);
    sent = [];
    await run.plan(scanId, 1);
    expect(sent).toEqual([]);
    await run.plan(scanId, 2);
    expect(sent.filter(({ queue }) => queue === QUEUES.vaults)).toHaveLength(3);
  });

  test("while it waits for workers, the watch adds no messages to the one that is waiting", async () => {
    settings = { ...settings, discoveryMaxWorkers: 1 };
    const { discovery, run, watch } = rooms();
    const busy = await discovery.start({ mode: "full" }, caller);
    await run.plan(busy.scanId, 1);
    const waiting = await discovery.start({ mode: "force" }, caller);
    for (let minute = 0; minute < 30; minute++) {
      sent = [];
      await run.plan(waiting.scanId, 1);
      expect(sent).toMatchObject([{ queue: QUEUES.plan, message: { scanId: waiting.scanId } }]);
      await watch();
      expect(sent.filter(({ queue }) => queue === QUEUES.plan)).toHaveLength(1);
      now += 60_000;
    }
    // The message is lost: only then another one comes.
    now += 11 * 60_000;
    sent = [];
    await watch();
    expect(sent.filter(({ queue }) => queue === QUEUES.plan)).toHaveLength(1);
  });
});

describe("the list of scans", () => {
  test("shows a scan as it stands, also while it runs", async () => {
    const { discovery, run } = rooms();
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    const listed = async () => (await discovery.list(everything)).items.map(({ status }) => status);
    expect(await listed()).toEqual(["queued"]);
    await run.plan(scanId, 1);
    expect(await listed()).toEqual(["running"]);
    await deliver();
    expect(await listed()).toEqual(["completed"]);
  });
});

describe("a vault that moved to another subscription", () => {
  test.each(["first", "last"] as const)("stands there and only there, whichever message comes %s", async (order) => {
    await scan("full");
    estate = new Map([
      [HERE, ["kv-one", "kv-two"]],
      [THERE, ["kv-three"]],
    ]);
    expect(await scan("delta", order)).toMatchObject({ status: "completed" });
    const wanted = ["1 kv-one", "1 kv-two", "2 kv-three"].flatMap((vault) => [
      `${vault} certificate`,
      `${vault} secret`,
    ]);
    expect(await ids()).toEqual(wanted);
    expect(await ids({ subscription: HERE })).toEqual(wanted.slice(0, 4));
    expect(await ids({ subscription: THERE })).toEqual(wanted.slice(4));
  });

  test("is not taken out by a scan that planned its removal before another one found it", async () => {
    await scan("full");
    estate.set(HERE, ["kv-one", "kv-two"]);
    const { discovery, run } = rooms();
    const removing = await discovery.start({ mode: "delta", subscriptions: [HERE] }, caller);
    await run.plan(removing.scanId, 1);
    const messages = sent;
    sent = [];
    estate.set(THERE, ["kv-three"]);
    await discovery.start({ mode: "delta", subscriptions: [THERE] }, caller);
    await deliver();
    sent = messages.filter(({ message }) => message.scanId === removing.scanId && "index" in message);
    await deliver();
    expect(await ids({ subscription: THERE })).toEqual(["2 kv-three certificate", "2 kv-three secret"]);
  });
});

describe("details that could not be read", () => {
  test("are a failure until a scan of any mode has read them", async () => {
    details = () => {
      throw new CloudFailure("throttled", "Too many requests.", { remedy: "Wait." });
    };
    expect(await scan("full")).toMatchObject({ status: "partial" });
    expect(await scan("delta")).toMatchObject({ status: "partial" });
    details = () => ({ version: "1", subject: "CN=www" });
    expect(await scan("delta")).toMatchObject({ status: "completed" });
    const { items } = await rooms().assets.list({ type: "certificate" }, everything, moment());
    expect(items.map(({ asset }) => asset.subject)).toEqual(["CN=www", "CN=www", "CN=www"]);
    let asked = 0;
    details = () => {
      asked++;
      return {};
    };
    expect(await scan("delta")).toMatchObject({ status: "completed" });
    expect(asked).toBe(0);
  });
});

test("the watch goes on when a vault that seemed lost ends in this moment", async () => {
  const { discovery, run, active } = rooms();
  const { scanId } = await discovery.start({ mode: "full" }, caller);
  await run.plan(scanId, 1);
  now += 20 * 60_000;
  const before = tables;
  let refused = 0;
  tables = {
    ...before,
    replace: async (entity, row) => {
      if (row.rowKey.startsWith("2!") && refused++ === 0) throw new RowChanged("Scans", row.partitionKey, row.rowKey);
      return await before.replace(entity, row);
    },
  };
  sent = [];
  await rooms().watch();
  expect(refused).toBe(3);
  expect(sent.filter(({ queue }) => queue === QUEUES.vaults)).toHaveLength(2);
  expect((await active.all()).map((one) => one.scanId)).toEqual([scanId]);
  expect((await before.get(Scans, scanPartition(scanId), SCAN_ROW))?.status).toBe("running");
});
