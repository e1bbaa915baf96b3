import * as z from "zod";
import { assetLink, credentialsLink, type Portal } from "../azure/portal.ts";
import { pageParameters, queryInstant, requireOrder } from "../http/paging.ts";
import { Problem } from "../http/problem.ts";
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
import { countExpiries, healthOf } from "./expiries.ts";
import { daysUntil, type Moment, STATUSES, statusOf } from "./health.ts";
import { NOT_COUNTED, ownersOf } from "./holder.ts";
import type { FoundVault } from "./inventory.ts";
import type { FoundAsset } from "./query.ts";
import { DiagnosticSetting, expiriesOf, forEachType, VaultFailure } from "./vault.ts";

/** The inventory as the API shows it. */

const instant = z.iso.datetime().meta({ description: "ISO 8601 in UTC." });
const subscriptionName = z
  .string()
  .meta({ description: "As it was added, else its display name in Azure; null where neither is known." });
const outOfScope = z.boolean().meta({
  description:
    "Whether its subscription is not watched any more: it is in no count and no score, and nothing is told of it. It is forgotten after outOfScopeRetentionDays.",
});
const outOfScopeSince = instant.meta({
  description: "When its subscription left the scope; null while it is watched.",
});

export const Asset = z
  .object({
    id: z.string().meta({
      description:
        "`<vault>.<type>.<name>`; of an application's credential `entra.<tenantId>.<appId>.<keyId>`, of a B2C tenant's `b2c.<tenantId>.<kind>.<name>` and for most kinds `.<keyId>`.",
      example: "kv-payments.secret.db-password",
    }),
    source: z.enum(SOURCES).meta({ description: "What holds it." }),
    type: z.enum(ASSET_TYPES).meta({ description: "Whether it is a secret, a key or a certificate." }),
    name: z.string().meta({ description: "Of an application's credential `<appId>-<keyId>`." }),
    vaultName: z.string().nullable().meta({ description: "Null for what is no key vault's." }),
    vaultId: z.string().nullable().meta({ description: "The vault's Azure resource id." }),
    subscriptionId: z.string().nullable(),
    subscriptionName: subscriptionName.nullable(),
    outOfScope,
    outOfScopeSince: outOfScopeSince.nullable(),
    status: z
      .enum(STATUSES)
      .meta({ description: "By the time until it expires and the compliance policy, computed now." }),
    enabled: z.boolean(),
    managed: z
      .boolean()
      .meta({ description: "Always false: what only backs a certificate is part of that certificate." }),
    version: z.string().nullable().meta({ description: "Known for keys and certificates, whose details are read." }),
    createdOn: instant.nullable(),
    updatedOn: instant.nullable(),
    notBefore: instant.nullable(),
    expiresOn: instant.nullable(),
    daysUntilExpiry: z
      .int()
      .nullable()
      .meta({ description: "Whole days of 24 hours, rounded down; negative once expired." }),
    contentType: z
      .string()
      .nullable()
      .meta({ description: "What the value is, as its owner says; null where nobody has." }),
    tags: z.record(z.string(), z.string()),
    owner: z.string().nullable().meta({
      description:
        "The tag that the setting OWNER_TAG names; of an application's credential the application's first owner.",
    }),
    firstSeenAt: instant,
    lastSeenAt: instant
      .nullable()
      .meta({ description: "Its vault's last listing of this type that was read to its end." }),
    detailsReadAt: instant.nullable().optional().meta({
      description:
        "When the vault was asked for all of it, or later where its list entry changed since: a key's rotation policy and a certificate's policy may have changed after that. Null where that is not known yet. Not in lists.",
    }),
    stale: z.boolean().meta({
      description:
        "When it was last listed, something of it could not be read: that is shown as it was known before, its expiry perhaps too, or null. Every scan tries again; the vault's failures say why.",
    }),
    notCounted: z.enum(NOT_COUNTED).nullable().meta({
      description:
        "Why it is in no count and in no score: its subscription is out of scope; a credential that is no key vault's was not seen for 7 days, or there is no PRO licence.",
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
          "Of a directory's credential: whose it is. `applicationName` is the application's name, of a policy key its key set's id, of an identity provider what it is called. Only an application's has `of`.",
      })
      .optional(),
    keyType: z
      .string()
      .nullable()
      .optional()
      .meta({ description: "Such as RSA, RSA-HSM or EC; null where the details could not be read." }),
    keySize: z.int().nullable().optional().meta({ description: "Bits, for RSA." }),
    keyCurve: z.string().nullable().optional().meta({ description: "Of an EC key: its curve, such as P-256." }),
    rotationPolicy: RotationPolicy.nullable()
      .optional()
      .meta({ description: "Of a key: when it is rotated by itself; null without a policy." }),
    subject: z.string().nullable().optional(),
    issuer: z.string().nullable().optional(),
    subjectAlternativeNames: z
      .array(z.string())
      .nullable()
      .optional()
      .meta({ description: "Of a certificate: the names it holds for." }),
    thumbprint: z.string().nullable().optional().meta({ description: "Of a certificate: SHA-1, hexadecimal." }),
    validityMonths: z
      .int()
      .nullable()
      .optional()
      .meta({ description: "Of a certificate: months that a new one holds." }),
    autoRenew: z
      .boolean()
      .nullable()
      .optional()
      .meta({ description: "Of a certificate: whether the vault renews it by itself." }),
  })
  .meta({ id: "Asset" });

