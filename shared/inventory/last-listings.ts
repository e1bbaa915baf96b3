import { createHash } from "node:crypto";
import { ASSET_TYPES, type AssetType } from "./asset.ts";
import type { VaultRecord } from "./vault.ts";

/**
 * The times at which the lists of all vaults were last read, packed into one value of the stored totals.
 */

type ListedVault = Pick<VaultRecord, "name" | "listedAt">;

/**
 * Layout, in 32-bit words: first two words for the newest time of all lists, in Unix milliseconds. Then four words per vault,
 * sorted by the first: the hash of its name, and for each list how many milliseconds before the newest time it was read.
 */
const WORDS = 4;
const NEVER_LISTED = 0xffffffff;
/** Stands for a time too old for a word, or for a hash that two vaults share. The vault's own row has the time. */
const NOT_STORED = 0xfffffffe;

/** Times of the last listings of all vaults: about eight bytes per vault when packed and compressed. */
export class LastListings {
  readonly #newest: number;
  readonly #words: Uint32Array;

  static pack(vaults: readonly ListedVault[]): Uint8Array {
    const instants = vaults.flatMap(({ listedAt }) => Object.values(listedAt).map((at) => Date.parse(at)));
    const newest = instants.reduce((most, at) => Math.max(most, at), 0);
    const rows = vaults.map(({ name, listedAt }) => [
      hashOf(name),
      ...ASSET_TYPES.map((type) => {
        const listedAtText = listedAt[type];
        return listedAtText === undefined ? NEVER_LISTED : Math.min(newest - Date.parse(listedAtText), NOT_STORED);
      }),
    ]);
    rows.sort(([a], [b]) => a! - b!);
    for (const [index, row] of rows.entries())
      if (row[0] === rows[index - 1]?.[0] || row[0] === rows[index + 1]?.[0]) row.fill(NOT_STORED, 1);
    const newestWords = [Math.floor(newest / 2 ** 32), newest % 2 ** 32];
    return new Uint8Array(Uint32Array.from([...newestWords, ...rows.flat()]).buffer);
  }

  private constructor(newest: number, words: Uint32Array) {
    this.#newest = newest;
    this.#words = words;
  }

  /** Returns the words that `pack` wrote. Undefined if the data is corrupt. */
  static unpack(words: Uint32Array): LastListings | undefined {
    const newest = (words[0] ?? Number.NaN) * 2 ** 32 + (words[1] ?? Number.NaN);
    if (Number.isNaN(new Date(newest).getTime()) || (words.length - 2) % WORDS !== 0) return undefined;
    return new LastListings(newest, words.subarray(2));
  }

  /** Returns an ISO 8601 time, null if the list was never read, or undefined if the vault's own row must be read. */
  lastListedAt(vaultName: string, type: AssetType): string | null | undefined {
    const hash = hashOf(vaultName);
    let low = 0;
    let high = this.#words.length / WORDS;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#words[middle * WORDS]! < hash) low = middle + 1;
      else high = middle;
    }
    if (this.#words[low * WORDS] !== hash) return undefined;
    const millisecondsBeforeNewest = this.#words[low * WORDS + 1 + ASSET_TYPES.indexOf(type)]!;
    if (millisecondsBeforeNewest === NOT_STORED) return undefined;
    return millisecondsBeforeNewest === NEVER_LISTED
      ? null
      : new Date(this.#newest - millisecondsBeforeNewest).toISOString();
  }
}

const hashOf = (name: string): number => createHash("sha256").update(name.toLowerCase()).digest().readUInt32BE(0);
