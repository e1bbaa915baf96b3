import { createHash } from "node:crypto";
import { credentialsOf } from "../applications/application.ts";
import { APPLICATION_TYPES, assetsOfApplication } from "../applications/credentials.ts";
import { merged } from "../applications/read.ts";
import { ASSET_TYPES, type AssetRecord, type AssetType, type CredentialKind, contentOf } from "../inventory/asset.ts";
import { BUCKETS, b2cHolderName, bucketOf, holderSubscription } from "../inventory/holder.ts";
import type { KeySet, PolicyKey } from "../platform/azure/graph-objects.ts";
import type { TenantReader } from "./connection-test.ts";
import type { List, TenantRecord } from "./tenant.ts";

/** The credentials of one holder according to the tenant. */
export interface ReadHolder {
  name: string;
  types: readonly AssetType[];
  assets: AssetRecord[];
}

type Place = Pick<TenantRecord, "tenantId" | "tenantDomain"> & { now: string };

export const KIND_OF: Record<List, CredentialKind> = {
  applications: "application",
  policyKeys: "policyKey",
  identityProviders: "identityProvider",
};

/** Returns all possible holders of a tenant, by the kind of their credentials. */
export const holdersOf = (tenantId: string, kind: CredentialKind): string[] =>
  kind === "application"
    ? BUCKETS.map((bucket) => b2cHolderName(tenantId, kind, bucket))
    : [b2cHolderName(tenantId, kind)];

/** Reads all pages of one kind of credential. @throws {CloudFailure} */
export const readList: Record<List, (graph: TenantReader, place: Place, signal: AbortSignal) => Promise<ReadHolder[]>> =
  {
    async applications(graph, place, signal) {
      const applications = await allOf(graph.applications(signal));
      const principals = await allOf(graph.servicePrincipals(signal));
      const own = new Map(principals.map((one) => [one.appId, { ...one, credentials: credentialsOf(one) }]));
      const listed = new Map(applications.map((one) => [one.appId, one]));
      const holders = new Map(BUCKETS.map((bucket): [string, AssetRecord[]] => [bucket, []]));
      for (const appId of new Set([...listed.keys(), ...own.keys()])) {
        const app = merged(listed.get(appId), own.get(appId), { owners: undefined, federated: undefined });
        const bucket = bucketOf(appId);
        const name = b2cHolderName(place.tenantId, "application", bucket);
        if (app) holders.get(bucket)?.push(...assetsOfApplication(app, { ...place, name, source: "b2c" }));
      }
      return [...holders].map(([bucket, assets]) => {
        return { name: b2cHolderName(place.tenantId, "application", bucket), types: APPLICATION_TYPES, assets };
      });
    },

    async policyKeys(graph, place, signal) {
      const name = b2cHolderName(place.tenantId, "policyKey");
      const sets = await allOf(graph.keySets(signal));
      const assets = sets.flatMap((set) => set.keys.map((key, index) => policyKeyAsset(set, key, index, name, place)));
      return [{ name, types: ASSET_TYPES, assets: eachOnce(assets) }];
    },

    async identityProviders(graph, place, signal) {
      const name = b2cHolderName(place.tenantId, "identityProvider");
      const providers = await allOf(graph.identityProviders(signal));
      const assets = providers
        // Built-in identity providers of the tenant have no credential.
        .filter(({ kind }) => kind !== "builtInIdentityProvider")
        .map(({ id, displayName, clientId }) => {
          const credential = { applicationName: displayName, ...(clientId === undefined ? {} : { appId: clientId }) };
          // Graph returns neither the secret nor its expiry date.
          return assetOf("secret", slug(id), name, place, { kind: "identityProvider", ...credential }, {});
        });
      return [{ name, types: ["secret"], assets: eachOnce(assets) }];
    },
  };

function policyKeyAsset(set: KeySet, key: PolicyKey, index: number, vaultName: string, place: Place): AssetRecord {
  const { kid, keyType, certificate, thumbprint, enabled, startsOn, expiresOn } = key;
  const type = certificate ? "certificate" : keyType === "oct" ? "secret" : "key";
  // A key's own id may contain any character and is case-sensitive, unlike ids of assets.
  const own = createHash("sha256")
    .update(JSON.stringify([set.id, kid ?? thumbprint ?? index]))
    .digest("hex");
  return assetOf(
    type,
    `${slug(set.id)}-${own.slice(0, 16)}`,
    vaultName,
    place,
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
  { tenantId, tenantDomain, now }: Place,
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
    credential: { tenantId, tenantDomain, ...credential, secretsUntil: [] },
    // The list has no modification date, so changes are detected from the content.
    listing: "b2c",
  };
  return { ...asset, firstSeenAt: now, content: contentOf(asset) };
}

/**
 * Returns the name of a key set or provider as a part of an asset's name: in lower case, with a hash where lower case is
 * ambiguous.
 */
function slug(id: string): string {
  const text = id.toLowerCase();
  if (/^[0-9a-z_-]{1,100}$/.test(text)) return text;
  const hash = createHash("sha256").update(id).digest("hex").slice(0, 12);
  return `${text.replace(/[^0-9a-z_-]/g, "_").slice(0, 80)}-${hash}`;
}

/** Removes duplicates: a list can contain an item on two of its pages. */
const eachOnce = (assets: readonly AssetRecord[]): AssetRecord[] => [
  ...new Map(assets.map((asset) => [asset.name, asset])).values(),
];

async function allOf<T>(pages: AsyncGenerator<T[]>): Promise<T[]> {
  const all: T[] = [];
  for await (const page of pages) all.push(...page);
  return all;
}
