import type * as z from "zod";

/** A row that was to be new is there already. */
export class RowExists extends Error {
  override readonly name = "RowExists";
  readonly table: string;
  readonly partitionKey: string;
  readonly rowKey: string;
  /** Where the operation stood in its transaction. */
  readonly index: number;

  constructor(table: string, partitionKey: string, rowKey: string, index = 0) {
    super(`Row ${partitionKey} / ${rowKey} of ${table} exists already (operation ${index}).`);
    this.table = table;
    this.partitionKey = partitionKey;
    this.rowKey = rowKey;
    this.index = index;
  }
}

/** A row is no longer what its ETag says: another writer changed or, where it was to be replaced, removed it. */
export class RowChanged extends Error {
  override readonly name = "RowChanged";
  readonly table: string;
  readonly partitionKey: string;
  readonly rowKey: string;
  /** Where the operation stood in its transaction. */
  readonly index: number;

  constructor(table: string, partitionKey: string, rowKey: string, index = 0) {
    super(`Row ${partitionKey} / ${rowKey} of ${table} was changed by another writer (operation ${index}).`);
    this.table = table;
    this.partitionKey = partitionKey;
    this.rowKey = rowKey;
    this.index = index;
  }
}

/** A row that was to be merged into or removed is not there. */
export class RowMissing extends Error {
  override readonly name = "RowMissing";
  readonly table: string;
  readonly partitionKey: string;
  readonly rowKey: string;
  /** Where the operation stood in its transaction. */
  readonly index: number;

  constructor(table: string, partitionKey: string, rowKey: string, index = 0) {
    super(`Row ${partitionKey} / ${rowKey} of ${table} does not exist (operation ${index}).`);
    this.table = table;
    this.partitionKey = partitionKey;
    this.rowKey = rowKey;
    this.index = index;
  }
}

/** A value that does not fit its entity was to be written: a mistake in this program. Names members, never values. */
export class RowInvalid extends Error {
  override readonly name = "RowInvalid";

  constructor(table: string, key: string, problem: string | readonly z.core.$ZodIssue[]) {
    super(`Row ${key} of ${table} can't be written: ${describe(problem)}.`);
  }
}

/** A stored row does not fit its entity: another program or version wrote it. Names members, never values. */
export class StorageCorrupt extends Error {
  override readonly name = "StorageCorrupt";
  readonly table: string;
  readonly partitionKey: string;
  readonly rowKey: string;
  readonly etag: string;

  constructor(
    table: string,
    { partitionKey, rowKey, etag }: { partitionKey: string; rowKey: string; etag: string },
    problem: string | readonly z.core.$ZodIssue[],
  ) {
    super(`Row ${partitionKey} / ${rowKey} of ${table} can't be read: ${describe(problem)}.`);
    this.table = table;
    this.partitionKey = partitionKey;
    this.rowKey = rowKey;
    this.etag = etag;
  }
}

/** Path and code of each issue. Its message is left out: one written for a `refine` may repeat the value. */
const describe = (problem: string | readonly z.core.$ZodIssue[]) =>
  typeof problem === "string"
    ? problem
    : problem.map((issue) => `${issue.path.map(String).join(".") || "the row"} (${issue.code})`).join(", ");
