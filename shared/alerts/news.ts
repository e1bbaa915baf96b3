import { deflateRawSync, inflateRawSync } from "node:zlib";
import * as z from "zod";
import { ASSET_TYPES } from "../inventory/asset.ts";
import { expiryKey } from "../inventory/layout.ts";
import { keyText } from "../storage/keys.ts";
import { SEVERITIES } from "./rule.ts";

/** An asset that crossed a threshold, or expired (threshold 0). */
export const AssetNews = z.object({
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
});
export type AssetNews = z.infer<typeof AssetNews>;

export const ViolationNews = z.object({
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
export type ViolationNews = z.infer<typeof ViolationNews>;

export const ScanNews = z.object({
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
export type ScanNews = z.infer<typeof ScanNews>;

/** One thing a rule tells of. */
export const News = z.discriminatedUnion("kind", [AssetNews, ViolationNews, ScanNews]);
export type News = z.infer<typeof News>;

/** Keys of the marks of what a rule has told; those of assets sort as the index by expiry does. */
export const assetMarks = (news: Pick<AssetNews, "type" | "name" | "vaultName" | "expiresOn">): string =>
  `${expiryKey(news.type, news.expiresOn, news.name, news.vaultName)}!`;
const days = (threshold: number): string => String(threshold).padStart(3, "0");
export const thresholdOf = (markKey: string): number => Number(markKey.slice(markKey.lastIndexOf("!") + 1));

/** The mark of one telling. Another expiry, or a lower threshold, is another telling. */
export function markOf(news: News): string {
  switch (news.kind) {
    case "asset":
      return assetMarks(news) + days(news.threshold);
    case "violation":
      return `v!${keyText(news.id)}!${keyText(news.firstSeenAt)}`;
    case "scan":
      return `s!${news.id}`;
  }
}

/** The most urgent first: what expires first, the more severe, the newer scan. */
export function byUrgency(a: News, b: News): number {
  if (a.kind === "asset" && b.kind === "asset") return a.expiresOn - b.expiresOn || compare(a.id, b.id);
  if (a.kind === "violation" && b.kind === "violation")
    return SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) || compare(a.id, b.id);
  return compare(b.id, a.id);
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

export const packNews = (news: readonly News[]): Uint8Array<ArrayBuffer> =>
  new Uint8Array(deflateRawSync(JSON.stringify(news)));

export const unpackNews = (packed: Uint8Array): News[] =>
  z.array(News).parse(JSON.parse(inflateRawSync(packed).toString("utf8")));
