import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { gunzipSync } from "node:zlib";
import { TableClient, TableServiceClient } from "@azure/data-tables";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { type RecordedService, startRecorded } from "../upgrade/recorded-service.ts";
import type { Recording } from "../upgrade/recording.ts";

// Starts the service with a recorded store, and makes one row of every kind unreadable, one after the other.

const INVOCATIONS = new URL("../support/invocations.mjs", import.meta.url).href;
const OPTIONS = { allowInsecureConnection: true };
const recording = JSON.parse(
  gunzipSync(readFileSync(new URL("../fixtures/store-6f40339.json.gz", import.meta.url))).toString(),
) as Recording;

interface RawRow extends Record<string, unknown> {
  partitionKey: string;
  rowKey: string;
}
interface Parameter {
  name: string;
  in: string;
  example?: unknown;
}
interface Operation {
  parameters?: Parameter[];
}

const folder = mkdtempSync(path.join(tmpdir(), "unreadable-rows-"));
let service: RecordedService;
let proxy: TableProxy;
let calls = 0;

beforeAll(async () => {
  service = await startRecorded(recording, folder, {
    connection: async (storage) => {
      proxy = await startTableProxy(storage);
      return proxy.connectionString;
    },
    imports: [INVOCATIONS],
  });
});
afterAll(async () => {
  await service?.host.stop("SIGKILL");
  await service?.cloud.stop();
  await proxy?.stop();
  await service?.azurite.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** Sends a request as the administrator. `tables`: the tables that the service read for the answer. */
async function send(method: string, at: string, body?: object) {
  const by = `call ${++calls}`;
  const answer = await fetch(service.host.url + at, {
    method,
    redirect: "manual",
    headers: {
      Authorization: `Bearer ${recording.tokens.admin}`,
      "x-test-by": by,
      ...(body && { "Content-Type": "application/json" }),
    },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  const isJson = answer.headers.get("content-type")?.includes("json");
  const requests = proxy.requests.filter((request) => request.by === by);
  return {
    status: answer.status,
    text,
    body: isJson ? JSON.parse(text) : undefined,
    leftOut: Number(answer.headers.get("x-unreadable-rows") ?? 0),
    tables: new Set(requests.map(({ path: requested }) => /^\w+/.exec(requested)?.[0] ?? "")),
  };
}

async function readTables(): Promise<Map<string, RawRow[]>> {
  const connection = service.azurite.connectionString();
  const tables = new Map<string, RawRow[]>();
  for await (const { name } of TableServiceClient.fromConnectionString(connection, OPTIONS).listTables()) {
    if (name === undefined || name.startsWith("LocalHost")) continue;
    const rows: RawRow[] = [];
    const client = TableClient.fromConnectionString(connection, name, OPTIONS);
    for await (const row of client.listEntities<RawRow>({ disableTypeConversion: true })) rows.push(row as RawRow);
    if (rows.length > 0) tables.set(name, rows);
  }
  return tables;
}

/** Returns one row of each kind: a table, a partition without its IDs, and the prefix of the row key. */
function oneOfEachKind(rows: readonly RawRow[]): RawRow[] {
  const kinds = new Map<string, RawRow>();
  for (const row of rows) {
    const partition = row.partitionKey.replace(/:.*/, "").replace(/^(\d.*|.{16,})$/, "*");
    const prefix =
      /^[^!|~]{0,3}[!|~]|^\d[!|~]/.exec(row.rowKey)?.[0] ?? (/^[a-zA-Z]+$/.test(row.rowKey) ? row.rowKey : "");
    kinds.set(`${partition} ${prefix}`, row);
  }
  return [...kinds.values()];
}

/** Returns the row with a value of another type in each of its members. */
function unreadable(row: RawRow): RawRow {
  const members = Object.entries(row).filter(
    ([name]) => !["partitionKey", "rowKey", "etag", "timestamp"].includes(name) && !name.startsWith("odata"),
  );
  const broken = members.map(([name, value]) => [name, typeof value === "boolean" ? "broken" : true]);
  return { partitionKey: row.partitionKey, rowKey: row.rowKey, ...Object.fromEntries(broken) };
}

/** Returns the paths of all GET operations, with the IDs of resources that exist. */
async function pathsToGet(): Promise<string[]> {
  const document = (await send("GET", "/openapi.json")).body as {
    paths: Record<string, Record<string, Operation>>;
  };
  const first = async (list: string, member: string) => (await send("GET", list)).body?.items?.[0]?.[member];
  const ids: Record<string, unknown> = {
    asset_id: await first("/api/assets/discovery/assets", "id"),
    secret_id: await first("/api/assets/discovery/assets?type=secret", "id"),
    scan_id: await first("/api/assets/discovery/scans", "scanId"),
    rule_id: await first("/alerts/rules", "id"),
    subscription_id: await first("/subscriptions", "subscriptionId"),
    user_id: "admin",
    record_id: recording.automation?.sync.recordId,
    rotation_id: recording.automation?.rotation.rotationId,
  };
  return Object.entries(document.paths)
    .filter(([, operations]) => operations.get !== undefined)
    .map(([template, operations]) =>
      template.replace(/\{(\w+)\}/g, (_, name: string) => {
        const parameter = operations.get!.parameters?.find((one) => one.in === "path" && one.name === name);
        return encodeURIComponent(String(ids[name] ?? parameter?.example ?? "unknown"));
      }),
    );
}

test("one unreadable row of any kind causes no 500, fails only answers that need it, and is recorded once", async () => {
  // Adds rows that the recording lacks.
  await send("POST", "/auth/login", { username: "reader", password: "a wrong password" });
  const paths = await pathsToGet();
  const readers = new Map<string, string[]>();
  const lists = new Set<string>();
  for (const at of [...paths, "/health?deep=true"]) {
    const { tables, status, text, body } = await send("GET", at);
    if (Array.isArray(body?.items)) lists.add(at);
    expect(status, `${at}: ${text.slice(0, 200)}`).not.toBe(500);
    for (const table of tables) readers.set(table, [...(readers.get(table) ?? []), at]);
  }
  const failures: string[] = [];
  const found = new Set<string>();
  let kinds = 0;
  for (const [table, rows] of await readTables()) {
    const client = TableClient.fromConnectionString(service.azurite.connectionString(), table, OPTIONS);
    for (const row of oneOfEachKind(rows)) {
      kinds++;
      const original = await client.getEntity<RawRow>(row.partitionKey, row.rowKey, { disableTypeConversion: true });
      await client.updateEntity(unreadable(original as RawRow), "Replace");
      const place = `${table}/${row.partitionKey}/${row.rowKey}`;
      for (const at of readers.get(table) ?? []) {
        const { status, body, leftOut, text } = await send("GET", at);
        if (status === 500) failures.push(`${place}: ${at}: ${text}`);
        // A list needs the caller's own row, and the list of a scan's results the scan.
        const isNeeded =
          place === "Users/user/admin" || (at.endsWith("/results") && row.partitionKey.startsWith("scan:"));
        if (status === 503 && lists.has(at) && !isNeeded) failures.push(`${place}: no list ${at}`);
        if (leftOut > 0 || body?.code === "rowUnreadable") found.add(place);
        if (leftOut > 0 && Array.isArray(body?.items) && body.unreadableRows?.count !== leftOut)
          failures.push(`${place}: ${at} does not name the row`);
      }
      await client.updateEntity(original as RawRow, "Replace");
    }
  }
  const { items } = (await send("GET", "/audit/entries?event_type=storage.rowUnreadable&limit=1000")).body as {
    items: { target?: { id: string } }[];
  };
  const recorded = items.flatMap(({ target }) => (target ? [target.id] : []));
  expect(failures).toEqual([]);
  expect(lists.size).toBeGreaterThan(15);
  expect(recorded.toSorted()).toEqual([...new Set(recorded)].toSorted());
  expect([...found].filter((place) => !recorded.includes(place))).toEqual([]);
  expect(kinds).toBeGreaterThan(60);
  expect(found.size).toBeGreaterThan(20);
}, 500_000);
