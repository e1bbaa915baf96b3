import { randomUUID } from "node:crypto";
import type { AssetRecord } from "../inventory/asset.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { insert, type Operation, put, remove, replace } from "../platform/storage/tables.ts";
import { unknownChange, writeChanged } from "./changed-results.ts";
import { ASSET_CHECKS } from "./checks/all.ts";
import {
  Details,
  detailsKey,
  type Failure,
  Findings,
  findingsKey,
  NewViolationRows,
  newViolationsKey,
  type VaultState,
  VaultStates,
  vaultStateKey,
} from "./compliance-rows.ts";
import { tally, type VaultResults } from "./evaluate.ts";
import {
  type AssetState,
  type Chunk,
  detailChunks,
  type Finding,
  findingChunks,
  NEW_VIOLATIONS_PER_ROW,
  type NewViolationItem,
  packNewViolations,
  packTallies,
  unpackTallies,
} from "./packed-results.ts";
import { packReferences, type VaultReferences } from "./references.ts";
import { findingRows, isFailing, type KnownState } from "./vault-state.ts";

export interface NextState {
  vault: VaultRecord;
  /** Owner according to the vault's own tag. */
  owners: string[];
  results: VaultResults;
  /** The evaluated assets by `assetKey`, for the owners of new violations. */
  evaluated: ReadonlyMap<string, AssetRecord>;
  references: VaultReferences;
  /** ISO 8601. */
  at: string;
  /** The evaluation of everything to which this belongs, if any. */
  evaluationId?: string | undefined;
}

/**
 * Writes the differences to `known`, in one transaction if possible. Otherwise new violations are written first, so that none
 * is lost, and the vault's own row last; until then the fence marks it as incomplete. Without differences, only the fence is
 * moved, so that an older concurrent evaluation can't overwrite this one.
 *
 * @throws {RowChanged} or RowExists when another evaluation of the vault was faster: read the state again and repeat.
 */
export async function commitState(known: KnownState, next: NextState): Promise<void> {
  const { row, fence } = known;
  const details = detailChunks(next.results.assets.values());
  const record = stateOf(known, next, details);
  if (row && known.whole && sameBut(row, record, ["evaluatedAt"])) return await fence.advance();
  const key = vaultStateKey(next.vault.name);
  const results = [...findingOperations(known, next), ...detailOperations(known, details, next.vault.name)];
  const operations = [...newViolationOperations(known, next), ...results, ...surplus(known, results)];
  const own = row ? replace(VaultStates, key, record, row.etag) : insert(VaultStates, key, record);
  await writeOwn(known, record.name, record, (together) =>
    fence.write(operations, { inLastTransaction: [own, ...together] }),
  );
}

/** Writes the vault's own row, with its mark for the totals. */
async function writeOwn(
  { row, whole }: KnownState,
  vaultName: string,
  now: VaultState | undefined,
  write: (together: Operation[]) => Promise<unknown>,
): Promise<void> {
  // If the row was lost, the totals still count its previous content.
  if (!row && !whole) await write([unknownChange(vaultName)]);
  else await writeChanged(vaultName, { before: row, now }, (mark) => write([mark]));
}

/**
 * Removes a vault's results. Its exemptions stay, in case it returns.
 *
 * @param at - ISO 8601.
 * @throws as `commitState`
 */
export async function forgetState(known: KnownState, vaultName: string, at: string): Promise<void> {
  const { row, fence } = known;
  const operations = known.whole ? standingOf(row) : surplus(known, []);
  const own: Operation[] = [];
  if (row && !row.gone) {
    const key = vaultStateKey(row.name);
    own.push(
      row.exemptions.length > 0
        ? replace(VaultStates, key, emptied(row), row.etag)
        : remove(VaultStates, key, row.etag),
    );
  }
  if (!row && known.exemptions.length > 0) {
    own.push(insert(VaultStates, vaultStateKey(vaultName), leftBehind(vaultName, known.exemptions, at)));
  }
  if (own.length > 0)
    await writeOwn(known, vaultName, undefined, (together) =>
      fence.write(operations, { inLastTransaction: [...own, ...together] }),
    );
  else if (operations.length > 0) await fence.write(operations);
  else await fence.advance();
}

/** Returns the row of a removed vault with only the exemptions of its assets. */
const leftBehind = (name: string, exemptions: VaultState["exemptions"], at: string): VaultState => ({
  name,
  subscriptionId: "",
  tallies: new Uint8Array(),
  failures: [],
  exemptions,
  rbac: false,
  details: [],
  createdAt: at,
  evaluatedAt: at,
  gone: true,
});

/** Returns the removals of all rows that the vault's own row names. */
function standingOf(row: VaultState | undefined): Operation[] {
  if (!row) return [];
  const operations = row.details.map((_, at) => remove(Details, detailsKey(row.name, at)));
  const tallies = unpackTallies(row.tallies);
  for (const check of ASSET_CHECKS) {
    const rows = findingRows(tallies.get(check.code)?.failed ?? 0);
    for (let at = 0; at < rows; at++) operations.push(remove(Findings, findingsKey(check, row.name, at)));
  }
  return operations;
}

/** Returns the removals of existing rows that are not rewritten. */
function surplus({ standing }: KnownState, operations: Operation[]): Operation[] {
  const touched = new Set(operations.map(({ rowKey }) => rowKey));
  return standing.filter((key) => !touched.has(key)).map((key) => remove(Details, key));
}

