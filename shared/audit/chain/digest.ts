import * as z from "zod";
import { sha256 } from "../canonical.ts";
import { isIntervalName } from "../interval.ts";
import { claimsOf, type PublicKeys, readStatement } from "./signing.ts";

/** A digest by its number, its interval and the SHA-256 of its statement. */
export const DigestName = z.object({ number: z.int().min(1), interval: z.string(), hash: z.string() });
export type DigestName = z.infer<typeof DigestName>;

/** Where the chain begins: the interval of digest 1, and its hash, null where that digest is not known any more. */
export const Beginning = z.object({ interval: z.string(), hash: z.string().nullable() });
export type Beginning = z.infer<typeof Beginning>;

/** What a digest says of its interval. The members that it may lack tell what sealing found wrong at that time. */
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
  /** Where the chain begins. Digest 1 can't hold its own hash. Absent from digests of an earlier version. */
  beginning: Beginning.optional(),
  /** The newest digest the service remembered outside the tables, where it was no longer in them. */
  lost: DigestName.optional(),
  /** SHA-256 of what stood in this digest's place and was not signed with a trusted key. */
  replaced: z.string().optional(),
  /** The digest before this one, where no trusted key signed that. */
  unverified: DigestName.optional(),
  /** The key vault remembered no digest's name, or that the log began elsewhere. */
  anchorChanged: z.literal(true).optional(),
});
export type Digest = z.infer<typeof Digest>;

/** What stands in a digest's place. */
export type FoundDigest =
  | { state: "genuine"; digest: Digest; hash: string; kid: string }
  /** `claims` is what it says of itself, which nobody vouches for. */
  | { state: "unknownKey"; claims: Digest; hash: string }
  /** Signed for another interval. */
  | { state: "moved"; digest: Digest; hash: string }
  /** `claims` where it says something of this interval after all. */
  | { state: "changed"; claims: Digest | undefined; hash: string };

/** @param statement - Undefined when the row could not be read. */
export function readDigest(interval: string, statement: string | undefined, keys: PublicKeys): FoundDigest {
  const hash = sha256(statement ?? "");
  if (statement === undefined || !isIntervalName(interval)) return { state: "changed", claims: undefined, hash };
  const read = readStatement("audit-digest", Digest, statement, keys);
  if ("payload" in read) {
    const digest = read.payload;
    return { state: digest.interval === interval ? "genuine" : "moved", digest, hash, kid: read.kid };
  }
  const claimed = claimsOf(Digest, statement);
  const claims = claimed?.interval === interval ? claimed : undefined;
  return claims && read.problem === "unknownKey"
    ? { state: "unknownKey", claims, hash }
    : { state: "changed", claims, hash };
}
