import * as z from "zod";
import { sha256 } from "../canonical.ts";
import { isIntervalName } from "../interval.ts";
import { claimsOf, type PublicKeys, readStatement } from "./signing.ts";

/**
 * The digest of a ten-minute interval of the audit log: a statement about the interval's entries that sealing signs. Each
 * digest names the previous one, so the digests form a chain.
 */

/** Names a digest: its number, its interval and the SHA-256 of its statement. */
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
  /** Length of the interval. */
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
  /** SHA-256 of a row without a trusted signature that this digest replaced. */
  replaced: z.string().optional(),
  /** The previous digest, if no trusted key signed it. */
  unverified: DigestName.optional(),
  /**
   * Every entry since this interval must have an authentication code (entry-authentication.ts). Absent from digests of an
   * earlier version.
   */
  authenticatedFrom: z.string().optional(),
  /** Number of entries without a code that were accepted because an earlier version may have written them. */
  withoutCode: z.int().optional(),
  /** Findings about changes before the interval was sealed. `total` also counts findings that are not listed. */
  falsified: z
    .object({
      total: z.int(),
      listed: z.array(
        z.object({
          kind: z.enum(["entryChanged", "entryRemoved", "entryInserted", "lastEntryChanged"]),
          interval: z.string(),
          entryId: z.string().optional(),
          detail: z.string(),
        }),
      ),
    })
    .optional(),
  /** True if the anchor in the key vault was unreadable or named another beginning. */
  anchorChanged: z.literal(true).optional(),
});
export type Digest = z.infer<typeof Digest>;

/** The content of a row under the key of a digest. */
export type DigestReading =
  | { state: "genuine"; digest: Digest; hash: string; kid: string }
  /** `claims` is the unverified content. */
  | { state: "unknownKey"; claims: Digest; hash: string }
  /** Signed by a trusted key, but for another interval than the row's. */
  | { state: "misplaced"; digest: Digest; hash: string }
  /** `claims` is set if the unverified content names this interval. */
  | { state: "changed"; claims: Digest | undefined; hash: string };

/**
 * Checks the row of a digest.
 *
 * @param statement - The signed statement of the row. Undefined if the row could not be read.
 */
export function readDigest(interval: string, statement: string | undefined, keys: PublicKeys): DigestReading {
  const hash = sha256(statement ?? "");
  if (statement === undefined || !isIntervalName(interval)) return { state: "changed", claims: undefined, hash };
  const result = readStatement("audit-digest", Digest, statement, keys);
  if ("payload" in result) {
    const digest = result.payload;
    return { state: digest.interval === interval ? "genuine" : "misplaced", digest, hash, kid: result.kid };
  }
  const unverified = claimsOf(Digest, statement);
  const claims = unverified?.interval === interval ? unverified : undefined;
  return claims && result.problem === "unknownKey"
    ? { state: "unknownKey", claims, hash }
    : { state: "changed", claims, hash };
}

/**
 * The digest that the next one must name. `number` is undefined if the digest's signature is not valid. `hash` is null if the
 * next digest is the first of the log. `Previous` is undefined if the digest is missing or unknown. Then the next digest is
 * not compared with it.
 */
export type Previous = { hash: string | null; number: number | undefined } | undefined;

/**
 * Returns whether a digest names the previous one and has the next number. If a digest was lost, the next one continues after
 * the lost number.
 */
export function follows(digest: Digest, previous: NonNullable<Previous>): boolean {
  if (previous.hash !== digest.previous) return false;
  return previous.number === undefined || digest.lost !== undefined || previous.number + 1 === digest.number;
}
