import type { ErrorResponses, IncomingRequest, Operation, Service, ServiceResponse } from "../http.ts";
import { retryAfter } from "../http.ts";
import { hasMasterKey, hasSharedKey, isRecent, sharedAccessSignature, webTokenProblem } from "./key-signatures.ts";
import type { ResourceKeys } from "./resource-keys.ts";
import type { ArmResource, ArmStore } from "./resource-store.ts";

/** Host of Azure Maps, which is the same for all accounts. */
export const MAPS_HOST = "atlas.localhost";

/**
 * Simulates the services behind the keys of resources, as far as a read-only call proves a key. App Configuration stores are in
 * configuration-stores.ts. Redis caches and Event Grid topics have no such call.
 */
export class KeyServices {
  readonly #store: ArmStore;
  readonly #keys: ResourceKeys;

  constructor(store: ArmStore, keys: ResourceKeys) {
    this.#store = store;
    this.#keys = keys;
  }

  /** Returns the service of a resource by its host, such as `NAME.blob.localhost`. Undefined if there is none. */
  service(host: string): Service | undefined {
    if (host === MAPS_HOST) return (request) => this.#mapsOperation(request);
    const [name, domain] = [host.slice(0, host.indexOf(".")), host.slice(host.indexOf(".") + 1)];
    for (const endpoint of ENDPOINTS.filter((one) => one.domain === domain)) {
      for (const resource of this.#store.all()) {
        if (resource.type.type !== endpoint.type || resource.name.toLowerCase() !== name) continue;
        return (request) => this.#operation(endpoint, resource, request);
      }
    }
    return undefined;
  }

  #operation(endpoint: Endpoint, resource: ArmResource, request: IncomingRequest): Operation | undefined {
    const answer = endpoint.answer(resource, request);
    if (answer === undefined) return undefined;
    const refusal = endpoint.refusal(resource, request, this.#acceptedKeys(resource), (id) => this.#rule(id));
    return {
      name: endpoint.operation,
      resource: resource.id,
      anonymous: refusal !== undefined,
      errorResponses: endpoint.errorResponses,
      answer: () => refusal ?? answer,
    };
  }

  #acceptedKeys(resource: ArmResource): string[] {
    return Object.values(this.#keys.accepted(resource));
  }

  /** Returns the authorization rule with an ID, and its keys. */
  #rule(id: string): { rule: ArmResource; keys: string[] } | undefined {
    const rule = this.#store.get(id);
    return rule && { rule, keys: this.#acceptedKeys(rule) };
  }

  /** https://learn.microsoft.com/rest/api/maps/timezone/get-timezone-enum-windows. The key names the account. */
  #mapsOperation(request: IncomingRequest): Operation | undefined {
    if (request.method !== "GET" || request.path !== "/timezone/enumWindows/json") return undefined;
    const key = request.headers["subscription-key"] ?? request.query.get("subscription-key") ?? undefined;
    const account = [...this.#store.all()].find(
      (one) => one.type.type === "Microsoft.Maps/accounts" && this.#acceptedKeys(one).includes(String(key)),
    );
    const answer = (): ServiceResponse => {
      if (account === undefined)
        return jsonError(401, "401 Unauthorized", "Permission, capacity, or authentication issue.");
      if (account.properties.disableLocalAuth === true)
        return jsonError(401, "401 Unauthorized", "Local authentication is disabled.");
      return request.query.get("api-version") === "1.0"
        ? { status: 200, body: [{ WindowsId: "UTC", Territory: "001", IanaIds: ["Etc/GMT"] }] }
        : jsonError(400, "400 BadRequest", "The API version is missing or unknown.");
    };
    return {
      name: "maps.listWindowsTimeZones",
      ...(account !== undefined && { resource: account.id }),
      anonymous: account === undefined,
      errorResponses: errorResponses(jsonError),
      answer,
    };
  }
}

/** A service whose keys can be proven. */
interface Endpoint {
  type: string;
  domain: string;
  /** Name of the operation in the request log. */
  operation: string;
  /** The response to a request with a valid key. Undefined if the service has no operation at that path. */
  answer(resource: ArmResource, request: IncomingRequest): ServiceResponse | undefined;
  /**
   * The response to a request without a valid key. Undefined if the key is valid.
   *
   * @param ruleOf - Returns an authorization rule of the resource by its ID.
   */
  refusal(
    resource: ArmResource,
    request: IncomingRequest,
    keys: string[],
    ruleOf: (id: string) => { rule: ArmResource; keys: string[] } | undefined,
  ): ServiceResponse | undefined;
  errorResponses: ErrorResponses;
}

