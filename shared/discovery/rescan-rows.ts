import * as z from "zod";
import { parseResourceId } from "../platform/azure/resource-id.ts";
import { entity } from "../platform/storage/entity.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";

/**
 * Rows and messages of re-scans. A re-scan reads one vault after events of it. Its row exists from the first event to the end
 * of the re-scan.
 */

export const RESCAN_QUEUE = "vault-looks";
/** Starts the re-scan that the vault's row describes. */
export const RescanMessage = z.object({ vaultName: z.string() });

/** Delay from the first event to the re-scan. Further events within this time need no re-scan of their own. */
export const EVENT_DELAY_MS = 5 * SECOND_MS;
/** Minimum time from the start of a re-scan, or from the last listing by a scan, to the vault's next re-scan. */
export const MIN_RESCAN_INTERVAL_MS = 30 * SECOND_MS;
/** Longest duration of one re-scan. */
export const MAX_RESCAN_MS = 8 * MINUTE_MS;

/** The events of a vault that one re-scan covers. */
const RescanRequest = z.object({
  /** When the first of these events arrived. */
  at: z.string(),
  /** Resource ID under which to read the vault's description. Absent if the stored description is sufficient. */
  vaultId: z.string().optional(),
  /**
   * Further resource IDs that the vault may have: events of a vault that moves name its old and its new ID. Absent in rows of
   * earlier versions.
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
  /** The worker of the running re-scan. If the row was not renewed for a minute, the worker has crashed. */
  worker: z.string().optional(),
  /** When the running re-scan started. */
  begunAt: z.string().optional(),
  /** Events that arrived after the running re-scan started. They need another re-scan. */
  again: RescanRequest.optional(),
});
export type RescanRecord = z.infer<typeof RescanRecord>;

export const RescanRows = entity("Scans", RescanRecord);
export const RESCANS = "looks";
export const rescanKey = (vaultName: string): string => vaultName.toLowerCase();

/** Maximum number of resource IDs of a request. A vault that moves has two. */
const MAX_RESOURCE_IDS = 4;

/** Returns the IDs under which to read the vault's description, starting with that of the first event. */
export const resourceIdsOf = ({ vaultId, otherIds = [] }: RescanRequest): string[] =>
  vaultId === undefined ? [] : [vaultId, ...otherIds];

/** Returns the subscriptions of these IDs, in lower case. */
export const subscriptionsOf = (want: RescanRequest): string[] =>
  resourceIdsOf(want).flatMap((id) => parseResourceId(id)?.subscriptionId.toLowerCase() ?? []);

/** Merges two sets of events into one. Returns `first` itself if it already includes `second`. */
export function mergeRequests(
  first: RescanRequest | undefined,
  second: RescanRequest | undefined,
): RescanRequest | undefined {
  if (!first || !second) return first ?? second;
  const firstIds = resourceIdsOf(first);
  const isNew = (id: string) => !firstIds.some((firstId) => firstId.toLowerCase() === id.toLowerCase());
  const ids = [...firstIds, ...resourceIdsOf(second).filter(isNew)].slice(0, MAX_RESOURCE_IDS);
  const fromVault = first.fromVault || second.fromVault;
  if (ids.length === firstIds.length && fromVault === first.fromVault) return first;
  const [vaultId, ...otherIds] = ids;
  return {
    at: first.at,
    fromVault,
    ...(vaultId === undefined ? {} : { vaultId }),
    ...(otherIds.length === 0 ? {} : { otherIds }),
  };
}
