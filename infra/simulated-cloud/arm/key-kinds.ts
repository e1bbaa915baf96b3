import type { ArmResource } from "./resource-store.ts";

/** The two or more keys of a resource, by the name that the regenerate call uses. */
export type Keys = Readonly<Record<string, string>>;

/** What a kind's list contains besides the values. */
export interface KeyListing {
  resource: ArmResource;
  keys: Keys;
  /** Returns when a key got its value, ISO 8601. */
  createdAt(key: string): string;
  /** Returns the URL of a host of this cloud. */
  origin(host: string): string;
}

/**
 * A kind of Azure resource that has two keys or more: its calls and how they differ. Each `documentation` is the page of the
 * regenerate call; the page of the list call is beside it.
 */
export interface KeyKind {
  type: string;
  /** Names of the keys in the regenerate call. */
  keys: readonly string[];
  /** Last segments of the paths, in the spelling of their actions. */
  list: string;
  regenerate: string;
  /** Member of the body that names the key. Undefined: the key is the last segment of the path. */
  parameter?: string;
  /** Number of random bytes of a key, and how they are written. */
  format: { bytes: number; encoding: "base64" | "base64url" | "hex" | "alphanumeric" };
  /** The regenerate call returns 202, and the new key is valid when the operation ends. */
  asynchronous?: true;
  /** Body of the list call. */
  body(listing: KeyListing): unknown;
  /** Body of the regenerate call, when it ends. Default: that of the list call. */
  regenerated?: (listing: KeyListing, key: string) => unknown;
  /** Code of the error for a wrong body. Default `BadRequest`. */
  invalidCode?: string;
  documentation: string;
}

const BASE64_32 = { bytes: 32, encoding: "base64" } as const;
const BASE64_64 = { bytes: 64, encoding: "base64" } as const;
const LEARN = "https://learn.microsoft.com/rest/api/";

/** Body with the members `primaryKey` and `secondaryKey`. */
const primaryAndSecondary = (primary: string, secondary: string) => ({
  primaryKey: primary,
  secondaryKey: secondary,
});

/**
 * Authorization rules of a namespace or of an entity below it. The connection string of an entity's rule names the entity:
 * https://learn.microsoft.com/azure/service-bus-messaging/service-bus-sas
 */
const authorizationRules = (type: string, documentation: string): KeyKind => ({
  type: `${type}/authorizationRules`,
  keys: ["PrimaryKey", "SecondaryKey"],
  list: "listKeys",
  regenerate: "regenerateKeys",
  parameter: "keyType",
  format: BASE64_32,
  body: ({ resource: { id, name }, keys }) => {
    const [, , , , , , , , namespace, ...below] = id.split("/");
    // `below` is `authorizationRules/NAME`, after `queues/ENTITY` or the like for the rule of an entity.
    const entity = below.length > 2 ? `;EntityPath=${below[1]}` : "";
    const connectionString = (key: string) =>
      `Endpoint=sb://${namespace}.servicebus.windows.net/;SharedAccessKeyName=${name};SharedAccessKey=${key}${entity}`;
    return {
      ...primaryAndSecondary(keys.PrimaryKey!, keys.SecondaryKey!),
      primaryConnectionString: connectionString(keys.PrimaryKey!),
      secondaryConnectionString: connectionString(keys.SecondaryKey!),
      keyName: name,
    };
  },
  documentation: `${LEARN}${documentation}/regenerate-keys`,
});

/** SignalR and Web PubSub have the same resource provider. */
const realtimeService = (type: string, host: string, documentation: string): KeyKind => ({
  type,
  keys: ["Primary", "Secondary"],
  list: "listKeys",
  regenerate: "regenerateKey",
  parameter: "keyType",
  format: BASE64_32,
  asynchronous: true,
  body: ({ resource: { name }, keys }) => {
    const connectionString = (key: string) => `Endpoint=https://${name}.${host};AccessKey=${key};Version=1.0;`;
    return {
      ...primaryAndSecondary(keys.Primary!, keys.Secondary!),
      primaryConnectionString: connectionString(keys.Primary!),
      secondaryConnectionString: connectionString(keys.Secondary!),
    };
  },
  documentation: `${LEARN}${documentation}/regenerate-key`,
});

