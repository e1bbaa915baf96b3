/**
 * Writes the results of one vault: only rows that differ from the stored ones. The vault's fence guards the writes: a row whose
 * ETag changes with each of them, so that a slower concurrent writer fails. A vault has three kinds of rows: its own row (with
 * its counts and the failures of the vault itself), rows of details (all assets with their results), and rows of findings (the
 * failing assets of one check). Long lists are divided into chunks, one for each row.
 */
import { randomUUID } from "node:crypto";
import { type AssetRecord, otherNamesOf } from "../inventory/asset.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { insert, type Operation, put, remove, replace } from "../platform/storage/tables.ts";
import { unknownChangeMark, writeWithChangeMark } from "./changed-results.ts";
import { ASSET_CHECKS } from "./checks/all.ts";
import {
  Details,
  detailsKey,
  type Failure,
  Findings,
  findingsKey,
  type NewViolationItem,
  NewViolationRows,
  newViolationsKey,
  type ResolvedViolationItem,
  type VaultState,
  VaultStates,
  vaultStateKey,
} from "./compliance-rows.ts";
import { countResults, type VaultResults } from "./evaluate.ts";
import { nextResults } from "./evaluation-states.ts";
import {
  type AssetState,
  assetKey,
  type Chunk,
  detailChunks,
  type Finding,
  findingChunks,
  NEW_VIOLATIONS_PER_ROW,
  packNewViolations,
  packResolvedViolations,
  packTallies,
  unpackTallies,
} from "./packed-results.ts";
import { packReferences, type VaultReferences } from "./references.ts";
import { countFindingRows, isAssetFailing, type OpenedState } from "./vault-state.ts";

/** The results of an evaluation, to be stored. */
export interface NewState {
  vault: VaultRecord;
  /** Owner according to the vault's own tag. */
  owners: string[];
  results: VaultResults;
  /** The assets evaluated now, by `assetKey`. Only they can have new violations. */
  evaluated: ReadonlyMap<string, AssetRecord>;
  references: VaultReferences;
  /** Time of the evaluation, ISO 8601. */
  evaluatedAt: string;
  /** ID of the requested evaluation of all vaults that this evaluation belongs to, if any. */
  evaluationId?: string | undefined;
}

/**
 * Writes the differences to `previous`, in one transaction if possible. Otherwise new violations are written first, so that
 * none is lost, and the vault's own row last; until then the fence marks it as incomplete. Without differences, only the
 * fence's row is written, so that an older concurrent evaluation can't overwrite this one.
 *
 * @throws {RowChanged} or RowExists when another evaluation of the vault was faster: read the state again and repeat.
 */
export async function commitState(previous: OpenedState, next: NewState): Promise<void> {
  const { row, fence } = previous;
  const details = detailChunks(next.results.assets.values());
  const record = stateOf(previous, next, details);
  if (row && previous.isComplete && equalsExcept(row, record, ["evaluatedAt"])) return await fence.advance();
  const key = vaultStateKey(next.vault.name);
  const results = [...findingOperations(previous, next), ...detailOperations(previous, details, next.vault.name)];
  const operations = [
    ...newViolationOperations(previous, next),
    ...resolvedViolationOperations(previous, next.vault, next.evaluatedAt, next.results),
    ...results,
    ...removalsOfUnwrittenRows(previous, results),
  ];
  const vaultRowOperation = row ? replace(VaultStates, key, record, row.etag) : insert(VaultStates, key, record);
  await writeVaultRow(previous, record.name, record, (mark) =>
    fence.write(operations, { inLastTransaction: [vaultRowOperation, mark] }),
  );
}

/**
 * Writes the vault's own row together with the vault's mark. The mark makes readers correct the totals, the stored sums over
 * all vaults (changed-results.ts).
 *
 * @param write - Writes both in one transaction.
 */
async function writeVaultRow(
  { row, isComplete }: OpenedState,
  vaultName: string,
  now: VaultState | undefined,
  write: (mark: Operation) => Promise<unknown>,
): Promise<void> {
  // The row was lost, so what the totals count for this vault is unknown.
  if (!row && !isComplete) await write(unknownChangeMark(vaultName));
  else await writeWithChangeMark(vaultName, { before: row, now }, write);
}

