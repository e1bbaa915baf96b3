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

// Rows of some tables are signed with a key from the service's own key vault, so that a row that another program wrote or
// changed is rejected. The table can be written directly by anyone with the account key.

const shape = {
  name: z.string(),
  count: z.number().optional(),
  on: z.boolean().optional(),
  bytes: z.instanceof(Uint8Array).optional(),
  places: z.array(z.string()).optional(),
};
const Signed = entity("Signed", z.object(shape), { signed: true });

const signingKeys = (keys: Record<string, Uint8Array>, current: string): RowKeys => ({
  current: async () => ({ name: current, key: keys[current]! }),
  named: async (name) => keys[name],
});

let azurite: TestStorage;
let proxy: TableProxy;
let tables: Tables;
/** Writes to the table without signing, like anyone with the account key. */
let directClient: TableClient;
const allKeys = { one: randomBytes(32), two: randomBytes(32) };
let partition = 0;
/** Partition of the current test. */
let partitionKey: string;
beforeAll(async () => {
  azurite = await openStorage();
  proxy = await startTableProxy(azurite.connectionString());
  tables = createTables({ connectionString: proxy.connectionString }, { keys: signingKeys(allKeys, "one") });
  directClient = TableClient.fromConnectionString(azurite.connectionString(), "Signed", {
    allowInsecureConnection: true,
  });
});
afterAll(async () => {
  await proxy?.stop();
  await azurite?.stop();
});
beforeEach(() => {
  partitionKey = `p${++partition}`;
});
afterEach(() => {
  proxy.removeFaults();
});

const value = {
  name: `a text of two pieces ${"x".repeat(40_000)}`,
  count: 1.5,
  on: false,
  bytes: new Uint8Array([0, 1, 255]),
  places: ["kv-one/db"],
};
/** Returns the stored columns of a row, without those that the table service adds. */
async function readColumns(rowKey: string) {
  const {
    etag: _e,
    timestamp: _t,
    ...row
  } = await directClient.getEntity<Record<string, unknown>>(partitionKey, rowKey);
  const columns = Object.entries(row).filter(([name]) => !name.includes("odata."));
  return { ...Object.fromEntries(columns), count: { type: "Double", value: "1.5" }, partitionKey, rowKey };
}
/** Expects a row to be rejected by each method that reads rows. */
const expectRejected = async (rowKey: string, reader = tables) => {
  await expect(reader.get(Signed, partitionKey, rowKey)).rejects.toThrow(StorageCorrupt);
  await expect(reader.getWithAge(Signed, partitionKey, rowKey)).rejects.toThrow(StorageCorrupt);
  const corrupt: string[] = [];
  for await (const rows of reader.pages(Signed, { partitionKey, onCorrupt: (row) => corrupt.push(row.rowKey) }))
    corrupt.push(...rows.map((row) => `good ${row.rowKey}`));
  expect(corrupt).toContain(rowKey);
};

