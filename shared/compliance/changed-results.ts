/**
 * Marks of vaults whose results changed after the totals were computed. A mark has the vault's results as the totals count them
 * and as they are now. A reader subtracts the former and adds the latter.
 */
import * as z from "zod";
import { pack, unpackBytes } from "../platform/storage/packed-members.ts";
import { insert, merge, type Operation, put } from "../platform/storage/tables.ts";
import { type Change, writeWithChangeRow } from "../platform/storage/write-totals.ts";
import {
  type ChangedResults as ChangedRow,
  ChangedRows,
  changedVaultKey,
  type VaultSummary,
} from "./compliance-rows.ts";
import { packTallies, type Tally, unpackTallies } from "./packed-results.ts";

/** The counted part of a vault's results, from which scores are computed. */
export interface CountedResults {
  name: string;
  subscriptionId: string;
  tallies: ReadonlyMap<number, Tally>;
  /** Exemptions of single assets that currently fail the exempted check. */
  exemptions: { checkId: string; until: string; failing: boolean }[];
  createdAt: string;
  evaluatedAt: string;
  /** The last evaluation of everything that covered the vault. Empty if none did. */
  evaluationId: string;
}

const exemption = z.object({ checkId: z.string(), until: z.string(), failing: z.boolean() });

/** The stored form of `CountedResults`, with tallies in base64. */
export const PackedResults = z.object({
  name: z.string(),
  subscriptionId: z.string(),
  tallies: z.string(),
  exemptions: z.array(exemption),
  createdAt: z.string(),
  evaluatedAt: z.string(),
  evaluationId: z.string(),
});

/** Returns the counted part of a vault's row. Undefined for a removed vault. */
export function countedResultsOf(state: VaultSummary | undefined): CountedResults | undefined {
  if (!state || state.gone) return undefined;
  const { name, subscriptionId, createdAt, evaluatedAt, evaluationId = "" } = state;
  const exemptions = state.exemptions
    .filter(({ failing }) => failing)
    .map(({ checkId, until, failing }) => ({ checkId, until, failing }));
  return {
    name,
    subscriptionId,
    tallies: unpackTallies(state.tallies),
    exemptions,
    createdAt,
    evaluatedAt,
    evaluationId,
  };
}

export const packResults = ({ tallies, ...counted }: CountedResults): z.infer<typeof PackedResults> => ({
  ...counted,
  tallies: Buffer.from(packTallies(tallies)).toString("base64"),
});

export const unpackResults = ({ tallies, ...counted }: z.infer<typeof PackedResults>): CountedResults => ({
  ...counted,
  tallies: unpackTallies(Buffer.from(tallies, "base64")),
});

const packCounted = (counted: CountedResults | undefined): Uint8Array<ArrayBuffer> =>
  counted ? pack(packResults(counted)) : new Uint8Array();

const unpackCounted = (packed: Uint8Array | undefined): CountedResults | undefined =>
  packed && packed.length > 0 ? unpackResults(unpackBytes(packed, PackedResults)) : undefined;

/** Returns the change that a mark describes. Undefined if the mark lacks the data; then the vaults' rows must be read. */
export function readChangedResults({
  before,
  now: packedNow,
  unknown,
}: ChangedRow): Change<CountedResults> | undefined {
  if (unknown) return undefined;
  try {
    return { before: unpackCounted(before), now: unpackCounted(packedNow) };
  } catch {
    return undefined; // The packed data is damaged.
  }
}

/**
 * Writes a vault's row together with the vault's mark. Each write of a vault's row in this module uses this function or
 * `unknownChangeMark`. A new mark stores `before`, the results that the totals count. An existing mark keeps its own.
 *
 * @param write - Must write both rows in one transaction.
 */
export async function writeWithChangeMark<T>(
  vaultName: string,
  change: { before: VaultSummary | undefined; now: VaultSummary | undefined },
  write: (mark: Operation) => Promise<T>,
): Promise<T> {
  const key = changedVaultKey(vaultName);
  const packedNow = packCounted(countedResultsOf(change.now));
  const inserted = insert(ChangedRows, key, { before: packCounted(countedResultsOf(change.before)), now: packedNow });
  const merged = merge(ChangedRows, key, { now: packedNow });
  // Tries to insert the mark first, and merges it if it exists.
  const probablyExists = false;
  return await writeWithChangeRow({ inserted, merged }, probablyExists, write);
}

/** Returns the write of a mark for a vault whose row was lost or damaged, so that the results in the totals are unknown. */
export const unknownChangeMark = (vaultName: string): Operation =>
  put(ChangedRows, changedVaultKey(vaultName), { unknown: true });
