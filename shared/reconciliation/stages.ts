import pMap from "p-map";
import { ASSET_TYPES, Assets } from "../inventory/asset.ts";
import { countExpiries } from "../inventory/expiries.ts";
import { partitions } from "../inventory/asset-keys.ts";
import { expiriesOf, VAULTS, type VaultRecord, Vaults, vaultInSubscriptionKey, vaultKey } from "../inventory/vault.ts";
import type { Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Range, Tables } from "../platform/storage/tables.ts";
import { compareMerged, type Entry, entriesOf, hashOf } from "./compare.ts";
import { type EvaluatedVault, inspectResults, type NameRange, rangeBehind } from "./compliance.ts";
import { type Doubt, indexRange, isIndexKey, readStanding, rowDoubt } from "./doubt.ts";
import { inspectVault } from "./inventory.ts";
import type { Stage } from "./walk.ts";

/** Vaults inspected together, or fewer with so many assets: their names are in memory at once. */
const VAULTS_PER_STEP = 100;
const ASSETS_PER_STEP = 20_000;
const VAULTS_AT_ONCE = 4;
const PARTITIONS_PER_STEP = 500;
/** Rows of all parts of a comparison in memory at once; each part has at least the smaller page. */
const ROWS_IN_MEMORY = 50_000;
const MIN_PAGE = 10;
const MAX_PAGE = 1000;
/** A step of a comparison ends after so many doubts. */
const DOUBTS_PER_STEP = 5000;

/** Sorts behind every index row of a partition. */
const BEHIND_ALL = "~";

/** Everything up to a position has been looked at once its step's doubts are settled. */
export interface Step {
  readonly at: string;
  readonly after: string;
  readonly doubts: readonly Doubt[];
  readonly vaults: number;
  readonly rows: number;
  /** The stage's last step. */
  readonly ends?: boolean;
}

/** Where a stage goes on. Both are empty at its beginning. */
export interface Position {
  readonly at: string;
  readonly after: string;
}

/** The inventory's vaults by lower-cased name, as one reading found them. */
export interface Directory {
  readonly vaults: ReadonlyMap<string, { readonly name: string; readonly subscriptionId: string }>;
  /** Vaults whose row can't be read: they are neither known nor unknown. */
  readonly unreadable: ReadonlySet<string>;
  /** Their names by lower-cased subscription id. */
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
  /** Whether results of compliance are looked at. */
  readonly compliance: boolean;
  /** A step of a comparison ends after so many rows. */
  readonly rowsPerStep: number;
  /** Removes fences in these partitions that vaults left days ago. */
  readonly removeOldFences: (partitionKeys: readonly string[]) => Promise<unknown>;
}

/** The steps of a stage from a position on. */
export const stepsOf: Record<Stage, (context: StageContext, position: Position) => AsyncGenerator<Step, void>> = {
  vaults: vaultSteps,
  partitions: partitionSteps,
  subscriptions: subscriptionSteps,
  all: allSteps,
};

/** Each vault's row against its copy, its own partition and its results; and rows of results of vaults nobody knows. */
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
      yield { at: end, after: "", ...step, doubts: [...stray, ...step.doubts] };
      stray = [];
      last = end;
    }
  }
  const rest = await inspectBatch(context, [], rangeBehind(last, undefined), unreadable);
  yield { at: last ?? "", after: "", ...rest, doubts: [...stray, ...rest.doubts], ends: true };
}

/** Copies that no vault's row stands behind. */
async function strayCopies({ tables, directory }: StageContext): Promise<Doubt[]> {
  const doubts: Doubt[] = [];
  const prefix = "s!";
  const check = ({ rowKey }: { rowKey: string }) => {
    const vault = rowKey.slice(rowKey.lastIndexOf("!") + 1);
    const known = directory.vaults.get(vault);
    if (known && rowKey === vaultInSubscriptionKey(known.subscriptionId, known.name)) return;
    if (!directory.unreadable.has(vault)) doubts.push({ about: "copy", vault, key: rowKey });
  };
  const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix), onCorrupt: check };
  for await (const rows of tables.pages(Vaults, { ...range, select: ["name"] })) for (const row of rows) check(row);
  return doubts;
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

