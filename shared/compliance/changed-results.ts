import * as z from "zod";
import { pack, unpackBytes } from "../platform/storage/packed-members.ts";
import { insert, merge, type Operation, put } from "../platform/storage/tables.ts";
import { type Change, writeWithChangeRow } from "../platform/storage/write-totals.ts";
import { type ChangedResults as ChangedRow, ChangedRows, changedKey, type VaultSummary } from "./layout.ts";
import { packTallies, type Tally, unpackTallies } from "./pack.ts";

/** What of a vault's results is counted in totals: what a score is made from. */
export interface CountedResults {
  name: string;
  subscriptionId: string;
  tallies: ReadonlyMap<number, Tally>;
  /** Of its assets, where the pair fails. */
  exemptions: { checkId: string; until: string; failing: boolean }[];
  createdAt: string;
  evaluatedAt: string;
  /** Empty where no evaluation of everything covered it. */
  evaluationId: string;
}

const exemption = z.object({ checkId: z.string(), until: z.string(), failing: z.boolean() });

/** As they are kept, with tallies in base64. */
export const PackedResults = z.object({
  name: z.string(),
  subscriptionId: z.string(),
  tallies: z.string(),
  exemptions: z.array(exemption),
  createdAt: z.string(),
  evaluatedAt: z.string(),
  evaluationId: z.string(),
});

/** Undefined for what has left. */
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

/** Undefined where only the vaults' own rows know. */
export function readChangedResults({ before, now, unknown }: ChangedRow): Change<CountedResults> | undefined {
  if (unknown) return undefined;
  try {
    return { before: unpackCounted(before), now: unpackCounted(now) };
  } catch {
    return undefined; // no version of this service wrote it
  }
}

/**
 * Writes a change of a vault's row together with the row that tells the totals of it: each write of a vault's row in this
 * room goes through here, or through `unknownChange`.
 *
 * @param write - Must write both in one transaction.
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

/** That how the totals count this vault can't be told, since its row could not be read or was lost. */
export const unknownChange = (vaultName: string): Operation =>
  put(ChangedRows, changedKey(vaultName), { unknown: true });
