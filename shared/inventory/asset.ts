import { createHash } from "node:crypto";
import * as z from "zod";
import { entity } from "../storage/entity.ts";

export const ASSET_TYPES = ["certificate", "key", "secret"] as const;
export type AssetType = (typeof ASSET_TYPES)[number];

export const RotationPolicy = z.object({
  expiresIn: z.string().optional(),
  lifetimeActions: z.array(
    z.object({ action: z.string(), timeAfterCreate: z.string().optional(), timeBeforeExpiry: z.string().optional() }),
  ),
});

/**
 * What is known of one asset. Instants of the vault are whole unix seconds, as Key Vault gives them. The row stands six
 * times (see the table of keys in shared/storage/README.md), always whole, so that a list needs no second look-up.
 */
export const AssetRecord = z.object({
  type: z.enum(ASSET_TYPES),
  name: z.string(),
  vaultName: z.string(),
  vaultId: z.string(),
  subscriptionId: z.string(),
  enabled: z.boolean(),
  version: z.string().optional(),
  createdOn: z.int().optional(),
  updatedOn: z.int().optional(),
  notBefore: z.int().optional(),
  expiresOn: z.int().optional(),
  contentType: z.string().optional(),
  tags: z.record(z.string(), z.string()).optional(),
  keyType: z.string().optional(),
  keySize: z.int().optional(),
  keyCurve: z.string().optional(),
  rotationPolicy: RotationPolicy.optional(),
  subject: z.string().optional(),
  issuer: z.string().optional(),
  subjectAlternativeNames: z.array(z.string()).optional(),
  thumbprint: z.string().optional(),
  validityMonths: z.int().optional(),
  autoRenew: z.boolean().optional(),
  firstSeenAt: z.string(),
  /**
   * Hash of the list entry it was last seen with: a delta scan reads details only when this differs. Empty where something
   * of it could not be read then, so that every scan tries again.
   */
  listing: z.string(),
  /** Hash of everything above but `firstSeenAt`: a scan writes only when this differs. */
  content: z.string(),
});
export type AssetRecord = z.infer<typeof AssetRecord>;

export const Assets = entity("Assets", AssetRecord);

/** Whether something of it is as it was known before, since it could not be read when it was last listed. */
export const isStale = ({ listing }: Pick<AssetRecord, "listing">): boolean => listing === "";

/** `<vault>.<type>.<name>`; Key Vault names ignore case, so ids are lower-cased. */
export const assetId = (asset: { vaultName: string; type: AssetType; name: string }): string =>
  `${asset.vaultName}.${asset.type}.${asset.name}`.toLowerCase();

const ASSET_ID = /^([a-z0-9-]{1,127})\.(secret|key|certificate)\.([a-z0-9-]{1,127})$/;

/** The parts of an asset id, or undefined when the text is none. */
export function parseAssetId(id: string): { vaultName: string; type: AssetType; name: string } | undefined {
  const match = ASSET_ID.exec(id.toLowerCase());
  return match ? { vaultName: match[1]!, type: match[2] as AssetType, name: match[3]! } : undefined;
}

/** A short, stable hash of a JSON value whose members come in a fixed order. */
export const fingerprint = (value: unknown): string =>
  createHash("sha256").update(JSON.stringify(value)).digest("base64url").slice(0, 22);

/** The content hash of an asset, over everything a person could see change. */
export function contentOf(asset: Omit<AssetRecord, "content" | "firstSeenAt">): string {
  const { tags, ...rest } = asset;
  const entries = Object.entries({ ...rest, tags: tags && Object.entries(tags).sort(byName) });
  return fingerprint(entries.filter(([, value]) => value !== undefined).sort(byName));
}

const byName = ([a]: [string, unknown], [b]: [string, unknown]): number => (a < b ? -1 : a > b ? 1 : 0);