/** `unreadable`: vaults passed by so far whose own row can't be read; those are doubted once and forgotten here. */
async function inspectBatch(
  { tables, compliance }: StageContext,
  batch: readonly Row<VaultRecord>[],
  names: NameRange,
  unreadable: string[],
): Promise<Pick<Step, "doubts" | "vaults" | "rows">> {
  const doubts: Doubt[] = [];
  const left = new Set(unreadable);
  for (const vault of unreadable.splice(0)) doubts.push({ about: "vault", vault });
  const known = new Map<string, EvaluatedVault>();
  let rows = 0;
  await pMap(
    batch,
    async (row) => {
      const vault = row.name.toLowerCase();
      // A scan writes it now, or one that died did: the next scan goes on from there.
      if (row.pending) return left.add(vault);
      const inspected = await inspectVault(tables, row);
      known.set(vault, { vault: row, assets: inspected.assets });
      rows += 2 * inspected.assets.size;
      for (const key of inspected.rows) doubts.push(rowDoubt(partitions.vault(row.name), key));
      if (inspected.types.length > 0) doubts.push({ about: "listings", vault });
      const key = vaultInSubscriptionKey(row.subscriptionId, row.name);
      const copy = await readStanding(tables, Vaults, VAULTS, key);
      if (!copy.row || hashOf(copy.row) !== hashOf(row)) doubts.push({ about: "copy", vault, key });
      return undefined;
    },
    { concurrency: VAULTS_AT_ONCE },
  );
  if (compliance) {
    const wrong = await inspectResults(tables, names, known, left);
    for (const vault of wrong.keys()) doubts.push({ about: "compliance", vault });
  }
  return { doubts, vaults: batch.length, rows };
}

/** Partitions of vaults and subscriptions that the inventory does not have: none of their rows should stand. */
async function* partitionSteps(context: StageContext, { at, after }: Position): AsyncGenerator<Step, void> {
  const { tables } = context;
  let passed = 0;
  // Where fences of vaults that left may stand: in a known vault's own partition is only its own.
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
    yield { at: last, after: BEHIND_ALL, doubts: [], vaults: 0, rows: 0 };
  }
  await context.removeOldFences(fenced);
  yield { at: last, after: BEHIND_ALL, doubts: [], vaults: 0, rows: 0, ends: true };
}

const isVaultPartition = (partition: string): boolean => partition.startsWith(partitions.vault(""));

/** Whether it is the partition of a vault or a subscription that the inventory does not have. */
function isStranger({ directory }: StageContext, partition: string): boolean {
  const id = partition.slice(partition.indexOf(":") + 1);
  if (isVaultPartition(partition)) return !directory.vaults.has(id) && !directory.unreadable.has(id);
  return partition.startsWith(partitions.subscription("")) && !directory.bySubscription.has(id);
}

async function* strangerSteps(context: StageContext, at: string, after: string): AsyncGenerator<Step, void> {
  for await (const step of comparison(context, at, [], after))
    yield { ...step, at, after: step.ends ? BEHIND_ALL : step.after, ends: false };
}

/** Each subscription's partition against those of its vaults. */
async function* subscriptionSteps(context: StageContext, { at, after }: Position): AsyncGenerator<Step, void> {
  for (const [id, names] of [...context.directory.bySubscription].sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (id < at || (id === at && after === BEHIND_ALL)) continue;
    const from = id === at ? after : "";
    const parts = names.map((name) => partitions.vault(name));
    for await (const step of comparison(context, partitions.subscription(id), parts, from))
      yield { ...step, at: id, after: step.ends ? BEHIND_ALL : step.after, ends: false };
  }
  yield { at, after, doubts: [], vaults: 0, rows: 0, ends: true };
}

/** The partition of all assets against those of the subscriptions. */
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
  let doubts: Doubt[] = [];
  let rows = 0;
  let last = after;
  const compared = compareMerged(
    stream(whole, MAX_PAGE),
    parts.map((part) => stream(part, pageSize)),
  );
  for await (const { key, difference } of compared) {
    rows++;
    last = key;
    if (difference !== undefined) doubts.push(rowDoubt(whole, key));
    if (rows < rowsPerStep && doubts.length < DOUBTS_PER_STEP) continue;
    yield { after: last, doubts, vaults: 0, rows };
    doubts = [];
    rows = 0;
  }
  yield { after: last, doubts, vaults: 0, rows, ends: true };
}

async function* indexEntries(tables: Tables, range: Range): AsyncGenerator<Entry, void> {
  for await (const entry of entriesOf(tables, Assets, range)) if (isIndexKey(entry.key)) yield entry;
}
