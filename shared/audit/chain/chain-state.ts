import type { Clock } from "../../platform/runtime.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { type Interval, intervalFrom, intervalName } from "../interval.ts";
import type { Anchor, AnchorState } from "./anchor.ts";
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

/** The state of the chain according to signatures and the anchor. */
export interface ChainState {
  keys: PublicKeys;
  /** Statements by which keys vouch for older keys, and the row keys of invalid statements. */
  vouchers: { statements: string[]; changed: string[] };
  purges: Purges;
  /** Undefined if nothing is sealed or nothing of the chain is left. */
  end: ChainEnd | undefined;
  /** Undefined if nothing is sealed. */
  beginning: Beginning | undefined;
  /** Start of the first interval that is not purged. Undefined if nothing is sealed. */
  keptFrom: Interval | undefined;
  remembered: AnchorState | "unreadable" | undefined;
}

/**
 * Reads the state of the chain. Costs five storage requests and one key vault request, more only if the newest digest is older
 * than an hour.
 */
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
