import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { gunzipSync } from "node:zlib";
import { TableClient, TableServiceClient } from "@azure/data-tables";
import pMap from "p-map";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { vaultKey } from "../../shared/inventory/vault.ts";
import type { Entity } from "../../shared/platform/storage/entity.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { COMPARED_ROWS, isOfKind, OTHER_ROWS, type StoredKind } from "../../shared/reconciliation/stored-rows.ts";
import { Listed } from "../../shared/unreadable-rows/unreadable-rows.ts";
import { type RecordedService, startRecorded } from "../upgrade/recorded-service.ts";
import type { Recording } from "../upgrade/recording.ts";
import { plantLateRows, plantRows } from "./planted-rows.ts";

// Starts the service with a recorded store, and adds rows of the kinds that the recording lacks. Then it makes one row of every
// kind unreadable: the row does not match its schema, as another program could write it. Rows of many kinds are broken at the
// same time, because no answer may depend on most of them. A walk is one pass of the reconciliation, a job that compares stored
// rows.

const ROOT = path.resolve(import.meta.dirname, "../..");
const OPTIONS = { allowInsecureConnection: true };
const recording = JSON.parse(
  gunzipSync(readFileSync(new URL("../fixtures/store-6f40339.json.gz", import.meta.url))).toString(),
) as Recording;
/** Number of groups of kinds whose rows are broken together. The kinds of a table are in different groups. */
const GROUPS = 5;

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
/** One row of a kind. */
interface Sample {
  kind: StoredKind;
  /** `<table>/<partition key>/<row key>`, as in audit entries. */
  rowPath: string;
  original: RawRow;
}

const samples: Sample[] = [];
/** All kinds of stored rows: those that a walk compares with one another, and those that it only reads. */
const kinds = [...COMPARED_ROWS, ...OTHER_ROWS];
const folder = mkdtempSync(path.join(tmpdir(), "unreadable-rows-"));
let service: RecordedService;
let tables: Tables;
let paths: string[];
/** The lists among `paths`. */
const lists = new Set<string>();

