import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as z from "zod";
import type { AuditEvent } from "../../shared/audit/event.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { createTables, type StorageCorrupt } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS } from "../../shared/platform/time.ts";
import { createUnreadableRows, MAX_LISTED, type UnreadableRows } from "../../shared/unreadable-rows/unreadable-rows.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

// Tests of the list of unreadable rows: table rows that do not match the schema of their table.

const Things = entity("Things", z.object({ size: z.number() }));
const log = { debug() {}, info() {}, warn() {}, error() {} };

let storage: TestStorage;
let events: AuditEvent[];
let now = Date.parse("2026-11-27T00:00:00Z");
beforeAll(async () => {
  storage = await openStorage();
});
afterAll(() => storage.stop());

/** Returns tables with a list of their unreadable rows, like those of a new process. */
function newProcess() {
  const audit = { append: async (event: AuditEvent) => void events.push(event) };
  const connection = { connectionString: storage.connectionString() };
  const onUnreadable = (rows: readonly StorageCorrupt[]) => unreadableRows.report(rows);
  const tables = createTables(connection, { onUnreadable });
  const clock = { now: () => new Date(now) };
  const deps = { tables, audit, clock, randomness: systemRandomness(), log };
  const unreadableRows: UnreadableRows = createUnreadableRows(deps);
  return { tables, unreadableRows };
}

/** Writes rows that can't be read, because their `size` is a text. */
async function breakRows(partitionKey: string, count: number): Promise<void> {
  const options = { allowInsecureConnection: true };
  const client = TableClient.fromConnectionString(storage.connectionString(), "Things", options);
  await client.createTable().catch(() => undefined); // It may exist already.
  for (let n = 0; n < count; n++) await client.upsertEntity({ partitionKey, rowKey: `row-${n}`, size: "large" });
}

async function readAll(tables: ReturnType<typeof newProcess>["tables"], partitionKey: string): Promise<void> {
  for await (const _ of tables.pages(Things, { partitionKey, onCorrupt: "leaveOut" }));
}

test("a row is listed once by all processes, without its content, until it is written again", async () => {
  events = [];
  await breakRows("one", 1);
  const [first, second] = [newProcess(), newProcess()];
  await readAll(first.tables, "one");
  await readAll(first.tables, "one");
  await readAll(second.tables, "one");
  await expect(second.tables.get(Things, "one", "row-0")).rejects.toThrow("can't be read");
  expect(events).toMatchObject([
    { type: "storage.rowUnreadable", target: { type: "row", id: "Things/one/row-0" }, details: { table: "Things" } },
  ]);
  expect(JSON.stringify([events, await first.unreadableRows.list()])).not.toContain("large");
  expect(await newProcess().unreadableRows.count()).toEqual({ listed: 1, more: false });
  expect(await first.unreadableRows.removeResolved()).toBe(0);
  await first.tables.put(Things, "one", "row-0", { size: 1 });
  expect(await first.unreadableRows.removeResolved()).toBe(1);
  expect(await first.unreadableRows.count()).toEqual({ listed: 0, more: false });
});

test("an audit entry that a crash prevented is recorded by the next report, once", async () => {
  events = [];
  await breakRows("crash", 1);
  const crashing = newProcess();
  const failing = createUnreadableRows({
    tables: crashing.tables,
    audit: { append: () => Promise.reject(new Error("crashed")) },
    clock: { now: () => new Date(now) },
    randomness: systemRandomness(),
    log,
  });
  const row = await createTables({ connectionString: storage.connectionString() })
    .get(Things, "crash", "row-0")
    .catch((error: StorageCorrupt) => error);
  await failing.report([row as StorageCorrupt]);
  expect([events.length, (await failing.list()).length]).toEqual([0, 1]);
  await newProcess().unreadableRows.report([row as StorageCorrupt]);
  await newProcess().unreadableRows.report([row as StorageCorrupt]);
  expect(events.length).toBe(1);
  expect(await crashing.unreadableRows.resolve(row as StorageCorrupt)).toBe(true);
});

test("beyond the maximum of listed rows, one audit entry an hour says that there are more", async () => {
  events = [];
  await breakRows("many", MAX_LISTED + 30);
  const process = newProcess();
  await readAll(process.tables, "many");
  expect(events.filter(({ target }) => target !== undefined).length).toBe(MAX_LISTED);
  expect(events.filter(({ target }) => target === undefined).length).toBe(1);
  expect(await process.unreadableRows.count()).toEqual({ listed: MAX_LISTED, more: true });
  now += 2 * HOUR_MS;
  await readAll(process.tables, "many");
  expect(events.length).toBe(MAX_LISTED + 2);
});

test("entries of the list that can't be read themselves are written again", async () => {
  const options = { allowInsecureConnection: true };
  const list = TableClient.fromConnectionString(storage.connectionString(), "UnreadableRows", options);
  const keys: string[] = [];
  for await (const { partitionKey, rowKey } of list.listEntities()) if (partitionKey === "rows") keys.push(rowKey!);
  await list.upsertEntity({ partitionKey: "summary", rowKey: "summary", recordedAt: 1 }, "Replace");
  await list.upsertEntity({ partitionKey: "rows", rowKey: keys[0]!, table: 1 }, "Replace");
  now += 2 * HOUR_MS;
  const process = newProcess();
  expect(await process.unreadableRows.count()).toEqual({ listed: MAX_LISTED, more: false });
  await readAll(process.tables, "many");
  expect(await newProcess().unreadableRows.count()).toEqual({ listed: MAX_LISTED, more: true });
  expect(await process.unreadableRows.list()).toHaveLength(MAX_LISTED);
});