export const AssetDetails = Asset.extend({
  portalUrl: z.url().meta({
    description: "Its page in the Azure portal.",
    example:
      "https://portal.azure.com/#asset/Microsoft_Azure_KeyVault/Secret/https://kv-payments.vault.azure.net/secrets/db-password",
  }),
}).meta({ id: "AssetDetails" });

export const toInstant = (seconds: number | undefined): string | null =>
  seconds === undefined ? null : new Date(seconds * 1000).toISOString();

export function assetView(found: FoundAsset, moment: Moment, ownerTag: string): z.infer<typeof Asset> {
  const { asset, lastSeenAt } = found;
  const certificate = asset.type === "certificate";
  const source = sourceOf(asset);
  const ofVault = <T>(value: T): T | null => (source === "keyVault" ? value : null);
  return {
    id: assetId(asset),
    source,
    type: asset.type,
    name: asset.name,
    vaultName: ofVault(asset.vaultName),
    vaultId: ofVault(asset.vaultId),
    subscriptionId: ofVault(asset.subscriptionId),
    subscriptionName: found.subscriptionName ?? null,
    outOfScope: found.outOfScopeSince !== undefined,
    outOfScopeSince: found.outOfScopeSince ?? null,
    status: statusOf(asset.expiresOn, moment),
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
    ...(certificate
      ? {
          subject: asset.subject ?? null,
          issuer: asset.issuer ?? null,
          subjectAlternativeNames: asset.subjectAlternativeNames ?? null,
          thumbprint: asset.thumbprint ?? null,
          validityMonths: asset.validityMonths ?? null,
          autoRenew: asset.autoRenew ?? null,
        }
      : {}),
  };
}

export const credentialView = ({
  secretsUntil: _secrets,
  certificatesUntil: _certificates,
  federated: _federated,
  ...shown
}: Credential): NonNullable<z.infer<typeof Asset>["credential"]> => shown;

const TypeCounts = z.object({ certificate: z.int(), key: z.int(), secret: z.int() });
const StatusCounts = z.object({ healthy: z.int(), warning: z.int(), critical: z.int(), expired: z.int() });

export const Vault = z
  .object({
    name: z.string(),
    id: z.string().meta({ description: "The Azure resource id." }),
    vaultUri: z.string().meta({ description: "Its address." }),
    location: z.string().meta({ description: "The Azure region." }),
    subscriptionId: z.string(),
    subscriptionName: subscriptionName.nullable(),
    outOfScope,
    outOfScopeSince: outOfScopeSince.nullable(),
    resourceGroup: z.string().meta({ description: "Its resource group." }),
    tenantId: z.string(),
    sku: z.string().meta({ description: "`standard` or `premium`." }),
    tags: z.record(z.string(), z.string()),
    softDelete: z.boolean().meta({ description: "Whether what is deleted can be brought back." }),
    softDeleteRetentionDays: z.int().nullable().meta({ description: "Days that it can be brought back." }),
    purgeProtection: z.boolean().meta({ description: "Whether nobody can purge it before that." }),
    rbacAuthorization: z.boolean().meta({ description: "Whether roles decide who may read it; else access policies." }),
    publicNetworkAccess: z.string().meta({ description: "`Enabled` or `Disabled`." }),
    networkDefaultAction: z
      .string()
      .meta({ description: "What its firewall does with an address that no rule names: `Allow` or `Deny`." }),
    privateEndpoints: z.int().meta({ description: "How many private endpoints it has." }),
    diagnosticSettings: z
      .array(DiagnosticSetting)
      .nullable()
      .meta({ description: "Null until a full scan could read them." }),
    firstSeenAt: instant,
    lastSeenAt: z
      .object({ certificate: instant.nullable(), key: instant.nullable(), secret: instant.nullable() })
      .meta({ description: "When each of its lists was last read to its end; null where it never was." }),
    failures: z
      .array(
        VaultFailure.extend({ list: z.enum(ASSET_TYPES).meta({ description: "The list that could not be read." }) }),
      )
      .meta({ description: "What could not be read in the last scan, and what to do about it." }),
    retryAt: instant.nullable().meta({ description: "Until then only scans of mode force read it again." }),
    lastEventAt: instant.nullable().meta({
      description: "When an event that the vault sent was last followed by a look at it; null where none ever came.",
    }),
    assets: TypeCounts.meta({ description: "How many it holds, by type." }),
    health: StatusCounts.meta({ description: "How many it holds, by status." }),
  })
  .meta({ id: "Vault" });