/**
 * Removes a vault's results. Exemptions of its assets stay in the vault's row, in case the vault returns.
 *
 * @param removedAt - ISO 8601.
 * @throws as `commitState`
 */
export async function removeState(previous: OpenedState, vaultName: string, removedAt: string): Promise<void> {
  const { row, fence } = previous;
  const subscriptionId = row?.subscriptionId ?? "";
  const operations = [
    ...resolvedViolationOperations(previous, { name: row?.name ?? vaultName, subscriptionId }, removedAt, undefined),
    ...(previous.isComplete ? removalsOfStoredRows(row) : removalsOfUnwrittenRows(previous, [])),
  ];
  const vaultRowOperation = removalOfVaultRow(previous, vaultName, removedAt);
  if (vaultRowOperation.length > 0)
    await writeVaultRow(previous, vaultName, undefined, (mark) =>
      fence.write(operations, { inLastTransaction: [...vaultRowOperation, mark] }),
    );
  else if (operations.length > 0) await fence.write(operations);
  else await fence.advance();
}

/** Returns the operation by which a removed vault's own row changes to its next state, if it changes. */
function removalOfVaultRow(previous: OpenedState, vaultName: string, removedAt: string): Operation[] {
  const { row, exemptions } = previous;
  if (row?.gone) return [];
  const key = vaultStateKey(row?.name ?? vaultName);
  if (nextResults(previous, { type: "vaultRemoved" })?.state === "none")
    return row ? [remove(VaultStates, key, row.etag)] : [];
  return [
    row
      ? replace(VaultStates, key, withoutResults(row), row.etag)
      : insert(VaultStates, key, exemptionsOnlyState(vaultName, exemptions, removedAt)),
  ];
}

/** Returns the row of a removed vault that has no stored row, with only the exemptions of its assets. */
const exemptionsOnlyState = (name: string, exemptions: VaultState["exemptions"], removedAt: string): VaultState => ({
  name,
  subscriptionId: "",
  tallies: new Uint8Array(),
  failures: [],
  exemptions,
  rbac: false,
  details: [],
  createdAt: removedAt,
  evaluatedAt: removedAt,
  gone: true,
});

/** Returns the removals of all details and findings rows that exist according to the vault's own row. */
function removalsOfStoredRows(row: VaultState | undefined): Operation[] {
  if (!row) return [];
  const operations = row.details.map((_, chunk) => remove(Details, detailsKey(row.name, chunk)));
  const tallies = unpackTallies(row.tallies);
  for (const check of ASSET_CHECKS) {
    const rows = countFindingRows(tallies.get(check.code)?.failed ?? 0);
    for (let chunk = 0; chunk < rows; chunk++) operations.push(remove(Findings, findingsKey(check, row.name, chunk)));
  }
  return operations;
}

/**
 * Returns the removals of existing details and findings rows that the operations don't write. Only needed for incomplete
 * results. Both kinds of rows are in one table, so `Details` stands for both.
 */
function removalsOfUnwrittenRows({ existingKeys }: OpenedState, operations: Operation[]): Operation[] {
  const writtenKeys = new Set(operations.map(({ rowKey }) => rowKey));
  return existingKeys.filter((key) => !writtenKeys.has(key)).map((key) => remove(Details, key));
}

function stateOf({ row, exemptions }: OpenedState, next: NewState, details: Chunk[]): VaultState {
  const { assets, failed } = next.results;
  const dueAt = [...assets.values()].reduce((least, asset) => Math.min(least, asset.dueAt ?? least), Infinity);
  const references = packReferences(next.references);
  // IDs sort by time. An evaluation of a single vault has none, and keeps the vault's last one.
  const evaluationId = [row?.evaluationId ?? "", next.evaluationId ?? ""].sort()[1]!;
  return {
    name: next.vault.name,
    subscriptionId: next.vault.subscriptionId,
    tallies: packTallies(countResults(next.results)),
    failures: failed,
    ...(next.owners.length > 0 ? { owners: next.owners } : {}),
    exemptions: exemptionsOf(exemptions, next),
    rbac: next.vault.rbacAuthorization,
    ...(references ? { references } : {}),
    ...(dueAt === Infinity ? {} : { dueAt }),
    details: details.map((chunk) => chunk.hash),
    createdAt: row && !row.gone ? row.createdAt : next.evaluatedAt,
    evaluatedAt: next.evaluatedAt,
    ...(evaluationId ? { evaluationId } : {}),
    gone: false,
  };
}

