import type { Clock } from "../../platform/runtime.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { chainEnd, oldestBeginning, purgedEnd } from "../chain/chain.ts";
import { purgedTo, readPurges } from "../chain/purge-record.ts";
import type { Trust } from "../chain/trust.ts";
import { INTERVAL_MS, intervalFrom } from "../interval.ts";
import { firstInterval } from "./first-interval.ts";

/** Size and time range of the log. */
export interface AuditStatistics {
  /** Number of sealed entries that are not purged. Entries of the last minutes are not counted yet. */
  entries: number;
  /** Start of the retained log, ISO 8601. Null if the log is empty. */
  keptFrom: string | null;
  /** Time up to which the log is sealed, ISO 8601. Null if nothing is sealed. */
  sealedTo: string | null;
}

/**
 * Reads statistics from the newest digest (the signed hash of ten minutes of the log) and the newest purge record, which
 * contain total numbers. The cost does not depend on the log's length.
 */
export async function statistics(deps: { tables: Tables; clock: Clock; trust: Trust }): Promise<AuditStatistics> {
  const { tables, clock, trust } = deps;
  const chainDeps = { tables, clock, keys: await trust.keys() };
  const purges = await readPurges(tables, chainDeps.keys);
  const end = (await chainEnd(chainDeps)) ?? purgedEnd(purges);
  const beginning = end?.beginning ?? (await oldestBeginning(chainDeps, purges));
  const logStart = beginning ? intervalFrom(beginning.interval) : await firstInterval(tables, clock);
  const keptFrom = purgedTo(purges) ?? logStart;
  return {
    entries: (end?.total ?? 0) - (purges.records.at(-1)?.record.total ?? 0),
    keptFrom: keptFrom === undefined ? null : new Date(keptFrom).toISOString(),
    sealedTo: end ? new Date(end.interval + INTERVAL_MS).toISOString() : null,
  };
}
