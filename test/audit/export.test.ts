import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { gunzipSync, gzipSync } from "node:zlib";
import { decodePDFRawStream, PDFDocument, PDFRawStream, StandardFonts } from "pdf-lib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { publicKeyText } from "../../shared/audit/chain/signing.ts";
import { createTrust } from "../../shared/audit/chain/trust.ts";
import type { AuditEntry } from "../../shared/audit/entry.ts";
import { auditCsv } from "../../shared/audit/export/csv.ts";
import { exportPart, MAX_PDF_ENTRIES } from "../../shared/audit/export/export.ts";
import { createPdf } from "../../shared/audit/export/pdf.ts";
import { eventsOf } from "../../shared/audit/export/pdf-events.ts";
import { intervalOf } from "../../shared/audit/interval.ts";
import { EntryRow, entriesPartition, entryKey } from "../../shared/audit/rows.ts";
import { verifyExport } from "../../shared/audit/verify/verify-export.ts";
import { insert } from "../../shared/platform/storage/tables.ts";
import { HOSTILE_NAMES } from "../support/hostile-names.ts";
import { parseCsv } from "../support/parse-csv.ts";
import { readPages } from "../support/pdf-contents.ts";
import { pdfText } from "../support/pdf-text.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { event, eventBy, exportAll, type Fixture, openFixture, page, publicKeys } from "./support.ts";

/**
 * Tests of exports of the audit log as JSON, CSV and PDF, and of the command that verifies a JSON export offline. A JSON export
 * contains the signed digests of its ten-minute intervals, so that the command detects changed entries without the service.
 */

const run = promisify(execFile);
let azurite: TestStorage;
/** A sealed log of 30 entries, four minutes apart, of two actors and two event types. */
let fixture: Fixture;
/** Temporary folder for the files that the offline command reads. */
let folder: string;

beforeAll(async () => {
  azurite = await openStorage(["small", "large", "fresh", "hostile"]);
  fixture = openFixture(azurite.connectionString("small"));
  for (let index = 0; index < 30; index++) {
    await fixture.audit.append(
      eventBy(index % 2 === 0 ? "ada" : "bob", index % 3 === 0 ? "user.signedIn" : "settings.changed"),
    );
    fixture.clock.addMinutes(4);
  }
  fixture.clock.addMinutes(12);
  await fixture.audit.seal();
  folder = await mkdtemp(path.join(tmpdir(), "audit-export-"));
});
afterAll(async () => {
  await azurite.stop();
  await rm(folder, { recursive: true });
});

/** Returns the ids of the entries of a JSON export, in order. */
const ids = (parts: string[]) =>
  parts.flatMap((part) => (JSON.parse(part) as { entries: { id: string }[] }).entries.map(({ id }) => id));

test("a JSON export contains the same entries as the list, oldest first", async () => {
  const [part] = await exportAll(fixture.audit);
  const listed = (await fixture.audit.list({}, page())).items.reverse();
  expect(JSON.parse(part!)).toMatchObject({ format: "audit-export/1", entries: listed, nextCursor: null });
});

test("a CSV export has one line per entry of the list, oldest first", async () => {
  const [part] = await exportAll(fixture.audit, { format: "csv" });
  expect(part!.startsWith("\uFEFF")).toBe(true); // byte order mark, by which Excel detects UTF-8
  const [header, ...rows] = parseCsv(part!.slice(1));
  expect(header!.slice(0, 5)).toEqual(["id", "occurredAt", "eventType", "outcome", "actor"]);
  const listed = (await fixture.audit.list({}, page())).items.reverse();
  expect(rows.map((row) => row.slice(0, 5))).toEqual(
    listed.map(({ id, occurredAt, eventType, outcome, actor }) => [id, occurredAt, eventType, outcome, actor]),
  );
  expect(JSON.parse(rows[0]![header!.indexOf("before")]!)).toEqual(listed[0]!.before);
});

test("a filtered export contains the entries of the list with the same filters", async () => {
  const query = {
    start: new Date("2026-11-21T10:20:00Z"),
    end: new Date("2026-11-21T11:30:00Z"),
    actor: "ADA",
    eventType: "settings.changed",
  };
  const listed = (await fixture.audit.list(query, page())).items.map(({ id }) => id).reverse();
  expect(listed.length).toBeGreaterThan(3);
  const parts = await exportAll(fixture.audit, { query });
  expect(ids(parts)).toEqual(listed);
  const verified = await verifyExport(
    parts.map((part) => JSON.parse(part)),
    publicKeys(...fixture.keys),
  );
  expect(verified.findings).toEqual([]);
  expect(verified.notes.join()).toContain("filtered");
});

