import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import * as z from "zod";
import { entity } from "../../shared/platform/storage/entity.ts";
import {
  createTables,
  type Fence,
  fenceEntity,
  insert,
  put,
  RowChanged,
  RowExists,
  remove,
  type Tables,
} from "../../shared/platform/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";

// A fence is a row in a partition. A worker includes the fence's ETag in each transaction, so that writes of an earlier worker
// are rejected after another worker has taken the fence.

const Things = entity("Things", z.object({ text: z.string() }));
const Fences = fenceEntity("Things");
const thingKey = (index: number) => `t${String(index).padStart(4, "0")}`;
const puts = (count: number, text = "x") =>
  Array.from({ length: count }, (_, index) => put(Things, thingKey(index), { text }));

let azurite: TestStorage;
let proxy: TableProxy;
let tables: Tables;
let partition = 0;
beforeAll(async () => {
  azurite = await openStorage();
  await createTables({ connectionString: azurite.connectionString() }).put(Things, "p0", "t", { text: "x" });
});
afterAll(() => azurite?.stop());
beforeEach(async () => {
  proxy = await startTableProxy(azurite.connectionString());
  tables = createTables({ connectionString: proxy.connectionString });
  partition++;
});
afterEach(() => proxy.stop());

/** Returns the fence of this test's partition for a worker. `etag` is the fence's ETag if the worker knows it. */
const fence = (worker: string, etag?: string): Fence =>
  tables.fence(Fences, `p${partition}`, "fence", { owner: worker, etag });
/** Returns the rows of this test's partition as "key text". */
async function readThings(): Promise<string[]> {
  const things: string[] = [];
  for await (const rows of tables.pages(Things, { partitionKey: `p${partition}`, from: "t" }))
    things.push(...rows.map(({ rowKey, text }) => `${rowKey} ${text}`));
  return things;
}
const countTransactions = () => proxy.requests.filter(({ path }) => path === "$batch").length;

test("250 rows are written in three transactions, and the next worker continues with the fence's last ETag", async () => {
  const first = fence("first");
  expect(await first.write(puts(250))).toEqual({ written: 250, removed: 0 });
  expect(countTransactions()).toBe(3);
  const next = fence("next", first.etag);
  await next.write([remove(Things, thingKey(0))]);
  expect(await readThings()).toHaveLength(249);
  // Only `readThings` sent a GET. The next worker knows the fence's ETag, so it does not read the fence.
  expect(proxy.requests.filter(({ method }) => method !== "POST")).toHaveLength(1);
  // `sequence` counts the writes of the fence by this worker.
  expect(await tables.get(Fences, `p${partition}`, "fence")).toMatchObject({ owner: "next", sequence: 1, open: false });
});

test("operations for the last transaction are in the last one, for any number of other operations", async () => {
  const lastOperations = ["u-own", "u-mark"].map((key) => put(Things, key, { text: "end" }));
  const worker = fence("one");
  // A transaction has at most 100 operations. One of them is the fence, and two in the last transaction are `lastOperations`.
  for (const [rows, transactions] of [
    [0, 1],
    [97, 1],
    [98, 2],
    [99, 2],
    [200, 3],
  ] as const) {
    const before = countTransactions();
    const beforeTransaction = vi.fn(async () => {});
    expect(
      (await worker.write(puts(rows), { inLastTransaction: lastOperations, beforeEach: beforeTransaction })).written,
    ).toBe(rows + 2);
    expect([countTransactions() - before, beforeTransaction.mock.calls.length]).toEqual([transactions, transactions]);
  }
  const key = thingKey(7);
  await expect(
    worker.write(puts(150), { inLastTransaction: [insert(Things, "u-mark", { text: "no" })] }),
  ).rejects.toThrow(RowExists);
  await worker.write([remove(Things, key)], { inLastTransaction: [put(Things, "u-mark", { text: "yes" })] });
  expect(await tables.get(Things, `p${partition}`, "u-mark")).toMatchObject({ text: "yes" });
  expect(await tables.get(Things, `p${partition}`, key)).toBe(undefined);
  expect(await tables.get(Fences, `p${partition}`, "fence")).toMatchObject({ open: false });
});

test("after another worker takes the fence, no write or removal of the previous worker is applied", async () => {
  const slow = fence("slow");
  await slow.write(puts(2));
  await fence("other").take();
  await expect(slow.write([remove(Things, thingKey(0))])).rejects.toThrow(RowChanged);
  await expect(slow.write(puts(3, "late"))).rejects.toThrow(RowChanged);
  await expect(slow.advance()).rejects.toThrow(RowChanged);
  expect(await readThings()).toEqual([`${thingKey(0)} x`, `${thingKey(1)} x`]);
});

