import { setTimeout as delay } from "node:timers/promises";
import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { entity } from "../../shared/platform/storage/entity.ts";
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

const Thing = entity("Things", z.object({ name: z.string(), count: z.number().optional() }));

/** Faults after which the outcome of a request is unclear, or a request is rejected temporarily. */
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

/** Returns a partition whose next request, single or in a transaction, encounters the fault. */
let partitions = 0;
function partitionThatMeets(fault: Fault, times = 1): string {
  const partition = `partition-${++partitions}-end`;
  proxy.fail(Array<Fault>(times).fill(fault), ({ method, path, body }) => {
    const isWrite = method !== "GET";
    return isWrite && (path.includes(partition) || body.includes(partition));
  });
  return partition;
}

const value = (partition: string, row: string) => direct.get(Thing, partition, row);

describe.each(FAULTS)(
  "a write that encounters %s is applied once, and its caller learns that it was applied:",
  (fault) => {
    test.concurrent("insert", async () => {
      const p = partitionThatMeets(fault);
      const row = await tables.insert(Thing, p, "r", { name: "mine", count: 1 });
      expect(await value(p, "r")).toEqual(row);
    });

    test.concurrent("put", async () => {
      const p = partitionThatMeets(fault);
      const row = await tables.put(Thing, p, "r", { name: "mine" });
      expect(await value(p, "r")).toEqual(row);
    });

    test.concurrent("replace", async () => {
      const p = partitionThatMeets(fault);
      const before = await direct.insert(Thing, p, "r", { name: "before" });
      const row = await tables.replace(Thing, { ...before, name: "after" });
      expect(await value(p, "r")).toEqual(row);
    });

    test.concurrent("modify", async () => {
      const p = partitionThatMeets(fault);
      await direct.insert(Thing, p, "r", { name: "n", count: 1 });
      const row = await tables.modify(Thing, p, "r", (now) => ({ name: "n", count: now!.count! + 1 }));
      expect(await value(p, "r")).toEqual(row);
      expect(row?.count).toBe(2);
    });

    test.concurrent("remove with an ETag", async () => {
      const p = partitionThatMeets(fault);
      const { etag } = await direct.insert(Thing, p, "r", { name: "n" });
      expect(await tables.remove(Thing, p, "r", etag)).toBe(true);
      expect(await value(p, "r")).toBeUndefined();
    });

    test.concurrent("a transaction that inserts, merges, replaces and removes", async () => {
      const p = partitionThatMeets(fault);
      const merged = await direct.insert(Thing, p, "merged", { name: "m", count: 1 });
      const replaced = await direct.insert(Thing, p, "replaced", { name: "r" });
      const removed = await direct.insert(Thing, p, "removed", { name: "x" });
      const etags = await tables.transaction("Things", p, [
        insert(Thing, "inserted", { name: "i" }),
        merge(Thing, "merged", { count: 2 }, merged.etag),
        replace(Thing, "replaced", { name: "r2" }, replaced.etag),
        remove(Thing, "removed", removed.etag),
        put(Thing, "put", { name: "p" }),
      ]);
      expect(await value(p, "inserted")).toMatchObject({ name: "i", etag: etags.get("inserted") });
      expect(await value(p, "merged")).toMatchObject({ name: "m", count: 2, etag: etags.get("merged") });
      expect(await value(p, "replaced")).toMatchObject({ name: "r2", etag: etags.get("replaced") });
      expect(await value(p, "put")).toMatchObject({ name: "p", etag: etags.get("put") });
      expect(await value(p, "removed")).toBeUndefined();
      expect(etags.get("removed")).toBe("");
    });

    test.concurrent("a transaction that only removes", async () => {
      const p = partitionThatMeets(fault);
      const { etag } = await direct.insert(Thing, p, "a", { name: "a" });
      await direct.insert(Thing, p, "b", { name: "b" });
      await tables.transaction("Things", p, [remove(Thing, "a", etag), remove(Thing, "b")]);
      expect([await value(p, "a"), await value(p, "b")]).toEqual([undefined, undefined]);
    });

    test.concurrent("a message, which may be delivered twice", async () => {
      const queue = `queue-${fault.toLowerCase()}`;
      queueProxy.fail([fault], ({ method, path }) => method === "POST" && path.includes(queue));
      const queues = createQueues({ connectionString: queueProxy.connectionString });
      await queues.send(queue, { made: "the queue" });
      const sends = queueProxy.requests.filter(
        ({ method, path, status }) => method === "POST" && path.includes(queue) && status === 201,
      );
      expect(sends.length).toBeGreaterThanOrEqual(1);
      expect(sends.length).toBeLessThanOrEqual(2);
    });
  },
);