/**
 * Returns the exemptions with whether their asset fails. A directory can list one certificate several times, each time with
 * another key ID. Earlier versions stored each as an asset, so an exemption may name one that is no asset any more. It is then
 * moved to the certificate's asset. If that asset has several exemptions from a check, the one that lasts longest stays.
 */
function exemptionsOf(
  exemptions: VaultState["exemptions"],
  { results, evaluated }: NewState,
): VaultState["exemptions"] {
  /** The certificate's asset, by the name under which an earlier version stored it again. */
  const assetOfOtherName = new Map(
    [...evaluated].flatMap(([key, asset]) =>
      otherNamesOf(asset).map((name): [string, string] => [assetKey(asset.type, name), key]),
    ),
  );
  const moved = exemptions.map((exemption) => {
    const asset = assetOfOtherName.get(exemption.asset) ?? exemption.asset;
    return { ...exemption, asset, failing: isAssetFailing(results.assets, asset, exemption.checkId) };
  });
  const isReplacedBy = (exemption: (typeof moved)[number], other: (typeof moved)[number]) =>
    other.asset === exemption.asset &&
    other.checkId === exemption.checkId &&
    // Of two exemptions with the same end, the one with the lower ID stays.
    (other.until > exemption.until || (other.until === exemption.until && other.id < exemption.id));
  return moved.filter((exemption) => !moved.some((other) => isReplacedBy(exemption, other)));
}

function equalsExcept(row: VaultState, record: VaultState, ignored: (keyof VaultState)[]): boolean {
  const serialized = (state: VaultState) =>
    JSON.stringify(
      (Object.keys(VaultStates.schema.shape) as (keyof VaultState)[])
        .filter((name) => !ignored.includes(name))
        .map((name) => (state[name] instanceof Uint8Array ? [...state[name]] : (state[name] ?? null))),
    );
  return serialized(row) === serialized(record);
}

function factsOfChunk(chunk: Chunk): { facts?: Uint8Array<ArrayBuffer> } {
  const facts = chunk.facts();
  return facts ? { facts } : {};
}

function* detailOperations(previous: OpenedState, details: Chunk[], vaultName: string): Generator<Operation> {
  const previousDetails = previous.isComplete ? (previous.row?.details ?? []) : [];
  for (const [index, chunk] of details.entries()) {
    if (previousDetails[index] !== chunk.hash)
      yield put(Details, detailsKey(vaultName, index), { assets: chunk.bytes(), ...factsOfChunk(chunk) });
  }
  for (let index = details.length; index < previousDetails.length; index++)
    yield remove(Details, detailsKey(vaultName, index));
}

/** Returns the writes and removals of findings rows that differ. Compresses one check's rows at a time, to limit memory. */
function* findingOperations(previous: OpenedState, next: NewState): Generator<Operation> {
  // The stored findings follow from the stored details, so their rows need not be read.
  const failingBefore = failingByCheck(previous.isComplete ? previous.assets.values() : []);
  const failingAfter = failingByCheck(next.results.assets.values());
  const { name } = next.vault;
  for (const check of ASSET_CHECKS) {
    const newChunks = findingChunks(findingsOf(failingAfter, check.code));
    const storedChunks = findingChunks(findingsOf(failingBefore, check.code));
    for (const [index, chunk] of newChunks.entries()) {
      if (storedChunks[index]?.hash !== chunk.hash)
        yield put(Findings, findingsKey(check, name, index), { items: chunk.bytes(), ...factsOfChunk(chunk) });
    }
    for (let index = newChunks.length; index < storedChunks.length; index++)
      yield remove(Findings, findingsKey(check, name, index));
  }
}

