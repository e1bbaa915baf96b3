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
import { liveIn } from "../azure/live-cloud.ts";
import { type MovedClock, movedClock } from "../support/moved-clock.ts";
import { type Fate, type HeldProxy, startHeldProxy, type Write } from "./delaying-proxy.ts";
import { createWorkers, differences, everyRow } from "./inventory-fixture.ts";

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

const HERE = "11111111-1111-4111-8111-111111111111";
const THERE = "22222222-2222-4222-8222-222222222222";
const LEASE_ENDED_MS = 17_000;
/** Two accounts per test, and as many for retries. */
const ACCOUNTS = Array.from({ length: 40 }, (_, at) => [`found${at}`, `wanted${at}`]).flat();

let azurite: Azurite;
let cloud: Cloud;
let time: MovedClock;
let workers: ReturnType<typeof createWorkers>;
let used = 0;
beforeAll(async () => {
  time = movedClock();
  azurite = await startAzurite({ accounts: ACCOUNTS, environment: time.environment });
  const live = await liveIn({
    company: {
      subscriptions: [
        { name: "Here", id: HERE },
        { name: "There", id: THERE },
      ],
    },
  });
  cloud = live.cloud;
  workers = createWorkers(live);
});
afterAll(async () => {
  await cloud?.stop();
  await azurite?.stop();
  time?.remove();
});

let connectionString: string;
let fresh: string;
let proxies: HeldProxy[];
beforeEach(async () => {
  connectionString = azurite.connectionString(ACCOUNTS[used]!);
  fresh = azurite.connectionString(ACCOUNTS[used + 1]!);
  used += 2;
  proxies = [];
  for (const { name } of cloud.control.vaults()) if (name.startsWith("kv-t")) cloud.control.removeVault(name);
  cloud.control.putVault(HERE, {
    name: "kv-t",
    secrets: [
      { name: "moving", expiresInDays: 100, contentType: "text" },
      { name: "other", expiresInDays: 200, contentType: "text" },
    ],
  });
  await delta();
});
afterEach(() => Promise.all(proxies.map((proxy) => proxy.stop())));

const delta = () => workers.delta(connectionString, [HERE, THERE], time);
const clean = () => workers.worker(connectionString);

/** Starts a worker of whose writes those that the matcher selects are held, each only once. */
async function holding(matches: (write: Write) => boolean, fate: Fate = "hold") {
  let taken = false;
  const proxy = await startHeldProxy(connectionString, (write) => {
    if (taken || !matches(write)) return "pass";
    taken = true;
    return fate;
  });
  proxies.push(proxy);
  const isHeld = () => vi.waitFor(() => expect(proxy.held).toHaveLength(1), { timeout: 150_000, interval: 5 });
  return { ...workers.worker(proxy.connectionString), proxy, isHeld };
}

const inPartition = (partition: string) => (write: Write) =>
  write.path === "$batch" && write.body.includes(`Assets(PartitionKey='${encodeURIComponent(partition)}'`);
const ofResults = ({ path, body }: Write) => path === "$batch" && body.includes("/Compliance");
const ofClaims = ({ path, body }: Write) => path === "$batch" && body.includes("/Vaults");

const planned = async () =>
  (await workers.plan(clean().tables, [HERE, THERE])).find(({ name }) => name.toLowerCase() === "kv-t")!;
const expireSoon = (days: number) => cloud.control.change("kv-t", "secrets", "moving", { expiresInDays: days });

/** Expects every row as a first scan writes it. */
async function expectTheCloud(): Promise<void> {
  await workers.delta(fresh, [HERE, THERE], time);
  expect(differences(await everyRow(connectionString), await everyRow(fresh))).toEqual([]);
}

test("a transaction held for longer than the lease, and a second message for that vault: nothing of it is applied late", async () => {
  expireSoon(50);
  const slow = await holding(inPartition("all"));
  const scan = slow.scan(await planned());
  await slow.isHeld();
  expireSoon(3);
  await expect(clean().scan(await planned())).rejects.toThrow(VaultBusy);
  await time.add(LEASE_ENDED_MS);
  await clean().scan(await planned());
  await slow.proxy.held[0]!.release();
  await expect(scan).rejects.toThrow(VaultBusy);
  expect(slow.proxy.answered.some(({ fate, applied }) => fate === "hold" && applied)).toBe(false);
  await expectTheCloud();
});

