import { createPublicKey, randomBytes } from "node:crypto";
import type { AuditEvent } from "../../shared/audit/audit.ts";
import { signingKey } from "../../shared/audit/chain/signing.ts";
import { createTrust } from "../../shared/audit/chain/trust.ts";
import { type AuditEntry, entryOf, entryText } from "../../shared/audit/entry.ts";
import { type Interval, intervalName, intervalOf, SEAL_DELAY_MS } from "../../shared/audit/interval.ts";
import {
  bornMark,
  EntryRow,
  entriesPartition,
  entryKey,
  FIRST_PARTITION,
  FirstRow,
  INDEX_PARTITION,
  IndexRow,
  indexKeys,
  Mark,
  openMark,
} from "../../shared/audit/rows.ts";
import { createSealer } from "../../shared/audit/seal/seal.ts";
import { verifyExport } from "../../shared/audit/verify/verify-export.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createTables, insert, type Operation, put, type Tables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { ADMIN, type Answer, Service } from "../../test/support/service.ts";
import { processFigures, smallInstance, withProcessorTime } from "./process.ts";
import { equalTo, type Figure, megabytes, peakMemory, processorTime, type Section } from "./section.ts";

// Measures the export, the verification and the lists of an audit log with 250,000 entries.

const DAYS = 25;
const ENTRIES_PER_DAY = 10_000;
/**
 * Time between two entries. 10,000 of them span about 9.3 hours, so a day's entries are in 56 of its 144 intervals (the log is
 * partitioned by ten minutes).
 */
const ENTRY_GAP_MS = 3_333;
const ENTRIES = DAYS * ENTRIES_PER_DAY;
/** Entries per page of a list. Small, so that page 1,000 exists within one day. */
const PAGE_SIZE = 2;
/** Name of the key that signs the audit log. */
const KEY_ID = "bench";

interface SigningKey {
  kid: string;
  key: Uint8Array<ArrayBuffer>;
}

/** Bound of the processor time per 1,000 exported entries, in milliseconds. */
const EXPORT_LIMIT_MS = 600;

const formatCount = (value: number): string => value.toLocaleString("en-GB");

/**
 * Benchmark `auditExport`: exports an audit log of 250,000 entries as CSV and JSON, plain and compressed, and checks that each
 * export contains every entry once. Then counts the table requests of lists at page 1, page 2 and page 1,000.
 */
export async function auditExport(): Promise<Section> {
  const key = { kid: KEY_ID, key: new Uint8Array(randomBytes(32)) };
  const service = await Service.start({
    tableProxy: true,
    hosts: 0,
    env: { AUDIT_SIGNING_KEYS: `${KEY_ID}:${Buffer.from(key.key).toString("base64")}` },
  });
  try {
    const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
    const period = { start: today - DAYS * DAY_MS, end: today };
    const ids = await writeHistory(
      createTables({ connectionString: service.azurite.connectionString() }),
      period.start,
      key,
    );
    await service.addHost(smallInstance(service.environment));

    const figures: Figure[] = [];
    for (const format of ["csv", "json"] as const) {
      for (const encoding of ["identity", "gzip"] as const) {
        service.clearTableRequests();
        const { result, ms } = await withProcessorTime(service.url, () => exportAll(service, format, encoding, period));
        const { parts, largest, exportedIds, bodies } = result;
        assertEachOnce(ids, exportedIds);
        const intact = format === "json" ? await verifyOffline(bodies, key) : "";
        const exportName = `${format}, ${encoding === "gzip" ? "gzip" : "plain"}`;
        figures.push(
          {
            what: `${exportName}: parts`,
            value: `${parts}, the largest ${megabytes(largest)} unpacked${intact}`,
            comparedWith: `${formatCount(exportedIds.length)} entries, each once; ${formatCount(service.tableRequests().length)} table requests`,
            bound: equalTo(exportedIds.length, ENTRIES),
          },
          processorTime(
            `${exportName}: processor time per 1,000 entries`,
            (1000 * ms) / exportedIds.length,
            EXPORT_LIMIT_MS,
            "",
          ),
        );
      }
    }
    const { memory } = await processFigures(service.url);
    figures.push(peakMemory("peak resident memory of the functions process, all four exports", memory.peak));
    figures.push(...(await listFigures(service)));
    return {
      title: "Audit log: export and lists",
      how: `${formatCount(ENTRIES)} sealed entries over ${DAYS} days, exported part by part over HTTP by one functions process. Each part is parsed, each entry must occur once, and JSON parts are verified as the offline command does. Lists are of the newest day's ${formatCount(ENTRIES_PER_DAY)} entries, ${PAGE_SIZE} per page.`,
      figures,
    };
  } finally {
    await service.stop();
  }
}

const ACTORS = ["admin", "Мария"];

