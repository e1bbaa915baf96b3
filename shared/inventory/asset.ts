import { hash } from "node:crypto";
import * as z from "zod";
import { copyText } from "../platform/runtime.ts";
import { entity } from "../platform/storage/entity.ts";
import { CertificateFacts } from "./certificate-facts.ts";
import { AriWindow, RenewalPlan, RenewalTrigger, VersionDates } from "./renewal.ts";

/**
 * An asset: a secret, key or certificate of a key vault, or a credential of a directory (an Entra or B2C tenant).
 * Defines the stored row, the ID and the hashes of an asset. A credential is stored like an asset of a vault. The row
 * that takes the place of its vault is its *holder* (holder.ts).
 */

export const ASSET_TYPES = ["certificate", "key", "secret"] as const;
export type AssetType = (typeof ASSET_TYPES)[number];

/** Sources of assets. */
export const SOURCES = ["keyVault", "entra", "b2c"] as const;
export type AssetSource = (typeof SOURCES)[number];
/** Returns an asset's source. Rows of earlier versions have none and belong to key vaults. */
export const sourceOf = ({ source }: { source?: AssetSource | undefined }): AssetSource => source ?? "keyVault";

/**
 * Types of directory credentials: credentials of an application, and in a B2C tenant also keys of a policy key set and secrets
 * of identity providers.
 */
export const CREDENTIAL_KINDS = ["application", "policyKey", "identityProvider"] as const;
export type CredentialKind = (typeof CREDENTIAL_KINDS)[number];

/** Fields that only credentials of a directory have. */
export const Credential = z.object({
  tenantId: z.string(),
  kind: z
    .enum(CREDENTIAL_KINDS)
    .optional()
    .meta({ description: "Type of the owner object. Absent for an application." }),
  /** For tenants other than the service's own: the name in its registration. */
  tenantDomain: z.string().optional(),
  /** Client ID of the application, or of an identity provider that has one. */
  appId: z.string().optional(),
  applicationName: z.string().meta({
    description: "Name of the application, ID of the key set of a policy key, or name of an identity provider.",
    example: "Payments API",
  }),
  /** Absent for identity providers. */
  keyId: z.string().optional(),
  /** For a token-signing certificate: key IDs of its other entries in the directory. They are no assets of their own. */
  otherKeyIds: z.array(z.string()).optional(),
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
  /** Expiry of each client secret of the application, including this one. Unix seconds, sorted; null for never. */
  secretsUntil: z.array(z.int().nullable()),
  /** Expiry of each certificate with which the application signs in. Unix seconds, sorted; null for never. */
  certificatesUntil: z.array(z.int().nullable()).optional(),
  /** Whether the application has federated credentials. Undefined if they were not read. */
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
 * A stored asset. Times of the vault are whole unix seconds, as in Key Vault. Each asset has six copies: by name and by expiry,
 * in the partitions of all assets, of its subscription and of its vault. A certificate with a renewal plan has nine
 * (asset-keys.ts). Each copy is complete, so that a list needs no second query.
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
  /** Only for certificates of key vaults. Absent in rows of earlier versions. */
  certificate: CertificateFacts.optional(),
  /** For certificates: the issuer in the policy, and when the policy renews. Absent in rows of earlier versions. */
  issuerName: z.string().optional(),
  renewalTrigger: RenewalTrigger.optional(),
  /** For certificates: the newest versions, newest first. Absent if they were not read. */
  versionDates: z.array(VersionDates).optional(),
  /** For certificates: the window that the certificate authority suggests. */
  ari: AriWindow.optional(),
  /** For certificates: who renews them and when (`renewalPlanOf`). Absent without a renewer. Decides the keys of its rows. */
  renewal: RenewalPlan.optional(),
  /** Absent for key vaults. */
  source: z.enum(SOURCES).optional(),
  /** Only for credentials of a directory. */
  credential: Credential.optional(),
  firstSeenAt: z.string(),
  /**
   * Hash of the last list entry. A delta scan reads details only if it differs. Empty if part of the asset could not be read,
   * so that every scan retries.
   */
  listing: z.string(),
  /** Hash of the members above except those in `NO_CONTENT`. A scan writes the asset only if the hash differs. */
  content: z.string(),
});
export type AssetRecord = z.infer<typeof AssetRecord>;

export const Assets = entity("Assets", AssetRecord);