test("taking a fence needs one request, whether or not the row exists", async () => {
  const worker = fence("one");
  await worker.take();
  await fence("two").take();
  expect(proxy.requests.map(({ method, status }) => [method, status])).toEqual([
    ["PUT", 204],
    ["PUT", 204],
  ]);
  await expect(worker.write(puts(1))).rejects.toThrow(RowChanged);
});

test("after a delayed duplicate of its take, a worker's write is rejected until the worker takes the fence again", async () => {
  const worker = fence("one");
  await worker.take();
  await worker.write(puts(2));
  // The duplicate arrives between a transaction whose response is lost and the repetition of the transaction.
  let sentTransactions = 0;
  proxy.fail(["LostAnswer"], ({ path }) => path === "$batch");
  proxy.before(
    () => fence("one").take(),
    ({ path }) => path === "$batch" && ++sentTransactions === 2,
  );
  await expect(worker.write(puts(1, "later"))).rejects.toThrow(RowChanged);
  expect(sentTransactions).toBe(2);
  expect(await readThings()).toEqual([`${thingKey(0)} later`, `${thingKey(1)} x`]);
  await expect(worker.write(puts(2, "again"))).rejects.toThrow(RowChanged);
  await worker.take();
  expect(await worker.write(puts(2, "again"))).toEqual({ written: 2, removed: 0 });
  expect(await readThings()).toEqual([`${thingKey(0)} again`, `${thingKey(1)} again`]);
});

test("one of two workers is rejected if both write to a partition without a fence", async () => {
  const two = [fence("one"), fence("two")];
  const written = await Promise.allSettled(two.map((worker, index) => worker.write(puts(1, String(index)))));
  expect(written.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  expect((written.find(({ status }) => status === "rejected") as PromiseRejectedResult).reason).toBeInstanceOf(
    RowExists,
  );
});

// An open fence tells the next worker that a write may be incomplete.
test("a fence is open from its take or the first of several transactions until the last one", async () => {
  const worker = fence("one");
  await worker.take();
  expect(await tables.get(Fences, `p${partition}`, "fence")).toMatchObject({ open: true });
  const opens: boolean[] = [];
  await worker.write(puts(150), {
    beforeEach: async () => void opens.push((await tables.get(Fences, `p${partition}`, "fence"))!.open),
  });
  expect(opens).toEqual([true, true]);
  expect(await tables.get(Fences, `p${partition}`, "fence")).toMatchObject({ open: false });
});

test("after a lost response, only the fence is read to verify that a transaction was applied", async () => {
  const worker = fence("one");
  await worker.write(puts(40));
  proxy.fail(["LostAnswer"], ({ path }) => path === "$batch");
  const operations = Array.from({ length: 40 }, (_, index) =>
    index < 20 ? remove(Things, thingKey(index)) : put(Things, thingKey(index), { text: "y" }),
  );
  const before = proxy.requests.length;
  expect(await worker.write(operations)).toEqual({ written: 20, removed: 20 });
  expect(proxy.requests.slice(before).map(({ method }) => method)).toEqual(["POST", "POST", "GET"]);
  expect(await readThings()).toEqual(Array.from({ length: 20 }, (_, index) => `${thingKey(index + 20)} y`));
});

test("removing missing rows succeeds, and the other rows of the transaction are written", async () => {
  const worker = fence("one");
  await worker.write(puts(3));
  const operations = [5, 1, 6, 2, 7].map((index) => remove(Things, thingKey(index)));
  expect(await worker.write([...operations, put(Things, "u", { text: "new" })])).toEqual({ written: 1, removed: 2 });
  expect(await readThings()).toEqual([`${thingKey(0)} x`, "u new"]);
});

test("a removal with an ETag, and an insert, are rejected with the whole transaction", async () => {
  const worker = fence("one");
  await worker.write([insert(Things, thingKey(0), { text: "x" })]);
  await expect(worker.write([insert(Things, thingKey(0), { text: "y" })])).rejects.toThrow(RowExists);
  await expect(worker.write([remove(Things, thingKey(9), 'W/"x"')])).rejects.toThrow();
  await worker.write(puts(1, "z"));
  expect(await readThings()).toEqual([`${thingKey(0)} z`]);
});
