import * as z from "zod";
import { sha256 } from "../canonical.ts";
import { isIntervalName } from "../interval.ts";
import { claimsOf, type PublicKeys, readStatement } from "./signing.ts";

/** A digest's number, its interval and the SHA-256 of its statement. */
export const DigestName = z.object({ number: z.int().min(1), interval: z.string(), hash: z.string() });
export type DigestName = z.infer<typeof DigestName>;

/** The beginning of the chain: the interval of digest 1, and its hash, null if that digest is no longer known. */
export const Beginning = z.object({ interval: z.string(), hash: z.string().nullable() });
export type Beginning = z.infer<typeof Beginning>;

/** The signed content of a digest. The optional members record problems that sealing found. */
export const Digest = z.object({
  /** Increases by one for every interval since the first. */
  number: z.int().min(1),
  interval: z.string(),
  minutes: z.int(),
  entries: z.int().min(0),
  /** Number of entries in all intervals from the first up to this one. */
  total: z.int().min(0),
  /** SHA-256 of the manifest: 26 characters of id and 32 bytes of hash per entry, in order of their ids. */
  manifest: z.string(),
  /** SHA-256 of the previous digest, null for the first. */
  previous: z.string().nullable(),
  sealedAt: z.string(),
  /** The beginning of the chain. Digest 1 can't contain its own hash. Absent from digests of an earlier version. */
  beginning: Beginning.optional(),
  /** The newest digest that the key vault stored, if it was missing from the tables. */
  lost: DigestName.optional(),
  /** SHA-256 of a row in this digest's place that no trusted key had signed. */
  replaced: z.string().optional(),
  /** The previous digest, if no trusted key signed it. */
  unverified: DigestName.optional(),
  /** True if the anchor in the key vault was unreadable or named another beginning. */
  anchorChanged: z.literal(true).optional(),
});
export type Digest = z.infer<typeof Digest>;

/** The state of the row in a digest's place. */
export type FoundDigest =
  | { state: "genuine"; digest: Digest; hash: string; kid: string }
  /** `claims` is the unverified content. */
  | { state: "unknownKey"; claims: Digest; hash: string }
  /** Signed, but for another interval. */
  | { state: "moved"; digest: Digest; hash: string }
  /** `claims` is set if the unverified content names this interval. */
  | { state: "changed"; claims: Digest | undefined; hash: string };

/** @param statement - Undefined if the row could not be read. */
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
