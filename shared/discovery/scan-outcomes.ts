/** Counts the vaults of a scan by state and outcome, and returns the failure of a scan that could not read any vault. */
import type { Clock, Logger } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import {
  AFTER_DONE,
  addTally,
  DONE,
  emptyTally,
  PlannedVaults,
  type ScanRecord,
  scanPartition,
  subscriptionTitle,
  unreadSubscriptions,
  VaultOutcomes,
  WAITING,
} from "./scan.ts";

/**
 * Number of unread subscriptions named in a log line, an audit entry or a message. The scan's `subscriptionOutcomes` has all.
 */
const MAX_NAMED_SUBSCRIPTIONS = 20;

/** Returns the names of subscriptions that a scan could not read, at most 20, and the number of the others. */
export function subscriptionTitles(outcomes: ReturnType<typeof unreadSubscriptions>): string[] {
  const titles = outcomes.slice(0, MAX_NAMED_SUBSCRIPTIONS).map(subscriptionTitle);
  const unlistedCount = outcomes.length - titles.length;
  return unlistedCount > 0 ? [...titles, `and ${unlistedCount} more`] : titles;
}

/**
 * Counts the finished vaults of a scan: `failed` ones were not read at all. `incomplete` ones were not read completely, and
 * include the failed ones.
 *
 * @param unreadablePlanned - Keys of corrupt rows of planned vaults. These vaults count as failed.
 */
export async function countOutcomes(
  { tables, log }: { tables: Tables; log: Logger },
  scanId: string,
  unreadablePlanned: readonly string[],
) {
  const unreadable = [...unreadablePlanned];
  const outcomes = { vaults: 0, failed: 0, incomplete: 0, tally: emptyTally(), unreadable };
  for await (const rows of tables.pages(VaultOutcomes, {
    partitionKey: scanPartition(scanId),
    from: DONE,
    before: AFTER_DONE,
    select: ["outcome", "tally"],
    onCorrupt: ({ rowKey }) => unreadable.push(rowKey),
  })) {
    for (const { outcome, tally } of rows) {
      addTally(outcomes.tally, tally);
      outcomes.vaults++;
      if (outcome === "failed" || outcome === "skipped") outcomes.failed++;
      if (outcome !== "succeeded" && outcome !== "removed") outcomes.incomplete++;
    }
  }
  if (unreadable.length > 0)
    log.error("Vaults of a scan count as failed: their rows can't be read", { scanId, unreadable });
  outcomes.vaults += unreadable.length;
  outcomes.failed += unreadable.length;
  outcomes.incomplete += unreadable.length;
  return outcomes;
}

/**
 * Counts the vaults of a scan that are not finished: `waiting` ones, and ones that a worker has claimed. `unreadable` has the
 * keys of corrupt rows.
 */
export async function countRemaining(tables: Tables, scanId: string) {
  const remaining = { waiting: 0, claimed: 0, unreadable: [] as string[] };
  for await (const rows of tables.pages(PlannedVaults, {
    partitionKey: scanPartition(scanId),
    from: WAITING,
    before: DONE,
    onCorrupt: ({ rowKey }) => remaining.unreadable.push(rowKey),
  })) {
    for (const { rowKey } of rows) {
      if (rowKey.startsWith(WAITING)) remaining.waiting++;
      else remaining.claimed++;
    }
  }
  return remaining;
}

/**
 * Returns why no vault of a scan could be read: its unread subscriptions, the first failure of a vault, or corrupt rows.
 */
export async function failureOfScan(
  { tables, clock }: { tables: Tables; clock: Clock },
  scan: ScanRecord,
  unreadable: readonly string[],
): Promise<ScanRecord["failure"]> {
  const unread = unreadSubscriptions(scan.subscriptionOutcomes);
  const firstFailure = unread[0]?.failure;
  if (firstFailure) {
    const which = `${unread.length} of ${scan.subscriptionOutcomes.length} subscriptions could not be read: ${subscriptionTitles(unread).join(", ")}`;
    return {
      ...firstFailure,
      message: `No vault could be read, since ${which}. The first failure: ${firstFailure.message}`,
    };
  }
  const range = { partitionKey: scanPartition(scan.scanId), from: DONE, before: AFTER_DONE, onCorrupt: () => {} };
  for await (const rows of tables.pages(VaultOutcomes, { ...range, select: ["vaultName", "failures"] })) {
    const named = rows.find(({ failures }) => failures.length > 0);
    if (!named) continue;
    const { code, message, remedy, at } = named.failures[0]!;
    return { code, message: `No vault could be read. The first, ${named.vaultName}: ${message}`, remedy, at };
  }
  const at = clock.now().toISOString();
  if (unreadable.length > 0)
    return {
      code: "internal",
      message: `No vault could be read. The scan's rows of ${unreadable.length} vaults can't be read. The first: ${unreadable[0]}.`,
      remedy: "The log names the rows. Start another scan.",
      at,
    };
  // No vault has a failure: all were skipped, because their earlier scans failed.
  return {
    code: "skipped",
    message: "No vault was read. Earlier scans failed at each vault, so this scan skipped them until their next retry.",
    remedy: "Wait, or start a scan with the mode force.",
    at,
  };
}
