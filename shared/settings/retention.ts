import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import { DAY_MS } from "../platform/time.ts";
import type { SettingKey, Settings } from "./settings.ts";

/** The histories that the service keeps and purges. */
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

export interface HistoryStats {
  /** Exact number of entries. Null if counting would cost more with every entry; then `totalAtLeast` is the number seen. */
  total: number | null;
  totalAtLeast?: number;
  /** No entry is older than this time, ISO 8601. Null if there are no entries. */
  oldest: string | null;
}

export interface Purged {
  /** Number of entries that this call removed. */
  removed: number;
  /** The applied retention in days: the requested one, or the minimum if that is longer. */
  retentionDays: number;
  /** True if there is more to remove. Call again. */
  more: boolean;
}

/** A history that grows and is purged. Its module registers it. */
export interface HistoryStore {
  readonly type: HistoryType;
  stats(): Promise<HistoryStats>;
  /**
   * Removes entries older than `cut.before`, as many as one call can in well under the platform's 230 seconds. Can be repeated.
   * Throws a `Problem` if it can't be purged in its present state.
   */
  purge(cut: { retentionDays: number; before: Date }, caller: Caller): Promise<Purged>;
}

/** Result of the purge of one history. */
export interface PurgeReport extends Purged {
  historyType: HistoryType;
  /** Why nothing could be removed, if so. */
  problem: string | null;
}

/** Counts and purges the histories. */
export interface Retention {
  /** Returns every history, with zero entries if no module registered it. */
  stats(): Promise<({ historyType: HistoryType; retentionDays: number } & HistoryStats)[]>;
  /**
   * Purges every history once. A failure of one does not stop the others; its report contains the reason.
   *
   * @param retentionDays - Retention for all of them. Default: the setting of each.
   */
  purgeAll(retentionDays: number | undefined, caller: Caller): Promise<PurgeReport[]>;
  /** Purges one history once. @throws {Problem} if it can't be purged in its present state. */
  purge(type: HistoryType, retentionDays: number | undefined, caller: Caller): Promise<PurgeReport>;
  /** The daily run: repeats `purgeAll` with the settings until nothing is due. */
  runDue(caller: Caller): Promise<PurgeReport[]>;
}

/** Maximum number of repetitions per history in the daily run. The next day continues. */
const MAX_ROUNDS = 20;

export function createRetention(deps: {
  settings: Settings;
  stores: readonly HistoryStore[];
  audit: Audit;
  clock: Clock;
}): Retention {
  const { settings, audit, clock } = deps;
  const stores = new Map(deps.stores.map((store) => [store.type, store]));

  /** Purges a history between two audit entries, in addition to the entries that the history itself records. */
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
    const rest = async () => {
      for (let round = 0; round < rounds && (round === 0 || report.more); round++) {
        const purged = await store.purge({ retentionDays, before }, caller);
        Object.assign(report, purged, { removed: report.removed + purged.removed });
      }
      return report;
    };
    return await audited(audit, event, rest, () => ({ details: { ...report } }));
  }

  async function run(
    types: readonly HistoryType[],
    asked: number | undefined,
    caller: Caller,
    rounds: number,
  ): Promise<PurgeReport[]> {
    const values = await settings.values();
    const reports: PurgeReport[] = [];
    const failures: unknown[] = [];
    for (const type of types) {
      const retentionDays = asked ?? values[RETENTION_SETTING[type]];
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
    purgeAll: (retentionDays, caller) => run(HISTORY_TYPES, retentionDays, caller, 1),
    purge: async (type, retentionDays, caller) => (await run([type], retentionDays, caller, 1))[0]!,
    runDue: (caller) => run(HISTORY_TYPES, undefined, caller, MAX_ROUNDS),
  };
}

/** The audit log as a history: counts sealed entries from digests, and newer entries up to 10,000. */
export function auditHistory(audit: Pick<Audit, "list" | "purge" | "statistics">): HistoryStore {
  return {
    type: "audit",
    async stats() {
      const { entries, keptFrom, sealedTo } = await audit.statistics();
      const unsealed = sealedTo === null ? {} : { start: new Date(sealedTo) };
      const since = await audit.list(unsealed, { limit: 1, offset: 0, cursor: undefined });
      const total = since.total === null ? null : entries + since.total;
      return {
        total,
        ...(since.totalAtLeast === undefined ? {} : { totalAtLeast: entries + since.totalAtLeast }),
        oldest: total === 0 ? null : keptFrom,
      };
    },
    async purge({ retentionDays }, caller) {
      const { entries, retentionDays: kept, more } = await audit.purge(retentionDays, caller);
      return { removed: entries, retentionDays: kept, more };
    },
  };
}
