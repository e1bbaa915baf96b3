import fc from "fast-check";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import * as z from "zod";
import { collectLeftOut } from "../../shared/platform/incomplete-answer.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import {
  createTables,
  insert,
  merge,
  put,
  RowChanged,
  RowExists,
  RowInvalid,
  RowMissing,
  remove,
  replace,
  StorageCorrupt,
  type Tables,
} from "../../shared/platform/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { type Fault, startTableProxy, type TableProxy } from "../support/table-proxy.ts";

// The table client of the service against Azurite, through a proxy that counts requests and injects faults.

const Thing = entity(
  "Things",
  z.object({
    name: z.string(),
    count: z.number().optional(),
    on: z.boolean().optional(),
    bytes: z.instanceof(Uint8Array).optional(),
    tags: z.record(z.string(), z.string()).optional(),
    list: z.array(z.unknown()).optional(),
    anything: z.unknown().optional(),
  }),
);
type ThingValue = z.infer<typeof Thing.schema> & { name: string };

let azurite: TestStorage;
let proxy: TableProxy;
let tables: Tables;
let partition = 0;
/** Partition key of the current test. */
let partitionKey: string;

beforeAll(async () => {
  azurite = await openStorage(["tables"]);
  // Creates the table before requests are counted.
  await createTables({ connectionString: azurite.connectionString() }).put(Thing, "first", "row", { name: "x" });
});
afterAll(() => azurite.stop());
beforeEach(async () => {
  partitionKey = `p${partition++}`;
  proxy = await startTableProxy(azurite.connectionString());
  tables = createTables({ connectionString: proxy.connectionString });
});
afterEach(() => proxy.stop());

/** Returns the row keys of each page. */
const rowKeysByPage = async (pages: AsyncGenerator<{ rowKey: string }[]>) => {
  const found: string[][] = [];
  for await (const page of pages) found.push(page.map((row) => row.rowKey));
  return found;
};
const numberedKeys = (count: number) => Array.from({ length: count }, (_, i) => `r${String(i).padStart(5, "0")}`);

