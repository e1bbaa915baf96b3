import type { AssetRecord } from "../inventory/asset.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import type { Row } from "../storage/entity.ts";
import { keyEnd } from "../storage/keys.ts";
import { insert, type Operation, put, remove, replace, type Tables } from "../storage/tables.ts";
import { ASSET_CHECKS, checkOfCode } from "./checks/all.ts";
import { tally, type VaultResults } from "./evaluate.ts";
import {
  Details,
  detailsKey,
  detailsPrefix,
  type Failure,
  Findings,
  findingsKey,
  News,
  newsKey,
  STATE,
  TABLE,
  type VaultState,
  VaultStates,
  vaultStateKey,
} from "./layout.ts";
import {
  type AssetState,
  assetKey,
  type Chunk,
  detailChunks,
  FINDINGS_PER_ROW,
  type Finding,
  findingChunks,
  type NewsItem,
  newsChunks,
  packTallies,
  unpackDetails,
  unpackTallies,
} from "./pack.ts";

/** What stands of a vault when an evaluation begins. */
export interface KnownState {
  row: Row<VaultState> | undefined;
  assets: Map<string, AssetState>;
  /** False when a writer of a very large vault died between its rows: only an evaluation of all of it mends that. */
  whole: boolean;
}

/** One request for a vault never seen, else two. */
export async function loadState(tables: Tables, vaultName: string): Promise<KnownState> {
  const row = await tables.get(VaultStates, STATE, vaultStateKey(vaultName));
  const assets = new Map<string, AssetState>();
  if (!row || row.details.length === 0) return { row, assets, whole: true };
  const prefix = detailsPrefix(vaultName);
  const hashes: string[] = [];
  for await (const rows of tables.pages(Details, { partitionKey: STATE, from: prefix, before: keyEnd(prefix) })) {
    for (const details of rows) {
      const chunk = unpackDetails(details.assets);
      hashes.push(chunk.hash);
      for (const asset of chunk.assets) assets.set(assetKey(asset.type, asset.name), asset);
    }
  }
  return { row, assets, whole: hashes.join() === row.details.join() };
}

export interface NextState {
  vault: VaultRecord;
  results: VaultResults;
  /** The assets that were evaluated, by `assetKey`: what tells who cares for one with a new violation. */
  evaluated: ReadonlyMap<string, AssetRecord>;
  /** ISO 8601. */
  at: string;
  /** The evaluation of everything this belongs to, if any. */
  evaluationId?: string | undefined;
}

/** More operations or bytes than these go in several transactions, the vault's own row last. */
const MAX_OPERATIONS = 100;
const MAX_BYTES = 3_000_000;

/**
 * Writes what differs from `known`: nothing, when nothing does and no evaluation is to be noted.
 *
 * @throws RowChanged or RowExists when another evaluation of the vault came between: load again and repeat.
 */
export async function commitState(tables: Tables, known: KnownState, next: NextState): Promise<void> {
  const { row } = known;
  const details = detailChunks(next.results.assets.values());
  const record = stateOf(row, next, details);
  if (row && known.whole && sameBut(row, record, ["evaluatedAt"])) return;
  const others = [
    ...detailOperations(known, details, next.vault.name),
    ...findingOperations(known, next),
    ...newsOperations(known, next),
  ];
  const key = vaultStateKey(next.vault.name);
  const own = row ? replace(VaultStates, key, record, row.etag) : insert(VaultStates, key, record);
  await writeAround(tables, others, own, known.whole);
}

function stateOf(row: VaultState | undefined, next: NextState, details: Chunk[]): VaultState {
  const { assets, failed } = next.results;
  const dueAt = [...assets.values()].reduce((least, asset) => Math.min(least, asset.dueAt ?? least), Infinity);
  const evaluationId = [row?.evaluationId ?? "", next.evaluationId ?? ""].sort()[1]!;
  return {
    name: next.vault.name,
    subscriptionId: next.vault.subscriptionId,
    tallies: packTallies(tally(next.results)),
    failures: failed,
    exemptions: (row?.exemptions ?? []).map((one) => ({ ...one, failing: isFailing(assets, one.asset, one.checkId) })),
    rbac: next.vault.rbacAuthorization,
    ...(dueAt === Infinity ? {} : { dueAt }),
    details: details.map((chunk) => chunk.hash),
    createdAt: row && !row.gone ? row.createdAt : next.at,
    evaluatedAt: next.at,
    ...(evaluationId ? { evaluationId } : {}),
    gone: false,
  };
}

/** Whether the pair of check and asset (`<type>.<name>`) fails. */
export const isFailing = (assets: ReadonlyMap<string, AssetState>, asset: string, checkId: string): boolean =>
  assets.get(asset)?.failed.some(({ code }) => checkOfCode.get(code)?.id === checkId) ?? false;

function sameBut(row: VaultState, record: VaultState, ignored: (keyof VaultState)[]): boolean {
  const shown = (state: VaultState) =>
    JSON.stringify(
      (Object.keys(VaultStates.schema.shape) as (keyof VaultState)[])
        .filter((name) => !ignored.includes(name))
        .map((name) => (name === "tallies" ? [...state.tallies] : (state[name] ?? null))),
    );
  return shown(row) === shown(record);
}

