import {
  ALARM_COLOR,
  CONTENT_BOTTOM,
  type Column,
  GOOD_COLOR,
  HEADING_COLOR,
  MARGIN,
  MUTED_COLOR,
  type Sheet,
} from "../../platform/pdf/sheet.ts";
import { PRODUCT } from "../../platform/product.ts";
import { sum } from "../../platform/sum.ts";
import type { Verification } from "../api.ts";
import type { PdfEvent } from "./pdf-events.ts";

/** Writes the first page of a PDF export: its filters, the result of the verification, and counts of events. */

/** Maximum number of lines in a table of counts. The last line sums up the less frequent names. */
const MAX_COUNTED = 14;
/** Maximum number of findings in the document. GET /audit/verify returns all. */
const MAX_SHOWN_FINDINGS = 25;
/** Font size of text below a heading, in points. */
const TEXT_FONT_SIZE = 9;

/** The data of the first page. */
export interface PdfAbout {
  start: Date;
  /** Exclusive. */
  end: Date;
  actor: string | undefined;
  eventType: string | undefined;
  createdAt: Date;
  /** Results of the verification of the period in order, each for the intervals after the previous one. */
  verified: readonly Verification[];
}

/** `2026-11-21 10:00:00` */
export const instant = (date: Date | string): string => new Date(date).toISOString().slice(0, 19).replace("T", " ");

export const periodText = ({ start, end }: Pick<PdfAbout, "start" | "end">): string =>
  `${instant(start)} to ${instant(end)} UTC (exclusive)`;

/** Draws the first page: the document's content, the verification, and counts of events. */
export function writeSummary(sheet: Sheet, entries: number, events: readonly PdfEvent[], about: PdfAbout): void {
  sheet.text("Audit log", { size: 18, style: "bold", color: HEADING_COLOR });
  sheet.y -= 2;
  const joined = entries === events.length ? "" : `, as ${events.length} events: an intent and its outcome are one`;
  const lines: [string, string][] = [
    ["Service", PRODUCT],
    ["Period", periodText(about)],
    ["Filters", filters(about)],
    ["Entries", `${entries}${joined}, oldest first`],
    ["Created", `${instant(about.createdAt)} UTC`],
  ];
  for (const line of lines) sheet.fact(...line);
  sheet.y -= 6;
  writeVerification(sheet, about);
  sheet.y -= 8;
  writeCounts(sheet, events);
}

function filters({ actor, eventType }: PdfAbout): string {
  const parts = [actor === undefined ? [] : `actor ${actor}`, eventType === undefined ? [] : `event type ${eventType}`];
  return parts.flat().join(", ") || "none";
}

/** Describes the verification when the document was created: its result, the key, and the verified period. */
function writeVerification(sheet: Sheet, { verified }: PdfAbout): void {
  sheet.text("Verification", { size: 12, style: "bold", color: HEADING_COLOR });
  const [first, last] = [verified[0], verified.at(-1)];
  if (!first || !last) {
    sheet.text("Nothing was verified.", { size: TEXT_FONT_SIZE });
    return;
  }
  const digests = sum(verified, ({ digests }) => digests);
  const findings = sum(verified, ({ findingsTotal }) => findingsTotal);
  const [verdict, color] = verdictOf(first, digests, findings);
  sheet.fact("Result", verdict, color);
  const from = verified.find(({ checkedFrom }) => checkedFrom !== null)?.checkedFrom;
  const to = verified.findLast(({ checkedTo }) => checkedTo !== null)?.checkedTo;
  if (from && to) {
    const entries = sum(verified, ({ entries }) => entries);
    sheet.fact(
      "Checked",
      `${entries} entries against ${digests} signed digests, ${instant(from)} to ${instant(to)} UTC`,
    );
  }
  const digest = verified.findLast(({ lastDigest }) => lastDigest !== null)?.lastDigest;
  if (digest) {
    sheet.fact(
      "Up to digest",
      `${digest.number}, of ${digest.interval}, sealed ${instant(digest.sealedAt)} UTC with key ${digest.kid}; SHA-256 ${digest.hash}`,
    );
  }
  for (const { kid, fingerprint } of first.publicKeys) sheet.fact(`Key ${kid}`, `SHA-256 fingerprint ${fingerprint}`);
  sheet.fact("Log starts", first.beginning === null ? "nothing is sealed yet" : `${instant(first.beginning)} UTC`);
  sheet.fact("Newest digest", ANCHORS[first.anchor.state]);
  if (last.nextCursor !== null) {
    sheet.fact(
      "Not checked",
      `entries after ${to ? instant(to) : "this time"}: the period is too long for one document`,
    );
  } else if (last.unsealedFrom !== null) {
    const after = `entries after ${instant(last.unsealedFrom)} UTC`;
    if (last.sealing === "notConfigured")
      sheet.fact("Not checked", `${after}: not sealed when this document was created`);
    else if (last.unsealedEntries > 0)
      sheet.fact("Not sealed", `${after} (${last.unsealedEntries}): checked by their authentication codes`);
  }
  for (const { from, to, entries, actor, purgedAt } of first.purges.slice(-5)) {
    sheet.fact("Purged", `${entries} entries of ${from} to ${to}, by ${actor} at ${instant(purgedAt)} UTC`);
  }
  const late = sum(verified, ({ lateEntries }) => lateEntries.total);
  if (late > 0) {
    const which = late === 1 ? "1 entry is" : `${late} entries are`;
    sheet.fact(
      "Late entries",
      `${which} listed under a later time than that of the event; each such entry shows both times`,
    );
  }
  const listed = verified.flatMap((part) => part.findings);
  for (const { kind, interval, entryId, detail } of listed.slice(0, MAX_SHOWN_FINDINGS)) {
    const location = [interval, entryId].filter(Boolean).join(", ");
    sheet.fact("Finding", `${kind}${location === "" ? "" : ` (${location})`}: ${detail}`, ALARM_COLOR);
  }
  if (findings > MAX_SHOWN_FINDINGS)
    sheet.fact("", `and ${findings - MAX_SHOWN_FINDINGS} more: see GET /audit/verify`, ALARM_COLOR);
}

