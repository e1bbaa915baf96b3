import { canonicalJson, sha256 } from "../canonical.ts";
import type { Finding } from "../chain/findings.ts";
import { manifestHash } from "../chain/manifest.ts";
import { PurgeRecord } from "../chain/purge-record.ts";
import { type PublicKeys, readStatement } from "../chain/signing.ts";
import { withVouched } from "../chain/trust.ts";
import { ExportFile, ExportStatement } from "../export/statement.ts";
import { INTERVAL_MS, intervalFrom, intervalName } from "../interval.ts";

/** Reads the files of an export for the offline verification. An export consists of one or more parts, each a file. */

/** One file of an export. `statement` is absent if its signature is not valid. */
export interface Part {
  file: ExportFile;
  statement: ExportStatement | undefined;
}

/** Collects findings without duplicates: a signed statement may already contain one. */
export interface Findings {
  readonly all: Finding[];
  add(...findings: readonly Finding[]): void;
}

export function createFindings(): Findings {
  const all: Finding[] = [];
  const reported = new Set<string>();
  return {
    all,
    add(...findings) {
      for (const finding of findings) {
        const { kind, interval, digestNumber, entryId } = finding;
        // The number is not compared for an entry, because findings of a signed statement can lack it.
        const name = JSON.stringify([kind, interval, entryId, entryId === undefined ? digestNumber : undefined]);
        // Findings without an interval can differ in their texts only, so all of them are listed.
        if (!reported.has(name) || interval === undefined) all.push(finding);
        reported.add(name);
      }
    },
  };
}

/** Returns the parts in order, each verified against its signed statement. */
export function readParts(files: readonly unknown[], trusted: PublicKeys, findings: Findings): Part[] {
  const parts = files.flatMap((file, index) => readPart(file, index + 1, trusted, findings) ?? []);
  return parts.sort((a, b) => compareText(a.statement?.after ?? "", b.statement?.after ?? ""));
}

function readPart(value: unknown, index: number, trusted: PublicKeys, findings: Findings): Part | undefined {
  const exportChanged = (detail: string) => findings.add({ kind: "exportChanged", detail: `File ${index}: ${detail}` });
  const parsed = ExportFile.safeParse(value);
  if (!parsed.success) {
    exportChanged("it is not a JSON export of the audit log, or parts of it were removed.");
    return undefined;
  }
  const file = parsed.data;
  if (file.statement === null) {
    exportChanged("it is not signed.");
    return { file, statement: undefined };
  }
  const read = readStatement("audit-export", ExportStatement, file.statement, withVouched(trusted, file.keys));
  if (!("payload" in read)) {
    const isUnknownKey = read.problem === "unknownKey";
    exportChanged(isUnknownKey ? "it is signed with a key that was not given." : "its signature is not valid.");
    return { file, statement: undefined };
  }
  const statement = read.payload;
  const hash = manifestHash();
  for (const entry of file.entries) hash.add([entry.id, sha256(canonicalJson(entry))]);
  const isAsSigned =
    hash.digest() === statement.fingerprints &&
    file.entries.length === statement.entries &&
    file.start === statement.start &&
    file.end === statement.end;
  if (!isAsSigned) exportChanged("its entries or its period differ from the exported ones.");
  return { file, statement };
}

/** Describes what the files don't cover: missing parts, filters, and the time before and after. */
export function coverageNotes(statements: readonly ExportStatement[]): string[] {
  const notes: string[] = [];
  if (statements.some(isFiltered)) notes.push("The export was filtered, so missing entries can't be detected.");
  for (const [index, { after, start, end }] of statements.entries()) {
    const previous = statements[index - 1];
    if (previous && (previous.start !== start || previous.end !== end)) {
      notes.push("The files are parts of different exports.");
    } else if ((previous?.upTo ?? null) !== after) {
      notes.push(`A part before ${after ?? "the first"} is missing: entries in it were not checked.`);
    }
  }
  const lastStatement = statements.at(-1);
  if (!lastStatement) return notes;
  if (lastStatement.upTo !== null)
    notes.push(`The parts after ${lastStatement.upTo} are missing: entries in them were not checked.`);
  const { start, end, sealedFrom, newest, anchor } = lastStatement;
  if (sealedFrom !== null && Date.parse(start) > intervalFrom(sealedFrom)) {
    notes.push(`The log starts at ${sealedFrom}; entries before ${start} are not in the export.`);
  }
  const sealedTo = newest && intervalFrom(newest.interval) + INTERVAL_MS;
  if (sealedTo !== null && sealedTo > Date.parse(end)) {
    notes.push(`The log is sealed up to ${intervalName(sealedTo)}; entries after ${end} are not in the export.`);
  }
  if (newest === null) notes.push("Nothing was sealed at the time of the export: no digest covers its entries.");
  if (anchor === null) {
    notes.push("No key vault stored the newest digest, so the removal of the newest digests can't be detected.");
  }
  return notes;
}

/** Returns a note about entries whose event happened before the time under which they are listed. Empty if there are none. */
export function lateNotes(parts: readonly Part[]): string[] {
  const late = parts.flatMap(({ file }) => file.entries).filter(({ happenedAt }) => happenedAt !== undefined);
  if (late.length === 0) return [];
  const [{ id, occurredAt, happenedAt }] = late as [(typeof late)[number]];
  return [
    `${late.length} ${late.length === 1 ? "entry is" : "entries are"} listed under a later time than their event, because the log was already closed for that time. First: ${id}, listed at ${occurredAt}, happened at ${happenedAt}.`,
  ];
}

export const isFiltered = ({ actor, eventType }: ExportStatement): boolean =>
  actor !== undefined || eventType !== undefined;

/** Returns the purge records of all parts, oldest first. */
export function purgeRecords(parts: readonly Part[], keys: PublicKeys, findings: Findings): PurgeRecord[] {
  const records = new Map<string, PurgeRecord>();
  for (const statement of new Set(parts.flatMap(({ file }) => file.purges))) {
    const read = readStatement("audit-purge", PurgeRecord, statement, keys);
    if ("payload" in read) records.set(read.payload.to, read.payload);
    else findings.add({ kind: "purgeRecordChanged", detail: "A purge record is not signed with a trusted key." });
  }
  return [...records.values()].sort((a, b) => compareText(a.to, b.to));
}

export const compareText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
