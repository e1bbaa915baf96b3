import { KEY_KINDS } from "../arm/key-kinds.ts";
import { initialKey } from "../arm/resource-keys.ts";
import type { Company, CompanySecret } from "./company.ts";
import type { CompanyChild, CompanyResource } from "./resources.ts";

const RESOURCE_GROUP = "rg-keys";
/** A GUID, because secrets name the resources by their IDs in tags. */
const SUBSCRIPTION_ID = "45454545-4545-4545-8545-454545454545";

/** Declares a resource and, for each type below it, one child: `queues/orders/authorizationRules/app` has two levels. */
function withChild(type: string, name: string, path: string, more: Partial<CompanyChild> = {}): CompanyResource {
  const childSegments = path.split("/").filter((part) => part !== "");
  const child = (index: number): Pick<CompanyChild, "children"> =>
    index >= childSegments.length
      ? {}
      : { children: { [childSegments[index]!]: [{ name: childSegments[index + 1]!, ...child(index + 2) }] } };
  return { type, name, resourceGroup: RESOURCE_GROUP, ...more, ...child(0) };
}

const RULE = "authorizationRules/app";

const RESOURCES: readonly CompanyResource[] = [
  withChild("Microsoft.Storage/storageAccounts", "stacmeorders", "", { kind: "StorageV2" }),
  withChild("Microsoft.DocumentDB/databaseAccounts", "cosmos-acme", "", { kind: "GlobalDocumentDB" }),
  withChild("Microsoft.ServiceBus/namespaces", "sb-acme", RULE),
  withChild("Microsoft.ServiceBus/namespaces", "sb-acme-orders", `queues/orders/${RULE}`),
  withChild("Microsoft.ServiceBus/namespaces", "sb-acme-news", `topics/news/${RULE}`),
  withChild("Microsoft.EventHub/namespaces", "evhns-acme", RULE),
  withChild("Microsoft.EventHub/namespaces", "evhns-acme-clicks", `eventhubs/clicks/${RULE}`),
  withChild("Microsoft.Cache/redis", "redis-acme", "", {
    properties: { hostName: "redis-acme.redis.cache.windows.net", sslPort: 6380, port: 6379 },
  }),
  withChild("Microsoft.Cache/redisEnterprise", "amr-acme", "databases/default", {
    properties: { hostName: "amr-acme.westeurope.redis.azure.net" },
  }),
  withChild("Microsoft.CognitiveServices/accounts", "oai-acme", "", { kind: "OpenAI" }),
  withChild("Microsoft.Search/searchServices", "srch-acme", ""),
  withChild("Microsoft.SignalRService/SignalR", "sigr-acme", "", { kind: "SignalR" }),
  withChild("Microsoft.SignalRService/WebPubSub", "wps-acme", "", { kind: "WebPubSub" }),
  withChild("Microsoft.Maps/accounts", "map-acme", "", { kind: "Gen2" }),
  withChild("Microsoft.EventGrid/topics", "evgt-acme", ""),
  withChild("Microsoft.AppConfiguration/configurationStores", "appcs-acme-keys", ""),
  withChild("Microsoft.Batch/batchAccounts", "batchacme", ""),
  withChild("Microsoft.ContainerRegistry/registries", "cracme", "", {
    properties: { adminUserEnabled: true },
  }),
  withChild("Microsoft.Devices/IotHubs", "iot-acme", ""),
];

/** Finds the resource with keys of each kind: its ID, and its names joined by slashes. */
function locate(type: string): { id: string; names: string } {
  const [namespace, first, ...childSegments] = type.split("/");
  const matches = RESOURCES.flatMap((root) => {
    if (root.type !== `${namespace}/${first}`) return [];
    const names = [root.name];
    let current: CompanyChild = root;
    for (const collection of childSegments) {
      const child = current.children?.[collection]?.[0];
      if (child === undefined) return [];
      names.push(child.name);
      current = child;
    }
    const segments = names.flatMap((name, index) => [[first!, ...childSegments][index]!, name]);
    const id = `/subscriptions/${SUBSCRIPTION_ID}/resourceGroups/${RESOURCE_GROUP}/providers/${namespace}/${segments.join("/")}`;
    return [{ id, names: names.join("/") }];
  });
  if (matches[0] === undefined) throw new Error(`The company has no resource of type ${type}`);
  return matches[0];
}

/**
 * Returns a secret with the first key of a resource and the tags of Microsoft's rotation tutorial:
 * https://learn.microsoft.com/azure/key-vault/secrets/tutorial-rotation-dual
 */
function secretOf(type: string, key: string, index: number): CompanySecret {
  const { id, names } = locate(type);
  return {
    name: `key-${names.replaceAll("/", "-")}`,
    value: initialKey(type, names, key),
    expiresInDays: 20 + index,
    tags: { ProviderAddress: id, CredentialId: key, ValidityPeriodDays: "60" },
  };
}

/** The company keys: one resource of each kind that has two keys, and a vault with the first key of each. */
export const keyCompany: Company = {
  subscriptions: [
    {
      name: "Acme Keys",
      id: SUBSCRIPTION_ID,
      vaults: [
        { name: "kv-acme-keys", secrets: KEY_KINDS.map(({ type, keys }, index) => secretOf(type, keys[0]!, index)) },
      ],
      resources: [...RESOURCES],
    },
  ],
};
