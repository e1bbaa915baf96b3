import * as z from "zod";

/** How a member is kept: in a column of its own type, or as JSON text. */
export interface Member {
  readonly name: string;
  readonly kind: "plain" | "json";
}

declare const row: unique symbol;

/** One kind of row: which table it lives in and the shape that is checked when it is written and when it is read. */
export interface Entity<T> {
  readonly table: string;
  readonly schema: z.ZodObject;
  readonly members: readonly Member[];
  /**
   * True when no two writes of such a row hold the same value. Where one is the first of a transaction, that row alone
   * tells whether a transaction was applied whose answer was lost.
   */
  readonly witness: boolean;
  /**
   * True when its rows are signed (signing.ts): what decides where secrets are sent or which are removed. They are written
   * whole, in `transaction` and not in `write`, and are read whole.
   */
  readonly signed: boolean;
  /** Never set: it carries the type. */
  readonly [row]?: T;
}

export type Row<T> = T & { readonly partitionKey: string; readonly rowKey: string; readonly etag: string };

/** What a row holds, without where it stands and its ETag. */
export function withoutKeys<T extends object>(row: T): Omit<T, "partitionKey" | "rowKey" | "etag"> {
  const { partitionKey: _p, rowKey: _r, etag: _e, ...value } = row as Row<T>;
  return value as Omit<T, "partitionKey" | "rowKey" | "etag">;
}

/** https://learn.microsoft.com/rest/api/storageservices/understanding-the-table-service-data-model#table-names */
const tableName = /^[A-Za-z][A-Za-z0-9]{2,62}$/;
/** Without `_`, so that `<name>_json` and `<name>__1` can't be another member's column. */
const memberName = /^[A-Za-z][A-Za-z0-9]*$/;
/** The service's own properties, and those the SDK takes for them. */
const reserved = new Set(["partitionkey", "rowkey", "timestamp", "etag"]);

/**
 * Declares a kind of row. Several kinds may share a table. Strings, finite numbers, booleans and bytes (`z.instanceof(
 * Uint8Array)`) have columns of their own; every other member is kept as JSON. `null` is kept as absent: declare such a
 * member optional. Transforming schemas don't fit, since what was written is checked again when it is read, and neither do
 * strict and loose ones, since a row's keys and ETag are among what is checked.
 *
 * @throws TypeError for a name the service or the encoding can't take, or a member that JSON would not give back.
 */
export function entity<S extends z.ZodObject>(
  table: string,
  schema: S,
  { witness = false, signed = false }: { witness?: boolean; signed?: boolean } = {},
): Entity<z.infer<S>> {
  if (!tableName.test(table)) throw new TypeError(`${table} is not a table name.`);
  if (schema._zod.def.catchall) throw new TypeError(`${table}: its rows have keys and an ETag beside their members.`);
  const members = Object.entries(schema.shape).map(([name, member]): Member => {
    if (!memberName.test(name) || reserved.has(name.toLowerCase()))
      throw new TypeError(`${table} can't have a member called ${name}.`);
    return { name, kind: kindOf(table, name, member) };
  });
  return { table, schema, members, witness, signed };
}

/** Follows from the schema alone, so that a member never moves between columns when its value changes. */
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
        `${table}.${name}: a ${schema._zod.def.type} can't be kept; use ISO 8601 text, numbers or lists.`,
      );
    default:
      return "json";
  }
}
