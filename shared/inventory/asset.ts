import { createHash } from "node:crypto";
import * as z from "zod";
import { entity } from "../storage/entity.ts";

export const ASSET_TYPES = ["certificate", "key", "secret"] as const;
export type AssetType = (typeof ASSET_TYPES)[number];

/** Where an asset comes from. */
export const SOURCES = ["keyVault", "entra", "b2c"] as const;
export type AssetSource = (typeof SOURCES)[number];
/** Rows of earlier versions have none: they are a key vault's. */
export const sourceOf = ({ source }: { source?: AssetSource | undefined }): AssetSource => source ?? "keyVault";

/** What an application's credential has that a vault's asset has not. */
export const Credential = z.object({
  tenantId: z.string(),
  /** The client id. */
  appId: z.string(),
  applicationName: z.string(),
  keyId: z.string(),
  /** Of a service principal: its application is another tenant's, or has credentials of its own. */
  of: z.enum(["application", "servicePrincipal"]),
  displayName: z.string().optional(),
  /** The first three characters of a client secret. */
  hint: z.string().optional(),
  /** What the people who own the application sign in with; undefined where no list said. */
  owners: z.array(z.string()).optional(),
  /** When each of the application's client secrets ends, this one among them; null for never. Unix seconds, sorted. */
  secretsUntil: z.array(z.int().nullable()),
  /** The same of the certificates that the application itself signs in with. */
  certificatesUntil: z.array(z.int().nullable()).optional(),
  /** Whether it trusts another issuer's tokens; undefined where nobody has read that. */
  federated: z.boolean().optional(),
});
export type Credential = z.infer<typeof Credential>;

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
  /** Absent: a key vault's. */
  source: z.enum(SOURCES).optional(),
  /** Of those that are no key vault's. */
  credential: Credential.optional(),
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

/**
 * `<vault>.<type>.<name>`; Key Vault names ignore case, so ids are lower-cased. An application's credential, whose holder and
 * name say whose it is (holder.ts), has the id `entra.<tenantId>.<appId>.<keyId>`.
 */
export function assetId({ vaultName, type, name }: AssetPlace): string {
  const holder = HOLDER.exec(vaultName);
  const credential = holder && CREDENTIAL_NAME.exec(name);
  return (
    credential ? `entra.${holder[1]}.${credential[1]}.${credential[2]}` : `${vaultName}.${type}.${name}`
  ).toLowerCase();
}

/** Where an asset stands. */
export interface AssetPlace {
  vaultName: string;
  type: AssetType;
  name: string;
}

const GUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}";
const HOLDER = new RegExp(`^entra-(${GUID})-[0-9a-f]$`, "i");
const CREDENTIAL_NAME = new RegExp(`^(${GUID})-(${GUID})$`, "i");
const CREDENTIAL_ID = new RegExp(`^entra\\.(${GUID})\\.(${GUID})\\.(${GUID})$`);
const ASSET_ID = /^([a-z0-9-]{1,127})\.(secret|key|certificate)\.([a-z0-9-]{1,127})$/;

/**
 * Where the asset with this id stands: one place; two for a credential, whose id does not say whether it is a secret or a
 * certificate; none when the text is no id.
 */
export function placesOf(id: string): AssetPlace[] {
  const text = id.toLowerCase();
  const credential = CREDENTIAL_ID.exec(text);
  if (credential) {
    const [, tenantId, appId, keyId] = credential as unknown as [string, string, string, string];
    const vaultName = `entra-${tenantId}-${appId[0]}`;
    return (["secret", "certificate"] as const).map((type) => ({ vaultName, type, name: `${appId}-${keyId}` }));
  }
  const asset = ASSET_ID.exec(text);
  // A credential has one id and no other.
  if (!asset || HOLDER.test(asset[1]!)) return [];
  return [{ vaultName: asset[1]!, type: asset[2] as AssetType, name: asset[3]! }];
}

/** The client id and key id in the name of an application's credential; undefined for any other name. */
export function credentialIds(name: string): { appId: string; keyId: string } | undefined {
  const [, appId, keyId] = CREDENTIAL_NAME.exec(name) ?? [];
  return appId === undefined || keyId === undefined ? undefined : { appId, keyId };
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
