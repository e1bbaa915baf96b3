import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import { DAY_MS } from "../platform/time.ts";
import type { SettingKey, Settings } from "./settings.ts";

export const HISTORY_TYPES = ["audit", "rotation", "sync", "alerts", "scans"] as const;
export type HistoryType = (typeof HISTORY_TYPES)[number];

/** Which setting says how long a history is kept. */
const RETENTION_SETTING = {
  audit: "auditRetentionDays",
  alerts: "auditRetentionDays",
  rotation: "rotationRetentionDays",
  sync: "rotationRetentionDays",
  scans: "scanRetentionDays",
} as const satisfies Record<HistoryType, SettingKey>;

export interface HistoryStats {
  /** Exact, or null where counting would cost more the more there is; then `totalAtLeast` says what was seen. */
  total: number | null;
  totalAtLeast?: number;
  /** No entry is older than this instant, ISO 8601; null when there is none. */
  oldest: string | null;
}

export interface Purged {
  /** Entries this call removed. */
  removed: number;
  /** Days that were kept: what was asked for, or the least that may be. */
  retentionDays: number;
  /** Whether there is more to remove: call again. */
  more: boolean;
}

/** A history that grows and is purged. The room that keeps one plugs it in. */
export interface HistoryStore {
  readonly type: HistoryType;
  stats(): Promise<HistoryStats>;
  /**
   * Removes entries made before `cut.before`, as many as one call can in well under the platform's 230 seconds. May be
   * repeated. A `Problem` means that it can't be purged as things are.
   */
  purge(cut: { retentionDays: number; before: Date }, caller: Caller): Promise<Purged>;
}

/** What became of one history. */
export interface PurgeReport extends Purged {
  historyType: HistoryType;
  /** Why nothing could be removed, where that is so. */
  problem: string | null;
}

export interface Retention {
  /** Every history, those that nothing keeps yet with zero entries. */
  stats(): Promise<({ historyType: HistoryType; retentionDays: number } & HistoryStats)[]>;
  /**
   * Purges every history once. One that can't be purged does not keep the others from it: its report says why.
   *
   * @param retentionDays - For all of them; when left out, what the settings say of each.
   */
  purgeAll(retentionDays: number | undefined, caller: Caller): Promise<PurgeReport[]>;
  /** Purges one history once. @throws {Problem} when it can't be purged as things are. */
  purge(type: HistoryType, retentionDays: number | undefined, caller: Caller): Promise<PurgeReport>;
  /** The daily run: as `purgeAll` by the settings, until nothing is left that is due. */
  runDue(caller: Caller): Promise<PurgeReport[]>;
}

/** How often the daily run goes back to a history that has more; what is left then is the next day's. */
const MAX_ROUNDS = 20;

export function createRetention(deps: {
  settings: Settings;
  stores: readonly HistoryStore[];
  audit: Audit;
  clock: Clock;
}): Retention {
  const { settings, audit, clock } = deps;
  const stores = new Map(deps.stores.map((store) => [store.type, store]));

  /** Each history has its own two entries, whatever it enters of its own. */
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

/** The audit log as a history: what is sealed is counted already, what came since is counted to 10,000. */
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
