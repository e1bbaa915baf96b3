import pMap from "p-map";
import { ASSET_TYPES, Assets } from "../inventory/asset.ts";
import { partitions } from "../inventory/asset-keys.ts";
import { countExpiries } from "../inventory/expiries.ts";
import { expiriesOf, VAULTS, type VaultRecord, Vaults, vaultInSubscriptionKey, vaultKey } from "../inventory/vault.ts";
import type { Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { compareMerged, entriesOf, hashOf } from "./compare.ts";
import { type EvaluatedVault, inspectResults, type NameRange, rangeAfter } from "./compliance.ts";
import { inspectVault } from "./inventory.ts";
import { RECORD_CHECKS, type RecordCheckDeps, runCheck } from "./record-checks.ts";
import type { WalkIdentity } from "./repair-differences.ts";
import { indexRange, readRowOrCorrupt, type SuspectedDifference, suspectedRow } from "./suspected-differences.ts";
import type { Stage } from "./walk-record.ts";

/**
 * The stages of a walk of the reconciliation. Each stage compares rows of different partitions, in steps. It yields the
 * suspected differences of each step with the position after the step.
 *
 * Every asset has rows in three partitions: of its vault, of its subscription, and of all assets. Every vault has its own row
 * and a copy of it under its subscription.
 */

/**
 * Maximum number of vaults inspected in one step. A step ends earlier when its vaults have `ASSETS_PER_STEP` assets, because the
 * names of all these assets are in memory at once.
 */
const VAULTS_PER_STEP = 100;
const ASSETS_PER_STEP = 20_000;
const VAULTS_AT_ONCE = 4;
const PARTITIONS_PER_STEP = 500;
/**
 * Maximum number of rows of all parts of a comparison that are in memory at once. The more parts, the smaller are their pages,
 * from `MAX_PAGE` down to `MIN_PAGE` rows.
 */
const ROWS_IN_MEMORY = 50_000;
const MIN_PAGE = 10;
const MAX_PAGE = 1000;
/** A step of a comparison ends after this number of suspected differences. */
const MAX_SUSPECTED_PER_STEP = 5000;

/** Sorts after the keys of all rows of a partition: the position after a completed partition. */
const AFTER_ALL = "~";

/**
 * A step's result. All rows up to its position (`at` and `after`, see `Position`) are checked once its suspected differences are
 * resolved.
 */
export interface Step {
  readonly at: string;
  readonly after: string;
  readonly suspected: readonly SuspectedDifference[];
  readonly vaults: number;
  readonly rows: number;
  /** Set by steps of the stage `records`, which repair the differences that they find. */
  readonly result?: Awaited<ReturnType<typeof runCheck>>;
  /** Whether it is the stage's last step. */
  readonly ends?: boolean;
}

/**
 * Where a stage continues: after the vault, partition or subscription `at`, or within it after the row key `after`. Both are
 * empty at the start.
 */
export interface Position {
  readonly at: string;
  readonly after: string;
}

/** The vaults of the inventory. */
export interface Directory {
  /** Vaults by lower-case name. */
  readonly vaults: ReadonlyMap<string, { readonly name: string; readonly subscriptionId: string }>;
  /** Vaults whose own row can't be read. Their other rows are not reported as superfluous. */
  readonly unreadable: ReadonlySet<string>;
  /** Names of the vaults by lower-case subscription ID. */
  readonly bySubscription: ReadonlyMap<string, readonly string[]>;
}

/** Reads the vaults of the inventory. Costs one request per 1,000 vaults. */
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
      const names = bySubscription.get(id);
      if (names) names.push(name);
      else bySubscription.set(id, [name]);
    }
  }
  return { vaults, unreadable, bySubscription };
}

/** Dependencies of the stages of a walk. */
export interface StageContext {
  readonly tables: Tables;
  readonly directory: Directory;
  /** Whether compliance results are compared. */
  readonly compliance: boolean;
  /** Maximum number of rows in a step of a comparison. */
  readonly rowsPerStep: number;
  /** Dependencies of the checks of the last stage. */
  readonly checks: RecordCheckDeps;
  readonly walk: WalkIdentity;
  /** Removes fences (rows that order the writes of one vault) of vaults that were removed days ago, in these partitions. */
  readonly removeOldFences: (partitionKeys: readonly string[]) => Promise<unknown>;
}

