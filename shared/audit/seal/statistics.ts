import type { Clock } from "../../platform/runtime.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { chainEnd, oldestBeginning, purgedEnd } from "../chain/chain.ts";
import { purgedTo, readPurges } from "../chain/purge-record.ts";
import type { Trust } from "../chain/trust.ts";
import { INTERVAL_MS, intervalFrom } from "../interval.ts";
import { firstInterval } from "./begin.ts";

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
  const needed = { tables, clock, keys: await trust.keys() };
  const purges = await readPurges(tables, needed.keys);
  const end = (await chainEnd(needed)) ?? purgedEnd(purges);
  const beginning = end?.beginning ?? (await oldestBeginning(needed, purges));
  const begun = beginning ? intervalFrom(beginning.interval) : await firstInterval(tables, clock);
  const keptFrom = purgedTo(purges) ?? begun;
  return {
    entries: (end?.total ?? 0) - (purges.records.at(-1)?.record.total ?? 0),
    keptFrom: keptFrom === undefined ? null : new Date(keptFrom).toISOString(),
    sealedTo: end ? new Date(end.interval + INTERVAL_MS).toISOString() : null,
  };
}
