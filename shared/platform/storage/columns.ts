import * as z from "zod";
import { type Entity, type Member, type Row, withoutKeys } from "./entity.ts";
import { RowInvalid, StorageCorrupt } from "./errors.ts";
import { keyProblem } from "./keys.ts";
import { MAX_BINARY_BYTES, MAX_ENTITY_BYTES, MAX_PROPERTIES, MAX_TEXT_UNITS } from "./limits.ts";

/**
 * Properties of a row in the wire format, with `<name>@odata.type` for the types that JSON can't express. Every number is a
 * Double, so that a column's type does not depend on whether a value has a fraction or more than 32 bits.
 * https://learn.microsoft.com/rest/api/storageservices/payload-format-for-table-service-operations
 */
export type Columns = Record<string, string | number | boolean>;

/** A row as read from the service, before decoding and validation. */
export type StoredRow = Record<string, unknown>;

const typeSuffix = "@odata.type";

/**
 * Returns the value as parsed by its schema, without the row's keys and ETag.
 *
 * @throws RowInvalid if the value does not match the schema.
 */
export function validate<T>(e: Entity<T>, rowKey: string, value: T): T {
  const result = e.schema.safeParse(value);
  if (!result.success) throw new RowInvalid(e.table, rowKey, result.error.issues);
  return result.data as T;
}

/**
 * Validates the members that a merge sets.
 *
 * @throws RowInvalid also for a null or undefined member: the service ignores nulls in a merge, so a merge can't clear a
 * member.
 */
export function validatePart<T>(e: Entity<T>, rowKey: string, part: Partial<T>): Partial<T> {
  const given: Record<string, unknown> = withoutKeys(part);
  const checked: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(given)) {
    const schema = e.schema.shape[name];
    if (schema === undefined) throw new RowInvalid(e.table, rowKey, `it has no member ${name}`);
    if (value === undefined || value === null) throw new RowInvalid(e.table, rowKey, `a merge can't clear ${name}`);
    const result = z.safeParse(schema, value);
    if (!result.success)
      throw new RowInvalid(
        e.table,
        rowKey,
        result.error.issues.map((issue) => ({ ...issue, path: [name, ...issue.path] })),
      );
    checked[name] = result.data;
  }
  return checked as Partial<T>;
}

/** Encodes a validated value as columns, in the wire format. */
export function encode(members: readonly Member[], value: object): Columns {
  const columns: Columns = {};
  for (const { name, kind } of members) {
    const member = (value as Record<string, unknown>)[name];
    if (member === undefined || member === null) continue;
    if (kind === "json") putText(columns, `${name}_json`, JSON.stringify(member));
    else if (typeof member === "string") putText(columns, name, member);
    else if (typeof member === "number") {
      columns[name] = member;
      columns[name + typeSuffix] = "Edm.Double";
    } else if (typeof member === "boolean") columns[name] = member;
    else putBytes(columns, name, member as Uint8Array);
  }
  return columns;
}

// A text that is too long for one column continues in `<name>__1`, `<name>__2`, … After a piece of full length there is always
// another piece, which may be empty. So the last piece is recognized by its length, and pieces that remain from a longer text
// after a merge are never read.
// A full text piece can be one unit shorter, because a surrogate pair stays in one piece.
const isFullText = (piece: string) => piece.length >= MAX_TEXT_UNITS - 1;
const isFullBytes = (piece: Uint8Array) => piece.length >= MAX_BINARY_BYTES;
const pieceName = (column: string, index: number) => (index === 0 ? column : `${column}__${index}`);

function putText(columns: Columns, column: string, text: string): void {
  for (let index = 0, start = 0; ; index++) {
    let end = start + MAX_TEXT_UNITS;
    const lastUnit = text.charCodeAt(end - 1);
    if (lastUnit >= 0xd800 && lastUnit <= 0xdbff) end--; // keep a surrogate pair in one piece
    const piece = text.slice(start, end);
    columns[pieceName(column, index)] = piece;
    if (!isFullText(piece)) return;
    start = end;
  }
}

function putBytes(columns: Columns, column: string, bytes: Uint8Array): void {
  for (let index = 0, start = 0; ; index++, start += MAX_BINARY_BYTES) {
    const piece = bytes.subarray(start, start + MAX_BINARY_BYTES);
    const name = pieceName(column, index);
    columns[name] = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength).toString("base64");
    columns[name + typeSuffix] = "Edm.Binary";
    if (!isFullBytes(piece)) return;
  }
}

