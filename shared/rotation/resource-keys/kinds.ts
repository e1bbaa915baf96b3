import * as z from "zod";
import type { ConnectionStringFormat } from "./connection-strings.ts";

/** A key of a resource with its value. Do not store or log the value. */
export interface ListedKey {
  /** The name in `KeyKind.pairs`. */
  name: string;
  /** The text that names the key in the regenerate call. The same as `name`, except in App Configuration. */
  id: string;
  value: string;
}

/** The cheapest call that proves a key and changes nothing. Texts in braces are parts of the resource. */
export type KeyProof =
  /** An HTTPS request. A status in `accepted` proves the key, and one in `rejected` proves that it is invalid. */
  | {
      by: "https";
      method: "GET" | "HEAD";
      /** `sharedKey`: storage and Batch signature. `hmac`: App Configuration. `masterKey`: Cosmos DB. `jwt`: signed with the key. */
      authorization:
        | { header: string }
        | "basic"
        | "sharedKey"
        | "hmac"
        | "masterKey"
        | "jwt"
        | "sharedAccessSignature";
      url: string;
      accepted: readonly number[];
      rejected: readonly number[];
      /** Text of a rejected response that proves an invalid key. Without it, the same status can mean a missing right. */
      rejectedText?: string;
      documentation: string;
    }
  /** `AUTH` and `PING` over TLS. */
  | { by: "redis"; port: number; documentation: string }
  /** No call proves the key without a change: only the list of keys does. */
  | { by: "list"; reason: string; documentation: string };

/** A kind of Azure resource with two keys, of which one can be regenerated while the other is in use. */
export interface KeyKind {
  name: string;
  title: string;
  /** Resource type, in Azure's spelling. */
  type: string;
  apiVersion: string;
  /** Last path segment of the list call. */
  list: string;
  /** Last path segment of the regenerate call, and the member of its body that names the key. Without a member, the path ends with the key. */
  regenerate?: { path: string; member?: string };
  /** Names of the keys. The keys of a pair have the same rights, so one can replace the other. */
  pairs: readonly (readonly [string, string])[];
  /** Schema of the list's response. `entry`: the list has pages, and the schema is that of one entry. */
  answer: { all: z.ZodType<ListedKey[]> } | { entry: z.ZodType<ListedKey> };
  /** Formats of the connection strings that contain a key. */
  formats: readonly ConnectionStringFormat[];
  /** The smallest set of actions that finds the resource, lists its keys and regenerates one. */
  actions: readonly string[];
  proof: KeyProof;
  /** The page of the regenerate call. */
  documentation: string;
  /** Why the service only reports this kind and regenerates no key of it. */
  reportOnly?: string;
}

const LEARN = "https://learn.microsoft.com/";
const secret = z.string().min(1);

/** Schema of a response with one member for each key, by the key's name. */
const members = (membersByName: Record<string, string>) =>
  z
    .object(Object.fromEntries(Object.values(membersByName).map((member) => [member, secret])))
    .transform((answer) =>
      Object.entries(membersByName).map(([name, member]): ListedKey => ({ name, id: name, value: answer[member]! })),
    );

/** Schema of a response with a list of keys that must contain each name. */
const listOf = (list: string, nameMember: string, names: readonly string[]) =>
  z
    .object({ [list]: z.array(z.object({ [nameMember]: z.string(), value: secret })) })
    .transform((answer) => {
      const entries = answer[list]! as Record<string, string>[];
      return names.flatMap((name): ListedKey[] => {
        const entry = entries.find((one) => one[nameMember] === name);
        return entry === undefined ? [] : [{ name, id: name, value: entry.value! }];
      });
    })
    .refine((keys) => keys.length === names.length, { path: [list] });

/** Returns the actions of a kind. Lists of parents need `read` on each of them. */
const actionsOf = (type: string, list: string, regenerate: string, ...reads: string[]): string[] => [
  ...reads.map((one) => `${one}/read`),
  `${type}/read`,
  `${type}/${list}/action`,
  `${type}/${regenerate}/action`,
];

