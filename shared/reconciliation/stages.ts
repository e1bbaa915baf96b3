import pMap from "p-map";
import { ASSET_TYPES, Assets } from "../inventory/asset.ts";
import { partitions } from "../inventory/asset-keys.ts";
import { countExpiries } from "../inventory/expiries.ts";
import { expiriesOf, VAULTS, type VaultRecord, Vaults, vaultInSubscriptionKey, vaultKey } from "../inventory/vault.ts";
import type { Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Range, Tables } from "../platform/storage/tables.ts";
import { compareMerged, type Entry, entriesOf, hashOf } from "./compare.ts";
import { type EvaluatedVault, inspectResults, type NameRange, rangeBehind } from "./compliance.ts";
import { inspectVault } from "./inventory.ts";
import {
  indexRange,
  isIndexKey,
  readRowOrCorrupt,
  type SuspectedDifference,
  suspectedRow,
} from "./suspected-differences.ts";
import type { Stage } from "./walk-record.ts";

/** Vaults inspected together. Fewer if they have many assets, because their names are in memory at once. */
const VAULTS_PER_STEP = 100;
const ASSETS_PER_STEP = 20_000;
const VAULTS_AT_ONCE = 4;
const PARTITIONS_PER_STEP = 500;
/** Rows of all parts of a comparison in memory at once. Each part has at least the smaller page. */
const ROWS_IN_MEMORY = 50_000;
const MIN_PAGE = 10;
const MAX_PAGE = 1000;
/** A step of a comparison ends after this number of suspected differences. */
const DOUBTS_PER_STEP = 5000;

/** Sorts after every index row of a partition. */
const BEHIND_ALL = "~";

/** A step's result. Everything up to its position is checked once its suspected differences are resolved. */
export interface Step {
  readonly at: string;
  readonly after: string;
  readonly suspected: readonly SuspectedDifference[];
  readonly vaults: number;
  readonly rows: number;
  /** Whether it is the stage's last step. */
  readonly ends?: boolean;
}

/** Where a stage continues. Both are empty at its start. */
export interface Position {
  readonly at: string;
  readonly after: string;
}

/** The inventory's vaults by lower-case name, from one reading. */
export interface Directory {
  readonly vaults: ReadonlyMap<string, { readonly name: string; readonly subscriptionId: string }>;
  /** Vaults whose row can't be read. They are neither known nor unknown. */
  readonly unreadable: ReadonlySet<string>;
  /** Their names by lower-case subscription ID. */
  readonly bySubscription: ReadonlyMap<string, readonly string[]>;
}

/** One request per 1,000 vaults. */
export async function readDirectory(tables: Tables): Promise<Directory> {
  const vaults = new Map<string, { name: string; subscriptionId: string }>();
  const unreadable = new Set<string>();
  const bySubscription = new Map<string, string[]>();
  const prefix = vaultKey("");
  const onCorrupt = ({ rowKey }: { rowKey: string }) => unreadable.add(rowKey.slice(prefix.length));
  const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix), onCorrupt };
  for await (const rows of tables.pages(Vaults, { ...range, select: ["name", "subscriptionId"] })) {
    for (const { rowKey, name, subscriptionId } of rows) {
      const id = subscriptionId.toLowerCase();
      vaults.set(rowKey.slice(prefix.length), { name, subscriptionId: id });
      const others = bySubscription.get(id);
      if (others) others.push(name);
      else bySubscription.set(id, [name]);
    }
  }
  return { vaults, unreadable, bySubscription };
}

export interface StageContext {
  readonly tables: Tables;
  readonly directory: Directory;
  /** Whether compliance results are compared. */
  readonly compliance: boolean;
  /** Maximum number of rows in a step of a comparison. */
  readonly rowsPerStep: number;
  /** Removes fences in these partitions whose vaults were removed days ago. */
  readonly removeOldFences: (partitionKeys: readonly string[]) => Promise<unknown>;
}

/** Returns the steps of a stage from a position on. */
export const stepsOf: Record<Stage, (context: StageContext, position: Position) => AsyncGenerator<Step, void>> = {
  vaults: vaultSteps,
  partitions: partitionSteps,
  subscriptions: subscriptionSteps,
  all: allSteps,
};

