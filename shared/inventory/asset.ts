import { hash } from "node:crypto";
import * as z from "zod";
import { copyText } from "../platform/runtime.ts";
import { entity } from "../platform/storage/entity.ts";

export const ASSET_TYPES = ["certificate", "key", "secret"] as const;
export type AssetType = (typeof ASSET_TYPES)[number];

/** Where an asset comes from. */
export const SOURCES = ["keyVault", "entra", "b2c"] as const;
export type AssetSource = (typeof SOURCES)[number];
/** Rows of earlier versions have none: they are a key vault's. */
export const sourceOf = ({ source }: { source?: AssetSource | undefined }): AssetSource => source ?? "keyVault";

/**
 * What a credential of a directory is: an application's, and of a B2C tenant also a key of a custom policy's key set, or what
 * an identity provider was set up with.
 */
export const CREDENTIAL_KINDS = ["application", "policyKey", "identityProvider"] as const;
export type CredentialKind = (typeof CREDENTIAL_KINDS)[number];

/** What a credential of a directory has that a vault's asset has not. */
export const Credential = z.object({
  tenantId: z.string(),
  kind: z
    .enum(CREDENTIAL_KINDS)
    .optional()
    .meta({ description: "Type of the owner object. Absent for an application." }),
  /** Of another tenant than the service's own: what its registration calls it. */
  tenantDomain: z.string().optional(),
  /** The client id: of an application's, and of an identity provider's where it has one. */
  appId: z.string().optional(),
  applicationName: z.string().meta({
    description: "Name of the application, ID of the key set of a policy key, or name of an identity provider.",
    example: "Payments API",
  }),
  /** An identity provider's has none. */
  keyId: z.string().optional(),
  of: z.enum(["application", "servicePrincipal"]).optional().meta({
    description:
      "For an application: whether the credential belongs to the application or to its service principal. The latter means that the application belongs to another tenant or that the service principal has its own credentials.",
  }),
  displayName: z.string().optional(),
  hint: z.string().optional().meta({ description: "The first three characters of a client secret.", example: "25C" }),
  owners: z
    .array(z.string())
    .optional()
    .meta({
      description: "Sign-in names of the application's owners. Absent when no list contained them.",
      example: ["payments@acme.example"],
    }),
  /** When each of the application's client secrets ends, this one among them; null for never. Unix seconds, sorted. */
  secretsUntil: z.array(z.int().nullable()),
  /** The same of the certificates that the application itself signs in with. */
  certificatesUntil: z.array(z.int().nullable()).optional(),
  /** Whether it trusts another issuer's tokens; undefined where nobody has read that. */
  federated: z.boolean().optional(),
});
export type Credential = z.infer<typeof Credential>;

export const RotationPolicy = z.object({
  expiresIn: z
    .string()
    .optional()
    .meta({ description: "Lifetime of a new version, as an ISO 8601 duration.", example: "P2Y" }),
  lifetimeActions: z
    .array(
      z.object({
        action: z.string().meta({ description: "`Rotate` or `Notify`.", example: "Rotate" }),
        timeAfterCreate: z
          .string()
          .optional()
          .meta({ description: "Time after the creation of a version, as an ISO 8601 duration.", example: "P1Y" }),
        timeBeforeExpiry: z
          .string()
          .optional()
          .meta({ description: "Time before the expiry of a version, as an ISO 8601 duration.", example: "P30D" }),
      }),
    )
    .meta({ description: "Actions of the vault with their times." }),
});

/**
 * What is known of one asset. Instants of the vault are whole unix seconds, as Key Vault gives them. The row stands six
 * times (see the table of keys in shared/platform/storage/README.md), always whole, so that a list needs no second look-up.
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
 * name say whose it is (holder.ts), has the id `entra.<tenantId>.<appId>.<keyId>`, one of a B2C tenant
 * `b2c.<tenantId>.<kind>.<name>[.<keyId>]`.
 */
export function assetId({ vaultName, type, name }: AssetPlace): string {
  return (credentialIdOf(vaultName, name) ?? `${vaultName}.${type}.${name}`).toLowerCase();
}

/** Undefined for what no holder's credential is called. */
function credentialIdOf(vaultName: string, name: string): string | undefined {
  const [, tenantId] = HOLDER.exec(vaultName) ?? [];
  const [, b2cTenantId, kind] = B2C_HOLDER.exec(vaultName) ?? [];
  const place = tenantId === undefined ? `b2c.${b2cTenantId}.${kind}` : `entra.${tenantId}`;
  if (tenantId === undefined && kind === undefined) return undefined;
  if (kind?.toLowerCase() === "identityprovider") return `${place}.${name}`;
  const parts = (kind?.toLowerCase() === "policykey" ? POLICY_KEY_NAME : CREDENTIAL_NAME).exec(name);
  return parts ? `${place}.${parts[1]}.${parts[2]}` : undefined;
}