/** Returns the column that holds a member, or the first piece of a long member. */
export const columnOf = ({ name, kind }: Member): string => (kind === "json" ? `${name}_json` : name);

/** Returns whether a member continues in a column that was not read. */
export function isTruncated(members: readonly Member[], stored: StoredRow): boolean {
  return members.some((member) => {
    const column = columnOf(member);
    const first = stored[column];
    const full = typeof first === "string" ? isFullText(first) : first instanceof Uint8Array && isFullBytes(first);
    return full && stored[pieceName(column, 1)] === undefined;
  });
}

/**
 * Decodes and validates a stored row.
 *
 * @throws StorageCorrupt if the row does not match the schema.
 */
export function decode<T>(table: string, schema: z.ZodObject, members: readonly Member[], stored: StoredRow): Row<T> {
  const keys = {
    partitionKey: stored.partitionKey as string,
    rowKey: stored.rowKey as string,
    etag: stored.etag as string,
  };
  const value: Record<string, unknown> = {};
  for (const member of members) {
    const column = readColumn(stored, columnOf(member));
    if (column === undefined || column === null) continue;
    if (member.kind === "plain") value[member.name] = column;
    else {
      try {
        value[member.name] = JSON.parse(column as string);
      } catch {
        // The parser's message is dropped because it repeats a part of the text.
        throw new StorageCorrupt(table, keys, `${member.name} (broken JSON)`);
      }
    }
  }
  const result = schema.safeParse(value);
  if (!result.success) throw new StorageCorrupt(table, keys, result.error.issues);
  return Object.assign(result.data, keys) as Row<T>;
}

function readColumn(stored: StoredRow, column: string): unknown {
  const first = stored[column];
  if (typeof first === "string" && isFullText(first)) {
    let text = first;
    for (let index = 1, piece = first; isFullText(piece); index++) {
      const next = stored[pieceName(column, index)];
      if (typeof next !== "string") return undefined; // `putText` did not write this. The schema error names the member.
      text += next;
      piece = next;
    }
    return text;
  }
  if (first instanceof Uint8Array && isFullBytes(first)) {
    const pieces = [first];
    for (let index = 1, piece = first; isFullBytes(piece); index++) {
      const next = stored[pieceName(column, index)];
      if (!(next instanceof Uint8Array)) return undefined;
      pieces.push(next);
      piece = next;
    }
    return Buffer.concat(pieces);
  }
  return first;
}

/** @throws RowInvalid if the keys, the number of properties or the size exceed the limits of the service. */
export function checkLimits(table: string, partitionKey: string, rowKey: string, columns: Columns): void {
  const key = `${partitionKey} / ${rowKey}`;
  const problem = keyProblem(partitionKey) ?? keyProblem(rowKey);
  if (problem !== undefined) throw new RowInvalid(table, key, problem);
  const size = sizeOf(columns);
  const bytes = size.bytes + 4 + 2 * (partitionKey.length + rowKey.length);
  if (size.properties > MAX_PROPERTIES)
    throw new RowInvalid(table, key, `${size.properties} properties are more than ${MAX_PROPERTIES}`);
  if (bytes > MAX_ENTITY_BYTES) throw new RowInvalid(table, key, `${bytes} bytes are more than ${MAX_ENTITY_BYTES}`);
}

interface Size {
  properties: number;
  /** Excludes the keys. */
  bytes: number;
}

/** Sizes by columns object, so that columns shared by several rows are measured once. Columns are never mutated. */
const sizes = new WeakMap<Columns, Size>();

/**
 * Computes the size as the service does:
 * https://learn.microsoft.com/archive/blogs/avkashchauhan/how-the-size-of-an-entity-is-caclulated-in-windows-azure-table-storage
 */
function sizeOf(columns: Columns): Size {
  const cachedSize = sizes.get(columns);
  if (cachedSize !== undefined) return cachedSize;
  const size = { properties: 0, bytes: 0 };
  for (const name in columns) {
    const value = columns[name]!;
    if (name.endsWith(typeSuffix)) {
      if (value !== "Edm.Binary") continue;
      // The column comes before its type and was counted as base64 text.
      const bytes = columns[name.slice(0, -typeSuffix.length)] as string;
      size.bytes += Buffer.byteLength(bytes, "base64") - 2 * bytes.length;
      continue;
    }
    size.properties++;
    size.bytes += 8 + 2 * name.length;
    if (typeof value === "boolean") size.bytes += 1;
    else if (typeof value === "number") size.bytes += 8;
    else size.bytes += 4 + 2 * value.length;
  }
  sizes.set(columns, size);
  return size;
}
