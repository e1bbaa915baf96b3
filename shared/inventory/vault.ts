import * as z from "zod";
import { bytesMember, entity } from "../platform/storage/entity.ts";
import { packedMember } from "../platform/storage/packed-members.ts";
import { ASSET_TYPES, type AssetType, SOURCES } from "./asset.ts";
import { NAME_PREFIX } from "./asset-keys.ts";
import { PendingEntry } from "./asset-row-changes.ts";

/**
 * The stored row of a vault, its further rows in the table Vaults, and their keys. A row can also be the *holder* of a
 * directory's credentials, which takes the place of a vault for them (holder.ts).
 */

/** Why a list of a vault, or the vault itself, could not be read, with the remedy. */
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
    .meta({ description: "Days for which audit events are kept. Absent if the setting does not specify it." }),
});

/** Numbers of a vault's assets of one type by owner, for summaries. */
export const OwnerCounts = z.object({
  /** The owner tag under which the owners were counted. If another tag is configured now, the next scan counts them again. */
  tag: z.string(),
  owners: z.array(z.tuple([z.string(), z.int()])),
  /** Assets of owners that are not in the list. */
  others: z.int(),
});
export type OwnerCounts = z.infer<typeof OwnerCounts>;

/**
 * For each seventh of a vault's keys or certificates (details.ts): when all its details were last read, in unix seconds, and a
 * hash over the assets.
 */
export const ReadSevenths = z.array(z.tuple([z.int(), z.string()])).length(7);
export type ReadSevenths = z.infer<typeof ReadSevenths>;

/** A vault as the resource manager describes it, as far as it is stored. Each scan replaces these fields. */
export const VaultDescription = z.object({
  name: z.string(),
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
});
export type VaultDescription = z.infer<typeof VaultDescription>;

/** The bytes of 32-bit numbers. */
const PackedExpiries = bytesMember(({ length }) => length % Uint32Array.BYTES_PER_ELEMENT === 0);

/** Results of a vault's scans. They stay until a scan replaces them. */
export const ScanResults = z.object({
  /** Read by full scans. Undefined until one succeeded. */
  diagnostics: z.array(DiagnosticSetting).optional(),
  firstSeenAt: z.string(),
  /** When each list was last read completely: `lastSeenAt` of its assets. */
  listedAt: perType(z.string()),
  /** The last failure of each list. Absent after a successful listing. */
  failures: perType(VaultFailure),
  /** Number of consecutive failed scans, and the end of the back-off for scans other than `force`. */
  failedScans: z.int(),
  retryAt: z.string().optional(),
  /** When an event of the vault itself last led to a re-scan. Absent if none ever arrived. */
  lastEventAt: z.string().optional(),
  /** Hashes over all list entries and over all assets, by type. */
  listings: perType(z.string()),
  contents: perType(z.string()),
  /** When the details of keys and certificates were last read, by seventh. Absent in rows of earlier versions. */
  details: z.object({ certificate: ReadSevenths.optional(), key: ReadSevenths.optional() }).optional(),
  /**
   * Hashes over the responses from which the stored assets of a type were derived. Absent if the responses were not read all at
   * once, or in rows of earlier versions.
   */
  answers: perType(z.string()).optional(),
  /** When the assets of each type expire, sorted and packed as 32-bit unix seconds (expiries.ts). */
  certificateExpiries: PackedExpiries.optional(),
  keyExpiries: PackedExpiries.optional(),
  secretExpiries: PackedExpiries.optional(),
  /**
   * The certificates with a renewal plan, which are also among `certificateExpiries` (planned-certificates.ts). Absent in rows
   * of earlier versions: the next scan computes it.
   */
  certificateRenewals: PackedExpiries.optional(),
  /** Owners of its assets. Absent in rows of earlier versions. */
  owners: perType(OwnerCounts).optional(),
  /** Packed `RenewalChecks` of its certificates. Absent if no authority was asked. */
  renewalChecks: bytesMember(() => true).optional(),
});
export type ScanResults = z.infer<typeof ScanResults>;