beforeAll(async () => {
  service = await startRecorded(recording, folder, {
    LOG_ANALYTICS_WORKSPACE_IDS: "aaaaaaaa-0000-4000-8000-000000000001",
  });
  tables = createTables({ connectionString: service.azurite.connectionString() }, { keys: recordedRowKeys() });
  // The recorded scan was interrupted. Its end renews the totals and evaluates compliance.
  await waitForScan();
  await send("POST", "/auth/login", { username: "reader", password: "a wrong password" });
  paths = await pathsToGet();
  await plantRows(tables, { scanId: recordedScans().find((id) => id !== recording.scanId)!, vaultName: "kv-rec-0" });
}, 120_000);
afterAll(async () => {
  await service?.host.stop("SIGKILL");
  await service?.cloud.stop();
  await service?.azurite.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** Returns the keys with which the recorded service signed rows. They are in its own key vault. */
function recordedRowKeys() {
  const versions = recording.cloud["changes.jsonl"]!.split("\n")
    .filter((line) => line.includes("row-signing"))
    .map((line) => JSON.parse(line) as { item: { versions: { id: string; value: string }[] } });
  const { id, value } = versions[0]!.item.versions[0]!;
  const key = Buffer.from(value, "base64");
  return { current: async () => ({ name: id, key }), named: async (name: string) => (name === id ? key : undefined) };
}

const recordedScans = (): string[] =>
  (recording.tables.Scans as RawRow[])
    .filter(({ rowKey }) => rowKey === "0")
    .map(({ partitionKey }) => partitionKey.slice("scan:".length));

/** The administrator's token. */
let token = recording.tokens.admin;

/** Sends a request as the administrator. */
async function send(method: string, route: string, body?: object) {
  const answer = await fetch(service.host.url + route, {
    method,
    redirect: "manual",
    headers: {
      Authorization: `Bearer ${token}`,
      ...(body && { "Content-Type": "application/json" }),
    },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  const isJson = answer.headers.get("content-type")?.includes("json");
  return {
    status: answer.status,
    text,
    body: isJson ? JSON.parse(text) : undefined,
    leftOut: Number(answer.headers.get("x-unreadable-rows") ?? 0),
  };
}

async function waitForScan(): Promise<void> {
  const isOver = async () => {
    const { body } = await send("GET", `/api/assets/discovery/scan/${recording.scanId}/status`);
    expect(["completed", "partial"]).toContain(body.status);
  };
  await vi.waitFor(isOver, { timeout: 60_000, interval: 200 });
}

/** Runs a timer. Returns whether it succeeded. */
const runTimer = async (name: string): Promise<boolean> =>
  (await send("POST", `/__host/timers/${name}`)).body.succeeded as boolean;

/** Runs the timers that maintain rows. Others only send queue messages. */
async function failedTimers(): Promise<string[]> {
  const failed: string[] = [];
  for (const name of TIMERS) if (!(await runTimer(name))) failed.push(name);
  return failed;
}
const TIMERS = [
  "evaluateAlerts",
  "cleanUpAlerts",
  "sealAudit",
  "sendAuditStreams",
  "discoverDueTenants",
  "cleanUpTenants",
  "evaluateDueCompliance",
  "recordComplianceScore",
  "watchScans",
  "clearExpiredRows",
  "beginDueRotations",
  "indexRotationMatches",
  "wakeRotations",
  "continueKeyRotations",
  "wakeSecretlessRuns",
  "notifyOfChangedSettings",
  "purgeDueHistories",
  "refreshScope",
  "forgetOutOfScope",
  "runDueSyncs",
  "cleanUpSync",
];

/** Runs a walk of the reconciliation to its end. */
async function walk() {
  const statusOf = async () => (await send("GET", "/system/reconciliation")).body;
  const before = (await statusOf()).completed?.walkId;
  await runTimer("startReconciliation");
  return await vi.waitFor(
    async () => {
      const { completed } = await statusOf();
      expect(completed?.walkId).not.toBe(before);
      return completed as { mended: Record<string, number>; unreadable: number; unverified: number; left: object[] };
    },
    { timeout: 60_000, interval: 200 },
  );
}

async function readTable(name: string): Promise<RawRow[]> {
  const rows: RawRow[] = [];
  const client = clientOf(name);
  for await (const row of client.listEntities<RawRow>({ disableTypeConversion: true })) rows.push(row as RawRow);
  return rows;
}

const clientOf = (table: string) =>
  TableClient.fromConnectionString(service.azurite.connectionString(), table, OPTIONS);

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
    run_id: "01M83W0CN6SDG6BGCAGDABN0C3",
    rotation_id: recording.automation?.rotation.rotationId,
    tenant_id: "aaaaaaaa-0000-4000-8000-000000000001",
  };
  const found = Object.entries(document.paths)
    .filter(([, operations]) => operations.get !== undefined)
    .map(([template, operations]) =>
      template.replace(/\{(\w+)\}/g, (_, name: string) => {
        const parameter = operations.get!.parameters?.find((one) => one.in === "path" && one.name === name);
        return encodeURIComponent(String(ids[name] ?? parameter?.example ?? "unknown"));
      }),
    );
  return [...found, "/health?deep=true"];
}

/** Adds one row of each kind to `samples`. Never the row of the user `admin`, who sends the requests. */
async function findSamples(): Promise<void> {
  const tableService = TableServiceClient.fromConnectionString(service.azurite.connectionString(), OPTIONS);
  const stored = new Map<string, RawRow[]>();
  for await (const { name } of tableService.listTables())
    if (name !== undefined) stored.set(name, await readTable(name));
  for (const kind of kinds) {
    const { table } = kind.entity;
    const original = stored
      .get(table)
      ?.findLast((row) => isOfKind(kind, row.partitionKey, row.rowKey) && row.rowKey !== "admin");
    if (original) samples.push({ kind, rowPath: `${table}/${original.partitionKey}/${original.rowKey}`, original });
  }
}

const KEYS = ["partitionKey", "rowKey", "etag", "timestamp"];
const membersOf = (row: RawRow) =>
  Object.entries(row).filter(([name]) => !KEYS.includes(name) && !name.startsWith("odata"));

/** Returns the row with a value of another type in each of its members. */
function unreadable({ original }: Sample): RawRow {
  const { partitionKey, rowKey } = original;
  const broken = membersOf(original).map(([name, value]) => [name, typeof value === "boolean" ? "broken" : true]);
  return { partitionKey, rowKey, ...Object.fromEntries(broken) };
}

const write = (rows: readonly [Sample, RawRow][]) =>
  pMap(rows, ([{ kind }, row]) => clientOf(kind.entity.table).upsertEntity(row, "Replace"), { concurrency: 8 });
const restore = (broken: readonly Sample[]) =>
  write(broken.map((sample) => [sample, withoutServiceMembers(sample.original)]));

/** Returns a row without the members that the table service adds. */
function withoutServiceMembers(row: RawRow): RawRow {
  const { partitionKey, rowKey } = row;
  return { partitionKey, rowKey, ...Object.fromEntries(membersOf(row)) };
}

/** Returns the paths of the rows that the audit log names as unreadable. */
async function recordedRows(): Promise<string[]> {
  const { items } = (await send("GET", "/audit/entries?event_type=storage.rowUnreadable&limit=1000")).body as {
    items: { target?: { id: string } }[];
  };
  return items.flatMap(({ target }) => (target ? [target.id] : []));
}

test("the list of kinds has every entity in the code", async () => {
  const missing: string[] = [];
  const listed = new Set(kinds.map(({ entity }) => entity));
  for (const file of globSync("shared/**/*.ts", { cwd: ROOT })) {
    if (file.startsWith("shared/platform/storage/")) continue;
    const declared = readFileSync(path.join(ROOT, file), "utf8").matchAll(
      /const (\w+)[^=\n]* = (?:entity|fenceEntity)\(/g,
    );
    for (const [, name] of declared) {
      const declaration = `${file.slice("shared/".length)} ${name}`;
      const entity = ((await import(path.join(ROOT, file))) as Record<string, Entity<unknown> | undefined>)[name!];
      if ((!entity || !listed.has(entity)) && !NOT_LISTED.includes(declaration)) missing.push(declaration);
    }
  }
  expect(missing).toEqual([]);
});
/** Entities that read rows of several other kinds at once, rows of earlier versions, or only keys. */
const NOT_LISTED = [
  "alerts/restore-marker.ts RestoreTimes",
  "audit/rows.ts Mark",
  "compliance/compliance-rows.ts DetailsRangeRows",
  "compliance/compliance-rows.ts OverviewRows",
  "compliance/compliance-rows.ts TotalsRangeRows",
  "inventory/vault-counts.ts ScopeAndVaults",
  "inventory/vault-counts.ts TotalsAndScope",
  "rotation/match-index.ts GuidEntries",
  "sync/record.ts IndexKeys",
];

describe("a store with rows of all kinds", () => {
  test("has no unreadable row, for any answer, timer or walk", async () => {
    const failures: string[] = [];
    for (const route of paths) {
      const { status, text, body } = await send("GET", route);
      if (Array.isArray(body?.items)) lists.add(route);
      if (status === 500) failures.push(`${route}: ${status} ${text.slice(0, 200)}`);
    }
    expect(failures).toEqual([]);
    expect(await failedTimers()).toEqual([]);
    const { unreadable: count, unverified, left } = await walk();
    expect([count, unverified, left]).toEqual([0, 0, []]);
    expect(await recordedRows()).toEqual([]);
    expect((await send("GET", "/health?deep=true")).body.unreadableRows).toEqual({ listed: 0, more: false });
  }, 120_000);

  test("has a row of every kind", async () => {
    await plantLateRows(tables, "kv-rec-0");
    await findSamples();
    const found = new Set(samples.map(({ kind }) => kind));
    const missing = kinds.filter((kind) => !found.has(kind));
    expect(missing.map(({ entity, partition, key }) => `${entity.table}/${partition}/${key}`)).toEqual([]);
  });
});

/** Returns groups of rows that are broken together. The rows of each table are spread over the groups. */
function groupsOf(all: readonly Sample[]): Sample[][] {
  const groups = Array.from({ length: GROUPS }, (): Sample[] => []);
  for (const ofTable of Map.groupBy(all, ({ kind }) => kind.entity.table).values())
    for (const [index, sample] of ofTable.entries()) groups[index % GROUPS]!.push(sample);
  return groups;
}

/** Breaks rows, requests every path, and repairs the rows. Returns what is wrong with the answers. */
async function failuresWith(broken: readonly [Sample, RawRow][]): Promise<string[]> {
  const lengthsBefore = new Map<string, number>();
  for (const route of lists) lengthsBefore.set(route, (await send("GET", route)).body.items.length);
  await write(broken);
  const failures: string[] = [];
  for (const route of paths) {
    const { status, body, leftOut, text } = await send("GET", route);
    // The list of a scan's results needs the scan, the table of owners is one row, and database servers and shared keys need the scope.
    const needsUnreadableRow = route === "/alerts/owners" || /\/(?:results|database-servers|shared-keys)$/.test(route);
    if (status === 500 || (status === 503 && lists.has(route) && !needsUnreadableRow))
      failures.push(`${route}: ${status} ${text.slice(0, 300)}`);
    if (leftOut > 0 && Array.isArray(body?.items) && body.unreadableRows?.count !== leftOut)
      failures.push(`${route} does not name the rows`);
    const before = lengthsBefore.get(route);
    // Lists of the audit log name their rows in `findings`.
    const isNamed = leftOut > 0 || (body?.findings as object[] | undefined)?.length;
    if (!isNamed && Array.isArray(body?.items) && before !== undefined && body.items.length < before)
      failures.push(`${route} is silently shorter: ${body.items.length} of ${before}`);
  }
  await restore(broken.map(([sample]) => sample));
  if (!(await runTimer("clearExpiredRows"))) failures.push("the daily cleanup");
  return failures;
}

test.for(Array.from({ length: GROUPS }, (_, index) => index))(
  "unreadable rows of group %i of the kinds cause no 500, and no list is refused or silently shorter",
  { timeout: 60_000 },
  async (group) => {
    const broken = groupsOf(samples)[group]!;
    expect(await failuresWith(broken.map((sample) => [sample, unreadable(sample)]))).toEqual([]);
  },
);

/** Returns the row with other bytes in its binary members, which can't be unpacked. Undefined if it has none. */
function withInvalidBytes({ original }: Sample): RawRow | undefined {
  const isBinary = ([, value]: [string, unknown]) => (value as { type?: string } | undefined)?.type === "Binary";
  const binary = membersOf(original).filter(isBinary);
  const garbage = { type: "Binary", value: Buffer.from("other").toString("base64") };
  if (binary.length === 0) return undefined;
  return { ...withoutServiceMembers(original), ...Object.fromEntries(binary.map(([name]) => [name, garbage])) };
}

test("bytes that can't be unpacked make their row unreadable, and cause no 500", async () => {
  const broken = samples.flatMap((sample): [Sample, RawRow][] => {
    const row = withInvalidBytes(sample);
    return row ? [[sample, row]] : [];
  });
  expect(broken.length).toBeGreaterThan(15);
  expect(await failuresWith(broken)).toEqual([]);
}, 60_000);

/** Moves the clock of the storage, which the service follows, to a time after the recording, and signs in again. */
async function moveClock(days: number): Promise<void> {
  writeFileSync(path.join(folder, "clock"), String(Date.parse(recording.recordedAt) + days * DAY_MS - Date.now()));
  // The service reads the storage's clock now and then. The token has then expired.
  await vi.waitFor(async () => expect((await send("GET", "/subscriptions")).status).toBe(401), { timeout: 10_000 });
  token = (await send("POST", "/auth/login", { username: "admin", password: "correct-horse-battery" })).body
    .access_token;
}

/**
 * Rows that follow from no other row. A walk reports those of the audit log and signed records, and leaves them as they are. The
 * own row of a vault and that of an asset follow from their copies, so they can be rebuilt unless all copies are unreadable.
 */
const ORIGINAL_ROWS =
  /^Audit(?!Index)|^Vaults\/vaults\/n!|^Assets\/vault:[^/]*\/n!|^Rotations\/rotations\/r\||^Sync\/sync\/r\|/;

/** Returns the samples of rows that follow from others. */
const derivedRows = () =>
  samples.filter(({ kind, rowPath }) => COMPARED_ROWS.includes(kind) && !ORIGINAL_ROWS.test(rowPath));

/** Makes these rows unreadable, and checks that no path answers 500 and that the health counts unreadable rows. */
async function breakTogether(broken: readonly Sample[]): Promise<void> {
  await write(broken.map((sample) => [sample, unreadable(sample)]));
  const failures: string[] = [];
  for (const route of paths) {
    const { status, text } = await send("GET", route);
    if (status === 500) failures.push(`${route}: ${text.slice(0, 200)}`);
  }
  expect(failures).toEqual([]);
  expect(await listedRows()).toBeGreaterThan(0);
}

/** Returns the number of listed unreadable rows, as the health says it. */
async function listedRows(): Promise<number> {
  const { status, body } = await send("GET", "/health?deep=true");
  expect([status, body.unreadableRows.more]).toEqual([200, false]);
  return body.unreadableRows.listed;
}

/** Returns the paths of those rows that can't be read. */
async function stillUnreadable(rows: readonly Sample[]): Promise<string[]> {
  const found: string[] = [];
  for (const { kind, rowPath, original } of rows) {
    const row = await tables.get(kind.entity, original.partitionKey, original.rowKey).catch((error: Error) => error);
    if (row instanceof Error) found.push(`${rowPath}: ${row.message}`);
  }
  return found;
}

test("all rows that follow from others, broken at once, are rebuilt within one walk and recorded once", async () => {
  // A walk starts three days after the previous one.
  await moveClock(4);
  const before = await recordedRows();
  const broken = derivedRows();
  expect(broken.length).toBeGreaterThan(15);
  await breakTogether(broken);
  const { left } = await walk();
  expect([await stillUnreadable(broken), left]).toEqual([[], []]);
  // Earlier tests broke and repaired the same rows, which the audit log has then recorded.
  const recorded = (await recordedRows()).slice(0, -before.length || undefined);
  expect(recorded).toHaveLength(new Set(recorded).size);
}, 120_000);

test("if a vault's row, an asset's row and all of their copies are broken too, a full scan on request writes them again", async () => {
  await moveClock(8);
  const own = samples.find(({ rowPath }) => rowPath.startsWith(`Vaults/vaults/${vaultKey("")}`))!;
  const name = own.original.rowKey.slice(vaultKey("").length);
  // `s!<subscription>!<name>` is the copy by which vaults are listed per subscription.
  const copy = (await readTable("Vaults")).find(({ rowKey }) => /^s!.*!/.test(rowKey) && rowKey.endsWith(`!${name}`))!;
  const lost = [
    own,
    { ...own, original: copy, rowPath: `Vaults/vaults/${copy.rowKey}` },
    ...samples.filter(({ rowPath }) => rowPath.startsWith(`Assets/vault:${name}/n!`)),
  ];
  expect(lost).toHaveLength(3);
  const broken = [...derivedRows().filter(({ original }) => original.rowKey !== copy.rowKey), ...lost];
  await breakTogether(broken);
  await walk();
  // Only rows of this vault may wait for the scan, and the health counts them.
  const left = await stillUnreadable(broken);
  expect(left.filter((rowPath) => !rowPath.includes(name))).toEqual([]);
  expect(await listedRows()).toBeGreaterThanOrEqual(left.length);

  const { status, body } = await send("POST", "/api/assets/discovery/scan", { mode: "full" });
  expect(status).toBe(201);
  await vi.waitFor(
    async () => {
      const scan = (await send("GET", `/api/assets/discovery/scan/${body.scanId}/status`)).body;
      // Other vaults may fail.
      expect(["completed", "partial"]).toContain(scan.status);
    },
    { timeout: 60_000, interval: 200 },
  );
  expect(await stillUnreadable(broken)).toEqual([]);
  for (const { kind, rowPath, original } of lost)
    expect([rowPath, await tables.get(kind.entity, original.partitionKey, original.rowKey)]).toEqual([
      rowPath,
      expect.objectContaining({ rowKey: original.rowKey }),
    ]);
  // The daily cleanup removes the repaired rows from the list.
  await runTimer("clearExpiredRows");
  const listed: string[] = [];
  for await (const rows of tables.pages(Listed, { partitionKey: "rows" }))
    listed.push(...rows.map(({ table, partition, key }) => `${table}/${partition}/${key}`));
  expect(listed.filter((rowPath) => broken.some((sample) => sample.rowPath === rowPath))).toEqual([]);
}, 120_000);

test("one walk finds every unreadable row that no answer needs", async () => {
  await moveClock(12);
  const before = new Set(await recordedRows());
  // The list of unreadable rows does not report its own rows, and a walk needs the settings and its own record.
  const isBroken = ({ kind, rowPath }: Sample) =>
    OTHER_ROWS.includes(kind) && !before.has(rowPath) && !/^(UnreadableRows|Settings|Reconciliation)/.test(rowPath);
  const broken = samples.filter(isBroken);
  await write(broken.map((sample) => [sample, unreadable(sample)]));
  await walk();
  const recorded = new Set(await recordedRows());
  expect(broken.length).toBeGreaterThan(10);
  expect(broken.filter(({ rowPath }) => !recorded.has(rowPath)).map(({ rowPath }) => rowPath)).toEqual([]);
}, 120_000);
