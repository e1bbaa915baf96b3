import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { ASSET_TYPES, type AssetType, SOURCES } from "./asset.ts";
import { NAME_PREFIX } from "./layout.ts";

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
  auditEvents: z.boolean().meta({ description: "Whether the vault sends audit events of reads." }),
  retentionDays: z
    .int()
    .optional()
    .meta({ description: "Days that the setting keeps them; absent where it says nothing." }),
});

/** Who owns a vault's assets of one type: what a summary of all vaults is counted from. */
export const OwnerCounts = z.object({
  /** The tag that named them: where another one does now, they are counted anew by the next scan. */
  tag: z.string(),
  owners: z.array(z.tuple([z.string(), z.int()])),
  /** Assets of owners that are not among them. */
  others: z.int(),
});
export type OwnerCounts = z.infer<typeof OwnerCounts>;

/**
 * Of each seventh of a vault's keys or certificates (details.ts), when all their details were last read, in unix seconds,
 * and a hash over the assets.
 */
export const ReadSevenths = z.array(z.tuple([z.int(), z.string()])).length(7);
export type ReadSevenths = z.infer<typeof ReadSevenths>;

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
  /**
   * When the resource manager was asked for what is said of the vault above, by the store's clock. Absent where a version
   * before wrote it.
   */
  describedAt: z.string().optional(),
  firstSeenAt: z.string(),
  /** The last listing of each kind that was read to its end: its assets' `lastSeenAt`. */
  listedAt: perType(z.string()),
  /** What each kind last failed with; absent after a good listing. */
  failures: perType(VaultFailure),
  /** Failed scans in a row, and until when scans other than `force` leave it alone. */
  failedScans: z.int(),
  retryAt: z.string().optional(),
  /** When an event of the vault itself last led to a look at it; absent where none ever arrived. */
  lastEventAt: z.string().optional(),
  /** Hashes over all list entries and over all assets of a kind. */
  listings: perType(z.string()),
  contents: perType(z.string()),
  /** Of keys and certificates; absent where a version before read them. */
  details: z.object({ certificate: ReadSevenths.optional(), key: ReadSevenths.optional() }).optional(),
  /**
   * Hashes over what was answered for all of a kind that make the assets that stand; absent where not all was read at once, or
   * a version before did it.
   */
  answers: perType(z.string()).optional(),
  certificateExpiries: z.instanceof(Uint8Array).optional(),
  keyExpiries: z.instanceof(Uint8Array).optional(),
  secretExpiries: z.instanceof(Uint8Array).optional(),
  /** Who owns its assets; absent where a version before counted nobody. */
  owners: perType(OwnerCounts).optional(),
  /** The worker that is writing this vault's assets now. How long it may is told by the age of this row. */
  lockOwner: z.string().optional(),
  /** Written by earlier versions; nobody goes by it. */
  lockedUntil: z.string().optional(),
  /** True while writes are under way: a worker that finds it finishes them with the PendingWrites rows. */
  pending: z.boolean(),
  /**
   * What the keys begin with under which the worker writes what it changed, once a part of that is written: should it die, the
   * next one removes that.
   */
  changesKey: z.string().optional(),
  /** The ETags of the vault's fences as the last worker left them; absent where nothing was ever written under one. */
  fences: z.object({ all: z.string(), subscription: z.string(), vault: z.string() }).optional(),
});
export type VaultRecord = z.infer<typeof VaultRecord>;

export const Vaults = entity("Vaults", VaultRecord);

/** The index entries a worker is about to write, so that the next one can clear what a dead one left. */
export const PendingWrites = entity(
  "Vaults",
  z.object({
    /** `PendingEntry`s, packed. */
    entries: z.instanceof(Uint8Array),
  }),
);

/** That a vault was removed, so that a scan planned before does not bring it back. Kept for a day. */
export const RemovedVaults = entity(
  "Vaults",
  z.object({
    /** When the listing that lacked it was asked for. */
    listedAt: z.string(),
  }),
);

/** All vaults live in one partition, so that a vault's row and its copy change in one transaction. */
export const VAULTS = "vaults";
export const vaultKey = (name: string): string => `${NAME_PREFIX}${name.toLowerCase()}`;
export const vaultInSubscriptionKey = (subscriptionId: string, name: string): string =>
  `s!${subscriptionId.toLowerCase()}!${name.toLowerCase()}`;
export const REMOVED = "x!";
export const removedKey = (name: string): string => `${REMOVED}${name.toLowerCase()}`;
export const pendingPrefix = (name: string): string => `w!${name.toLowerCase()}!`;

const COLUMN = { certificate: "certificateExpiries", key: "keyExpiries", secret: "secretExpiries" } as const;

/** The packed expiries of one type. */
export const expiriesOf = (vault: Partial<VaultRecord>, type: AssetType): Uint8Array | undefined => vault[COLUMN[type]];
export const expiriesColumn = (type: AssetType): (typeof COLUMN)[AssetType] => COLUMN[type];

export const forEachType = <T>(make: (type: AssetType) => T): Record<AssetType, T> =>
  Object.fromEntries(ASSET_TYPES.map((type) => [type, make(type)])) as Record<AssetType, T>;
