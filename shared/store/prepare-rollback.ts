import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { removeFormat } from "../platform/storage/store-format.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { WholeTables } from "../platform/storage/whole-tables.ts";
import { EARLIER_BUILDS, type EarlierBuild, lossesOf, writesEntriesWithoutCode } from "./rollback-losses.ts";

/**
 * Prepares the store of a stopped app for an earlier build. Such a build can read every row of this version. The preparation
 * reports what the build ignores or does differently.
 */

/** The store is not prepared. Each line of the message says what to do first. */
export class RollbackRefused extends Error {
  override readonly name = "RollbackRefused";
}

interface Dependencies {
  wholeTables: WholeTables;
  tables: Tables;
  audit: Pick<Audit, "append" | "prepareForRollback">;
}

/** Number of characters that identify a commit, as Git shows it. */
const MIN_COMMIT = 7;

/** @throws {RollbackRefused} for a commit without a known preparation. */
function buildOf(commit: string): EarlierBuild {
  const build = EARLIER_BUILDS.find(
    (known) => commit.length >= MIN_COMMIT && (commit.startsWith(known) || known.startsWith(commit)),
  );
  if (build === undefined)
    throw new RollbackRefused(`The store can be prepared for ${EARLIER_BUILDS.join(", ")} only.`);
  return build;
}

/**
 * Prepares the store for an earlier build, and records it in the audit log. The app must be stopped. The call can be repeated
 * after a crash.
 *
 * @param to - Commit of the earlier build.
 * @param dryRun - Only reports, and writes nothing.
 * @param startedBy - Account of the person on the machine that runs the command, for the audit log.
 * @param report - Receives a line about each thing that the earlier build loses or does differently.
 * @throws {RollbackRefused} for a commit without a known preparation.
 */
export async function prepareRollback(
  deps: Dependencies,
  { to, dryRun, caller, startedBy }: { to: string; dryRun: boolean; caller: Caller; startedBy?: string | undefined },
  report: (line: string) => unknown,
): Promise<void> {
  const build = buildOf(to);
  const losses = await findLosses(deps.wholeTables, build);
  for (const line of losses) report(line);
  if (dryRun) return;
  const details = { to: build, startedBy, losses };
  // Removes the row with the store's format, because the row would stop a build of a lower format. A later build writes it again.
  await audited(deps.audit, { type: "store.preparedForRollback", caller, details }, () => removeFormat(deps.tables));
  // Runs after this version's last audit entry, because from then on the log accepts entries without authentication codes.
  if (writesEntriesWithoutCode(build)) await deps.audit.prepareForRollback();
}

/** Counts the rows whose members or content the build ignores or drops. */
async function findLosses(wholeTables: WholeTables, build: EarlierBuild): Promise<string[]> {
  const lines: string[] = [];
  for (const loss of lossesOf(build)) {
    let count = 0;
    for await (const { columns } of wholeTables.rows(loss.table)) if (loss.isIn(columns)) count++;
    if (count > 0) lines.push(loss.line(count));
  }
  return lines;
}