const jsonError = (status: number, code: string, message: string): ServiceResponse => ({
  status,
  body: { error: { code, message } },
});
const storageError = (status: number, code: string, message: string): ServiceResponse => ({
  status,
  headers: { "x-ms-error-code": code },
  text: {
    type: "application/xml",
    content: `<?xml version="1.0" encoding="utf-8"?><Error><Code>${code}</Code><Message>${message}</Message></Error>`,
  },
});
const batchError = (status: number, code: string, value: string): ServiceResponse => ({
  status,
  body: { code, message: { lang: "en-US", value } },
});
const messagingError = (status: number, _code: string, detail: string): ServiceResponse => ({
  status,
  text: { type: "application/xml", content: `<Error><Code>${status}</Code><Detail>${detail}</Detail></Error>` },
});
const cosmosError = (status: number, code: string, message: string): ServiceResponse => ({
  status,
  body: { code, message },
});
const registryError = (status: number, code: string, message: string): ServiceResponse => ({
  status,
  headers: { "www-authenticate": 'Bearer realm="https://azurecr.localhost/oauth2/token"' },
  body: { errors: [{ code, message, detail: null }] },
});

const atomEntry = (title: string): ServiceResponse => ({
  status: 200,
  text: {
    type: "application/atom+xml",
    content: `<entry xmlns="http://www.w3.org/2005/Atom"><title type="text">${title}</title></entry>`,
  },
});

function errorResponses(error: typeof jsonError): ErrorResponses {
  const denied = () => error(403, "Forbidden", "Access is denied due to Virtual Network/Firewall rules.");
  return {
    throttled: (seconds) => ({ ...error(429, "429", "Too many requests."), headers: retryAfter(seconds) }),
    denied,
    firewalled: denied,
    failed: (status) => error(status, "InternalServerError", "The server encountered an error. Retry the request."),
  };
}

const hasApiKey = ({ headers }: IncomingRequest, keys: string[], ...names: string[]) =>
  names.some((name) => typeof headers[name] === "string" && keys.includes(headers[name]));

/** Checks the Shared Key signature: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key */
function storageRefusal(
  { name, properties }: ArmResource,
  request: IncomingRequest,
  keys: string[],
): ServiceResponse | undefined {
  if (properties.allowSharedKeyAccess === false) {
    return storageError(
      403,
      "KeyBasedAuthenticationNotPermitted",
      "Key based authentication is not permitted on this storage account.",
    );
  }
  if (request.headers["x-ms-version"] !== undefined && hasSharedKey(name, request, keys, "x-ms-")) return undefined;
  return storageError(
    403,
    "AuthenticationFailed",
    "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.",
  );
}

/** https://learn.microsoft.com/rest/api/cosmos-db/list-databases and http-status-codes-for-cosmosdb */
function cosmosRefusal(
  { properties }: ArmResource,
  request: IncomingRequest,
  keys: string[],
): ServiceResponse | undefined {
  if (properties.disableLocalAuth === true) {
    return cosmosError(
      401,
      "Unauthorized",
      "Local Authorization is disabled. Use an AAD token to authorize all requests.",
    );
  }
  if (request.headers["x-ms-version"] === undefined) {
    return cosmosError(400, "BadRequest", "The header x-ms-version is missing.");
  }
  if (!isRecent(request, "x-ms-date")) {
    return cosmosError(403, "Forbidden", "The authorization token is not valid at the current time.");
  }
  return hasMasterKey(request, keys)
    ? undefined
    : cosmosError(
        401,
        "Unauthorized",
        "The input authorization token can't serve the request. The wrong key is being used or the expected payload is not built as per the protocol.",
      );
}

/**
 * A rule of the entity or of the namespace signs the token. Reading a description needs the right Manage:
 * https://learn.microsoft.com/azure/service-bus-messaging/service-bus-sas#rights-required-for-service-bus-operations
 */
function messagingRefusal(
  { id, properties }: ArmResource,
  request: IncomingRequest,
  _keys: string[],
  ruleOf: (id: string) => { rule: ArmResource; keys: string[] } | undefined,
): ServiceResponse | undefined {
  const token = sharedAccessSignature(request);
  if (token === undefined)
    return messagingError(401, "", "MalformedToken: The authorization header is missing or malformed.");
  if (properties.disableLocalAuth === true) {
    return messagingError(401, "", "LocalAuthDisabled: SAS authentication is disabled for the namespace.");
  }
  const entity = request.segments[0] ?? "";
  if (token.isExpired) return messagingError(401, "", "ExpiredToken: The token is expired.");
  if (token.host !== request.host || (token.entity !== "" && token.entity !== entity)) {
    return messagingError(401, "", "InvalidAudience: The token is for another resource.");
  }
  // The rule can be one of the namespace or of the entity. Both can have the same name, so the signature decides.
  const owners = [id, ...["queues", "topics", "eventhubs"].map((collection) => `${id}/${collection}/${entity}`)];
  const found = owners.flatMap((owner) => ruleOf(`${owner}/authorizationRules/${token.rule}`) ?? []);
  const signer = found.find(({ keys }) => token.isSignedBy(keys));
  if (signer === undefined) return messagingError(401, "", "InvalidSignature: The token has an invalid signature.");
  const { rights = ["Manage", "Send", "Listen"] } = signer.rule.properties as { rights?: string[] };
  return rights.includes("Manage")
    ? undefined
    : messagingError(401, "", "Manage,EntityRead claims required for this operation.");
}

