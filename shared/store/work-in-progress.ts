import { ACTIVE, ActiveScans } from "../discovery/scan.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { Graph, GraphApplication } from "../platform/azure/graph.ts";
import type { Clock } from "../platform/runtime.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import {
  isOver,
  ROTATIONS,
  type RotationRecord,
  type RotationStatus,
  RotationSummaries,
  type RotationSummary,
  Rotations,
  titleOf,
} from "../rotation/rotation.ts";
import { listPrefix, listRange, recordKey } from "../rotation/rows.ts";
import { DUE_PREFIX, IndexKeys, SYNC } from "../sync/record.ts";

/** Returns a sentence about what to do about a rotation whose record is older than the directory and the vaults. */
function nextStepOf(status: RotationStatus): string {
  if (status === "needsAttention") return "It waits for your decision in #/rotation.";
  if (status === "planned") return "It has changed nothing yet. Cancel it in #/rotation, or let it continue.";
  return "It continues when the app starts, and reads every place and the application's credentials before it removes one. Watch it in #/rotation.";
}

/**
 * States of a rotation's attempt to add a client secret in which the secret exists, as far as the record knows. `made`: added.
 * `discarding`: unused, and will be removed. `left`: stays, because it may be in use.
 */
const LIVE_ATTEMPTS: readonly string[] = ["made", "discarding", "left"];

/** Returns sentences about the differences between a rotation's record and the client secrets of its application. */
async function differencesOf(
  { rotationId, objectId }: RotationSummary,
  { tables, graph }: { tables: Tables; graph: Pick<Graph, "findApplication"> },
): Promise<string> {
  if (objectId === undefined) return "";
  try {
    const record = await tables.get(Rotations, ROTATIONS, recordKey(rotationId));
    if (!record) return "Its record is missing.";
    const app = await graph.findApplication({ objectId });
    return app ? compareSecrets(record, app) : "Its application is no longer in the directory.";
  } catch (error) {
    if (error instanceof StorageCorrupt) return "Its record can't be read.";
    if (!(error instanceof CloudFailure)) throw error;
    return `Its application's client secrets could not be compared. ${error.message} ${error.remedy}`;
  }
}

function compareSecrets(record: RotationRecord, { passwords }: GraphApplication): string {
  // `knownKeyIds`: the client secrets from before the rotation. `removeExpired`: the expired one that the step `makeRoom`
  // removes if the application has the maximum number of secrets.
  const { oldKeyId, knownKeyIds, attempts, removeExpired, steps } = record;
  const madeRoom = steps.some(({ name, status }) => name === "makeRoom" && status === "done");
  const added = attempts.flatMap(({ keyId, state }) =>
    keyId !== undefined && LIVE_ATTEMPTS.includes(state) ? [keyId] : [],
  );
  // The secrets that must exist: the added ones, and those from before the rotation, except an expired one that `makeRoom`
  // removed.
  const recorded = [...knownKeyIds.filter((keyId) => !(madeRoom && keyId === removeExpired)), ...added];
  const nameOf = (keyId: string) =>
    added.includes(keyId) ? `new secret ${keyId}` : keyId === oldKeyId ? `old secret ${keyId}` : `secret ${keyId}`;
  const existing = passwords.map(({ keyId }) => keyId);
  const isNamed = (keyId: string) => knownKeyIds.includes(keyId) || attempts.some((attempt) => attempt.keyId === keyId);
  const sentences = [
    ...recorded.filter((keyId) => !existing.includes(keyId)).map((keyId) => `The ${nameOf(keyId)} is gone.`),
    ...passwords
      .filter(({ keyId }) => !isNamed(keyId))
      .map(({ keyId, displayName }) => `The record does not know the secret ${keyId} (${displayName ?? "unnamed"}).`),
  ];
  return sentences.join(" ") || "The application has the client secrets that the record knows.";
}

/**
 * Yields a line for each rotation and scan that was in progress at the time of the copy, and one for the due sync records. The
 * cloud can be ahead of these records: for example, a rotation can have completed after the copy. So the line of a rotation names
 * the client secrets that differ in the directory, or says why they could not be read.
 */
export async function* workInProgress({
  tables,
  graph,
  clock,
}: {
  tables: Tables;
  graph: Pick<Graph, "findApplication">;
  clock: Clock;
}): AsyncGenerator<string, void> {
  for await (const rotation of unfinishedRotations(tables)) {
    const { rotationId, status } = rotation;
    const sentences = [
      `Rotation ${rotationId} of ${titleOf(rotation)} was ${status}.`,
      await differencesOf(rotation, { tables, graph }),
      nextStepOf(status),
    ];
    yield sentences.filter(Boolean).join(" ");
  }
  // The index key of a due record is `DUE_PREFIX`, the time of its next run (ISO 8601), `|` and its ID.
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
  // All rotations: no filter, and no limits in time.
  const allRotations = listRange(listPrefix({}), {});
  for await (const rows of tables.pages(RotationSummaries, allRotations))
    for (const row of rows) if (!isOver(row.status)) yield row;
}
