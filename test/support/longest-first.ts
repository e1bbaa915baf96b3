import { existsSync } from "node:fs";
import path from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Files that take 25 seconds or more, the longest first. */
const LONGEST_FILES = [
  "page/page.test.ts",
  "outcomes/outcomes.test.ts",
  "signed-rows/table-writer.test.ts",
  "store/restore-work.test.ts",
  "alerts/receivers.test.ts",
  "rotation/people-without-rights-azure.test.ts",
  "rotation/places-http.test.ts",
  "rotation/restore.test.ts",
  "upgrade/rollback.test.ts",
  "rotation/people-without-rights.test.ts",
  "sso/browser.test.ts",
  "unreadable-rows/every-row.test.ts",
  "access/confirmations.test.ts",
  "build/package.test.ts",
  "upgrade/upgrade.test.ts",
  "access/user-command.test.ts",
  "secrets.test.ts",
  "reconciliation/walk.test.ts",
  "docs/browser.test.ts",
  "store/restore.test.ts",
  "recompute/recompute.test.ts",
  "state/random-schedules.test.ts",
  "store/store-format.test.ts",
  "rotation/rotation.test.ts",
  "outgoing/hostile-exports.test.ts",
  "local/start.test.ts",
  "clients/clients.test.ts",
  "governance/compliance.test.ts",
  "access/second-factor.test.ts",
  "alerts/alert-to-mail.test.ts",
  "rotation/automatic-schedules.test.ts",
  "page/second-factor.test.ts",
  "applications/faults.test.ts",
  "http/access.test.ts",
  "http/sign-in.test.ts",
  "rotation/hosts.test.ts",
  "discovery/kill.test.ts",
  "discovery/rescans.test.ts",
  "reconciliation/records.test.ts",
  "rotation/busy-vaults.test.ts",
  "audit/export.test.ts",
  "audit/tampering.test.ts",
  "page/confirmations.test.ts",
  "discovery/budget.test.ts",
  "discovery/scan-responses.test.ts",
  "reconciliation/faults.test.ts",
  "discovery/first-scan.test.ts",
  "access/second-factor-misuse.test.ts",
  "http/rate-limit.test.ts",
  "discovery/failures.test.ts",
  "rotation/policies.test.ts",
  "discovery/end.test.ts",
].map((file) => path.resolve(import.meta.dirname, "..", file));

/**
 * Makes Vitest start the test files that take longest first, so that none of them runs alone at the end while other workers are
 * idle. Without this class, Vitest starts the largest files first.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    for (const file of LONGEST_FILES)
      if (!existsSync(file)) throw new Error(`longest-first.ts names ${file}, which is not there.`);
    const rank = ({ moduleId }: TestSpecification) =>
      LONGEST_FILES.includes(moduleId) ? LONGEST_FILES.indexOf(moduleId) : LONGEST_FILES.length;
    return (await super.sort(files)).sort((one, other) => rank(one) - rank(other));
  }
}
