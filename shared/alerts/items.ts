import * as z from "zod";
import { ASSET_TYPES, CREDENTIAL_KINDS } from "../inventory/asset.ts";
import { expiryKey } from "../inventory/asset-keys.ts";
import { RENEWERS } from "../inventory/renewal.ts";
import { keyText } from "../platform/storage/keys.ts";
import { SEVERITIES } from "./rule.ts";

/** The items of alerts: what a notification is about, such as an expiring asset or the resolution of an earlier alert. */

/** Urgencies of items, from the highest to the lowest. `expired` is also the urgency of critical violations, for example. */
export const URGENCIES = ["expired", "critical", "warning", "notice"] as const;
export type Urgency = (typeof URGENCIES)[number];

/** An asset that reached a threshold before its expiry, or expired or was not renewed in time (threshold 0). */
export const AssetItem = z.object({
  kind: z.literal("asset"),
  /** `<vault>.<type>.<name>` */
  id: z.string(),
  type: z.enum(ASSET_TYPES),
  name: z.string(),
  vaultName: z.string(),
  vaultId: z.string(),
  subscriptionId: z.string(),
  owner: z.string().optional(),
  /** Unix seconds. */
  expiresOn: z.int(),
  /** The lowest threshold that was reached, in days before expiry. */
  threshold: z.int(),
  /** Time of the rule's first notification about this expiry, by a higher threshold, ISO 8601. */
  since: z.string().optional(),
  /** For a certificate whose renewal is late: its renewer, and when its window ended (unix seconds). */
  late: z.object({ renewedBy: z.enum(RENEWERS), windowEnd: z.int() }).optional(),
  /** The application of a directory credential. The item's vault is then internal and not shown. */
  credential: z
    .object({
      tenantId: z.string(),
      kind: z.enum(CREDENTIAL_KINDS).optional(),
      tenantDomain: z.string().optional(),
      appId: z.string().optional(),
      applicationName: z.string(),
      keyId: z.string().optional(),
      displayName: z.string().optional(),
    })
    .optional(),
});
export type AssetItem = z.infer<typeof AssetItem>;

/** A resource that fails a compliance check. */
export const ViolationItem = z.object({
  kind: z.literal("violation"),
  id: z.string(),
  checkId: z.string(),
  title: z.string(),
  severity: z.enum(SEVERITIES),
  resourceId: z.string(),
  resourceType: z.string(),
  vaultName: z.string(),
  vaultId: z.string().optional(),
  subscriptionId: z.string(),
  owner: z.string().optional(),
  firstSeenAt: z.string(),
});
export type ViolationItem = z.infer<typeof ViolationItem>;

/** A discovery scan that did not complete. Only earlier versions created such items; the history still shows them. */
export const ScanItem = z.object({
  kind: z.literal("scan"),
  /** The scan's id. */
  id: z.string(),
  mode: z.string(),
  status: z.string(),
  finishedAt: z.string(),
  vaultsTotal: z.int(),
  vaultsFailed: z.int(),
  message: z.string().optional(),
});
export type ScanItem = z.infer<typeof ScanItem>;

/** A credential of the service or of its users that expires soon. */
export const CredentialItem = z.object({
  kind: z.literal("credential"),
  id: z.string(),
  /** Kind of credential, such as `API token`. */
  what: z.string(),
  name: z.string(),
  /** The user it belongs to. */
  owner: z.string().optional(),
  /** Unix seconds. */
  expiresOn: z.int(),
  /** The lowest threshold that was reached, in days before expiry. */
  threshold: z.int(),
});
export type CredentialItem = z.infer<typeof CredentialItem>;

/** A sign-in with a password while passwords are turned off for other users. */
export const BreakGlassItem = z.object({
  kind: z.literal("breakGlass"),
  /** The id of the audit entry. */
  id: z.string(),
  username: z.string(),
  /** The client's address; IPv6 as its /64. */
  address: z.string().optional(),
  at: z.string(),
});
export type BreakGlassItem = z.infer<typeof BreakGlassItem>;

/** An event of a rotation, a sync or dependency discovery, with texts from that module. */
export const AutomationItem = z.object({
  kind: z.literal("automation"),
  /** Ids of one kind sort by time. */
  id: z.string(),
  /** The application's name, or the record's source and target. */
  title: z.string(),
  /** The event, as the predicate of the title. */
  what: z.string(),
  urgency: z.enum(URGENCIES),
  /** The reason, the completed actions, the current state, and the next step. Empty if not applicable. */
  why: z.string(),
  done: z.string(),
  safe: z.string(),
  next: z.string(),
  at: z.string(),
  /** The client id of the application. */
  appId: z.string().optional(),
  rotationId: z.string().optional(),
  recordId: z.string().optional(),
  /** The vault that a reference names. */
  vaultName: z.string().optional(),
});
export type AutomationItem = z.infer<typeof AutomationItem>;

