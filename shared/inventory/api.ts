import * as z from "zod";
import { assetLink, credentialsLink, type Portal } from "../platform/azure/portal.ts";
import { pageParameters, queryInstant, requireOrder } from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import { queryBoolean } from "../platform/http/query-boolean.ts";
import {
  ASSET_TYPES,
  type AssetType,
  assetId,
  Credential,
  isStale,
  RotationPolicy,
  SOURCES,
  sourceOf,
} from "./asset.ts";
import { daysUntil, type Moment, STATUSES } from "./asset-status.ts";
import { countExpiries } from "./expiries.ts";
import { NOT_COUNTED, ownersOf } from "./holder.ts";
import type { FoundVault } from "./inventory.ts";
import type { FoundAsset } from "./query.ts";
import {
  explainStatus,
  RENEWER_NAMES,
  RENEWERS,
  renewalOf,
  STATUS_RULES,
  statusOfAsset,
  WINDOW_SOURCES,
} from "./renewal.ts";
import { DiagnosticSetting, expiriesOf, forEachType, VaultFailure } from "./vault.ts";
import { countWithStatus, groupOf } from "./vault-counts.ts";

/**
 * Schemas and views of assets and vaults in the API, and the query parameters of their lists. The summary and the changes are
 * in summary-api.ts, the versions of an asset in versions-api.ts.
 */

const instant = z.iso.datetime().meta({ description: "Time, ISO 8601 in UTC." });
const subscriptionName = z
  .string()
  .meta({ description: "Name from the registration, or else the display name in Azure. Null when unknown." });
const outOfScope = z.boolean().meta({
  description:
    "True when the subscription is no longer watched: the asset is excluded from counts, score and alerts, and deleted after outOfScopeRetentionDays.",
});
const outOfScopeSince = instant.meta({
  description: "Time when the subscription left the scope. Null while it is watched.",
});