test("an export whose period starts and ends within intervals can be verified", async () => {
  const query = { start: new Date("2026-11-21T10:05:00Z"), end: new Date("2026-11-21T10:30:30Z") };
  const [part] = await exportAll(fixture.audit, { query });
  expect(JSON.parse(part!).entries).toHaveLength(6);
  const verified = await verifyExport([JSON.parse(part!)], publicKeys(...fixture.keys));
  expect(verified).toMatchObject({ intact: true, entries: 6, digests: 4 });
  const shortened = JSON.parse(part!);
  shortened.entries.splice(2, 1);
  const kinds = (await verifyExport([shortened], publicKeys(...fixture.keys))).findings.map(({ kind }) => kind);
  expect(kinds).toEqual(["exportChanged", "entryRemoved"]);
});

test("a gzip export decompresses to the same bytes as the plain one", async () => {
  const query = { end: new Date("2026-11-21T11:00:00Z") };
  for (const format of ["json", "csv"] as const) {
    const plain = await fixture.audit.export({ format, query, cursor: undefined, gzip: false });
    const zipped = await fixture.audit.export({ format, query, cursor: undefined, gzip: true });
    expect(zipped.gzipped).toBe(true);
    expect(gunzipSync(zipped.data).equals(Buffer.from(plain.data))).toBe(true);
  }
});

test("an empty export is a valid file in every format", async () => {
  const fresh = openFixture(azurite.connectionString("fresh")).audit;
  expect(JSON.parse((await exportAll(fresh))[0]!)).toMatchObject({ entries: [], digests: [], nextCursor: null });
  expect(parseCsv((await exportAll(fresh, { format: "csv" }))[0]!.slice(1))).toHaveLength(1);
  const pdf = await fresh.export({ format: "pdf", query: {}, cursor: undefined, gzip: false });
  expect((await PDFDocument.load(pdf.data)).getPageCount()).toBe(1);
});

describe("a CSV cell", () => {
  /** Returns the actor's cell after a round trip through CSV. */
  const actorCell = (actor: string) =>
    parseCsv(`${auditCsv.header().slice(1)}${auditCsv.rows([{ ...entry(), actor }])}\r\n`)[1]![4]!;

  for (const actor of ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "  =1", "\r=1", "＝1", "%00=", "|calc", "\u200B=1"]) {
    test(`that a spreadsheet could execute is escaped: ${JSON.stringify(actor)}`, () =>
      expect(actorCell(actor)).toBe(`'${actor}`));
  }
  for (const actor of ["ada", 'a"b', "a,b", "a\nb", "1-2", "李小龙", "a=b"]) {
    test(`that is no formula is unchanged: ${JSON.stringify(actor)}`, () => expect(actorCell(actor)).toBe(actor));
  }
});

const entry = () => ({
  id: "01ARZ3NDEKTSV4RRFFQ69G5FAV",
  occurredAt: "2026-11-21T10:00:00.000Z",
  eventType: "user.signedIn",
  outcome: "success" as const,
  actor: "ada",
  requestId: "req-1",
  count: 1,
});

/** Page size in points, and the smallest distances of texts from the page's edges. */
const A4_LANDSCAPE = { width: 841.89, height: 595.28 };
const MARGIN = 36;
const FOOTER_BASELINE = 30;

