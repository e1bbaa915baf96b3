import { KEY_KINDS as CLOUD_KINDS } from "simulated-cloud/arm/key-kinds.ts";
import { initialKey } from "simulated-cloud/arm/resource-keys.ts";
import type { Company, CompanySecret } from "simulated-cloud/company/company.ts";
import type { CompanyChild, CompanyResource } from "simulated-cloud/company/resources.ts";
import { KEY_KINDS, type KeyKind } from "../../shared/rotation/resource-keys/kinds.ts";

// A company with many keys of resources of all kinds, vault secrets that store them, and decoys that look like them.

const SUBSCRIPTION_ID = "45454545-4545-4545-8545-000000000500";
const RESOURCE_GROUPS = 40;
const SECRETS_IN_VAULT = 45;

/** A vault secret that stores a key of a resource. */
export interface PlantedLink {
  vaultName: string;
  secretName: string;
  resourceId: string;
  kind: string;
  keyName: string;
}

/** A pair of keys of one resource. `names`: of the resource and its parents. */
interface Pair {
  kind: KeyKind;
  resourceId: string;
  names: string[];
  pair: readonly [string, string];
  /** Returns the value of a key. */
  keyOf(keyName: string): string;
}

/** Child collections and names of each kind that is below another resource. */
function childNames(kind: KeyKind): [collection: string, name: string][] {
  const collections = kind.type.split("/").slice(2);
  return collections.map((collection) => [
    collection,
    collection === "authorizationRules" ? "app" : collection === "databases" ? "default" : "orders",
  ]);
}

function declare(kind: KeyKind, name: string, resourceGroup: string): CompanyResource {
  const child = ([first, ...rest]: [string, string][]): Pick<CompanyChild, "children"> =>
    first === undefined ? {} : { children: { [first[0]]: [{ name: first[1], ...child(rest) }] } };
  const registry = kind.name === "containerRegistry" ? { properties: { adminUserEnabled: true } } : {};
  const type = kind.type.split("/").slice(0, 2).join("/");
  return { type, name, resourceGroup, ...registry, ...child(childNames(kind)) };
}

function pairsOf(kind: KeyKind, name: string, resourceGroup: string): Pair[] {
  const children = childNames(kind);
  const [namespace, type] = kind.type.split("/");
  const path = [type, name, ...children.flat()].join("/");
  const resourceId = `/subscriptions/${SUBSCRIPTION_ID}/resourceGroups/${resourceGroup}/providers/${namespace}/${path}`;
  const names = [name, ...children.map(([, childName]) => childName)];
  const cloudKeys = CLOUD_KINDS.find((one) => one.type === kind.type)!.keys;
  const keyOf = (keyName: string) =>
    initialKey(kind.type, names.join("/"), cloudKeys[kind.pairs.flat().indexOf(keyName)]!);
  return kind.pairs.map((pair) => ({ kind, resourceId, names, pair, keyOf }));
}

/** Returns a connection string of the kind. Undefined if the kind has none. */
function connectionString({ kind, names }: Pick<Pair, "kind" | "names">, key: string): string | undefined {
  const [name, ...below] = names;
  const entity = below.length > 1 ? `;EntityPath=${below[0]}` : "";
  const formats: Partial<Record<string, string>> = {
    storage: `DefaultEndpointsProtocol=https;AccountName=${name};AccountKey=${key};EndpointSuffix=core.windows.net`,
    cosmos: `AccountEndpoint=https://${name}.documents.azure.com:443/;AccountKey=${key};`,
    sharedAccessKey: `Endpoint=sb://${name}.servicebus.windows.net/;SharedAccessKeyName=${below.at(-1)};SharedAccessKey=${key}${entity}`,
    redis: `${name}.redis.cache.windows.net:6380,password=${key},ssl=True,abortConnect=False`,
    accessKey: `Endpoint=https://${name}.service.signalr.net;AccessKey=${key};Version=1.0;`,
    appConfiguration: `Endpoint=https://${name}.azconfig.io;Id=none;Secret=${key}`,
  };
  return kind.formats[0] === undefined ? undefined : formats[kind.formats[0]];
}