/** Authorization rules of Service Bus and Event Hubs, on the namespace or on an entity. */
function rules(name: string, title: string, namespace: string, entity: string | undefined, page: string): KeyKind {
  const parent = entity === undefined ? namespace : `${namespace}/${entity}`;
  const type = `${parent}/authorizationRules`;
  const reads = entity === undefined ? [namespace] : [namespace, parent];
  return {
    name,
    title,
    type,
    apiVersion: "2024-01-01",
    list: "listKeys",
    regenerate: { path: "regenerateKeys", member: "keyType" },
    pairs: [["PrimaryKey", "SecondaryKey"]],
    answer: { all: members({ PrimaryKey: "primaryKey", SecondaryKey: "secondaryKey" }) },
    formats: ["sharedAccessKey"],
    actions: actionsOf(type, "listKeys", "regenerateKeys", ...reads),
    proof: {
      by: "https",
      method: "GET",
      authorization: "sharedAccessSignature",
      url: "https://{namespace}.servicebus.windows.net/{entity}?api-version=2017-04",
      accepted: [200],
      rejected: [401],
      // A rule without the right Manage also gets a 401, with another text.
      rejectedText: "InvalidSignature",
      documentation: `${LEARN}rest/api/servicebus/get-entity`,
    },
    documentation: `${LEARN}rest/api/${page}/regenerate-keys`,
  };
}

/** SignalR and Web PubSub, which have the same resource provider. */
const realtime = (name: string, title: string, type: string, host: string, page: string): KeyKind => ({
  name,
  title,
  type,
  apiVersion: "2024-03-01",
  list: "listKeys",
  regenerate: { path: "regenerateKey", member: "keyType" },
  pairs: [["Primary", "Secondary"]],
  answer: { all: members({ Primary: "primaryKey", Secondary: "secondaryKey" }) },
  formats: ["accessKey"],
  actions: actionsOf(type, "listkeys", "regeneratekey"),
  proof: {
    by: "https",
    method: "HEAD",
    authorization: "jwt",
    url: `https://{name}.${host}/api/hubs/probe/connections/none?api-version=2023-07-01`,
    // 404: the token is valid, and the connection does not exist.
    accepted: [200, 404],
    rejected: [401],
    documentation: `${LEARN}rest/api/${page}`,
  },
  documentation: `${LEARN}rest/api/${page.split("/")[0]}`,
});

const CONFIGURATION_NAMES = ["Primary", "Secondary", "Primary Read Only", "Secondary Read Only"] as const;

/** Returns the proof of a kind whose key is a header of a GET request. */
const headerProof = (header: string, url: string, rejected: number, page: string): KeyProof => ({
  by: "https",
  method: "GET",
  authorization: { header },
  url,
  accepted: [200],
  rejected: [rejected],
  documentation: `${LEARN}${page}`,
});

