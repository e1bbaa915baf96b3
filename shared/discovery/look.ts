import * as z from "zod";
import { parseResourceId } from "../platform/azure/resource-id.ts";
import { entity } from "../platform/storage/entity.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";

/** Looks at single vaults between scans: that one is wanted is a row, which goes when the look is over. */

export const LOOK_QUEUE = "vault-looks";
/** Wakes a worker for the look that the vault's row wants. */
export const LookMessage = z.object({ vaultName: z.string() });

/** From the first event to the look: what follows it at once is seen by the same look. */
export const SETTLE_MS = 5 * SECOND_MS;
/** From the beginning of a look, or of a scan's reading, to the next look at the same vault. */
export const SPACING_MS = 30 * SECOND_MS;
/** The longest that one look may take. */
export const LONGEST_LOOK_MS = 8 * MINUTE_MS;

/** What was heard of a vault. */
const Want = z.object({
  /** When the first of these events arrived. */
  at: z.string(),
  /** Where the vault's description is to be read; absent where what is known of it does. */
  vaultId: z.string().optional(),
  /** Where else it may be: the events of a vault that moves name both places. Absent in rows of a version before. */
  otherIds: z.array(z.string()).optional(),
  /** Whether the vault itself sent one: then its events reach the service. */
  fromVault: z.boolean(),
});
export type Want = z.infer<typeof Want>;

export const LookRecord = z.object({
  vaultName: z.string(),
  /** Where the inventory has the vault, else where the event says it is; lower case. */
  subscriptionId: z.string(),
  /** What the look that waits, or is under way, answers. */
  want: Want,
  /** Not before this instant. */
  dueAt: z.string(),
  /** How often it failed. */
  failures: z.int(),
  /** The worker that looks now; whether it lives is told by the row's age. */
  worker: z.string().optional(),
  /** When it began. */
  begunAt: z.string().optional(),
  /** What was heard since it began. */
  again: Want.optional(),
});
export type LookRecord = z.infer<typeof LookRecord>;

export const LookRows = entity("Scans", LookRecord);
export const LOOKS = "looks";
export const lookKey = (vaultName: string): string => vaultName.toLowerCase();

/** More than two places are no move: a vault is in one, and an event of its move names the other. */
const MAX_IDS = 4;

/** The places where the vault's description is to be read, the one that was heard of first before the others. */
export const idsOf = ({ vaultId, otherIds = [] }: Want): string[] =>
  vaultId === undefined ? [] : [vaultId, ...otherIds];

/** The subscriptions of these places, lower case. */
export const subscriptionsOf = (want: Want): string[] =>
  idsOf(want).flatMap((id) => parseResourceId(id)?.subscriptionId.toLowerCase() ?? []);

/** Both, as one look answers them. The very same value where `one` says all that `other` does. */
export function joined(one: Want | undefined, other: Want | undefined): Want | undefined {
  if (!one || !other) return one ?? other;
  const known = idsOf(one);
  const isNew = (id: string) => !known.some((mine) => mine.toLowerCase() === id.toLowerCase());
  const ids = [...known, ...idsOf(other).filter(isNew)].slice(0, MAX_IDS);
  const fromVault = one.fromVault || other.fromVault;
  if (ids.length === known.length && fromVault === one.fromVault) return one;
  const [vaultId, ...otherIds] = ids;
  return {
    at: one.at,
    fromVault,
    ...(vaultId === undefined ? {} : { vaultId }),
    ...(otherIds.length === 0 ? {} : { otherIds }),
  };
}