describe("a row", () => {
  test("has the same value when it is read as when it was written", async () => {
    const value = fc.record(
      {
        name: fc.string({ unit: "binary" }).filter((text) => text.isWellFormed()),
        count: fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.integer(), fc.maxSafeInteger()),
        on: fc.boolean(),
        bytes: fc.uint8Array(),
        tags: fc.dictionary(
          fc.string().filter((key) => key !== "__proto__"),
          fc.string(),
        ),
        list: fc.array(fc.jsonValue()),
      },
      { requiredKeys: ["name"] },
    );
    await fc.assert(
      fc.asyncProperty(value, async (given) => {
        const { etag, ...written } = await tables.put(Thing, partitionKey, "r", given);
        const read = await tables.get(Thing, partitionKey, "r");
        expect(etag).toBe(read?.etag);
        const { etag: _, bytes, ...rest } = read!;
        expect(bytes && new Uint8Array(bytes)).toEqual(written.bytes);
        expect(rest).toEqual(JSON.parse(JSON.stringify({ ...written, bytes: undefined })));
      }),
      { numRuns: 40 },
    );
  });

  test("stores numbers as numbers, whole or not, beyond 32 bits", async () => {
    for (const count of [1, 1.5, -1, 2 ** 31, 2 ** 40, Number.MAX_SAFE_INTEGER, 1e21, 5e-324]) {
      await tables.put(Thing, partitionKey, "r", { name: "n", count });
      expect((await tables.get(Thing, partitionKey, "r"))?.count).toBe(count);
    }
  });

  // A column holds 32,000 characters, so longer texts are split. At 32,001, a split there would halve the emoji.
  test.each([31_998, 31_999, 32_000, 32_001, 64_000, 100_000])("stores a text of %i characters", async (length) => {
    const name = `${"é".repeat(length - 2)}😀`;
    const list = ["x".repeat(length)];
    await tables.transaction("Things", partitionKey, [put(Thing, "r", { name, list })]);
    const read = await tables.get(Thing, partitionKey, "r");
    // Compared as booleans, so that a failure does not print the texts.
    expect(read?.name === name).toBe(true);
    expect(read?.list?.[0] === list[0]).toBe(true);
  });

  // A column holds 65,536 bytes, so more bytes are split.
  test.each([65_535, 65_536, 65_537, 200_000])("stores %i bytes", async (length) => {
    // 251 is a prime, so that the pieces differ.
    const bytes = Uint8Array.from({ length }, (_, i) => i % 251);
    await tables.put(Thing, partitionKey, "r", { name: "n", bytes });
    expect(new Uint8Array((await tables.get(Thing, partitionKey, "r"))!.bytes!)).toEqual(bytes);
  });

  test("drops the end of a longer text when a shorter text is merged over it", async () => {
    await tables.put(Thing, partitionKey, "r", { name: "a".repeat(100_000), count: 7 });
    for (const name of ["b".repeat(32_000), "c".repeat(64_000), "d"]) {
      await tables.transaction("Things", partitionKey, [merge(Thing, "r", { name })]);
      const read = await tables.get(Thing, partitionKey, "r");
      expect(read?.name === name).toBe(true);
      expect(read?.count).toBe(7);
    }
  });

  test("can be written back with its keys and ETag among its members", async () => {
    const row = await tables.insert(Thing, partitionKey, "r", { name: "a" });
    await tables.put(Thing, partitionKey, "copy", row);
    const copy = await tables.get(Thing, partitionKey, "copy");
    expect(copy).toEqual({ name: "a", partitionKey, rowKey: "copy", etag: copy?.etag });
  });

  test("that does not match its entity is not written, and the error contains no value", async () => {
    const bad = { name: 17, tags: { a: "planted-value" }, count: "planted-value" } as unknown as ThingValue;
    const error = await tables.put(Thing, partitionKey, "r", bad).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(RowInvalid);
    expect(String(error)).toMatch(/Things.*name \(invalid_type\), count \(invalid_type\)/);
    expect(String(error)).not.toContain("planted");
    expect(proxy.requests).toEqual([]);
  });

  test("with an invalid member, as another program may write it, throws StorageCorrupt", async () => {
    const Other = entity("Things", z.object({ name: z.number() }));
    await tables.put(Other, partitionKey, "r", { name: 5 });
    await expect(tables.get(Thing, partitionKey, "r")).rejects.toThrow(StorageCorrupt);
    const strict = tables.pages(Thing, { partitionKey, onCorrupt: "throw" });
    await expect(rowKeysByPage(strict)).rejects.toThrow(/Things.*name \(invalid_type\)/);
    // Pages leave the row out by default, and the answer of the request counts it.
    const { result, leftOut } = await collectLeftOut(() => rowKeysByPage(tables.pages(Thing, { partitionKey })));
    expect([result, leftOut?.count]).toEqual([[[]], 1]);
  });

  test("beyond Azure's limits is rejected before it is sent", async () => {
    const big = "x".repeat(530_000);
    await expect(tables.put(Thing, partitionKey, "r", { name: big })).rejects.toThrow(/1048576/);
    await expect(tables.put(Thing, partitionKey, "a/b", { name: "x" })).rejects.toThrow(RowInvalid);
    await expect(tables.put(Thing, "a%b", "r", { name: "x" })).rejects.toThrow(RowInvalid);
    const wide = z.object(Object.fromEntries(Array.from({ length: 253 }, (_, i) => [`m${i}`, z.number()])));
    const value = Object.fromEntries(Array.from({ length: 253 }, (_, i) => [`m${i}`, i]));
    await expect(tables.put(entity("Wide", wide), partitionKey, "r", value)).rejects.toThrow(/253 properties/);
    expect(proxy.requests).toEqual([]);
  });

  test("of exactly one mebibyte by the documented formula is accepted", async () => {
    // The formula: 4 + 2 * characters of both keys + for each piece of the text 8 + 2 * characters of its name + 4 + 2 * its
    // length. The names of pieces 10 to 16 are one character longer: 7 in total.
    const pieces = 17;
    const frame = 4 + 2 * (partitionKey.length + 1) + pieces * (8 + 4) + 2 * (4 + (pieces - 1) * "name__1".length + 7);
    const length = Math.floor((1024 * 1024 - frame) / 2);
    await tables.put(Thing, partitionKey, "r", { name: "x".repeat(length) });
    await expect(tables.put(Thing, partitionKey, "r", { name: "x".repeat(length + 1) })).rejects.toThrow(RowInvalid);
  });
});

