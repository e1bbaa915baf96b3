import type { KeyRotation } from "../key-rotation/key-rotation.ts";
import type { RunRecord } from "../key-rotation/run.ts";
import { remainingConsumers } from "../key-rotation/transitions.ts";
import { DAY_MS } from "../platform/time.ts";
import type { AutomationSource, PendingNotice } from "./automation-events.ts";

/** A rotation fails or becomes late within a few days of its start. Older ones have no new event. */
const LONGEST_MS = 30 * DAY_MS;
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

function textOf({ vaultName, name, status, consumers, oldVersion, newVersion, failure }: RunRecord): NoticeText {
  const base = { vaultName, title: `${vaultName}/${name}` };
  if (status === "done") {
    return {
      ...base,
      urgency: "notice",
      what: "has a new version, and its consumers use it",
      why: "",
      done: `The version ${newVersion} was added. ${consumers.length} known consumers use it.`,
      safe: `The earlier version ${oldVersion} is unchanged.`,
      next: "No action is needed. Keep the earlier version: backups can need it.",
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
    why:
      remaining.length === 0
        ? "No discovery of dependencies has completed, so its consumers are unknown."
        : `Not seen on the new version: ${named.join(", ")}${more}.`,
    done: `The version ${newVersion} was added. No consumer was changed.`,
    safe: `The earlier version ${oldVersion} stays enabled, so its consumers continue to work.`,
    next: "See the rotation on the key's page. It shows the command that updates each pinned consumer.",
  };
}
