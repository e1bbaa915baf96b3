import type { Finding } from "../chain/findings.ts";
import { missingPurges } from "../chain/findings.ts";
import type { PurgeRecord } from "../chain/purge-record.ts";
import type { PublicKeys } from "../chain/signing.ts";
import { withVouched } from "../chain/trust.ts";
import { intervalFrom } from "../interval.ts";
import { checkDigests, checkEnd, mergedDigests } from "./export-chain.ts";
import { checkEntries, entriesByInterval, placeOf, type Unreadable } from "./export-entries.ts";
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
 * Verifies the parts of a JSON export against public keys from a trusted source. A key in the export is trusted only if a
 * trusted key vouches for it.
 */
export async function verifyExport(files: readonly unknown[], trusted: PublicKeys): Promise<ExportVerification> {
  const findings = createFindings();
  const parts = readParts(files, trusted, findings);
  const vouchers = parts.flatMap(({ file }) => file.keys);
  const keys = withVouched(trusted, vouchers);
  const statements = parts.flatMap(({ statement }) => statement ?? []);
  const stated = statements.flatMap((statement) => statement.findings ?? []);
  const unreadable: Unreadable = new Map(
    stated
      .filter(({ kind }) => kind === "entryInserted")
      .map((finding) => [placeOf(finding.interval, finding.entryId), finding]),
  );
  findings.add(...stated.filter(({ kind }) => kind !== "entryInserted"));

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
  const count = (some: [number, unknown[]][]) => some.reduce((sum, [, inInterval]) => sum + inInterval.length, 0);
  const verdict = findings.all.length > 0 ? "notIntact" : sealed.length === 0 ? "nothingSealed" : "intact";
  return {
    verdict,
    intact: verdict === "intact",
    findings: findings.all,
    entries: count([...entries]),
    digests: sealed.length,
    sealedFrom: sealed[0]?.digest.interval ?? null,
    sealedUpTo: sealed.at(-1)?.digest.interval ?? null,
    unsealed: count(unsealed),
    purges,
    notes: [...coverageNotes(statements), ...lateNotes(parts)],
  };
}
