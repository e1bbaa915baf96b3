import { ACTIVE, ActiveScans } from "../discovery/scan.ts";
import type { Clock } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { isOver, type RotationStatus, RotationSummaries, type RotationSummary, titleOf } from "../rotation/rotation.ts";
import { listPrefix, listRange } from "../rotation/rows.ts";
import { DUE_PREFIX, IndexKeys, SYNC } from "../sync/record.ts";

/** Returns what to do about a rotation whose record is older than the directory and the vaults. */
function nextStepOf(status: RotationStatus): string {
  if (status === "needsAttention") return "It waits for your decision in #/rotation.";
  if (status === "planned") return "It has changed nothing yet. Cancel it in #/rotation, or let it continue.";
  return "It continues when the app starts, and reads every place and the application's credentials before it removes one. Watch it in #/rotation.";
}

/**
 * Yields a line for each rotation and scan that was in progress at the time of the copy, and one for the due sync records. The
 * cloud can be ahead of these records: for example, a rotation can have completed after the copy.
 */
export async function* workInProgress({
  tables,
  clock,
}: {
  tables: Tables;
  clock: Clock;
}): AsyncGenerator<string, void> {
  for await (const rotation of unfinishedRotations(tables)) {
    const { rotationId, status } = rotation;
    yield `Rotation ${rotationId} of ${titleOf(rotation)} was ${status}. ${nextStepOf(status)}`;
  }
  const range = { from: DUE_PREFIX, before: DUE_PREFIX + clock.now().toISOString(), partitionKey: SYNC };
  let due = 0;
  for await (const rows of tables.pages(IndexKeys, range)) due += rows.length;
  if (due > 0)
    yield `${due} sync records are due. The next runs compare each target with its source, and write what differs.`;
  const active = await tables.get(ActiveScans, ACTIVE, ACTIVE);
  for (const { scanId, mode } of active?.scans ?? [])
    yield `Scan ${scanId} (${mode}) was in progress. It continues when the app starts.`;
}

async function* unfinishedRotations(tables: Tables): AsyncGenerator<RotationSummary, void> {
  const allRotations = listRange(listPrefix({}), {});
  for await (const rows of tables.pages(RotationSummaries, allRotations))
    for (const row of rows) if (!isOver(row.status)) yield row;
}