function* detailOperations(known: KnownState, details: Chunk[], vaultName: string): Generator<Operation> {
  const before = known.row?.details ?? [];
  for (const [at, { hash, bytes }] of details.entries()) {
    if (!known.whole || before[at] !== hash) yield put(Details, detailsKey(vaultName, at), { assets: bytes() });
  }
  for (let at = details.length; at < before.length; at++) yield remove(Details, detailsKey(vaultName, at));
}

function* findingOperations(known: KnownState, next: NextState): Generator<Operation> {
  const before = findingsByCheck(known.assets.values());
  const after = findingsByCheck(next.results.assets.values());
  const { name } = next.vault;
  const counted = known.row ? unpackTallies(known.row.tallies) : new Map();
  for (const check of ASSET_CHECKS) {
    const wanted = after.get(check.code) ?? [];
    const standing = before.get(check.code) ?? [];
    for (const [at, { hash, bytes }] of wanted.entries()) {
      if (known.whole && standing[at]?.hash === hash) continue;
      yield put(Findings, findingsKey(check, name, at), { items: bytes() });
    }
    // Rows that a dead writer put beyond both are never read: lists read as many as the tallies say.
    const rows = Math.max(standing.length, known.whole ? 0 : findingRows(counted.get(check.code)?.failed ?? 0));
    for (let at = wanted.length; at < rows; at++) yield remove(Findings, findingsKey(check, name, at));
  }
}

/** What did not fail before. */
function* newsOperations(known: KnownState, { vault, results, evaluated, at }: NextState): Generator<Operation> {
  const items: NewsItem[] = [];
  const add = (
    name: string,
    tags: Record<string, string> | undefined,
    now: Failure[],
    before: Failure[] | undefined,
  ) => {
    for (const { code, since } of now) {
      if (!before?.some((failure) => failure.code === code)) items.push([code, name, since, tags ?? {}]);
    }
  };
  add(vault.name, vault.tags, results.failed, known.row?.failures);
  for (const [key, asset] of evaluated) {
    add(asset.name, asset.tags, results.assets.get(key)?.failed ?? [], known.assets.get(key)?.failed);
  }
  const { name, id: vaultId, subscriptionId } = vault;
  for (const [chunk, { bytes }] of newsChunks(items).entries()) {
    yield put(News, newsKey(at, name, chunk), { name, vaultId, subscriptionId, items: bytes() });
  }
}

function findingsByCheck(assets: Iterable<AssetState>): Map<number, Chunk[]> {
  const findings = new Map<number, Finding[]>();
  for (const { name, failed } of assets) {
    for (const { code, since, evidence } of failed) {
      const list = findings.get(code) ?? [];
      list.push([name, since, evidence]);
      findings.set(code, list);
    }
  }
  return new Map([...findings].map(([code, list]) => [code, findingChunks(list)]));
}

/** Rows that hold so many findings of one check and vault. */
export const findingRows = (failed: number): number => Math.ceil(failed / FINDINGS_PER_ROW);

/** Takes a vault out; only its exemptions stay, for when it returns. @throws RowChanged */
export async function forgetState(tables: Tables, row: Row<VaultState>): Promise<void> {
  if (row.gone) return;
  const others: Operation[] = row.details.map((_, at) => remove(Details, detailsKey(row.name, at)));
  const tallies = unpackTallies(row.tallies);
  for (const check of ASSET_CHECKS) {
    const rows = findingRows(tallies.get(check.code)?.failed ?? 0);
    for (let at = 0; at < rows; at++) others.push(remove(Findings, findingsKey(check, row.name, at)));
  }
  const key = vaultStateKey(row.name);
  const own =
    row.exemptions.length > 0 ? replace(VaultStates, key, emptied(row), row.etag) : remove(VaultStates, key, row.etag);
  await writeAround(tables, others, own, false);
}

function emptied({ dueAt: _due, evaluationId: _id, partitionKey: _p, rowKey: _r, etag: _e, ...row }: Row<VaultState>) {
  const exemptions = row.exemptions.map((one) => ({ ...one, failing: false }));
  return { ...row, tallies: new Uint8Array(), failures: [], details: [], exemptions, gone: true };
}

/**
 * All in one transaction where they fit and are known to stand as expected; else the vault's own row last, by which the
 * others are found.
 */
async function writeAround(tables: Tables, others: Operation[], own: Operation, whole: boolean): Promise<void> {
  const bytes = others.reduce(
    (sum, { columns }) =>
      sum + Object.values(columns).reduce((size: number, value) => size + String(value).length, 500),
    0,
  );
  if (whole && others.length < MAX_OPERATIONS && bytes < MAX_BYTES) {
    await tables.transaction(TABLE, STATE, [...others, own]);
    return;
  }
  await tables.write(TABLE, STATE, others);
  await tables.transaction(TABLE, STATE, [own]);
}
