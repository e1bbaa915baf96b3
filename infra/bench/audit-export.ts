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
import { processFigures, withProcessorTime } from "./process.ts";
import { equalTo, type Figure, megabytes, peakMemory, processorTime, type Section } from "./section.ts";

const DAYS = 25;
const PER_DAY = 10_000;
/** Interval between two entries. The entries of a day are in 56 of its 144 intervals. */
const GAP_MS = 3_333;
const ENTRIES = DAYS * PER_DAY;
const PAGE = 2;
const KID = "bench";

interface Key {
  kid: string;
  key: Uint8Array<ArrayBuffer>;
}

const count = (value: number): string => value.toLocaleString("en-GB");

/** Measures an export of 250,000 entries in both formats, plain and compressed, and lists at page 1 and page 1,000. */
export async function auditExport(): Promise<Section> {
  const key = { kid: KID, key: new Uint8Array(randomBytes(32)) };
  const service = await Service.start({
    tableProxy: true,
    hosts: 0,
    env: { AUDIT_SIGNING_KEYS: `${KID}:${Buffer.from(key.key).toString("base64")}` },
  });
  try {
    const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
    const period = { start: today - DAYS * DAY_MS, end: today };
    const ids = await history(
      createTables({ connectionString: service.azurite.connectionString() }),
      period.start,
      key,
    );
    await service.addHost();

    const figures: Figure[] = [];
    for (const format of ["csv", "json"] as const) {
      for (const encoding of ["identity", "gzip"] as const) {
        service.forgetTables();
        const { result, ms } = await withProcessorTime(service.url, () => walk(service, format, encoding, period));
        const { parts, largest, found, bodies } = result;
        onceEach(ids, found);
        const intact = format === "json" ? await verified(bodies, key) : "";
        const how = `${format}, ${encoding === "gzip" ? "gzip" : "plain"}`;
        figures.push(
          {
            what: `${how}: parts`,
            value: `${parts}, the largest ${megabytes(largest)} unpacked${intact}`,
            comparedWith: `${count(found.length)} entries, each once; ${count(service.tableRequests().length)} table requests`,
            bound: equalTo(found.length, ENTRIES),
          },
          processorTime(`${how}: processor time per 1,000 entries`, (1000 * ms) / found.length, 600, ""),
        );
      }
    }
    const { memory } = await processFigures(service.url);
    figures.push(peakMemory("peak resident memory of the functions process, all four exports", memory.peak));
    figures.push(...(await lists(service)));
    return {
      title: "Audit log: export and lists",
      how: `${count(ENTRIES)} sealed entries over ${DAYS} days, exported part by part over HTTP by one functions process. Each part is parsed, each entry must occur once, and JSON parts are verified as the offline command does. Lists are of the newest day's ${count(PER_DAY)} entries, ${PAGE} per page.`,
      figures,
    };
  } finally {
    await service.stop();
  }
}

const ACTORS = ["admin", "Мария"];

/** Half of an actor's entries have one type, half the other. */
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
 * Writes and seals entries day by day, as the service does. The index contains only the newest day, because all other days are
 * exported.
 */
async function history(tables: Tables, start: number, key: Key): Promise<Set<string>> {
  const randomness = systemRandomness();
  // Sealing repairs the index, so the benchmark does not seal.
  const withoutIndex: Tables = {
    ...tables,
    write: async (table, ...rest) => (table === IndexRow.table ? undefined : await tables.write(table, ...rest)),
  };
  const trust = createTrust(tables, [key]);
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  let now = start;
  const clock = { now: () => new Date(now) };
  const seal = createSealer({ tables: withoutIndex, clock, log, trust, anchor: undefined, enter: async () => {} });

  const ids = new Set<string>();
  await tables.put(FirstRow, FIRST_PARTITION, FIRST_PARTITION, { interval: intervalName(start) });
  for (let day = 0; day < DAYS; day++) {
    const entries: AuditEntry[] = [];
    for (let index = 0; index < PER_DAY; index++) {
      const at = now + index * GAP_MS;
      const entry = entryOf(eventAt(day * PER_DAY + index), randomness.ulid(new Date(at)), at);
      entries.push(entry);
      ids.add(entry.id);
    }
    await tables.write(EntryRow.table, entriesPartition(now), primaryRows(entries));
    if (day === DAYS - 1) await tables.write(IndexRow.table, INDEX_PARTITION, indexRows(entries));
    const nextDay = now + DAY_MS;
    now = nextDay + SEAL_DELAY_MS;
    await seal();
    now = nextDay;
  }
  return ids;
}

function* primaryRows(entries: AuditEntry[]): Generator<Operation> {
  let born: Interval | undefined;
  for (const entry of entries) {
    const interval = intervalOf(Date.parse(entry.occurredAt));
    if (interval !== born) {
      yield insert(Mark, bornMark(interval), {});
      yield insert(Mark, openMark(interval), {});
    }
    born = interval;
    yield insert(EntryRow, entryKey(interval, entry.id), { entry: entryText(entry) });
  }
}

