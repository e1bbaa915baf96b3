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

const Things = entity("Things", z.object({ text: z.string() }));
const Fences = fenceEntity("Things");
const thing = (at: number) => `t${String(at).padStart(4, "0")}`;
const puts = (count: number, text = "x") => Array.from({ length: count }, (_, at) => put(Things, thing(at), { text }));

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

const fence = (owner: string, etag?: string): Fence => tables.fence(Fences, `p${partition}`, "fence", { owner, etag });
async function standing(): Promise<string[]> {
  const found: string[] = [];
  for await (const rows of tables.pages(Things, { partitionKey: `p${partition}`, from: "t" }))
    found.push(...rows.map(({ rowKey, text }) => `${rowKey} ${text}`));
  return found;
}
const batches = () => proxy.requests.filter(({ path }) => path === "$batch").length;

test("250 rows are written in three transactions, one after the other, and the next worker continues with the last ETag", async () => {
  const first = fence("first");
  expect(await first.write(puts(250))).toEqual({ written: 250, removed: 0 });
  expect(batches()).toBe(3);
  const next = fence("next", first.etag);
  await next.write([remove(Things, thing(0))]);
  expect(await standing()).toHaveLength(249);
  expect(proxy.requests.filter(({ method }) => method !== "POST")).toHaveLength(1);
  expect(await tables.get(Fences, `p${partition}`, "fence")).toMatchObject({ owner: "next", sequence: 1, open: false });
});

test("operations for the last transaction are in the last one, however many precede, and again after a rejection", async () => {
  const together = ["u-own", "u-mark"].map((key) => put(Things, key, { text: "end" }));
  const one = fence("one");
  for (const [rows, transactions] of [
    [0, 1],
    [97, 1],
    [98, 2],
    [99, 2],
    [200, 3],
  ] as const) {
    const before = batches();
    const beforeEach = vi.fn(async () => {});
    expect((await one.write(puts(rows), { inLastTransaction: together, beforeEach })).written).toBe(rows + 2);
    expect([batches() - before, beforeEach.mock.calls.length]).toEqual([transactions, transactions]);
  }
  const key = thing(7);
  await expect(one.write(puts(150), { inLastTransaction: [insert(Things, "u-mark", { text: "no" })] })).rejects.toThrow(
    RowExists,
  );
  await one.write([remove(Things, key)], { inLastTransaction: [put(Things, "u-mark", { text: "yes" })] });
  expect(await tables.get(Things, `p${partition}`, "u-mark")).toMatchObject({ text: "yes" });
  expect(await tables.get(Things, `p${partition}`, key)).toBe(undefined);
  expect(await tables.get(Fences, `p${partition}`, "fence")).toMatchObject({ open: false });
});

test("after another worker takes the fence, no write or removal of the previous owner is applied", async () => {
  const slow = fence("slow");
  await slow.write(puts(2));
  await fence("other").take();
  await expect(slow.write([remove(Things, thing(0))])).rejects.toThrow(RowChanged);
  await expect(slow.write(puts(3, "late"))).rejects.toThrow(RowChanged);
  await expect(slow.advance()).rejects.toThrow(RowChanged);
  expect(await standing()).toEqual([`${thing(0)} x`, `${thing(1)} x`]);
});

test("taking a fence is one request, whether or not the row exists", async () => {
  const one = fence("one");
  await one.take();
  await fence("two").take();
  expect(proxy.requests.map(({ method, status }) => [method, status])).toEqual([
    ["PUT", 204],
    ["PUT", 204],
  ]);
  await expect(one.write(puts(1))).rejects.toThrow(RowChanged);
});

test("a delayed duplicate of a take counts as another worker's: the owner's write is rejected, and the owner takes the fence again", async () => {
  const one = fence("one");
  await one.take();
  await one.write(puts(2));
  // Between a transaction whose answer is lost and its second sending.
  let sent = 0;
  proxy.fail(["LostAnswer"], ({ path }) => path === "$batch");
  proxy.before(
    () => fence("one").take(),
    ({ path }) => path === "$batch" && ++sent === 2,
  );
  await expect(one.write(puts(1, "later"))).rejects.toThrow(RowChanged);
  expect(sent).toBe(2);
  expect(await standing()).toEqual([`${thing(0)} later`, `${thing(1)} x`]);
  await expect(one.write(puts(2, "again"))).rejects.toThrow(RowChanged);
  await one.take();
  expect(await one.write(puts(2, "again"))).toEqual({ written: 2, removed: 0 });
  expect(await standing()).toEqual([`${thing(0)} again`, `${thing(1)} again`]);
});

test("of two workers that know of no fence, one is rejected", async () => {
  const two = [fence("one"), fence("two")];
  const written = await Promise.allSettled(two.map((one, at) => one.write(puts(1, String(at)))));
  expect(written.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  expect((written.find(({ status }) => status === "rejected") as PromiseRejectedResult).reason).toBeInstanceOf(
    RowExists,
  );
});

test("a fence is open from the take, or the first of several transactions, until the last one", async () => {
  const one = fence("one");
  await one.take();
  expect(await tables.get(Fences, `p${partition}`, "fence")).toMatchObject({ open: true });
  const opens: boolean[] = [];
  await one.write(puts(150), {
    beforeEach: async () => void opens.push((await tables.get(Fences, `p${partition}`, "fence"))!.open),
  });
  expect(opens).toEqual([true, true]);
  expect(await tables.get(Fences, `p${partition}`, "fence")).toMatchObject({ open: false });
});

test("after a lost answer, only the fence is read to verify that a transaction was applied", async () => {
  const one = fence("one");
  await one.write(puts(40));
  proxy.fail(["LostAnswer"], ({ path }) => path === "$batch");
  const operations = Array.from({ length: 40 }, (_, at) =>
    at < 20 ? remove(Things, thing(at)) : put(Things, thing(at), { text: "y" }),
  );
  const before = proxy.requests.length;
  expect(await one.write(operations)).toEqual({ written: 20, removed: 20 });
  expect(proxy.requests.slice(before).map(({ method }) => method)).toEqual(["POST", "POST", "GET"]);
  expect(await standing()).toEqual(Array.from({ length: 20 }, (_, at) => `${thing(at + 20)} y`));
});

test("removing missing rows succeeds, and the other rows of the transaction are written", async () => {
  const one = fence("one");
  await one.write(puts(3));
  const operations = [5, 1, 6, 2, 7].map((at) => remove(Things, thing(at)));
  expect(await one.write([...operations, put(Things, "u", { text: "new" })])).toEqual({ written: 1, removed: 2 });
  expect(await standing()).toEqual([`${thing(0)} x`, "u new"]);
});

test("a removal with an ETag, and an insert, are rejected with the whole transaction", async () => {
  const one = fence("one");
  await one.write([insert(Things, thing(0), { text: "x" })]);
  await expect(one.write([insert(Things, thing(0), { text: "y" })])).rejects.toThrow(RowExists);
  await expect(one.write([remove(Things, thing(9), 'W/"x"')])).rejects.toThrow();
  await one.write(puts(1, "z"));
  expect(await standing()).toEqual([`${thing(0)} z`]);
});
