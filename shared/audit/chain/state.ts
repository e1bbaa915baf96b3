import type { Clock } from "../../platform/runtime.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { type Interval, intervalFrom, intervalName } from "../interval.ts";
import type { Anchor, Remembered } from "./anchor.ts";
import { beginningByNumber, type ChainEnd, chainEnd, oldestBeginning, purgedEnd } from "./chain.ts";
import type { Beginning } from "./digest.ts";
import { type Purges, purgedTo, readPurges } from "./purge-record.ts";
import type { PublicKeys } from "./signing.ts";
import type { Trust } from "./trust.ts";

export interface ReadingDependencies {
  tables: Tables;
  clock: Clock;
  trust: Trust;
  anchor: Anchor | undefined;
}

/** What signatures and the anchor say of the chain. */
export interface ChainState {
  keys: PublicKeys;
  /** The statements by which keys vouch for older ones, and the row keys of those that don't hold. */
  vouchers: { statements: string[]; changed: string[] };
  purges: Purges;
  /** Undefined as long as nothing is sealed, and where nothing of the chain is left. */
  end: ChainEnd | undefined;
  /** Undefined as long as nothing is sealed. */
  beginning: Beginning | undefined;
  /** Where the first interval that is not purged begins; undefined as long as nothing is sealed. */
  keptFrom: Interval | undefined;
  remembered: Remembered | "unreadable" | undefined;
}

/** Reads it. Five requests and one of the key vault, more only where the newest digest is older than an hour. */
export async function chainState({ tables, clock, trust, anchor }: ReadingDependencies): Promise<ChainState> {
  const { keys, ...vouchers } = await trust.vouched();
  const purges = await readPurges(tables, keys);
  const remembered = await anchor?.read();
  const known = remembered === "unreadable" ? undefined : remembered;
  const needed = { tables, clock, keys };
  const end = (await chainEnd(needed, known)) ?? purgedEnd(purges);
  const beginning =
    end?.beginning ??
    known?.beginning ??
    (await oldestBeginning(needed, purges)) ??
    (known && beginningByNumber(known)) ??
    (end && beginningByNumber({ number: end.number, interval: intervalName(end.interval) }));
  const keptFrom = purgedTo(purges) ?? (beginning && intervalFrom(beginning.interval));
  return { keys, vouchers, purges, end, beginning, keptFrom, remembered };
}