/** A path with one version: the description of the namespace or of an entity, or a list of entities. */
const messagingAnswer =
  (version: string, namespacePath: string) =>
  (_: ArmResource, { method, path, segments, query }: IncomingRequest): ServiceResponse | undefined => {
    const isKnown = path === namespacePath || (segments.length === 1 && segments[0] !== "" && !path.startsWith("/$"));
    if (method !== "GET" || !isKnown) return undefined;
    return query.get("api-version") === version
      ? atomEntry(segments.at(-1)!)
      : messagingError(400, "", "The api-version is missing or not supported.");
  };

/** A HEAD of a connection proves the key with 404: the connection does not exist, but the token was accepted. */
const realtimeAnswer =
  (versions: readonly string[]) =>
  (_: ArmResource, { method, path, query }: IncomingRequest): ServiceResponse | undefined => {
    if (path === "/api/health") return { status: 200 };
    if (method !== "HEAD" || !/^\/api\/hubs\/[A-Za-z]\w*\/connections\/[^/]+$/.test(path)) return undefined;
    return versions.includes(query.get("api-version") ?? "") ? { status: 404 } : { status: 400 };
  };

/** The health endpoint checks no token. */
function realtimeRefusal(
  { properties }: ArmResource,
  request: IncomingRequest,
  keys: string[],
): ServiceResponse | undefined {
  if (request.path === "/api/health") return undefined;
  return properties.disableLocalAuth === true || webTokenProblem(request, keys) !== undefined
    ? { status: 401, headers: { "www-authenticate": "Bearer" } }
    : undefined;
}

