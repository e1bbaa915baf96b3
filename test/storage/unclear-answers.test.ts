import { setTimeout as delay } from "node:timers/promises";
import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { entity } from "../../shared/platform/storage/entity.ts";
import { MAX_ATTEMPTS } from "../../shared/platform/storage/limits.ts";
import { createQueues } from "../../shared/platform/storage/queues.ts";
import { UNUSED_POLICIES } from "../../shared/platform/storage/table-clients.ts";
import {
  createTables,
  insert,
  isUnclear,
  merge,
  put,
  RowChanged,
  RowExists,
  RowMissing,
  remove,
  replace,
  type Tables,
} from "../../shared/platform/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { type Fault, startTableProxy, type TableProxy } from "../support/table-proxy.ts";

// An outcome is unclear if a request may have been applied although its response is missing or reports an error. The service
// repeats such requests and must find out whether the first one was applied.

const Thing = entity("Things", z.object({ name: z.string(), count: z.number().optional() }));

/**
 * Faults after which the outcome of a request is unclear, or a request is rejected temporarily. `LostRequest`: the request does
 * not arrive. `LostAnswer`, `CutAnswer`, `ShortAnswer`: it is applied, and its response is lost, or cut with or without a
 * broken connection. `…Applied`: it is applied, and the response is 500 or 503. `ServerBusy`: it is rejected with 503.
 */
const FAULTS: readonly Fault[] = [
  "LostRequest",
  "LostAnswer",
  "CutAnswer",
  "ShortAnswer",
  "InternalErrorApplied",
  "ServerBusyApplied",
  "ServerBusy",
];

let azurite: TestStorage;
let proxy: TableProxy;
let queueProxy: TableProxy;
let tables: Tables;
/** Tables without the proxy. */
let direct: Tables;

beforeAll(async () => {
  azurite = await openStorage();
  proxy = await startTableProxy(azurite.connectionString());
  queueProxy = await startTableProxy(azurite.connectionString(), "Queue");
  tables = createTables({ connectionString: proxy.connectionString });
  direct = createTables({ connectionString: azurite.connectionString() });
  await direct.put(Thing, "p", "first", { name: "makes the table" });
});
afterAll(async () => {
  await Promise.all([proxy.stop(), queueProxy.stop()]);
  await azurite.stop();
});

let partitions = 0;
/** Returns a new partition. The first `times` attempts to write to it, single or in a transaction, encounter the fault. */
function partitionWithFault(fault: Fault, times = 1): string {
  // Ends with "-end", so that no name of a partition is the start of another one, as `partition-1` would be of `partition-10`.
  const partition = `partition-${++partitions}-end`;
  proxy.fail(Array<Fault>(times).fill(fault), ({ method, path, body }) => {
    const isWrite = method !== "GET";
    return isWrite && (path.includes(partition) || body.includes(partition));
  });
  return partition;
}

const readRow = (partition: string, row: string) => direct.get(Thing, partition, row);

describe.each(FAULTS)("a write that encounters %s is applied once and succeeds:", (fault) => {
  test.concurrent("insert", async () => {
    const partitionKey = partitionWithFault(fault);
    const row = await tables.insert(Thing, partitionKey, "r", { name: "mine", count: 1 });
    expect(await readRow(partitionKey, "r")).toEqual(row);
  });

  test.concurrent("put", async () => {
    const partitionKey = partitionWithFault(fault);
    const row = await tables.put(Thing, partitionKey, "r", { name: "mine" });
    expect(await readRow(partitionKey, "r")).toEqual(row);
  });

  test.concurrent("replace", async () => {
    const partitionKey = partitionWithFault(fault);
    const before = await direct.insert(Thing, partitionKey, "r", { name: "before" });
    const row = await tables.replace(Thing, { ...before, name: "after" });
    expect(await readRow(partitionKey, "r")).toEqual(row);
  });

  test.concurrent("modify", async () => {
    const partitionKey = partitionWithFault(fault);
    await direct.insert(Thing, partitionKey, "r", { name: "n", count: 1 });
    const row = await tables.modify(Thing, partitionKey, "r", (now) => ({ name: "n", count: now!.count! + 1 }));
    expect(await readRow(partitionKey, "r")).toEqual(row);
    expect(row?.count).toBe(2);
  });

  test.concurrent("remove with an ETag", async () => {
    const partitionKey = partitionWithFault(fault);
    const { etag } = await direct.insert(Thing, partitionKey, "r", { name: "n" });
    expect(await tables.remove(Thing, partitionKey, "r", etag)).toBe(true);
    expect(await readRow(partitionKey, "r")).toBeUndefined();
  });

  test.concurrent("a transaction that inserts, merges, replaces and removes", async () => {
    const partitionKey = partitionWithFault(fault);
    const merged = await direct.insert(Thing, partitionKey, "merged", { name: "m", count: 1 });
    const replaced = await direct.insert(Thing, partitionKey, "replaced", { name: "r" });
    const removed = await direct.insert(Thing, partitionKey, "removed", { name: "x" });
    const etags = await tables.transaction("Things", partitionKey, [
      insert(Thing, "inserted", { name: "i" }),
      merge(Thing, "merged", { count: 2 }, merged.etag),
      replace(Thing, "replaced", { name: "r2" }, replaced.etag),
      remove(Thing, "removed", removed.etag),
      put(Thing, "put", { name: "p" }),
    ]);
    expect(await readRow(partitionKey, "inserted")).toMatchObject({ name: "i", etag: etags.get("inserted") });
    expect(await readRow(partitionKey, "merged")).toMatchObject({ name: "m", count: 2, etag: etags.get("merged") });
    expect(await readRow(partitionKey, "replaced")).toMatchObject({ name: "r2", etag: etags.get("replaced") });
    expect(await readRow(partitionKey, "put")).toMatchObject({ name: "p", etag: etags.get("put") });
    expect(await readRow(partitionKey, "removed")).toBeUndefined();
    expect(etags.get("removed")).toBe("");
  });

  test.concurrent("a transaction that only removes", async () => {
    const partitionKey = partitionWithFault(fault);
    const { etag } = await direct.insert(Thing, partitionKey, "a", { name: "a" });
    await direct.insert(Thing, partitionKey, "b", { name: "b" });
    await tables.transaction("Things", partitionKey, [remove(Thing, "a", etag), remove(Thing, "b")]);
    expect([await readRow(partitionKey, "a"), await readRow(partitionKey, "b")]).toEqual([undefined, undefined]);
  });

  test.concurrent("a message (at most twice)", async () => {
    const queue = `queue-${fault.toLowerCase()}`;
    queueProxy.fail([fault], ({ method, path }) => method === "POST" && path.includes(queue));
    const queues = createQueues({ connectionString: queueProxy.connectionString });
    await queues.send(queue, { text: "hello" });
    const sends = queueProxy.requests.filter(
      ({ method, path, status }) => method === "POST" && path.includes(queue) && status === 201,
    );
    expect(sends.length).toBeGreaterThanOrEqual(1);
    expect(sends.length).toBeLessThanOrEqual(2);
  });
});

