import pMap from "p-map";
import { unknownChangeMark } from "../compliance/changed-results.ts";
import { ASSET_CHECKS, checkOfCode } from "../compliance/checks/all.ts";
import {
  DetailsRangeRows,
  detailsPrefix,
  Findings,
  fenceKey,
  findingsKey,
  findingsPrefix,
  ResultFences,
  STATE,
  TABLE,
  type VaultState,
  VaultStates,
  vaultOfFence,
  vaultStateKey,
} from "../compliance/compliance-rows.ts";
import { type AssetState, assetKey, findingsHash, unpackDetails, unpackTallies } from "../compliance/packed-results.ts";
import { isAssetFailing } from "../compliance/vault-state.ts";
import { findingRowsByCheck } from "../compliance/write-state.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import type { Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { remove, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { readRowOrCorrupt } from "./suspected-differences.ts";

/**
 * Checks the stored compliance results of vaults for the reconciliation. The results of a vault are its own row, rows of
 * details (the checks that each asset passed and failed), and rows of findings (the assets that failed a check). All derive
 * from the details.
 */

const RANGES_AT_ONCE = 8;
/** An evaluation whose last write is older than this has crashed. */
const EVALUATION_TIMEOUT_MS = MINUTE_MS;
/** Sorts after `!`, which follows a vault's name in a key, and before every character of a longer name. */
const AFTER_NAME = '"';

/** A range of lower-case vault names, `from <= name < before`. */
export interface NameRange {
  readonly from: string;
  /** Undefined: to the end. */
  readonly before: string | undefined;
}
export const rangeOfVault = (name: string): NameRange => ({
  from: name.toLowerCase(),
  before: name.toLowerCase() + AFTER_NAME,
});
/** Returns the range of names after `after`, up to and including `last`. Undefined: from the start, or to the end. */
export const rangeAfter = (after: string | undefined, last: string | undefined): NameRange => ({
  from: after === undefined ? "" : after + AFTER_NAME,
  before: last === undefined ? undefined : last + AFTER_NAME,
});

/** A vault of the inventory with its assets as `<type>.<name>`, for which results should be stored. */
export interface EvaluatedVault {
  readonly vault: VaultRecord;
  readonly assets: ReadonlySet<string>;
}

/** The stored results of one vault. */
interface Results {
  /** The vault's own row of results. */
  row?: Row<VaultState>;
  /** Hashes of the details rows in their order, and all assets in them. */
  details: string[];
  assets: Map<string, AssetState>;
  /** Hashes of findings rows by row key. */
  findings: Map<string, string>;
  /** Unreadable rows of the vault. */
  unreadable: { rowKey: string; etag: string }[];
}

/**
 * Returns the vaults in a range of names whose results are inconsistent or don't match the vault's assets: the problem by
 * lower-case name. Costs one request per check of assets and two more, and one per further 1,000 rows.
 *
 * @param inventoryVaults - The inventory's vaults in the range. Results of other vaults are superfluous.
 * @param skipped - Vaults that are not checked, because a scan is writing them or their row can't be read.
 */
export async function inspectResults(
  tables: Tables,
  range: NameRange,
  inventoryVaults: ReadonlyMap<string, EvaluatedVault>,
  skipped: ReadonlySet<string>,
): Promise<Map<string, string>> {
  const stored = await readResults(tables, range);
  const problems = new Map<string, string>();
  for (const name of new Set([...inventoryVaults.keys(), ...stored.keys()])) {
    if (skipped.has(name)) continue;
    const results = stored.get(name) ?? noResults();
    const problem = problemOf(results, inventoryVaults.get(name));
    if (problem) problems.set(name, problem);
  }
  return problems;
}

/**
 * Returns a value that changes with every write of a vault's results: the ETags of its row and of its fence (a row that orders
 * the writes of one vault). Undefined while an evaluation that takes several transactions is in progress.
 */
export async function resultsVersion(tables: Tables, vaultName: string): Promise<string | undefined> {
  const [resultsRow, fence] = await Promise.all([
    readRowOrCorrupt(tables, VaultStates, STATE, vaultStateKey(vaultName)),
    readFence(tables, vaultName),
  ]);
  if (fence?.open && fence.ageMs < EVALUATION_TIMEOUT_MS) return undefined;
  return `${resultsRow.row?.etag ?? resultsRow.unreadable?.etag} ${fence?.etag}`;
}