describe("a PDF", () => {
  const font = path.resolve("node_modules/@fontsource/unifontex/files/unifontex-latin-400-normal.woff");
  /** The request of the export, as the first page shows it. */
  const about = {
    start: new Date("2026-11-01T00:00:00Z"),
    end: new Date("2026-12-01T00:00:00Z"),
    actor: undefined,
    eventType: undefined,
    createdAt: new Date("2026-11-21T10:00:00Z"),
    verified: [],
  };

  test("is created for names in any script and with characters that no font contains", async () => {
    const names = [
      "José Łukasz",
      "Ωμέγα Жанна",
      "李小龙 さくら 김철수",
      "محمد علي שלום",
      "हिन्दी ไทย",
      "😀 \u{20000} \u{10FFFF}",
      "\u0000\u0007\uD800 x",
      "x".repeat(500),
      "",
    ];
    const entries = names.map((actor) => ({ ...entry(), actor, details: { name: actor } }));
    const document = await PDFDocument.load(await createPdf(entries, about, font));
    expect(document.getTitle()).toBe("Audit log");
    expect(document.getPageCount()).toBeGreaterThanOrEqual(1);
  });

  test("of 196 entries has at most five pages", async () => {
    const intents = Array.from({ length: 98 }, (_, index) => ({ ...entry(), requestId: `request-${index}` }));
    const entries = intents.flatMap((entry) => [{ ...entry, outcome: "intent" as const }, entry]);
    const document = await PDFDocument.load(await createPdf(entries, about, font));
    expect(document.getPageCount()).toBeLessThanOrEqual(5);
  });

  test("shows an intent and its outcome as one event, and marks an intent without an outcome", () => {
    const target = { type: "alertRule", id: "r-1" };
    const entryAt = (second: number, change: object) => ({
      ...entry(),
      eventType: "alertRule.deleted",
      occurredAt: `2026-11-21T10:00:0${second}.000Z`,
      target,
      ...change,
    });
    const events = eventsOf([
      entryAt(0, { outcome: "intent", requestId: "a", before: { name: "Payments" } }),
      entryAt(1, { outcome: "intent", requestId: "b" }),
      entryAt(2, { outcome: "failure", requestId: "a", details: { reason: "throttled" } }),
      entryAt(3, { requestId: "c" }),
    ]);
    expect(events.map(({ outcome, startedAt, changes }) => [outcome, startedAt, changes])).toEqual([
      ["no outcome", undefined, ""],
      ["failure", "2026-11-21T10:00:00.000Z", "name: Payments (before); reason: throttled"],
      ["success", undefined, ""],
    ]);
  });

  test("shows when an event happened if its entry has a later time", async () => {
    const late = {
      ...entry(),
      occurredAt: "2026-11-21T10:30:00.000Z",
      happenedAt: "2026-11-21T10:21:07.000Z",
      eventType: "alertRule.deleted",
    };
    const intent = { ...late, outcome: "intent" as const, happenedAt: "2026-11-21T10:21:05.000Z" };
    expect(eventsOf([intent, late])).toMatchObject([
      { listedAt: late.occurredAt, happenedAt: late.happenedAt, startedAt: intent.happenedAt },
    ]);
    const verified = await fixture.audit.verify({});
    const counted = { ...about, verified: [{ ...verified, lateEntries: { total: 2, listed: [] } }] };
    const text = await pdfText(await createPdf([intent, late], counted, font));
    expect(text).toContain("2 entries are listed under a later time");
    expect(text.replaceAll("\n", " ")).toContain("happened 2026-11-21 10:21:07");
    const [header, row] = parseCsv(`${auditCsv.header().slice(1)}${auditCsv.rows([late])}\r\n`);
    expect(row![header!.indexOf("happenedAt")]).toBe(late.happenedAt);
  });

  test("describes the changed members of an event and omits unchanged ones", () => {
    const changes = (change: object) => eventsOf([{ ...entry(), ...change }])[0]!.changes;
    expect(changes({ before: { days: 7, on: true }, after: { days: 14, on: true } })).toBe("days: 7 → 14");
    expect(changes({ before: { a: { b: null } }, after: { a: { b: false, c: [] } } })).toBe(
      "a.b: none → no; a.c: none → none",
    );
    expect(changes({ after: { thresholds: [60, 30, 7, 1] } })).toBe("thresholds: 60, 30, 7, 1");
    const many = Array.from({ length: 9 }, (_, index) => `team-${index}@acme.example`);
    expect(changes({ after: { to: many } })).toBe(
      "to: team-0@acme.example, team-1@acme.example, team-2@acme.example and 6 more",
    );
    expect(changes({ details: { text: "x".repeat(500) } })).toMatch(/^text: x{394}… \(in full in the JSON export\)$/);
  });

  test("places every text within the page without overlaps", async () => {
    const entries = Array.from({ length: 120 }, (_, index) => ({
      ...entry(),
      requestId: `request-${index}`,
      count: 1 + (index % 3),
      details: { text: "several words ".repeat(index % 40) },
    }));
    const finding = { kind: "entryChanged" as const, entryId: "e", detail: "Not the sealed version. ".repeat(12) };
    const verified = { ...(await fixture.audit.verify({})), findingsTotal: 25, findings: Array(25).fill(finding) };
    const placed = await textsOf(await createPdf(entries, { ...about, verified: [verified] }, font));
    expect(placed.length).toBeGreaterThan(500);
    for (const { x, end, y, size, text } of placed) {
      expect(x, text).toBeGreaterThanOrEqual(MARGIN);
      expect(end, text).toBeLessThanOrEqual(A4_LANDSCAPE.width - MARGIN);
      expect(y, text).toBeGreaterThanOrEqual(FOOTER_BASELINE);
      expect(y + size, text).toBeLessThanOrEqual(A4_LANDSCAPE.height - MARGIN + 1);
    }
    // Texts of one line, from left to right, and texts of one column, from the top down, don't overlap.
    for (const line of Map.groupBy(placed, ({ page, y }) => `${page} ${y}`).values()) {
      const cells = line.sort((a, b) => a.x - b.x);
      for (const [previous, { x, text }] of cells.slice(1).entries())
        expect(x - cells[previous]!.end, text).toBeGreaterThanOrEqual(4);
    }
    const columns = Map.groupBy(placed, ({ page, x }) => `${page} ${x}`);
    for (const column of columns.values()) {
      const lines = column.sort((a, b) => b.y - a.y);
      for (const [previous, { y, size, text }] of lines.slice(1).entries())
        expect(lines[previous]!.y - y, text).toBeGreaterThanOrEqual(size);
    }
  });

  test.each([0, 10, 15, 20, 25])(
    "starts its tables of counts on a page with room for them, after %i findings",
    async (count) => {
      const entries = Array.from({ length: 10 }, (_, index) => ({
        ...entry(),
        requestId: `request-${index}`,
        actor: `person-${index}`,
      }));
      const finding = {
        kind: "entryChanged" as const,
        interval: "2026-11-21T10:10Z",
        entryId: "e-1",
        detail: "Changed.",
      };
      const verified = {
        ...(await fixture.audit.verify({})),
        findingsTotal: count,
        findings: Array(count).fill(finding),
      };
      const placed = await textsOf(await createPdf(entries, { ...about, verified: [verified] }, font));
      expect(placed.filter(({ text }) => text === "Times")).toHaveLength(3);
      for (const { y, text } of placed) expect(y, text).toBeGreaterThanOrEqual(FOOTER_BASELINE);
    },
  );

  test.each([
    [{}, "none"],
    [{ actor: "ada" }, "actor ada"],
    [{ eventType: "user.signedIn" }, "event type user.signedIn"],
    [{ actor: "ada", eventType: "user.signedIn" }, "actor ada, event type user.signedIn"],
  ])("shows the filters of the export: %j", async (filters, expectedText) => {
    const text = await pdfText(await createPdf([entry()], { ...about, ...filters }, font));
    expect(text).toMatch(/^Page 1 of \d$/m);
    expect(text.split("\n")).toContain(expectedText);
  });

  test.each([
    [1, "NOT INTACT: 1 finding, see below"],
    [2, "NOT INTACT: 2 findings, see below"],
  ])("shows the verdict and the findings of a log with %i finding(s)", async (findingsTotal, verdict) => {
    const finding = {
      kind: "entryChanged" as const,
      interval: "2026-11-21T10:10Z",
      entryId: "e-1",
      detail: "Changed.",
    };
    const verified = {
      ...(await fixture.audit.verify({})),
      findingsTotal,
      findings: Array(findingsTotal).fill(finding),
    };
    const text = await pdfText(await createPdf([], { ...about, verified: [verified] }, font));
    expect(text.split("\n")).toEqual(
      expect.arrayContaining([verdict, "entryChanged (2026-11-21T10:10Z, e-1): Changed."]),
    );
  });

  describe("counts events in three tables (event type, actor, outcome)", () => {
    /** Returns the rows of each table, as `name: count` from the top down, by the table's title. */
    async function countsOf(entries: AuditEntry[]): Promise<Record<string, string[]>> {
      const placed = await textsOf(await createPdf(entries, about, font));
      const heading = placed.find(({ text }) => text === "Number of events")!;
      const below = placed.filter(({ page, y }) => page === heading.page && y < heading.y);
      const lines = [...Map.groupBy(below, ({ y }) => y).values()].map((line) => line.sort((a, b) => a.x - b.x));
      const [titles, ...rows] = lines.sort(([a], [b]) => b!.y - a!.y);
      const tables: Record<string, string[]> = {};
      for (const [index, { x, text }] of titles!.entries()) {
        if (index % 2 > 0) continue; // Every second title is that of the column of counts.
        const cells = rows.map((row) => row.slice(row.findIndex((cell) => Math.abs(cell.x - x) < 1)));
        tables[text] = cells
          .filter(([name]) => Math.abs(name!.x - x) < 1)
          .map(([name, n]) => `${name!.text}: ${n!.text}`);
      }
      return tables;
    }

    test("that count an intent and its outcome once, and each repeat of a rejected request", async () => {
      const counts = await countsOf([
        { ...entry(), requestId: "1" },
        { ...entry(), requestId: "2", outcome: "refused", actor: "bob", count: 5 },
        { ...entry(), requestId: "3", outcome: "intent", eventType: "alertRule.deleted" },
        { ...entry(), requestId: "3", outcome: "failure", eventType: "alertRule.deleted" },
        { ...entry(), requestId: "4", outcome: "intent", eventType: "alertRule.deleted" },
        { ...entry(), requestId: "5", actor: "cid", eventType: "settings.changed" },
      ]);
      expect(counts).toEqual({
        Event: ["user.signedIn: 6", "alertRule.deleted: 2", "settings.changed: 1"],
        Actor: ["bob: 5", "ada: 3", "cid: 1"],
        Outcome: ["refused: 5", "success: 2", "failure: 1", "no outcome: 1"],
      });
    });

    test("that combine the least frequent names into the last line", async () => {
      const entries = Array.from({ length: 16 }, (_, index) => ({
        ...entry(),
        requestId: `request-${index}`,
        actor: `person-${String(index).padStart(2, "0")}`,
        count: 20 - index,
      }));
      const { Actor: actors } = await countsOf(entries);
      expect(actors).toHaveLength(14);
      expect(actors!.slice(-2)).toEqual(["person-12: 8", "3 others: 18"]);
    });
  });

  test("shows the result of the verification, the key and the last digest", async () => {
    const part = await fixture.audit.export({ format: "pdf", query: {}, cursor: undefined, gzip: false });
    const text = await pdfText(part.data);
    const { publicKeys: keys, lastDigest, checkedTo } = await fixture.audit.verify({});
    expect(text).toContain("Intact: no sealed entry was changed, removed or inserted");
    expect(text).toContain(`${lastDigest!.number}, of ${lastDigest!.interval}, sealed`);
    expect(text).toContain(`with key k1; SHA-256 ${lastDigest!.hash}`);
    expect(text).toContain(keys[0]!.fingerprint);
    expect(checkedTo).toBe("2026-11-21T12:10:00.000Z");
    expect(text).toContain("30 entries against 13 signed digests");
  });
});

