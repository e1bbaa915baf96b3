import { TableClient } from "@azure/data-tables";
import type { FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { ActiveRuns, activeRange, KEY_ROTATIONS, type RunRecord, Runs, runKey } from "../../shared/key-rotation/run.ts";
import { StorageCorrupt } from "../../shared/platform/storage/tables.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { BOSS, type Crash, CrashWorld } from "./crash-world.ts";
import { companyWith, storage, VAULT } from "./world.ts";

/**
 * Tests that a rotation of a key survives crashes at any call, lost answers and duplicate deliveries. The simulated cloud decides
 * how many versions a key got: always exactly one for a rotation.
 */

/** Number of calls between crashes. */
const CALLS_BETWEEN_CRASHES = IS_CAMPAIGN ? 1 : 3;
const CRASH_KINDS: Crash["kind"][] = ["before", "after", "late"];
const KEYS = Array.from({ length: 200 }, (_, index) => `key-${index}`);

let world: CrashWorld;
let azurite: TestStorage;
beforeAll(async () => {
  azurite = await openStorage();
  const keys = KEYS.map((name) => ({ name }));
  const { cloud, config } = await startTestCloud({ company: companyWith(keys, []) });
  world = new CrashWorld(cloud, config, azurite.connectionString());
  const vault = { name: VAULT, id: cloud.control.vaultId(VAULT)!, vaultUri: world.vaultUri, subscriptionId: "one" };
  const texts = { location: "westeurope", resourceGroup: "one", tenantId: "one", sku: "standard" };
  const access = { publicNetworkAccess: "Enabled", networkDefaultAction: "Allow", privateEndpoints: 0 };
  const flags = { softDelete: true, purgeProtection: true, rbacAuthorization: true, pending: false };
  const scans = { firstSeenAt: "2026-11-20", listedAt: {}, failures: {}, failedScans: 0, listings: {}, contents: {} };
  const row = { ...vault, ...texts, ...access, ...flags, ...scans };
  await world.tables.put(Vaults, VAULTS, vaultKey(VAULT), row as never);
});
afterAll(async () => {
  await world?.cloud.stop();
  await azurite?.stop();
});
afterEach(() => world.cloud.control.clearFaults());

const unusedKeys = [...KEYS];
/** Returns a key that no test has used. */
const nextKey = () => unusedKeys.shift()!;

/** Adds a storage account that encrypts with the key, and makes it the only known consumer. */
function addConsumer(key: string) {
  const { control } = world.cloud;
  const id = control.consumers.put(control.subscriptions()[0]!.id, storage(`st${key.replace("-", "")}`, key));
  const resource = { id, kind: "storageAccount", name: `st-${key}` } as const;
  const edge = { vaultName: VAULT, type: "key", name: key, resource, strength: "references", evidence: "encryption" };
  world.edges = [{ edge: { ...edge, refresh: { how: "automatic" } }, seenAt: undefined }] as never;
}

/** Rotates a new key with a crash, and checks that it got one version. Returns whether a worker reached the crash. */
async function rotateWithCrash(crash: Crash | undefined): Promise<{ reached: boolean; run: RunRecord; calls: number }> {
  const key = nextKey();
  addConsumer(key);
  const { runId } = await world.start().begin(`${VAULT}.key.${key}`, BOSS);
  const before = world.calls.length;
  const events = world.events.length;
  const { run, crashes } = await world.run(runId, crash ? { crash } : {});
  const context = `SEED=${SEED}, ${crash?.kind} call ${crash?.callNumber}: ${JSON.stringify(run)}`;
  expect(run.status, context).toBe("done");
  expect(world.versions(key), context).toEqual([run.oldVersion, run.newVersion]);
  expect(run.consumers[0]!.state, context).toBe("followed");
  const ends = world.events.slice(events).filter(({ type }) => type === "keyRotation.ended");
  expect(ends, context).toHaveLength(1);
  return { reached: crashes > 0, run, calls: world.calls.length - before };
}

test("a rotation adds one version after a crash at a sampled call", { timeout: 3_600_000 }, async () => {
  const { calls } = await rotateWithCrash(undefined);
  let reached = 0;
  for (let callNumber = 1 + (SEED % CALLS_BETWEEN_CRASHES), round = 0; callNumber <= calls; round++) {
    const kinds = IS_CAMPAIGN ? CRASH_KINDS : [CRASH_KINDS[(SEED + round) % 3]!];
    for (const kind of kinds) if ((await rotateWithCrash({ callNumber, kind })).reached) reached++;
    callNumber += CALLS_BETWEEN_CRASHES;
  }
  expect(reached).toBeGreaterThan(3);
});

test("a rotation adds one version after a crash at each call around the request", { timeout: 600_000 }, async () => {
  const start = world.calls.length;
  await rotateWithCrash(undefined);
  const request = world.calls.slice(start).indexOf("vault.rotate");
  expect(request).toBeGreaterThan(0);
  // The calls of `begin` come from another worker, so the worker's own count is smaller. Its first call reads the run.
  const first = world.calls.slice(start, start + request).lastIndexOf("tables.getWithAge");
  const ofWorker = request - world.calls.slice(start, start + first).lastIndexOf("queues.send");
  for (let callNumber = Math.max(1, ofWorker - 4); callNumber <= ofWorker + 5; callNumber++)
    for (const kind of CRASH_KINDS) await rotateWithCrash({ callNumber, kind });
});

const FAULTS: [name: string, operation: string, action: FaultAction][] = [
  ["the answer with the new version is lost", "keyvault.rotateKey", { kind: "loseAnswer" }],
  ["the answer with the new version is cut off", "keyvault.rotateKey", { kind: "cutAnswer" }],
  ["the answer with the new version is an error", "keyvault.rotateKey", { kind: "failAfter", status: 500 }],
  [
    "the answer with the new version is a 503 with Retry-After",
    "keyvault.rotateKey",
    { kind: "failAfter", status: 503, retryAfterSeconds: 1 },
  ],
  ["the answer with the new version never comes", "keyvault.rotateKey", { kind: "hangAfter" }],
  ["the answer with the new version can't be read", "keyvault.rotateKey", { kind: "garbage", as: "html" }],
  ["the request is lost", "keyvault.rotateKey", { kind: "reset" }],
  ["the request is never answered", "keyvault.rotateKey", { kind: "hang" }],
  ["the vault fails", "keyvault.rotateKey", { kind: "fail", status: 503 }],
  ["the vault is busy", "keyvault.rotateKey", { kind: "throttle", retryAfterSeconds: 1 }],
  ["the current version can't be read", "keyvault.getKey", { kind: "fail", status: 500 }],
];
test.each(FAULTS)("a rotation adds one version if %s", { timeout: 120_000 }, async (_, operation, action) => {
  const key = nextKey();
  addConsumer(key);
  const { runId } = await world.start().begin(`${VAULT}.key.${key}`, BOSS);
  const times = operation === "keyvault.getKey" ? 3 : 1;
  world.cloud.control.addFault({ match: { operation, vault: VAULT }, action, times });
  const { run } = await world.run(runId);
  expect([run.status, world.versions(key)]).toEqual(["done", [run.oldVersion, run.newVersion]]);
});

test("a version that another client added before the request counts, and no other one is added", async () => {
  const key = nextKey();
  addConsumer(key);
  const { runId } = await world.start().begin(`${VAULT}.key.${key}`, BOSS);
  world.cloud.control.putKey(VAULT, { name: key });
  const { run } = await world.run(runId);
  expect([run.status, run.createdElsewhere, world.versions(key)]).toEqual([
    "done",
    true,
    [run.oldVersion, run.newVersion],
  ]);
});

test("a rotation that starts after another client added a version adds one more", async () => {
  const key = nextKey();
  addConsumer(key);
  world.cloud.control.putKey(VAULT, { name: key });
  const added = world.versions(key).at(-1);
  const { runId } = await world.start().begin(`${VAULT}.key.${key}`, BOSS);
  const { run } = await world.run(runId);
  expect([run.oldVersion, run.createdElsewhere, world.versions(key).length]).toEqual([added, undefined, 3]);
});

test("two requests at the same time start one rotation", async () => {
  const key = nextKey();
  world.edges = [];
  const starts = Array.from({ length: 4 }, () => world.start().begin(`${VAULT}.key.${key}`, BOSS));
  const results = await Promise.allSettled(starts);
  const started = results.flatMap((one) => (one.status === "fulfilled" ? [one.value.runId] : []));
  const codes = results.flatMap((one) => (one.status === "rejected" ? [one.reason.code as string] : []));
  expect([started.length, codes]).toEqual([1, ["rotationUnfinished", "rotationUnfinished", "rotationUnfinished"]]);
  await world.run(started[0]!);
  expect(world.versions(key)).toHaveLength(2);
});

test("a row that another program changed does not continue, and no version is added", async () => {
  const key = nextKey();
  const other = nextKey();
  world.edges = [];
  const { runId } = await world.start().begin(`${VAULT}.key.${key}`, BOSS);
  const rows = TableClient.fromConnectionString(azurite.connectionString(), Runs.table, {
    allowInsecureConnection: true,
  });
  // The attacker points the run at another key, or makes a finished run ask for another version.
  await rows.updateEntity({ partitionKey: KEY_ROTATIONS, rowKey: runKey(runId), name: other }, "Merge");
  await expect(world.start().handle({ runId }, BOSS)).rejects.toThrow(StorageCorrupt);
  await expect(world.start().get(runId)).rejects.toThrow(StorageCorrupt);
  // The timer skips the row.
  await world.start().continueDue();
  expect([world.versions(key).length, world.versions(other).length]).toEqual([1, 1]);
  // The run's message is still queued, and the next test would handle it.
  await rows.deleteEntity(KEY_ROTATIONS, runKey(runId));
});

test("a consumer that follows a still newer version counts as followed", async () => {
  const key = nextKey();
  addConsumer(key);
  const { runId } = await world.start().begin(`${VAULT}.key.${key}`, BOSS);
  await world.run(runId, { until: ({ newVersion }) => newVersion !== undefined });
  world.cloud.control.putKey(VAULT, { name: key });
  world.advanceClock(2 * DAY_MS);
  const { run } = await world.run(runId);
  expect([run.status, run.consumers[0]!.version]).toEqual(["done", world.versions(key).at(-1)]);
});

test("no row, message, log or audit entry contains key material or a token", async () => {
  const rows = TableClient.fromConnectionString(azurite.connectionString(), Runs.table, {
    allowInsecureConnection: true,
  });
  const stored: unknown[] = [];
  for await (const row of rows.listEntities()) stored.push(row);
  expect(stored.length).toBeGreaterThan(20);
  const text = JSON.stringify([stored, world.events]);
  expect(text).not.toMatch(/"kty"|"n":|eyJ[A-Za-z0-9_-]{20}/);
});

test("the timer deletes ended rotations after the retention period, also without an unfinished one", async () => {
  const key = nextKey();
  addConsumer(key);
  const { runId } = await world.start().begin(`${VAULT}.key.${key}`, BOSS);
  await world.run(runId);
  // Other tests leave unfinished rotations.
  for await (const rows of world.tables.pages(ActiveRuns, { ...activeRange, onCorrupt: "leaveOut" }))
    for (const { rowKey } of rows) await world.tables.remove(ActiveRuns, KEY_ROTATIONS, rowKey);
  world.advanceClock(364 * DAY_MS);
  await world.start().continueDue();
  expect((await world.start().get(runId)).status).toBe("done");
  world.advanceClock(2 * DAY_MS);
  await world.start().continueDue();
  await expect(world.start().get(runId)).rejects.toMatchObject({ code: "notFound" });
});
