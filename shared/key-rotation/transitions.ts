import type { RunConsumer, RunRecord } from "./run.ts";

/** Decisions about the state of a rotation of a key. Pure functions. */

/** Returns the consumers that are not seen on the new version. A rotation is done only without them. */
export const remainingConsumers = (consumers: readonly RunConsumer[]): RunConsumer[] =>
  consumers.filter(({ state }) => state !== "followed" && state !== "unlinked");

/** Returns how many consumers use the new version. A consumer that uses another key now does not count. */
export const followedCount = (consumers: readonly RunConsumer[]): number =>
  consumers.filter(({ state }) => state === "followed").length;

/** Returns why further consumers may exist, as a sentence. Undefined if discovery read everything that it can read. */
export function unknownConsumersText(reason: RunRecord["incompleteReason"]): string | undefined {
  if (reason === undefined) return undefined;
  return reason === "neverSearched"
    ? "No discovery of dependencies has completed, so its consumers are unknown."
    : "Discovery could not read everything, so further consumers may exist.";
}

/**
 * Returns the status after a check. Without any completed discovery no consumer is known, so that the rotation is not done.
 *
 * @param unknownDueAt - Time after which a rotation without a completed discovery is late.
 */
export function statusAfterCheck(
  { consumers, incompleteReason }: Pick<RunRecord, "consumers" | "incompleteReason">,
  now: Date,
  unknownDueAt: Date,
): "waiting" | "late" | "done" {
  const remaining = remainingConsumers(consumers);
  const isNeverSearched = incompleteReason === "neverSearched";
  if (remaining.length === 0 && !isNeverSearched) return "done";
  const isLate = ({ dueAt }: RunConsumer) => dueAt !== undefined && Date.parse(dueAt) <= now.getTime();
  return remaining.some(isLate) || (isNeverSearched && unknownDueAt <= now) ? "late" : "waiting";
}

/**
 * Returns the reasons why the earlier version of the key must stay enabled, as sentences. The service never disables it. Even
 * without a reason, backups and exports that the service does not know may need it.
 */
export function reasonsToKeepOldVersion({
  consumers,
  incompleteReason,
  status,
}: Pick<RunRecord, "consumers" | "incompleteReason" | "status">): string[] {
  const remaining = status === "rotating" ? consumers : remainingConsumers(consumers);
  const named = remaining.map(({ name, kind, state }) =>
    state === "unknown" ? `It is unknown which version ${name} (${kind}) uses.` : `${name} (${kind}) uses it.`,
  );
  const sql = consumers.some(({ kind }) => kind === "sqlServer")
    ? ["Backups of databases that were encrypted with it need it."]
    : [];
  const incomplete = unknownConsumersText(incompleteReason);
  return [...named, ...sql, ...(incomplete === undefined ? [] : [incomplete])];
}