test.each([
  ["the subscription's copies", inPartition(`sub:${HERE}`)],
  ["the vault's own rows", inPartition("vault:kv-t")],
  ["the results", ofResults],
  ["the claim", ofClaims],
])("%s of a crashed worker that arrive after another one has ended are rejected", async (_, matches) => {
  expireSoon(-3);
  const slow = await holding(matches);
  slow.scan(await planned()).catch(() => {});
  await slow.isHeld();
  slow.proxy.kill();
  expireSoon(3);
  await time.add(LEASE_ENDED_MS);
  await clean().scan(await planned());
  await slow.proxy.held[0]!.release();
  expect(slow.proxy.answered.at(-1)).toMatchObject({ applied: false });
  await expectTheCloud();
});

test("a worker that takes over takes the fences before it reads the stored rows", async () => {
  expireSoon(50);
  const slow = await holding(inPartition("vault:kv-t"));
  slow.scan(await planned()).catch(() => {});
  await slow.isHeld();
  slow.proxy.kill();
  expireSoon(3);
  await time.add(LEASE_ENDED_MS);
  const next = await holding(ofClaims);
  const scan = next.scan(await planned());
  await next.isHeld();
  await slow.proxy.held[0]!.release();
  expect(slow.proxy.answered.at(-1)).toMatchObject({ applied: false });
  await next.proxy.held[0]!.release();
  await scan;
  await expectTheCloud();
});

test("results of a crashed worker are rejected although the next one found nothing to write", async () => {
  const before = { expiresInDays: 100 };
  expireSoon(-3);
  const slow = await holding(ofResults);
  slow.scan(await planned()).catch(() => {});
  await slow.isHeld();
  slow.proxy.kill();
  cloud.control.change("kv-t", "secrets", "moving", before);
  await time.add(LEASE_ENDED_MS);
  await clean().scan(await planned());
  await slow.proxy.held[0]!.release();
  await delta();
  await expectTheCloud();
});

test("a worker that was taken over before it wrote results does not write them from outdated data", async () => {
  cloud.control.changeVault("kv-t", { purgeProtection: false });
  const slow = await holding(ofResults);
  const scan = slow.scan(await planned());
  await slow.isHeld();
  cloud.control.changeVault("kv-t", { purgeProtection: true, publicNetworkAccess: "Disabled" });
  await time.add(LEASE_ENDED_MS);
  await clean().scan(await planned());
  await slow.proxy.held[0]!.release();
  await expect(scan).rejects.toThrow(VaultBusy);
  await expectTheCloud();
});

test("an evaluation after a worker's lease has expired: the worker can't finish, and the next delta scan does", async () => {
  expireSoon(-3);
  const slow = await holding(inPartition("vault:kv-t"));
  const scan = slow.scan(await planned());
  await slow.isHeld();
  await expect(clean().evaluator.evaluateWholeVault("kv-t")).rejects.toThrow(VaultBusy);
  await time.add(LEASE_ENDED_MS);
  await clean().evaluator.evaluateWholeVault("kv-t");
  await slow.proxy.held[0]!.release();
  await expect(scan).rejects.toThrow(VaultBusy);
  await delta();
  await expectTheCloud();
});

test("an evaluation that read before the first scan does not remove what the scan wrote", async () => {
  cloud.control.putVault(HERE, { name: "kv-t2", secrets: [{ name: "s" }] });
  const early = await holding(({ path }) => path.startsWith("Compliance"));
  const evaluation = early.evaluator.evaluateWholeVault("kv-t2");
  await early.isHeld();
  await delta();
  await early.proxy.held[0]!.release();
  await evaluation;
  await expectTheCloud();
});

