import { DAY_MS } from "../platform/time.ts";
import { type AssetRecord, type AssetSource, type CredentialKind, sourceOf } from "./asset.ts";
import type { Moment } from "./asset-status.ts";
import type { Scope } from "./scope.ts";
import type { VaultRecord } from "./vault.ts";

/**
 * Credentials that are in no vault are stored like the assets of a vault. Their *holder* takes the place of the vault: a row of
 * the table Vaults with another source, which no list of vaults shows. So everything that works for vaults also works for
 * credentials: concurrent writes, counts, the comparison with what was read before, compliance checks, alerts and
 * reconciliation. A tenant's credentials are distributed over up to 16 holders, so that a change reads and writes a sixteenth
 * of them.
 */

/** Sources of credentials that are in no key vault. */
export const HOLDER_SOURCES = ["entra", "b2c"] as const satisfies AssetSource[];
export type HolderSource = (typeof HOLDER_SOURCES)[number];

/** The "subscription" of a holder: the partition of all credentials of a source. No real subscription has such an ID. */
export const holderSubscription = (source: HolderSource): string => source;

/** A tenant's applications are distributed over 16 holders (buckets) by the first hexadecimal digit of the client ID. */
export const BUCKETS = "0123456789abcdef".split("");
export const bucketOf = (appId: string): string => appId[0]!.toLowerCase();

/** Returns the name of a holder. It is longer than any key vault name (24 characters), so that it can't collide with one. */
export const holderName = (tenantId: string, bucket: string): string => `entra-${tenantId.toLowerCase()}-${bucket}`;

/**
 * Returns the holder of a B2C tenant's credentials. Each kind has its own holders, so that a kind that can't be read does not
 * affect the others. Applications are distributed as in the service's own tenant.
 */
export const b2cHolderName = (tenantId: string, kind: CredentialKind, bucket?: string): string =>
  `b2c-${tenantId}-${kind}${bucket === undefined ? "" : `-${bucket}`}`.toLowerCase();

/** Returns the tenant ID of a B2C tenant's holder. */
export const b2cTenantOf = (holder: string): string | undefined => /^b2c-([0-9a-f-]{36})-/.exec(holder)?.[1];

/** Returns the name of a credential in its holder. */
export const credentialName = (appId: string, keyId: string): string => `${appId}-${keyId}`.toLowerCase();

/** Returns the row of a new holder without credentials. */
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

/** Credentials that no complete discovery has seen for this time are excluded from counts and the score. */
export const UNSEEN_AFTER_MS = 7 * DAY_MS;

/** Why the assets of a vault, or the credentials of a holder, are excluded from counts and the score. */
export const NOT_COUNTED = ["notSeen", "noLicense", "outOfScope"] as const;
export type NotCounted = (typeof NOT_COUNTED)[number];

/** Conditions that decide which vaults and holders count. */
export interface CountingContext extends Pick<Moment, "now"> {
  licensed: boolean;
  scope: Scope;
}

/**
 * Returns why a vault or holder is excluded. Undefined if it counts: every vault of a subscription in scope, and with a PRO
 * license every holder seen in the last 7 days.
 */
export function exclusionReason(
  vault: Pick<VaultRecord, "source" | "listedAt" | "subscriptionId">,
  { now, licensed, scope }: CountingContext,
): NotCounted | undefined {
  if (sourceOf(vault) === "keyVault")
    return scope.leftAt(vault.subscriptionId) === undefined ? undefined : "outOfScope";
  if (!licensed) return "noLicense";
  const lastSeenAt = Object.values(vault.listedAt).sort().at(-1);
  return lastSeenAt !== undefined && now - Date.parse(lastSeenAt) <= UNSEEN_AFTER_MS ? undefined : "notSeen";
}

/**
 * Returns the owners of an asset: for vault assets the value of the tag named by `ownerTag`, for credentials the owners of the
 * application. Empty if there is none. An empty value, or one of spaces only, names no owner.
 */
export function ownersOf(asset: Pick<AssetRecord, "tags" | "credential">, ownerTag: string): string[] {
  if (asset.credential) return (asset.credential.owners ?? []).filter((owner) => owner.trim() !== "");
  const { tags } = asset;
  const owner = tags && Object.hasOwn(tags, ownerTag) ? tags[ownerTag]! : "";
  return owner.trim() === "" ? [] : [owner];
}
