import type { Finding } from "../chain/findings.ts";
import { missingPurges } from "../chain/findings.ts";
import type { PurgeRecord } from "../chain/purge-record.ts";
import type { PublicKeys } from "../chain/signing.ts";
import { withVouched } from "../chain/trust.ts";
import { intervalFrom } from "../interval.ts";
import { checkDigests, checkEnd, mergedDigests } from "./export-chain.ts";
import { checkEntries, entriesByInterval, type Unreadable, unreadableKey } from "./export-entries.ts";
import { coverageNotes, createFindings, lateNotes, purgeRecords, readParts } from "./export-parts.ts";

/** Result of verifying an export offline. */
export interface ExportVerification {
  /** `nothingSealed`: no problems were found, but the export contains no digest of a trusted key. */
  verdict: "intact" | "notIntact" | "nothingSealed";
  /** True for the verdict `intact` only. */
  intact: boolean;
  findings: Finding[];
  entries: number;
  /** Number of digests that a trusted key signed. */
  digests: number;
  /** Intervals of the first and last of these digests. */
  sealedFrom: string | null;
  sealedUpTo: string | null;
  /** Number of entries that no digest covers yet. The signature of the export covers them. */
  unsealed: number;
  purges: PurgeRecord[];
  /** Descriptions of what could not be checked. */
  notes: string[];
}

/**
 * Verifies the parts of a JSON export of the audit log offline, for the command `verify-audit`. An export contains the signed
 * digests of its ten-minute intervals with the fingerprints (ids and hashes) of their entries, and each part a signed
 * statement.
 *
 * @param trusted - Public keys from a trusted source. A key in the export is trusted only if one of them vouches for it.
 */
export async function verifyExport(files: readonly unknown[], trusted: PublicKeys): Promise<ExportVerification> {
  const findings = createFindings();
  const parts = readParts(files, trusted, findings);
  const vouchers = parts.flatMap(({ file }) => file.keys);
  const keys = withVouched(trusted, vouchers);
  const statements = parts.flatMap(({ statement }) => statement ?? []);
  const statedFindings = statements.flatMap((statement) => statement.findings ?? []);
  // An export reports a row that it could not read as `entryInserted`. If a digest contains the entry, it was changed, not
  // inserted.
  const unreadable: Unreadable = new Map(
    statedFindings
      .filter(({ kind }) => kind === "entryInserted")
      .map((finding) => [unreadableKey(finding.interval, finding.entryId), finding]),
  );
  findings.add(...statedFindings.filter(({ kind }) => kind !== "entryInserted"));

  const purges = purgeRecords(parts, keys, findings);
  findings.add(...missingPurges(statements[0]?.beginning?.interval, purges));
  const digests = mergedDigests(parts, findings);
  const predecessor = parts[0]?.file.predecessor ?? null;
  const sealed = checkDigests(digests, { statements, purges, predecessor, keys }, findings);
  checkEnd(digests, statements, findings);
  const entries = entriesByInterval(parts);
  for (const exported of sealed) {
    const inInterval = entries.get(intervalFrom(exported.digest.interval)) ?? [];
    await checkEntries(exported, inInterval, statements, unreadable, findings);
  }
  findings.add(...unreadable.values());

  const covered = new Set(digests.map(({ interval }) => intervalFrom(interval)));
  const unsealed = [...entries].filter(([interval]) => !covered.has(interval));
  const countEntries = (intervals: [number, unknown[]][]) =>
    intervals.reduce((sum, [, inInterval]) => sum + inInterval.length, 0);
  const verdict = findings.all.length > 0 ? "notIntact" : sealed.length === 0 ? "nothingSealed" : "intact";
  return {
    verdict,
    intact: verdict === "intact",
    findings: findings.all,
    entries: countEntries([...entries]),
    digests: sealed.length,
    sealedFrom: sealed[0]?.digest.interval ?? null,
    sealedUpTo: sealed.at(-1)?.digest.interval ?? null,
    unsealed: countEntries(unsealed),
    purges,
    notes: [...coverageNotes(statements), ...lateNotes(parts)],
  };
}
