import pMap from "p-map";
import { unknownChange } from "../compliance/changed-results.ts";
import { ASSET_CHECKS, checkOfCode } from "../compliance/checks/all.ts";
import {
  Details,
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
  vaultStateKey,
} from "../compliance/compliance-rows.ts";
import { type AssetState, assetKey, findingsHash, unpackDetails, unpackTallies } from "../compliance/packed-results.ts";
import { isFailing } from "../compliance/vault-state.ts";
import { findingRowsByCheck } from "../compliance/write-state.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import type { Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { remove, type StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { readRowOrCorrupt } from "./suspected-differences.ts";

const RANGES_AT_ONCE = 8;
/** An evaluation that has written nothing for this time has crashed. */
const EVALUATION_MS = MINUTE_MS;
/** Sorts after everything that can follow a vault's name in a key, and before every longer name. */
const AFTER_NAME = '"';

/** Lower-case vault names, from <= name < before, as in keys. */
export interface NameRange {
  readonly from: string;
  /** Undefined: to the end. */
  readonly before: string | undefined;
}
export const rangeOfVault = (name: string): NameRange => ({
  from: name.toLowerCase(),
  before: name.toLowerCase() + AFTER_NAME,
});
/** Returns the range of names after one, up to and including another. */
export const rangeBehind = (after: string | undefined, last: string | undefined): NameRange => ({
  from: after === undefined ? "" : after + AFTER_NAME,
  before: last === undefined ? undefined : last + AFTER_NAME,
});

/** A vault of the inventory, and its assets as `<type>.<name>`. */
export interface EvaluatedVault {
  readonly vault: VaultRecord;
  readonly assets: ReadonlySet<string>;
}

/** The stored results of one vault. */
interface Results {
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
 * Returns the vaults in a range of names whose results are inconsistent or don't match the vault's assets: lower-case name and
 * problem. One request per check with assets and three more, and one per further 1,000 rows.
 *
 * @param known - The inventory's vaults in the range. Rows of other vaults are superfluous.
 * @param left - Vaults to skip, because a scan is writing them.
 */
export async function inspectResults(
  tables: Tables,
  range: NameRange,
  known: ReadonlyMap<string, EvaluatedVault>,
  left: ReadonlySet<string>,
): Promise<Map<string, string>> {
  const standing = await readResults(tables, range);
  const wrong = new Map<string, string>();
  for (const name of new Set([...known.keys(), ...standing.keys()])) {
    if (left.has(name)) continue;
    const results = standing.get(name) ?? nothing();
    const problem = problemOf(results, known.get(name));
    if (problem) wrong.set(name, problem);
  }
  return wrong;
}

/**
 * Returns a value that changes with every write of a vault's results: the ETags of its row and its fence. Undefined while an
 * evaluation in several parts is in progress.
 */
export async function resultsVersion(tables: Tables, vaultName: string): Promise<string | undefined> {
  const [own, fence] = await Promise.all([
    readRowOrCorrupt(tables, VaultStates, STATE, vaultStateKey(vaultName)),
    tables.getWithAge(ResultFences, STATE, fenceKey(vaultName)),
  ]);
  if (fence?.row.open && fence.ageMs < EVALUATION_MS) return undefined;
  return `${own.row?.etag ?? own.unreadable?.etag} ${fence?.row.etag}`;
}

/** Removes the unreadable rows of a vault's results by their ETags, because they would make every evaluation fail. */
export async function removeUnreadable(tables: Tables, vaultName: string): Promise<void> {
  const standing = await readResults(tables, rangeOfVault(vaultName));
  for (const { rowKey, etag } of standing.get(vaultName.toLowerCase())?.unreadable ?? [])
    await tables.transaction(TABLE, STATE, [remove(VaultStates, rowKey, etag), unknownChange(vaultName)]);
}

const nothing = (): Results => ({ details: [], assets: new Map(), findings: new Map(), unreadable: [] });

async function readResults(tables: Tables, range: NameRange): Promise<Map<string, Results>> {
  const all = new Map<string, Results>();
  const of = (name: string): Results => {
    const found = all.get(name) ?? nothing();
    all.set(name, found);
    return found;
  };
  const rowsOf = (prefix: string) => ({
    partitionKey: STATE,
    from: prefix + range.from,
    before: range.before === undefined ? keyEnd(prefix) : prefix + range.before,
  });
  const onCorruptOf =
    (prefix: string) =>
    ({ rowKey, etag }: StorageCorrupt) => {
      const name = vaultIn(rowKey, prefix);
      if (name !== undefined) of(name).unreadable.push({ rowKey, etag });
    };

  const ownPrefix = vaultStateKey("");
  const onCorrupt = ({ rowKey, etag }: StorageCorrupt) => {
    of(rowKey.slice(ownPrefix.length)).unreadable.push({ rowKey, etag });
  };
  for await (const rows of tables.pages(VaultStates, { ...rowsOf(ownPrefix), onCorrupt }))
    for (const row of rows) of(row.rowKey.slice(ownPrefix.length)).row = row;

  const detailsStart = detailsPrefix("").slice(0, -1);
  const details = { ...rowsOf(detailsStart), onCorrupt: onCorruptOf(detailsStart) };
  for await (const rows of tables.pages(Details, details)) {
    for (const { rowKey, etag, assets, facts } of rows) {
      const name = vaultIn(rowKey, detailsStart);
      if (name === undefined) continue;
      const chunk = readable(() => unpackDetails(assets, facts));
      const results = of(name);
      if (!chunk) results.unreadable.push({ rowKey, etag });
      results.details.push(chunk?.hash ?? "");
      for (const asset of chunk?.assets ?? []) results.assets.set(assetKey(asset.type, asset.name), asset);
    }
  }

  await pMap(
    ASSET_CHECKS,
    async (check) => {
      const prefix = findingsPrefix(check, "").slice(0, -1);
      for await (const rows of tables.pages(Findings, { ...rowsOf(prefix), onCorrupt: onCorruptOf(prefix) })) {
        for (const { rowKey, items, facts } of rows) {
          const name = vaultIn(rowKey, prefix);
          if (name === undefined) continue;
          of(name).findings.set(rowKey, readable(() => findingsHash(items, facts)) ?? "");
        }
      }
    },
    { concurrency: RANGES_AT_ONCE },
  );
  return all;
}

/** Returns the vault's name in `<prefix><vault>!<number>`. Undefined for another kind of row. */
function vaultIn(rowKey: string, prefix: string): string | undefined {
  return /^(.*)!\d{5}$/.exec(rowKey.slice(prefix.length))?.[1];
}

function readable<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined; // The content is not that of an evaluation.
  }
}