describe("another writer", () => {
  /** Runs `meanwhile` after a write to the partition was applied and its response lost, and before the write is sent again. */
  async function afterLostResponse(partitionKey: string, meanwhile: () => Promise<unknown>): Promise<void> {
    const applied = () =>
      proxy.requests.some(
        ({ method, path, status }) => method !== "GET" && path.includes(partitionKey) && status < 300,
      );
    while (!applied()) await delay(5);
    await meanwhile();
  }

  test.concurrent("that removed the row first is detected if no response was lost", async () => {
    const partitionKey = `partition-${++partitions}-end`;
    const { etag } = await direct.insert(Thing, partitionKey, "r", { name: "n" });
    await direct.remove(Thing, partitionKey, "r", etag);
    expect(await tables.remove(Thing, partitionKey, "r", etag)).toBe(false);
    await expect(tables.transaction("Things", partitionKey, [remove(Thing, "r", etag)])).rejects.toThrow(RowMissing);
  });

  test.concurrent("that inserted a new row after a removal is detected", async () => {
    const partitionKey = partitionWithFault("LostAnswer");
    const { etag } = await direct.insert(Thing, partitionKey, "r", { name: "n" });
    const removing = tables.remove(Thing, partitionKey, "r", etag);
    await Promise.all([
      afterLostResponse(partitionKey, () => direct.insert(Thing, partitionKey, "r", { name: "theirs" })),
      expect(removing).rejects.toThrow(RowChanged),
    ]);
    expect(await readRow(partitionKey, "r")).toMatchObject({ name: "theirs" });
  });

  test.concurrent("that changed a row before its removal in a transaction is detected", async () => {
    const partitionKey = partitionWithFault("ServerBusy");
    const { etag } = await direct.insert(Thing, partitionKey, "r", { name: "n" });
    await direct.put(Thing, partitionKey, "r", { name: "theirs" });
    await expect(
      tables.transaction("Things", partitionKey, [insert(Thing, "mine", { name: "m" }), remove(Thing, "r", etag)]),
    ).rejects.toThrow(RowChanged);
    expect(await readRow(partitionKey, "r")).toMatchObject({ name: "theirs" });
    expect(await readRow(partitionKey, "mine")).toBeUndefined();
  });
});

describe("the outcome of a write", () => {
  test.concurrent.each<Fault>(["LostAnswer", "CutAnswer", "ShortAnswer", "InternalErrorApplied", "ServerBusyApplied"])(
    "is unclear if %s persists until the last attempt",
    async (fault) => {
      const partitionKey = partitionWithFault(fault, MAX_ATTEMPTS);
      const error = await tables
        .transaction("Things", partitionKey, [put(Thing, "r", { name: "n" })])
        .catch((reason: unknown) => reason);
      expect(isUnclear(error)).toBe(true);
      expect(await readRow(partitionKey, "r")).toMatchObject({ name: "n" });
    },
    30_000,
  );

  test.concurrent("is not unclear if the write was rejected", async () => {
    const partitionKey = `partition-${++partitions}-end`;
    await direct.insert(Thing, partitionKey, "r", { name: "theirs" });
    const exists = await tables.insert(Thing, partitionKey, "r", { name: "mine" }).catch((reason: unknown) => reason);
    expect(exists).toBeInstanceOf(RowExists);
    expect(isUnclear(exists)).toBe(false);
    expect(isUnclear(new TypeError("a mistake"))).toBe(false);
    const wrongKey = createTables({
      connectionString: azurite.connectionString().replace(/AccountKey=[^;]+/, "AccountKey=d3Jvbmc="),
    });
    const rejected = await wrongKey.put(Thing, partitionKey, "r", { name: "mine" }).catch((reason: unknown) => reason);
    expect(rejected).toMatchObject({ statusCode: 403 });
    expect(isUnclear(rejected)).toBe(false);
  });
});

test("the SDK's pipeline has all policies that the service removes by name", async () => {
  const client = TableClient.fromConnectionString("UseDevelopmentStorage=true", "Things");
  const names = client.pipeline.getOrderedPolicies().map(({ name }) => name);
  expect(names).toEqual(expect.arrayContaining([...UNUSED_POLICIES]));
});
