import type { Clock } from "../../platform/runtime.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { type Interval, intervalFrom, intervalName } from "../interval.ts";
import type { Anchor, AnchorState } from "./anchor.ts";
import { requiredSince } from "./authenticated-from.ts";
import { beginningByNumber, type ChainEnd, chainEnd, oldestBeginning, purgedEnd } from "./chain.ts";
import type { Beginning } from "./digest.ts";
import { type Purges, purgedTo, readPurges } from "./purge-record.ts";
import type { PublicKeys } from "./signing.ts";
import type { Trust } from "./trust.ts";

/** The services that reading the log and its digests needs. */
export interface ReadingDependencies {
  tables: Tables;
  clock: Clock;
  trust: Trust;
  anchor: Anchor | undefined;
}

/** The state of the chain of digests, according to valid signatures and the anchor in the key vault. */
export interface ChainState {
  keys: PublicKeys;
  /** Statements by which keys vouch for older keys, and the row keys of invalid statements (`changed`). */
  vouchers: { statements: string[]; changed: string[] };
  purges: Purges;
  /** The newest digest. Undefined if nothing is sealed, or all digests and purge records are missing. */
  end: ChainEnd | undefined;
  /** Undefined if nothing is sealed. */
  beginning: Beginning | undefined;
  /** Start of the first interval that is not purged. Undefined if nothing is sealed. */
  keptFrom: Interval | undefined;
  /** Every entry since this interval must have an authentication code. Undefined after an earlier version wrote the log. */
  authenticatedFrom: Interval | undefined;
  /** The content of the anchor. Undefined if it is not configured or was never written. */
  anchorState: AnchorState | "unreadable" | undefined;
}

/**
 * Reads the state of the chain, for verification, exports and purges. Costs about six storage requests and one key vault
 * request, and more if the newest digest is older than an hour.
 */
export async function chainState({ tables, clock, trust, anchor }: ReadingDependencies): Promise<ChainState> {
  const { keys, ...vouchers } = await trust.vouched();
  const purges = await readPurges(tables, keys);
  const anchorState = await anchor?.read();
  const readable = anchorState === "unreadable" ? undefined : anchorState;
  const chainDeps = { tables, clock, keys };
  const end = (await chainEnd(chainDeps, readable)) ?? purgedEnd(purges);
  // The first source that has the beginning: the signed newest digest, the anchor, the purge records or the oldest digest.
  // Otherwise the number of the newest digest, because each interval since the beginning has one digest.
  const beginning =
    end?.beginning ??
    readable?.beginning ??
    (await oldestBeginning(chainDeps, purges)) ??
    (readable && beginningByNumber(readable)) ??
    (end && beginningByNumber({ number: end.number, interval: intervalName(end.interval) }));
  const keptFrom = purgedTo(purges) ?? (beginning && intervalFrom(beginning.interval));
  const authenticatedFrom = await requiredSince(tables, keys, end);
  return { keys, vouchers, purges, end, beginning, keptFrom, authenticatedFrom, anchorState };
}
