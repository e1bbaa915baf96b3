import { encodeTime } from "ulid";
import {
  AFTER_DONE,
  DONE,
  SCAN_LIST,
  type ScanRecord,
  Scans,
  scanPartition,
  VaultOutcomes,
} from "../discovery/scan.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import { newestFirst } from "../platform/ulid.ts";
import type { RecoveredItem, ScanFailureItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import { ofKind } from "./resolved-alerts.ts";
import type { RuleRecord } from "./rule.ts";
import type { ResolvedItem, TrackedAlert } from "./tracked-alerts.ts";

/**
 * Finds failures of discovery scans for alert rules: vaults and subscriptions that scans can't read, and failures of scans as a
 * whole.
 */

/** A scan takes at most a day, so scans that started this long before the last evaluation were already evaluated. */
const LONGEST_SCAN_MS = 2 * DAY_MS;
/** Maximum number of scans that one evaluation reads, besides the last full scan. Older scans are skipped. */
const MAX_SCANS = 20;
/** Final statuses of a scan with results for vaults and subscriptions. */
const FINAL_STATUSES = new Set(["completed", "partial", "failed", "timedOut"]);
const SCAN_COLUMNS = [
  "scanId",
  "status",
  "mode",
  "subscriptions",
  "finishedAt",
  "vaultsTotal",
  "vaultsDone",
  "failure",
  "subscriptionOutcomes",
] as const;
type FinishedScan = Pick<ScanRecord, (typeof SCAN_COLUMNS)[number]> & { finishedAt: string };

/** The id of a failure of scans as a whole. */
export const WHOLE_SCAN = "scan";
/** Return the ids of failures of a vault and of a subscription. */
export const vaultFailureId = (name: string): string => `vault:${name.toLowerCase()}`;
export const subscriptionFailureId = (id: string): string => `subscription:${id.toLowerCase()}`;

/**
 * The result of a scan for a vault, a subscription or as a whole: a failure, or why there is none. `mended`: it could be read.
 * `removed`: it no longer exists. `outOfScope`: it is no longer scanned.
 */
type Finding = ScanFailureItem | RecoveredItem["reason"];

/** The result of evaluating the scans since the last evaluation. */
export interface ScanFailures {
  /** New failures without a notification. */
  items: ScanFailureItem[];
  /** Resolutions of open alerts. */
  ended: ResolvedItem[];
  /** Alerts from before the rule's type was changed. */
  others: Pick<ResolvedItem, "of" | "since">[];
  /** Whether there are more items than `limit`. */
  more: boolean;
  /** Evaluated scans that the next evaluation may read again. */
  scansSeen: string[];
}

/**
 * Returns new and resolved failures of vaults and subscriptions, from scans that finished since the last evaluation. One
 * request for the scans of two days, and one per 1,000 vaults of each new scan.
 */
export async function scanFailures(
  rule: RuleRecord,
  lastEvaluation: { from: Date; scansSeen: readonly string[] | undefined },
  deps: {
    tables: Tables;
    notifications: NotificationLog;
    /** Returns the rule's open alerts. Called only if there is a new scan. */
    alerts: () => Promise<ReadonlyMap<string, TrackedAlert>>;
  },
  limit: number,
): Promise<ScanFailures> {
  const scans = await finishedScans(deps.tables, lastEvaluation.from);
  const evaluatedBefore = new Set(lastEvaluation.scansSeen);
  const newScans = scans.filter(({ scanId }) => !evaluatedBefore.has(scanId));
  const scansSeen = scans.map(({ scanId }) => scanId);
  const first = newScans[0];
  if (!first) return { items: [], ended: [], others: [], more: false, scansSeen };

  const { ofType, others } = ofKind((await deps.alerts()).values(), "scanFailure");
  const alerts = new Map(ofType.map((alert) => [alert.item.id, alert]));
  const openFailures = ofType.map(({ item }) => item);
  const findings = new Map<string, Finding>();
  // A later scan replaces the findings of an earlier one. So if a new scan finished before one that was already evaluated, that one
  // is evaluated again.
  const evaluated = scans.filter(({ finishedAt }) => finishedAt >= first.finishedAt);
  // The last full scan is always included, because delta scans do not read some lists.
  const full = evaluated.findLast(({ mode, subscriptions }) => mode !== "delta" && subscriptions === undefined);
  for (const scan of evaluated.filter((scan, index) => scan === full || index >= evaluated.length - MAX_SCANS))
    for (const [id, finding] of await findingsOf(scan, openFailures, deps.tables)) findings.set(id, finding);

  const newFailures: ScanFailureItem[] = [];
  const ended: ResolvedItem[] = [];
  for (const [id, finding] of findings) {
    const alert = alerts.get(id);
    if (typeof finding === "string") {
      const { item: of, since } = alert ?? {};
      if (of && since) ended.push({ kind: "recovered", id, of, since, reason: finding });
    } else if (!alert && matchesRule(rule, finding)) newFailures.push(finding);
  }
  const items = (await deps.notifications.unnotified(rule.ruleId, newFailures)).sort((a, b) => (a.id < b.id ? -1 : 1));
  if (items.length <= limit) return { items, ended, others, more: false, scansSeen };
  // The caller evaluates the same scans again once these items are sent, so the resolutions wait until then.
  return { items: items.slice(0, limit), ended: [], others, more: true, scansSeen: [...evaluatedBefore] };
}

/** Returns whether a failure matches the rule's filter. Failures of scans as a whole match every rule. */
export const matchesRule = (
  { filters: { subscription } }: RuleRecord,
  { id, subscriptionId }: ScanFailureItem,
): boolean =>
  subscription === undefined || id === WHOLE_SCAN || subscriptionId?.toLowerCase() === subscription.toLowerCase();

/** Returns finished scans that were not cancelled, oldest first. */
async function finishedScans(tables: Tables, from: Date): Promise<FinishedScan[]> {
  // The keys of the list are inverted ids, so newer scans sort first. An id is its time and 16 random characters.
  const oldest = newestFirst(encodeTime(Math.max(0, from.getTime() - LONGEST_SCAN_MS)) + "0".repeat(16));
  const scans: FinishedScan[] = [];
  const range = { partitionKey: SCAN_LIST, before: keyEnd(oldest), select: [...SCAN_COLUMNS] };
  for await (const rows of tables.pages(Scans, range)) {
    for (const { finishedAt, ...scan } of rows)
      if (FINAL_STATUSES.has(scan.status) && finishedAt !== undefined) scans.push({ ...scan, finishedAt });
  }
  return scans.sort((a, b) => (a.finishedAt < b.finishedAt ? -1 : 1));
}

/** Returns the results of a scan by the id of the failure: of its subscriptions, its vaults, and the scan as a whole. */
async function findingsOf(
  scan: FinishedScan,
  openFailures: readonly ScanFailureItem[],
  tables: Tables,
): Promise<Map<string, Finding>> {
  const findings = new Map<string, Finding>();
  const { scanId, finishedAt } = scan;
  for (const { subscriptionId, failure } of scan.subscriptionOutcomes) {
    const id = subscriptionFailureId(subscriptionId);
    if (!failure) findings.set(id, "mended");
    else {
      const { code, message, remedy } = failure;
      findings.set(id, { kind: "scanFailure", id, scanId, subscriptionId, code, message, remedy, at: finishedAt });
    }
  }
  const vaults = new Set<string>();
  // The rows of the vaults that the scan has completed.
  const range = { partitionKey: scanPartition(scanId), from: DONE, before: AFTER_DONE };
  const select = ["vaultName", "subscriptionId", "outcome", "failures", "finishedAt"] as const;
  for await (const rows of tables.pages(VaultOutcomes, { ...range, select })) {
    for (const { vaultName, subscriptionId, outcome, failures, finishedAt: at } of rows) {
      const id = vaultFailureId(vaultName);
      vaults.add(id);
      const [failure] = failures;
      if (failure) {
        const { list, code, message, remedy } = failure;
        const location = { subscriptionId, vaultName, list };
        findings.set(id, { kind: "scanFailure", id, scanId, ...location, code, message, remedy, at });
      } else if (outcome === "removed") findings.set(id, "removed");
      else if (
        outcome !== "skipped" &&
        isReadBy(
          scan,
          openFailures.find((failure) => failure.id === id),
        )
      )
        findings.set(id, "mended");
    }
  }
  const hasFailures = [...findings.values()].some((finding) => typeof finding !== "string");
  findings.set(WHOLE_SCAN, wholeScan(scan, hasFailures));
  // A scan that timed out did not reach all vaults, so a vault without a result may still exist.
  if (scan.subscriptions === undefined && scan.status !== "timedOut") addMissing(scan, openFailures, vaults, findings);
  return findings;
}

/**
 * Returns whether a scan reads the list that failed. A `delta` scan reads neither diagnostic settings nor all rotation
 * policies.
 */
const isReadBy = ({ mode }: FinishedScan, failure: ScanFailureItem | undefined): boolean =>
  mode !== "delta" || (failure?.list !== "diagnosticSettings" && failure?.list !== "rotationPolicies");

/** Returns the failure of a scan as a whole, beyond the failures of its subscriptions and vaults. */
function wholeScan(scan: FinishedScan, hasFailures: boolean): Finding {
  const { scanId, status, failure, vaultsTotal, vaultsDone, finishedAt: at } = scan;
  const item = { kind: "scanFailure", id: WHOLE_SCAN, scanId, at } as const;
  if (status === "timedOut") {
    const message = `The scan timed out after ${vaultsDone ?? 0} of ${vaultsTotal} vaults.`;
    const remedy = "Increase discoveryScanTimeout, or discoveryMaxWorkers if the vaults don't throttle.";
    return { ...item, code: "timedOut", message, remedy };
  }
  if (status === "completed" || hasFailures) return "mended";
  if (failure) return { ...item, code: failure.code, message: failure.message, remedy: failure.remedy };
  const message = `The scan finished with status ${status}.`;
  return { ...item, code: "scan", message, remedy: "See the scan's results for the resources that could not be read." };
}

/** Adds results for alerts about resources that a scan of all subscriptions no longer found. */
function addMissing(
  scan: FinishedScan,
  openFailures: readonly ScanFailureItem[],
  vaults: ReadonlySet<string>,
  findings: Map<string, Finding>,
): void {
  const readable = new Map(
    scan.subscriptionOutcomes.map(({ subscriptionId, failure }) => [subscriptionId.toLowerCase(), !failure]),
  );
  for (const { id, subscriptionId } of openFailures) {
    if (findings.has(id) || vaults.has(id) || subscriptionId === undefined) continue;
    const isReadable = readable.get(subscriptionId.toLowerCase());
    if (isReadable === undefined) findings.set(id, "outOfScope");
    // The subscription was read but the vault was not found, so the vault was deleted.
    else if (isReadable && id.startsWith("vault:")) findings.set(id, "removed");
  }
}
