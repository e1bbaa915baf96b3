import { randomUUID } from "node:crypto";
import {
  type ErrorResponses,
  type IncomingRequest,
  jsonObject,
  type Operation,
  retryAfter,
  type ServiceResponse,
} from "../http.ts";

/** Maximum size of a Secret's data: https://kubernetes.io/docs/concepts/configuration/secret */
const MAX_DATA_BYTES = 1024 * 1024;

/** `details` of every error response: the kind of the object, a Secret of the core API group. */
const ERROR_DETAILS = { group: "", resource: "secrets", apiVersion: "v1" };

interface Secret {
  name: string;
  uid: string;
  /** The `resourceVersion`. Each change gets the next number of the cluster. */
  version: number;
  annotations: Record<string, string>;
  labels: Record<string, string>;
  type: string;
  data: Record<string, string>;
  immutable: boolean;
  /** Managers of each managed field, such as `data.value`. */
  managers: Map<string, Set<string>>;
}

/** Members of a Secret in a request body. */
interface SecretInput {
  metadata?: {
    name?: string;
    resourceVersion?: string;
    annotations?: Record<string, string>;
    labels?: Record<string, string>;
  };
  type?: string;
  data?: Record<string, string>;
}

/** An error that the response reports as a `Status`. */
class KubernetesError extends Error {
  readonly answer: ServiceResponse;
  constructor(answer: ServiceResponse) {
    super("Kubernetes error");
    this.answer = answer;
  }
}

/**
 * Simulates the Kubernetes API for the Secrets of one namespace: metadata-only requests, conflicts by `resourceVersion`,
 * server-side apply and field managers. https://kubernetes.io/docs/reference/using-api
 */
export class Kubernetes {
  readonly token: string;
  readonly namespace = "payments";
  readonly #secrets = new Map<string, Secret>();
  /** The newest `resourceVersion`. All Secrets share the counter, as in a cluster. */
  #version = 1000;
  #written = 0;

  constructor(token: string) {
    this.token = token;
  }

  /** Returns the value of a key of a Secret. */
  value(name: string, key = "value"): string | undefined {
    const text = this.#secrets.get(name)?.data[key];
    return text === undefined ? undefined : Buffer.from(text, "base64").toString("utf8");
  }

  /** Returns the number of requests that changed a value. */
  written(): number {
    return this.#written;
  }

  /** Writes a Secret as another client with `kubectl`. */
  write(name: string, value: string, key = "value"): void {
    const input = { data: { [key]: Buffer.from(value).toString("base64") } };
    const existing = this.#secrets.get(name);
    if (existing) this.#change(existing, input, "kubectl-edit", false);
    else this.#create({ ...input, metadata: { name } }, "kubectl-create");
  }

  /** Deletes a Secret as another client. */
  remove(name: string): void {
    this.#secrets.delete(name);
  }

  /** Makes a Secret immutable. */
  freeze(name: string): void {
    this.#existing(name).immutable = true;
  }

  readonly service = (request: IncomingRequest): Operation | undefined => {
    const matched = this.#findOperation(request);
    if (!matched) return undefined;
    const [name, item, answer] = matched;
    const isAuthenticated = request.headers.authorization === `Bearer ${this.token}`;
    return {
      name: `kubernetes.${name}`,
      item,
      errorResponses,
      anonymous: !isAuthenticated,
      answer: () => {
        if (!isAuthenticated) return status(401, "Unauthorized", "Unauthorized");
        try {
          return answer();
        } catch (error) {
          if (error instanceof KubernetesError) return error.answer;
          throw error;
        }
      },
    };
  };

