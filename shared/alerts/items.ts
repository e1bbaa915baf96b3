import * as z from "zod";
import { ASSET_TYPES, CREDENTIAL_KINDS } from "../inventory/asset.ts";
import { expiryKey } from "../inventory/layout.ts";
import { keyText } from "../storage/keys.ts";
import { SEVERITIES } from "./rule.ts";

export const URGENCIES = ["expired", "critical", "warning", "notice"] as const;
export type Urgency = (typeof URGENCIES)[number];

/** An asset that crossed a threshold, or expired (threshold 0). */
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
  /** Days: the lowest threshold it has crossed. */
  threshold: z.int(),
  /** When the rule first told of this expiry, by a higher threshold, ISO 8601. */
  since: z.string().optional(),
  /** Of an application's credential: whose it is. Its vault is none that people know. */
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

/** A credential of the service itself, or of its users, that ends soon. */
export const CredentialItem = z.object({
  kind: z.literal("credential"),
  id: z.string(),
  /** What it is, such as `API token`. */
  what: z.string(),
  name: z.string(),
  /** The user it belongs to. */
  owner: z.string().optional(),
  /** Unix seconds. */
  expiresOn: z.int(),
  /** Days: the lowest threshold it has crossed. */
  threshold: z.int(),
});
export type CredentialItem = z.infer<typeof CredentialItem>;

/** A use of a password while they are switched off for everybody else. */
export const BreakGlassItem = z.object({
  kind: z.literal("breakGlass"),
  /** Of the entry in the audit log. */
  id: z.string(),
  username: z.string(),
  /** The client's address; IPv6 as its /64. */
  address: z.string().optional(),
  at: z.string(),
});
export type BreakGlassItem = z.infer<typeof BreakGlassItem>;