/** Compares each vault's row with its copy, its own partition and its results, and finds results of unknown vaults. */
async function* vaultSteps(context: StageContext, { at }: Position): AsyncGenerator<Step, void> {
  const { tables } = context;
  let stray = at === "" ? await strayCopies(context) : [];
  const prefix = vaultKey("");
  let last: string | undefined = at === "" ? undefined : at;
  const unreadable: string[] = [];
  const onCorrupt = ({ rowKey }: { rowKey: string }) => unreadable.push(rowKey.slice(prefix.length));
  const range = { partitionKey: VAULTS, before: keyEnd(prefix), pageSize: VAULTS_PER_STEP, onCorrupt };
  const pages = tables.pages(
    Vaults,
    last === undefined ? { ...range, from: prefix } : { ...range, after: vaultKey(last) },
  );
  for await (const page of pages) {
    for (const batch of batchesOf(page)) {
      const end = batch.at(-1)!.rowKey.slice(prefix.length);
      const step = await inspectBatch(context, batch, rangeBehind(last, end), unreadable);
      yield { at: end, after: "", ...step, suspected: [...stray, ...step.suspected] };
      stray = [];
      last = end;
    }
  }
  const rest = await inspectBatch(context, [], rangeBehind(last, undefined), unreadable);
  yield { at: last ?? "", after: "", ...rest, suspected: [...stray, ...rest.suspected], ends: true };
}

/** Returns copies without a vault's row. */
async function strayCopies({ tables, directory }: StageContext): Promise<SuspectedDifference[]> {
  const suspected: SuspectedDifference[] = [];
  const prefix = "s!";
  const check = ({ rowKey }: { rowKey: string }) => {
    const vault = rowKey.slice(rowKey.lastIndexOf("!") + 1);
    const known = directory.vaults.get(vault);
    if (known && rowKey === vaultInSubscriptionKey(known.subscriptionId, known.name)) return;
    if (!directory.unreadable.has(vault)) suspected.push({ about: "copy", vault, key: rowKey });
  };
  const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix), onCorrupt: check };
  for await (const rows of tables.pages(Vaults, { ...range, select: ["name"] })) for (const row of rows) check(row);
  return suspected;
}

function* batchesOf(vaults: readonly Row<VaultRecord>[]): Generator<Row<VaultRecord>[]> {
  let batch: Row<VaultRecord>[] = [];
  let assets = 0;
  for (const vault of vaults) {
    batch.push(vault);
    for (const type of ASSET_TYPES) assets += countExpiries(expiriesOf(vault, type));
    if (assets < ASSETS_PER_STEP) continue;
    yield batch;
    batch = [];
    assets = 0;
  }
  if (batch.length > 0) yield batch;
}

/** `unreadable`: vaults passed so far whose own row can't be read. Each is suspected once and then removed from this list. */
async function inspectBatch(
  { tables, compliance }: StageContext,
  batch: readonly Row<VaultRecord>[],
  names: NameRange,
  unreadable: string[],
): Promise<Pick<Step, "suspected" | "vaults" | "rows">> {
  const suspected: SuspectedDifference[] = [];
  const left = new Set(unreadable);
  for (const vault of unreadable.splice(0)) suspected.push({ about: "vault", vault });
  const known = new Map<string, EvaluatedVault>();
  let rows = 0;
  await pMap(
    batch,
    async (row) => {
      const vault = row.name.toLowerCase();
      // A scan is writing the vault, or one crashed. The next scan continues there.
      if (row.pending) return left.add(vault);
      const inspected = await inspectVault(tables, row);
      known.set(vault, { vault: row, assets: inspected.assets });
      rows += 2 * inspected.assets.size;
      for (const key of inspected.rows) suspected.push(suspectedRow(partitions.vault(row.name), key));
      if (inspected.types.length > 0) suspected.push({ about: "listings", vault });
      const key = vaultInSubscriptionKey(row.subscriptionId, row.name);
      const copy = await readRowOrCorrupt(tables, Vaults, VAULTS, key);
      if (!copy.row || hashOf(copy.row) !== hashOf(row)) suspected.push({ about: "copy", vault, key });
      return undefined;
    },
    { concurrency: VAULTS_AT_ONCE },
  );
  if (compliance) {
    const wrong = await inspectResults(tables, names, known, left);
    for (const vault of wrong.keys()) suspected.push({ about: "compliance", vault });
  }
  return { suspected, vaults: batch.length, rows };
}