function* indexRows(entries: AuditEntry[]): Generator<Operation> {
  for (const entry of entries) for (const key of indexKeys(entry)) yield put(IndexRow, key, { id: entry.id });
}

interface WalkedRow {
  parts: number;
  /** Number of characters of the largest part, uncompressed. */
  largest: number;
  found: string[];
  /** Parsed JSON parts of the export. */
  bodies: unknown[];
}

async function walk(
  service: Service,
  format: "csv" | "json",
  encoding: string,
  period: { start: number; end: number },
): Promise<WalkedRow> {
  const token = await service.signIn(ADMIN);
  const walked: WalkedRow = { parts: 0, largest: 0, found: [], bodies: [] };
  const dates = `start_date=${new Date(period.start).toISOString()}&end_date=${new Date(period.end).toISOString()}`;
  let next: string | undefined = `/audit/export?format=${format}&${dates}`;
  while (next !== undefined) {
    const answer: Answer = await service.call("GET", next, { token, headers: { "Accept-Encoding": encoding } });
    if (answer.status !== 200) throw new Error(`The export answered ${answer.status}: ${answer.text.slice(0, 500)}`);
    if ((answer.headers.get("content-encoding") ?? "identity") !== encoding)
      throw new Error(`${encoding} was asked for`);
    walked.parts += 1;
    walked.largest = Math.max(walked.largest, answer.text.length);
    if (format === "json") {
      walked.bodies.push(answer.body);
      for (const { id } of answer.body.entries) walked.found.push(id);
    } else for (const [id] of readCsv(answer.text)) walked.found.push(id!);
    next = /<([^>]+)>; rel="next"/.exec(answer.headers.get("link") ?? "")?.[1];
  }
  return walked;
}

/** Matches a cell with the separator after it (RFC 4180). */
const CELL = /(?:"([^"]*(?:""[^"]*)*)"|([^",\r\n]*))(,|\r\n)/y;

/**
 * Returns the rows below the heading. @throws Error if the text is not valid CSV (RFC 4180) or a row has another number of
 * cells.
 */
function readCsv(text: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  CELL.lastIndex = 0;
  while (CELL.lastIndex < text.length) {
    const at = CELL.lastIndex;
    const found = CELL.exec(text);
    if (!found) throw new Error(`The CSV is not valid at ${at}: ${text.slice(at, at + 80)}`);
    row.push(found[1]?.replaceAll('""', '"') ?? found[2]!);
    if (found[3] === ",") continue;
    rows.push(row);
    row = [];
  }
  const [heading, ...below] = rows;
  if (row.length > 0 || below.some(({ length }) => length !== heading?.length))
    throw new Error("A row has other cells.");
  return below;
}

function onceEach(expected: ReadonlySet<string>, found: readonly string[]): void {
  const once = new Set(found);
  const unexpected = found.filter((id) => !expected.has(id)).length;
  if (found.length === expected.size && once.size === expected.size && unexpected === 0) return;
  throw new Error(
    `Expected ${expected.size} entries, got ${found.length}: ${once.size} different ones, ${unexpected} of them unexpected.`,
  );
}

async function verified(parts: unknown[], key: Key): Promise<string> {
  const keys = new Map([[key.kid, createPublicKey(signingKey(key).privateKey)]]);
  const { intact, entries, unsealed, findings } = await verifyExport(parts, keys);
  if (!intact || entries !== ENTRIES || unsealed > 0) {
    throw new Error(`${entries} entries, ${unsealed} unsealed: ${JSON.stringify(findings.slice(0, 5))}`);
  }
  return ", verified offline";
}

/** Table requests of page 1, of page 2 and of page 1,000, which is reached through page 999, and there by its cursor. */
async function lists(service: Service): Promise<Figure[]> {
  const end = `end_date=${new Date(Math.floor(Date.now() / DAY_MS) * DAY_MS).toISOString()}`;
  const queries = ["", "actor=admin", "event_type=access.refused", "actor=admin&event_type=access.refused"];
  const figures: Figure[] = [];
  await service.admin("GET", "/audit/entries?limit=1"); // Signs in before the measurement.
  for (const query of [...queries, end, `${queries[3]}&${end}`]) {
    const path = `/audit/entries?limit=${PAGE}&${query}`;
    const cost = async (place: string) => {
      service.forgetTables();
      const { status, body } = await service.admin("GET", path + place);
      if (status !== 200 || body.items.length !== PAGE) throw new Error(`${path}${place} answered ${status}`);
      return { requests: service.tableRequests().length, cursor: `&cursor=${body.nextCursor}` };
    };
    const first = await cost("");
    const second = await cost(first.cursor);
    const thousandth = await cost((await cost(`&offset=${998 * PAGE}`)).cursor);
    figures.push({
      what: `list${query === "" ? "" : `, ${query.replace(end, "end_date")}`}: table requests`,
      value: `page 1,000: ${thousandth.requests}`,
      comparedWith: `page 2: ${second.requests}; page 1, which counts the total: ${first.requests}`,
      bound: { text: "the same on every page with a cursor", holds: thousandth.requests === second.requests },
    });
  }
  return figures;
}
