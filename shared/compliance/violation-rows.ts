/**
 * Reads the rows that a page of violations needs. A "slice" is failing assets of one check in one vault. Its findings are in
 * rows of 500 with the keys `1!<severity>!<check>!<vault>!<number>`, which sort by check and vault. Slices whose rows are near
 * each other are read as one range of rows. "Details" are other rows, with the results of all checks for each asset of a vault,
 * from which the findings can be derived too.
 */
import { keyEnd } from "../platform/storage/keys.ts";
import { toStorageCorrupt } from "../platform/storage/packed-members.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { Check } from "./check.ts";
import { CHECKS } from "./checks/all.ts";
import { Details, detailsKey, detailsPrefix, Findings, findingsKey, STATE } from "./compliance-rows.ts";
import type { Overview, VaultOverview } from "./overview.ts";
import { FINDINGS_PER_ROW, type Finding, sortedFindings, unpackDetails, unpackFindings } from "./packed-results.ts";
import { countFindingRows } from "./vault-state.ts";
import { failingByCheck, findingsOf } from "./write-state.ts";

/** Failing resources of one check in one vault: `count` of them, from the position `from` on, sorted by name. */
export interface Slice {
  check: Check;
  vault: VaultOverview;
  from: number;
  count: number;
  /** Number of all failing resources of the check in the vault. */
  failed: number;
  /**
   * If set, only names after this one, whatever their position: an evaluation may have changed the positions since the last
   * page.
   */
  after?: string;
}

/** The findings read for slices. */
export interface ReadSlices {
  /** The slices that were read: all, or the first ones that one request may read. */
  slices: Slice[];
  itemsOf(slice: Slice): Finding[];
}

/**
 * Maximum number of ranges, or of vaults, that are read for one page, all at the same time. If the page needs more, it ends
 * early.
 */
const MAX_CONCURRENT_READS = 16;
/** With more ranges than this, the details of the vaults are read instead if there are fewer vaults than ranges. */
const MAX_RANGES_OF_PAGE = 6;
/** Maximum number of rows of one combined range: a table request returns at most 1,000. */
const MAX_ROWS_PER_RANGE = 1000;
/** Number of unneeded rows that are read to avoid another request. */
const MAX_GAP_ROWS = 200;

/**
 * Reads the findings of slices, which must be in the order of checks and vaults. If the request filters checks, the rows are in
 * a few ranges. If it filters one or a few vaults, the rows are scattered, so the details of these vaults are read instead.
 */
export async function readSlices(
  tables: Tables,
  overview: Overview,
  requestedSlices: readonly Slice[],
): Promise<ReadSlices> {
  const rowRanges = rowRangesOf(requestedSlices, overview);
  const vaults = [...new Set(requestedSlices.filter(isOfAssets).map(({ vault }) => vault))];
  if (rowRanges.length > MAX_RANGES_OF_PAGE && vaults.length < rowRanges.length) {
    const vaultsToRead = new Set(vaults.slice(0, MAX_CONCURRENT_READS));
    const slices = takeUntil(requestedSlices, (slice) => isOfAssets(slice) && !vaultsToRead.has(slice.vault));
    const findings = new Map<VaultOverview, Map<number, Finding[]>>();
    await Promise.all([...vaultsToRead].map(async (vault) => findings.set(vault, await readVault(tables, vault.name))));
    const findingsIn = ({ vault, check }: Slice) => findings.get(vault)?.get(check.code) ?? [];
    return { slices, itemsOf: (slice) => selectFindings(slice, findingsIn(slice), 0) };
  }
  const rangesToRead = rowRanges.slice(0, MAX_CONCURRENT_READS);
  const unread = new Set(rowRanges.slice(MAX_CONCURRENT_READS).flatMap(({ slices }) => slices));
  const rows = await readRowRanges(tables, rangesToRead);
  return {
    slices: takeUntil(requestedSlices, (slice) => unread.has(slice)),
    itemsOf: (slice) => {
      const { first, last } = rowNumbersOf(slice);
      const items: Finding[] = [];
      for (let index = first; index <= last; index++)
        items.push(...(rows.get(findingsKey(slice.check, slice.vault.name, index)) ?? []));
      return selectFindings(slice, items, first * FINDINGS_PER_ROW);
    },
  };
}

const isOfAssets = ({ check }: Slice): boolean => check.resourceType !== "vault";

function takeUntil<T>(items: readonly T[], isEnd: (item: T) => boolean): T[] {
  const end = items.findIndex(isEnd);
  return end < 0 ? [...items] : items.slice(0, end);
}

/**
 * Returns the slice's findings. Those of a vault itself are in the vault's own row, which the overview has.
 *
 * @param items - Findings of the check in the vault.
 * @param skippedFindings - Number of the check's findings in the vault before the first of `items`.
 */