/** The table of all kinds. */
export const KEY_KINDS: readonly KeyKind[] = [
  {
    name: "storage",
    title: "storage account",
    type: "Microsoft.Storage/storageAccounts",
    apiVersion: "2025-01-01",
    list: "listKeys",
    regenerate: { path: "regenerateKey", member: "keyName" },
    pairs: [["key1", "key2"]],
    answer: { all: listOf("keys", "keyName", ["key1", "key2"]) },
    formats: ["storage"],
    actions: actionsOf("Microsoft.Storage/storageAccounts", "listkeys", "regeneratekey"),
    proof: {
      by: "https",
      method: "GET",
      authorization: "sharedKey",
      url: "{properties.primaryEndpoints.blob}?restype=account&comp=properties",
      accepted: [200],
      rejected: [403],
      rejectedText: "AuthenticationFailed",
      documentation: `${LEARN}rest/api/storageservices/get-account-information`,
    },
    documentation: `${LEARN}rest/api/storagerp/storage-accounts/regenerate-key`,
  },
  {
    name: "cosmos",
    title: "Cosmos DB account",
    type: "Microsoft.DocumentDB/databaseAccounts",
    apiVersion: "2024-11-15",
    list: "listKeys",
    regenerate: { path: "regenerateKey", member: "keyKind" },
    pairs: [
      ["primary", "secondary"],
      ["primaryReadonly", "secondaryReadonly"],
    ],
    answer: {
      all: members({
        primary: "primaryMasterKey",
        secondary: "secondaryMasterKey",
        primaryReadonly: "primaryReadonlyMasterKey",
        secondaryReadonly: "secondaryReadonlyMasterKey",
      }),
    },
    formats: ["cosmos", "mongodb"],
    actions: actionsOf("Microsoft.DocumentDB/databaseAccounts", "listKeys", "regenerateKey"),
    proof: {
      by: "https",
      method: "GET",
      authorization: "masterKey",
      url: "https://{name}.documents.azure.com/dbs",
      accepted: [200],
      rejected: [401],
      documentation: `${LEARN}rest/api/cosmos-db/access-control-on-cosmosdb-resources`,
    },
    documentation: `${LEARN}rest/api/cosmos-db-resource-provider/database-accounts/regenerate-key`,
  },
  ...(
    [
      ["serviceBus", "Service Bus namespace rule", "Microsoft.ServiceBus/namespaces", undefined, "namespaces"],
      ["serviceBusQueue", "Service Bus queue rule", "Microsoft.ServiceBus/namespaces", "queues", "queues"],
      ["serviceBusTopic", "Service Bus topic rule", "Microsoft.ServiceBus/namespaces", "topics", "topics"],
    ] as const
  ).map(([name, title, type, entity, page]) => rules(name, title, type, entity, `servicebus/controlplane/${page}`)),
  rules("eventHubs", "Event Hubs namespace rule", "Microsoft.EventHub/namespaces", undefined, "eventhub/namespaces"),
  rules("eventHub", "event hub rule", "Microsoft.EventHub/namespaces", "eventhubs", "eventhub/event-hubs"),
  {
    name: "redis",
    title: "Azure Cache for Redis",
    type: "Microsoft.Cache/redis",
    apiVersion: "2024-11-01",
    list: "listKeys",
    regenerate: { path: "regenerateKey", member: "keyType" },
    pairs: [["Primary", "Secondary"]],
    answer: { all: members({ Primary: "primaryKey", Secondary: "secondaryKey" }) },
    formats: ["redis", "redisUrl"],
    actions: actionsOf("Microsoft.Cache/redis", "listKeys", "regenerateKey"),
    proof: { by: "redis", port: 6380, documentation: "https://redis.io/docs/latest/commands/auth/" },
    documentation: `${LEARN}rest/api/redis/redis/regenerate-key`,
  },
  {
    name: "managedRedis",
    title: "Managed Redis database",
    type: "Microsoft.Cache/redisEnterprise/databases",
    apiVersion: "2025-04-01",
    list: "listKeys",
    regenerate: { path: "regenerateKey", member: "keyType" },
    pairs: [["Primary", "Secondary"]],
    answer: { all: members({ Primary: "primaryKey", Secondary: "secondaryKey" }) },
    formats: ["redis", "redisUrl"],
    actions: actionsOf(
      "Microsoft.Cache/redisEnterprise/databases",
      "listKeys",
      "regenerateKey",
      "Microsoft.Cache/redisEnterprise",
    ),
    proof: { by: "redis", port: 10_000, documentation: "https://redis.io/docs/latest/commands/auth/" },
    documentation: `${LEARN}rest/api/redis/redisenterprisecache/databases/regenerate-key`,
  },
  {
    name: "aiServices",
    title: "AI services account",
    type: "Microsoft.CognitiveServices/accounts",
    apiVersion: "2024-10-01",
    list: "listKeys",
    regenerate: { path: "regenerateKey", member: "keyName" },
    pairs: [["Key1", "Key2"]],
    answer: { all: members({ Key1: "key1", Key2: "key2" }) },
    formats: [],
    actions: actionsOf("Microsoft.CognitiveServices/accounts", "listKeys", "regenerateKey"),
    // For the kinds OpenAI and AIServices. Other kinds have no common read-only call.
    proof: headerProof(
      "api-key",
      "{properties.endpoint}openai/models?api-version=2024-10-21",
      401,
      "azure/ai-foundry/openai/reference",
    ),
    documentation: `${LEARN}rest/api/aiservices/accountmanagement/accounts/regenerate-key`,
  },
  {
    name: "search",
    title: "AI Search service",
    type: "Microsoft.Search/searchServices",
    apiVersion: "2023-11-01",
    list: "listAdminKeys",
    regenerate: { path: "regenerateAdminKey" },
    pairs: [["primary", "secondary"]],
    answer: { all: members({ primary: "primaryKey", secondary: "secondaryKey" }) },
    formats: [],
    actions: actionsOf("Microsoft.Search/searchServices", "listAdminKeys", "regenerateAdminKey"),
    proof: headerProof(
      "api-key",
      "https://{name}.search.windows.net/servicestats?api-version=2024-07-01",
      403,
      "rest/api/searchservice/get-service-statistics",
    ),
    documentation: `${LEARN}rest/api/searchmanagement/admin-keys/regenerate`,
  },
  realtime(
    "signalr",
    "SignalR service",
    "Microsoft.SignalRService/SignalR",
    "service.signalr.net",
    "signalr/data-plane",
  ),
  realtime(
    "webPubSub",
    "Web PubSub service",
    "Microsoft.SignalRService/WebPubSub",
    "webpubsub.azure.com",
    "webpubsub/dataplane",
  ),
  {
    name: "maps",
    title: "Azure Maps account",
    type: "Microsoft.Maps/accounts",
    apiVersion: "2023-06-01",
    list: "listKeys",
    regenerate: { path: "regenerateKey", member: "keyType" },
    pairs: [["primary", "secondary"]],
    answer: { all: members({ primary: "primaryKey", secondary: "secondaryKey" }) },
    formats: [],
    actions: actionsOf("Microsoft.Maps/accounts", "listKeys", "regenerateKey"),
    // The host is the same for all accounts. The call is billed as a transaction.
    proof: headerProof(
      "subscription-key",
      "https://atlas.microsoft.com/timezone/enumWindows/json?api-version=1.0",
      401,
      "rest/api/maps/timezone/get-timezone-enum-windows",
    ),
    documentation: `${LEARN}rest/api/maps-management/accounts/regenerate-keys`,
  },
  {
    name: "eventGrid",
    title: "Event Grid topic",
    type: "Microsoft.EventGrid/topics",
    apiVersion: "2022-06-15",
    list: "listKeys",
    regenerate: { path: "regenerateKey", member: "keyName" },
    pairs: [["key1", "key2"]],
    answer: { all: members({ key1: "key1", key2: "key2" }) },
    formats: [],
    actions: actionsOf("Microsoft.EventGrid/topics", "listKeys", "regenerateKey"),
    proof: {
      by: "list",
      reason: "A topic has no call except publishing, and subscribers receive a published event.",
      documentation: `${LEARN}azure/event-grid/authenticate-with-access-keys-shared-access-signatures`,
    },
    documentation: `${LEARN}rest/api/eventgrid/controlplane/topics/regenerate-key`,
  },
  {
    name: "appConfiguration",
    title: "App Configuration store",
    type: "Microsoft.AppConfiguration/configurationStores",
    apiVersion: "2024-05-01",
    list: "listKeys",
    regenerate: { path: "regenerateKey", member: "id" },
    pairs: [
      ["Primary", "Secondary"],
      ["Primary Read Only", "Secondary Read Only"],
    ],
    answer: { entry: z.object({ id: z.string().min(1), name: z.enum(CONFIGURATION_NAMES), value: secret }) },
    formats: ["appConfiguration"],
    actions: actionsOf("Microsoft.AppConfiguration/configurationStores", "ListKeys", "RegenerateKey"),
    proof: {
      by: "https",
      method: "GET",
      authorization: "hmac",
      url: "{properties.endpoint}/kv?key=none&api-version=1.0",
      accepted: [200],
      rejected: [401],
      documentation: `${LEARN}azure/azure-app-configuration/rest-api-authentication-hmac`,
    },
    documentation: `${LEARN}rest/api/appconfiguration/configuration-stores/regenerate-key`,
  },
  {
    name: "batch",
    title: "Batch account",
    type: "Microsoft.Batch/batchAccounts",
    apiVersion: "2024-07-01",
    list: "listKeys",
    regenerate: { path: "regenerateKeys", member: "keyName" },
    pairs: [["Primary", "Secondary"]],
    answer: { all: members({ Primary: "primary", Secondary: "secondary" }) },
    formats: [],
    actions: actionsOf("Microsoft.Batch/batchAccounts", "listkeys", "regeneratekeys"),
    proof: {
      by: "https",
      method: "GET",
      authorization: "sharedKey",
      url: "https://{properties.accountEndpoint}/supportedimages?maxresults=1&api-version=2024-07-01.20.0",
      accepted: [200],
      rejected: [403],
      rejectedText: "AuthenticationFailed",
      documentation: `${LEARN}rest/api/batchservice/authenticate-requests-to-the-azure-batch-service`,
    },
    documentation: `${LEARN}rest/api/batchmanagement/batch-account/regenerate-key`,
  },
  {
    name: "containerRegistry",
    title: "container registry",
    type: "Microsoft.ContainerRegistry/registries",
    apiVersion: "2023-07-01",
    list: "listCredentials",
    regenerate: { path: "regenerateCredential", member: "name" },
    pairs: [["password", "password2"]],
    answer: { all: listOf("passwords", "name", ["password", "password2"]) },
    formats: [],
    actions: actionsOf("Microsoft.ContainerRegistry/registries", "listCredentials", "regenerateCredential"),
    proof: {
      by: "https",
      method: "GET",
      authorization: "basic",
      url: "https://{properties.loginServer}/v2/",
      accepted: [200],
      rejected: [401],
      documentation: "https://distribution.github.io/distribution/spec/api/#api-version-check",
    },
    documentation: `${LEARN}rest/api/container-registry/registries/regenerate-credential`,
  },
  {
    name: "iotHub",
    title: "IoT hub",
    type: "Microsoft.Devices/IotHubs",
    apiVersion: "2023-06-30",
    list: "listkeys",
    pairs: [],
    answer: { all: z.array(z.never()) },
    formats: ["sharedAccessKey"],
    actions: ["Microsoft.Devices/IotHubs/read"],
    proof: {
      by: "list",
      reason: "The service regenerates no key of an IoT hub.",
      documentation: `${LEARN}azure/iot-hub/authenticate-authorize-sas`,
    },
    documentation: `${LEARN}rest/api/iothub/iot-hub-resource/create-or-update`,
    reportOnly:
      "The keys of an IoT hub are part of the hub: a new key needs a write of the whole hub, which could undo changes of others.",
  },
];

const KINDS_BY_TYPE = new Map(KEY_KINDS.map((kind) => [kind.type.toLowerCase(), kind]));

/** Returns the kind of a resource type in any spelling. Undefined if the table has none. */
export const kindOfType = (type: string): KeyKind | undefined => KINDS_BY_TYPE.get(type.toLowerCase());

/** Returns the kind with a name of the table. */
export const kindNamed = (name: string): KeyKind | undefined => KEY_KINDS.find((kind) => kind.name === name);

/** Returns the key of the same pair, which can replace a key. @throws {TypeError} if the kind has no such key. */
export function otherKey({ pairs, title }: KeyKind, key: string): string {
  const pair = pairs.find((one) => one.includes(key));
  if (pair === undefined) throw new TypeError(`A ${title} has no key of this name.`);
  return pair[0] === key ? pair[1] : pair[0];
}