/** Returns whether part of the asset is outdated because it could not be read with the last listing. */
export const isStale = ({ listing }: Pick<AssetRecord, "listing">): boolean => listing === "";

/**
 * Returns an asset's ID, in lower case because Key Vault names ignore case: `<vault>.<type>.<name>`. For a credential of an
 * application, the holder and name determine the ID `entra.<tenantId>.<appId>.<keyId>` (see holder.ts). For a B2C tenant it is
 * `b2c.<tenantId>.<kind>.<name>[.<keyId>]`.
 */
export function assetId({ vaultName, type, name }: AssetLocation): string {
  return (credentialIdOf(vaultName, name) ?? `${vaultName}.${type}.${name}`).toLowerCase();
}

/** Returns a credential's ID. Undefined if the name is not that of a holder's credential. */
function credentialIdOf(vaultName: string, name: string): string | undefined {
  const [, tenantId] = ENTRA_HOLDER.exec(vaultName) ?? [];
  const [, b2cTenantId, kind] = B2C_HOLDER.exec(vaultName) ?? [];
  const idPrefix = tenantId === undefined ? `b2c.${b2cTenantId}.${kind}` : `entra.${tenantId}`;
  if (tenantId === undefined && kind === undefined) return undefined;
  if (kind?.toLowerCase() === "identityprovider") return `${idPrefix}.${name}`;
  const parts = (kind?.toLowerCase() === "policykey" ? POLICY_KEY_NAME : CREDENTIAL_NAME).exec(name);
  return parts ? `${idPrefix}.${parts[1]}.${parts[2]}` : undefined;
}

/** The vault, type and name that identify an asset's rows. */
export interface AssetLocation {
  vaultName: string;
  type: AssetType;
  name: string;
}

const GUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}";
/** Example: `entra-<tenantId>-3`, where 3 is the first digit of the client IDs (holder.ts). */
const ENTRA_HOLDER = new RegExp(`^entra-(${GUID})-[0-9a-f]$`, "i");
/** Examples: `b2c-<tenantId>-application-3`, `b2c-<tenantId>-policykey`. */
const B2C_HOLDER = new RegExp(`^b2c-(${GUID})-(application|policykey|identityprovider)(?:-[0-9a-f])?$`, "i");
/** Name of an application's credential: `<appId>-<keyId>`. */
const CREDENTIAL_NAME = new RegExp(`^(${GUID})-(${GUID})$`, "i");
/**
 * Name of a policy key: the ID of its key set, and 16 digits that identify the key (b2c/read-tenant.ts). Example:
 * `B2C_1A_TokenSigningKeyContainer-0123456789abcdef`.
 */
const POLICY_KEY_NAME = /^([0-9a-z_-]{1,120})-([0-9a-f]{16})$/i;
/** Start of the ID of any credential: `entra.<tenantId>.` or `b2c.<tenantId>.`. */
const CREDENTIAL_ID_START = new RegExp(`^(?:entra|b2c)\\.${GUID}\\.`, "i");
/** `entra.<tenantId>.<appId>.<keyId>` or `b2c.<tenantId>.application.<appId>.<keyId>`. */
const CREDENTIAL_ID = new RegExp(`^(entra|b2c)\\.(${GUID})(\\.application)?\\.(${GUID})\\.(${GUID})$`);
/** `b2c.<tenantId>.policykey.<keySet>.<key>`. */
const POLICY_KEY_ID = new RegExp(`^b2c\\.(${GUID})\\.policykey\\.([0-9a-z_-]{1,120})\\.([0-9a-f]{16})$`);
/** `b2c.<tenantId>.identityprovider.<name>`. */
const IDENTITY_PROVIDER_ID = new RegExp(`^b2c\\.(${GUID})\\.identityprovider\\.([0-9a-z_-]{1,120})$`);
/** `<vault>.<type>.<name>`, such as `kv-payments.secret.db-password`. */
const ASSET_ID = /^([a-z0-9-]{1,127})\.(secret|key|certificate)\.([a-z0-9-]{1,127})$/;

/**
 * Returns the locations at which the asset with this ID may be stored. One for vault assets. Several for a credential, because its
 * ID does not contain its type. None if the text is no asset ID.
 */