export function vaultView(found: FoundVault, moment: Moment): z.infer<typeof Vault> {
  const { vault } = found;
  const health = { healthy: 0, warning: 0, critical: 0, expired: 0 };
  for (const type of ASSET_TYPES) {
    const counts = healthOf([vault], type, moment);
    for (const status of STATUSES) health[status] += counts[status];
  }
  return {
    name: vault.name,
    id: vault.id,
    vaultUri: vault.vaultUri,
    location: vault.location,
    subscriptionId: vault.subscriptionId,
    subscriptionName: found.subscriptionName ?? null,
    outOfScope: found.outOfScopeSince !== undefined,
    outOfScopeSince: found.outOfScopeSince ?? null,
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

/** A subscription's id in a request. */
export const subscriptionId = z.guid("must be a subscription id (a GUID)");

/** A vault's name in a request. */
export const vaultName = z.string().regex(/^[a-zA-Z0-9-]{1,127}$/, "must be a vault name");
const boolean = z.enum(["true", "false"]).transform((value) => value === "true");

export const AssetQuery = z.strictObject({
  type: z.enum(ASSET_TYPES).optional(),
  status: z.enum(STATUSES).optional(),
  vault: vaultName.optional().meta({ description: "A vault's name." }),
  subscription: subscriptionId.optional(),
  source: z
    .enum(SOURCES)
    .optional()
    .meta({ description: "What holds it: key vaults, applications of Entra, or B2C tenants." }),
  counted: boolean.optional().meta({
    description:
      "`true` answers what is in counts and score. `false` answers what is not: what is out of scope, and credentials that were not seen for 7 days, or without a PRO licence. Left out, it answers what counts and what is out of scope.",
  }),
  outOfScope: boolean.optional().meta({ description: "Whether its subscription is not watched any more." }),
  search: z
    .string()
    .min(1)
    .max(127)
    .optional()
    .meta({ description: "Part of the name, or of a credential's or its application's display name, in any case." }),
  expiresBefore: queryInstant("start")
    .optional()
    .meta({ description: "Expires before this date or instant.", type: "string" }),
  expiresAfter: queryInstant("start")
    .optional()
    .meta({ description: "Expires after this date or instant.", type: "string" }),
  enabled: boolean.optional(),
  tag: z.string().min(1).max(512).optional().meta({ description: "`name` or `name=value`." }),
  owner: z.string().min(1).max(256).optional(),
  sort: z
    .enum(["name", "expiresOn"])
    .optional()
    .meta({ description: "By name, unless a filter of expiry orders by it." }),
  format: z.enum(["json", "csv"]).optional().meta({
    default: "json",
    description: "With `csv` the answer is the file of GET /api/assets/discovery/export/csv.",
  }),
  ...pageParameters,
});

/** Of a file: what it leaves out. */
export const AssetFileQuery = AssetQuery.omit({ format: true, limit: true, offset: true });

/** The tag a query asks for: by name, or by name and value. */
export const tagFilter = (text: string): { name: string; value?: string } => {
  const at = text.indexOf("=");
  return at < 1 ? { name: text } : { name: text.slice(0, at), value: text.slice(at + 1) };
};

export const assetDetailsView = (view: z.infer<typeof Asset>, portal: Portal): z.infer<typeof AssetDetails> => {
  const { credential, type, name, vaultName } = view;
  const portalUrl = credential
    ? credentialsLink(portal, credential)
    : assetLink(portal, { type, name, vaultName: vaultName ?? "" });
  return { ...view, portalUrl };
};

export const VaultQuery = z.strictObject({
  subscription: subscriptionId.optional(),
  outOfScope: boolean.optional().meta({ description: "Whether their subscription is not watched any more." }),
  failing: boolean.optional().meta({ description: "Whether the last scan could not read one of their lists." }),
  ...pageParameters,
});

/** @throws {Problem} invalidRequest for filters that nothing can fit together. */
export function refuseImpossible({
  counted,
  outOfScope,
  expiresAfter,
  expiresBefore,
}: Pick<z.output<typeof AssetQuery>, "counted" | "outOfScope" | "expiresAfter" | "expiresBefore">): void {
  requireOrder({ expiresAfter, expiresBefore });
  if (counted && outOfScope) {
    const message = "can't be true beside counted=true: what is out of scope does not count";
    throw new Problem("invalidRequest", `The parameter outOfScope ${message}.`, {
      errors: [{ path: "query.outOfScope", message }],
    });
  }
}
