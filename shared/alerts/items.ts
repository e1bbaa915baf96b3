import { deflateRawSync, inflateRawSync } from "node:zlib";
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

/** One thing a rule notifies of. */
export const Item = z.discriminatedUnion("kind", [
  AssetItem,
  ViolationItem,
  ScanItem,
  CredentialItem,
  BreakGlassItem,
  AutomationItem,
]);
export type Item = z.infer<typeof Item>;

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
    case "credential":
      return `c!${keyText(item.id)}!${item.expiresOn}!${days(item.threshold)}`;
    case "breakGlass":
      return `b!${item.id}`;
    case "automation":
      return automationKey(item.id);
  }
}

export const automationKey = (id: string): string => `m!${keyText(id)}`;

/** The most urgent first: what expires first, the more severe, the newer scan. */
export function byUrgency(a: Item, b: Item): number {
  if (a.kind === "asset" && b.kind === "asset") return a.expiresOn - b.expiresOn || compare(a.id, b.id);
  if (a.kind === "violation" && b.kind === "violation")
    return SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) || compare(a.id, b.id);
  if (a.kind === "automation" && b.kind === "automation") return compare(a.id, b.id);
  if (a.kind === "credential" && b.kind === "credential") return a.expiresOn - b.expiresOn || compare(a.id, b.id);
  return compare(b.id, a.id);
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

export const packItems = (items: readonly Item[]): Uint8Array<ArrayBuffer> =>
  new Uint8Array(deflateRawSync(JSON.stringify(items)));

export const unpackItems = (packed: Uint8Array): Item[] =>
  z.array(Item).parse(JSON.parse(inflateRawSync(packed).toString("utf8")));
