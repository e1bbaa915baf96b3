import * as z from "zod";
import { entity } from "../storage/entity.ts";
import { ASSET_TYPES, type AssetType, SOURCES } from "./asset.ts";

/** Why one of a vault's lists (or the vault itself) could not be read, and what to do about it. */
export const VaultFailure = z.object({
  code: z.string(),
  message: z.string(),
  remedy: z.string(),
  at: z.string(),
});
export type VaultFailure = z.infer<typeof VaultFailure>;

const perType = <S extends z.ZodType>(schema: S) =>
  z.object({ certificate: schema.optional(), key: schema.optional(), secret: schema.optional() });

export const DiagnosticSetting = z.object({
  name: z.string(),
  auditEvents: z.boolean(),
  retentionDays: z.int().optional(),
});

/** A vault as the resource manager describes it, beside what the scans know of it. */
export const VaultRecord = z.object({
  name: z.string(),
  /** Absent: a key vault. Otherwise it is a holder of credentials; see holder.ts. */
  source: z.enum(SOURCES).optional(),
  id: z.string(),
  vaultUri: z.string(),
  location: z.string(),
  subscriptionId: z.string(),
  resourceGroup: z.string(),
  tenantId: z.string(),
  sku: z.string(),
  tags: z.record(z.string(), z.string()).optional(),
  softDelete: z.boolean(),
  softDeleteRetentionDays: z.int().optional(),
  purgeProtection: z.boolean(),
  rbacAuthorization: z.boolean(),
  publicNetworkAccess: z.string(),
  networkDefaultAction: z.string(),
  privateEndpoints: z.int(),
  /** Read by full scans; undefined until one could. */
  diagnostics: z.array(DiagnosticSetting).optional(),
  firstSeenAt: z.string(),
  /** The last listing of each kind that was read to its end: its assets' `lastSeenAt`. */
  listedAt: perType(z.string()),
  /** What each kind last failed with; absent after a good listing. */
  failures: perType(VaultFailure),
  /** Failed scans in a row, and until when scans other than `force` leave it alone. */
  failedScans: z.int(),
  retryAt: z.string().optional(),
  /** Hashes over all list entries and over all assets of a kind. */
  listings: perType(z.string()),
  contents: perType(z.string()),
  certificateExpiries: z.instanceof(Uint8Array).optional(),
  keyExpiries: z.instanceof(Uint8Array).optional(),
  secretExpiries: z.instanceof(Uint8Array).optional(),
  /** The worker that is writing this vault's assets now. How long it may is told by the age of this row. */
  lockOwner: z.string().optional(),
  /** Written by earlier versions; nobody goes by it. */
  lockedUntil: z.string().optional(),
  /** True while writes are under way: a worker that finds it finishes them with the PendingWrites rows. */
  pending: z.boolean(),
  /** The ETags of the vault's fences as the last worker left them; absent where nothing was ever written under one. */
  fences: z.object({ all: z.string(), subscription: z.string(), vault: z.string() }).optional(),
});
export type VaultRecord = z.infer<typeof VaultRecord>;

export const Vaults = entity("Vaults", VaultRecord);

/** The index entries a worker is about to write, so that the next one can clear what a dead one left. */
export const PendingWrites = entity(
  "Vaults",
  z.object({
    /** Deflated JSON of `[type, name key, expiry or null]`. */
    entries: z.instanceof(Uint8Array),
  }),
);

/** All vaults live in one partition, so that a vault's row and its copy change in one transaction. */
export const VAULTS = "vaults";
export const vaultKey = (name: string): string => `n!${name.toLowerCase()}`;
export const vaultInSubscriptionKey = (subscriptionId: string, name: string): string =>
  `s!${subscriptionId.toLowerCase()}!${name.toLowerCase()}`;
export const pendingPrefix = (name: string): string => `w!${name.toLowerCase()}!`;

const COLUMN = { certificate: "certificateExpiries", key: "keyExpiries", secret: "secretExpiries" } as const;

/** The packed expiries of one type. */
export const expiriesOf = (vault: Partial<VaultRecord>, type: AssetType): Uint8Array | undefined => vault[COLUMN[type]];
export const expiriesColumn = (type: AssetType): (typeof COLUMN)[AssetType] => COLUMN[type];

export const forEachType = <T>(make: (type: AssetType) => T): Record<AssetType, T> =>
  Object.fromEntries(ASSET_TYPES.map((type) => [type, make(type)])) as Record<AssetType, T>;