/** Where an asset stands. */
export interface AssetPlace {
  vaultName: string;
  type: AssetType;
  name: string;
}

const GUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}";
const HOLDER = new RegExp(`^entra-(${GUID})-[0-9a-f]$`, "i");
const B2C_HOLDER = new RegExp(`^b2c-(${GUID})-(application|policykey|identityprovider)(?:-[0-9a-f])?$`, "i");
const CREDENTIAL_NAME = new RegExp(`^(${GUID})-(${GUID})$`, "i");
/** A key set's id, and 16 digits that stand for a key of it (b2c/read.ts). */
const POLICY_KEY_NAME = /^([0-9a-z_-]{1,120})-([0-9a-f]{16})$/i;
const CREDENTIAL_START = new RegExp(`^(?:entra|b2c)\\.${GUID}\\.`, "i");
const CREDENTIAL_ID = new RegExp(`^(entra|b2c)\\.(${GUID})(\\.application)?\\.(${GUID})\\.(${GUID})$`);
const POLICY_KEY_ID = new RegExp(`^b2c\\.(${GUID})\\.policykey\\.([0-9a-z_-]{1,120})\\.([0-9a-f]{16})$`);
const PROVIDER_ID = new RegExp(`^b2c\\.(${GUID})\\.identityprovider\\.([0-9a-z_-]{1,120})$`);
const ASSET_ID = /^([a-z0-9-]{1,127})\.(secret|key|certificate)\.([a-z0-9-]{1,127})$/;

/**
 * Where the asset with this id stands: one place; several for a credential, whose id does not say what type it has; none when
 * the text is no id.
 */
export function placesOf(id: string): AssetPlace[] {
  const text = id.toLowerCase();
  const places = (vaultName: string, name: string, types: readonly AssetType[]) =>
    types.map((type) => ({ vaultName, type, name }));
  const credential = CREDENTIAL_ID.exec(text);
  if (credential) {
    const [, source, tenantId, kind, appId, keyId] = credential as unknown as string[];
    if ((source === "b2c") !== (kind !== undefined)) return [];
    const holder = source === "b2c" ? `b2c-${tenantId}-application` : `entra-${tenantId}`;
    return places(`${holder}-${appId![0]}`, `${appId}-${keyId}`, ["secret", "certificate"]);
  }
  const [, keysTenant, keySet, key] = POLICY_KEY_ID.exec(text) ?? [];
  if (keysTenant !== undefined) return places(`b2c-${keysTenant}-policykey`, `${keySet}-${key}`, ASSET_TYPES);
  const [, tenantId, provider] = PROVIDER_ID.exec(text) ?? [];
  if (provider !== undefined) return places(`b2c-${tenantId}-identityprovider`, provider, ["secret"]);
  const asset = ASSET_ID.exec(text);
  // A credential has one id and no other.
  if (!asset || HOLDER.test(asset[1]!) || B2C_HOLDER.test(asset[1]!)) return [];
  return [{ vaultName: asset[1]!, type: asset[2] as AssetType, name: asset[3]! }];
}

/** Whether it is the id of a directory's credential, which is in no vault. A vault may be called `entra` or `b2c`. */
export const isCredentialId = (id: string): boolean => CREDENTIAL_START.test(id);

/** What people call a directory's credential: whose it is, and its own name. Its name as an asset is made of ids. */
export const titleOfCredential = ({
  applicationName,
  displayName,
  keyId,
}: Pick<Credential, "applicationName" | "displayName" | "keyId">): string =>
  [applicationName, displayName || keyId].filter(Boolean).join("/");

/** The client id and key id in the name of an application's credential; undefined for any other name. */
export function credentialIds(name: string): { appId: string; keyId: string } | undefined {
  const [, appId, keyId] = CREDENTIAL_NAME.exec(name) ?? [];
  return appId === undefined || keyId === undefined ? undefined : { appId, keyId };
}

/** A short, stable hash of a JSON value whose members come in a fixed order. */
export const fingerprint = (value: unknown): string =>
  copyText(hash("sha256", JSON.stringify(value), "base64url").slice(0, 22));

/** In the order that stored hashes were made with. A member that is added to the schema must be optional. */
const CONTENT = (Object.keys(AssetRecord.shape) as (keyof AssetRecord)[])
  .filter((name) => name !== "content" && name !== "firstSeenAt")
  .sort();

/** The content hash of an asset, over everything a person could see change. */
export function contentOf(asset: Omit<AssetRecord, "content" | "firstSeenAt"> & Partial<AssetRecord>): string {
  const entries: [string, unknown][] = [];
  for (const name of CONTENT) {
    const value = asset[name];
    if (value === undefined) continue;
    entries.push([name, name === "tags" ? Object.entries(value).sort(byName) : value]);
  }
  return fingerprint(entries);
}

const byName = ([a]: [string, unknown], [b]: [string, unknown]): number => (a < b ? -1 : a > b ? 1 : 0);
