import * as z from "zod";
import { pack, unpackBytes } from "../platform/storage/packed-members.ts";
import { insert, merge, type Operation, put } from "../platform/storage/tables.ts";
import { type Change, writeWithChangeRow } from "../platform/storage/write-totals.ts";
import { type ChangedResults as ChangedRow, ChangedRows, changedKey, type VaultSummary } from "./compliance-rows.ts";
import { packTallies, type Tally, unpackTallies } from "./packed-results.ts";

/** The counted part of a vault's results, from which scores are computed. */
export interface CountedResults {
  name: string;
  subscriptionId: string;
  tallies: ReadonlyMap<number, Tally>;
  /** Exemptions of single assets whose pair of check and asset fails. */
  exemptions: { checkId: string; until: string; failing: boolean }[];
  createdAt: string;
  evaluatedAt: string;
  /** The last evaluation of everything that covered the vault. Empty if none did. */
  evaluationId: string;
}

const exemption = z.object({ checkId: z.string(), until: z.string(), failing: z.boolean() });

/** Stored form, with tallies in base64. */
export const PackedResults = z.object({
  name: z.string(),
  subscriptionId: z.string(),
  tallies: z.string(),
  exemptions: z.array(exemption),
  createdAt: z.string(),
  evaluatedAt: z.string(),
  evaluationId: z.string(),
});

/** Returns the counted part. Undefined for a removed vault. */
export function countedOf(state: VaultSummary | undefined): CountedResults | undefined {
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

/** Returns undefined if only the vaults' own rows have the data. */
export function readChangedResults({ before, now, unknown }: ChangedRow): Change<CountedResults> | undefined {
  if (unknown) return undefined;
  try {
    return { before: unpackCounted(before), now: unpackCounted(now) };
  } catch {
    return undefined; // The data is corrupt.
  }
}

/**
 * Writes a vault's row together with the row that marks it as changed for the totals. Each write of a vault's row in this
 * module uses this function or `unknownChange`.
 *
 * @param write - Must write both rows in one transaction.
 */
export async function writeChanged<T>(
  vaultName: string,
  change: { before: VaultSummary | undefined; now: VaultSummary | undefined },
  write: (mark: Operation) => Promise<T>,
): Promise<T> {
  const key = changedKey(vaultName);
  const now = packCounted(countedOf(change.now));
  const inserted = insert(ChangedRows, key, { before: packCounted(countedOf(change.before)), now });
  return await writeWithChangeRow({ inserted, merged: merge(ChangedRows, key, { now }) }, false, write);
}

/** Marks a vault whose state in the totals is unknown, because its row was lost or could not be read. */
export const unknownChange = (vaultName: string): Operation =>
  put(ChangedRows, changedKey(vaultName), { unknown: true });