/**
 * A vault or subscription that scans can't read, or a failure of scans as a whole. Rules notify when the failure starts, once a
 * week while it persists, and when it is resolved. (`ScanItem` is the format of earlier versions: one scan that did not
 * complete.)
 */
export const ScanFailureItem = z.object({
  kind: z.literal("scanFailure"),
  /** `vault:<name>`, `subscription:<id>`, or `scan`; in lower case. */
  id: z.string(),
  /** The scan that found the failure. */
  scanId: z.string(),
  subscriptionId: z.string().optional(),
  vaultName: z.string().optional(),
  /** Which of the vault's lists: `secrets`, `keys`, `certificates`, `rotationPolicies`, `diagnosticSettings` or `vault`. */
  list: z.string().optional(),
  code: z.string(),
  message: z.string(),
  remedy: z.string(),
  /** When that scan found it, ISO 8601. */
  at: z.string(),
});
export type ScanFailureItem = z.infer<typeof ScanFailureItem>;

/** An item whose alert stays open until it is resolved. */
export const TrackedItem = z.discriminatedUnion("kind", [AssetItem, ViolationItem, ScanFailureItem]);
export type TrackedItem = z.infer<typeof TrackedItem>;

const tracking = {
  /** The id of the affected asset, violation or failure. */
  id: z.string(),
  /** The item at the last notification. */
  of: TrackedItem,
  /** Time of the rule's first notification, ISO 8601. */
  since: z.string(),
};

/** An asset that was reported as expiring and now expires after every threshold of the rule, or never. */
export const RenewedItem = z.object({
  kind: z.literal("renewed"),
  ...tracking,
  of: AssetItem,
  /** The new expiry, unix seconds. Undefined if the asset no longer expires. */
  expiresOn: z.int().optional(),
  version: z.string().optional(),
});
export type RenewedItem = z.infer<typeof RenewedItem>;

/**
 * `mended`: the check passes, or the scan can read the resource. `removed`: the asset, vault or subscription was deleted.
 * `disabled`: the asset was disabled. `outOfScope`: the resource is no longer monitored.
 */
export const END_REASONS = ["mended", "removed", "disabled", "outOfScope"] as const;

/** An alert that was resolved in another way than by a renewal. */
export const RecoveredItem = z.object({
  kind: z.literal("recovered"),
  ...tracking,
  reason: z.enum(END_REASONS),
});
export type RecoveredItem = z.infer<typeof RecoveredItem>;

/** A failure that persists a week after the last notification. */
export const StillFailingItem = z.object({
  kind: z.literal("stillFailing"),
  ...tracking,
  of: ScanFailureItem,
  /** Number of earlier notifications. */
  times: z.int(),
});
export type StillFailingItem = z.infer<typeof StillFailingItem>;

/** An alert without acknowledgment within the escalation's days. It is sent to the escalation's recipients only. */
export const EscalatedItem = z.object({
  kind: z.literal("escalated"),
  ...tracking,
  afterDays: z.int(),
});
export type EscalatedItem = z.infer<typeof EscalatedItem>;

/** One item of a notification. */
export const Item = z.discriminatedUnion("kind", [
  AssetItem,
  ViolationItem,
  ScanItem,
  ScanFailureItem,
  CredentialItem,
  BreakGlassItem,
  AutomationItem,
  RenewedItem,
  RecoveredItem,
  StillFailingItem,
  EscalatedItem,
]);
export type Item = z.infer<typeof Item>;

export const ITEM_KINDS = Item.options.map(({ shape }) => shape.kind.value);

/** Returns the tracked item of an alert. Undefined for items that cause one notification and are never resolved. */
export function trackedItemOf(item: Item): TrackedItem | undefined {
  if ("of" in item) return item.of;
  return item.kind === "asset" || item.kind === "violation" || item.kind === "scanFailure" ? item : undefined;
}

/** Returns whether an item is about something that scans can't read because the service's identity misses a permission. */
export function isDeniedAccess(item: Item): boolean {
  const subject = "of" in item ? item.of : item;
  return subject.kind === "scanFailure" && subject.code === "accessDenied";
}

/**
 * Returns the key of an alert within its rule: the same for the item that opens the alert and for all later items about it.
 * Keys of one kind sort by vault or by id.
 */
