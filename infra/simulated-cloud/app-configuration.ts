import { createHash, randomBytes } from "node:crypto";
import { signatureProblem } from "./hmac.ts";
import {
  type ErrorResponses,
  type IncomingRequest,
  jsonObject,
  type Operation,
  retryAfter,
  type ServiceResponse,
} from "./http.ts";
import { bearerToken, type Tokens, tokenProblem } from "./tokens.ts";

/** Audience of App Configuration tokens: the domain of the store, as in Azure (`azconfig.io`). */
export const CONFIGURATION_AUDIENCE = "https://azconfig.localhost";

interface KeyValue {
  key: string;
  label: string | null;
  content_type: string | null;
  value: string | null;
  tags: Record<string, string>;
  locked: boolean;
  last_modified: string;
  etag: string;
}

/** Key-values per page of a list: https://learn.microsoft.com/azure/azure-app-configuration/rest-api-key-value#pagination */
const PAGE_SIZE = 100;
/** Content types of one key-value, a list, and an error. */
const ITEM = "application/vnd.microsoft.appconfig.kv+json; charset=utf-8";
const LIST = "application/vnd.microsoft.appconfig.kvset+json; charset=utf-8";
const PROBLEM = "application/problem+json; charset=utf-8";

/**
 * Simulates the key-value API of one Azure App Configuration store:
 * https://learn.microsoft.com/azure/azure-app-configuration/rest-api-key-value
 */
export class AppConfiguration {
  readonly #keyOf: (credential: string) => Buffer | undefined;
  readonly #tokens: Tokens;
  readonly #pageSize: number;
  /** Key-values by storage key. */
  readonly #values = new Map<string, KeyValue>();
  /** ID of the sync token. Each response contains the token with a sequence number, which each change increments. */
  readonly #syncId = randomBytes(6).toString("base64url");
  #sequence = 0;

  /** @param keyOf Returns the access key with an ID. Undefined if there is none. */
  constructor(keyOf: (credential: string) => Buffer | undefined, tokens: Tokens, pageSize = PAGE_SIZE) {
    this.#keyOf = keyOf;
    this.#tokens = tokens;
    this.#pageSize = pageSize;
  }

  /** Sets a value without a request, for tests. Undefined removes the key-value. */
  set(key: string, value: string | undefined, label: string | null = null, contentType: string | null = null): void {
    if (value === undefined) this.#values.delete(storageKey(key, label));
    else this.#store(key, label, value, contentType, {});
  }

  readonly service = (request: IncomingRequest): Operation | undefined => {
    const { method, segments } = request;
    if (segments[0] !== "kv" || segments.length > 2) return undefined;
    const key = segments[1];
    const operation = this.#operationFor(method, key, request);
    if (operation === undefined) return undefined;
    const { authorization } = request.headers;
    const problem =
      bearerToken(authorization) === undefined
        ? this.#signatureProblem(request)
        : tokenProblem(this.#tokens, authorization, CONFIGURATION_AUDIENCE);
    return {
      name: operation.name,
      ...(key !== undefined && { item: key }),
      anonymous: problem !== undefined,
      errorResponses,
      answer: () => {
        if (problem !== undefined) {
          return {
            ...failure(401, "Unauthorized", problem),
            headers: { "www-authenticate": 'HMAC-SHA256, Bearer error="invalid_token"' },
          };
        }
        if (!request.query.get("api-version")) return failure(400, "API version is not supported", "It is missing.");
        const answer = operation.answer();
        const token = `${this.#syncId}=${Buffer.from(String(this.#sequence)).toString("base64")};sn=${this.#sequence}`;
        return { ...answer, headers: { ...answer.headers, "sync-token": token } };
      },
    };
  };

  #signatureProblem(request: IncomingRequest): string | undefined {
    const [, credential = ""] = /[ &]Credential=([^&]*)/.exec(request.headers.authorization ?? "") ?? [];
    const key = this.#keyOf(credential);
    return key === undefined ? "The credential is unknown." : signatureProblem(request, key);
  }

  /** Returns the operation of a method and path. Undefined if there is none. */
  #operationFor(method: string, key: string | undefined, request: IncomingRequest) {
    const label = labelIn(request);
    if (key === undefined) {
      return method === "GET" ? { name: "appconfiguration.list", answer: () => this.#list(request) } : undefined;
    }
    switch (method) {
      case "GET":
        return { name: "appconfiguration.get", answer: () => this.#get(key, label, request) };
      case "PUT":
        return { name: "appconfiguration.set", answer: () => this.#put(key, label, request) };
      case "DELETE":
        return { name: "appconfiguration.delete", answer: () => this.#delete(key, label, request) };
      default:
        return undefined;
    }
  }

  #get(key: string, label: string | null, request: IncomingRequest): ServiceResponse {
    const stored = this.#values.get(storageKey(key, label));
    if (stored === undefined) return { status: 404 };
    const conditionFailure = failedCondition(stored, request, 304);
    return conditionFailure ?? item(stored);
  }

  #put(key: string, label: string | null, request: IncomingRequest): ServiceResponse {
    const body = jsonObject(request);
    if (body === undefined) return failure(400, "Invalid request body", "The body must be a JSON object.");
    const { value, content_type: contentType, tags } = body;
    if (value !== undefined && value !== null && typeof value !== "string") {
      return failure(400, "Invalid request body", "value must be a string.");
    }
    const conditionFailure = failedCondition(this.#values.get(storageKey(key, label)), request, 412);
    if (conditionFailure !== undefined) return conditionFailure;
    const stored = this.#store(
      key,
      label,
      value ?? null,
      typeof contentType === "string" ? contentType : null,
      typeof tags === "object" && tags !== null ? (tags as Record<string, string>) : {},
    );
    return item(stored);
  }

  #delete(key: string, label: string | null, request: IncomingRequest): ServiceResponse {
    const stored = this.#values.get(storageKey(key, label));
    const conditionFailure = failedCondition(stored, request, 412);
    if (conditionFailure !== undefined) return conditionFailure;
    if (stored === undefined) return { status: 204 };
    this.#values.delete(storageKey(key, label));
    this.#sequence++;
    return item(stored);
  }