/**
 * Returns the position of each text of a PDF, in points from the lower left of its page. `page` is the index of the PDF object
 * with the page's content, not a page number.
 */
async function textsOf(data: Uint8Array) {
  const document = await PDFDocument.load(data);
  const font = await document.embedFont(StandardFonts.Helvetica);
  return [...document.context.enumerateIndirectObjects()].flatMap(([, object], page) => {
    if (!(object instanceof PDFRawStream)) return [];
    const content = Buffer.from(decodePDFRawStream(object).decode()).toString("latin1");
    // A text with its font size, its position, and its characters in hexadecimal: ` 8 Tf … 36 500.5 Tm <41> Tj`.
    const texts = content.matchAll(/ (\d+(?:\.\d+)?) Tf[^T]*?(-?[\d.]+) (-?[\d.]+) Tm\s*<([0-9A-F]+)> Tj/g);
    return [...texts].map(([, size, x, y, hex]) => {
      const text = new TextDecoder("windows-1252").decode(Buffer.from(hex!, "hex"));
      const end = Number(x) + font.widthOfTextAtSize(text, Number(size));
      return { page, size: Number(size), x: Number(x), end, y: Number(y), text };
    });
  });
}

describe("an export that is longer than one response", () => {
  /** More bytes than any part of these tests has. */
  const NO_LIMIT = 1e9;
  /** Returns all parts of an export. Each part ends at one of the limits. */
  async function exportParts(format: "json" | "csv", limits: { entries: number; bytes: number }): Promise<string[]> {
    const deps = { ...fixture, trust: createTrust(fixture.tables, fixture.keys), unicodeFont: "" };
    const files: string[] = [];
    let cursor: string | undefined;
    do {
      const part = await exportPart(deps, { format, query: {}, cursor, gzip: false }, "export-1", limits);
      files.push(Buffer.from(part.data).toString("utf8"));
      expect(part.fileName).toMatch(files.length === 1 ? /\d\.\w+$/ : new RegExp(`-part${files.length}\\.`));
      cursor = part.nextCursor ?? undefined;
    } while (cursor !== undefined);
    return files;
  }
  /** Returns the ids of all entries, oldest first. */
  const listedIds = async () => (await fixture.audit.list({}, page())).items.map(({ id }) => id).reverse();

  for (const limits of [
    { entries: 7, bytes: NO_LIMIT },
    { entries: 1, bytes: NO_LIMIT },
    { entries: 30, bytes: NO_LIMIT },
  ]) {
    test(`consists of parts of at most ${limits.entries} entries that together contain every entry once`, async () => {
      const json = await exportParts("json", limits);
      expect(json).toHaveLength(Math.ceil(30 / limits.entries));
      expect(ids(json)).toEqual(await listedIds());
      const csv = await exportParts("csv", limits);
      expect(csv.flatMap((part) => parseCsv(part.slice(1)).slice(1)).map(([id]) => id)).toEqual(await listedIds());

      const files = json.map((part) => JSON.parse(part));
      const together = await verifyExport(files, publicKeys(...fixture.keys));
      expect(together).toMatchObject({ intact: true, findings: [], entries: 30, notes: [] });
      for (const file of files) {
        const alone = await verifyExport([file], publicKeys(...fixture.keys));
        expect(alone.findings).toEqual([]);
        expect(alone.notes.join()).toContain(files.length === 1 ? "" : "missing");
      }
    });
  }

  test("is reported as changed if an entry is removed from any part", async () => {
    const files = (await exportParts("json", { entries: 7, bytes: NO_LIMIT })).map((part) => JSON.parse(part));
    for (const file of files) {
      const [removed] = file.entries.splice(1, 1);
      const { findings } = await verifyExport(files, publicKeys(...fixture.keys));
      expect(findings).toContainEqual(expect.objectContaining({ kind: "entryRemoved", entryId: removed.id }));
      file.entries.splice(1, 0, removed);
    }
  });

  test("is rejected as a PDF, and the error names the other formats", async () => {
    const large = openFixture(azurite.connectionString("large"));
    await large.audit.append(eventBy("ada"));
    const interval = intervalOf(large.clock.now().getTime());
    const [template] = (await large.audit.list({}, page())).items;
    function* operations() {
      for (let index = 0; index < MAX_PDF_ENTRIES; index++) {
        const id = `01KAJ${String(index).padStart(21, "0")}`; // a valid ULID, whose time does not matter
        yield insert(EntryRow, entryKey(interval, id), { entry: JSON.stringify({ ...template, id }) });
      }
    }
    await large.tables.write(EntryRow.table, entriesPartition(interval), operations());
    const pdf = large.audit.export({ format: "pdf", query: {}, cursor: undefined, gzip: false });
    await expect(pdf).rejects.toMatchObject({ status: 400, message: expect.stringMatching(/5000.*csv.*json/) });
  });
});

