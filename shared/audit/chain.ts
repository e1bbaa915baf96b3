import * as z from "zod";
import type { Clock } from "../runtime.ts";
import type { Tables } from "../storage/tables.ts";
import { sha256 } from "./canonical.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, isIntervalName } from "./interval.ts";
import { DIGESTS_PARTITION, DigestRow, HEAD } from "./rows.ts";
import { type PublicKeys, peekStatement, readStatement } from "./signing.ts";

/** What was outside the tables for safe keeping: the newest digest at that time. */
export const DigestName = z.object({ number: z.int().min(1), interval: z.string(), hash: z.string() });
export type DigestName = z.infer<typeof DigestName>;

/** What a digest says of its interval. */
export const Digest = z.object({
  /** One more for every interval since the first. */
  number: z.int().min(1),
  interval: z.string(),
  minutes: z.int(),
  entries: z.int().min(0),
  /** Entries in all intervals up to this one, since the first. */
  total: z.int().min(0),
  /** SHA-256 of the manifest: 26 characters of id and 32 bytes of hash per entry, in order of their ids. */
  manifest: z.string(),
  /** SHA-256 of the digest before, null for the first. */
  previous: z.string().nullable(),
  sealedAt: z.string(),
  /** The newest digest the service remembered outside the tables, where it was no longer in them. */
  lost: DigestName.optional(),
});
export type Digest = z.infer<typeof Digest>;

/** The end of the chain, where sealing goes on. */
export interface ChainEnd {
  interval: Interval;
  number: number;
  total: number;
  hash: string;
}

/**
 * The newest digest. The row `~head` says where to look, so that this costs three requests however long the chain is;
 * what it says is only believed when that digest is there. If it is not, the whole chain is read.
 */
export async function chainEnd(tables: Tables, keys: PublicKeys, clock: Clock): Promise<ChainEnd | undefined> {
  const head = await tables.get(DigestRow, DIGESTS_PARTITION, HEAD);
  const hint = head && peekStatement(Digest, head.digest);
  const row = hint && isIntervalName(hint.interval) && (await tables.get(DigestRow, DIGESTS_PARTITION, hint.interval));
  let end = row && row.digest === head.digest ? extended(undefined, row.rowKey, row.digest, keys) : undefined;
  const now = clock.now().getTime();
  for await (const page of tables.pages(DigestRow, {
    partitionKey: DIGESTS_PARTITION,
    ...(end ? { after: intervalName(end.interval) } : {}),
    before: "~",
  })) {
    for (const { rowKey, digest } of page) {
      if (isIntervalName(rowKey) && intervalFrom(rowKey) <= now) end = extended(end, rowKey, digest, keys);
    }
  }
  return end;
}

/** A digest that says nonsense still holds its place: the next one names it, and verification tells what is wrong with it. */
function extended(end: ChainEnd | undefined, rowKey: string, statement: string, keys: PublicKeys): ChainEnd {
  const interval = intervalFrom(rowKey);
  const read = readStatement("audit-digest", Digest, statement, keys);
  const known =
    "payload" in read ? read.payload : read.problem === "unknownKey" ? peekStatement(Digest, statement) : undefined;
  return {
    interval,
    hash: sha256(statement),
    number: known?.number ?? (end ? end.number + (interval - end.interval) / INTERVAL_MS : 1),
    total: known?.total ?? end?.total ?? 0,
  };
}