describe("an entity", () => {
  test.each(["etag", "Timestamp", "rowKey", "a_json", "a__1", "a-b"])("can't have a member called %s", (name) => {
    expect(() => entity("Things", z.object({ [name]: z.string() }))).toThrow(TypeError);
  });

  test("can't have a member that JSON does not restore", () => {
    expect(() => entity("Things", z.object({ at: z.date() }))).toThrow(/ISO 8601/);
  });

  test("can't have a loose schema, because rows also have keys", () => {
    for (const shape of [z.strictObject({ name: z.string() }), z.looseObject({ name: z.string() })])
      expect(() => entity("Things", shape)).toThrow(/beside their members/);
  });

  test("can't have an invalid table name", () => {
    expect(() => entity("no-hyphens", z.object({}))).toThrow(TypeError);
  });
});

describe("reading and writing single rows", () => {
  test("only one of many concurrent inserts succeeds", async () => {
    const outcomes = await Promise.allSettled(
      Array.from({ length: 8 }, (_, i) => tables.insert(Thing, partitionKey, "r", { name: String(i) })),
    );
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    for (const outcome of outcomes) if (outcome.status === "rejected") expect(outcome.reason).toBeInstanceOf(RowExists);
  });

  test("a stale replace and a stale remove throw RowChanged", async () => {
    const stale = await tables.insert(Thing, partitionKey, "r", { name: "a" });
    const fresh = await tables.replace(Thing, { ...stale, name: "b" });
    await expect(tables.replace(Thing, stale)).rejects.toThrow(RowChanged);
    await expect(tables.remove(Thing, partitionKey, "r", stale.etag)).rejects.toThrow(RowChanged);
    expect(await tables.remove(Thing, partitionKey, "r", fresh.etag)).toBe(true);
    expect(await tables.remove(Thing, partitionKey, "r")).toBe(false);
    await expect(tables.replace(Thing, fresh)).rejects.toThrow(RowChanged);
  });

  test("modify loses no change", async () => {
    await Promise.all(
      Array.from({ length: 6 }, () =>
        tables.modify(Thing, partitionKey, "r", (now) => ({ name: "n", count: (now?.count ?? 0) + 1 })),
      ),
    );
    expect((await tables.get(Thing, partitionKey, "r"))?.count).toBe(6);
  });

  test("modify does not write if nothing changes", async () => {
    const row = await tables.insert(Thing, partitionKey, "r", { name: "a" });
    expect(await tables.modify(Thing, partitionKey, "r", () => undefined)).toEqual(row);
    expect(await tables.modify(Thing, partitionKey, "none", () => undefined)).toBeUndefined();
    expect(await tables.get(Thing, partitionKey, "none")).toBeUndefined();
  });

  test.each(["a/b", "a\\b", "a#b", "a?b", "a%2Fb", "a\u0001", "x".repeat(2000)])(
    "a read with an illegal key returns undefined without a request: %#",
    async (key) => {
      const before = proxy.requests.length;
      expect(await tables.get(Thing, partitionKey, key)).toBeUndefined();
      expect(proxy.requests.length).toBe(before);
    },
  );

  test("modify throws RowChanged after ten attempts", async () => {
    await tables.insert(Thing, partitionKey, "r", { name: "a" });
    proxy.fail(Array(10).fill("UpdateConditionNotSatisfied"), ({ method }) => method === "PUT");
    let attempts = 0;
    const change = () => ({ name: String(++attempts) });
    await expect(tables.modify(Thing, partitionKey, "r", change)).rejects.toThrow(RowChanged);
    expect(attempts).toBe(10);
  });
});