test("a vault that moves while its old subscription's copies are being written is stored only in the new one", async () => {
  expireSoon(50);
  const slow = await holding(inPartition(`sub:${HERE}`), "cut");
  slow.scan(await planned()).catch(() => {});
  await slow.isHeld();
  slow.proxy.kill();
  cloud.control.removeVault("kv-t");
  cloud.control.putVault(THERE, { name: "kv-t", secrets: [{ name: "moving", expiresInDays: 7.5 }] });
  await time.add(LEASE_ENDED_MS);
  await delta();
  await slow.proxy.held[0]!.release();
  await expectTheCloud();
});

test("rows of the version before fences, with a crashed worker's lock from a wrong clock", async () => {
  const { tables } = clean();
  // That version's state: no fences, a lock until 2099, one expiry written in one partition and announced.
  for (const partitionKey of ["all", `sub:${HERE}`, "vault:kv-t"]) await tables.remove(Assets, partitionKey, "f!kv-t");
  const table = (name: string) =>
    TableClient.fromConnectionString(connectionString, name, { allowInsecureConnection: true });
  await table("Compliance").deleteEntity("state", "6!kv-t!!fence");
  const row = await table("Vaults").getEntity<Record<string, unknown>>("vaults", "n!kv-t");
  const { fences_json: _fences, etag: _etag, timestamp: _timestamp, ...old } = row;
  const locked = { ...old, pending: true, lockOwner: "old", lockedUntil: "2099-01-01T00:00:00.000Z" };
  await table("Vaults").updateEntity({ ...locked, partitionKey: "vaults", rowKey: "n!kv-t" }, "Replace");
  const announced = deflateRawSync(JSON.stringify([["secret", "moving", 1_900_000_000]]));
  await table("Vaults").upsertEntity({ partitionKey: "vaults", rowKey: "w!kv-t!000", entries: announced });
  const asset = (await tables.get(Assets, "all", nameKey("secret", "moving", "kv-t")))!;
  await tables.write("Assets", "all", [
    put(Assets, expiryKey("secret", 1_900_000_000, "moving", "kv-t"), asset as AssetRecord),
  ]);
  await expect(clean().scan(await planned())).rejects.toMatchObject({ name: "VaultBusy", waitMs: expect.any(Number) });
  await time.add(LEASE_ENDED_MS);
  await clean().scan(await planned());
  await expectTheCloud();
});

