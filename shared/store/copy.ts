import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, open, readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { createInterface } from "node:readline";
import * as z from "zod";
import type { Clock } from "../platform/runtime.ts";
import type { TypedRow, WholeTables } from "../platform/storage/whole-tables.ts";
import { TABLE_NAMES } from "./table-names.ts";

/**
 * A copy of all tables in a folder. Each table has a file of JSON lines, with the rows in the order of their keys. A manifest
 * lists the tables. The files contain no secret values, but hashes of passwords, and rows whose signatures stay valid, so only
 * their owner can read them.
 */

/** A copy cannot be made or restored. The message says what to do. */
export class CopyFailed extends Error {
  override readonly name = "CopyFailed";
}

const Manifest = z.object({
  format: z.literal(1),
  /** Version of the service that made the copy, from package.json. */
  version: z.string(),
  /** Name of the storage account. */
  account: z.string(),
  /** When the copy was started. Later changes may be missing. */
  copiedAt: z.string(),
  /** By table: number of rows, and SHA-256 of the file in hexadecimal digits. */
  tables: z.record(z.string(), z.object({ rows: z.int(), sha256: z.string() })),
});
export type Manifest = z.infer<typeof Manifest>;

const MANIFEST = "manifest.json";
/** Permissions with which only the owner can read and write. */
const FILE_MODE = 0o600;
const FOLDER_MODE = 0o700;
/** Maximum number of rounds. Each round copies the tables that changed, and compares all tables with their copies. */
const MAX_ROUNDS = 5;

const fileOf = (folder: string, table: string): string => path.join(folder, `${table}.jsonl`);
/**
 * Returns a row as a line of a file. Equal rows have equal lines. Escapes U+2028 and U+2029, because JSON allows them and
 * `readline` treats them as line ends.
 */
const lineOf = ({ partitionKey, rowKey, columns }: TypedRow): string => {
  const json = JSON.stringify([partitionKey, rowKey, columns]);
  return `${json.replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029")}\n`;
};
/** A parsed line: partition key, row key and columns. */
const Line = z.tuple([z.string(), z.string(), z.record(z.string(), z.union([z.string(), z.number(), z.boolean()]))]);

/**
 * Copies all tables to an empty folder. Then compares every table with its copy, and copies changed tables again. The copy is
 * complete when a comparison finds no change, because all tables then had the copied rows when that comparison started.
 *
 * @param report - Receives a line about the progress.
 * @throws {CopyFailed} if the folder is not empty, or the tables keep changing.
 */
export async function copyStore(
  { tables, clock, account, version }: { tables: WholeTables; clock: Clock; account: string; version: string },
  folder: string,
  report: (line: string) => unknown,
): Promise<Manifest> {
  await mkdir(folder, { recursive: true, mode: FOLDER_MODE });
  if ((await readdir(folder)).length > 0) throw new CopyFailed(`${folder} is not empty. Name a new folder.`);
  // The first answer sets the clock to the table service's time.
  await tables.keys(TABLE_NAMES[0]).next();
  const copiedAt = clock.now().toISOString();
  const manifest: Manifest = { format: 1, version, account, copiedAt, tables: {} };
  /** Hashes of the rows' keys and ETags, by table. */
  const keyHashes = new Map<string, string>();
  let changed: string[] = [...TABLE_NAMES];
  for (let round = 0; changed.length > 0; round++) {
    if (round === MAX_ROUNDS)
      throw new CopyFailed(
        `${changed.join(", ")} changed during the copy, ${MAX_ROUNDS} times. Stop the app, wait until no invocation runs, and start again with a new folder.`,
      );
    for (const table of changed) {
      const { keyHash, ...summary } = await copyTable(tables, table, folder);
      keyHashes.set(table, keyHash);
      manifest.tables[table] = summary;
      await report(`Copied ${table}: ${summary.rows} rows.`);
    }
    changed = [];
    for (const table of TABLE_NAMES)
      if ((await hashKeys(tables.keys(table))) !== keyHashes.get(table)) changed.push(table);
  }
  // The manifest is written last, so that a folder with a manifest contains a complete copy.
  await writeFile(path.join(folder, MANIFEST), `${JSON.stringify(manifest, null, 2)}\n`, { mode: FILE_MODE });
  return manifest;
}

/** Writes a table's file. `keyHash` is a hash of the rows' keys and ETags, which changes with each write of a row. */
async function copyTable(
  tables: WholeTables,
  table: string,
  folder: string,
): Promise<{ rows: number; sha256: string; keyHash: string }> {
  const file = await open(fileOf(folder, table), "w", FILE_MODE);
  const [content, keys] = [createHash("sha256"), createHash("sha256")];
  let rows = 0;
  try {
    for await (const row of tables.rows(table)) {
      const line = lineOf(row);
      await file.write(line);
      content.update(line);
      keys.update(keyText(row));
      rows++;
    }
  } finally {
    await file.close();
  }
  return { rows, sha256: content.digest("hex"), keyHash: keys.digest("hex") };
}

const keyText = ({ partitionKey, rowKey, etag }: TypedRow): string => JSON.stringify([partitionKey, rowKey, etag]);

async function hashKeys(rows: AsyncIterable<TypedRow>): Promise<string> {
  const hash = createHash("sha256");
  for await (const row of rows) hash.update(keyText(row));
  return hash.digest("hex");
}

/**
 * Reads the manifest of a copy and compares every file with it.
 *
 * @throws {CopyFailed} if the copy is incomplete or changed, or contains a table that this version does not know.
 */
export async function readManifest(folder: string): Promise<Manifest> {
  const text = await readFile(path.join(folder, MANIFEST), "utf8").catch(() => undefined);
  if (text === undefined) throw new CopyFailed(`${folder} has no ${MANIFEST}, so it is not a complete copy.`);
  let manifest: Manifest;
  try {
    manifest = Manifest.parse(JSON.parse(text));
  } catch {
    throw new CopyFailed(`${MANIFEST} was changed, or a later version made this copy.`);
  }
  for (const [table, { rows, sha256 }] of Object.entries(manifest.tables)) {
    if (!TABLE_NAMES.some((name) => name === table))
      throw new CopyFailed(
        `This version has no table ${table}. Restore the copy with the version ${manifest.version}, which made it.`,
      );
    const summary = await summarizeRows(readTable(folder, table)).catch(() => undefined);
    if (summary?.sha256 !== sha256 || summary.rows !== rows)
      throw new CopyFailed(`The file of the table ${table} is missing or differs from ${MANIFEST}. Use another copy.`);
  }
  return manifest;
}

/** Yields the rows of a table's file. */
export async function* readTable(folder: string, table: string): AsyncGenerator<TypedRow, void> {
  // Opens the file first, because readline does not forward the error of a missing file to this loop.
  const file = await open(fileOf(folder, table));
  await file.close();
  for await (const line of createInterface({ input: createReadStream(fileOf(folder, table)), crlfDelay: Infinity })) {
    const [partitionKey, rowKey, columns] = Line.parse(JSON.parse(line));
    // A file has no ETags.
    yield { partitionKey, rowKey, columns, etag: "" };
  }
}

/** Returns the number of rows and the hash that a file with these rows has. */
export async function summarizeRows(table: AsyncIterable<TypedRow>): Promise<{ rows: number; sha256: string }> {
  const hash = createHash("sha256");
  let rows = 0;
  for await (const row of table) {
    hash.update(lineOf(row));
    rows++;
  }
  return { rows, sha256: hash.digest("hex") };
}