export function locationsOf(id: string): AssetLocation[] {
  const text = id.toLowerCase();
  const locations = (vaultName: string, name: string, types: readonly AssetType[]) =>
    types.map((type) => ({ vaultName, type, name }));
  const credential = CREDENTIAL_ID.exec(text);
  if (credential) {
    const [, source, tenantId, kind, appId, keyId] = credential as unknown as string[];
    // Only IDs of B2C tenants contain the kind of the credential.
    if ((source === "b2c") !== (kind !== undefined)) return [];
    const holder = source === "b2c" ? `b2c-${tenantId}-application` : `entra-${tenantId}`;
    return locations(`${holder}-${appId![0]}`, `${appId}-${keyId}`, ["secret", "certificate"]);
  }
  const [, keysTenant, keySet, key] = POLICY_KEY_ID.exec(text) ?? [];
  if (keysTenant !== undefined) return locations(`b2c-${keysTenant}-policykey`, `${keySet}-${key}`, ASSET_TYPES);
  const [, tenantId, provider] = IDENTITY_PROVIDER_ID.exec(text) ?? [];
  if (provider !== undefined) return locations(`b2c-${tenantId}-identityprovider`, provider, ["secret"]);
  const asset = ASSET_ID.exec(text);
  // A credential has only the ID of the credential form.
  if (!asset || ENTRA_HOLDER.test(asset[1]!) || B2C_HOLDER.test(asset[1]!)) return [];
  return [{ vaultName: asset[1]!, type: asset[2] as AssetType, name: asset[3]! }];
}

/** Returns whether the ID is that of a directory's credential. A vault may be named `entra` or `b2c` too. */
export const isCredentialId = (id: string): boolean => CREDENTIAL_ID_START.test(id);

/**
 * Returns the asset names of a credential's other entries in the directory. Earlier versions stored each as an asset, so rows of
 * users, such as exemptions, may name them.
 */
export const otherNamesOf = ({ credential }: Pick<AssetRecord, "credential">): string[] =>
  (credential?.otherKeyIds ?? []).map((keyId) => `${credential!.appId}-${keyId}`.toLowerCase());

/** Returns the IDs under which users may have named an asset: its own, and those of its other entries in the directory. */
export const idsOf = (asset: AssetLocation & Pick<AssetRecord, "credential">): string[] =>
  [asset.name, ...otherNamesOf(asset)].map((name) => assetId({ ...asset, name }));

/** Returns a credential's title for people: application name and credential name. Its asset name consists of IDs. */
export const titleOfCredential = ({
  applicationName,
  displayName,
  keyId,
}: Pick<Credential, "applicationName" | "displayName" | "keyId">): string =>
  [applicationName, displayName || keyId].filter(Boolean).join("/");

/** Returns the client ID and key ID from the asset name of an application's credential. Undefined for any other name. */
export function credentialIds(name: string): { appId: string; keyId: string } | undefined {
  const [, appId, keyId] = CREDENTIAL_NAME.exec(name) ?? [];
  return appId === undefined || keyId === undefined ? undefined : { appId, keyId };
}

/** Returns a short, stable hash of a JSON value whose members have a fixed order: 22 characters, 132 bits. */
export const fingerprint = (value: unknown): string =>
  copyText(hash("sha256", JSON.stringify(value), "base64url").slice(0, 22));

/**
 * Members that are not part of the content hash. Those about renewal are read or computed after the comparison with the stored
 * asset. They change with a new version, which the hash includes, or by a write of their own.
 */
const NO_CONTENT: readonly (keyof AssetRecord)[] = ["content", "firstSeenAt", "versionDates", "ari", "renewal"];

/** Members in the order of stored hashes. New members of the schema must be optional. */
const CONTENT_MEMBERS = (Object.keys(AssetRecord.shape) as (keyof AssetRecord)[])
  .filter((name) => !NO_CONTENT.includes(name))
  .sort();

/** Returns the content hash of an asset: the hash of its members except those in `NO_CONTENT`. */
export function contentHash(asset: Omit<AssetRecord, "content" | "firstSeenAt"> & Partial<AssetRecord>): string {
  const entries: [string, unknown][] = [];
  for (const name of CONTENT_MEMBERS) {
    const value = asset[name];
    if (value === undefined) continue;
    entries.push([name, name === "tags" ? Object.entries(value).sort(byName) : value]);
  }
  return fingerprint(entries);
}

const byName = ([a]: [string, unknown], [b]: [string, unknown]): number => (a < b ? -1 : a > b ? 1 : 0);
