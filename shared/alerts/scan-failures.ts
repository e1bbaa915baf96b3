import { encodeTime } from "ulid";
import { BEYOND, DONE, SCAN_LIST, type ScanRecord, Scans, scanPartition, VaultOutcomes } from "../discovery/scan.ts";
import { keyEnd } from "../storage/keys.ts";
import type { Tables } from "../storage/tables.ts";
import { DAY_MS } from "../time.ts";
import { newestFirst } from "../ulid.ts";
import { ofKind } from "./ends.ts";
import type { EndItem, FollowedAlert } from "./followed.ts";
import type { RecoveredItem, ScanFailureItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import type { RuleRecord } from "./rule.ts";

/** A scan may take a day; one that began this long before the last evaluation has ended and was looked at. */
const LONGEST_SCAN_MS = 2 * DAY_MS;
/** Scans whose outcomes one evaluation reads; those before are not looked at any more. */
const MAX_SCANS = 20;
/** The end of a scan whose vaults and subscriptions were looked at as far as it came. */
const ENDS = new Set(["completed", "partial", "failed", "timedOut"]);
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
type OverScan = Pick<ScanRecord, (typeof SCAN_COLUMNS)[number]> & { finishedAt: string };

/** The id of what is wrong with scans as a whole. */
export const WHOLE_SCAN = "scan";
export const vaultFailureId = (name: string): string => `vault:${name.toLowerCase()}`;
export const subscriptionFailureId = (id: string): string => `subscription:${id.toLowerCase()}`;

/** What a scan says of a vault, a subscription or everything: that it fails, or why it does no longer. */
type Finding = ScanFailureItem | RecoveredItem["reason"];

export interface ScanFailures {
  /** That began and were not told. */
  items: ScanFailureItem[];
  ended: EndItem[];
  /** Alerts of what the rule was about before it was changed. */
  others: Pick<EndItem, "of" | "since">[];
  more: boolean;
  /** The scans that were looked at and may be seen again. */
  scansSeen: string[];
}

/**
 * What scans that ended since the last evaluation say of vaults and subscriptions, where that differs from what the rule has
 * told. One request for what two days hold, and one for 1,000 vaults of each scan that was not looked at before.
 */
export async function scanFailures(
  rule: RuleRecord,
  before: { from: Date; scansSeen: readonly string[] | undefined },
  deps: {
    tables: Tables;
    notifications: NotificationLog;
    /** The rule's alerts; asked for where there is a scan to look at. */
    alerts: () => Promise<ReadonlyMap<string, FollowedAlert>>;
  },
  limit: number,
): Promise<ScanFailures> {
  const over = await overScans(deps.tables, before.from);
  const seen = new Set(before.scansSeen);
  const unseen = over.filter(({ scanId }) => !seen.has(scanId));
  const scansSeen = over.map(({ scanId }) => scanId);
  const first = unseen[0];
  if (!first) return { items: [], ended: [], others: [], more: false, scansSeen };

  const { own, others } = ofKind((await deps.alerts()).values(), "scanFailure");
  const alerts = new Map(own.map((one) => [one.item.id, one]));
  const known = own.map(({ item }) => item);
  const findings = new Map<string, Finding>();
  // A scan that came late does not hide what newer ones found.
  const looked = over.filter(({ finishedAt }) => finishedAt >= first.finishedAt);
  // What only a full scan reads is in the last one of those.
  const full = looked.findLast(({ mode, subscriptions }) => mode !== "delta" && subscriptions === undefined);
  for (const scan of looked.filter((one, at) => one === full || at >= looked.length - MAX_SCANS))
    for (const [id, finding] of await findingsOf(scan, known, deps.tables)) findings.set(id, finding);

  const begun: ScanFailureItem[] = [];
  const ended: EndItem[] = [];
  for (const [id, finding] of findings) {
    const alert = alerts.get(id);
    if (typeof finding === "string") {
      const { item: of, since } = alert ?? {};
      if (of && since) ended.push({ kind: "recovered", id, of, since, reason: finding });
    } else if (!alert && isAbout(rule, finding)) begun.push(finding);
  }
  const items = (await deps.notifications.unnotified(rule.ruleId, begun)).sort((a, b) => (a.id < b.id ? -1 : 1));
  if (items.length <= limit) return { items, ended, others, more: false, scansSeen };
  return { items: items.slice(0, limit), ended: [], others, more: true, scansSeen: [...seen] };
}

/** Whether a rule is about a failure: by its filter; scans as a whole are everybody's. */
export const isAbout = ({ filters: { subscription } }: RuleRecord, { id, subscriptionId }: ScanFailureItem): boolean =>
  subscription === undefined || id === WHOLE_SCAN || subscriptionId?.toLowerCase() === subscription.toLowerCase();

/** Scans that are over and came to an end of their own, the oldest first. */
async function overScans(tables: Tables, from: Date): Promise<OverScan[]> {
  const oldest = newestFirst(encodeTime(Math.max(0, from.getTime() - LONGEST_SCAN_MS)) + "0".repeat(16));
  const found: OverScan[] = [];
  const range = { partitionKey: SCAN_LIST, before: keyEnd(oldest), select: [...SCAN_COLUMNS] };
  for await (const rows of tables.pages(Scans, range)) {
    for (const { finishedAt, ...scan } of rows)
      if (ENDS.has(scan.status) && finishedAt !== undefined) found.push({ ...scan, finishedAt });
  }
  return found.sort((a, b) => (a.finishedAt < b.finishedAt ? -1 : 1));
}

async function findingsOf(
  scan: OverScan,
  known: readonly ScanFailureItem[],
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
  const range = { partitionKey: scanPartition(scanId), from: DONE, before: BEYOND };
  const select = ["vaultName", "subscriptionId", "outcome", "failures", "finishedAt"] as const;
  for await (const rows of tables.pages(VaultOutcomes, { ...range, select })) {
    for (const { vaultName, subscriptionId, outcome, failures, finishedAt: at } of rows) {
      const id = vaultFailureId(vaultName);
      vaults.add(id);
      const [failure] = failures;
      if (failure) {
        const { list, code, message, remedy } = failure;
        const place = { subscriptionId, vaultName, list };
        findings.set(id, { kind: "scanFailure", id, scanId, ...place, code, message, remedy, at });
      } else if (outcome === "removed") findings.set(id, "removed");
      else if (
        outcome !== "skipped" &&
        isReadBy(
          scan,
          known.find((one) => one.id === id),
        )
      )
        findings.set(id, "mended");
    }
  }
  const failing = [...findings.values()].some((finding) => typeof finding !== "string");
  findings.set(WHOLE_SCAN, wholeScan(scan, failing));
  if (scan.subscriptions === undefined && scan.status !== "timedOut") addMissing(scan, known, vaults, findings);
  return findings;
}

/** Whether a scan looks at that which failed: a `delta` reads neither diagnostic settings nor all rotation policies. */
const isReadBy = ({ mode }: OverScan, failure: ScanFailureItem | undefined): boolean =>
  mode !== "delta" || (failure?.list !== "diagnosticSettings" && failure?.list !== "rotationPolicies");

/** What is wrong with a scan beyond what is said of its subscriptions and vaults. */
function wholeScan(scan: OverScan, failing: boolean): Finding {
  const { scanId, status, failure, vaultsTotal, vaultsDone, finishedAt: at } = scan;
  const item = { kind: "scanFailure", id: WHOLE_SCAN, scanId, at } as const;
  if (status === "timedOut") {
    const message = `The scan ran out of time after ${vaultsDone ?? 0} of ${vaultsTotal} vaults.`;
    const remedy = "Raise discoveryScanTimeout, or discoveryMaxWorkers where the vaults do not throttle.";
    return { ...item, code: "timedOut", message, remedy };
  }
  if (status === "completed" || failing) return "mended";
  if (failure) return { ...item, code: failure.code, message: failure.message, remedy: failure.remedy };
  const message = `The scan ended as ${status}.`;
  return { ...item, code: "scan", message, remedy: "See the scan's results for what could not be read." };
}

/** Of a scan of everything: what was told of and is not among what it came to. */
function addMissing(
  scan: OverScan,
  known: readonly ScanFailureItem[],
  vaults: ReadonlySet<string>,
  findings: Map<string, Finding>,
): void {
  const readable = new Map(
    scan.subscriptionOutcomes.map(({ subscriptionId, failure }) => [subscriptionId.toLowerCase(), !failure]),
  );
  for (const { id, subscriptionId } of known) {
    if (findings.has(id) || vaults.has(id) || subscriptionId === undefined) continue;
    const isReadable = readable.get(subscriptionId.toLowerCase());
    if (isReadable === undefined) findings.set(id, "outOfScope");
    // A vault of which this scan knows nothing has left before it.
    else if (isReadable && id.startsWith("vault:")) findings.set(id, "removed");
  }
}