  #findOperation(request: IncomingRequest): [name: string, item: string, answer: () => ServiceResponse] | undefined {
    const { method, path, segments, query, headers } = request;
    if (method === "POST" && path === "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews") {
      const review = {
        kind: "SelfSubjectAccessReview",
        apiVersion: "authorization.k8s.io/v1",
        status: { allowed: true },
      };
      return ["reviewAccess", "", () => ({ status: 201, body: review })];
    }
    const [api, version, namespaces, namespace, kind, name = "", ...more] = segments;
    if (`${api}/${version}/${namespaces}` !== "api/v1/namespaces" || kind !== "secrets" || more.length > 0)
      return undefined;
    const manager = query.get("fieldManager") ?? "unknown";
    const inNamespace = (answer: () => ServiceResponse) => () =>
      namespace === this.namespace ? answer() : forbidden(namespace);
    switch (`${method} ${name === "" ? "list" : "one"}`) {
      case "GET one": {
        const metadataOnly = headers.accept?.split(",")[0]?.includes("as=PartialObjectMetadata") ?? false;
        const operation = metadataOnly ? "getMetadata" : "getSecret";
        return [
          operation,
          name,
          inNamespace(() => ({ status: 200, body: toJson(this.#existing(name), metadataOnly) })),
        ];
      }
      case "POST list":
        return [
          "createSecret",
          jsonObject(request)?.kind === "Secret" ? nameIn(request) : "",
          inNamespace(() => ({ status: 201, body: toJson(this.#create(objectIn(request), manager), false) })),
        ];
      case "PATCH one":
        return [
          "applySecret",
          name,
          inNamespace(() => this.#apply(name, request, manager, query.get("force") === "true")),
        ];
      case "DELETE one":
        return [
          "deleteSecret",
          name,
          inNamespace(() => {
            this.#existing(name);
            this.#secrets.delete(name);
            return { status: 200, body: { kind: "Status", apiVersion: "v1", status: "Success" } };
          }),
        ];
      default:
        return undefined;
    }
  }

  #existing(name: string): Secret {
    const secret = this.#secrets.get(name);
    if (!secret) throw new KubernetesError(status(404, "NotFound", `secrets "${name}" not found`));
    return secret;
  }

  #create(input: SecretInput, manager: string): Secret {
    const name = input.metadata?.name ?? "";
    if (!/^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/.test(name)) throw invalid(`metadata.name: Invalid value: "${name}"`);
    if (this.#secrets.has(name))
      throw new KubernetesError(status(409, "AlreadyExists", `secrets "${name}" already exists`));
    const secret: Secret = {
      name,
      uid: randomUUID(),
      version: 0,
      annotations: {},
      labels: {},
      type: input.type ?? "Opaque",
      data: {},
      immutable: false,
      managers: new Map(),
    };
    this.#change(secret, input, manager, false);
    this.#secrets.set(name, secret);
    return secret;
  }

  /** Server-side apply: creates or changes a Secret. Fields of other managers are conflicts, unless forced. */
  #apply(name: string, request: IncomingRequest, manager: string, force: boolean): ServiceResponse {
    if (request.headers["content-type"] !== "application/apply-patch+yaml") {
      return status(415, "UnsupportedMediaType", "the body of the request was in an unknown format");
    }
    const input = objectIn(request);
    if (input.metadata?.name !== name) throw invalid("metadata.name: does not match the path");
    const existing = this.#secrets.get(name);
    if (!existing) return { status: 201, body: toJson(this.#create(input, manager), false) };
    const expected = input.metadata.resourceVersion;
    if (expected !== undefined && expected !== String(existing.version)) {
      const text = `Operation cannot be fulfilled on secrets "${name}": the object has been modified`;
      throw new KubernetesError(status(409, "Conflict", text));
    }
    const conflict = changes(existing, input).find((field) => {
      // A field conflicts if another manager has it and its value would change.
      const managers = existing.managers.get(field) ?? new Set();
      return [...managers].some((other) => other !== manager);
    });
    if (conflict !== undefined && !force)
      throw new KubernetesError(status(409, "Conflict", `Apply failed with 1 conflict: ${conflict}`));
    this.#change(existing, input, manager, true);
    return { status: 200, body: toJson(existing, false) };
  }

  /**
   * Changes a Secret and its field managers. A changed field belongs only to the manager that changed it. An unchanged field
   * that is applied also belongs to the manager that applies it.
   */
  #change(secret: Secret, input: SecretInput, manager: string, applied: boolean): void {
    for (const [key, text] of Object.entries(input.data ?? {})) {
      if (!/^[-._a-zA-Z0-9]{1,253}$/.test(key)) throw invalid(`data[${key}]: Invalid value`);
      if (Buffer.from(text, "base64").toString("base64") !== text) throw invalid("data: illegal base64 data");
    }
    const data = { ...secret.data, ...input.data };
    const size = Object.values(data).reduce((sum, text) => sum + Buffer.byteLength(text, "base64"), 0);
    if (size > MAX_DATA_BYTES) throw invalid(`data: Too long: must have at most ${MAX_DATA_BYTES} bytes`);
    const changed = changes(secret, input);
    const valuesChanged = changed.some((field) => field.startsWith("data."));
    if (secret.immutable && valuesChanged) throw invalid("data: Forbidden: field is immutable when `immutable` is set");
    for (const field of fields(input)) {
      if (changed.includes(field)) secret.managers.set(field, new Set([manager]));
      else if (applied) secret.managers.get(field)?.add(manager);
    }
    Object.assign(secret.annotations, input.metadata?.annotations);
    Object.assign(secret.labels, input.metadata?.labels);
    secret.data = data;
    if (changed.length > 0) secret.version = ++this.#version;
    if (valuesChanged) this.#written++;
  }
}

/** Returns the fields that a client can set, by part of the object. */
const parts = (input: SecretInput) =>
  [
    ["data", input.data ?? {}],
    ["annotations", input.metadata?.annotations ?? {}],
    ["labels", input.metadata?.labels ?? {}],
  ] as const;

/** Returns the names of the fields in an input, such as `data.value`. */
const fields = (input: SecretInput): string[] =>
  parts(input).flatMap(([part, members]) => Object.keys(members).map((key) => `${part}.${key}`));

/** Returns the names of the fields whose values an input changes. */
const changes = (secret: Secret, input: SecretInput): string[] =>
  parts(input).flatMap(([part, members]) =>
    Object.entries(members)
      .filter(([key, value]) => secret[part][key] !== value)
      .map(([key]) => `${part}.${key}`),
  );

/**
 * Parses the Secret in a request body.
 * @throws {KubernetesError} if the body is not a Secret.
 */
function objectIn(request: IncomingRequest): SecretInput {
  const body = jsonObject(request);
  if (body?.kind !== "Secret" || body.apiVersion !== "v1") {
    throw new KubernetesError(status(400, "BadRequest", "the object provided is unrecognized"));
  }
  return body as SecretInput;
}

/** Returns the name of the Secret in a request body. */
const nameIn = (request: IncomingRequest): string => (jsonObject(request) as SecretInput).metadata?.name ?? "";

function toJson(secret: Secret, metadataOnly: boolean): object {
  const managers = [...new Set([...secret.managers.values()].flatMap((names) => [...names]))];
  const metadata = {
    name: secret.name,
    namespace: "payments",
    uid: secret.uid,
    resourceVersion: String(secret.version),
    annotations: secret.annotations,
    labels: secret.labels,
    managedFields: managers.map((manager) => ({
      manager,
      operation: "Update",
      apiVersion: "v1",
      fieldsType: "FieldsV1",
      fieldsV1: fieldsOf(secret, manager),
    })),
  };
  if (metadataOnly) return { kind: "PartialObjectMetadata", apiVersion: "meta.k8s.io/v1", metadata };
  return { kind: "Secret", apiVersion: "v1", metadata, type: secret.type, data: secret.data };
}

/** Returns the fields of a manager in the format `FieldsV1`. */
function fieldsOf(secret: Secret, manager: string): object {
  const managed = [...secret.managers].filter(([, names]) => names.has(manager)).map(([field]) => field);
  const under = (part: string) =>
    Object.fromEntries(
      managed.filter((field) => field.startsWith(`${part}.`)).map((field) => [`f:${field.slice(part.length + 1)}`, {}]),
    );
  const data = under("data");
  return {
    ...(Object.keys(data).length > 0 && { "f:data": { ".": {}, ...data } }),
    "f:metadata": { "f:annotations": under("annotations"), "f:labels": under("labels") },
  };
}

const status = (code: number, reason: string, message: string): ServiceResponse => ({
  status: code,
  body: { kind: "Status", apiVersion: "v1", status: "Failure", message, reason, details: ERROR_DETAILS, code },
});
const invalid = (message: string) => new KubernetesError(status(422, "Invalid", `Secret is invalid: ${message}`));
const forbidden = (namespace: string | undefined): ServiceResponse =>
  status(403, "Forbidden", `secrets is forbidden: cannot use resource "secrets" in the namespace "${namespace}"`);

const errorResponses: ErrorResponses = {
  throttled: (seconds) => {
    const answer = status(
      429,
      "TooManyRequests",
      "the server has received too many requests and has asked us to try again later",
    );
    return { ...answer, headers: retryAfter(seconds) };
  },
  denied: () => forbidden("payments"),
  firewalled: () => forbidden("payments"),
  failed: (code) =>
    code === 401 ? status(401, "Unauthorized", "Unauthorized") : status(code, "InternalError", "error"),
};
