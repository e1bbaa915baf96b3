/** A row as Azurite keeps it. */
interface Row {
  readonly PartitionKey: string;
  readonly RowKey: string;
}

/** What is used of a collection of lokijs. */
interface Collection {
  readonly data: readonly Row[];
  binaryIndices: object;
  findOne(keys: Row): Row | null;
  on(event: "insert" | "update" | "delete", listener: (row: Row) => void): void;
}

interface Rows {
  where(matches: (row: Row) => boolean): Rows;
  sort(order: (one: Row, other: Row) => number): Rows;
  limit(count: number): Rows;
  data(): Row[];
}

/** What is used of Azurite's `LokiTableMetadataStore`. */
interface Store {
  getEntityCollection(account: string, table: string, context: unknown): Collection;
  queryTableEntities(context: unknown, account: string, table: string, query: Query, ...place: unknown[]): unknown;
}
interface Query {
  readonly filter?: string;
}

/**
 * Lets Azurite find rows by their keys, as the service does. Its own store looks at every row of a table for every query,
 * and at those of equal row key for every write. What it answers is the same: it still holds its filter against what is
 * found here.
 */
export function findRowsByKeys({ prototype: store }: { prototype: Store }): void {
  const tables = new WeakMap<Collection, Map<string, Map<string, Row>>>();
  const { getEntityCollection, queryTableEntities } = store;

  store.getEntityCollection = function (...of) {
    const collection = getEntityCollection.apply(this, of);
    if (!tables.has(collection)) tables.set(collection, byKeys(collection));
    return collection;
  };

  store.queryTableEntities = function (context, account, table, query, ...place) {
    const range = RANGE.exec(query.filter ?? "");
    if (!range) return queryTableEntities.call(this, context, account, table, query, ...place);
    const [, partition, lower, first, upper, last] = range.map((part) => part?.replaceAll("''", "'"));
    const rows = tables.get(this.getEntityCollection(account, table, context))!.get(partition!);
    const found = [...(rows?.values() ?? [])].filter(
      ({ RowKey: key }) =>
        (first === undefined || (lower === "ge" ? key >= first : key > first)) &&
        (last === undefined || (upper === "le" ? key <= last : key < last)),
    );
    const narrowed = Object.create(this, { getEntityCollection: { value: () => ({ chain: () => chain(found) }) } });
    return queryTableEntities.call(narrowed, context, account, table, query, ...place);
  };
}

/** One partition, and at most one range of row keys. */
const RANGE =
  /^PartitionKey eq '((?:[^']|'')*)'(?: and RowKey (g[et]) '((?:[^']|'')*)')?(?: and RowKey (l[et]) '((?:[^']|'')*)')?$/;

/** The rows by partition and row key, kept up with the collection; its own indexes, which nothing needs then, are dropped. */
function byKeys(collection: Collection): Map<string, Map<string, Row>> {
  const partitions = new Map<string, Map<string, Row>>();
  const keep = (row: Row) => {
    const rows = partitions.get(row.PartitionKey);
    if (rows) rows.set(row.RowKey, row);
    else partitions.set(row.PartitionKey, new Map([[row.RowKey, row]]));
  };
  for (const row of collection.data) keep(row);
  collection.on("insert", keep);
  collection.on("update", keep);
  collection.on("delete", ({ PartitionKey, RowKey }) => partitions.get(PartitionKey)?.delete(RowKey));
  collection.findOne = ({ PartitionKey, RowKey }) => partitions.get(PartitionKey)?.get(RowKey) ?? null;
  collection.binaryIndices = {};
  return partitions;
}

/** Of the chains of lokijs what Azurite asks of one. */
const chain = (rows: Row[]): Rows => ({
  where: (matches) => chain(rows.filter(matches)),
  sort: (order) => chain(rows.toSorted(order)),
  limit: (count) => chain(rows.slice(0, count)),
  data: () => rows,
});
