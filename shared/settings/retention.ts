import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import { DAY_MS } from "../platform/time.ts";
import type { SettingKey, Settings } from "./settings.ts";

/** The histories: growing lists of entries that the service purges after a retention period. */
export const HISTORY_TYPES = ["audit", "rotation", "sync", "alerts", "scans"] as const;
export type HistoryType = (typeof HISTORY_TYPES)[number];

/** The retention setting of each history. */
const RETENTION_SETTING = {
  audit: "auditRetentionDays",
  alerts: "auditRetentionDays",
  rotation: "rotationRetentionDays",
  sync: "rotationRetentionDays",
  scans: "scanRetentionDays",
} as const satisfies Record<HistoryType, SettingKey>;

/** Size and age of a history. */
export interface HistoryStats {
  /** Exact number of entries. Null if counting all would cost too much. Then `totalAtLeast` is the number that was counted. */
  total: number | null;
  totalAtLeast?: number;
  /** Time before which there are no entries, ISO 8601. Null if there are no entries. */
  oldest: string | null;
}

/** Result of one call that purges a history. */
export interface Purged {
  /** Number of entries that this call removed. */
  removed: number;
  /** The applied retention in days: the requested one, or the minimum of the history, such as the audit log, if that is longer. */
  retentionDays: number;
  /** True if more entries are due. The next call removes them. */
  more: boolean;
}

/** Access to one history. The module that writes the history provides it. */
export interface HistoryStore {
  readonly type: HistoryType;
  stats(): Promise<HistoryStats>;
  /**
   * Removes entries older than `cut.before`, which is `cut.retentionDays` ago. One call removes as many entries as it can in well
   * under 230 seconds, the platform's time limit for a request. Can be repeated.
   *
   * @throws {Problem} if the history can't be purged in its current state
   */
  purge(cut: { retentionDays: number; before: Date }, caller: Caller): Promise<Purged>;
}

/** Result of the purge of one history. */
export interface PurgeReport extends Purged {
  historyType: HistoryType;
  /** Why nothing could be removed. Null if there was no problem. */
  problem: string | null;
}

/** Counts and purges the histories. The endpoints under /api/settings/retention and a daily timer call it. */
export interface Retention {
  /** Returns the statistics of all histories, with zero entries if no module registered the history. */
  stats(): Promise<({ historyType: HistoryType; retentionDays: number } & HistoryStats)[]>;
  /**
   * Purges each history once. A problem with one history does not stop the others. Its report contains the reason.
   *
   * @param retentionDays - Retention for all of them. Default: the setting of each.
   */
  purgeAll(retentionDays: number | undefined, caller: Caller): Promise<PurgeReport[]>;
  /** Purges one history once. @throws {Problem} if it can't be purged in its current state */
  purge(type: HistoryType, retentionDays: number | undefined, caller: Caller): Promise<PurgeReport>;
  /** Purges each history repeatedly, up to 20 times, until no entry is due. A daily timer calls it. */
  runDue(caller: Caller): Promise<PurgeReport[]>;
}

/** Maximum number of calls of `HistoryStore.purge` for each history in the daily run. The next daily run continues. */
const MAX_ROUNDS = 20;

export function createRetention(deps: {
  settings: Settings;
  stores: readonly HistoryStore[];
  audit: Audit;
  clock: Clock;
}): Retention {
  const { settings, audit, clock } = deps;
  const stores = new Map(deps.stores.map((store) => [store.type, store]));

  /**
   * Purges a history. Records the intent and the outcome in the audit log, in addition to entries that the history itself
   * records.
   *
   * @param rounds - Maximum number of calls of `HistoryStore.purge`.
   */
  async function purgeOne(
    historyType: HistoryType,
    retentionDays: number,
    caller: Caller,
    rounds: number,
  ): Promise<PurgeReport> {
    const before = new Date(clock.now().getTime() - retentionDays * DAY_MS);
    const report: PurgeReport = { historyType, removed: 0, retentionDays, more: false, problem: null };
    const store = stores.get(historyType);
    if (!store) return report;
    const event = {
      type: "history.purged",
      caller,
      target: { type: "history", id: historyType },
      details: { retentionDays },
    };
    const purgeRepeatedly = async () => {
      for (let round = 0; round < rounds && (round === 0 || report.more); round++) {
        const purged = await store.purge({ retentionDays, before }, caller);
        Object.assign(report, purged, { removed: report.removed + purged.removed });
      }
      return report;
    };
    return await audited(audit, event, purgeRepeatedly, () => ({ details: { ...report } }));
  }

  /**
   * Purges histories one after another. If there are several, a `Problem` becomes a report. Other errors are thrown after the
   * last history.
   */
  async function purgeEach(
    types: readonly HistoryType[],
    requestedDays: number | undefined,
    caller: Caller,
    rounds: number,
  ): Promise<PurgeReport[]> {
    const values = await settings.values();
    const reports: PurgeReport[] = [];
    const failures: unknown[] = [];
    for (const type of types) {
      const retentionDays = requestedDays ?? values[RETENTION_SETTING[type]];
      try {
        reports.push(await purgeOne(type, retentionDays, caller, rounds));
      } catch (error) {
        if (error instanceof Problem && types.length > 1) {
          reports.push({ historyType: type, removed: 0, retentionDays, more: false, problem: error.message });
        } else failures.push(error);
      }
    }
    if (failures.length === 1) throw failures[0];
    if (failures.length > 1) throw new AggregateError(failures, "Several histories could not be purged");
    return reports;
  }

  return {
    async stats() {
      const values = await settings.values();
      return Promise.all(
        HISTORY_TYPES.map(async (historyType) => ({
          historyType,
          retentionDays: values[RETENTION_SETTING[historyType]],
          ...((await stores.get(historyType)?.stats()) ?? { total: 0, oldest: null }),
        })),
      );
    },
    purgeAll: (retentionDays, caller) => purgeEach(HISTORY_TYPES, retentionDays, caller, 1),
    purge: async (type, retentionDays, caller) => (await purgeEach([type], retentionDays, caller, 1))[0]!,
    runDue: (caller) => purgeEach(HISTORY_TYPES, undefined, caller, MAX_ROUNDS),
  };
}

/**
 * Returns the audit log as a history. Sealed entries (those whose digest is signed) are counted from the digests, newer entries
 * are counted one by one up to 10,000.
 */
export function auditHistory(audit: Pick<Audit, "list" | "purge" | "statistics">): HistoryStore {
  return {
    type: "audit",
    async stats() {
      const { entries, keptFrom, sealedTo } = await audit.statistics();
      const unsealedRange = sealedTo === null ? {} : { start: new Date(sealedTo) };
      const unsealedEntries = await audit.list(unsealedRange, { limit: 1, offset: 0, cursor: undefined });
      const total = unsealedEntries.total === null ? null : entries + unsealedEntries.total;
      return {
        total,
        ...(unsealedEntries.totalAtLeast === undefined ? {} : { totalAtLeast: entries + unsealedEntries.totalAtLeast }),
        oldest: total === 0 ? null : keptFrom,
      };
    },
    async purge({ retentionDays }, caller) {
      const { entries, retentionDays: appliedDays, more } = await audit.purge(retentionDays, caller);
      return { removed: entries, retentionDays: appliedDays, more };
    },
  };
}