function verdictOf({ sealing }: Verification, digests: number, findings: number): [string, typeof ALARM_COLOR] {
  if (findings > 0)
    return [`NOT INTACT: ${findings} ${findings === 1 ? "finding" : "findings"}, see below`, ALARM_COLOR];
  if (sealing === "notConfigured")
    return ["Not verified: AUDIT_SIGNING_KEYS is not set, so nothing is sealed", ALARM_COLOR];
  if (digests === 0) return ["Not sealed yet: no digest covers this period", ALARM_COLOR];
  return ["Intact: no sealed entry was changed, removed or inserted", GOOD_COLOR];
}

/** Descriptions of the comparison of the newest digest (signed hash) with the copy in the service's key vault. */
const ANCHORS: Record<Verification["anchor"]["state"], string> = {
  matches: "matches the one in the service's key vault",
  differs: "differs from the one in the service's key vault",
  unreadable: "the one in the service's key vault can't be read",
  empty: "the service's key vault does not contain one yet",
  notConfigured:
    "not stored in a key vault (SERVICE_KEY_VAULT_URL is not set): removal of the newest entries can't be detected",
};

/** Heights in a table of counts, in points. */
const TABLE_HEADING_HEIGHT = 17;
const TABLE_ROW_HEIGHT = 14;
/** The three tables of counts. `nameOf` returns the name by which a table counts an event. Positions and widths in points. */
const COUNTS: { title: string; x: number; width: number; nameOf(event: PdfEvent): string }[] = [
  { title: "Event", x: MARGIN, width: 240, nameOf: ({ eventType }) => eventType },
  { title: "Actor", x: MARGIN + 255, width: 240, nameOf: ({ actor }) => actor },
  { title: "Outcome", x: MARGIN + 510, width: 180, nameOf: ({ outcome }) => outcome },
];

/** Draws three tables side by side: by event, by actor, by outcome. Repeats of a rejected request count individually. */
function writeCounts(sheet: Sheet, events: readonly PdfEvent[]): void {
  sheet.text("Number of events", { size: 12, style: "bold", color: HEADING_COLOR });
  if (events.length === 0) {
    sheet.text("There are no entries in this period.", { size: TEXT_FONT_SIZE, color: MUTED_COLOR });
    return;
  }
  sheet.y -= 2;
  const tables = COUNTS.map((table) => ({ ...table, rows: countEvents(events, table.nameOf) }));
  const longest = Math.max(...tables.map(({ rows }) => rows.length));
  if (sheet.y - TABLE_HEADING_HEIGHT - longest * TABLE_ROW_HEIGHT < CONTENT_BOTTOM) sheet.nextPage();
  const top = sheet.y;
  let bottom = top;
  for (const { title, x, width, rows } of tables) {
    const columns: Column[] = [
      { title, width: width - 50 },
      { title: "Times", width: 50, right: true },
    ];
    sheet.y = top;
    sheet.heading(columns, x);
    for (const [name, times] of rows) {
      const shortName = name.length > 48 ? `${name.slice(0, 47)}…` : name;
      sheet.row(columns, [{ paragraphs: [shortName] }, { paragraphs: [String(times)] }], { size: 8, x });
    }
    bottom = Math.min(bottom, sheet.y);
  }
  sheet.y = bottom;
}

/** Returns the number of events by name, the most frequent first. */
function countEvents(events: readonly PdfEvent[], nameOf: (event: PdfEvent) => string): [string, number][] {
  const times = new Map<string, number>();
  for (const event of events) times.set(nameOf(event), (times.get(nameOf(event)) ?? 0) + event.count);
  const sorted = [...times].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1));
  if (sorted.length <= MAX_COUNTED) return sorted;
  const others = sorted.slice(MAX_COUNTED - 1);
  return [...sorted.slice(0, MAX_COUNTED - 1), [`${others.length} others`, sum(others, ([, count]) => count)]];
}