/**
 * Returns the event at a position of the log. Half of each actor's events are denied requests, half are changed alert rules.
 */
function eventAt(index: number): AuditEvent {
  const actor = ACTORS[index % ACTORS.length]!;
  const caller = { actor, address: `203.0.113.${index % 250}`, requestId: `request-${index}` };
  if (Math.floor(index / ACTORS.length) % 2 === 0) {
    const target = { type: "endpoint", id: "DELETE /alerts/rules/{rule_id}" };
    return { type: "access.refused", caller, outcome: "refused", target, details: { code: "forbidden", role: "user" } };
  }
  return {
    type: "alertRule.changed",
    caller,
    outcome: "success",
    target: { type: "alertRule", id: `rule-${index}` },
    before: { name: `Payments "on call", team ${index % 40}`, thresholds: [30, 7, 1], enabled: true },
    after: { name: `=Payments on call\nteam ${index % 40}`, thresholds: [60, 30, 7, 1], enabled: index % 3 === 0 },
  };
}

/**
 * Writes entries day by day, as the service does, and seals them: the service signs each interval of ten minutes once no more
 * entries can be added to it. Only the newest day is indexed, because lists read only that day. Returns the ids of all entries.
 */
async function writeHistory(tables: Tables, start: number, key: SigningKey): Promise<Set<string>> {
  const randomness = systemRandomness();
  // Sealing also adds missing index rows. The benchmark discards them, because it does not need the index of older days.
  const withoutIndex: Tables = {
    ...tables,
    write: async (table, ...rest) => (table === IndexRow.table ? undefined : await tables.write(table, ...rest)),
  };
  const trust = createTrust(tables, [key]);
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  let simulatedTime = start;
  const clock = { now: () => new Date(simulatedTime) };
  const seal = createSealer({
    tables: withoutIndex,
    clock,
    log,
    trust,
    anchor: undefined,
    recordEvent: async () => {},
  });

  const ids = new Set<string>();
  await tables.put(FirstRow, FIRST_PARTITION, FIRST_PARTITION, { interval: intervalName(start) });
  for (let day = 0; day < DAYS; day++) {
    const entries: AuditEntry[] = [];
    for (let index = 0; index < ENTRIES_PER_DAY; index++) {
      const occurredAt = simulatedTime + index * ENTRY_GAP_MS;
      const event = eventAt(day * ENTRIES_PER_DAY + index);
      const entry = entryOf(event, randomness.ulid(new Date(occurredAt)), occurredAt);
      entries.push(entry);
      ids.add(entry.id);
    }
    await tables.write(EntryRow.table, entriesPartition(simulatedTime), primaryRows(entries));
    if (day === DAYS - 1) await tables.write(IndexRow.table, INDEX_PARTITION, indexRows(entries));
    const nextDay = simulatedTime + DAY_MS;
    simulatedTime = nextDay + SEAL_DELAY_MS;
    await seal();
    simulatedTime = nextDay;
  }
  return ids;
}

/**
 * Yields the rows of the entries. Before the first entry of an interval that is not sealed, yields the two marks of that
 * interval: `born` (the interval exists, until it is purged) and `open` (it is not sealed yet).
 */
function* primaryRows(entries: AuditEntry[]): Generator<Operation> {
  let previousInterval: Interval | undefined;
  for (const entry of entries) {
    const interval = intervalOf(Date.parse(entry.occurredAt));
    if (interval !== previousInterval) {
      yield insert(Mark, bornMark(interval), {});
      yield insert(Mark, openMark(interval), {});
    }
    previousInterval = interval;
    yield insert(EntryRow, entryKey(interval, entry.id), { entry: entryText(entry) });
  }
}

function* indexRows(entries: AuditEntry[]): Generator<Operation> {
  for (const entry of entries) for (const key of indexKeys(entry)) yield put(IndexRow, key, { id: entry.id });
}

interface ExportResult {
  parts: number;
  /** Number of characters of the largest part, uncompressed. */
  largest: number;
  /** Ids of all exported entries, in the order of the export. */
  exportedIds: string[];
  /** Parsed JSON parts of the export. */
  bodies: unknown[];
}

