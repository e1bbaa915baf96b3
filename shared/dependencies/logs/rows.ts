import * as z from "zod";
import { ASSET_TYPES, type AssetType } from "../../inventory/asset.ts";
import { entity } from "../../platform/storage/entity.ts";
import { keyEnd, keyText } from "../../platform/storage/keys.ts";
import { unpackBytes, withCorruptRowErrors } from "../../platform/storage/packed-members.ts";
import { fenceEntity } from "../../platform/storage/tables.ts";
import { Failure } from "../rows.ts";

/**
 * Rows of what logs have seen. Each workspace has a partition, so that what one reading brings is written under its fence; the
 * workspaces' own rows have one together.
 */
export const TABLE = "Usage";
export const WORKSPACES = "workspaces";

export const UsageFences = fenceEntity(TABLE);
export const FENCE_KEY = "f";

/** How far a workspace was read. */
export const WorkspaceRecord = z.object({
  workspaceId: z.string(),
  /** The hour, as an ISO 8601 instant, in which it was last asked: once an hour at most, whatever came of it. */
  askedHour: z.string(),
  /** It is not asked before, since it said so. */
  notBefore: z.string().optional(),
  /** All from here on was read without a gap … */
  readFrom: z.string().optional(),
  /** … up to here. What arrives in the log later is read for some hours more. */
  readTo: z.string().optional(),
  /** The last sign-in of an application that it has. */
  signInAt: z.string().optional(),
  /** Failures in a row. */
  failures: z.int(),
  failure: Failure.extend({ at: z.string() }).optional(),
});
export type WorkspaceRecord = z.infer<typeof WorkspaceRecord>;
export const WorkspaceRows = entity(TABLE, WorkspaceRecord);

/** Who uses an asset, as a log has seen it. */
export const Reader = z.object({
  /** The object id; of a log without one the client id or the user's name. In lower case. */
  id: z.string(),
  appId: z.string().optional(),
  /** A person. */
  userName: z.string().optional(),
  /** Of an application, as its sign-ins name it. */
  name: z.string().optional(),
  identityOf: z.string().optional(),
  operations: z.array(z.string()),
  lastAt: z.string(),
  /** Uses by day, the newest last. */
  days: z.array(z.tuple([z.string(), z.int()])),
  /** When each version was used last, the newest last. */
  versions: z.array(z.tuple([z.string(), z.string()])),
  /** Whether it was a known consumer, or entitled, when that was looked at; absent until it could be. */
  expected: z.boolean().optional(),
});
export type Reader = z.infer<typeof Reader>;

export const AssetUseRecord = z.object({
  vaultName: z.string(),
  type: z.enum(ASSET_TYPES),
  name: z.string(),
  lastAt: z.string(),
  /** `Reader`s, deflated. */
  readers: z.instanceof(Uint8Array),
  /** Others were seen before those; the last to read are kept. */
  more: z.boolean().optional(),
});
export type AssetUseRecord = z.infer<typeof AssetUseRecord>;
export const AssetUses = entity(TABLE, AssetUseRecord);

/** Since when a vault's events are in the log without a gap. */
export const VaultUseRecord = z.object({ vaultName: z.string(), since: z.string(), lastAt: z.string() });
export type VaultUseRecord = z.infer<typeof VaultUseRecord>;
export const VaultUses = entity(TABLE, VaultUseRecord);

export const SignInRecord = z.object({ appId: z.string(), keyId: z.string(), name: z.string(), lastAt: z.string() });
export type SignInRecord = z.infer<typeof SignInRecord>;
export const SignIns = entity(TABLE, SignInRecord);

/** Somebody nobody expected has read an asset, for who tells people of it. */
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
 * Of which secrets of a vault compliance was told whether they are used, as `<type>.<name>`, and the day of the last look. Of a
 * vault with many the further ones are in rows of their own.
 */
const ReportedUnusedRecord = z.object({
  lookedOn: z.string(),
  assets: z.instanceof(Uint8Array),
  /** How many rows there are of the vault; absent: this one. */
  rows: z.int().optional(),
});
export type ReportedUnusedRecord = z.infer<typeof ReportedUnusedRecord>;
export const ReportedUnused = entity(TABLE, ReportedUnusedRecord);
export const UNUSED = "unused";
/** The names of so many secrets, deflated, stay below the 1 MiB of a row: one has 127 characters at most. */
export const NAMES_PER_ROW = 5000;
export const furtherUnusedKey = (vaultKey: string, index: number): string =>
  index === 0 ? vaultKey : `${vaultKey}|${index}`;

const text = (part: string): string => keyText(part.toLowerCase());
export const ASSET_USES = "a|";
export const VAULT_USES = "v|";
export const SIGN_INS = "s|";
/** By the time they were noticed. */
export const UNEXPECTED = "n|";
export const assetUseKey = ({ vaultName, type, name }: { vaultName: string; type: AssetType; name: string }): string =>
  `${ASSET_USES}${text(vaultName)}|${type}|${text(name)}`;
export const vaultUseKey = (vaultName: string): string => VAULT_USES + text(vaultName);
export const signInKey = (appId: string, keyId: string): string => `${SIGN_INS}${text(appId)}|${text(keyId)}`;
export const under = (partitionKey: string, prefix: string) => ({ partitionKey, from: prefix, before: keyEnd(prefix) });

/** @throws StorageCorrupt when the row of the use in the workspace holds no readers. */
export const readersOf = (workspaceId: string, use: AssetUseRecord): Reader[] =>
  withCorruptRowErrors(AssetUses, { partitionKey: workspaceId, rowKey: assetUseKey(use) }, "readers", () =>
    unpackBytes(use.readers, z.array(Reader)),
  );
