import * as z from "zod";
import type { ResourceDomains } from "../../platform/config/clouds.ts";
import type { ConnectionStringFormat } from "./connection-strings.ts";

/** A key of a resource with its value. Do not store or log the value. */
export interface ListedKey {
  /** The name in `KeyKind.pairs`. */
  name: string;
  /** The text that names the key in the regenerate call. The same as `name`, except in App Configuration. */
  id: string;
  value: string;
}

/** How a request is authorized with a key. key-requests.ts has one function for each. */
export type KeyScheme =
  | { name: "header"; header: string }
  | { name: "basic" | "masterKey" | "sharedAccessSignature" | "storageSharedKey" | "batchSharedKey" | "jwt" };

/**
 * The call that proves a key and changes nothing.
 *
 * - `https`: a request. A status in `accepted` proves the key. A status in `refused` is a 401 or 403, which also has other
 *   causes: a firewall, disabled keys, a missing right. Only if the resource accepts the same request with the other key of the
 *   pair, it proves that the key is invalid. All other statuses prove nothing.
 * - `appConfiguration`: a request of Azure's client library for App Configuration.
 * - `list`: no request proves the key without a change, so only the list of keys does.
 */
export type KeyProof =
  | {
      by: "https";
      method: "GET" | "HEAD";
      scheme: KeyScheme;
      /** Path in the resource's `properties` to its host or address. Undefined: the same host for all resources. */
      address: string | undefined;
      /** Domains that the address must be in. */
      domains: keyof ResourceDomains | undefined;
      /** Path and query. `{entity}`: the name of the rule's queue, topic or event hub. */
      path: string;
      accepted: readonly number[];
      refused: readonly number[];
      documentation: string;
    }
  | { by: "appConfiguration"; request: string; documentation: string }
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

/**
 * Returns the actions of a kind, spelled as in Azure's list of permissions: the last segment can differ from that of the call in
 * upper and lower case. Lists of parents need `read` on each of them.
 */
const actionsOf = (type: string, list: string, regenerate: string, ...reads: string[]): string[] => [
  ...reads.map((one) => `${one}/read`),
  `${type}/read`,
  `${type}/${list}/action`,
  `${type}/${regenerate}/action`,
];

/**
 * Authorization rules of Service Bus and Event Hubs, on the namespace or on an entity. The proof needs the right Manage. Without
 * it, the service answers 401 to a valid key too, and no harmless request needs only the right Send or Listen.
 */
function rules(
  name: string,
  title: string,
  namespace: string,
  entity: string | undefined,
  { page, proof }: { page: string; proof: Pick<Extract<KeyProof, { by: "https" }>, "path" | "documentation"> },
): KeyKind {
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
      scheme: { name: "sharedAccessSignature" },
      address: "serviceBusEndpoint",
      domains: "messaging",
      accepted: [200],
      refused: [401],
      ...proof,
    },
    documentation: `${LEARN}rest/api/${page}/regenerate-keys`,
  };
}

/**
 * SignalR and Web PubSub, which have the same resource provider. Their health endpoints check no key, so the proof asks for a
 * connection that does not exist. 404: the token is valid.
 */
const realtime = (
  name: string,
  title: string,
  type: string,
  domains: "signalr" | "webPubSub",
  { page, proof }: { page: string; proof: { version: string; documentation: string } },
): KeyKind => ({
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
    scheme: { name: "jwt" },
    address: "hostName",
    domains,
    path: `/api/hubs/probe/connections/none?api-version=${proof.version}`,
    accepted: [200, 404],
    refused: [401, 403],
    documentation: proof.documentation,
  },
  documentation: `${LEARN}rest/api/${page}`,
});

const CONFIGURATION_NAMES = ["Primary", "Secondary", "Primary Read Only", "Secondary Read Only"] as const;

const NO_REDIS = "The key is sent over the Redis protocol, which the service does not use.";

