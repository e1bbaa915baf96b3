import * as z from "zod";
import { ASSET_TYPES, type AssetType } from "../../inventory/asset.ts";
import { entity } from "../../platform/storage/entity.ts";
import { keyEnd, keyText } from "../../platform/storage/keys.ts";
import { packedMember, unpackBytes } from "../../platform/storage/packed-members.ts";
import { fenceEntity } from "../../platform/storage/tables.ts";
import { Failure } from "../rows.ts";

/**
 * Rows of log results. Each workspace has a partition, so that one query's results are written under its fence. The workspaces'
 * own rows share one partition. Row keys in a workspace's partition start with `a|` for uses of assets, `v|` for vaults, `s|`
 * for sign-ins and `n|` for unexpected readers. `f` is the fence: a row whose ETag rejects writes of an earlier worker.
 */
export const TABLE = "Usage";
export const WORKSPACES = "workspaces";

export const UsageFences = fenceEntity(TABLE);
export const FENCE_KEY = "f";

/** State of a workspace. */
export const WorkspaceRecord = z.object({
  workspaceId: z.string(),
  /** Start of the hour, ISO 8601, of the last query. There is at most one query an hour, whatever the result. */
  askedHour: z.string(),
  /** No query before this time, from the workspace's Retry-After. */
  notBefore: z.string().optional(),
  /** Start of the period that was read without gaps. */
  readFrom: z.string().optional(),
  /** End of that period. Events that arrive late are still read for some hours. */
  readTo: z.string().optional(),
  /** Last sign-in of any application in the log. */
  signInAt: z.string().optional(),
  /** Start of the period in which the log has sign-ins of applications without a long gap. Absent in rows of earlier releases. */
  signInSince: z.string().optional(),
  /** Number of consecutive failures. */
  failures: z.int(),
  failure: Failure.extend({ at: z.string() }).optional(),
});
export type WorkspaceRecord = z.infer<typeof WorkspaceRecord>;
export const WorkspaceRows = entity(TABLE, WorkspaceRecord);

/** A user of an asset, from a log. */
export const Reader = z.object({
  /** Object ID. If the log has none, the client ID or user name. In lower case. */
  id: z.string(),
  appId: z.string().optional(),
  /** User name, if the reader is a person. */
  userName: z.string().optional(),
  /** Name of the application, from its sign-ins. */
  name: z.string().optional(),
  /** ID of the resource whose managed identity the reader is. */
  identityOf: z.string().optional(),
  operations: z.array(z.string()),
  lastAt: z.string(),
  /** Uses by day, latest last. */
  days: z.array(z.tuple([z.string(), z.int()])),
  /** Last use of each version, latest last. */
  versions: z.array(z.tuple([z.string(), z.string()])),
  /** Whether the reader was a known consumer or had access when this was decided. Absent while undecided. */
  expected: z.boolean().optional(),
});
export type Reader = z.infer<typeof Reader>;

export const AssetUseRecord = z.object({
  vaultName: z.string(),
  type: z.enum(ASSET_TYPES),
  name: z.string(),
  lastAt: z.string(),
  /** `Reader`s, compressed. */
  readers: packedMember(z.array(Reader)),
  /** Whether there were more readers. The most recent are stored. */
  more: z.boolean().optional(),
});
export type AssetUseRecord = z.infer<typeof AssetUseRecord>;
export const AssetUses = entity(TABLE, AssetUseRecord);

/** `since`: start of the period whose events of a vault are all in the log. `lastAt`: the vault's last event. */
export const VaultUseRecord = z.object({ vaultName: z.string(), since: z.string(), lastAt: z.string() });
export type VaultUseRecord = z.infer<typeof VaultUseRecord>;
export const VaultUses = entity(TABLE, VaultUseRecord);

export const SignInRecord = z.object({ appId: z.string(), keyId: z.string(), name: z.string(), lastAt: z.string() });
export type SignInRecord = z.infer<typeof SignInRecord>;
export const SignIns = entity(TABLE, SignInRecord);

/** An event for alerts: an unexpected reader of an asset. */
export const UnexpectedReader = z.object({
  at: z.string(),
  vaultName: z.string(),
  type: z.enum(ASSET_TYPES),
  name: z.string(),
  readerId: z.string(),
  reader: z.string(),
  operations: z.array(z.string()),
});
export type UnexpectedReader = z.infer<typeof UnexpectedReader>;
export const UnexpectedReaders = entity(TABLE, UnexpectedReader);

/**
 * The secrets of a vault and their use, as last reported to compliance. Only secrets whose use changed since then are evaluated
 * again. All vaults share the partition `UNUSED`. A vault with many secrets has further rows.
 */
const ReportedUnusedRecord = z.object({
  /** Day of the last report. */
  lookedOn: z.string(),
  /** `secret.<name>`. Unused ones have the prefix `-`. */
  assets: packedMember(z.array(z.string())),
  /** Number of rows of the vault. Absent: only this one. */
  rows: z.int().optional(),
});
export type ReportedUnusedRecord = z.infer<typeof ReportedUnusedRecord>;
export const ReportedUnused = entity(TABLE, ReportedUnusedRecord);
export const UNUSED = "unused";
/** Maximum number of names in one row. With up to 127 characters each, compressed, they stay below the 1 MiB of a row. */
export const NAMES_PER_ROW = 5000;
/** Returns the key of one of a vault's rows in the partition `UNUSED`. The first row has the index 0 and the vault's own key. */
export const furtherUnusedKey = (vaultKey: string, index: number): string =>
  index === 0 ? vaultKey : `${vaultKey}|${index}`;

const text = (part: string): string => keyText(part.toLowerCase());
export const ASSET_USES = "a|";
export const VAULT_USES = "v|";
export const SIGN_INS = "s|";
/** A ULID follows, so that the events sort by time. */
export const UNEXPECTED_PREFIX = "n|";
export const assetUseKey = ({ vaultName, type, name }: { vaultName: string; type: AssetType; name: string }): string =>
  `${ASSET_USES}${text(vaultName)}|${type}|${text(name)}`;
export const vaultUseKey = (vaultName: string): string => VAULT_USES + text(vaultName);
/** Returns the key prefix of the sign-ins of one application. */
export const signInsPrefix = (appId: string): string => `${SIGN_INS}${text(appId)}|`;
export const signInKey = (appId: string, keyId: string): string => `${SIGN_INS}${text(appId)}|${text(keyId)}`;
/** Returns the range of the rows of a partition whose keys have a prefix. */
export const under = (partitionKey: string, prefix: string) => ({ partitionKey, from: prefix, before: keyEnd(prefix) });

export const readersOf = ({ readers }: Pick<AssetUseRecord, "readers">): Reader[] =>
  unpackBytes(readers, z.array(Reader));