/**
 * Returns the fence of a vault's results. A fence that can't be read counts as not open, because no evaluation can write with it.
 */
async function readFence(
  tables: Tables,
  vaultName: string,
): Promise<{ etag: string; open: boolean; ageMs: number } | undefined> {
  try {
    const fence = await tables.getWithAge(ResultFences, STATE, fenceKey(vaultName));
    return fence && { etag: fence.row.etag, open: fence.row.open, ageMs: fence.ageMs };
  } catch (error) {
    if (!(error instanceof StorageCorrupt)) throw error;
    return { etag: error.etag, open: false, ageMs: 0 };
  }
}

/** Removes the unreadable rows of a vault's results if they are unchanged (by ETag). They would make every evaluation fail. */
export async function removeUnreadable(tables: Tables, vaultName: string): Promise<void> {
  const stored = await readResults(tables, rangeOfVault(vaultName));
  // `VaultStates` stands for all kinds of results: they share a table, and a removal needs only the key.
  for (const { rowKey, etag } of stored.get(vaultName.toLowerCase())?.unreadable ?? [])
    await tables.transaction(TABLE, STATE, [remove(VaultStates, rowKey, etag), unknownChangeMark(vaultName)]);
}

const noResults = (): Results => ({ details: [], assets: new Map(), findings: new Map(), unreadable: [] });

/** Reads the results of all vaults in a range of names, by lower-case name. */
async function readResults(tables: Tables, range: NameRange): Promise<Map<string, Results>> {
  const all = new Map<string, Results>();
  const resultsOf = (name: string): Results => {
    const results = all.get(name) ?? noResults();
    all.set(name, results);
    return results;
  };
  const rowsOf = (prefix: string) => ({
    partitionKey: STATE,
    from: prefix + range.from,
    before: range.before === undefined ? keyEnd(prefix) : prefix + range.before,
  });
  /** The rows with a number after the vault's name, without the fences of the vaults. */
  const numberedRowsOf = (prefix: string) => ({
    ...rowsOf(prefix),
    only: (rowKey: string) => vaultIn(rowKey, prefix) !== undefined,
    onCorrupt: ({ rowKey, etag }: StorageCorrupt) =>
      resultsOf(vaultIn(rowKey, prefix)!).unreadable.push({ rowKey, etag }),
  });

  const ownPrefix = vaultStateKey("");
  const onCorrupt = ({ rowKey, etag }: StorageCorrupt) =>
    resultsOf(rowKey.slice(ownPrefix.length)).unreadable.push({ rowKey, etag });
  for await (const rows of tables.pages(VaultStates, { ...rowsOf(ownPrefix), onCorrupt }))
    for (const row of rows) resultsOf(row.rowKey.slice(ownPrefix.length)).row = row;

  // Without the `!` that follows the vault's name, which is empty here.
  const detailsStart = detailsPrefix("").slice(0, -1);
  const vaultOf = (rowKey: string) => vaultIn(rowKey, detailsStart) ?? vaultOfFence(rowKey);
  const detailsAndFences = {
    ...rowsOf(detailsStart),
    only: (rowKey: string) => vaultOf(rowKey) !== undefined,
    onCorrupt: ({ rowKey, etag }: StorageCorrupt) => resultsOf(vaultOf(rowKey)!).unreadable.push({ rowKey, etag }),
  };
  for await (const rows of tables.pages(DetailsRangeRows, detailsAndFences)) {
    for (const { rowKey, etag, assets, facts } of rows) {
      if (vaultOfFence(rowKey) !== undefined) continue;
      const chunk = undefinedIfCorrupt(() => unpackDetails(assets ?? new Uint8Array(), facts));
      const results = resultsOf(vaultOf(rowKey)!);
      if (!chunk) results.unreadable.push({ rowKey, etag });
      results.details.push(chunk?.hash ?? "");
      for (const asset of chunk?.assets ?? []) results.assets.set(assetKey(asset.type, asset.name), asset);
    }
  }

  await pMap(
    ASSET_CHECKS,
    async (check) => {
      const prefix = findingsPrefix(check, "").slice(0, -1); // without the `!` after the name, as above
      for await (const rows of tables.pages(Findings, numberedRowsOf(prefix))) {
        for (const { rowKey, items, facts } of rows) {
          resultsOf(vaultIn(rowKey, prefix)!).findings.set(
            rowKey,
            undefinedIfCorrupt(() => findingsHash(items, facts)) ?? "",
          );
        }
      }
    },
    { concurrency: RANGES_AT_ONCE },
  );
  return all;
}