describe("the offline command", () => {
  const command = path.resolve("functions/commands/verify-audit.ts");
  const verify = (...args: string[]) =>
    run(process.execPath, [command, ...args]).then(
      ({ stdout }) => ({ code: 0, output: stdout }),
      (error: { code: number; stdout: string; stderr: string }) => ({
        code: error.code,
        output: error.stdout + error.stderr,
      }),
    );
  /** The option that names the log's key as trusted. */
  const trustedKeyOption = () => ["--public-key", `k1:${publicKeyText(publicKeys(...fixture.keys).get("k1")!)}`];

  test("reports an unchanged export as intact, compressed or not", async () => {
    const [part] = await exportAll(fixture.audit);
    const file = path.join(folder, "intact.json");
    await writeFile(file, part!);
    await writeFile(`${file}.gz`, gzipSync(part!));
    const { entries, digests } = JSON.parse(part!);
    const checkedText = `Checked ${entries.length} entries against ${digests.length} digests`;
    const [from, to] = [digests[0], digests.at(-1)].map(({ interval }) => interval);
    const { code, output } = await verify(...trustedKeyOption(), file);
    expect([code, output.split("\n").slice(0, 2)]).toEqual([
      0,
      ["INTACT: no entry was changed, removed or inserted.", `${checkedText}, intervals ${from} to ${to}.`],
    ]);
    expect((await verify(...trustedKeyOption(), `${file}.gz`)).code).toBe(0);
  });

  test("names the interval, the digest and the id of a changed entry", async () => {
    const [part] = await exportAll(fixture.audit);
    const altered = JSON.parse(part!);
    altered.entries[3].outcome = "failure";
    const file = path.join(folder, "altered.json");
    await writeFile(file, JSON.stringify(altered));
    const result = await verify(...trustedKeyOption(), file);
    expect(result.code).toBe(1);
    expect(result.output).toContain(
      `entryChanged (interval 2026-11-21T10:10Z, digest 2, entry ${altered.entries[3].id})`,
    );
  });

  test("does not trust a key only because the export contains it", async () => {
    const [part] = await exportAll(fixture.audit);
    const file = path.join(folder, "other-key.json");
    await writeFile(file, part!);
    const otherKey = `k1:${Buffer.alloc(32, 9).toString("base64")}`;
    expect((await verify("--public-key", otherKey, file)).code).toBe(1);
    expect(await verify(file)).toMatchObject({
      code: 2,
      output: expect.stringContaining("Keys in the export are not trusted"),
    });
  });
});

