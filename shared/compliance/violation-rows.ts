import { keyEnd } from "../platform/storage/keys.ts";
import { withCorruptRowErrors } from "../platform/storage/packed-members.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { Check } from "./check.ts";
import { CHECKS } from "./checks/all.ts";
import { Details, detailsKey, detailsPrefix, Findings, findingsKey, STATE } from "./compliance-rows.ts";
import type { Overview, VaultOverview } from "./overview.ts";
import { FINDINGS_PER_ROW, type Finding, sortedFindings, unpackDetails, unpackFindings } from "./packed-results.ts";
import { findingRows } from "./vault-state.ts";
import { failingByCheck, findingsOf } from "./write-state.ts";

/** A range of one check's failing resources in one vault, by position. */
export interface Slice {
  check: Check;
  vault: VaultOverview;
  from: number;
  count: number;
  /** Number of all failing resources. */
  failed: number;
  /** Only names after this one. Positions before it may have changed. */
  after?: string;
}

/** The findings read for slices. */
export interface ReadSlices {
  /** The slices that were read: all, or as many from the first on as one call may read. */
  slices: Slice[];
  itemsOf(slice: Slice): Finding[];
}

/**
 * Maximum number of ranges or vaults that one reading requests concurrently. A page of scattered vaults may end before its
 * limit.
 */
const MAX_READS = 16;
/** Up to this number, ranges are read instead of all findings of a few vaults. */
const FEW_RANGES = 6;
const PAGE_ROWS = 1000;
/** Number of unneeded rows that are read to avoid another request. */
const MAX_GAP_ROWS = 200;

/**
 * Reads the findings of slices in the order of checks and vaults. With a filter of checks, a page's rows are in a few ranges.
 * With a filter of one or a few vaults, they are scattered, so the vaults' details are read instead.
 */
export async function readSlices(tables: Tables, overview: Overview, wanted: readonly Slice[]): Promise<ReadSlices> {
  const stretches = stretchesOf(wanted, overview);
  const vaults = [...new Set(wanted.filter(isOfAssets).map(({ vault }) => vault))];
  if (stretches.length > FEW_RANGES && vaults.length < stretches.length) {
    const read = new Set(vaults.slice(0, MAX_READS));
    const slices = until(wanted, (slice) => isOfAssets(slice) && !read.has(slice.vault));
    const findings = new Map<VaultOverview, Map<number, Finding[]>>();
    await Promise.all([...read].map(async (vault) => findings.set(vault, await readVault(tables, vault.name))));
    return { slices, itemsOf: (slice) => itemsOf(slice, findings.get(slice.vault)?.get(slice.check.code) ?? [], 0) };
  }
  const read = stretches.slice(0, MAX_READS);
  const left = new Set(stretches.slice(MAX_READS).flatMap(({ slices }) => slices));
  const rows = await readStretches(tables, read);
  return {
    slices: until(wanted, (slice) => left.has(slice)),
    itemsOf: (slice) => {
      const { first, last } = rowsOf(slice);
      const items: Finding[] = [];
      for (let at = first; at <= last; at++)
        items.push(...(rows.get(findingsKey(slice.check, slice.vault.name, at)) ?? []));
      return itemsOf(slice, items, first * FINDINGS_PER_ROW);
    },
  };
}

const isOfAssets = ({ check }: Slice): boolean => check.resourceType !== "vault";

function until<T>(items: readonly T[], ends: (item: T) => boolean): T[] {
  const end = items.findIndex(ends);
  return end < 0 ? [...items] : items.slice(0, end);
}

/** @param before - Number of the check's findings in the vault before the first of `items`. */
function itemsOf({ check, vault, from, count, after }: Slice, items: readonly Finding[], before: number): Finding[] {
  if (check.resourceType === "vault") {
    const failure = vault.failures.find(({ code }) => code === check.code);
    return failure ? [[vault.name, failure.since, failure.evidence, vault.owners && { owners: vault.owners }]] : [];
  }
  if (after !== undefined) return items.filter(([name]) => name.toLowerCase() > after);
  return items.slice(from - before).slice(0, count);
}

/** Returns all failures of a vault's assets by the check's code. */
async function readVault(tables: Tables, vaultName: string): Promise<Map<number, Finding[]>> {
  const assets = [];
  const range = { partitionKey: STATE, from: detailsKey(vaultName, 0), before: keyEnd(detailsPrefix(vaultName)) };
  for await (const rows of tables.pages(Details, range)) {
    for (const row of rows)
      assets.push(...withCorruptRowErrors(Details, row, "assets", () => unpackDetails(row.assets, row.facts)).assets);
  }
  const failing = failingByCheck(assets);
  return new Map([...failing.keys()].map((code) => [code, sortedFindings(findingsOf(failing, code))]));
}

/** A range of row keys, and its number of rows. */
interface Stretch {
  from: string;
  to: string;
  rows: number;
  slices: Slice[];
}

async function readStretches(tables: Tables, stretches: readonly Stretch[]): Promise<Map<string, Finding[]>> {
  const findings = new Map<string, Finding[]>();
  await Promise.all(
    stretches.map(async ({ from, to }) => {
      for await (const rows of tables.pages(Findings, { partitionKey: STATE, from, before: `${to}!` })) {
        for (const row of rows)
          findings.set(
            row.rowKey,
            withCorruptRowErrors(Findings, row, "items", () => unpackFindings(row.items, row.facts)),
          );
      }
    }),
  );
  return findings;
}

/**
 * Returns the rows of a vault that a slice needs: those of its positions, or after a name all rows, since positions may have
 * changed.
 */
const rowsOf = ({ after, from, count, failed }: Slice): { first: number; last: number } =>
  after === undefined
    ? { first: Math.floor(from / FINDINGS_PER_ROW), last: Math.floor((from + count - 1) / FINDINGS_PER_ROW) }
    : { first: 0, last: findingRows(failed) - 1 };

function stretchesOf(slices: readonly Slice[], overview: Overview): Stretch[] {
  const stretches: Stretch[] = [];
  for (const slice of slices.filter(isOfAssets)) {
    const { first, last } = rowsOf(slice);
    const [from, to] = [first, last].map((chunk) => findingsKey(slice.check, slice.vault.name, chunk)) as [
      string,
      string,
    ];
    const before = stretches.at(-1);
    const rows = last - first + 1;
    const gap = before ? rowsBetween(before.slices.at(-1)!, slice, overview) : Infinity;
    const together = before ? before.rows + gap + rows : Infinity;
    if (before && (gap === 0 || (gap <= MAX_GAP_ROWS && together <= PAGE_ROWS))) {
      Object.assign(before, { to, rows: together });
      before.slices.push(slice);
    } else stretches.push({ from, to, rows, slices: [slice] });
  }
  return stretches;
}

/** Returns the number of rows between two slices, up to `MAX_GAP_ROWS`. */
function rowsBetween(a: Slice, b: Slice, { vaults }: Overview): number {
  let rows = 0;
  const [first, last] = [CHECKS.indexOf(a.check), CHECKS.indexOf(b.check)];
  const [behind, before] = [vaults.indexOf(a.vault), vaults.indexOf(b.vault)];
  for (let at = first; at <= last && rows <= MAX_GAP_ROWS; at++) {
    const { resourceType, code } = CHECKS[at]!;
    if (resourceType === "vault") continue;
    const end = at === last ? before : vaults.length;
    for (let vault = at === first ? behind + 1 : 0; vault < end && rows <= MAX_GAP_ROWS; vault++)
      rows += findingRows(vaults[vault]!.tallies.get(code)?.failed ?? 0);
  }
  return rows;
}