/** Returns a short description of the problem for the audit log. Undefined if everything agrees. */
function problemOf(results: Results, known: EvaluatedVault | undefined): string | undefined {
  const { row, details, assets, findings } = results;
  if (results.unreadable.length > 0) return "a row can't be read";
  if (!known || !row || row.gone) {
    if (details.length > 0 || findings.size > 0) return "rows of a vault without results remain";
    if (known) return "the vault's results are missing";
    return row && !row.gone ? "results of a removed vault remain" : undefined;
  }
  if (row.details.join() !== details.join()) return "details differ from the vault's row";
  if (!sameNames(known.assets, assets)) return "the assets evaluated are not the vault's";
  if (row.subscriptionId.toLowerCase() !== known.vault.subscriptionId.toLowerCase()) return "another subscription";
  if (!talliesAgree(row, assets)) return "tallies differ from the details";
  if (dueOf(assets) !== row.dueAt) return "the due time differs from the details";
  if (row.exemptions.some((one) => one.failing !== isFailing(assets, one.asset, one.checkId)))
    return "exemptions differ from the details";
  return findingsAgree(known.vault.name, assets, findings) ? undefined : "findings differ from the details";
}

const sameNames = (a: ReadonlySet<string>, b: ReadonlyMap<string, unknown>): boolean =>
  a.size === b.size && [...a].every((name) => b.has(name));

function dueOf(assets: ReadonlyMap<string, AssetState>): number | undefined {
  const due = [...assets.values()].flatMap(({ dueAt }) => (dueAt === undefined ? [] : [dueAt]));
  return due.length === 0 ? undefined : due.reduce((least, at) => Math.min(least, at));
}

/** No other row contains which checks the vault itself passes, so only its failures are compared. */
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
  const tallies = readable(() => unpackTallies(row.tallies));
  if (!tallies) return false;
  for (const [code, { passed, failed }] of tallies) {
    const check = checkOfCode.get(code);
    // Results of checks of an earlier version are ignored. The next evaluation removes them.
    if (!check) continue;
    if (check.resourceType === "vault") {
      if (failed !== (failures.has(code) ? 1 : 0)) return false;
    } else {
      const of = counted.get(code);
      if (of?.passed !== passed || of.failed !== failed) return false;
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
  const wanted = findingRowsByCheck(assets.values());
  let rows = 0;
  for (const check of ASSET_CHECKS) {
    for (const [at, { hash }] of (wanted.get(check.code) ?? []).entries()) {
      rows++;
      if (findings.get(findingsKey(check, vaultName, at)) !== hash) return false;
    }
  }
  return rows === findings.size;
}
