import { randomBytes } from "node:crypto";
import { TableClient } from "@azure/data-tables";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import * as z from "zod";
import { entity } from "../../shared/platform/storage/entity.ts";
import type { RowKeys } from "../../shared/platform/storage/signing.ts";
import {
  createTables,
  insert,
  merge,
  put,
  remove,
  StorageCorrupt,
  type Tables,
} from "../../shared/platform/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";

const shape = {
  name: z.string(),
  count: z.number().optional(),
  on: z.boolean().optional(),
  bytes: z.instanceof(Uint8Array).optional(),
  places: z.array(z.string()).optional(),
};
const Signed = entity("Signed", z.object(shape), { signed: true });

const keysOf = (keys: Record<string, Uint8Array>, current: string): RowKeys => ({
  current: async () => ({ name: current, key: keys[current]! }),
  named: async (name) => keys[name],
});

let azurite: TestStorage;
let proxy: TableProxy;
let tables: Tables;
/** Writes to the table like anyone with the account key. */
let directClient: TableClient;
const ring = { one: randomBytes(32), two: randomBytes(32) };
let partition = 0;
let p: string;
beforeAll(async () => {
  azurite = await openStorage();
  proxy = await startTableProxy(azurite.connectionString());
  tables = createTables({ connectionString: proxy.connectionString }, { keys: keysOf(ring, "one") });
  directClient = TableClient.fromConnectionString(azurite.connectionString(), "Signed", {
    allowInsecureConnection: true,
  });
});
afterAll(async () => {
  await proxy?.stop();
  await azurite?.stop();
});
beforeEach(() => {
  p = `p${++partition}`;
});
afterEach(() => {
  proxy.heal();
});

const value = {
  name: `a text of two pieces ${"x".repeat(40_000)}`,
  count: 1.5,
  on: false,
  bytes: new Uint8Array([0, 1, 255]),
  places: ["kv-one/db"],
};
/** The stored row without the service's own columns. */
async function stored(rowKey: string) {
  const { etag: _e, timestamp: _t, ...row } = await directClient.getEntity<Record<string, unknown>>(p, rowKey);
  const columns = Object.entries(row).filter(([name]) => !name.includes("odata."));
  return { ...Object.fromEntries(columns), count: { type: "Double", value: "1.5" }, partitionKey: p, rowKey };
}
const refused = async (rowKey: string, reader = tables) => {
  await expect(reader.get(Signed, p, rowKey)).rejects.toThrow(StorageCorrupt);
  await expect(reader.getWithAge(Signed, p, rowKey)).rejects.toThrow(StorageCorrupt);
  const corrupt: string[] = [];
  for await (const rows of reader.pages(Signed, { partitionKey: p, onCorrupt: (row) => corrupt.push(row.rowKey) }))
    corrupt.push(...rows.map((row) => `good ${row.rowKey}`));
  expect(corrupt).toContain(rowKey);
};

describe("a signed row", () => {
  test("is read unchanged, singly, in transactions and in pages", async () => {
    await tables.insert(Signed, p, "a", value);
    await tables.transaction("Signed", p, [insert(Signed, "b", value), put(Signed, "c", { name: "short" })]);
    expect(await tables.get(Signed, p, "a")).toMatchObject({ ...value, bytes: Buffer.from(value.bytes) });
    expect((await tables.getWithAge(Signed, p, "c"))?.row).toMatchObject({ name: "short" });
    const names: string[] = [];
    for await (const rows of tables.pages(Signed, { partitionKey: p })) names.push(...rows.map((row) => row.rowKey));
    expect(names).toEqual(["a", "b", "c"]);
    await tables.modify(Signed, p, "a", (now) => now && { ...now, count: 2 });
    expect(await tables.get(Signed, p, "a")).toMatchObject({ count: 2 });
    expect(await tables.remove(Signed, p, "a")).toBe(true);
  });

  test.each(["LostAnswer", "ServerBusyApplied"] as const)(
    "is recognized after %s like any other row",
    async (fault) => {
      await tables.insert(Signed, p, "before", value);
      proxy.fail([fault], ({ method }) => method !== "GET");
      await tables.insert(Signed, p, "a", value);
      expect(proxy.heal()).toBe(0);
      proxy.fail([fault], ({ path }) => path === "$batch");
      await tables.transaction("Signed", p, [insert(Signed, "b", value)]);
      expect(proxy.heal()).toBe(0);
    },
  );

  test.each<[what: string, change: Record<string, unknown>]>([
    ["a member changed", { name: "another" }],
    ["a flag turned", { on: true }],
    ["a number changed", { count: 2.5 }],
    ["bytes changed", { bytes: new Uint8Array([0, 1, 254]) }],
    ["a list changed", { places_json: '["kv-two/db"]' }],
    ["a member taken away", { count: undefined }],
    ["a column more", { more: "x" }],
    ["its signature taken away", { _signature: undefined }],
    ["a signature that is none", { _signature: "" }],
    ["half a signature", { _signature: "one." }],
    ["a short one", { _signature: "one.AAAA" }],
    ["one by nobody's key", { _signature: "nobody.AAAA" }],
  ])("is rejected with %s", async (_what, change) => {
    await tables.insert(Signed, p, "a", value);
    await directClient.updateEntity({ ...(await stored("a")), ...change }, "Replace");
    await refused("a");
  });

  test("is accepted when it is written again unchanged, by any writer", async () => {
    await tables.insert(Signed, p, "a", value);
    await directClient.updateEntity(await stored("a"), "Replace");
    expect(await tables.get(Signed, p, "a")).toMatchObject({ count: 1.5, on: false, places: ["kv-one/db"] });
  });

  test("is rejected at another location, and with another key", async () => {
    await tables.insert(Signed, p, "a", value);
    await directClient.createEntity({ ...(await stored("a")), rowKey: "moved" });
    await refused("moved");
    await directClient.createEntity({ ...(await stored("a")), partitionKey: `${p}x` });
    await expect(tables.get(Signed, `${p}x`, "a")).rejects.toThrow(StorageCorrupt);
    const other = createTables(
      { connectionString: azurite.connectionString() },
      { keys: keysOf({ one: randomBytes(32) }, "one") },
    );
    await other.insert(Signed, p, "other", value);
    await refused("other");
  });

  test("is accepted after a new signing key was added, and rejected after its own key was removed", async () => {
    await tables.insert(Signed, p, "a", value);
    const later = createTables({ connectionString: azurite.connectionString() }, { keys: keysOf(ring, "two") });
    expect(await later.get(Signed, p, "a")).toMatchObject({ count: 1.5 });
    await refused(
      "a",
      createTables({ connectionString: azurite.connectionString() }, { keys: keysOf({ two: ring.two }, "two") }),
    );
  });

  test("can't be merged, written in bulk or read in part, or used without keys", async () => {
    await tables.insert(Signed, p, "a", value);
    await expect(tables.transaction("Signed", p, [merge(Signed, "a", { count: 3 })])).rejects.toThrow(TypeError);
    await expect(tables.write("Signed", p, [put(Signed, "a", value)])).rejects.toThrow(TypeError);
    await tables.write("Signed", p, [remove(Signed, "a")]);
    await expect(tables.pages(Signed, { partitionKey: p, select: ["name"] }).next()).rejects.toThrow(TypeError);
    await expect(
      createTables({ connectionString: azurite.connectionString() }).insert(Signed, p, "b", value),
    ).rejects.toThrow(/SERVICE_KEY_VAULT_URL/);
  });
});
