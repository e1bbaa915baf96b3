import { createHmac, timingSafeEqual } from "node:crypto";
import type { ErrorResponses, IncomingRequest, Operation, Service, ServiceResponse } from "../http.ts";
import { retryAfter } from "../http.ts";
import type { ResourceKeys } from "./resource-keys.ts";
import type { ArmResource, ArmStore } from "./resource-store.ts";

/** Maximum clock skew of a signed request: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key */
const MAX_SKEW_MS = 15 * 60 * 1000;

/**
 * Simulates the services behind the keys of storage accounts, AI services and AI Search, as far as a read-only call proves a
 * key. App Configuration stores are in configuration-stores.ts.
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
    const [name, domain] = [host.slice(0, host.indexOf(".")), host.slice(host.indexOf(".") + 1)];
    const endpoint = ENDPOINTS.find((one) => one.domain === domain);
    if (endpoint === undefined) return undefined;
    for (const resource of this.#store.all()) {
      if (resource.type.type !== endpoint.type || resource.name.toLowerCase() !== name) continue;
      return (request) => this.#operation(endpoint, resource, request);
    }
    return undefined;
  }

  #operation(endpoint: Endpoint, resource: ArmResource, request: IncomingRequest): Operation | undefined {
    const answer = endpoint.answer(resource, request);
    if (answer === undefined) return undefined;
    const refusal = endpoint.refusal(resource, request, Object.values(this.#keys.current(resource)));
    return {
      name: endpoint.operation,
      resource: resource.id,
      anonymous: refusal !== undefined,
      errorResponses: endpoint.errorResponses,
      answer: () => refusal ?? answer,
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
  /** The response to a request without a valid key. Undefined if the key is valid. */
  refusal(resource: ArmResource, request: IncomingRequest, keys: string[]): ServiceResponse | undefined;
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
];

/** Checks the Shared Key signature: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key */
function storageRefusal(
  { name, properties }: ArmResource,
  request: IncomingRequest,
  keys: string[],
): ServiceResponse | undefined {
  const failed = storageError(
    403,
    "AuthenticationFailed",
    "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.",
  );
  if (properties.allowSharedKeyAccess === false) {
    return storageError(
      403,
      "KeyBasedAuthenticationNotPermitted",
      "Key based authentication is not permitted on this storage account.",
    );
  }
  const { headers } = request;
  const [, account, signature = ""] = /^SharedKey ([^:]+):(.+)$/.exec(headers.authorization ?? "") ?? [];
  const date = String(headers["x-ms-date"] ?? "");
  if (account !== name || headers["x-ms-version"] === undefined) return failed;
  if (!(Math.abs(Date.parse(date) - Date.now()) <= MAX_SKEW_MS)) return failed;
  const text = textToSign(name, request);
  const claimed = Buffer.from(signature, "base64");
  const isValid = keys.some((key) => {
    const expected = createHmac("sha256", Buffer.from(key, "base64")).update(text, "utf8").digest();
    return claimed.length === expected.length && timingSafeEqual(claimed, expected);
  });
  return isValid ? undefined : failed;
}

/** Standard headers in the order in which they are signed. An empty body has an empty length. */
const SIGNED_HEADERS = [
  "content-encoding",
  "content-language",
  "content-length",
  "content-md5",
  "content-type",
  "date",
  "if-modified-since",
  "if-match",
  "if-none-match",
  "if-unmodified-since",
  "range",
];

function textToSign(account: string, { method, headers, path, query }: IncomingRequest): string {
  const header = (name: string) => (name === "content-length" && headers[name] === "0" ? "" : (headers[name] ?? ""));
  const own = Object.keys(headers)
    .filter((name) => name.startsWith("x-ms-"))
    .sort()
    .map((name) => `${name}:${String(headers[name]).trim()}`);
  const parameters = [...new Set(query.keys())]
    .map((name) => `${name.toLowerCase()}:${query.getAll(name).sort().join(",")}`)
    .sort();
  return [method, ...SIGNED_HEADERS.map(header), ...own, `/${account}${path}`, ...parameters].join("\n");
}
