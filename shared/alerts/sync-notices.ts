import { encodeTime } from "ulid";
import type { SyncEntry, SyncRecord } from "../sync/record.ts";
import type { Sync } from "../sync/sync.ts";
import type { AutomationSource, PendingNotice } from "./automation-events.ts";

type NoticeText = NonNullable<Awaited<ReturnType<PendingNotice["notice"]>>>;

/**
 * Creates the source of sync events: sync records that started to fail, and drift (targets that were changed outside of this
 * service). A sync record copies a vault secret to a target in another store.
 */
export function createSyncNotices(sync: Pick<Sync, "get" | "entriesSince">): AutomationSource {
  /** Returns the record if it is still in the state that the entry reports. */
  async function recordIfCurrent({ recordId, kind }: SyncEntry): Promise<SyncRecord | undefined> {
    try {
      const record = await sync.get(recordId);
      return record.enabled && record.state === (kind === "failed" ? "failing" : "drifted") ? record : undefined;
    } catch (error) {
      // The record was deleted. Without a license, `sync.get` throws `licenseRequired` for an unknown record.
      if (error instanceof Error && "code" in error && (error.code === "notFound" || error.code === "licenseRequired"))
        return undefined;
      throw error;
    }
  }

  return {
    async *notices(type, from) {
      if (type !== "syncFailed") return;
      // Only the last event of each record can be current.
      const pending = new Map<string, PendingNotice>();
      for await (const entry of sync.entriesSince(encodeTime(Math.max(0, from.getTime())))) {
        if (entry.kind !== "failed" && entry.kind !== "driftFound") continue;
        const notice = async () => {
          const record = await recordIfCurrent(entry);
          return record && textOf(entry, record);
        };
        pending.set(entry.recordId, { id: `sync.${entry.entryId}`, at: entry.at, notice });
      }
      yield [...pending.values()];
    },
  };
}

function textOf({ recordId, kind, source, target, failure }: SyncEntry, record: SyncRecord): NoticeText {
  const title = `${source} to ${target}`;
  if (kind === "driftFound") {
    const next =
      record.onDrift === "report"
        ? "Find out who changed the target. To overwrite it, set onDrift of the record to overwrite. The sync then runs immediately."
        : "No action is needed. The next run overwrites the target.";
    return {
      recordId,
      title,
      urgency: "warning",
      what: "was changed in the target",
      why: "The target's value differs from the value that this sync wrote.",
      done: "The target was not overwritten.",
      safe: "The source is unchanged.",
      next,
    };
  }
  const { lastSyncedAt } = record;
  return {
    recordId,
    title,
    urgency: "critical",
    what: "failed to sync",
    why: failure?.message ?? "",
    done: "The target was not updated.",
    safe: lastSyncedAt
      ? `The target was last written on ${lastSyncedAt.slice(0, 16)}Z.`
      : "The target was never written.",
    next: failure?.remedy ?? "See the history of the sync record.",
  };
}