/** Returns the proof of a kind whose key is a header of a GET request. */
const headerProof = (
  header: string,
  address: Pick<Extract<KeyProof, { by: "https" }>, "address" | "domains" | "path" | "documentation">,
): KeyProof => ({
  by: "https",
  method: "GET",
  scheme: { name: "header", header },
  accepted: [200],
  refused: [401, 403],
  ...address,
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
      scheme: { name: "storageSharedKey" },
      address: "primaryEndpoints.queue",
      domains: "storage",
      path: "/?restype=service&comp=properties",
      accepted: [200],
      refused: [403],
      documentation: `${LEARN}rest/api/storageservices/get-queue-service-properties`,
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
      scheme: { name: "masterKey" },
      address: "documentEndpoint",
      domains: "cosmos",
      path: "/dbs",
      accepted: [200],
      refused: [401, 403],
      documentation: `${LEARN}rest/api/cosmos-db/access-control-on-cosmosdb-resources`,
    },
    documentation: `${LEARN}rest/api/cosmos-db-resource-provider/database-accounts/regenerate-key`,
  },
  ...(
    [
      ["serviceBus", "Service Bus namespace rule", undefined, "namespaces", "$namespaceinfo"],
      ["serviceBusQueue", "Service Bus queue rule", "queues", "queues", "{entity}"],
      ["serviceBusTopic", "Service Bus topic rule", "topics", "topics", "{entity}"],
    ] as const
  ).map(([name, title, entity, page, path]) =>
    rules(name, title, "Microsoft.ServiceBus/namespaces", entity, {
      page: `servicebus/controlplane/${page}`,
      proof: {
        path: `/${path}?api-version=2017-04`,
        documentation: `${LEARN}rest/api/servicebus/${entity === undefined ? "namespace/get" : "entity/get"}`,
      },
    }),
  ),
  ...(
    [
      ["eventHubs", "Event Hubs namespace rule", undefined, "namespaces", "$Resources/EventHubs", "list-event-hubs"],
      ["eventHub", "event hub rule", "eventhubs", "event-hubs", "{entity}", "get-event-hub"],
    ] as const
  ).map(([name, title, entity, page, path, call]) =>
    rules(name, title, "Microsoft.EventHub/namespaces", entity, {
      page: `eventhub/${page}`,
      proof: { path: `/${path}?api-version=2014-01`, documentation: `${LEARN}rest/api/eventhub/${call}` },
    }),
  ),
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
    proof: { by: "list", reason: NO_REDIS, documentation: "https://redis.io/docs/latest/commands/auth/" },
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
    proof: { by: "list", reason: NO_REDIS, documentation: "https://redis.io/docs/latest/commands/auth/" },
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
    // For accounts of the kinds OpenAI and AIServices. Others have no common call that lists something.
    proof: headerProof("api-key", {
      address: "endpoint",
      domains: "aiServices",
      path: "/openai/models?api-version=2024-10-21",
      documentation: `${LEARN}rest/api/azureopenai/models/list`,
    }),
    documentation: `${LEARN}rest/api/aiservices/accountmanagement/accounts/regenerate-key`,
  },
  {
    name: "search",
    title: "AI Search service",
    type: "Microsoft.Search/searchServices",
    // The first version whose resources have an endpoint.
    apiVersion: "2025-05-01",
    list: "listAdminKeys",
    regenerate: { path: "regenerateAdminKey" },
    pairs: [["primary", "secondary"]],
    answer: { all: members({ primary: "primaryKey", secondary: "secondaryKey" }) },
    formats: [],
    actions: actionsOf("Microsoft.Search/searchServices", "listAdminKeys", "regenerateAdminKey"),
    proof: headerProof("api-key", {
      address: "endpoint",
      domains: "search",
      path: "/servicestats?api-version=2024-07-01",
      documentation: `${LEARN}rest/api/searchservice/get-service-statistics/get-service-statistics`,
    }),
    documentation: `${LEARN}rest/api/searchmanagement/admin-keys/regenerate`,
  },
  realtime("signalr", "SignalR service", "Microsoft.SignalRService/SignalR", "signalr", {
    page: "signalr",
    proof: {
      version: "2022-06-01",
      documentation: `${LEARN}azure/azure-signalr/signalr-reference-data-plane-rest-api`,
    },
  }),
  realtime("webPubSub", "Web PubSub service", "Microsoft.SignalRService/WebPubSub", "webPubSub", {
    page: "webpubsub",
    proof: {
      version: "2023-07-01",
      documentation: `${LEARN}rest/api/webpubsub/dataplane/web-pub-sub/connection-exists`,
    },
  }),
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
    proof: headerProof("subscription-key", {
      address: undefined,
      domains: undefined,
      path: "/timezone/enumWindows/json?api-version=1.0",
      documentation: `${LEARN}rest/api/maps/timezone/get-timezone-enum-windows`,
    }),
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
      by: "appConfiguration",
      request: "GET /kv?key=none",
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
      scheme: { name: "batchSharedKey" },
      address: "accountEndpoint",
      domains: "batch",
      path: "/pools?maxresults=1&api-version=2024-07-01.20.0",
      accepted: [200],
      refused: [401, 403],
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
      scheme: { name: "basic" },
      address: "loginServer",
      domains: "containerRegistry",
      path: "/v2/",
      accepted: [200],
      refused: [401, 403],
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

/** Whether a request to the resource proves a new key. */
export const isProvenByRequest = ({ proof }: KeyKind): boolean => proof.by !== "list";

/**
 * Returns the request that proves a new key, for people. Undefined if only the list of keys proves it.
 *
 * @param entity - Name of the queue, topic or event hub of a rule.
 */
export function requestOf({ proof }: KeyKind, entity = "{entity}"): string | undefined {
  if (proof.by === "list") return undefined;
  return proof.by === "appConfiguration"
    ? proof.request
    : `${proof.method} ${proof.path.replace(/[?&](api-version|maxresults)=[^&]*/g, "").replace("{entity}", entity)}`;
}