function selectFindings(
  { check, vault, from, count, after }: Slice,
  items: readonly Finding[],
  skippedFindings: number,
): Finding[] {
  if (check.resourceType === "vault") {
    const failure = vault.failures.find(({ code }) => code === check.code);
    return failure ? [[vault.name, failure.since, failure.evidence, vault.owners && { owners: vault.owners }]] : [];
  }
  if (after !== undefined) return items.filter(([name]) => name.toLowerCase() > after);
  return items.slice(from - skippedFindings).slice(0, count);
}

/** Returns all failures of a vault's assets by the check's code. */
async function readVault(tables: Tables, vaultName: string): Promise<Map<number, Finding[]>> {
  const assets = [];
  const range = { partitionKey: STATE, from: detailsKey(vaultName, 0), before: keyEnd(detailsPrefix(vaultName)) };
  for await (const rows of tables.pages(Details, range)) {
    for (const row of rows)
      try {
        assets.push(...unpackDetails(row.assets, row.facts).assets);
      } catch (error) {
        await tables.leaveOut(toStorageCorrupt(error, Details, row));
      }
  }
  const failing = failingByCheck(assets);
  return new Map([...failing.keys()].map((code) => [code, sortedFindings(findingsOf(failing, code))]));
}

/** A range of row keys that is read with one query, from the key `from` to the key `to` inclusive, and the slices in it. */
interface RowRange {
  from: string;
  to: string;
  rows: number;
  slices: Slice[];
}

async function readRowRanges(tables: Tables, rowRanges: readonly RowRange[]): Promise<Map<string, Finding[]>> {
  const findings = new Map<string, Finding[]>();
  await Promise.all(
    rowRanges.map(async ({ from, to }) => {
      // `${to}!` is the next possible key after `to`, so that the range includes `to`.
      for await (const rows of tables.pages(Findings, { partitionKey: STATE, from, before: `${to}!` })) {
        for (const row of rows)
          try {
            findings.set(row.rowKey, unpackFindings(row.items, row.facts));
          } catch (error) {
            await tables.leaveOut(toStorageCorrupt(error, Findings, row));
          }
      }
    }),
  );
  return findings;
}

/**
 * Returns the first and last row number of the findings that a slice needs: the rows of its positions or, with `after`, all
 * rows, because positions may have changed.
 */
const rowNumbersOf = ({ after, from, count, failed }: Slice): { first: number; last: number } =>
  after === undefined
    ? { first: Math.floor(from / FINDINGS_PER_ROW), last: Math.floor((from + count - 1) / FINDINGS_PER_ROW) }
    : { first: 0, last: countFindingRows(failed) - 1 };

function rowRangesOf(slices: readonly Slice[], overview: Overview): RowRange[] {
  const rowRanges: RowRange[] = [];
  for (const slice of slices.filter(isOfAssets)) {
    const { first, last } = rowNumbersOf(slice);
    const [from, to] = [first, last].map((number) => findingsKey(slice.check, slice.vault.name, number)) as [
      string,
      string,
    ];
    const lastRange = rowRanges.at(-1);
    const rows = last - first + 1;
    const gapRows = lastRange ? rowsBetween(lastRange.slices.at(-1)!, slice, overview) : Infinity;
    const combinedRows = lastRange ? lastRange.rows + gapRows + rows : Infinity;
    // Slices without rows between them are always combined.
    if (lastRange && (gapRows === 0 || (gapRows <= MAX_GAP_ROWS && combinedRows <= MAX_ROWS_PER_RANGE))) {
      Object.assign(lastRange, { to, rows: combinedRows });
      lastRange.slices.push(slice);
    } else rowRanges.push({ from, to, rows, slices: [slice] });
  }
  return rowRanges;
}

/** Returns the number of rows between two slices, up to `MAX_GAP_ROWS`. */
function rowsBetween(a: Slice, b: Slice, { vaults }: Overview): number {
  let rows = 0;
  const [first, last] = [CHECKS.indexOf(a.check), CHECKS.indexOf(b.check)];
  const [startVault, endVault] = [vaults.indexOf(a.vault), vaults.indexOf(b.vault)];
  for (let index = first; index <= last && rows <= MAX_GAP_ROWS; index++) {
    const { resourceType, code } = CHECKS[index]!;
    if (resourceType === "vault") continue;
    const end = index === last ? endVault : vaults.length;
    for (let vault = index === first ? startVault + 1 : 0; vault < end && rows <= MAX_GAP_ROWS; vault++)
      rows += countFindingRows(vaults[vault]!.tallies.get(code)?.failed ?? 0);
  }
  return rows;
}
