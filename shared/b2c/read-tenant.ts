import { createHash } from "node:crypto";
import { credentialsOf } from "../applications/application.ts";
import { APPLICATION_TYPES, assetsOfApplication } from "../applications/credentials.ts";
import { joinApplication } from "../applications/read-graph.ts";
import { ASSET_TYPES, type AssetRecord, type AssetType, type CredentialKind, contentHash } from "../inventory/asset.ts";
import { BUCKETS, b2cHolderName, bucketOf, holderSubscription } from "../inventory/holder.ts";
import type { KeySet, PolicyKey } from "../platform/azure/graph-objects.ts";
import type { TenantReader } from "./connection-test.ts";
import type { List, TenantRecord } from "./tenant.ts";

// Reads the credentials of a tenant through Microsoft Graph and converts them to assets of the inventory. A holder is a group
// of them that the inventory stores together, like the assets of a key vault. Applications are distributed over 16 holders
// (buckets).

/** The credentials of one holder as read from the tenant. */
export interface ReadHolder {
  name: string;
  types: readonly AssetType[];
  assets: AssetRecord[];
}

type TenantContext = Pick<TenantRecord, "tenantId" | "tenantDomain"> & {
  /** Time of the discovery, ISO 8601. */
  now: string;
};

/** The kind of credential in each list of a tenant. */
export const KIND_OF: Record<List, CredentialKind> = {
  applications: "application",
  policyKeys: "policyKey",
  identityProviders: "identityProvider",
};

/** Returns the names of all possible holders for one kind of a tenant's credentials. */
export const holdersOf = (tenantId: string, kind: CredentialKind): string[] =>
  kind === "application"
    ? BUCKETS.map((bucket) => b2cHolderName(tenantId, kind, bucket))
    : [b2cHolderName(tenantId, kind)];

/** Reads all pages of one kind of credential. @throws {CloudFailure} */
export const readList: Record<
  List,
  (graph: TenantReader, context: TenantContext, signal: AbortSignal) => Promise<ReadHolder[]>
> = {
  async applications(graph, context, signal) {
    const applications = await readAllPages(graph.applications(signal));
    const principals = await readAllPages(graph.servicePrincipals(signal));
    const principalsById = new Map(
      principals.map((principal) => [principal.appId, { ...principal, credentials: credentialsOf(principal) }]),
    );
    const applicationsById = new Map(applications.map((application) => [application.appId, application]));
    const holders = new Map(BUCKETS.map((bucket): [string, AssetRecord[]] => [bucket, []]));
    for (const appId of new Set([...applicationsById.keys(), ...principalsById.keys()])) {
      const app = joinApplication(applicationsById.get(appId), principalsById.get(appId), {
        owners: undefined,
        federated: undefined,
      });
      const bucket = bucketOf(appId);
      const name = b2cHolderName(context.tenantId, "application", bucket);
      if (app) holders.get(bucket)?.push(...assetsOfApplication(app, { ...context, name, source: "b2c" }));
    }
    return [...holders].map(([bucket, assets]) => {
      return { name: b2cHolderName(context.tenantId, "application", bucket), types: APPLICATION_TYPES, assets };
    });
  },

  async policyKeys(graph, context, signal) {
    const name = b2cHolderName(context.tenantId, "policyKey");
    const sets = await readAllPages(graph.keySets(signal));
    const assets = sets.flatMap((set) => set.keys.map((key, index) => policyKeyAsset(set, key, index, name, context)));
    return [{ name, types: ASSET_TYPES, assets: withoutDuplicates(assets) }];
  },

  async identityProviders(graph, context, signal) {
    const name = b2cHolderName(context.tenantId, "identityProvider");
    const providers = await readAllPages(graph.identityProviders(signal));
    const assets = providers
      // Built-in identity providers of the tenant have no credential.
      .filter(({ kind }) => kind !== "builtInIdentityProvider")
      .map(({ id, displayName, clientId }) => {
        const credential = { applicationName: displayName, ...(clientId === undefined ? {} : { appId: clientId }) };
        // Graph returns neither the secret nor its expiry date.
        return assetOf("secret", slug(id), name, context, { kind: "identityProvider", ...credential }, {});
      });
    return [{ name, types: ["secret"], assets: withoutDuplicates(assets) }];
  },
};

function policyKeyAsset(
  set: KeySet,
  key: PolicyKey,
  index: number,
  vaultName: string,
  context: TenantContext,
): AssetRecord {
  const { kid, keyType, certificate, thumbprint, enabled, startsOn, expiresOn } = key;
  const type = certificate ? "certificate" : keyType === "oct" ? "secret" : "key";
  // The ID of a key may contain any character and is case-sensitive, unlike IDs of assets, so its hash is used. A key without
  // an ID is identified by its thumbprint, or else by its position in the set.
  const keyHash = createHash("sha256")
    .update(JSON.stringify([set.id, kid ?? thumbprint ?? index]))
    .digest("hex");
  return assetOf(
    type,
    `${slug(set.id)}-${keyHash.slice(0, 16)}`,
    vaultName,
    context,
    { kind: "policyKey", applicationName: set.id, ...(kid === undefined ? {} : { keyId: kid }) },
    {
      enabled,
      ...(startsOn === undefined ? {} : { notBefore: startsOn }),
      ...(expiresOn === undefined ? {} : { expiresOn }),
      ...(keyType === undefined || type === "secret" ? {} : { keyType }),
      ...(thumbprint === undefined ? {} : { thumbprint }),
    },
  );
}

function assetOf(
  type: AssetType,
  name: string,
  vaultName: string,
  { tenantId, tenantDomain, now }: TenantContext,
  credential: Pick<NonNullable<AssetRecord["credential"]>, "kind" | "applicationName" | "appId" | "keyId">,
  facts: Partial<AssetRecord>,
): AssetRecord {
  const asset = {
    type,
    name,
    vaultName,
    vaultId: "",
    subscriptionId: holderSubscription("b2c"),
    enabled: true,
    ...facts,
    source: "b2c" as const,
    // `secretsUntil` has the expiry dates of an application's secrets. These credentials belong to no application.
    credential: { tenantId, tenantDomain, ...credential, secretsUntil: [] },
    // Any text, because an asset with an empty `listing` counts as stale. Graph returns no modification date, so `listing`
    // can't show changes as it does for vaults. `content`, a hash of these members, shows them.
    listing: "b2c",
  };
  return { ...asset, firstSeenAt: now, content: contentHash(asset) };
}

/**
 * Converts the ID of a key set or provider to a part of an asset's name: the ID in lower case. If the ID has more than 100
 * characters, or others than letters, digits, `_` and `-`, it is converted. Other characters become `_`, the text is cut to 80
 * characters, and a hash of the unchanged ID is appended.
 */
function slug(id: string): string {
  const text = id.toLowerCase();
  if (/^[0-9a-z_-]{1,100}$/.test(text)) return text;
  const hash = createHash("sha256").update(id).digest("hex").slice(0, 12);
  return `${text.replace(/[^0-9a-z_-]/g, "_").slice(0, 80)}-${hash}`;
}

/** Removes duplicates, because Graph can return an item on two pages of a list. */
const withoutDuplicates = (assets: readonly AssetRecord[]): AssetRecord[] => [
  ...new Map(assets.map((asset) => [asset.name, asset])).values(),
];

async function readAllPages<T>(pages: AsyncGenerator<T[]>): Promise<T[]> {
  const items: T[] = [];
  for await (const page of pages) items.push(...page);
  return items;
}