test("an export contains the other entries if one row is not a valid entry", async () => {
  await fixture.audit.append(event());
  const interval = intervalOf(fixture.clock.now().getTime());
  const key = entryKey(interval, "01ZZZZZZZZZZZZZZZZZZZZZZZZ");
  await fixture.tables.put(EntryRow, entriesPartition(interval), key, { entry: "nonsense" });
  const [part] = await exportAll(fixture.audit);
  expect(JSON.parse(part!).entries).toHaveLength(31); // the 30 of the fixture and the one appended here
});

test("each hostile name is one value of one entry in every format: no line, formula or link of its own", async () => {
  const { audit } = openFixture(azurite.connectionString("hostile"));
  const names = HOSTILE_NAMES.map(([, name]) => name.slice(0, 200));
  for (const name of names)
    await audit.append({ ...eventBy(name, "rule.created"), target: { type: "rule", id: name }, details: { name } });
  const [json] = await exportAll(audit);
  const { entries } = JSON.parse(json!) as { entries: AuditEntry[] };
  expect(
    entries.map(({ actor, target, details }) =>
      [actor, target?.id, (details as { name: string }).name].map((value) => String(value).toWellFormed()),
    ),
  ).toEqual(names.map((name) => Array(3).fill(name.toWellFormed())));

  const [csv] = await exportAll(audit, { format: "csv" });
  const [header, ...rows] = parseCsv(csv!.slice(1));
  expect(rows).toHaveLength(names.length);
  for (const [index, name] of names.entries()) {
    const escaped = /^[=+\-@|%]|^\s+[=+\-@|%]/.test(name) ? `'${name}` : name;
    for (const column of ["actor", "targetId"])
      expect(rows[index]![header!.indexOf(column)]).toBe(escaped.toWellFormed());
  }

  const { data } = await audit.export({ format: "pdf", query: {}, cursor: undefined, gzip: false });
  const texts = (await readPages(data)).flatMap((page) => page.texts.map(({ text }) => text));
  const all = texts.join("").replaceAll(/\s/g, "");
  for (const name of names.filter(({ length }) => length < 100)) {
    const printable = [...name.replaceAll(/\s/g, "")].map((character) =>
      /[\p{Cc}\p{Cf}\p{Cs}]/u.test(character)
        ? `[U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}]`
        : character,
    );
    expect(all).toContain(printable.join(""));
  }
  for (const page of (await PDFDocument.load(data)).getPages()) expect(page.node.Annots()?.size() ?? 0).toBe(0);
});