/** Returns the writes of rows with failures that did not exist before. */
function* newViolationOperations(previous: OpenedState, next: NewState): Generator<Operation> {
  const { name, id: vaultId, subscriptionId } = next.vault;
  // The attempt ID is part of the keys, so that two attempts with the same time don't overwrite each other's rows.
  const attemptId = randomUUID();
  let chunk = 0;
  let items: NewViolationItem[] = [];
  const createRow = () =>
    put(NewViolationRows, newViolationsKey(next.evaluatedAt, name, attemptId, chunk++), {
      name,
      vaultId,
      subscriptionId,
      items: packNewViolations(items),
    });
  for (const item of listNewViolations(previous, next)) {
    items.push(item);
    if (items.length < NEW_VIOLATIONS_PER_ROW) continue;
    yield createRow();
    items = [];
  }
  if (items.length > 0) yield createRow();
}

function* listNewViolations(
  previous: OpenedState,
  { vault, results, evaluated }: NewState,
): Generator<NewViolationItem> {
  yield* newFailures(vault, results.failed, previous.row?.failures);
  for (const [key, asset] of evaluated)
    yield* newFailures(asset, results.assets.get(key)?.failed ?? [], previous.assets.get(key)?.failed);
}

function* newFailures(
  { name, tags }: Pick<VaultRecord | AssetRecord, "name" | "tags">,
  now: Failure[],
  before: Failure[] | undefined,
): Generator<NewViolationItem> {
  for (const { code, since } of now) {
    if (!before?.some((failure) => failure.code === code)) yield [code, name, since, tags ?? {}];
  }
}

/**
 * Returns the writes of rows with failures that existed before and don't exist now.
 *
 * @param at - Time of the evaluation or removal, ISO 8601.
 * @param results - The new results. Undefined: the vault was removed.
 */
function* resolvedViolationOperations(
  previous: OpenedState,
  { name, subscriptionId }: Pick<VaultRecord, "name" | "subscriptionId">,
  at: string,
  results: VaultResults | undefined,
): Generator<Operation> {
  const attemptId = randomUUID();
  let chunk = 0;
  let resolved: ResolvedViolationItem[] = [];
  const createRow = () =>
    put(NewViolationRows, newViolationsKey(at, name, attemptId, chunk++), {
      name,
      vaultId: "",
      subscriptionId,
      items: packNewViolations([]),
      resolved: packResolvedViolations(resolved),
    });
  for (const item of listResolvedViolations(previous, name, results)) {
    resolved.push(item);
    if (resolved.length < NEW_VIOLATIONS_PER_ROW) continue;
    yield createRow();
    resolved = [];
  }
  if (resolved.length > 0) yield createRow();
}

function* listResolvedViolations(
  { row, assets }: OpenedState,
  vaultName: string,
  results: VaultResults | undefined,
): Generator<ResolvedViolationItem> {
  yield* missingFailures(vaultName, row?.failures ?? [], results?.failed);
  for (const [key, { name, failed }] of assets) {
    if (failed.length > 0) yield* missingFailures(name, failed, results?.assets.get(key)?.failed);
  }
}

function* missingFailures(
  name: string,
  before: Failure[],
  now: Failure[] | undefined,
): Generator<ResolvedViolationItem> {
  for (const { code, since } of before) {
    if (!now?.some((failure) => failure.code === code)) yield [code, name, since];
  }
}

/** Returns the chunks of findings by the check's code. */
export function findingRowsByCheck(assets: Iterable<AssetState>): Map<number, Chunk[]> {
  const failing = failingByCheck(assets);
  return new Map([...failing.keys()].map((code) => [code, findingChunks(findingsOf(failing, code))]));
}

/** Returns the assets that fail each check, by the check's code. */
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

/** Returns the findings of one check: the name, start, evidence and facts of each failing asset. */
export const findingsOf = (failing: ReadonlyMap<number, AssetState[]>, code: number): Finding[] =>
  (failing.get(code) ?? []).map(({ name, failed, facts }) => {
    const { since, evidence } = failed.find((failure) => failure.code === code)!;
    return [name, since, evidence, facts];
  });

/** Returns the row of a removed vault: without results, with the exemptions of its assets. */
function withoutResults(row: Row<VaultState>): VaultState {
  const { dueAt: _due, evaluationId: _id, owners: _owners, ...state } = withoutKeys(row);
  const exemptions = row.exemptions.map((exemption) => ({ ...exemption, failing: false }));
  return { ...state, tallies: new Uint8Array(), failures: [], details: [], exemptions, gone: true };
}
