import { encodeTime } from "ulid";
import type { SyncEntry, SyncRecord } from "../sync/record.ts";
import type { Sync } from "../sync/sync.ts";
import type { AutomationSource, PendingNotice } from "./automation.ts";

type Words = NonNullable<Awaited<ReturnType<PendingNotice["notice"]>>>;

/** What alerts tell of sync: records that began to fail, and targets that somebody else changed. */
export function createSyncNotices(sync: Pick<Sync, "get" | "entriesSince">): AutomationSource {
  /** The record, where what the entry says is still so. */
  async function stillSo({ recordId, kind }: SyncEntry): Promise<SyncRecord | undefined> {
    try {
      const record = await sync.get(recordId);
      return record.enabled && record.state === (kind === "failed" ? "failing" : "drifted") ? record : undefined;
    } catch (error) {
      // It was removed since; without a licence, the last one was.
      if (error instanceof Error && "code" in error && (error.code === "notFound" || error.code === "licenseRequired"))
        return undefined;
      throw error;
    }
  }

  return {
    async *notices(type, from) {
      if (type !== "syncFailed") return;
      // Of each record the last: what it says is all that can still be so.
      const pending = new Map<string, PendingNotice>();
      for await (const entry of sync.entriesSince(encodeTime(Math.max(0, from.getTime())))) {
        if (entry.kind !== "failed" && entry.kind !== "driftFound") continue;
        const notice = async () => {
          const record = await stillSo(entry);
          return record && wordsOf(entry, record);
        };
        pending.set(entry.recordId, { id: `sync.${entry.entryId}`, at: entry.at, notice });
      }
      yield [...pending.values()];
    },
  };
}

function wordsOf({ recordId, kind, source, target, failure }: SyncEntry, record: SyncRecord): Words {
  const title = `${source} to ${target}`;
  if (kind === "driftFound") {
    const next =
      record.onDrift === "report"
        ? "See who changed it. To have it overwritten, set onDrift of the record to overwrite: it then runs at once."
        : "Nothing: the next run writes it again.";
    return {
      recordId,
      title,
      urgency: "warning",
      what: "was changed at the target by somebody else",
      why: "The target no longer holds what this record wrote.",
      done: "Nothing was overwritten.",
      safe: "The source is as it was.",
      next,
    };
  }
  const last = record.lastSyncedAt;
  return {
    recordId,
    title,
    urgency: "critical",
    what: "could not be copied",
    why: failure?.message ?? "",
    done: "The target was not brought up to date.",
    safe: last ? `What was written last is of ${last.slice(0, 16)}Z.` : "Nothing was ever written.",
    next: failure?.remedy ?? "See the record's history.",
  };
}
