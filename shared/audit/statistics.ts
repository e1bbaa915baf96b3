import type { Clock } from "../runtime.ts";
import type { Tables } from "../storage/tables.ts";
import { chainEnd } from "./chain.ts";
import { INTERVAL_MS, intervalFrom } from "./interval.ts";
import { purgedTo, readPurges } from "./purge-record.ts";
import { FIRST_PARTITION, FirstRow } from "./rows.ts";
import type { Trust } from "./trust.ts";

export interface AuditStatistics {
  /** Sealed entries that are kept; those of the last minutes are not counted yet. */
  entries: number;
  /** ISO 8601: nothing older is kept; null when nothing was ever entered. */
  keptFrom: string | null;
  /** ISO 8601: everything before it is sealed; null when nothing is. */
  sealedTo: string | null;
}

/** From what sealing and purging wrote down: costs the same however long the log is. */
export async function statistics(deps: { tables: Tables; clock: Clock; trust: Trust }): Promise<AuditStatistics> {
  const { tables, clock, trust } = deps;
  const keys = await trust.keys();
  const end = await chainEnd(tables, keys, clock);
  const purges = await readPurges(tables, keys);
  const first = await tables.get(FirstRow, FIRST_PARTITION, FIRST_PARTITION);
  const keptFrom = purgedTo(purges) ?? (first && intervalFrom(first.interval));
  return {
    entries: (end?.total ?? 0) - (purges.records.at(-1)?.record.total ?? 0),
    keptFrom: keptFrom === undefined ? null : new Date(keptFrom).toISOString(),
    sealedTo: end ? new Date(end.interval + INTERVAL_MS).toISOString() : null,
  };
}