/** Returns a value that contains no key of the resource, although it looks as if it did. */
function decoyOf(one: Pair, other: Pair, index: number): string {
  const key = one.keyOf(one.pair[index % 2]!);
  const changed = (key[3] === "x" ? "y" : "x") + key.slice(1);
  const shifted = key.slice(1) + key[0];
  switch (index % 6) {
    case 0:
      return changed;
    case 1:
      return connectionString(one, changed) ?? shifted;
    case 2:
      // The key beside the name of another resource.
      return connectionString({ ...one, names: other.names }, key) ?? shifted;
    case 3:
      // A key as the resource had it before.
      return initialKey(
        one.kind.type,
        `${one.names.join("/")}-former`,
        CLOUD_KINDS.find(({ type }) => type === one.kind.type)!.keys[0]!,
      );
    case 4:
      return connectionString(one, key.slice(0, -1)) ?? key.slice(0, -1);
    default:
      return `${key}${key}`;
  }
}

/**
 * Returns the company with a number of pairs of keys of all kinds in turn. Each pair is in one or two secrets, as the key or as a
 * connection string. For every second pair there is a decoy, whose tags name the resource and the key.
 */
export function plantedCompany(count: number): {
  company: Company;
  links: PlantedLink[];
  secrets: number;
  resources: number;
} {
  const kinds = KEY_KINDS.filter(({ pairs }) => pairs.length > 0);
  const resources: CompanyResource[] = [];
  const pairs: Pair[] = [];
  for (let number = 0; pairs.length < count; number++) {
    const kind = kinds[number % kinds.length]!;
    const resourceGroup = `rg-${number % RESOURCE_GROUPS}`;
    const name = `${kind.name.toLowerCase()}${number}`;
    resources.push(declare(kind, name, resourceGroup));
    pairs.push(...pairsOf(kind, name, resourceGroup));
  }
  const planted = pairs.slice(0, count);

  const vaults: { name: string; secrets: CompanySecret[] }[] = [];
  const links: PlantedLink[] = [];
  function add(secret: CompanySecret, link?: { pair: Pair; keyName: string }): void {
    if (vaults.at(-1)?.secrets.length !== undefined && vaults.at(-1)!.secrets.length < SECRETS_IN_VAULT)
      vaults.at(-1)!.secrets.push(secret);
    else vaults.push({ name: `kv-keys-${vaults.length}`, secrets: [secret] });
    if (link === undefined) return;
    const { resourceId, kind } = link.pair;
    const place = { vaultName: vaults.at(-1)!.name, secretName: secret.name };
    links.push({ ...place, resourceId, kind: kind.name, keyName: link.keyName });
  }
  for (const [index, pair] of planted.entries()) {
    const keyName = pair.pair[index % 2]!;
    const key = pair.keyOf(keyName);
    const text = connectionString(pair, key) ?? key;
    add({ name: `secret-${index}`, value: index % 3 === 0 ? key : text, expiresInDays: 20 + index }, { pair, keyName });
    if (index % 9 === 0) add({ name: `copy-${index}`, value: text }, { pair, keyName });
    if (index % 2 === 0) {
      const tags = { ProviderAddress: pair.resourceId, CredentialId: keyName, ValidityPeriodDays: "60" };
      // "index + 7" is any other pair.
      add({ name: `decoy-${index}`, value: decoyOf(pair, planted[(index + 7) % count]!, index / 2), tags });
    }
  }
  return {
    company: { subscriptions: [{ name: "Keys", id: SUBSCRIPTION_ID, vaults, resources }] },
    links,
    secrets: vaults.reduce((sum, { secrets }) => sum + secrets.length, 0),
    resources: resources.length,
  };
}