describe("a transaction", () => {
  test("applies every kind of operation and returns the new ETags", async () => {
    const old = await tables.insert(Thing, partitionKey, "old", { name: "a", count: 1 });
    const gone = await tables.insert(Thing, partitionKey, "gone", { name: "a" });
    await tables.insert(Thing, partitionKey, "part", { name: "a", count: 1 });
    const etags = await tables.transaction("Things", partitionKey, [
      insert(Thing, "new {1} 'é'", { name: "b" }),
      put(Thing, "put", { name: "b" }),
      replace(Thing, "old", { name: "b" }, old.etag),
      merge(Thing, "part", { count: 2 }),
      remove(Thing, "gone", gone.etag),
    ]);
    for (const rowKey of ["new {1} 'é'", "put", "old", "part"])
      expect((await tables.get(Thing, partitionKey, rowKey))?.etag).toBe(etags.get(rowKey));
    expect(await tables.get(Thing, partitionKey, "old")).not.toHaveProperty("count");
    expect(await tables.get(Thing, partitionKey, "part")).toMatchObject({ name: "a", count: 2 });
    expect(await tables.get(Thing, partitionKey, "gone")).toBeUndefined();
  });

  test("names the failed row and operation, and applies nothing", async () => {
    const outdated = await tables.insert(Thing, partitionKey, "there", { name: "a" });
    const current = await tables.replace(Thing, outdated);
    const run = (operation: Parameters<Tables["transaction"]>[2][number]) =>
      tables
        .transaction("Things", partitionKey, [put(Thing, "other", { name: "b" }), operation])
        .catch((e: unknown) => e);
    const failureAt = (rowKey: string) => ({ table: "Things", partitionKey, rowKey, index: 1 });

    for (const [operation, kind, rowKey] of [
      [insert(Thing, "there", { name: "b" }), RowExists, "there"],
      [replace(Thing, "there", { name: "b" }, outdated.etag), RowChanged, "there"],
      [replace(Thing, "missing", { name: "b" }, outdated.etag), RowChanged, "missing"],
      [merge(Thing, "there", { name: "b" }, outdated.etag), RowChanged, "there"],
      [merge(Thing, "missing", { name: "b" }), RowMissing, "missing"],
      [remove(Thing, "there", outdated.etag), RowChanged, "there"],
      [remove(Thing, "missing"), RowMissing, "missing"],
    ] as const) {
      const error = await run(operation);
      expect(error).toBeInstanceOf(kind);
      expect(error).toMatchObject(failureAt(rowKey));
    }
    expect(await tables.get(Thing, partitionKey, "other")).toBeUndefined();
    expect(await tables.get(Thing, partitionKey, "there")).toEqual(current);
  });

  test("beyond the limits is rejected before it is sent", async () => {
    const many = numberedKeys(101).map((rowKey) => put(Thing, rowKey, { name: "x" }));
    await expect(tables.transaction("Things", partitionKey, many)).rejects.toThrow(/1 to 100/);
    await expect(tables.transaction("Things", partitionKey, [])).rejects.toThrow(/1 to 100/);
    const twice = [put(Thing, "r", { name: "x" }), remove(Thing, "r")];
    await expect(tables.transaction("Things", partitionKey, twice)).rejects.toThrow(/the same row/);
    const large = numberedKeys(5).map((rowKey) => put(Thing, rowKey, { name: "é".repeat(480_000) }));
    await expect(tables.transaction("Things", partitionKey, large)).rejects.toThrow(/4194304/);
    await expect(tables.transaction("Others", partitionKey, [remove(Thing, "r")])).rejects.toThrow(TypeError);
    await expect(tables.transaction("Things", "a/b", [remove(Thing, "r")])).rejects.toThrow(RowInvalid);
    for (const [key, rowKey] of [
      ["\ud800", "r"],
      [partitionKey, "\udfff"],
    ] as const)
      await expect(tables.transaction("Things", key, [put(Thing, rowKey, { name: "x" })])).rejects.toThrow(RowInvalid);
    expect(proxy.requests).toEqual([]);
  });

  test("can't clear a member with a merge", () => {
    expect(() => merge(Thing, "r", { count: undefined })).toThrow(/can't clear count/);
  });
});

describe("write", () => {
  test("fills transactions of a hundred operations and can be repeated", async () => {
    const rowKeys = numberedKeys(250);
    const all = () => rowKeys.map((rowKey) => insert(Thing, rowKey, { name: rowKey }));
    await tables.write("Things", partitionKey, all());
    expect(proxy.requests.map(({ path }) => path)).toEqual(["$batch", "$batch", "$batch"]);
    await tables.write("Things", partitionKey, all());
    expect((await rowKeysByPage(tables.pages(Thing, { partitionKey }))).flat()).toEqual(rowKeys);
  });

  test("keeps transactions under four mebibytes", async () => {
    const name = "é".repeat(400_000);
    await tables.write(
      "Things",
      partitionKey,
      numberedKeys(9).map((rowKey) => put(Thing, rowKey, { name })),
    );
    expect(proxy.requests).toHaveLength(2);
    for (const { bytes } of proxy.requests) expect(bytes).toBeLessThan(4 * 1024 * 1024);
  });

  test("leaves room for the reserved operations and bytes of each transaction", async () => {
    const rows = numberedKeys(9).map((rowKey) => put(Thing, rowKey, { name: "x".repeat(450_000) }));
    // The caller sends it at the start of each transaction. The batches leave room for it, but don't contain it.
    const lead = [put(Thing, "lead", { name: "x".repeat(450_000) })];
    const sizes = async (reserved: { operations?: number; bytes: number }, operations = rows) =>
      (await tables.batches("Things", partitionKey, operations, { lead, ...reserved })).map((batch) => batch.length);
    expect(await sizes({ bytes: 0 })).toEqual([8, 1]);
    expect(await sizes({ bytes: 1_500_000 })).toEqual([4, 4, 1]);
    // No row fits beside the reserved bytes: the first batch is empty, and each row has a batch of its own.
    expect(await sizes({ bytes: 3_500_000 })).toEqual([0, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    const small = numberedKeys(100).map((rowKey) => put(Thing, rowKey, { name: rowKey }));
    expect(await sizes({ operations: 2, bytes: 0 }, small)).toEqual([97, 3]);
  });

  test("removes existing rows and ignores missing rows", async () => {
    const rowKeys = numberedKeys(6);
    await tables.write(
      "Things",
      partitionKey,
      rowKeys.map((rowKey) => put(Thing, rowKey, { name: "x" })),
    );
    await tables.remove(Thing, partitionKey, rowKeys[1]!);
    await tables.remove(Thing, partitionKey, rowKeys[4]!);
    const again = [...rowKeys.map((rowKey) => remove(Thing, rowKey)), put(Thing, "kept", { name: "y" })];
    await tables.write("Things", partitionKey, again);
    await tables.write("Things", partitionKey, again);
    expect(await rowKeysByPage(tables.pages(Thing, { partitionKey }))).toEqual([["kept"]]);
  });

  test("keeps the order of operations on one row", async () => {
    await tables.write("Things", partitionKey, [
      put(Thing, "a", { name: "1" }),
      put(Thing, "b", { name: "1" }),
      put(Thing, "a", { name: "2" }),
      remove(Thing, "b"),
      merge(Thing, "a", { count: 3 }),
    ]);
    expect(await tables.get(Thing, partitionKey, "a")).toMatchObject({ name: "2", count: 3 });
    expect(await tables.get(Thing, partitionKey, "b")).toBeUndefined();
  });

  test("reads operations only as far as running transactions need", async () => {
    let readOperations = 0;
    function* many() {
      for (const rowKey of numberedKeys(1000)) {
        readOperations++;
        yield put(Thing, rowKey, { name: "x" });
      }
    }
    let transactions = 0;
    const beforeEach = async () => {
      if (++transactions === 3) throw new Error("claim lost");
    };
    await expect(tables.write("Things", partitionKey, many(), { parallel: 2, beforeEach })).rejects.toThrow(
      "claim lost",
    );
    expect(proxy.requests).toHaveLength(2);
    // Three transactions of 100 operations, and the one operation that no longer fitted into the third.
    expect(readOperations).toBeLessThanOrEqual(301);
  });

  test("stops at the first failure, after the running transactions", async () => {
    const operations = [
      merge(Thing, "missing", { count: 1 }),
      ...numberedKeys(500).map((rowKey) => put(Thing, rowKey, { name: "x" })),
    ];
    await expect(tables.write("Things", partitionKey, operations, { parallel: 1 })).rejects.toThrow(RowMissing);
    expect(proxy.requests).toHaveLength(1);
  });
});

describe("pages", () => {
  test("contain the rows of one partition and one range of row keys, with one request per page", async () => {
    await tables.write(
      "Things",
      partitionKey,
      ["a", "b", "b|1", "b|2", "b}", "c"].map((rowKey) => put(Thing, rowKey, { name: rowKey })),
    );
    await tables.put(Thing, `${partitionKey}x`, "b", { name: "another partition" });
    proxy.requests.length = 0;
    expect(await rowKeysByPage(tables.pages(Thing, { partitionKey, from: "b", before: "b}" }))).toEqual([
      ["b", "b|1", "b|2"],
    ]);
    expect(proxy.requests).toMatchObject([
      {
        method: "GET",
        path: "Things()",
        filter: `PartitionKey eq '${partitionKey}' and RowKey ge 'b' and RowKey lt 'b}'`,
        top: 1000,
        select: undefined,
        status: 200,
        bytes: 0,
      },
    ]);
    expect(await rowKeysByPage(tables.pages(Thing, { partitionKey, from: "b", after: "b|1" }))).toEqual([
      ["b|2", "b}", "c"],
    ]);
    expect(await rowKeysByPage(tables.pages(Thing, { partitionKey, from: "b", after: "a" }))).toEqual([
      ["b", "b|1", "b|2", "b}", "c"],
    ]);
    expect(await rowKeysByPage(tables.pages(Thing, { partitionKey, pageSize: 4 }))).toEqual([
      ["a", "b", "b|1", "b|2"],
      ["b}", "c"],
    ]);
    expect(await rowKeysByPage(tables.pages(Thing, { partitionKey: "it's empty" }))).toEqual([]);
    const quoted = `${partitionKey}'s`;
    for (const rowKey of ["a", "o'b", "o'c", "z"]) await tables.put(Thing, quoted, rowKey, { name: rowKey });
    expect(await rowKeysByPage(tables.pages(Thing, { partitionKey: quoted, from: "o'b", before: "o'c" }))).toEqual([
      ["o'b"],
    ]);
  });

  test("are complete if the service returns short or empty pages", async () => {
    const rowKeys = numberedKeys(25);
    await tables.write(
      "Things",
      partitionKey,
      rowKeys.map((rowKey) => put(Thing, rowKey, { name: "x" })),
    );
    proxy.shortPages(10);
    const found = await rowKeysByPage(tables.pages(Thing, { partitionKey }));
    expect(found.map((page) => page.length)).toEqual([10, 10, 5]);
    expect(found.flat()).toEqual(rowKeys);
    proxy.requests.length = 0;
    expect(await rowKeysByPage(tables.pages(Thing, { partitionKey, from: "z" }))).toEqual([]);
    // The empty page that the proxy inserts, and the real one.
    expect(proxy.requests).toHaveLength(2);
  });

  test("are not read ahead: the first page needs one request", async () => {
    await tables.write(
      "Things",
      partitionKey,
      numberedKeys(6).map((rowKey) => put(Thing, rowKey, { name: "x" })),
    );
    proxy.requests.length = 0;
    for await (const page of tables.pages(Thing, { partitionKey, pageSize: 2 })) {
      expect(page).toHaveLength(2);
      break;
    }
    expect(proxy.requests).toHaveLength(1);
  });

  test("of selected members contain only those members, complete", async () => {
    const tags = { long: "x".repeat(70_000) };
    await tables.put(Thing, partitionKey, "a", { name: "short", count: 1, tags: { a: "b" } });
    await tables.put(Thing, partitionKey, "b", { name: "long", count: 2, tags });
    proxy.requests.length = 0;
    for await (const page of tables.pages(Thing, { partitionKey, select: ["count"] }))
      expect(page.map(({ etag: _, ...row }) => row)).toEqual([
        { partitionKey, rowKey: "a", count: 1 },
        { partitionKey, rowKey: "b", count: 2 },
      ]);
    expect(proxy.requests.map(({ select }) => select)).toEqual(["PartitionKey,RowKey,count"]);
    for await (const page of tables.pages(Thing, { partitionKey, select: ["tags"] }))
      expect(page.map((row) => row.tags)).toEqual([{ a: "b" }, tags]);
  });

  test("are consistent, although rows with long members are read separately", async () => {
    const otherWriter = createTables({ connectionString: azurite.connectionString() });
    const tags = (digit: string) => ({ long: digit.repeat(70_000) });
    const pages = (change: () => Promise<unknown>) => {
      proxy.before(change, ({ path }) => path === `Things(PartitionKey='${partitionKey}',RowKey='b')`);
      return tables.pages(Thing, { partitionKey, select: ["tags", "count"] });
    };
    await tables.write("Things", partitionKey, [
      put(Thing, "a", { name: "a", count: 1 }),
      put(Thing, "b", { name: "b", count: 1, tags: tags("1") }),
    ]);
    const changed = pages(() =>
      otherWriter.transaction("Things", partitionKey, [
        merge(Thing, "a", { count: 2 }),
        merge(Thing, "b", { count: 2, tags: tags("2") }),
      ]),
    );
    const read = async (pagesToRead: typeof changed) => {
      const values: unknown[] = [];
      for await (const page of pagesToRead) values.push(...page.map((row) => [row.count, row.tags?.long?.at(-1)]));
      return values;
    };
    expect(await read(changed)).toEqual([
      [2, undefined],
      [2, "2"],
    ]);
    const removed = pages(() =>
      otherWriter.transaction("Things", partitionKey, [merge(Thing, "a", { count: 3 }), remove(Thing, "b")]),
    );
    expect(await read(removed)).toEqual([[3, undefined]]);
  });

  test("of a size outside 1 to 1000 are rejected", async () => {
    for (const pageSize of [0, 1001, 1.5])
      await expect(rowKeysByPage(tables.pages(Thing, { partitionKey, pageSize }))).rejects.toThrow(RangeError);
  });
});

describe("a table", () => {
  const New = entity("Newcomers", z.object({ name: z.string() }));

  test("that does not exist reads as empty and is created by the first write", async () => {
    expect(await tables.get(New, partitionKey, "r")).toBeUndefined();
    expect(await rowKeysByPage(tables.pages(New, { partitionKey }))).toEqual([]);
    expect(await tables.remove(New, partitionKey, "r")).toBe(false);
    expect(proxy.requests.map(({ path }) => path)).not.toContain("Tables");
    proxy.requests.length = 0;
    await tables.transaction("Newcomers", partitionKey, [insert(New, "r", { name: "a" })]);
    expect(proxy.requests.map(({ path }) => path)).toEqual(["$batch", "Tables", "$batch"]);
    proxy.requests.length = 0;
    await createTables({ connectionString: proxy.connectionString }).insert(New, partitionKey, "s", { name: "a" });
    expect(proxy.requests.map(({ path }) => path)).toEqual(["Newcomers"]);
  });

  test("that several processes create at the same time has one successful insert per row", async () => {
    const Fresh = entity("Races", z.object({ name: z.string() }));
    const outcomes = await Promise.allSettled(
      Array.from({ length: 5 }, () =>
        tables.transaction("Races", partitionKey, [insert(Fresh, "r", { name: "the same" })]),
      ),
    );
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  });

  test("that is being deleted is retried", async () => {
    proxy.fail(["TableBeingDeleted"]);
    await tables.put(Thing, partitionKey, "r", { name: "a" });
    expect(proxy.requests.map(({ status }) => status)).toEqual([409, 204]);
  });
});

// Faults named `…Inside` put the error into the body of the 202 response to a transaction.
describe("a busy service", () => {
  test("is retried after a pause that doubles", async () => {
    const pauses: number[] = [];
    const warn = (_: string, fields?: Record<string, unknown>) => void pauses.push(Number(fields?.pauseMs));
    const log = { debug() {}, info() {}, warn, error() {} };
    proxy.fail(["ServerBusyInside", "ServerBusyInside"]);
    const observed = createTables({ connectionString: proxy.connectionString }, { log });
    await observed.transaction("Things", partitionKey, [insert(Thing, "r", { name: "a" })]);
    // Between half of the pause and the whole pause, so that rejected callers don't retry at the same time.
    for (const [index, pause] of pauses.entries()) {
      expect(pause).toBeGreaterThanOrEqual(250 * 2 ** index);
      expect(pause).toBeLessThanOrEqual(500 * 2 ** index);
    }
    expect(pauses).toHaveLength(2);
  });

  test("is retried", async () => {
    proxy.fail(["ServerBusy"]);
    await tables.put(Thing, partitionKey, "r", { name: "a" });
    expect(proxy.requests.map(({ status }) => status)).toEqual([503, 204]);
  });

  test.each<Fault>(["ServerBusyInside", "OperationTimedOutInside", "ThrottledInside"])(
    "is retried if the body of a transaction's response contains the fault %s",
    async (fault) => {
      proxy.fail([fault]);
      await tables.transaction("Things", partitionKey, [insert(Thing, "r", { name: "a" })]);
      expect(proxy.requests).toHaveLength(2);
      expect(await tables.get(Thing, partitionKey, "r")).toMatchObject({ name: "a" });
    },
  );

  test("is not retried if the body of the response contains a rejection", async () => {
    proxy.fail(["InvalidInputInside"]);
    const rejected = tables.transaction("Things", partitionKey, [insert(Thing, "r", { name: "a" })]);
    await expect(rejected).rejects.toMatchObject({ code: "InvalidInput", statusCode: 400 });
    expect(proxy.requests).toHaveLength(1);
  });
});

describe("a lost response", () => {
  test("to an insert is not mistaken for another writer's insert", async () => {
    proxy.fail(["LostAnswer"]);
    const row = await tables.insert(Thing, partitionKey, "r", { name: "mine", tags: { a: "b" } });
    expect(await tables.get(Thing, partitionKey, "r")).toEqual(row);
    await expect(tables.insert(Thing, partitionKey, "r", { name: "mine", tags: { a: "b" } })).rejects.toThrow(
      RowExists,
    );
  });

  test("to modify does not make it apply its change twice", async () => {
    await tables.insert(Thing, partitionKey, "r", { name: "n", count: 1 });
    proxy.fail(["LostAnswer"], ({ method }) => method === "PUT");
    const row = await tables.modify(Thing, partitionKey, "r", (now) => ({ name: "n", count: now!.count! + 1 }));
    expect(row?.count).toBe(2);
    expect(await tables.get(Thing, partitionKey, "r")).toEqual(row);
  });

  test("to a transaction does not prevent the return of its ETags", async () => {
    const mark = await tables.insert(Thing, partitionKey, "mark", { name: "open", count: 1 });
    await tables.insert(Thing, partitionKey, "gone", { name: "x" });
    proxy.fail(["LostAnswer"]);
    const etags = await tables.transaction("Things", partitionKey, [
      insert(Thing, "entry", { name: "e" }),
      merge(Thing, "mark", { count: 2 }, mark.etag),
      remove(Thing, "gone"),
    ]);
    expect((await tables.get(Thing, partitionKey, "mark"))?.etag).toBe(etags.get("mark"));
    expect((await tables.get(Thing, partitionKey, "entry"))?.etag).toBe(etags.get("entry"));
  });

  test("does not hide another writer's row", async () => {
    await tables.insert(Thing, partitionKey, "r", { name: "theirs" });
    proxy.fail(["LostAnswer"]);
    await expect(tables.insert(Thing, partitionKey, "r", { name: "mine" })).rejects.toThrow(RowExists);
  });
});

test("partitions are listed once each, in order, after a given partition", async () => {
  const Placed = entity("Placed", z.object({ name: z.string() }));
  for (const [partition, row] of [
    ["a", "1"],
    ["a", "2"],
    ["b", "1"],
    ["c", "1"],
  ] as const)
    await tables.put(Placed, partition, row, { name: row });
  const listFrom = async (after?: string) => {
    const found: string[] = [];
    for await (const partition of tables.partitions("Placed", after)) {
      found.push(partition);
      // Ends the loop if a partition is listed again and again.
      if (found.length > 3) break;
    }
    return found;
  };
  expect(await listFrom()).toEqual(["a", "b", "c"]);
  expect(await listFrom("a")).toEqual(["b", "c"]);
  expect(await listFrom("c")).toEqual([]);
});