/** Downloads an export part by part, following the `Link` header of each part to the next one. */
async function exportAll(
  service: Service,
  format: "csv" | "json",
  encoding: string,
  period: { start: number; end: number },
): Promise<ExportResult> {
  const token = await service.signIn(ADMIN);
  const exported: ExportResult = { parts: 0, largest: 0, exportedIds: [], bodies: [] };
  const dates = `start_date=${new Date(period.start).toISOString()}&end_date=${new Date(period.end).toISOString()}`;
  let next: string | undefined = `/audit/export?format=${format}&${dates}`;
  while (next !== undefined) {
    const response: Answer = await service.call("GET", next, { token, headers: { "Accept-Encoding": encoding } });
    if (response.status !== 200)
      throw new Error(`The export answered ${response.status}: ${response.text.slice(0, 500)}`);
    if ((response.headers.get("content-encoding") ?? "identity") !== encoding)
      throw new Error(`The response is not encoded as ${encoding}, which the request accepts`);
    exported.parts += 1;
    exported.largest = Math.max(exported.largest, response.text.length);
    if (format === "json") {
      exported.bodies.push(response.body);
      for (const { id } of response.body.entries) exported.exportedIds.push(id);
    } else for (const [id] of readCsv(response.text)) exported.exportedIds.push(id!);
    next = /<([^>]+)>; rel="next"/.exec(response.headers.get("link") ?? "")?.[1];
  }
  return exported;
}

/** Matches a CSV cell and the separator after it (RFC 4180), such as `"a ""quoted"" cell",` or `plain\r\n`. */
const CELL = /(?:"([^"]*(?:""[^"]*)*)"|([^",\r\n]*))(,|\r\n)/y;

/**
 * Returns the rows below the heading.
 *
 * @throws Error if the text is not valid CSV (RFC 4180) or if a row and the heading differ in their number of cells.
 */
function readCsv(text: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  CELL.lastIndex = 0;
  while (CELL.lastIndex < text.length) {
    const start = CELL.lastIndex;
    const cell = CELL.exec(text);
    if (!cell) throw new Error(`The CSV is not valid at ${start}: ${text.slice(start, start + 80)}`);
    row.push(cell[1]?.replaceAll('""', '"') ?? cell[2]!);
    if (cell[3] === ",") continue;
    rows.push(row);
    row = [];
  }
  const [heading, ...rowsBelowHeading] = rows;
  if (row.length > 0 || rowsBelowHeading.some(({ length }) => length !== heading?.length))
    throw new Error("A row does not have as many cells as the heading.");
  return rowsBelowHeading;
}

function assertEachOnce(expected: ReadonlySet<string>, exportedIds: readonly string[]): void {
  const distinct = new Set(exportedIds);
  const unexpected = exportedIds.filter((id) => !expected.has(id)).length;
  if (exportedIds.length === expected.size && distinct.size === expected.size && unexpected === 0) return;
  throw new Error(
    `Expected ${expected.size} entries, got ${exportedIds.length}: ${distinct.size} distinct, ${unexpected} unexpected.`,
  );
}

/**
 * Verifies the seals and signatures of an exported log and returns a remark for the table.
 * @throws Error if a check fails.
 */
async function verifyOffline(parts: unknown[], key: SigningKey): Promise<string> {
  const keys = new Map([[key.kid, createPublicKey(signingKey(key).privateKey)]]);
  const { intact, entries, unsealed, findings } = await verifyExport(parts, keys);
  if (!intact || entries !== ENTRIES || unsealed > 0) {
    throw new Error(`${entries} entries, ${unsealed} unsealed: ${JSON.stringify(findings.slice(0, 5))}`);
  }
  return ", verified offline";
}

/**
 * Counts the table requests of page 1, page 2 and page 1,000 for several filters. Page 1,000 is requested with the cursor that
 * page 999 returns, and page 999 by its offset.
 */
async function listFigures(service: Service): Promise<Figure[]> {
  const endDate = `end_date=${new Date(Math.floor(Date.now() / DAY_MS) * DAY_MS).toISOString()}`;
  const queries = ["", "actor=admin", "event_type=access.refused", "actor=admin&event_type=access.refused"];
  const figures: Figure[] = [];
  await service.admin("GET", "/audit/entries?limit=1"); // Signs in before the measurement.
  for (const query of [...queries, endDate, `${queries[3]}&${endDate}`]) {
    const path = `/audit/entries?limit=${PAGE_SIZE}&${query}`;
    const readPage = async (position: string) => {
      service.clearTableRequests();
      const { status, body } = await service.admin("GET", path + position);
      if (status !== 200 || body.items.length !== PAGE_SIZE) throw new Error(`${path}${position} answered ${status}`);
      return { requests: service.tableRequests().length, cursor: `&cursor=${body.nextCursor}` };
    };
    const first = await readPage("");
    const second = await readPage(first.cursor);
    const thousandth = await readPage((await readPage(`&offset=${998 * PAGE_SIZE}`)).cursor);
    figures.push({
      what: `list${query === "" ? "" : `, ${query.replace(endDate, "end_date")}`}: table requests`,
      value: `page 1,000: ${thousandth.requests}`,
      comparedWith: `page 2: ${second.requests}; page 1, which counts the total: ${first.requests}`,
      bound: { text: "the same on every page with a cursor", holds: thousandth.requests === second.requests },
    });
  }
  return figures;
}