/** Something that a rotation or a sync did, or wants somebody to do, in the words of its room. */
export const AutomationItem = z.object({
  kind: z.literal("automation"),
  /** Those of one kind sort by time. */
  id: z.string(),
  /** The application's name, or the record's source and target. */
  title: z.string(),
  /** What came about, to follow the title. */
  what: z.string(),
  urgency: z.enum(URGENCIES),
  /** Why, what was done, what is safe, and what to do next; what does not apply is empty. */
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
 * Something that scans can't read: a vault, a subscription, or everything. It is told of when it begins, once a week while it
 * lasts, and when it ends. (`ScanItem` is what earlier versions told: a scan that did not complete.)
 */
export const ScanFailureItem = z.object({
  kind: z.literal("scanFailure"),
  /** `vault:<name>`, `subscription:<id>`, or `scan`; in lower case. */
  id: z.string(),
  /** The scan that found it so. */
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

/** What is followed from the message that tells of it to its end. */
export const FollowedItem = z.discriminatedUnion("kind", [AssetItem, ViolationItem, ScanFailureItem]);
export type FollowedItem = z.infer<typeof FollowedItem>;

const following = {
  /** Of what it is about. */
  id: z.string(),
  /** As it was told the last time. */
  of: FollowedItem,
  /** When the rule first told of it, ISO 8601. */
  since: z.string(),
};

/** An asset that was told of as expiring, and whose expiry is now beyond every threshold of the rule, or that has none any more. */
export const RenewedItem = z.object({
  kind: z.literal("renewed"),
  ...following,
  of: AssetItem,
  /** The new expiry, unix seconds; undefined where it has none. */
  expiresOn: z.int().optional(),
  version: z.string().optional(),
});
export type RenewedItem = z.infer<typeof RenewedItem>;

/**
 * `mended`: the check passes, or the scan can read it. `removed`: the asset, the vault or the subscription is gone. `disabled`:
 * the asset is switched off. `outOfScope`: it is not watched any more.
 */
export const END_REASONS = ["mended", "removed", "disabled", "outOfScope"] as const;

/** Something that was told of and has ended, otherwise than by a renewal. */
export const RecoveredItem = z.object({
  kind: z.literal("recovered"),
  ...following,
  reason: z.enum(END_REASONS),
});
export type RecoveredItem = z.infer<typeof RecoveredItem>;

/** A failure that still lasts, a week after it was told of the last time. */
export const StillFailingItem = z.object({
  kind: z.literal("stillFailing"),
  ...following,
  of: ScanFailureItem,
  /** How often it was told of before. */
  times: z.int(),
});
export type StillFailingItem = z.infer<typeof StillFailingItem>;

/** Something that nobody acknowledged within the days of the rule's escalation. It goes to the escalation's recipients alone. */
export const EscalatedItem = z.object({
  kind: z.literal("escalated"),
  ...following,
  afterDays: z.int(),
});
export type EscalatedItem = z.infer<typeof EscalatedItem>;

/** One thing a rule notifies of. */
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

/** Undefined for what is told of once and not followed. */
export function followedIn(item: Item): FollowedItem | undefined {
  if ("of" in item) return item.of;
  return item.kind === "asset" || item.kind === "violation" || item.kind === "scanFailure" ? item : undefined;
}

/**
 * What tells one alert of a rule from all its others, from its beginning to its end: of the item that begins it and of all
 * that are about it. Of one kind they sort by vault or by id.
 */
export function alertKey(item: FollowedItem): string {
  switch (item.kind) {
    case "asset":
      return `a!${item.vaultName.toLowerCase()}!${item.type}!${keyText(item.name.toLowerCase())}`;
    case "violation":
      return `v!${keyText(item.id)}`;
    case "scanFailure":
      return `s!${keyText(item.id)}`;
  }
}

/** How the keys of an asset's rows in the notification log begin; they sort as the index by expiry does. */
export const assetKeyPrefix = (item: Pick<AssetItem, "type" | "name" | "vaultName" | "expiresOn">): string =>
  `${expiryKey(item.type, item.expiresOn, item.name, item.vaultName)}!`;
const days = (threshold: number): string => String(threshold).padStart(3, "0");
export const thresholdOf = (markKey: string): number => Number(markKey.slice(markKey.lastIndexOf("!") + 1));

/** The key in the notification log. Another expiry, or a lower threshold, is another notification. */
export function notificationKey(item: Item): string {
  switch (item.kind) {
    case "asset":
      return assetKeyPrefix(item) + days(item.threshold);
    case "violation":
      return `v!${keyText(item.id)}!${keyText(item.firstSeenAt)}`;
    case "scan":
      return `s!${item.id}`;
    case "scanFailure":
      return `f!${keyText(item.id)}!${item.scanId}`;
    case "renewed":
    case "recovered":
      return endKey(item.of, item.since);
    case "stillFailing":
      return `w!${alertKey(item.of)}!${keyText(item.since)}!${item.times}`;
    case "escalated":
      return escalationKey(item.of, item.since);
    case "credential":
      return `c!${keyText(item.id)}!${item.expiresOn}!${days(item.threshold)}`;
    case "breakGlass":
      return `b!${item.id}`;
    case "automation":
      return automationKey(item.id);
  }
}

/** That the end of an alert was told. */
export const endKey = (of: FollowedItem, since: string): string => `z!${alertKey(of)}!${keyText(since)}`;

/** That an alert was escalated. */
export const ESCALATION_PREFIX = "x!";
export const escalationKey = (of: FollowedItem, since: string): string =>
  `${ESCALATION_PREFIX}${alertKey(of)}!${keyText(since)}`;

export const automationKey = (id: string): string => `m!${keyText(id)}`;

/** The most urgent first: what expires first, the more severe, the newer scan. */
export function byUrgency(a: Item, b: Item): number {
  if (a.kind === "asset" && b.kind === "asset") return a.expiresOn - b.expiresOn || compare(a.id, b.id);
  if (a.kind === "violation" && b.kind === "violation")
    return SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) || compare(a.id, b.id);
  if (a.kind === "automation" && b.kind === "automation") return compare(a.id, b.id);
  // Everything, then subscriptions, then vaults, as their ids begin.
  if (a.kind === "scanFailure" && b.kind === "scanFailure") return compare(a.id, b.id);
  if ("of" in a && "of" in b) return byUrgency(a.of, b.of);
  if ("of" in a !== "of" in b) return "of" in a ? 1 : -1;
  if (a.kind === "credential" && b.kind === "credential") return a.expiresOn - b.expiresOn || compare(a.id, b.id);
  return compare(b.id, a.id);
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