describe("another writer", () => {
  /** Runs `meanwhile` after the request was applied and its answer lost, and before the request is sent again. */
  async function whenLost(p: string, meanwhile: () => Promise<unknown>): Promise<void> {
    const applied = () =>
      proxy.requests.some(({ method, path, status }) => method !== "GET" && path.includes(p) && status < 300);
    while (!applied()) await delay(5);
    await meanwhile();
  }

  test.concurrent("the writer that removed the row first is known if no answer was lost", async () => {
    const p = `partition-${++partitions}-end`;
    const { etag } = await direct.insert(Thing, p, "r", { name: "n" });
    await direct.remove(Thing, p, "r", etag);
    expect(await tables.remove(Thing, p, "r", etag)).toBe(false);
    await expect(tables.transaction("Things", p, [remove(Thing, "r", etag)])).rejects.toThrow(RowMissing);
  });

  test.concurrent("a row that another writer inserted in place of a removed row is detected", async () => {
    const p = partitionThatMeets("LostAnswer");
    const { etag } = await direct.insert(Thing, p, "r", { name: "n" });
    const removing = tables.remove(Thing, p, "r", etag);
    await Promise.all([
      whenLost(p, () => direct.insert(Thing, p, "r", { name: "theirs" })),
      expect(removing).rejects.toThrow(RowChanged),
    ]);
    expect(await value(p, "r")).toMatchObject({ name: "theirs" });
  });

  test.concurrent("a row that another writer wrote before its removal in a transaction is kept", async () => {
    const p = partitionThatMeets("ServerBusy");
    const { etag } = await direct.insert(Thing, p, "r", { name: "n" });
    await direct.put(Thing, p, "r", { name: "theirs" });
    await expect(
      tables.transaction("Things", p, [insert(Thing, "mine", { name: "m" }), remove(Thing, "r", etag)]),
    ).rejects.toThrow(RowChanged);
    expect(await value(p, "r")).toMatchObject({ name: "theirs" });
    expect(await value(p, "mine")).toBeUndefined();
  });
});

describe("an unclear outcome", () => {
  test.concurrent.each<Fault>(["LostAnswer", "CutAnswer", "ShortAnswer", "InternalErrorApplied", "ServerBusyApplied"])(
    "is unclear if %s persists until the last attempt",
    async (fault) => {
      const p = partitionThatMeets(fault, 5);
      const error = await tables
        .transaction("Things", p, [put(Thing, "r", { name: "n" })])
        .catch((reason: unknown) => reason);
      expect(isUnclear(error)).toBe(true);
      expect(await value(p, "r")).toMatchObject({ name: "n" });
    },
    30_000,
  );

  test.concurrent("is not a clear rejection", async () => {
    const p = `partition-${++partitions}-end`;
    await direct.insert(Thing, p, "r", { name: "theirs" });
    const exists = await tables.insert(Thing, p, "r", { name: "mine" }).catch((reason: unknown) => reason);
    expect(exists).toBeInstanceOf(RowExists);
    expect(isUnclear(exists)).toBe(false);
    expect(isUnclear(new TypeError("a mistake"))).toBe(false);
    const wrongKey = createTables({
      connectionString: azurite.connectionString().replace(/AccountKey=[^;]+/, "AccountKey=d3Jvbmc="),
    });
    const refused = await wrongKey.put(Thing, p, "r", { name: "mine" }).catch((reason: unknown) => reason);
    expect(refused).toMatchObject({ statusCode: 403 });
    expect(isUnclear(refused)).toBe(false);
  });
});

test("the policies removed from the SDK's pipeline exist under their names", async () => {
  const client = TableClient.fromConnectionString("UseDevelopmentStorage=true", "Things");
  const names = client.pipeline.getOrderedPolicies().map(({ name }) => name);
  expect(names).toEqual(expect.arrayContaining([...UNUSED_POLICIES]));
});