/** Returns the steps of a stage from a position on. */
export const stepsOf: Record<Stage, (context: StageContext, position: Position) => AsyncGenerator<Step, void>> = {
  vaults: vaultSteps,
  partitions: partitionSteps,
  subscriptions: subscriptionSteps,
  all: allSteps,
  records: recordSteps,
};

/** Compares each vault's row with its copy, its own partition and its results, and finds results of unknown vaults. */
async function* vaultSteps(context: StageContext, { at }: Position): AsyncGenerator<Step, void> {
  const { tables } = context;
  let strayCopies = at === "" ? await findStrayCopies(context) : [];
  const prefix = vaultKey("");
  /** The last vault of the previous step. */
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
      const step = await inspectBatch(context, batch, rangeAfter(last, end), unreadable);
      yield { at: end, after: "", ...step, suspected: [...strayCopies, ...step.suspected] };
      strayCopies = [];
      last = end;
    }
  }
  // The range after the last vault may contain results of vaults that the inventory does not have.
  const end = await inspectBatch(context, [], rangeAfter(last, undefined), unreadable);
  yield { at: last ?? "", after: "", ...end, suspected: [...strayCopies, ...end.suspected], ends: true };
}

/** Returns the copies of vaults' rows that have no vault, or a key that does not belong to their vault. */
async function findStrayCopies({ tables, directory }: StageContext): Promise<SuspectedDifference[]> {
  const suspected: SuspectedDifference[] = [];
  /** Row keys of copies: `s!<subscription>!<vault>`. */
  const prefix = "s!";
  const check = ({ rowKey }: { rowKey: string }) => {
    const vault = rowKey.slice(rowKey.lastIndexOf("!") + 1);
    const existing = directory.vaults.get(vault);
    if (existing && rowKey === vaultInSubscriptionKey(existing.subscriptionId, existing.name)) return;
    if (!directory.unreadable.has(vault)) suspected.push({ about: "copy", vault, key: rowKey });
  };
  const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix), onCorrupt: check };
  for await (const rows of tables.pages(Vaults, { ...range, select: ["name"] })) for (const row of rows) check(row);
  return suspected;
}

/** Splits a page of vaults into batches with a limited number of assets. */
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

/**
 * Inspects a batch of vaults, and the compliance results in a range of names.
 *
 * @param unreadable - Vaults read so far whose own row can't be read. The function adds them to the result and empties the
 *   list.
 */
async function inspectBatch(
  { tables, compliance }: StageContext,
  batch: readonly Row<VaultRecord>[],
  names: NameRange,
  unreadable: string[],
): Promise<Pick<Step, "suspected" | "vaults" | "rows">> {
  const suspected: SuspectedDifference[] = [];
  const skipped = new Set(unreadable);
  for (const vault of unreadable.splice(0)) {
    suspected.push({ about: "vault", vault });
    // The results of a vault are compared with the vault's row, so they are compared after its repair.
    if (compliance) suspected.push({ about: "compliance", vault });
  }
  const inspectedVaults = new Map<string, EvaluatedVault>();
  let rows = 0;
  await pMap(
    batch,
    async (row) => {
      const vault = row.name.toLowerCase();
      // A scan is writing the vault, or has crashed while it did. The next scan completes the write.
      if (row.pending) return skipped.add(vault);
      const inspected = await inspectVault(tables, row);
      inspectedVaults.set(vault, { vault: row, assets: inspected.assets });
      rows += 2 * inspected.assets.size; // each asset has one row by name and one by expiry
      for (const key of inspected.rows) suspected.push(suspectedRow(partitions.vault(row.name), key));
      // For these types of assets, the hash of the list or the expiry dates in the vault's row don't match the assets' rows.
      if (inspected.types.length > 0) suspected.push({ about: "listings", vault });
      const key = vaultInSubscriptionKey(row.subscriptionId, row.name);
      const copy = await readRowOrCorrupt(tables, Vaults, VAULTS, key);
      if (!copy.row || hashOf(copy.row) !== hashOf(row)) suspected.push({ about: "copy", vault, key });
      return undefined;
    },
    { concurrency: VAULTS_AT_ONCE },
  );
  if (compliance) {
    const problems = await inspectResults(tables, names, inspectedVaults, skipped);
    for (const vault of problems.keys()) suspected.push({ about: "compliance", vault });
  }
  return { suspected, vaults: batch.length, rows };
}