const Renewal = z
  .object({
    renewedBy: z.enum(RENEWERS).meta({
      description: `Renewer of the certificate. ${RENEWERS.map((renewer) => `\`${renewer}\`: ${RENEWER_NAMES[renewer].label}`).join("; ")}.`,
    }),
    windowStart: instant.nullable().meta({ description: "Start of the renewal window. Null if unknown." }),
    windowEnd: instant.nullable().meta({ description: "End of the renewal window. Null if unknown." }),
    source: z.enum(WINDOW_SOURCES).nullable().meta({
      description:
        "Source of the window: the certificate authority (ARI, RFC 9773), the vault's policy, the gaps between earlier versions, or the renewer named by tags. Null without a window.",
    }),
    lastRenewals: z.array(instant).meta({ description: "Times of up to five renewals, newest first." }),
    late: z.boolean().meta({ description: "Whether the window has passed without a renewal." }),
  })
  .meta({ id: "CertificateRenewal" });

export const Asset = z
  .object({
    id: z.string().meta({
      description:
        "`<vault>.<type>.<name>`. For an application credential `entra.<tenantId>.<appId>.<keyId>`; for a B2C tenant `b2c.<tenantId>.<kind>.<name>`, for most kinds with `.<keyId>`.",
      example: "kv-payments.secret.db-password",
    }),
    source: z.enum(SOURCES).meta({ description: "Source of the asset: a key vault, an application or a B2C tenant." }),
    type: z.enum(ASSET_TYPES).meta({ description: "Whether the asset is a secret, a key or a certificate." }),
    name: z.string().meta({ description: "Name of the asset. For an application credential `<appId>-<keyId>`." }),
    vaultName: z.string().nullable().meta({ description: "Null for assets outside key vaults." }),
    vaultId: z.string().nullable().meta({ description: "Azure resource ID of the vault." }),
    subscriptionId: z.string().nullable(),
    subscriptionName: subscriptionName.nullable(),
    outOfScope,
    outOfScopeSince: outOfScopeSince.nullable(),
    status: z.enum(STATUSES).meta({
      description:
        "Status by the time until expiry and the compliance policy, computed at request time. A certificate that is renewed automatically is healthy until its renewal is late.",
    }),
    enabled: z.boolean(),
    managed: z
      .boolean()
      .meta({ description: "Always false: the key and secret behind a certificate are part of the certificate." }),
    version: z
      .string()
      .nullable()
      .meta({ description: "Available for keys and certificates, whose details are read." }),
    createdOn: instant.nullable(),
    updatedOn: instant.nullable(),
    notBefore: instant.nullable(),
    expiresOn: instant.nullable(),
    daysUntilExpiry: z
      .int()
      .nullable()
      .meta({ description: "Whole days until expiry, rounded down. Negative once expired." }),
    contentType: z.string().nullable().meta({ description: "Content type that the owner set. Null if not set." }),
    tags: z.record(z.string(), z.string()),
    owner: z.string().nullable().meta({
      description:
        "Value of the tag that the setting OWNER_TAG names; for application credentials, the first owner of the application.",
    }),
    firstSeenAt: instant,
    lastSeenAt: instant.nullable().meta({ description: "Time of the vault's last complete listing of this type." }),
    detailsReadAt: instant.nullable().optional().meta({
      description:
        "Time when the vault returned all details, or later if its list entry changed since. A key's rotation policy and a certificate's policy may have changed after it. Null when unknown. Not in lists.",
    }),
    stale: z.boolean().meta({
      description:
        "True when the last scan could not read all details. Then the last known values are shown, possibly including the expiry date, or null. Every scan retries; the failures of the vault state the reason.",
    }),
    notCounted: z.enum(NOT_COUNTED).nullable().meta({
      description:
        "Why the asset is not counted: its subscription is out of scope, or a credential outside key vaults was not seen for 7 days or requires a PRO license.",
    }),
    credential: Credential.pick({
      tenantId: true,
      kind: true,
      tenantDomain: true,
      appId: true,
      applicationName: true,
      keyId: true,
      of: true,
      displayName: true,
      hint: true,
      owners: true,
    })
      .meta({
        id: "AssetCredential",
        description:
          "For a directory credential: its owner object. `applicationName` is the name of the application, the ID of the key set of a policy key, or the name of an identity provider. `of` is set for applications only.",
      })
      .optional(),
    keyType: z
      .string()
      .nullable()
      .optional()
      .meta({ description: "Key type, such as RSA, RSA-HSM or EC. Null when the details could not be read." }),
    keySize: z.int().nullable().optional().meta({ description: "Key size in bits, for RSA." }),
    keyCurve: z.string().nullable().optional().meta({ description: "For an EC key: its curve, such as P-256." }),
    rotationPolicy: RotationPolicy.nullable()
      .optional()
      .meta({ description: "For a key: its rotation policy. Null without one." }),
    subject: z.string().nullable().optional(),
    issuer: z.string().nullable().optional(),
    subjectAlternativeNames: z
      .array(z.string())
      .nullable()
      .optional()
      .meta({ description: "For a certificate: its DNS names." }),
    thumbprint: z
      .string()
      .nullable()
      .optional()
      .meta({ description: "For a certificate: SHA-1 thumbprint, hexadecimal." }),
    validityMonths: z
      .int()
      .nullable()
      .optional()
      .meta({ description: "For a certificate: validity of a renewed certificate in months." }),
    autoRenew: z
      .boolean()
      .nullable()
      .optional()
      .meta({ description: "For a certificate: whether the vault renews it automatically." }),
    renewal: Renewal.optional().meta({
      description: "For a certificate in a key vault: its renewer and its renewal window.",
    }),
  })
  .meta({ id: "Asset" });

/** An asset with its explanations. The endpoint adds members of other areas, and the name of the schema. */
export const AssetDetails = Asset.extend({
  statusRule: z.enum(STATUS_RULES).meta({
    description:
      "Rule that decides the status: `days` before expiry; `window`, the renewal window of a certificate; or `lifetime`, at most a third and a sixth of the lifetime of a renewed certificate without a known window.",
  }),
  statusReason: z.string().meta({
    description: "Explanation of the status.",
    example: "The asset expires within 30 days.",
  }),
  portalUrl: z.url().meta({
    description: "Link to the Azure portal.",
    example:
      "https://portal.azure.com/#asset/Microsoft_Azure_KeyVault/Secret/https://kv-payments.vault.azure.net/secrets/db-password",
  }),
});

export const toInstant = (seconds: number | undefined): string | null =>
  seconds === undefined ? null : new Date(seconds * 1000).toISOString();

/** @param moment - The time and the policy's thresholds, which decide the asset's status. */
export function assetView(found: FoundAsset, moment: Moment, ownerTag: string): z.infer<typeof Asset> {
  const { asset, lastSeenAt } = found;
  const isCertificate = asset.type === "certificate";
  const source = sourceOf(asset);
  const ifVaultAsset = <T>(value: T): T | null => (source === "keyVault" ? value : null);
  return {
    id: assetId(asset),
    source,
    type: asset.type,
    name: asset.name,
    vaultName: ifVaultAsset(asset.vaultName),
    vaultId: ifVaultAsset(asset.vaultId),
    subscriptionId: ifVaultAsset(asset.subscriptionId),
    subscriptionName: found.subscriptionName ?? null,
    outOfScope: found.outOfScopeSince !== undefined,
    outOfScopeSince: found.outOfScopeSince ?? null,
    status: statusOfAsset(asset, moment),
    enabled: asset.enabled,
    managed: false,
    version: asset.version ?? null,
    createdOn: toInstant(asset.createdOn),
    updatedOn: toInstant(asset.updatedOn),
    notBefore: toInstant(asset.notBefore),
    expiresOn: toInstant(asset.expiresOn),
    daysUntilExpiry: asset.expiresOn === undefined ? null : daysUntil(asset.expiresOn, moment),
    contentType: asset.contentType ?? null,
    tags: asset.tags ?? {},
    owner: ownersOf(asset, ownerTag)[0] ?? null,
    firstSeenAt: asset.firstSeenAt,
    lastSeenAt: lastSeenAt ?? null,
    ...("detailsReadAt" in found ? { detailsReadAt: found.detailsReadAt ?? null } : {}),
    stale: isStale(asset),
    notCounted: found.notCounted ?? null,
    ...(asset.credential ? { credential: credentialView(asset.credential) } : {}),
    ...(asset.type === "secret"
      ? {}
      : { keyType: asset.keyType ?? null, keySize: asset.keySize ?? null, keyCurve: asset.keyCurve ?? null }),
    ...(asset.type === "key" ? { rotationPolicy: asset.rotationPolicy ?? null } : {}),
    ...(isCertificate
      ? {
          subject: asset.subject ?? null,
          issuer: asset.issuer ?? null,
          subjectAlternativeNames: asset.subjectAlternativeNames ?? null,
          thumbprint: asset.thumbprint ?? null,
          validityMonths: asset.validityMonths ?? null,
          autoRenew: asset.autoRenew ?? null,
        }
      : {}),
    ...(isCertificate && source === "keyVault" ? { renewal: renewalView(asset, moment) } : {}),
  };
}

function renewalView(asset: FoundAsset["asset"], { now }: Moment): z.infer<typeof Renewal> {
  const { renewedBy, windowStart, windowEnd, source, lastRenewals, late } = renewalOf(asset, now);
  return {
    renewedBy,
    windowStart: toInstant(windowStart),
    windowEnd: toInstant(windowEnd),
    source: source ?? null,
    lastRenewals: lastRenewals.map((seconds) => toInstant(seconds)!),
    late,
  };
}

export const credentialView = ({
  secretsUntil: _secrets,
  certificatesUntil: _certificates,
  federated: _federated,
  otherKeyIds: _otherKeyIds,
  ...visibleMembers
}: Credential): NonNullable<z.infer<typeof Asset>["credential"]> => visibleMembers;

const TypeCounts = z.object({ certificate: z.int(), key: z.int(), secret: z.int() });
const StatusCounts = z.object({ healthy: z.int(), warning: z.int(), critical: z.int(), expired: z.int() });

export const Vault = z
  .object({
    name: z.string(),
    id: z.string().meta({ description: "Azure resource ID." }),
    vaultUri: z.string().meta({ description: "Address of the vault." }),
    location: z.string().meta({ description: "Azure region." }),
    subscriptionId: z.string(),
    subscriptionName: subscriptionName.nullable(),
    outOfScope,
    outOfScopeSince: outOfScopeSince.nullable(),
    resourceGroup: z.string().meta({ description: "Resource group." }),
    tenantId: z.string(),
    sku: z.string().meta({ description: "SKU: `standard` or `premium`." }),
    tags: z.record(z.string(), z.string()),
    softDelete: z.boolean().meta({ description: "Whether deleted items can be recovered (soft delete)." }),
    softDeleteRetentionDays: z
      .int()
      .nullable()
      .meta({ description: "Days during which deleted items can be recovered." }),
    purgeProtection: z.boolean().meta({ description: "Whether purge protection prevents earlier deletion." }),
    rbacAuthorization: z
      .boolean()
      .meta({ description: "Whether Azure RBAC controls data access; otherwise access policies do." }),
    publicNetworkAccess: z.string().meta({ description: "`Enabled` or `Disabled`." }),
    networkDefaultAction: z
      .string()
      .meta({ description: "Default action of the firewall for addresses without a rule: `Allow` or `Deny`." }),
    privateEndpoints: z.int().meta({ description: "Number of private endpoints." }),
    diagnosticSettings: z
      .array(DiagnosticSetting)
      .nullable()
      .meta({ description: "Null until a full scan has read it." }),
    firstSeenAt: instant,
    lastSeenAt: z
      .object({ certificate: instant.nullable(), key: instant.nullable(), secret: instant.nullable() })
      .meta({ description: "Time of the last complete read of each list. Null if never read completely." }),
    failures: z
      .array(VaultFailure.extend({ list: z.enum(ASSET_TYPES).meta({ description: "List that could not be read." }) }))
      .meta({ description: "The lists that the last scan could not read, each with its remedy." }),
    retryAt: instant.nullable().meta({ description: "Time until which only scans with mode force retry the vault." }),
    lastEventAt: instant.nullable().meta({
      description: "Time of the last re-scan triggered by an event of the vault. Null if no event arrived.",
    }),
    assets: TypeCounts.meta({ description: "Numbers of assets by type." }),
    health: StatusCounts.meta({ description: "Numbers of assets by status." }),
  })
  .meta({ id: "Vault" });

export function vaultView(vaultWithScope: FoundVault, moment: Moment): z.infer<typeof Vault> {
  const { vault } = vaultWithScope;
  const health = { healthy: 0, warning: 0, critical: 0, expired: 0 };
  const group = groupOf(vault, 1);
  for (const type of ASSET_TYPES) {
    for (const status of STATUSES) health[status] += countWithStatus(group, type, status, moment);
  }
  return {
    name: vault.name,
    id: vault.id,
    vaultUri: vault.vaultUri,
    location: vault.location,
    subscriptionId: vault.subscriptionId,
    subscriptionName: vaultWithScope.subscriptionName ?? null,
    outOfScope: vaultWithScope.outOfScopeSince !== undefined,
    outOfScopeSince: vaultWithScope.outOfScopeSince ?? null,
    resourceGroup: vault.resourceGroup,
    tenantId: vault.tenantId,
    sku: vault.sku,
    tags: vault.tags ?? {},
    softDelete: vault.softDelete,
    softDeleteRetentionDays: vault.softDeleteRetentionDays ?? null,
    purgeProtection: vault.purgeProtection,
    rbacAuthorization: vault.rbacAuthorization,
    publicNetworkAccess: vault.publicNetworkAccess,
    networkDefaultAction: vault.networkDefaultAction,
    privateEndpoints: vault.privateEndpoints,
    diagnosticSettings: vault.diagnostics ?? null,
    firstSeenAt: vault.firstSeenAt,
    lastSeenAt: forEachType((type: AssetType) => vault.listedAt[type] ?? null),
    failures: ASSET_TYPES.flatMap((list) => {
      const failure = vault.failures[list];
      return failure ? [{ list, ...failure }] : [];
    }),
    retryAt: vault.retryAt ?? null,
    lastEventAt: vault.lastEventAt ?? null,
    assets: forEachType((type) => countExpiries(expiriesOf(vault, type))),
    health,
  };
}

/** A subscription ID in a request. */
export const subscriptionId = z.guid("must be a subscription id (a GUID)");

/** A vault name in a request. */
export const vaultName = z.string().regex(/^[a-zA-Z0-9-]{1,127}$/, "must be a vault name");

export const AssetQuery = z.strictObject({
  type: z.enum(ASSET_TYPES).optional(),
  status: z.enum(STATUSES).optional(),
  vault: vaultName.optional().meta({ description: "Name of a vault." }),
  subscription: subscriptionId.optional(),
  source: z
    .enum(SOURCES)
    .optional()
    .meta({ description: "Source of the asset: key vaults, Entra applications or B2C tenants." }),
  b2cTenant: z
    .guid("must be a tenant id (a GUID)")
    .transform((id) => id.toLowerCase())
    .optional()
    .meta({ description: "ID of a B2C tenant: returns its credentials." }),
  counted: queryBoolean().optional().meta({
    description:
      "`true` returns counted assets only. `false` returns uncounted assets only: out of scope, or credentials that were not seen for 7 days or require a PRO license. By default, counted assets and assets out of scope are returned.",
  }),
  outOfScope: queryBoolean().optional().meta({ description: "Whether the subscription is no longer watched." }),
  search: z.string().min(1).max(127).optional().meta({
    description: "Part of the name, or of the display name of a credential or its application. Not case-sensitive.",
  }),
  expiresBefore: queryInstant("start")
    .optional()
    .meta({ description: "Assets that expire before this date or time.", type: "string" }),
  expiresAfter: queryInstant("start")
    .optional()
    .meta({ description: "Assets that expire after this date or time.", type: "string" }),
  enabled: queryBoolean().optional(),
  tag: z.string().min(1).max(512).optional().meta({ description: "Tag filter: `name` or `name=value`." }),
  owner: z.string().min(1).max(256).optional(),
  hasOwner: queryBoolean()
    .optional()
    .meta({ description: "`false` returns assets without an owner only, `true` those with one." }),
  sort: z
    .enum(["name", "expiresOn"])
    .optional()
    .meta({ description: "By name, unless an expiry filter sets the order. Other members have no index." }),
  format: z.enum(["json", "csv"]).optional().meta({
    default: "json",
    description: "With `csv`, the response is the file of GET /api/assets/discovery/export/csv.",
  }),
  ...pageParameters,
});

/** The query of files: all filters and the cursor, but no format and no page size. */
export const AssetFileQuery = AssetQuery.omit({ format: true, limit: true, offset: true });

/** Parses a tag filter: a name, or a name and a value. */
export const tagFilter = (text: string): { name: string; value?: string } => {
  const separatorIndex = text.indexOf("=");
  return separatorIndex < 1
    ? { name: text }
    : { name: text.slice(0, separatorIndex), value: text.slice(separatorIndex + 1) };
};

export const assetDetailsView = (
  found: FoundAsset,
  moment: Moment,
  { ownerTag, portal }: { ownerTag: string; portal: Portal },
): z.infer<typeof AssetDetails> => {
  const view = assetView(found, moment, ownerTag);
  const { credential, type, name, vaultName } = view;
  const { rule, reason } = explainStatus(found.asset, moment);
  const portalUrl = credential
    ? credentialsLink(portal, credential)
    : assetLink(portal, { type, name, vaultName: vaultName ?? "" });
  return { ...view, statusRule: rule, statusReason: reason, portalUrl };
};

export const VaultQuery = z.strictObject({
  subscription: subscriptionId.optional(),
  outOfScope: queryBoolean()
    .optional()
    .meta({ description: "Whether the subscription of the vault is no longer watched." }),
  failing: queryBoolean()
    .optional()
    .meta({ description: "Whether the last scan could not read one of the vault's lists." }),
  search: z.string().min(1).max(127).optional().meta({ description: "Part of the vault's name. Not case-sensitive." }),
  ...pageParameters,
});

/**
 * Verifies that the filters don't contradict each other.
 *
 * @throws {Problem} invalidRequest
 */
export function requireConsistentFilters({
  counted,
  outOfScope,
  expiresAfter,
  expiresBefore,
}: Pick<z.output<typeof AssetQuery>, "counted" | "outOfScope" | "expiresAfter" | "expiresBefore">): void {
  requireOrder({ expiresAfter, expiresBefore });
  if (counted && outOfScope) {
    const message = "can't be true together with counted=true: assets out of scope are not counted";
    throw new Problem("invalidRequest", `The parameter outOfScope ${message}.`, {
      errors: [{ path: "query.outOfScope", message }],
    });
  }
}