const storageKeys = ({ keys, createdAt }: KeyListing) => ({
  keys: Object.entries(keys).map(([keyName, value]) => ({
    creationTime: createdAt(keyName),
    keyName,
    value,
    permissions: "FULL",
  })),
});

/** Names of App Configuration's keys by the key in `keys`, which is their ID without the store's part. */
const CONFIGURATION_KEYS: Record<string, string> = {
  p: "Primary",
  s: "Secondary",
  pr: "Primary Read Only",
  sr: "Secondary Read Only",
};

/** Returns the ID of an App Configuration key, which a connection string and the regenerate call contain. */
export const configurationKeyId = (store: string, key: string): string => `${store}-${key}`;

function configurationKey({ resource, keys, createdAt, origin }: KeyListing, key: string) {
  const id = configurationKeyId(resource.name, key);
  const endpoint = origin(`${resource.name.toLowerCase()}.azconfig.localhost`);
  return {
    id,
    name: CONFIGURATION_KEYS[key],
    value: keys[key],
    connectionString: `Endpoint=${endpoint};Id=${id};Secret=${keys[key]}`,
    lastModified: createdAt(key),
    readOnly: key.endsWith("r"),
  };
}

/** The table of all kinds. */
export const KEY_KINDS: readonly KeyKind[] = [
  {
    type: "Microsoft.Storage/storageAccounts",
    keys: ["key1", "key2"],
    list: "listKeys",
    regenerate: "regenerateKey",
    parameter: "keyName",
    format: BASE64_64,
    body: storageKeys,
    invalidCode: "InvalidValuesForRequestParameters",
    documentation: `${LEARN}storagerp/storage-accounts/regenerate-key`,
  },
  {
    type: "Microsoft.DocumentDB/databaseAccounts",
    keys: ["primary", "secondary", "primaryReadonly", "secondaryReadonly"],
    list: "listKeys",
    regenerate: "regenerateKey",
    parameter: "keyKind",
    format: BASE64_64,
    asynchronous: true,
    body: ({ keys }) => Object.fromEntries(Object.entries(keys).map(([key, value]) => [`${key}MasterKey`, value])),
    // The operation ends without a body.
    regenerated: () => undefined,
    documentation: `${LEARN}cosmos-db-resource-provider/database-accounts/regenerate-key`,
  },
  authorizationRules("Microsoft.ServiceBus/namespaces", "servicebus/controlplane/namespaces"),
  authorizationRules("Microsoft.ServiceBus/namespaces/queues", "servicebus/controlplane/queues"),
  authorizationRules("Microsoft.ServiceBus/namespaces/topics", "servicebus/controlplane/topics"),
  authorizationRules("Microsoft.EventHub/namespaces", "eventhub/namespaces"),
  authorizationRules("Microsoft.EventHub/namespaces/eventhubs", "eventhub/event-hubs"),
  {
    type: "Microsoft.Cache/redis",
    keys: ["Primary", "Secondary"],
    list: "listKeys",
    regenerate: "regenerateKey",
    parameter: "keyType",
    format: BASE64_32,
    body: ({ keys }) => primaryAndSecondary(keys.Primary!, keys.Secondary!),
    documentation: `${LEARN}redis/redis/regenerate-key`,
  },
  {
    type: "Microsoft.Cache/redisEnterprise/databases",
    keys: ["Primary", "Secondary"],
    list: "listKeys",
    regenerate: "regenerateKey",
    parameter: "keyType",
    format: BASE64_32,
    asynchronous: true,
    body: ({ keys }) => primaryAndSecondary(keys.Primary!, keys.Secondary!),
    documentation: `${LEARN}redis/redisenterprisecache/databases/regenerate-key`,
  },
  {
    type: "Microsoft.CognitiveServices/accounts",
    keys: ["Key1", "Key2"],
    list: "listKeys",
    regenerate: "regenerateKey",
    parameter: "keyName",
    format: { bytes: 16, encoding: "hex" },
    body: ({ keys }) => ({ key1: keys.Key1, key2: keys.Key2 }),
    documentation: `${LEARN}aiservices/accountmanagement/accounts/regenerate-key`,
  },
  {
    type: "Microsoft.Search/searchServices",
    keys: ["primary", "secondary"],
    list: "listAdminKeys",
    regenerate: "regenerateAdminKey",
    format: { bytes: 52, encoding: "alphanumeric" },
    body: ({ keys }) => primaryAndSecondary(keys.primary!, keys.secondary!),
    documentation: `${LEARN}searchmanagement/admin-keys/regenerate`,
  },
  realtimeService("Microsoft.SignalRService/SignalR", "service.signalr.net", "signalr/signal-r"),
  realtimeService("Microsoft.SignalRService/WebPubSub", "webpubsub.azure.com", "webpubsub/controlplane/web-pub-sub"),
  {
    type: "Microsoft.Maps/accounts",
    keys: ["primary", "secondary"],
    list: "listKeys",
    regenerate: "regenerateKey",
    parameter: "keyType",
    format: { bytes: 32, encoding: "base64url" },
    body: ({ keys, createdAt }) => ({
      ...primaryAndSecondary(keys.primary!, keys.secondary!),
      primaryKeyLastUpdated: createdAt("primary"),
      secondaryKeyLastUpdated: createdAt("secondary"),
    }),
    documentation: `${LEARN}maps-management/accounts/regenerate-keys`,
  },
  {
    type: "Microsoft.EventGrid/topics",
    keys: ["key1", "key2"],
    list: "listKeys",
    regenerate: "regenerateKey",
    parameter: "keyName",
    format: BASE64_32,
    asynchronous: true,
    body: ({ keys }) => ({ key1: keys.key1, key2: keys.key2 }),
    documentation: `${LEARN}eventgrid/controlplane/topics/regenerate-key`,
  },
  {
    type: "Microsoft.AppConfiguration/configurationStores",
    keys: Object.keys(CONFIGURATION_KEYS),
    list: "listKeys",
    regenerate: "regenerateKey",
    parameter: "id",
    format: BASE64_32,
    // The list has pages (key-routes.ts), and the regenerate call returns only the new key.
    body: (listing) => Object.keys(listing.keys).map((key) => configurationKey(listing, key)),
    regenerated: configurationKey,
    documentation: `${LEARN}appconfiguration/configuration-stores/regenerate-key`,
  },
  {
    type: "Microsoft.Batch/batchAccounts",
    keys: ["Primary", "Secondary"],
    list: "listKeys",
    regenerate: "regenerateKeys",
    parameter: "keyName",
    format: BASE64_64,
    body: ({ resource: { name }, keys }) => ({ accountName: name, primary: keys.Primary, secondary: keys.Secondary }),
    documentation: `${LEARN}batchmanagement/batch-account/regenerate-key`,
  },
  {
    type: "Microsoft.ContainerRegistry/registries",
    keys: ["password", "password2"],
    list: "listCredentials",
    regenerate: "regenerateCredential",
    parameter: "name",
    format: { bytes: 52, encoding: "alphanumeric" },
    body: ({ resource: { name }, keys }) => ({
      username: name,
      passwords: Object.entries(keys).map(([one, value]) => ({ name: one, value })),
    }),
    documentation: `${LEARN}container-registry/registries/regenerate-credential`,
  },
];

const KINDS_BY_TYPE = new Map(KEY_KINDS.map((kind) => [kind.type.toLowerCase(), kind]));

/** Returns the kind of a resource type. Undefined if resources of the type have no keys. */
export const keyKind = (type: string): KeyKind | undefined => KINDS_BY_TYPE.get(type.toLowerCase());