/** Finds partitions of vaults and subscriptions that the inventory does not have. All of their rows are superfluous. */
async function* partitionSteps(context: StageContext, { at, after }: Position): AsyncGenerator<Step, void> {
  const { tables } = context;
  let partitionCount = 0;
  // Partitions that may contain fences of removed vaults. The partition of an existing vault has only its own fence.
  let fencePartitions: string[] = [];
  let last = at;
  if (at !== "" && after !== AFTER_ALL) yield* unknownPartitionSteps(context, at, after);
  for await (const partition of tables.partitions(Assets.table, at === "" ? undefined : at)) {
    last = partition;
    if (!isVaultPartition(partition) || isUnknownPartition(context, partition)) fencePartitions.push(partition);
    if (isUnknownPartition(context, partition)) yield* unknownPartitionSteps(context, partition, "");
    if (++partitionCount % PARTITIONS_PER_STEP > 0) continue;
    await context.removeOldFences(fencePartitions);
    fencePartitions = [];
    yield { at: last, after: AFTER_ALL, suspected: [], vaults: 0, rows: 0 };
  }
  await context.removeOldFences(fencePartitions);
  yield { at: last, after: AFTER_ALL, suspected: [], vaults: 0, rows: 0, ends: true };
}

const isVaultPartition = (partition: string): boolean => partition.startsWith(partitions.vault(""));

/** Returns whether it is the partition of a vault or a subscription that the inventory does not have. */
function isUnknownPartition({ directory }: StageContext, partition: string): boolean {
  const id = partition.slice(partition.indexOf(":") + 1);
  if (isVaultPartition(partition)) return !directory.vaults.has(id) && !directory.unreadable.has(id);
  return partition.startsWith(partitions.subscription("")) && !directory.bySubscription.has(id);
}

/** Reports all rows of a partition as superfluous, by comparing it with no parts. */
async function* unknownPartitionSteps(context: StageContext, at: string, after: string): AsyncGenerator<Step, void> {
  for await (const step of comparePartitions(context, at, [], after))
    yield { ...step, at, after: step.ends ? AFTER_ALL : step.after, ends: false };
}

/** Compares each subscription's partition with those of its vaults. */
async function* subscriptionSteps(context: StageContext, { at, after }: Position): AsyncGenerator<Step, void> {
  for (const [id, names] of [...context.directory.bySubscription].sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (id < at || (id === at && after === AFTER_ALL)) continue;
    const from = id === at ? after : "";
    const parts = names.map((name) => partitions.vault(name));
    for await (const step of comparePartitions(context, partitions.subscription(id), parts, from))
      yield { ...step, at: id, after: step.ends ? AFTER_ALL : step.after, ends: false };
  }
  yield { at, after, suspected: [], vaults: 0, rows: 0, ends: true };
}

/** Compares the partition of all assets with those of the subscriptions. */
async function* allSteps(context: StageContext, { after }: Position): AsyncGenerator<Step, void> {
  const parts = [...context.directory.bySubscription.keys()].map((id) => partitions.subscription(id));
  for await (const step of comparePartitions(context, partitions.all, parts, after)) yield { ...step, at: "" };
}

/** Runs the checks outside of the inventory, one in each step. `at` is the name of the last completed check. */
async function* recordSteps({ checks, directory, walk }: StageContext, { at }: Position): AsyncGenerator<Step, void> {
  const remaining = RECORD_CHECKS.slice(RECORD_CHECKS.findIndex(({ name }) => name === at) + 1);
  for (const check of remaining) {
    const result = await runCheck(check, { ...checks, directory, walk });
    const ends = check === remaining.at(-1);
    yield { at: check.name, after: "", suspected: [], vaults: 0, rows: result.rows, result, ends };
  }
}

/** Compares a combined partition with its parts, and yields the suspected differences in steps. */
async function* comparePartitions(
  { tables, rowsPerStep }: StageContext,
  whole: string,
  parts: readonly string[],
  after: string,
): AsyncGenerator<Omit<Step, "at">, void> {
  const pageSize = Math.min(MAX_PAGE, Math.max(MIN_PAGE, Math.floor(ROWS_IN_MEMORY / Math.max(1, parts.length))));
  const stream = (partition: string, size: number) =>
    entriesOf(tables, Assets, { ...indexRange(partition), ...(after === "" ? {} : { after }), pageSize: size });
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
    if (rows < rowsPerStep && suspected.length < MAX_SUSPECTED_PER_STEP) continue;
    yield { after: last, suspected, vaults: 0, rows };
    suspected = [];
    rows = 0;
  }
  yield { after: last, suspected, vaults: 0, rows, ends: true };
}