/**
 * A stored vault. It has three parts, and the part of a new field decides what a scan does with it. A scan replaces
 * `VaultDescription` and keeps `ScanResults`. The rest belongs to the writer of the row.
 */
export const VaultRecord = z.object({
  ...VaultDescription.shape,
  ...ScanResults.shape,
  /** Absent for key vaults. Otherwise the row is a holder of credentials; see holder.ts. */
  source: z.enum(SOURCES).optional(),
  /**
   * When the description above was requested from the resource manager, by the clock of the storage. Absent in rows of earlier
   * versions.
   */
  describedAt: z.string().optional(),
  /** The worker that is writing this vault's assets. The age of this row decides whether its claim is still valid. */
  lockOwner: z.string().optional(),
  /** Written by earlier versions and no longer used. */
  lockedUntil: z.string().optional(),
  /** True while a write is in progress. A worker that finds it completes the write with the PendingWrites rows. */
  pending: z.boolean(),
  /** Key prefix of logged changes of which a part is written. If the worker crashes, the next one removes them. */
  changesKey: z.string().optional(),
  /**
   * ETags of the vault's fences as the last worker left them. A fence is a row whose ETag each write of the vault's assets
   * requires, one in each partition of the assets (vault-claim.ts). Absent if nothing was written under a fence.
   */
  fences: z.object({ all: z.string(), subscription: z.string(), vault: z.string() }).optional(),
});
export type VaultRecord = z.infer<typeof VaultRecord>;

export const Vaults = entity("Vaults", VaultRecord);

/** Index entries that a worker announces before it writes them, so that the next worker can remove those of a crashed one. */
export const PendingWrites = entity(
  "Vaults",
  z.object({
    /** Compressed `PendingEntry`s. */
    entries: packedMember(z.array(PendingEntry)),
  }),
);

/** Marks a removed vault for a day, so that a scan planned before does not add it again. */
export const RemovedVaults = entity(
  "Vaults",
  z.object({
    /** When the listing without the vault was requested. */
    listedAt: z.string(),
  }),
);

/**
 * All vaults are in one partition, so that a vault's row and its copy change in one transaction. Prefixes of its row keys:
 * - `c!` logged changes of assets (change-log.ts)
 * - `k!` totals of all vaults (totals.ts)
 * - `l!` marks of vaults that changed since the totals (changed-vaults.ts)
 * - `m!` the scope (scope.ts)
 * - `n!` vaults by name
 * - `s!` copies of the vaults' rows by subscription and name
 * - `w!` entries that a worker announces before it writes them (`PendingWrites`)
 * - `x!` removed vaults (`RemovedVaults`)
 */
export const VAULTS = "vaults";
export const vaultKey = (name: string): string => `${NAME_PREFIX}${name.toLowerCase()}`;
export const vaultInSubscriptionKey = (subscriptionId: string, name: string): string =>
  `s!${subscriptionId.toLowerCase()}!${name.toLowerCase()}`;
export const REMOVED = "x!";
export const removedKey = (name: string): string => `${REMOVED}${name.toLowerCase()}`;
/** Prefix of the announced writes of all vaults. */
export const PENDING_PREFIX = "w!";
export const pendingPrefix = (name: string): string => `${PENDING_PREFIX}${name.toLowerCase()}!`;

const COLUMN = { certificate: "certificateExpiries", key: "keyExpiries", secret: "secretExpiries" } as const;

/** Returns the packed expiries of one type. */
export const expiriesOf = (vault: Partial<VaultRecord>, type: AssetType): Uint8Array | undefined => vault[COLUMN[type]];
export const expiriesColumn = (type: AssetType): (typeof COLUMN)[AssetType] => COLUMN[type];

export const forEachType = <T>(make: (type: AssetType) => T): Record<AssetType, T> =>
  Object.fromEntries(ASSET_TYPES.map((type) => [type, make(type)])) as Record<AssetType, T>;
