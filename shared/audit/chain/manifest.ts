import { createHash } from "node:crypto";
import type { Tables } from "../../platform/storage/tables.ts";
import { sha256 } from "../canonical.ts";
import { type Interval, intervalFrom, intervalName, isIntervalName } from "../interval.ts";
import { readRows } from "../read-rows.ts";
import { MANIFESTS_PARTITION, ManifestRow } from "../rows.ts";
import type { StoredEntry } from "../stored-entries.ts";

/**
 * Manifests: the fingerprints (id and hash) of the entries of a sealed interval. The digest of the interval contains only the
 * hash of its manifest. With the manifest, verification finds out which entry was changed.
 */

/** An entry's id and the hash of its text, in base64url. */
export type Fingerprint = readonly [id: string, hash: string];

/** Returns the fingerprint of a stored entry. */
export const fingerprintOf = ({ id, text }: StoredEntry): Fingerprint => [id, sha256(text ?? "")];

const ID_BYTES = 26;
const HASH_BYTES = 32;
/** Entries per row: 58,000 bytes fit into one column. */
const FINGERPRINTS_PER_ROW = 1_000;
/** Rows per page: at most 5.8 MB, and for most logs many intervals. */
const ROWS_PER_PAGE = 100;

const fingerprintBytes = ([id, hash]: Fingerprint): Buffer =>
  Buffer.concat([Buffer.from(id, "latin1"), Buffer.from(hash, "base64url")], ID_BYTES + HASH_BYTES);

/** Hashes a manifest incrementally. */
export function manifestHash(): { add(fingerprint: Fingerprint): void; digest(): string } {
  const hash = createHash("sha256");
  return {
    add: (fingerprint) => void hash.update(fingerprintBytes(fingerprint)),
    digest: () => hash.digest("base64url"),
  };
}

/** Stores the fingerprints of an interval. Idempotent. */
export async function writeManifest(
  tables: Tables,
  interval: Interval,
  fingerprints: AsyncIterable<Fingerprint>,
): Promise<{ entries: number; hash: string }> {
  const hash = manifestHash();
  let entries = 0;
  let part = 0;
  let pending: Buffer[] = [];
  const flush = async () => {
    const rowKey = `${intervalName(interval)}|${String(part++).padStart(6, "0")}`;
    await tables.put(ManifestRow, MANIFESTS_PARTITION, rowKey, { hashes: Buffer.concat(pending) });
    pending = [];
  };
  for await (const fingerprint of fingerprints) {
    hash.add(fingerprint);
    entries += 1;
    if (pending.push(fingerprintBytes(fingerprint)) === FINGERPRINTS_PER_ROW) await flush();
  }
  if (pending.length > 0) await flush();
  return { entries, hash: hash.digest() };
}

/** A fingerprint with the interval that was sealed with it. */
export interface Sealed {
  interval: Interval;
  fingerprint: Fingerprint;
}

/** Matches the number of a row at the end of its key: `2026-11-21T10:40Z|000000`. */
const PART = /\|\d{6}$/;

/**
 * Yields the fingerprints with which the intervals `from <= interval < to` were sealed, in the order of interval and id. Skips
 * rows that are not part of a manifest. If a sealed row was damaged, the hash of the whole manifest differs.
 */
export async function* readManifests(
  tables: Tables,
  { from, to }: { from: Interval; to: Interval },
): AsyncGenerator<Sealed[]> {
  const range = { from: intervalName(from), before: intervalName(to), pageSize: ROWS_PER_PAGE };
  for await (const page of readRows(tables, ManifestRow, { partitionKey: MANIFESTS_PARTITION, ...range })) {
    yield page.flatMap(({ rowKey, value }) => {
      const name = rowKey.replace(PART, "");
      return value && name !== rowKey && isIntervalName(name) ? decodeRow(intervalFrom(name), value.hashes) : [];
    });
  }
}

function decodeRow(interval: Interval, hashes: Uint8Array): Sealed[] {
  const bytes = Buffer.from(hashes.buffer, hashes.byteOffset, hashes.length);
  const sealed: Sealed[] = [];
  for (let start = 0; start + ID_BYTES + HASH_BYTES <= bytes.length; start += ID_BYTES + HASH_BYTES) {
    const id = bytes.toString("latin1", start, start + ID_BYTES);
    const hash = bytes.toString("base64url", start + ID_BYTES, start + ID_BYTES + HASH_BYTES);
    sealed.push({ interval, fingerprint: [id, hash] });
  }
  return sealed;
}