  #list(request: IncomingRequest): ServiceResponse {
    const [keys, labels] = [parameter(request, "key") ?? "*", parameter(request, "label")];
    // `after` is the storage key of the last key-value of the previous page, base64url. In a filter, NUL means "no label".
    const afterCursor = parameter(request, "after");
    const matching = [...this.#values.entries()]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .filter(([, one]) => matches(one.key, keys) && (labels === null || matches(one.label ?? "\0", labels)));
    const remaining =
      afterCursor === null
        ? matching
        : matching.filter(([name]) => name > Buffer.from(afterCursor, "base64url").toString());
    const page = remaining.slice(0, this.#pageSize);
    const items = page.map(([, one]) => one);
    const etag = `"${createHash("sha256")
      .update(items.map((one) => one.etag).join())
      .digest("base64url")}"`;
    if (request.headers["if-none-match"] === etag) return { status: 304, headers: { etag } };

    const headers: Record<string, string> = { "content-type": LIST, etag };
    if (remaining.length <= this.#pageSize) return { status: 200, headers, body: { items, etag } };
    const query = new URLSearchParams(request.query);
    query.set("after", Buffer.from(page.at(-1)![0]).toString("base64url"));
    const nextLink = `/kv?${query}`;
    headers.link = `<${nextLink}>; rel="next"`;
    return { status: 200, headers, body: { items, etag, "@nextLink": nextLink } };
  }

  #store(
    key: string,
    label: string | null,
    value: string | null,
    contentType: string | null,
    tags: Record<string, string>,
  ): KeyValue {
    const stored: KeyValue = {
      etag: randomBytes(20).toString("base64url"),
      key,
      label,
      content_type: contentType,
      value,
      tags,
      locked: false,
      last_modified: new Date().toISOString().replace("Z", "+00:00"),
    };
    this.#values.set(storageKey(key, label), stored);
    this.#sequence++;
    return stored;
  }
}

/** Key in the map of key-values: key and label, separated by NUL. The label is empty if there is none. */
const storageKey = (key: string, label: string | null) => `${key}\0${label ?? ""}`;

function item(value: KeyValue): ServiceResponse {
  const headers = {
    "content-type": ITEM,
    etag: `"${value.etag}"`,
    "last-modified": new Date(value.last_modified).toUTCString(),
  };
  return { status: 200, headers, body: value };
}

/** App Configuration ignores the case of query parameter names. */
function parameter({ query }: IncomingRequest, name: string): string | null {
  for (const [key, value] of query) if (key.toLowerCase() === name) return value;
  return null;
}

/** Returns the label of a request. The empty label is null. */
function labelIn(request: IncomingRequest): string | null {
  const label = parameter(request, "label");
  return label === null || label === "" || label === "\0" ? null : label;
}

/** Returns whether a name matches a filter: a name, a prefix that ends with `*`, or several of these separated by commas. */
function matches(text: string, filter: string): boolean {
  return filter
    .split(/(?<!\\),/)
    .map((part) => part.replace(/\\(.)/g, "$1"))
    .some((part) => (part.endsWith("*") ? text.startsWith(part.slice(0, -1)) : text === part));
}

/**
 * Checks If-Match and If-None-Match. Returns the response if a condition fails, otherwise undefined.
 * @param status Status for a failed If-None-Match.
 */
function failedCondition(
  keyValue: KeyValue | undefined,
  { headers }: IncomingRequest,
  status: 304 | 412,
): ServiceResponse | undefined {
  const hasEtag = (etag: string) =>
    keyValue !== undefined && (etag === "*" || etag.replaceAll('"', "") === keyValue.etag);
  const { "if-match": match, "if-none-match": noneMatch } = headers;
  if (match !== undefined && !hasEtag(match)) return { status: 412 };
  if (noneMatch !== undefined && hasEtag(noneMatch)) return { status };
  return undefined;
}

function failure(status: number, title: string, detail: string): ServiceResponse {
  const type = "https://azconfig.io/errors/invalid-argument";
  return { status, headers: { "content-type": PROBLEM }, body: { type, title, status, detail } };
}

const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({
    status: 429,
    headers: {
      "content-type": PROBLEM,
      ...retryAfter(seconds),
      ...(seconds !== undefined && { "retry-after-ms": String(seconds * 1000) }),
    },
    body: {
      type: "https://azconfig.io/errors/too-many-requests",
      title: "Resource utilization has surpassed the assigned quota",
      policy: "Total Requests",
      status: 429,
    },
  }),
  denied: () => failure(403, "Forbidden", "The access key may not do this."),
  firewalled: () => failure(403, "Forbidden", "Access to the requested resource is forbidden from this address."),
  failed: (status) => failure(status, "Internal Server Error", "An error has occurred."),
};
