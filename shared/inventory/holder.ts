import { DAY_MS } from "../platform/time.ts";
import { type AssetRecord, type AssetSource, type CredentialKind, sourceOf } from "./asset.ts";
import type { Moment } from "./health.ts";
import type { Scope } from "./scope.ts";
import type { VaultRecord } from "./vault.ts";

/**
 * Credentials that are no vault's are kept as a vault's assets are. What stands in the vault's place is a *holder*: a row of
 * Vaults with another source, which no list of vaults shows. So fences, packed expiries, fingerprints, results of checks, alerts
 * and the reconciliation hold for them as they are. A tenant's credentials are spread over up to 16 holders, so that a
 * change reads and writes a sixteenth of them.
 */

/** Where the credentials come from that are no key vault's. */
export const HOLDER_SOURCES = ["entra", "b2c"] as const satisfies AssetSource[];
export type HolderSource = (typeof HOLDER_SOURCES)[number];

/** A holder's "subscription": the partition of all credentials of a source. No subscription has such an id. */
export const holderSubscription = (source: HolderSource): string => source;

/** The holders of a tenant's applications, by the first digit of the application's client id. */
export const BUCKETS = "0123456789abcdef".split("");
export const bucketOf = (appId: string): string => appId[0]!.toLowerCase();

/** Longer than any key vault's name may be (24 characters), so it is none's. */
export const holderName = (tenantId: string, bucket: string): string => `entra-${tenantId.toLowerCase()}-${bucket}`;

/**
 * The same in a B2C tenant, where each kind of credential has holders of its own: one that can't be read leaves the others as
 * they are. Its applications are spread as the service's own tenant's are.
 */
export const b2cHolderName = (tenantId: string, kind: CredentialKind, bucket?: string): string =>
  `b2c-${tenantId}-${kind}${bucket === undefined ? "" : `-${bucket}`}`.toLowerCase();

/** Of a holder of a B2C tenant the tenant's id. */
export const b2cTenantOf = (holder: string): string | undefined => /^b2c-([0-9a-f-]{36})-/.exec(holder)?.[1];

/** The name of a credential in its holder. */
export const credentialName = (appId: string, keyId: string): string => `${appId}-${keyId}`.toLowerCase();

/** A holder nothing is known of yet. */
export const newHolder = (
  { name, source, tenantId }: { name: string; source: HolderSource; tenantId: string },
  now: string,
): VaultRecord => ({
  name,
  source,
  id: "",
  vaultUri: "",
  location: "",
  subscriptionId: holderSubscription(source),
  resourceGroup: "",
  tenantId: tenantId.toLowerCase(),
  sku: "",
  softDelete: false,
  purgeProtection: false,
  rbacAuthorization: false,
  publicNetworkAccess: "",
  networkDefaultAction: "",
  privateEndpoints: 0,
  firstSeenAt: now,
  listedAt: {},
  failures: {},
  failedScans: 0,
  listings: {},
  contents: {},
  pending: false,
});

/** Credentials that no complete reading has seen for so long leave counts and score. */
export const UNSEEN_AFTER_MS = 7 * DAY_MS;

/** Why the assets of a vault, or the credentials of a holder, are in no count and in no score. */
export const NOT_COUNTED = ["notSeen", "noLicense", "outOfScope"] as const;
export type NotCounted = (typeof NOT_COUNTED)[number];

/** What decides what counts. */
export interface Counting extends Pick<Moment, "now"> {
  licensed: boolean;
  scope: Scope;
}

/**
 * Undefined for what counts: every vault of a watched subscription, and a holder that was seen in the last 7 days, with a
 * PRO licence.
 */
export function notCounted(
  vault: Pick<VaultRecord, "source" | "listedAt" | "subscriptionId">,
  { now, licensed, scope }: Counting,
): NotCounted | undefined {
  if (sourceOf(vault) === "keyVault")
    return scope.leftAt(vault.subscriptionId) === undefined ? undefined : "outOfScope";
  if (!licensed) return "noLicense";
  const seen = Object.values(vault.listedAt).sort().at(-1);
  return seen !== undefined && now - Date.parse(seen) <= UNSEEN_AFTER_MS ? undefined : "notSeen";
}

/** Of a vault's asset the tag that `ownerTag` names, of a credential its application's owners. */
export function ownersOf(asset: Pick<AssetRecord, "tags" | "credential">, ownerTag: string): string[] {
  if (asset.credential) return asset.credential.owners ?? [];
  const { tags } = asset;
  return tags && Object.hasOwn(tags, ownerTag) ? [tags[ownerTag]!] : [];
}
