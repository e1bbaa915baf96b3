import { createHash } from "node:crypto";
import { put, type Tables } from "../storage/tables.ts";
import { type Interval, intervalName } from "./interval.ts";
import { MANIFESTS_PARTITION, ManifestRow } from "./rows.ts";

/** An entry's id and the hash of its text, in base64url. */
export type Fingerprint = readonly [id: string, hash: string];

const ID_BYTES = 26;
const HASH_BYTES = 32;
/** Entries per row: 580,000 bytes, well under an entity's 1 MiB. */
const FINGERPRINTS_PER_ROW = 10_000;

const fingerprintBytes = ([id, hash]: Fingerprint): Buffer =>
  Buffer.concat([Buffer.from(id, "latin1"), Buffer.from(hash, "base64url")], ID_BYTES + HASH_BYTES);

/** Hashes a manifest as its fingerprints come by. */
export function manifestHash(): { add(fingerprint: Fingerprint): void; digest(): string } {
  const hash = createHash("sha256");
  return {
    add: (fingerprint) => void hash.update(fingerprintBytes(fingerprint)),
    digest: () => hash.digest("base64url"),
  };
}

/** Keeps an interval's fingerprints; doing it again writes the same. */
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
    const operation = put(ManifestRow, manifestKey(interval, part++), { hashes: Buffer.concat(pending) });
    await tables.transaction(ManifestRow.table, MANIFESTS_PARTITION, [operation]);
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

/** The fingerprints an interval was sealed with, in order of their ids. */
export async function* readManifest(tables: Tables, interval: Interval): AsyncGenerator<Fingerprint> {
  const range = { partitionKey: MANIFESTS_PARTITION, ...manifestRange(interval), pageSize: 1 };
  for await (const page of tables.pages(ManifestRow, range)) {
    for (const { hashes } of page) {
      const bytes = Buffer.from(hashes.buffer, hashes.byteOffset, hashes.length);
      for (let at = 0; at + ID_BYTES + HASH_BYTES <= bytes.length; at += ID_BYTES + HASH_BYTES) {
        yield [
          bytes.toString("latin1", at, at + ID_BYTES),
          bytes.toString("base64url", at + ID_BYTES, at + ID_BYTES + HASH_BYTES),
        ];
      }
    }
  }
}

const manifestKey = (interval: Interval, part: number): string =>
  `${intervalName(interval)}|${String(part).padStart(4, "0")}`;

/** The row keys of one interval's manifest. */
export const manifestRange = (interval: Interval): { from: string; before: string } => ({
  from: `${intervalName(interval)}|`,
  before: `${intervalName(interval)}~`,
});
