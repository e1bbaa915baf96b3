import type { KeyRotation } from "../key-rotation/key-rotation.ts";
import type { RunRecord } from "../key-rotation/run.ts";
import { followedCount, remainingConsumers, unknownConsumersText } from "../key-rotation/transitions.ts";
import { DAY_MS } from "../platform/time.ts";
import type { AutomationSource, PendingNotice } from "./automation-events.ts";

/**
 * Longest time from the start of a rotation to its end that is reported. A late rotation ends when a person updates the last pinned
 * consumer, which can take months.
 */
const LONGEST_MS = 365 * DAY_MS;
/** Consumers that a text names. */
const MAX_NAMED = 5;

type NoticeText = NonNullable<Awaited<ReturnType<PendingNotice["notice"]>>>;

/** Creates the source of events about rotations of vault keys: done, late and failed ones. */
export function createKeyRotationNotices(rotations: Pick<KeyRotation, "since">): AutomationSource {
  return {
    async *notices(type, from) {
      if (type !== "rotationDone" && type !== "rotationFailed") return;
      const isDone = type === "rotationDone";
      for await (const runs of rotations.since(new Date(from.getTime() - LONGEST_MS))) {
        yield runs.flatMap((run): PendingNotice[] => {
          const { runId, status } = run;
          if (isDone ? status !== "done" : status !== "failed" && status !== "late") return [];
          const at = status === "late" ? run.lateSince : run.endedAt;
          return [{ id: `key.${runId}.${status}`, ...(at !== undefined && { at }), notice: async () => textOf(run) }];
        });
      }
    },
  };
}

function textOf(run: RunRecord): NoticeText {
  const { vaultName, name, status, consumers, oldVersion, newVersion, failure } = run;
  const incomplete = unknownConsumersText(run.incompleteReason);
  const base = { vaultName, title: `${vaultName}/${name}` };
  if (status === "done") {
    return {
      ...base,
      urgency: "notice",
      what:
        incomplete === undefined
          ? "has a new version, and all known consumers use it"
          : "has a new version, and further consumers may still use the earlier one",
      why: incomplete ?? "",
      done: `The version ${newVersion} was added. Number of known consumers that use it: ${followedCount(consumers)}.`,
      safe: `The earlier version ${oldVersion} is unchanged.`,
      next:
        incomplete === undefined
          ? "No action is needed. Keep the earlier version: backups can need it."
          : "Do not disable the earlier version. See in the coverage of dependencies what discovery could not read.",
    };
  }
  if (status === "failed") {
    return {
      ...base,
      urgency: "critical",
      what: "was not rotated",
      why: failure?.message ?? "",
      done: "No consumer was changed.",
      safe: `The version ${oldVersion} is unchanged.`,
      next: failure?.remedy ?? "See the rotation on the key's page.",
    };
  }
  const remaining = remainingConsumers(consumers);
  const named = remaining.slice(0, MAX_NAMED).map((one) => one.name);
  const more = remaining.length > MAX_NAMED ? ` and ${remaining.length - MAX_NAMED} more` : "";
  return {
    ...base,
    urgency: "warning",
    what: "has a new version that not all consumers use in time",
    why: [...(remaining.length === 0 ? [] : [`Not seen on the new version: ${named.join(", ")}${more}.`]), incomplete]
      .filter((sentence) => sentence !== undefined)
      .join(" "),
    done: `The version ${newVersion} was added. No consumer was changed.`,
    safe: `The earlier version ${oldVersion} stays enabled, so its consumers continue to work.`,
    next: "See the rotation on the key's page. It shows the command that updates each pinned consumer.",
  };
}