/** Returns the vault's name in `<prefix><vault>!<number>`, with a number of five digits. Undefined for another kind of row. */
function vaultIn(rowKey: string, prefix: string): string | undefined {
  return /^(.*)!\d{5}$/.exec(rowKey.slice(prefix.length))?.[1];
}

/** Returns the result of `read`. Undefined if it throws, because no evaluation wrote the content. */
function undefinedIfCorrupt<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

/** Returns a short description of the problem for the audit log. Undefined if everything agrees. */
function problemOf(results: Results, expectedVault: EvaluatedVault | undefined): string | undefined {
  const { row, details, assets, findings } = results;
  if (results.unreadable.length > 0) return "a row can't be read";
  if (!expectedVault || !row || row.gone) {
    if (details.length > 0 || findings.size > 0) return "rows of a vault without results remain";
    if (expectedVault) return "the vault's results are missing";
    return row && !row.gone ? "results of a removed vault remain" : undefined;
  }
  if (row.details.join() !== details.join()) return "details differ from the vault's row";
  if (!sameNames(expectedVault.assets, assets)) return "the assets evaluated are not the vault's";
  if (row.subscriptionId.toLowerCase() !== expectedVault.vault.subscriptionId.toLowerCase())
    return "another subscription";
  if (!talliesAgree(row, assets)) return "tallies differ from the details";
  if (dueOf(assets) !== row.dueAt) return "the due time differs from the details";
  if (row.exemptions.some(({ failing, asset, checkId }) => failing !== isAssetFailing(assets, asset, checkId)))
    return "exemptions differ from the details";
  return findingsAgree(expectedVault.vault.name, assets, findings) ? undefined : "findings differ from the details";
}

const sameNames = (a: ReadonlySet<string>, b: ReadonlyMap<string, unknown>): boolean =>
  a.size === b.size && [...a].every((name) => b.has(name));

/** Returns the earliest time at which a result of the assets may change although the assets don't change. */
function dueOf(assets: ReadonlyMap<string, AssetState>): number | undefined {
  const due = [...assets.values()].flatMap(({ dueAt }) => (dueAt === undefined ? [] : [dueAt]));
  return due.length === 0 ? undefined : due.reduce((earliest, dueAt) => Math.min(earliest, dueAt));
}

/**
 * Returns whether the tallies (numbers of passes and failures by check) in the vault's row agree with the details. For checks
 * of the vault itself, only failures are compared, because no row contains its passes.
 */
function talliesAgree(row: VaultState, assets: ReadonlyMap<string, AssetState>): boolean {
  const counted = new Map<number, { passed: number; failed: number }>();
  const count = (code: number, result: "passed" | "failed") => {
    const tally = counted.get(code) ?? { passed: 0, failed: 0 };
    tally[result]++;
    counted.set(code, tally);
  };
  for (const { passed, failed } of assets.values()) {
    for (const code of passed) count(code, "passed");
    for (const { code } of failed) count(code, "failed");
  }
  for (const code of counted.keys()) if (!checkOfCode.has(code)) counted.delete(code);
  const failures = new Set(row.failures.map(({ code }) => code));
  const tallies = undefinedIfCorrupt(() => unpackTallies(row.tallies));
  if (!tallies) return false;
  for (const [code, { passed, failed }] of tallies) {
    const check = checkOfCode.get(code);
    // Results of checks of an earlier version are ignored. The next evaluation removes them.
    if (!check) continue;
    if (check.resourceType === "vault") {
      if (failed !== (failures.has(code) ? 1 : 0)) return false;
    } else {
      const expected = counted.get(code);
      if (expected?.passed !== passed || expected.failed !== failed) return false;
      counted.delete(code);
    }
  }
  return counted.size === 0 && [...failures].every((code) => tallies.has(code));
}

function findingsAgree(
  vaultName: string,
  assets: ReadonlyMap<string, AssetState>,
  findings: ReadonlyMap<string, string>,
): boolean {
  const expectedRows = findingRowsByCheck(assets.values());
  let rows = 0;
  for (const check of ASSET_CHECKS) {
    for (const [number, { hash }] of (expectedRows.get(check.code) ?? []).entries()) {
      rows++;
      if (findings.get(findingsKey(check, vaultName, number)) !== hash) return false;
    }
  }
  return rows === findings.size;
}
