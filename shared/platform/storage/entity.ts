import * as z from "zod";

/** How a member is stored: in a column of its own type, or as JSON text. */
export interface Member {
  readonly name: string;
  readonly kind: "plain" | "json";
}

declare const row: unique symbol;

/** A kind of row: its table and its schema, which is validated on write and on read. */
export interface Entity<T> {
  readonly table: string;
  readonly schema: z.ZodObject;
  readonly members: readonly Member[];
  /**
   * True if no two writes of such a row have the same value. If the first operation of a transaction writes such a row, that
   * row alone shows whether a transaction with a lost answer was applied.
   */
  readonly uniqueWrites: boolean;
  /**
   * True if the rows are signed (signing.ts), because they decide where secrets are sent or which secrets are removed. Signed
   * rows are written whole, with `transaction` instead of `write`, and are read whole. `withKeyVault`: signed and verified only
   * if the service has its own key vault, because a service without one needs these rows too. `adopted`: the same, and rows that
   * an earlier version wrote without a signature are accepted until they are signed.
   */
  readonly signed: boolean | "withKeyVault" | "adopted";
  /**
   * True if the signed rows are also in their partition's list (row-lists.ts), so that three changes by another program are
   * detected: to an older state of a row, a removal, and a removed row that is put back. Not for rows that change often.
   */
  readonly listed: boolean;
  /** Not set at run time. Makes the type `T` part of the entity's type. */
  readonly [row]?: T;
}

/** A stored value with the keys and the ETag of its row. */
export type Row<T> = T & { readonly partitionKey: string; readonly rowKey: string; readonly etag: string };

/** Returns a row's value without its keys and ETag. */
export function withoutKeys<T extends object>(row: T): Omit<T, "partitionKey" | "rowKey" | "etag"> {
  const { partitionKey: _p, rowKey: _r, etag: _e, ...value } = row as Row<T>;
  return value as Omit<T, "partitionKey" | "rowKey" | "etag">;
}

/** https://learn.microsoft.com/rest/api/storageservices/understanding-the-table-service-data-model#table-names */
const tableName = /^[A-Za-z][A-Za-z0-9]{2,62}$/;
/** Excludes `_`, so that `<name>_json` and `<name>__1` can't collide with another member's column. */
const memberName = /^[A-Za-z][A-Za-z0-9]*$/;
/** Properties of the service, and the SDK's names for them. */
const reserved = new Set(["partitionkey", "rowkey", "timestamp", "etag"]);

/**
 * Declares a kind of row. Several kinds can share a table.
 *
 * Strings, finite numbers, booleans and bytes (`z.instanceof(Uint8Array)`) have columns of their own. Other members are stored
 * as JSON. `null` is stored as absent, so declare such a member optional. Schemas that transform are rejected, because stored
 * values are validated again on read. Strict and loose schemas are rejected, because the validated object also has the row's
 * keys and ETag.
 *
 * @throws TypeError for a name that the service or the encoding can't represent, or a member that JSON can't restore.
 */
export function entity<S extends z.ZodObject>(
  table: string,
  schema: S,
  {
    uniqueWrites = false,
    signed = false,
    listed = false,
  }: { uniqueWrites?: boolean; signed?: Entity<unknown>["signed"]; listed?: boolean } = {},
): Entity<z.infer<S>> {
  if (!tableName.test(table)) throw new TypeError(`${table} is not a table name.`);
  if (schema._zod.def.catchall) throw new TypeError(`${table}: its rows have keys and an ETag beside their members.`);
  const members = Object.entries(schema.shape).map(([name, member]): Member => {
    if (!memberName.test(name) || reserved.has(name.toLowerCase()))
      throw new TypeError(`${table} can't have a member called ${name}.`);
    return { name, kind: kindOf(table, name, member) };
  });
  return { table, schema, members, uniqueWrites, signed, listed };
}

/**
 * Declares a member of bytes that are checked on each read and write. A row with other bytes can't be read, like a row with a
 * value of another type.
 */
export function bytesMember(isValid: (bytes: Uint8Array) => boolean) {
  const member = z.custom<Uint8Array<ArrayBuffer>>((value) => value instanceof Uint8Array && isValid(value));
  member._zod.bag.Class = Uint8Array; // as in z.instanceof, for `kindOf`
  return member;
}

/** Returns the entity without its members. With it, every row of the table can be read, whatever its content. */
export const keysOnly = ({ table }: Pick<Entity<unknown>, "table">): Entity<object> => entity(table, z.object({}));

/**
 * Returns how a member is stored. Depends on the schema alone, so that a member never moves between columns when its value
 * changes.
 */
function kindOf(table: string, name: string, schema: z.core.$ZodType): Member["kind"] {
  if (
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodNullable ||
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodReadonly
  )
    return kindOf(table, name, schema._zod.def.innerType);
  if (schema instanceof z.ZodUnion)
    return schema._zod.def.options.every((option) => kindOf(table, name, option) === "plain") ? "plain" : "json";
  switch (schema._zod.def.type) {
    case "string":
    case "number":
    case "boolean":
    case "enum":
    case "literal":
    case "template_literal":
      return "plain";
    case "custom":
      return schema._zod.bag?.Class === Uint8Array ? "plain" : "json";
    case "date":
    case "bigint":
    case "map":
    case "set":
    case "transform":
    case "pipe":
      throw new TypeError(
        `${table}.${name}: a ${schema._zod.def.type} can't be stored. Use ISO 8601 text, numbers or lists.`,
      );
    default:
      return "json";
  }
}
