import { MAX_LIMIT } from "../../platform/http/paging.ts";
import { Problem } from "../../platform/http/problem.ts";
import type { Clock } from "../../platform/runtime.ts";
import type { Compliance } from "../compliance.ts";
import type { FrameworkId } from "../controls.ts";
import type { Violation, ViolationFilter } from "../violations.ts";
import type { UnreadSubscriptions } from "./assessment-pdf.ts";
import { frameworkCsv, violationsCsv } from "./csv.ts";
import { violationsSarif } from "./sarif.ts";

/**
 * Reads compliance results and builds the files that users download: violations as CSV or PDF, and a framework's
 * results as CSV or as a PDF for assessors.
 */

/** Maximum number of violations in one response with CSV or SARIF. A cursor continues with the rest. */
const VIOLATIONS_PER_PART = 5_000;
/** Maximum number of violations in a PDF. A longer document would not be readable. */
export const MAX_PDF_VIOLATIONS = 2_000;
/** Violations of each check in an assessor's report. The CSV has all. */
const EVIDENCE_PER_CHECK = 20;
const DEFAULT_PERIOD_DAYS = 90;
/** Maximum number of pages of the list that one file is built from. */
const MAX_PAGES = 10;

/** Creates CSV and PDF files of results. */
export interface ComplianceReports {
  /** Returns up to 5,000 violations, and a cursor for the rest. */
  violationsCsv(
    filter: ViolationFilter,
    cursor: string | undefined,
  ): Promise<{ csv: string; nextCursor: string | null }>;
  /** Returns up to 5,000 violations as SARIF, and a cursor for the rest. @param version - Version of the service. */
  violationsSarif(
    filter: ViolationFilter,
    cursor: string | undefined,
    version: string,
  ): Promise<{ sarif: string; nextCursor: string | null }>;
  /** Returns a PDF of violations. @throws {Problem} invalidRequest when there are more than `MAX_PDF_VIOLATIONS`. */
  violationsPdf(filter: ViolationFilter): Promise<Uint8Array>;
  /** Returns a framework's results as CSV. @throws {Problem} notFound */
  frameworkCsv(id: string): Promise<{ id: FrameworkId; csv: string }>;
  /**
   * Returns an assessor's report.
   *
   * @param days - Its period: the number of days up to now.
   * @throws {Problem} notFound
   */
  frameworkPdf(id: string, days?: number): Promise<{ id: FrameworkId; data: Uint8Array }>;
}

/** Creates the files of compliance results. */
export function createComplianceReports(deps: {
  compliance: Pick<Compliance, "violations" | "framework" | "assessment">;
  /** Returns the number of key vaults none of whose lists the last scan could read. */
  unreadableVaults: () => Promise<number>;
  unreadSubscriptions: () => Promise<UnreadSubscriptions>;
  /** Path of a WOFF font file with the characters of other scripts. It is part of the bundle. */
  unicodeFont?: string;
  clock: Clock;
}): ComplianceReports {
  const { compliance, unreadableVaults, unreadSubscriptions, unicodeFont, clock } = deps;

  /** Returns up to `maximum` violations from a cursor on. Fewer if matches are rare. */
  async function readUpTo(filter: ViolationFilter, maximum: number, cursor: string | undefined) {
    const items: Violation[] = [];
    let next: string | null | undefined = cursor;
    for (let page = 0; page < MAX_PAGES && next !== null && items.length < maximum; page++) {
      const limit = Math.min(MAX_LIMIT, maximum - items.length);
      const violationsPage = await compliance.violations(filter, { limit, offset: 0, cursor: next });
      items.push(...violationsPage.items);
      next = violationsPage.nextCursor;
    }
    return { items, nextCursor: next ?? null };
  }

  return {
    async violationsCsv(filter, cursor) {
      const { items, nextCursor } = await readUpTo(filter, VIOLATIONS_PER_PART, cursor);
      return { csv: violationsCsv(items), nextCursor };
    },

    async violationsSarif(filter, cursor, version) {
      const { items, nextCursor } = await readUpTo(filter, VIOLATIONS_PER_PART, cursor);
      return { sarif: violationsSarif(items, version), nextCursor };
    },

    async violationsPdf(filter) {
      const { items, nextCursor } = await readUpTo(filter, MAX_PDF_VIOLATIONS, undefined);
      if (nextCursor !== null) {
        throw new Problem(
          "invalidRequest",
          `A PDF contains at most ${MAX_PDF_VIOLATIONS} violations, and more match or remain to be searched. Use narrower filters, or GET /compliance/violations/csv, which has no limit.`,
        );
      }
      const { violationsDocument } = await import("./violations-pdf.ts");
      return await violationsDocument(items, { filter, createdAt: clock.now(), unicodeFont });
    },

    async frameworkCsv(id) {
      const framework = await compliance.framework(id);
      return { id: framework.id, csv: frameworkCsv(framework) };
    },

    async frameworkPdf(id, days = DEFAULT_PERIOD_DAYS) {
      const assessment = await compliance.assessment(id, { days, violationsPerCheck: EVIDENCE_PER_CHECK });
      const { assessmentDocument } = await import("./assessment-pdf.ts");
      const [unread, vaults] = await Promise.all([unreadSubscriptions(), unreadableVaults()]);
      const reportContext = { days, unread, unreadableVaults: vaults, unicodeFont };
      return { id: assessment.framework.id, data: await assessmentDocument(assessment, reportContext) };
    },
  };
}
