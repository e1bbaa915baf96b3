import { MAX_LIMIT } from "../../platform/http/paging.ts";
import { Problem } from "../../platform/http/problem.ts";
import type { Clock } from "../../platform/runtime.ts";
import type { Compliance } from "../compliance.ts";
import type { FrameworkId } from "../controls.ts";
import type { Violation, ViolationFilter } from "../violations.ts";
import type { UnreadSubscriptions } from "./assessment-pdf.ts";
import { frameworkCsv, violationsCsv } from "./csv.ts";

/** Violations per part of the CSV. */
const CSV_PART = 5_000;
/** Maximum number of violations in a PDF; a longer one is not readable. */
export const MAX_PDF_VIOLATIONS = 2_000;
/** Violations of each check in an assessor's report. The CSV has all. */
const EVIDENCE_PER_CHECK = 20;
const DEFAULT_DAYS = 90;
/** Maximum number of pages of the list that one file is built from. */
const MAX_PAGES = 10;

/** Creates CSV and PDF files of results. */
export interface ComplianceReports {
  /** Returns up to 5,000 violations, and a cursor for the rest. */
  violationsCsv(
    filter: ViolationFilter,
    cursor: string | undefined,
  ): Promise<{ csv: string; nextCursor: string | null }>;
  /** @throws {Problem} invalidRequest when there are more than `MAX_PDF_VIOLATIONS`. */
  violationsPdf(filter: ViolationFilter): Promise<Uint8Array>;
  /** @throws {Problem} notFound */
  frameworkCsv(id: string): Promise<{ id: FrameworkId; csv: string }>;
  /**
   * Returns an assessor's report.
   *
   * @param days - Its period: the number of days up to now.
   * @throws {Problem} notFound
   */
  frameworkPdf(id: string, days?: number): Promise<{ id: FrameworkId; data: Uint8Array }>;
}

export function createComplianceReports(deps: {
  compliance: Pick<Compliance, "violations" | "framework" | "assessment">;
  /** Returns the number of key vaults none of whose lists the last scan could read. */
  unreadableVaults: () => Promise<number>;
  unreadSubscriptions: () => Promise<UnreadSubscriptions>;
  /** Returns a WOFF font file, which is part of the bundle. */
  unicodeFont?: string;
  clock: Clock;
}): ComplianceReports {
  const { compliance, unreadableVaults, unreadSubscriptions, unicodeFont, clock } = deps;

  /** Returns up to `most` violations from a cursor on. Fewer if matches are rare. */
  async function walk(filter: ViolationFilter, most: number, cursor: string | undefined) {
    const items: Violation[] = [];
    let next: string | null | undefined = cursor;
    for (let page = 0; page < MAX_PAGES && next !== null && items.length < most; page++) {
      const limit = Math.min(MAX_LIMIT, most - items.length);
      const found = await compliance.violations(filter, { limit, offset: 0, cursor: next });
      items.push(...found.items);
      next = found.nextCursor;
    }
    return { items, nextCursor: next ?? null };
  }

  return {
    async violationsCsv(filter, cursor) {
      const { items, nextCursor } = await walk(filter, CSV_PART, cursor);
      return { csv: violationsCsv(items), nextCursor };
    },

    async violationsPdf(filter) {
      const { items, nextCursor } = await walk(filter, MAX_PDF_VIOLATIONS, undefined);
      if (nextCursor !== null) {
        throw new Problem(
          "invalidRequest",
          `A PDF holds at most ${MAX_PDF_VIOLATIONS} violations, and there are more, or more to look through. Choose filters, or GET /compliance/violations/csv, which has no limit.`,
        );
      }
      const { violationsDocument } = await import("./violations-pdf.ts");
      return await violationsDocument(items, { filter, createdAt: clock.now(), unicodeFont });
    },

    async frameworkCsv(id) {
      const framework = await compliance.framework(id);
      return { id: framework.id, csv: frameworkCsv(framework) };
    },

    async frameworkPdf(id, days = DEFAULT_DAYS) {
      const assessment = await compliance.assessment(id, { days, each: EVIDENCE_PER_CHECK });
      const { assessmentDocument } = await import("./assessment-pdf.ts");
      const [unread, vaults] = await Promise.all([unreadSubscriptions(), unreadableVaults()]);
      const about = { days, unread, unreadableVaults: vaults, unicodeFont };
      return { id: assessment.framework.id, data: await assessmentDocument(assessment, about) };
    },
  };
}
