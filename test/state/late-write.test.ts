import { deflateRawSync } from "node:zlib";
import { TableClient } from "@azure/data-tables";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { type AssetRecord, Assets } from "../../shared/inventory/asset.ts";
import { expiryKey, nameKey, partitions } from "../../shared/inventory/asset-keys.ts";
import { Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { VaultBusy } from "../../shared/inventory/write.ts";
import { put, remove } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { type MovedClock, movedClock } from "../support/moved-clock.ts";
import { type DelayingProxy, type Fate, startDelayingProxy, type Write } from "./delaying-proxy.ts";
import { createWorkers, differences, readAllRows } from "./inventory-fixture.ts";

// Writes of a slow or crashed worker that arrive after another worker has taken over the vault. They must not be applied. After
// each test, all rows must be those that a first scan of the cloud writes into an empty storage account. A worker claims a
// vault by a lease and protects its writes by fences: rows whose ETag is part of each transaction. The next worker rewrites the
// fences, so that transactions with an old ETag are rejected. In the tests, `slow` is the worker whose write is held until
// another worker has finished.
//
// Row keys start with the kind of row. Assets: `n!` by name, `e!` by expiry date, `f!` fence; each in three partitions (all, the
// subscription's, the vault's). Vaults: `n!` vault, `w!` pending writes. Compliance: `1!` findings, `6!` details, `…!!fence` fence.

// Shortens the delays between attempts, which would take most of the time.
vi.mock("../../shared/platform/storage/limits.ts", async (original) => ({
  ...(await original<object>()),
  FIRST_RETRY_MS: 5,
  MAX_RETRY_MS: 20,
}));
afterAll(() => {
  // Otherwise later files of the process would use the modules loaded here.
  vi.doUnmock("../../shared/platform/storage/limits.ts");
  vi.resetModules();
});

/** Two subscriptions. The vault "kv-t" is in the first one, and is moved to the second one in some tests. */
const HERE = "11111111-1111-4111-8111-111111111111";
const THERE = "22222222-2222-4222-8222-222222222222";
/** Longer than a worker's lease of a vault. */
const LEASE_EXPIRED_MS = 17_000;
/** Two storage accounts per test: one for the tested workers, and an empty one for the expected rows. Some more for retries. */
const ACCOUNTS = Array.from({ length: 40 }, (_, index) => [`tested${index}`, `expected${index}`]).flat();

let azurite: Azurite;
let cloud: Cloud;
let time: MovedClock;
let workers: ReturnType<typeof createWorkers>;
let usedAccounts = 0;
beforeAll(async () => {
  time = movedClock();
  azurite = await startAzurite({ accounts: ACCOUNTS, environment: time.environment });
  const testCloud = await startTestCloud({
    company: {
      subscriptions: [
        { name: "Here", id: HERE },
        { name: "There", id: THERE },
      ],
    },
  });
  cloud = testCloud.cloud;
  workers = createWorkers(testCloud);
});
afterAll(async () => {
  await cloud?.stop();
  await azurite?.stop();
  time?.remove();
});

let connectionString: string;
/** Connection string of the storage account for the expected rows. */
let expectedConnection: string;
let proxies: DelayingProxy[];
beforeEach(async () => {
  connectionString = azurite.connectionString(ACCOUNTS[usedAccounts]!);
  expectedConnection = azurite.connectionString(ACCOUNTS[usedAccounts + 1]!);
  usedAccounts += 2;
  proxies = [];
  for (const { name } of cloud.control.vaults()) if (name.startsWith("kv-t")) cloud.control.removeVault(name);
  cloud.control.putVault(HERE, {
    name: "kv-t",
    secrets: [
      { name: "moving", expiresInDays: 100, contentType: "text" },
      { name: "other", expiresInDays: 200, contentType: "text" },
    ],
  });
  await runDeltaScan();
});
afterEach(() => Promise.all(proxies.map((proxy) => proxy.stop())));

const runDeltaScan = () => workers.runDeltaScan(connectionString, [HERE, THERE], time);
/** Returns a worker without a proxy, so that none of its writes is held. */
const undisturbed = () => workers.worker(connectionString);

/** Returns a worker whose first matching write is held by its proxy. `untilHeld` waits until that write has arrived there. */
async function workerHolding(matches: (write: Write) => boolean, fate: Fate = "hold") {
  let isDone = false;
  const proxy = await startDelayingProxy(connectionString, (write) => {
    if (isDone || !matches(write)) return "pass";
    isDone = true;
    return fate;
  });
  proxies.push(proxy);
  const untilHeld = () => vi.waitFor(() => expect(proxy.heldWrites).toHaveLength(1), { timeout: 150_000, interval: 5 });
  return { ...workers.worker(proxy.connectionString), proxy, untilHeld };
}

/** Returns a matcher of transactions with assets in a partition. */
const isAssetWriteIn = (partition: string) => (write: Write) =>
  write.path === "$batch" && write.body.includes(`Assets(PartitionKey='${encodeURIComponent(partition)}'`);
const isResultsWrite = ({ path, body }: Write) => path === "$batch" && body.includes("/Compliance");
const isClaim = ({ path, body }: Write) => path === "$batch" && body.includes("/Vaults");

const planVault = async () =>
  (await workers.plan(undisturbed().tables, [HERE, THERE])).find(({ name }) => name.toLowerCase() === "kv-t")!;
/** An expiry date in Unix seconds, 1970, that no asset has. Tests write rows with it as wrong ones. */
const WRONG_EXPIRY = 5;
/** Makes the secret `moving` expire in this number of days. A negative number means that it has expired. */
const setExpiryDays = (days: number) => cloud.control.change("kv-t", "secrets", "moving", { expiresInDays: days });

/** Expects all rows to be those that a first scan of the cloud's current state writes. */
async function expectStateOfFirstScan(): Promise<void> {
  await workers.runDeltaScan(expectedConnection, [HERE, THERE], time);
  expect(differences(await readAllRows(connectionString), await readAllRows(expectedConnection))).toEqual([]);
}

test("a transaction that arrives after the lease has expired is rejected", async () => {
  setExpiryDays(50);
  const slow = await workerHolding(isAssetWriteIn("all"));
  const scan = slow.scan(await planVault());
  await slow.untilHeld();
  setExpiryDays(3);
  await expect(undisturbed().scan(await planVault())).rejects.toThrow(VaultBusy);
  await time.add(LEASE_EXPIRED_MS);
  await undisturbed().scan(await planVault());
  await slow.proxy.heldWrites[0]!.release();
  await expect(scan).rejects.toThrow(VaultBusy);
  expect(slow.proxy.writes.some(({ fate, applied }) => fate === "hold" && applied)).toBe(false);
  await expectStateOfFirstScan();
});

test.each([
  ["the assets in the subscription's partition", isAssetWriteIn(`sub:${HERE}`)],
  ["the assets in the vault's partition", isAssetWriteIn("vault:kv-t")],
  ["the results", isResultsWrite],
  ["the claim", isClaim],
])("a write of %s by a crashed worker is rejected after the next worker has finished", async (_, matches) => {
  setExpiryDays(-3);
  const slow = await workerHolding(matches);
  slow.scan(await planVault()).catch(() => {});
  await slow.untilHeld();
  slow.proxy.kill();
  setExpiryDays(3);
  await time.add(LEASE_EXPIRED_MS);
  await undisturbed().scan(await planVault());
  await slow.proxy.heldWrites[0]!.release();
  expect(slow.proxy.writes.at(-1)).toMatchObject({ applied: false });
  await expectStateOfFirstScan();
});

test("a worker that takes over rewrites the fences before it reads the stored rows", async () => {
  setExpiryDays(50);
  const slow = await workerHolding(isAssetWriteIn("vault:kv-t"));
  slow.scan(await planVault()).catch(() => {});
  await slow.untilHeld();
  slow.proxy.kill();
  setExpiryDays(3);
  await time.add(LEASE_EXPIRED_MS);
  const next = await workerHolding(isClaim);
  const scan = next.scan(await planVault());
  await next.untilHeld();
  await slow.proxy.heldWrites[0]!.release();
  expect(slow.proxy.writes.at(-1)).toMatchObject({ applied: false });
  await next.proxy.heldWrites[0]!.release();
  await scan;
  await expectStateOfFirstScan();
});

test("results of a crashed worker are rejected although the next worker found nothing to write", async () => {
  setExpiryDays(-3);
  const slow = await workerHolding(isResultsWrite);
  slow.scan(await planVault()).catch(() => {});
  await slow.untilHeld();
  slow.proxy.kill();
  // The state before the slow worker: `beforeEach` stored this expiry date.
  setExpiryDays(100);
  await time.add(LEASE_EXPIRED_MS);
  await undisturbed().scan(await planVault());
  await slow.proxy.heldWrites[0]!.release();
  await runDeltaScan();
  await expectStateOfFirstScan();
});

test("a worker whose vault was taken over does not write results from outdated data", async () => {
  cloud.control.changeVault("kv-t", { purgeProtection: false });
  const slow = await workerHolding(isResultsWrite);
  const scan = slow.scan(await planVault());
  await slow.untilHeld();
  cloud.control.changeVault("kv-t", { purgeProtection: true, publicNetworkAccess: "Disabled" });
  await time.add(LEASE_EXPIRED_MS);
  await undisturbed().scan(await planVault());
  await slow.proxy.heldWrites[0]!.release();
  await expect(scan).rejects.toThrow(VaultBusy);
  await expectStateOfFirstScan();
});

test("a worker can't finish after its lease has expired and an evaluation has run", async () => {
  setExpiryDays(-3);
  const slow = await workerHolding(isAssetWriteIn("vault:kv-t"));
  const scan = slow.scan(await planVault());
  await slow.untilHeld();
  await expect(undisturbed().evaluator.evaluateWholeVault("kv-t")).rejects.toThrow(VaultBusy);
  await time.add(LEASE_EXPIRED_MS);
  await undisturbed().evaluator.evaluateWholeVault("kv-t");
  await slow.proxy.heldWrites[0]!.release();
  await expect(scan).rejects.toThrow(VaultBusy);
  await runDeltaScan();
  await expectStateOfFirstScan();
});

test("an evaluation that read before the first scan does not remove the results of the scan", async () => {
  cloud.control.putVault(HERE, { name: "kv-t2", secrets: [{ name: "s" }] });
  const early = await workerHolding(({ path }) => path.startsWith("Compliance"));
  const evaluation = early.evaluator.evaluateWholeVault("kv-t2");
  await early.untilHeld();
  await runDeltaScan();
  await early.proxy.heldWrites[0]!.release();
  await evaluation;
  await expectStateOfFirstScan();
});

test("a vault that moves during a write to its old subscription is stored only in the new one", async () => {
  setExpiryDays(50);
  const slow = await workerHolding(isAssetWriteIn(`sub:${HERE}`), "cut");
  slow.scan(await planVault()).catch(() => {});
  await slow.untilHeld();
  slow.proxy.kill();
  cloud.control.removeVault("kv-t");
  cloud.control.putVault(THERE, { name: "kv-t", secrets: [{ name: "moving", expiresInDays: 7.5 }] });
  await time.add(LEASE_EXPIRED_MS);
  await runDeltaScan();
  await slow.proxy.heldWrites[0]!.release();
  await expectStateOfFirstScan();
});

test("a vault whose rows come from a version without fences can be scanned, despite a lock until 2099", async () => {
  const { tables } = undisturbed();
  // Builds that version's state: no fences, a lock of a crashed worker with a wrong clock, and an interrupted change of an
  // expiry date. The change is recorded as a pending write but was written in only one partition.
  for (const partitionKey of ["all", `sub:${HERE}`, "vault:kv-t"]) await tables.remove(Assets, partitionKey, "f!kv-t");
  const table = (name: string) =>
    TableClient.fromConnectionString(connectionString, name, { allowInsecureConnection: true });
  await table("Compliance").deleteEntity("state", "6!kv-t!!fence");
  const row = await table("Vaults").getEntity<Record<string, unknown>>("vaults", "n!kv-t");
  const { fences_json: _fences, etag: _etag, timestamp: _timestamp, ...old } = row;
  const locked = { ...old, pending: true, lockOwner: "old", lockedUntil: "2099-01-01T00:00:00.000Z" };
  await table("Vaults").updateEntity({ ...locked, partitionKey: "vaults", rowKey: "n!kv-t" }, "Replace");
  // The entries that a worker announces before it writes them: type, name and expiry date.
  const pendingWrite = deflateRawSync(JSON.stringify([["secret", "moving", 1_900_000_000]]));
  await table("Vaults").upsertEntity({ partitionKey: "vaults", rowKey: "w!kv-t!000", entries: pendingWrite });
  const asset = (await tables.get(Assets, "all", nameKey("secret", "moving", "kv-t")))!;
  await tables.write("Assets", "all", [
    put(Assets, expiryKey("secret", 1_900_000_000, "moving", "kv-t"), asset as AssetRecord),
  ]);
  await expect(undisturbed().scan(await planVault())).rejects.toMatchObject({
    name: "VaultBusy",
    waitMs: expect.any(Number),
  });
  await time.add(LEASE_EXPIRED_MS);
  await undisturbed().scan(await planVault());
  await expectStateOfFirstScan();
});

describe("repairs and clean-ups", () => {
  const allPartitions = ["all", `sub:${HERE}`, "vault:kv-t"];
  const asset = async (name: string) =>
    (await undisturbed().tables.get(Assets, partitions.vault("kv-t"), nameKey("secret", name, "kv-t")))!;

  test("restore missing, wrong and superfluous rows from the vault's own rows", async () => {
    const { tables, writer } = undisturbed();
    const [moving, other] = [await asset("moving"), await asset("other")];
    // An asset that does not exist in the vault.
    const ghost = { ...other, name: "ghost" };
    for (const partition of allPartitions) {
      await tables.write("Assets", partition, [
        remove(Assets, expiryKey("secret", moving.expiresOn, "moving", "kv-t")),
        put(Assets, expiryKey("secret", WRONG_EXPIRY, "moving", "kv-t"), moving),
      ]);
    }
    await tables.write("Assets", "all", [
      put(Assets, nameKey("secret", "other", "kv-t"), { ...other, enabled: false }),
      put(Assets, nameKey("secret", "ghost", "kv-t"), ghost),
      put(Assets, expiryKey("secret", ghost.expiresOn, "ghost", "kv-t"), ghost),
    ]);
    await tables.write("Assets", `sub:${THERE}`, [put(Assets, nameKey("secret", "other", "kv-t"), other)]);
    const { expiresOn } = ghost;
    const restored = await writer.restore(
      "kv-t",
      [
        { type: "secret", name: "moving", expiresOn: WRONG_EXPIRY },
        { type: "secret", name: "other", expiresOn },
        { type: "secret", name: "ghost", expiresOn },
        { type: "secret", name: "other", expiresOn: undefined, subscriptionId: THERE },
      ],
      "repair",
    );
    // Written: the rows by name and by expiry date of two assets, in three partitions. Removed: three wrong expiry rows of
    // `moving`, two rows of `ghost`, and one row of `other` in the wrong subscription.
    expect(restored).toEqual({ written: 12, removed: 6 });
    await expectStateOfFirstScan();
    await runDeltaScan();
    await expectStateOfFirstScan();
  });

  test("remove the rows of an unknown vault", async () => {
    const { tables, writer } = undisturbed();
    const ghost: AssetRecord = { ...(await asset("other")), vaultName: "kv-gone" };
    const rows = [
      put(Assets, nameKey("secret", "other", "kv-gone"), ghost),
      put(Assets, expiryKey("secret", ghost.expiresOn, "other", "kv-gone"), ghost),
    ];
    for (const partition of ["all", `sub:${THERE}`, "vault:kv-gone"]) await tables.write("Assets", partition, rows);
    const entry = { type: "secret", name: "other", expiresOn: ghost.expiresOn, subscriptionId: THERE } as const;
    expect(await writer.restore("kv-gone", [entry], "repair")).toEqual({ written: 0, removed: 6 });
    await expectStateOfFirstScan();
  });

  test.each(["kv-t", "kv-gone"])(
    "of %s succeed although a fence request was sent twice and arrives late",
    async (name) => {
      const wrong: AssetRecord = { ...(await asset("other")), vaultName: name };
      for (const partition of ["all", `vault:${name}`]) {
        await undisturbed().tables.put(Assets, partition, expiryKey("secret", WRONG_EXPIRY, "other", name), wrong);
      }
      let [isFenceCut, isWriteHeld] = [false, false];
      const proxy = await startDelayingProxy(connectionString, (write) => {
        if (!isFenceCut && write.method === "PUT" && write.path.includes("f!")) {
          isFenceCut = true;
          return "cut";
        }
        if (isWriteHeld || !isAssetWriteIn("all")(write)) return "pass";
        isWriteHeld = true;
        return "hold";
      });
      proxies.push(proxy);
      const entry = { type: "secret", name: "other", expiresOn: WRONG_EXPIRY } as const;
      const restored = workers.worker(proxy.connectionString).writer.restore(name, [entry], "repair");
      // The worker sent the cut-off fence request again, which passed, and then its first write of assets. So the two held
      // writes are the old fence request, which changes the fence when it arrives, and the write of assets.
      await vi.waitFor(() => expect(proxy.heldWrites).toHaveLength(2), { timeout: 150_000, interval: 5 });
      await proxy.heldWrites[0]!.release();
      await proxy.heldWrites[0]!.release();
      expect(await restored).toMatchObject({ removed: 2 });
      await expectStateOfFirstScan();
    },
  );

  test("clear the hashes of lists, so that the next scan reads and compares the lists again", async () => {
    const { tables, writer } = undisturbed();
    await tables.remove(Assets, "vault:kv-t", nameKey("secret", "moving", "kv-t"));
    await runDeltaScan();
    expect(await asset("moving")).toBeUndefined();
    await writer.forgetListings("kv-t", ["secret"]);
    await runDeltaScan();
    await expectStateOfFirstScan();
  });

  test("rewrite results, and remove superfluous ones", async () => {
    const { evaluator } = undisturbed();
    setExpiryDays(-3);
    await runDeltaScan();
    const table = TableClient.fromConnectionString(connectionString, "Compliance", { allowInsecureConnection: true });
    const rows: string[] = [];
    for await (const { rowKey } of table.listEntities()) rows.push(rowKey!);
    // Keys of findings (`1!…`) and of details of assets (`6!…`) end with the number of the row, because results can need
    // several.
    const findings = rows.find((key) => key.startsWith("1!") && key.endsWith("!kv-t!00000"))!;
    await table.deleteEntity("state", findings);
    await table.upsertEntity({
      partitionKey: "state",
      rowKey: findings.replace("00000", "00007"),
      items: Buffer.from("x"),
    });
    await table.upsertEntity({ partitionKey: "state", rowKey: "6!kv-t!00003", assets: Buffer.from("unreadable") });
    // `restore` returns the number of evaluated assets. The vault has two.
    expect(await evaluator.restore("kv-t")).toBe(2);
    await expectStateOfFirstScan();
  });

  test("remove fences a day after their vault was removed or moved, but not earlier", async () => {
    cloud.control.putVault(HERE, { name: "kv-t2", secrets: [{ name: "s" }] });
    cloud.control.putVault(HERE, { name: "kv-t3", secrets: [{ name: "s" }] });
    await runDeltaScan();
    cloud.control.removeVault("kv-t2");
    cloud.control.removeVault("kv-t3");
    cloud.control.putVault(THERE, { name: "kv-t3", secrets: [{ name: "s" }] });
    await runDeltaScan();
    const { writer, evaluator } = undisturbed();
    const partitionsWithFences = ["all", `sub:${HERE}`, `sub:${THERE}`, "vault:kv-t2", "vault:kv-t3"];
    await time.add(23 * HOUR_MS);
    expect([await writer.purgeFencesAndMarkers(partitionsWithFences), await evaluator.removeOldFences()]).toEqual([
      0, 0,
    ]);
    await time.add(2 * HOUR_MS);
    // Three fences of the removed vault and one in the old subscription of the moved vault, and one of the results.
    expect([await writer.purgeFencesAndMarkers(partitionsWithFences), await evaluator.removeOldFences()]).toEqual([
      4, 1,
    ]);
    await runDeltaScan();
    await expectStateOfFirstScan();
  });
});

test("a vault's row contains the ETags of its fences, so that the next worker does not have to read them", async () => {
  setExpiryDays(-3);
  const counting = await workerHolding(() => false);
  await counting.scan(await planVault());
  const writes = counting.proxy.writes.map(({ method, path }) => `${method} ${path}`);
  // The claim, three partitions, the results, and the release of the claim. The last two are written twice: the first attempt
  // inserts a row that marks the totals as outdated, which fails because the row exists.
  expect(writes).toEqual(Array.from({ length: 8 }, () => "POST $batch"));
  const row = (await counting.tables.get(Vaults, "vaults", vaultKey("kv-t")))!;
  for (const [name, partition] of [
    ["all", "all"],
    ["subscription", `sub:${HERE}`],
    ["vault", "vault:kv-t"],
  ] as const) {
    const table = TableClient.fromConnectionString(connectionString, "Assets", { allowInsecureConnection: true });
    expect((await table.getEntity(partition, "f!kv-t")).etag).toBe(row.fences![name]);
  }
});
