import * as z from "zod";
import { parseResourceId } from "../platform/azure/resource-id.ts";
import { entity } from "../platform/storage/entity.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";

/**
 * Rows and messages of single-vault re-scans, which events start between scans. A row exists from the first event to the end of
 * the re-scan.
 */

export const RESCAN_QUEUE = "vault-looks";
/** Starts the re-scan that the vault's row describes. */
export const RescanMessage = z.object({ vaultName: z.string() });

/** Delay from the first event to the re-scan, so that one re-scan covers a burst of events. */
export const BURST_MS = 5 * SECOND_MS;
/** Minimum time from the start of a re-scan, or from the last listing by a scan, to the vault's next re-scan. */
export const SPACING_MS = 30 * SECOND_MS;
/** Longest duration of one re-scan. */
export const LONGEST_RESCAN_MS = 8 * MINUTE_MS;

/** The events of a vault that one re-scan covers. */
const RescanRequest = z.object({
  /** When the first of these events arrived. */
  at: z.string(),
  /** Resource ID under which to read the vault's description. Absent if the stored description is sufficient. */
  vaultId: z.string().optional(),
  /**
   * Further resource IDs that the vault may have: events of a moving vault name both places. Absent in rows of earlier
   * versions.
   */
  otherIds: z.array(z.string()).optional(),
  /** Whether the vault itself sent an event, which proves that its events reach the service. */
  fromVault: z.boolean(),
});
export type RescanRequest = z.infer<typeof RescanRequest>;

export const RescanRecord = z.object({
  vaultName: z.string(),
  /** Subscription of the vault in the inventory, else of the event. Lower case. */
  subscriptionId: z.string(),
  /** The events that the waiting or running re-scan covers. */
  want: RescanRequest,
  /** Earliest start of the re-scan. */
  dueAt: z.string(),
  /** Number of failed attempts. */
  failures: z.int(),
  /** The worker of the running re-scan. It has crashed if the row is too old. */
  worker: z.string().optional(),
  /** When the running re-scan started. */
  begunAt: z.string().optional(),
  /** Events since the running re-scan started. */
  again: RescanRequest.optional(),
});
export type RescanRecord = z.infer<typeof RescanRecord>;

export const RescanRows = entity("Scans", RescanRecord);
export const RESCANS = "looks";
export const rescanKey = (vaultName: string): string => vaultName.toLowerCase();

/** A moving vault has two places. More IDs are not needed. */
const MAX_RESOURCE_IDS = 4;

/** Returns the IDs under which to read the vault's description, starting with that of the first event. */
export const resourceIdsOf = ({ vaultId, otherIds = [] }: RescanRequest): string[] =>
  vaultId === undefined ? [] : [vaultId, ...otherIds];

/** Returns the subscriptions of these IDs, in lower case. */
export const subscriptionsOf = (want: RescanRequest): string[] =>
  resourceIdsOf(want).flatMap((id) => parseResourceId(id)?.subscriptionId.toLowerCase() ?? []);

/** Merges two sets of events into one. Returns `one` itself if it already includes `other`. */
export function mergeRequests(
  one: RescanRequest | undefined,
  other: RescanRequest | undefined,
): RescanRequest | undefined {
  if (!one || !other) return one ?? other;
  const known = resourceIdsOf(one);
  const isNew = (id: string) => !known.some((mine) => mine.toLowerCase() === id.toLowerCase());
  const ids = [...known, ...resourceIdsOf(other).filter(isNew)].slice(0, MAX_RESOURCE_IDS);
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