describe("a signed row", () => {
  test("is read unchanged after single writes and transactions, also in pages", async () => {
    await tables.insert(Signed, partitionKey, "a", value);
    await tables.transaction("Signed", partitionKey, [insert(Signed, "b", value), put(Signed, "c", { name: "short" })]);
    expect(await tables.get(Signed, partitionKey, "a")).toMatchObject({ ...value, bytes: Buffer.from(value.bytes) });
    expect((await tables.getWithAge(Signed, partitionKey, "c"))?.row).toMatchObject({ name: "short" });
    const names: string[] = [];
    for await (const rows of tables.pages(Signed, { partitionKey })) names.push(...rows.map((row) => row.rowKey));
    expect(names).toEqual(["a", "b", "c"]);
    await tables.modify(Signed, partitionKey, "a", (now) => now && { ...now, count: 2 });
    expect(await tables.get(Signed, partitionKey, "a")).toMatchObject({ count: 2 });
    expect(await tables.remove(Signed, partitionKey, "a")).toBe(true);
  });

  // With these faults the write is applied, but its response is lost or has the status 503.
  test.each(["LostAnswer", "ServerBusyApplied"] as const)(
    "is recognized as written after the fault %s",
    async (fault) => {
      await tables.insert(Signed, partitionKey, "before", value);
      proxy.fail([fault], ({ method }) => method !== "GET");
      await tables.insert(Signed, partitionKey, "a", value);
      expect(proxy.removeFaults()).toBe(0);
      proxy.fail([fault], ({ path }) => path === "$batch");
      await tables.transaction("Signed", partitionKey, [insert(Signed, "b", value)]);
      expect(proxy.removeFaults()).toBe(0);
    },
  );

  test.each<[what: string, change: Record<string, unknown>]>([
    ["a changed text", { name: "another" }],
    ["a changed flag", { on: true }],
    ["a changed number", { count: 2.5 }],
    ["changed bytes", { bytes: new Uint8Array([0, 1, 254]) }],
    ["a changed list", { places_json: '["kv-two/db"]' }],
    ["a removed member", { count: undefined }],
    ["an additional column", { more: "x" }],
    ["no signature", { _signature: undefined }],
    ["an empty signature", { _signature: "" }],
    ["a signature without its value", { _signature: "one." }],
    ["a short signature", { _signature: "one.AAAA" }],
    ["a signature by an unknown key", { _signature: "nobody.AAAA" }],
  ])("is rejected with %s", async (_what, change) => {
    await tables.insert(Signed, partitionKey, "a", value);
    await directClient.updateEntity({ ...(await readColumns("a")), ...change }, "Replace");
    await expectRejected("a");
  });

  test("is accepted if another program writes it again unchanged", async () => {
    await tables.insert(Signed, partitionKey, "a", value);
    await directClient.updateEntity(await readColumns("a"), "Replace");
    expect(await tables.get(Signed, partitionKey, "a")).toMatchObject({ count: 1.5, on: false, places: ["kv-one/db"] });
  });

  test("is rejected under another row key or partition key, and if it is signed with another key", async () => {
    await tables.insert(Signed, partitionKey, "a", value);
    await directClient.createEntity({ ...(await readColumns("a")), rowKey: "moved" });
    await expectRejected("moved");
    await directClient.createEntity({ ...(await readColumns("a")), partitionKey: `${partitionKey}x` });
    await expect(tables.get(Signed, `${partitionKey}x`, "a")).rejects.toThrow(StorageCorrupt);
    const other = createTables(
      { connectionString: azurite.connectionString() },
      { keys: signingKeys({ one: randomBytes(32) }, "one") },
    );
    await other.insert(Signed, partitionKey, "other", value);
    await expectRejected("other");
  });

  test("is accepted after a new signing key was added, and rejected after its own key was removed", async () => {
    await tables.insert(Signed, partitionKey, "a", value);
    const later = createTables({ connectionString: azurite.connectionString() }, { keys: signingKeys(allKeys, "two") });
    expect(await later.get(Signed, partitionKey, "a")).toMatchObject({ count: 1.5 });
    await expectRejected(
      "a",
      createTables(
        { connectionString: azurite.connectionString() },
        { keys: signingKeys({ two: allKeys.two }, "two") },
      ),
    );
  });

  test("can't be merged, written in bulk, read in part, or used without signing keys", async () => {
    await tables.insert(Signed, partitionKey, "a", value);
    await expect(tables.transaction("Signed", partitionKey, [merge(Signed, "a", { count: 3 })])).rejects.toThrow(
      TypeError,
    );
    await expect(tables.write("Signed", partitionKey, [put(Signed, "a", value)])).rejects.toThrow(TypeError);
    await tables.write("Signed", partitionKey, [remove(Signed, "a")]);
    await expect(tables.pages(Signed, { partitionKey, select: ["name"] }).next()).rejects.toThrow(TypeError);
    await expect(
      createTables({ connectionString: azurite.connectionString() }).insert(Signed, partitionKey, "b", value),
    ).rejects.toThrow(/SERVICE_KEY_VAULT_URL/);
  });
});