/** Finds partitions of vaults and subscriptions that the inventory does not have. All of their rows are superfluous. */
async function* partitionSteps(context: StageContext, { at, after }: Position): AsyncGenerator<Step, void> {
  const { tables } = context;
  let passed = 0;
  // Partitions that may contain fences of removed vaults. A known vault's own partition has only its own fence.
  let fenced: string[] = [];
  let last = at;
  if (at !== "" && after !== BEHIND_ALL) yield* strangerSteps(context, at, after);
  for await (const partition of tables.partitions(Assets.table, at === "" ? undefined : at)) {
    last = partition;
    if (!isVaultPartition(partition) || isStranger(context, partition)) fenced.push(partition);
    if (isStranger(context, partition)) yield* strangerSteps(context, partition, "");
    if (++passed % PARTITIONS_PER_STEP > 0) continue;
    await context.removeOldFences(fenced);
    fenced = [];
    yield { at: last, after: BEHIND_ALL, suspected: [], vaults: 0, rows: 0 };
  }
  await context.removeOldFences(fenced);
  yield { at: last, after: BEHIND_ALL, suspected: [], vaults: 0, rows: 0, ends: true };
}

const isVaultPartition = (partition: string): boolean => partition.startsWith(partitions.vault(""));

/** Returns whether it is the partition of a vault or a subscription that the inventory does not have. */
function isStranger({ directory }: StageContext, partition: string): boolean {
  const id = partition.slice(partition.indexOf(":") + 1);
  if (isVaultPartition(partition)) return !directory.vaults.has(id) && !directory.unreadable.has(id);
  return partition.startsWith(partitions.subscription("")) && !directory.bySubscription.has(id);
}

async function* strangerSteps(context: StageContext, at: string, after: string): AsyncGenerator<Step, void> {
  for await (const step of comparison(context, at, [], after))
    yield { ...step, at, after: step.ends ? BEHIND_ALL : step.after, ends: false };
}

/** Compares each subscription's partition with those of its vaults. */
async function* subscriptionSteps(context: StageContext, { at, after }: Position): AsyncGenerator<Step, void> {
  for (const [id, names] of [...context.directory.bySubscription].sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (id < at || (id === at && after === BEHIND_ALL)) continue;
    const from = id === at ? after : "";
    const parts = names.map((name) => partitions.vault(name));
    for await (const step of comparison(context, partitions.subscription(id), parts, from))
      yield { ...step, at: id, after: step.ends ? BEHIND_ALL : step.after, ends: false };
  }
  yield { at, after, suspected: [], vaults: 0, rows: 0, ends: true };
}

/** Compares the partition of all assets with those of the subscriptions. */
async function* allSteps(context: StageContext, { after }: Position): AsyncGenerator<Step, void> {
  const parts = [...context.directory.bySubscription.keys()].map((id) => partitions.subscription(id));
  for await (const step of comparison(context, partitions.all, parts, after)) yield { ...step, at: "" };
}

async function* comparison(
  { tables, rowsPerStep }: StageContext,
  whole: string,
  parts: readonly string[],
  after: string,
): AsyncGenerator<Omit<Step, "at">, void> {
  const pageSize = Math.min(MAX_PAGE, Math.max(MIN_PAGE, Math.floor(ROWS_IN_MEMORY / Math.max(1, parts.length))));
  const stream = (partition: string, size: number) =>
    indexEntries(tables, { ...indexRange(partition), ...(after === "" ? {} : { after }), pageSize: size });
  let suspected: SuspectedDifference[] = [];
  let rows = 0;
  let last = after;
  const compared = compareMerged(
    stream(whole, MAX_PAGE),
    parts.map((part) => stream(part, pageSize)),
  );
  for await (const { key, difference } of compared) {
    rows++;
    last = key;
    if (difference !== undefined) suspected.push(suspectedRow(whole, key));
    if (rows < rowsPerStep && suspected.length < DOUBTS_PER_STEP) continue;
    yield { after: last, suspected, vaults: 0, rows };
    suspected = [];
    rows = 0;
  }
  yield { after: last, suspected, vaults: 0, rows, ends: true };
}

async function* indexEntries(tables: Tables, range: Range): AsyncGenerator<Entry, void> {
  for await (const entry of entriesOf(tables, Assets, range)) if (isIndexKey(entry.key)) yield entry;
}