describe("repairs", () => {
  const everywhere = ["all", `sub:${HERE}`, "vault:kv-t"];
  const asset = async (name: string) =>
    (await clean().tables.get(Assets, partitions.vault("kv-t"), nameKey("secret", name, "kv-t")))!;

  test("restore missing, wrong and superfluous rows from the vault's own rows", async () => {
    const { tables, writer } = clean();
    const [moving, other] = [await asset("moving"), await asset("other")];
    const ghost = { ...other, name: "ghost" };
    for (const partition of everywhere) {
      await tables.write("Assets", partition, [
        remove(Assets, expiryKey("secret", moving.expiresOn, "moving", "kv-t")),
        put(Assets, expiryKey("secret", 5, "moving", "kv-t"), moving),
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
        { type: "secret", name: "moving", expiresOn: 5 },
        { type: "secret", name: "other", expiresOn },
        { type: "secret", name: "ghost", expiresOn },
        { type: "secret", name: "other", expiresOn: undefined, subscriptionId: THERE },
      ],
      "repair",
    );
    expect(restored).toEqual({ written: 12, removed: 6 });
    await expectTheCloud();
    await delta();
    await expectTheCloud();
  });

  test("remove the rows of an unknown vault", async () => {
    const { tables, writer } = clean();
    const ghost: AssetRecord = { ...(await asset("other")), vaultName: "kv-gone" };
    const rows = [
      put(Assets, nameKey("secret", "other", "kv-gone"), ghost),
      put(Assets, expiryKey("secret", ghost.expiresOn, "other", "kv-gone"), ghost),
    ];
    for (const partition of ["all", `sub:${THERE}`, "vault:kv-gone"]) await tables.write("Assets", partition, rows);
    const entry = { type: "secret", name: "other", expiresOn: ghost.expiresOn, subscriptionId: THERE } as const;
    expect(await writer.restore("kv-gone", [entry], "repair")).toEqual({ written: 0, removed: 6 });
    await expectTheCloud();
  });

  test.each(["kv-t", "kv-gone"])(
    "of %s succeed although a fence request was sent twice and arrives late",
    async (name) => {
      const wrong: AssetRecord = { ...(await asset("other")), vaultName: name };
      for (const partition of ["all", `vault:${name}`]) {
        await clean().tables.put(Assets, partition, expiryKey("secret", 5, "other", name), wrong);
      }
      let [taken, written] = [false, false];
      const proxy = await startHeldProxy(connectionString, (write) => {
        if (!taken && write.method === "PUT" && write.path.includes("f!")) {
          taken = true;
          return "cut";
        }
        if (written || !inPartition("all")(write)) return "pass";
        written = true;
        return "hold";
      });
      proxies.push(proxy);
      const entry = { type: "secret", name: "other", expiresOn: 5 } as const;
      const restored = workers.worker(proxy.connectionString).writer.restore(name, [entry], "repair");
      await vi.waitFor(() => expect(proxy.held).toHaveLength(2), { timeout: 150_000, interval: 5 });
      await proxy.held[0]!.release();
      await proxy.held[0]!.release();
      expect(await restored).toMatchObject({ removed: 2 });
      await expectTheCloud();
    },
  );

  test("clear fingerprints, so that the next scan reads and compares the lists again", async () => {
    const { tables, writer } = clean();
    await tables.remove(Assets, "vault:kv-t", nameKey("secret", "moving", "kv-t"));
    await delta();
    expect(await asset("moving")).toBeUndefined();
    await writer.forgetListings("kv-t", ["secret"]);
    await delta();
    await expectTheCloud();
  });

  test("rewrite results, and remove superfluous ones", async () => {
    const { evaluator } = clean();
    expireSoon(-3);
    await delta();
    const table = TableClient.fromConnectionString(connectionString, "Compliance", { allowInsecureConnection: true });
    const rows: string[] = [];
    for await (const { rowKey } of table.listEntities()) rows.push(rowKey!);
    const findings = rows.find((key) => key.startsWith("1!") && key.endsWith("!kv-t!00000"))!;
    await table.deleteEntity("state", findings);
    await table.upsertEntity({
      partitionKey: "state",
      rowKey: findings.replace("00000", "00007"),
      items: Buffer.from("x"),
    });
    await table.upsertEntity({ partitionKey: "state", rowKey: "6!kv-t!00003", assets: Buffer.from("unreadable") });
    expect(await evaluator.restore("kv-t")).toBe(2);
    await expectTheCloud();
  });

  test("fences are kept for a day after their vault was removed or moved, and then removed", async () => {
    cloud.control.putVault(HERE, { name: "kv-t2", secrets: [{ name: "s" }] });
    cloud.control.putVault(HERE, { name: "kv-t3", secrets: [{ name: "s" }] });
    await delta();
    cloud.control.removeVault("kv-t2");
    cloud.control.removeVault("kv-t3");
    cloud.control.putVault(THERE, { name: "kv-t3", secrets: [{ name: "s" }] });
    await delta();
    const { writer, evaluator } = clean();
    const places = ["all", `sub:${HERE}`, `sub:${THERE}`, "vault:kv-t2", "vault:kv-t3"];
    await time.add(23 * 3_600_000);
    expect([await writer.purgeFencesAndMarkers(places), await evaluator.removeOldFences()]).toEqual([0, 0]);
    await time.add(2 * 3_600_000);
    // The fences of the removed vault, and that in the old subscription of the moved one.
    expect([await writer.purgeFencesAndMarkers(places), await evaluator.removeOldFences()]).toEqual([4, 1]);
    await delta();
    await expectTheCloud();
  });
});

test("a vault's row contains the ETags of its fences, so that the next worker needs no further request", async () => {
  expireSoon(-3);
  const counting = await holding(() => false);
  await counting.scan(await planned());
  const writes = counting.proxy.answered.map(({ method, path }) => `${method} ${path}`);
  // The claim, three partitions, the results, and the end. The last two are written twice, because the vault's marks for the
  // totals exist already.
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
