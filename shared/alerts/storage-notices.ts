import type { UnreadableRows } from "../unreadable-rows/unreadable-rows.ts";
import type { AutomationSource, PendingNotice } from "./automation-events.ts";

/** Creates the source of events about stored rows that can't be read: one event per row, while the row is listed. */
export function createStorageNotices(unreadableRows: Pick<UnreadableRows, "list">): AutomationSource {
  return {
    async *notices(type) {
      if (type !== "rowUnreadable") return;
      const rows = await unreadableRows.list();
      yield rows.map(({ auditId, table, partition, key, reason, reportedAt }): PendingNotice => {
        const notice = async () =>
          ({
            title: `A row of the table ${table}`,
            urgency: "warning",
            what: "can't be read",
            why: `${partition} / ${key}: ${reason}.`,
            done: "Answers leave the row out.",
            safe: "",
            next: "Find out who can write to this service's tables. Restore the row from a backup, or delete it.",
          }) as const;
        return { id: `row.${auditId}`, at: reportedAt, notice };
      });
    },
  };
}