const ENDPOINTS: readonly Endpoint[] = [
  {
    // https://learn.microsoft.com/rest/api/storageservices/get-account-information
    type: "Microsoft.Storage/storageAccounts",
    domain: "blob.localhost",
    operation: "storage.getAccountInformation",
    answer: ({ kind = "StorageV2" }, { method, path, query }) =>
      ["GET", "HEAD"].includes(method) &&
      path === "/" &&
      query.get("restype") === "account" &&
      query.get("comp") === "properties"
        ? { status: 200, headers: { "x-ms-sku-name": "Standard_LRS", "x-ms-account-kind": kind } }
        : undefined,
    refusal: storageRefusal,
    errorResponses: errorResponses(storageError),
  },
  {
    // https://learn.microsoft.com/rest/api/storageservices/get-queue-service-properties
    type: "Microsoft.Storage/storageAccounts",
    domain: "queue.localhost",
    operation: "storage.getQueueServiceProperties",
    answer: (_, { method, path, query }) =>
      method === "GET" && path === "/" && query.get("restype") === "service" && query.get("comp") === "properties"
        ? {
            status: 200,
            text: {
              type: "application/xml",
              content: '<?xml version="1.0" encoding="utf-8"?><StorageServiceProperties></StorageServiceProperties>',
            },
          }
        : undefined,
    refusal: storageRefusal,
    errorResponses: errorResponses(storageError),
  },
  {
    // https://learn.microsoft.com/azure/ai-services/authentication and
    // https://learn.microsoft.com/azure/ai-foundry/openai/reference (Models - List)
    type: "Microsoft.CognitiveServices/accounts",
    domain: "cognitiveservices.localhost",
    operation: "aiServices.listModels",
    answer: (_, { method, path, query }) => {
      if (method === "POST" && path === "/sts/v1.0/issueToken") {
        return { status: 200, text: { type: "application/jwt; charset=us-ascii", content: "sample.token.text" } };
      }
      if (method !== "GET" || path !== "/openai/models") return undefined;
      return query.has("api-version")
        ? { status: 200, body: { object: "list", data: [] } }
        : jsonError(404, "404", "Resource not found");
    },
    refusal: ({ properties }, request, keys) => {
      if (properties.disableLocalAuth === true) {
        return jsonError(403, "AuthenticationTypeDisabled", "Key based authentication is disabled for this resource.");
      }
      return hasApiKey(request, keys, "api-key", "ocp-apim-subscription-key")
        ? undefined
        : jsonError(
            401,
            "401",
            "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid key for an active subscription and use a correct regional API endpoint for your resource.",
          );
    },
    errorResponses: errorResponses(jsonError),
  },
  {
    // https://learn.microsoft.com/rest/api/searchservice/get-service-statistics
    type: "Microsoft.Search/searchServices",
    domain: "search.localhost",
    operation: "search.getServiceStatistics",
    answer: (_, { method, path, query }) => {
      if (method !== "GET" || path !== "/servicestats") return undefined;
      return query.has("api-version")
        ? { status: 200, body: { counters: { indexesCount: { usage: 0, quota: 15 } }, limits: {} } }
        : jsonError(400, "MissingApiVersionParameter", "The api-version query parameter is required.");
    },
    refusal: (_, request, keys) => (hasApiKey(request, keys, "api-key") ? undefined : { status: 403 }),
    errorResponses: errorResponses(jsonError),
  },
  {
    // https://learn.microsoft.com/rest/api/cosmos-db/list-databases
    type: "Microsoft.DocumentDB/databaseAccounts",
    domain: "documents.localhost",
    operation: "cosmos.listDatabases",
    answer: (_, { method, path }) =>
      method === "GET" && path === "/dbs" ? { status: 200, body: { _rid: "", Databases: [], _count: 0 } } : undefined,
    refusal: cosmosRefusal,
    errorResponses: errorResponses(cosmosError),
  },
  {
    // https://learn.microsoft.com/rest/api/servicebus/entity/get and namespace/get
    type: "Microsoft.ServiceBus/namespaces",
    domain: "servicebus.localhost",
    operation: "serviceBus.getEntity",
    answer: messagingAnswer("2017-04", "/$namespaceinfo"),
    refusal: messagingRefusal,
    errorResponses: errorResponses(messagingError),
  },
  {
    // https://learn.microsoft.com/rest/api/eventhub/get-event-hub and list-event-hubs
    type: "Microsoft.EventHub/namespaces",
    domain: "servicebus.localhost",
    operation: "eventHubs.getEntity",
    answer: messagingAnswer("2014-01", "/$Resources/EventHubs"),
    refusal: messagingRefusal,
    errorResponses: errorResponses(messagingError),
  },
  {
    // https://learn.microsoft.com/azure/azure-signalr/signalr-reference-data-plane-rest-api
    type: "Microsoft.SignalRService/SignalR",
    domain: "signalr.localhost",
    operation: "signalr.connectionExists",
    answer: realtimeAnswer(["2022-06-01", "2022-11-01"]),
    refusal: realtimeRefusal,
    errorResponses: errorResponses(jsonError),
  },
  {
    // https://learn.microsoft.com/rest/api/webpubsub/dataplane/web-pub-sub/connection-exists
    type: "Microsoft.SignalRService/WebPubSub",
    domain: "webpubsub.localhost",
    operation: "webPubSub.connectionExists",
    answer: realtimeAnswer(["2022-11-01", "2023-07-01", "2024-01-01"]),
    refusal: realtimeRefusal,
    errorResponses: errorResponses(jsonError),
  },
  {
    // https://learn.microsoft.com/rest/api/batchservice/pool/list
    type: "Microsoft.Batch/batchAccounts",
    domain: "batch.localhost",
    operation: "batch.listPools",
    answer: (_, { method, path, query }) => {
      if (method !== "GET" || path !== "/pools") return undefined;
      return query.has("api-version")
        ? { status: 200, body: { value: [] } }
        : batchError(400, "MissingRequiredQueryParameter", "A query parameter that's mandatory was not specified.");
    },
    refusal: ({ name }, request, keys) =>
      hasSharedKey(name, request, keys, "ocp-")
        ? undefined
        : batchError(403, "AuthenticationFailed", "Server failed to authenticate the request."),
    errorResponses: errorResponses(batchError),
  },
  {
    // https://distribution.github.io/distribution/spec/api/#api-version-check
    type: "Microsoft.ContainerRegistry/registries",
    domain: "azurecr.localhost",
    operation: "containerRegistry.checkApi",
    answer: (_, { method, path }) =>
      method === "GET" && path === "/v2/"
        ? { status: 200, headers: { "docker-distribution-api-version": "registry/2.0" }, body: {} }
        : undefined,
    refusal: ({ name, properties }, { headers }, keys) => {
      const [, encoded = ""] = /^Basic (.+)$/.exec(headers.authorization ?? "") ?? [];
      const credentials = Buffer.from(encoded, "base64").toString("utf8");
      const isValid = properties.adminUserEnabled === true && keys.some((key) => credentials === `${name}:${key}`);
      return isValid ? undefined : registryError(401, "UNAUTHORIZED", "authentication required");
    },
    errorResponses: errorResponses(registryError),
  },
];

/** Domains of all services whose keys can be proven. */
export const KEY_SERVICE_DOMAINS: readonly string[] = [...new Set(ENDPOINTS.map(({ domain }) => domain))];