export function alertKey(item: TrackedItem): string {
  switch (item.kind) {
    case "asset":
      return assetAlertKey(item);
    case "violation":
      return `v!${keyText(item.id)}`;
    case "scanFailure":
      return `s!${keyText(item.id)}`;
  }
}

/** Returns the key of alerts about an asset within their rule. */
export const assetAlertKey = ({ vaultName, type, name }: Pick<AssetItem, "vaultName" | "type" | "name">): string =>
  `a!${vaultName.toLowerCase()}!${type}!${keyText(name.toLowerCase())}`;

/** Returns the key prefix of an asset's rows in the notification log. Keys sort like the index by expiry. */
export const assetKeyPrefix = (item: Pick<AssetItem, "type" | "name" | "vaultName" | "expiresOn">): string =>
  `${expiryKey(item.type, item.expiresOn, item.name, item.vaultName)}!`;
const thresholdText = (threshold: number): string => String(threshold).padStart(3, "0");
/** Returns the threshold in the row key of a notification about an asset. */
export const thresholdOf = (rowKey: string): number => Number(rowKey.slice(rowKey.lastIndexOf("!") + 1));

/**
 * Returns the key in the notification log. A new expiry or a lower threshold is a new notification. The key of an asset begins
 * like its key in the index by expiry (`e!`). The other prefixes name the kind of item, here and in `resolutionKey` (`z!`),
 * `escalationKey` (`x!`) and `automationKey` (`m!`). The keys of `alertKey`, for tracked alerts, are a separate set.
 */
export function notificationKey(item: Item): string {
  switch (item.kind) {
    case "asset":
      return assetKeyPrefix(item) + thresholdText(item.threshold);
    case "violation":
      return `v!${keyText(item.id)}!${keyText(item.firstSeenAt)}`;
    case "scan":
      return `s!${item.id}`;
    case "scanFailure":
      return `f!${keyText(item.id)}!${item.scanId}`;
    case "renewed":
    case "recovered":
      return resolutionKey(item.of, item.since);
    case "stillFailing":
      return `w!${alertKey(item.of)}!${keyText(item.since)}!${item.times}`;
    case "escalated":
      return escalationKey(item.of, item.since);
    case "credential":
      return `c!${keyText(item.id)}!${item.expiresOn}!${thresholdText(item.threshold)}`;
    case "breakGlass":
      return `b!${item.id}`;
    case "automation":
      return automationKey(item.id);
  }
}

/**
 * Returns the key that marks the resolution of an alert as sent. `since`, the alert's start, distinguishes it from later
 * alerts.
 */
export const resolutionKey = (item: TrackedItem, since: string): string =>
  `${RESOLUTION_PREFIX}${alertKey(item)}!${keyText(since)}`;

/** Prefix of keys that mark the resolutions of alerts as sent. */
export const RESOLUTION_PREFIX = "z!";

/** Prefix of keys that mark alerts as escalated. */
export const ESCALATION_PREFIX = "x!";
export const escalationKey = (item: TrackedItem, since: string): string =>
  `${ESCALATION_PREFIX}${alertKey(item)}!${keyText(since)}`;

/** Prefix of keys that mark events of automation as sent. */
export const AUTOMATION_PREFIX = "m!";
export const automationKey = (id: string): string => `${AUTOMATION_PREFIX}${keyText(id)}`;

/** Compares items by urgency: earlier expiry, higher severity, newer scan first. */
export function byUrgency(a: Item, b: Item): number {
  if (a.kind === "asset" && b.kind === "asset") return a.expiresOn - b.expiresOn || compare(a.id, b.id);
  if (a.kind === "violation" && b.kind === "violation")
    return SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) || compare(a.id, b.id);
  if (a.kind === "automation" && b.kind === "automation") return compare(a.id, b.id);
  // By id: first failures of scans as a whole (`scan`), then of subscriptions (`subscription:…`), then of vaults (`vault:…`).
  if (a.kind === "scanFailure" && b.kind === "scanFailure") return compare(a.id, b.id);
  // Items about an open alert (resolutions, reminders and escalations) sort like what they are about, after all other items.
  if ("of" in a && "of" in b) return byUrgency(a.of, b.of);
  if ("of" in a !== "of" in b) return "of" in a ? 1 : -1;
  if (a.kind === "credential" && b.kind === "credential") return a.expiresOn - b.expiresOn || compare(a.id, b.id);
  // Scans and break-glass sign-ins: the ids begin with their time, so the newest is first.
  return compare(b.id, a.id);
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