function stateOf({ row, exemptions }: KnownState, next: NextState, details: Chunk[]): VaultState {
  const { assets, failed } = next.results;
  const dueAt = [...assets.values()].reduce((least, asset) => Math.min(least, asset.dueAt ?? least), Infinity);
  const references = packReferences(next.references);
  const evaluationId = [row?.evaluationId ?? "", next.evaluationId ?? ""].sort()[1]!;
  return {
    name: next.vault.name,
    subscriptionId: next.vault.subscriptionId,
    tallies: packTallies(tally(next.results)),
    failures: failed,
    ...(next.owners.length > 0 ? { owners: next.owners } : {}),
    exemptions: exemptions.map((one) => ({ ...one, failing: isFailing(assets, one.asset, one.checkId) })),
    rbac: next.vault.rbacAuthorization,
    ...(references ? { references } : {}),
    ...(dueAt === Infinity ? {} : { dueAt }),
    details: details.map((chunk) => chunk.hash),
    createdAt: row && !row.gone ? row.createdAt : next.at,
    evaluatedAt: next.at,
    ...(evaluationId ? { evaluationId } : {}),
    gone: false,
  };
}

function sameBut(row: VaultState, record: VaultState, ignored: (keyof VaultState)[]): boolean {
  const shown = (state: VaultState) =>
    JSON.stringify(
      (Object.keys(VaultStates.schema.shape) as (keyof VaultState)[])
        .filter((name) => !ignored.includes(name))
        .map((name) => (state[name] instanceof Uint8Array ? [...state[name]] : (state[name] ?? null))),
    );
  return shown(row) === shown(record);
}

function factsOfChunk(chunk: Chunk): { facts?: Uint8Array<ArrayBuffer> } {
  const facts = chunk.facts();
  return facts ? { facts } : {};
}

function* detailOperations(known: KnownState, details: Chunk[], vaultName: string): Generator<Operation> {
  const before = known.whole ? (known.row?.details ?? []) : [];
  for (const [at, chunk] of details.entries()) {
    if (before[at] !== chunk.hash)
      yield put(Details, detailsKey(vaultName, at), { assets: chunk.bytes(), ...factsOfChunk(chunk) });
  }
  for (let at = details.length; at < before.length; at++) yield remove(Details, detailsKey(vaultName, at));
}

/** One check at a time, to limit memory. */
function* findingOperations(known: KnownState, next: NextState): Generator<Operation> {
  const before = failingByCheck(known.whole ? known.assets.values() : []);
  const after = failingByCheck(next.results.assets.values());
  const { name } = next.vault;
  for (const check of ASSET_CHECKS) {
    const wanted = findingChunks(findingsOf(after, check.code));
    const standing = findingChunks(findingsOf(before, check.code));
    for (const [at, chunk] of wanted.entries()) {
      if (standing[at]?.hash !== chunk.hash)
        yield put(Findings, findingsKey(check, name, at), { items: chunk.bytes(), ...factsOfChunk(chunk) });
    }
    for (let at = wanted.length; at < standing.length; at++) yield remove(Findings, findingsKey(check, name, at));
  }
}

/** Returns failures that did not exist before. */
function* newViolationOperations(known: KnownState, next: NextState): Generator<Operation> {
  const { name, id: vaultId, subscriptionId } = next.vault;
  const write = randomUUID();
  let chunk = 0;
  let items: NewViolationItem[] = [];
  const row = () =>
    put(NewViolationRows, newViolationsKey(next.at, name, write, chunk++), {
      name,
      vaultId,
      subscriptionId,
      items: packNewViolations(items),
    });
  for (const item of newViolations(known, next)) {
    items.push(item);
    if (items.length < NEW_VIOLATIONS_PER_ROW) continue;
    yield row();
    items = [];
  }
  if (items.length > 0) yield row();
}

function* newViolations(known: KnownState, { vault, results, evaluated }: NextState): Generator<NewViolationItem> {
  yield* arisen(vault, results.failed, known.row?.failures);
  for (const [key, asset] of evaluated)
    yield* arisen(asset, results.assets.get(key)?.failed ?? [], known.assets.get(key)?.failed);
}

function* arisen(
  { name, tags }: Pick<VaultRecord | AssetRecord, "name" | "tags">,
  now: Failure[],
  before: Failure[] | undefined,
): Generator<NewViolationItem> {
  for (const { code, since } of now) {
    if (!before?.some((failure) => failure.code === code)) yield [code, name, since, tags ?? {}];
  }
}

/** Returns the findings rows of assets' results by the check's code. */
export function findingRowsByCheck(assets: Iterable<AssetState>): Map<number, Chunk[]> {
  const failing = failingByCheck(assets);
  return new Map([...failing.keys()].map((code) => [code, findingChunks(findingsOf(failing, code))]));
}

/** Returns the failing assets by the check's code. */
export function failingByCheck(assets: Iterable<AssetState>): Map<number, AssetState[]> {
  const failing = new Map<number, AssetState[]>();
  for (const asset of assets) {
    for (const { code } of asset.failed) {
      const list = failing.get(code) ?? [];
      list.push(asset);
      failing.set(code, list);
    }
  }
  return failing;
}

/** Returns the findings of one check. */
export const findingsOf = (failing: ReadonlyMap<number, AssetState[]>, code: number): Finding[] =>
  (failing.get(code) ?? []).map(({ name, failed, facts }) => {
    const { since, evidence } = failed.find((failure) => failure.code === code)!;
    return [name, since, evidence, facts];
  });

function emptied(row: Row<VaultState>): VaultState {
  const { dueAt: _due, evaluationId: _id, owners: _owners, ...state } = withoutKeys(row);
  const exemptions = row.exemptions.map((one) => ({ ...one, failing: false }));
  return { ...state, tallies: new Uint8Array(), failures: [], details: [], exemptions, gone: true };
}
