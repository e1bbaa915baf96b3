import { randomUUID } from "node:crypto";
import { type Answer, type Incoming, jsonObject, type Operation, type Refusals, retryAfter } from "../http.ts";

/** Limits: https://kubernetes.io/docs/concepts/configuration/secret */
const MAX_DATA_BYTES = 1024 * 1024;

const GROUP = { group: "", resource: "secrets", apiVersion: "v1" };

interface Secret {
  name: string;
  uid: string;
  version: number;
  annotations: Record<string, string>;
  labels: Record<string, string>;
  type: string;
  data: Record<string, string>;
  immutable: boolean;
  /** Managers of each managed field, such as `data.value`. */
  managers: Map<string, Set<string>>;
}

/** Members of an object that clients send. */
interface Sent {
  metadata?: {
    name?: string;
    resourceVersion?: string;
    annotations?: Record<string, string>;
    labels?: Record<string, string>;
  };
  type?: string;
  data?: Record<string, string>;
}

/** An error that is returned as a `Status`. */
class Refused extends Error {
  readonly answer: Answer;
  constructor(answer: Answer) {
    super("refused");
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
  #version = 1000;
  #written = 0;

  constructor(token: string) {
    this.token = token;
  }

  value(name: string, key = "value"): string | undefined {
    const text = this.#secrets.get(name)?.data[key];
    return text === undefined ? undefined : Buffer.from(text, "base64").toString("utf8");
  }

  /** Number of requests that changed a value. */
  written(): number {
    return this.#written;
  }

  /** Writes a Secret as another client with `kubectl`. */
  write(name: string, value: string, key = "value"): void {
    const sent = { data: { [key]: Buffer.from(value).toString("base64") } };
    const before = this.#secrets.get(name);
    if (before) this.#change(before, sent, "kubectl-edit", false);
    else this.#create({ ...sent, metadata: { name } }, "kubectl-create");
  }

  remove(name: string): void {
    this.#secrets.delete(name);
  }

  /** Makes a Secret immutable. */
  freeze(name: string): void {
    this.#existing(name).immutable = true;
  }

  readonly service = (request: Incoming): Operation | undefined => {
    const found = this.#find(request);
    if (!found) return undefined;
    const [name, item, answer] = found;
    const known = request.headers.authorization === `Bearer ${this.token}`;
    return {
      name: `kubernetes.${name}`,
      item,
      refusals,
      anonymous: !known,
      answer: () => {
        if (!known) return status(401, "Unauthorized", "Unauthorized");
        try {
          return answer();
        } catch (error) {
          if (error instanceof Refused) return error.answer;
          throw error;
        }
      },
    };
  };

  #find(request: Incoming): [name: string, item: string, answer: () => Answer] | undefined {
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
    const work = (answer: () => Answer) => () => (namespace === this.namespace ? answer() : forbidden(namespace));
    switch (`${method} ${name === "" ? "list" : "one"}`) {
      case "GET one": {
        const metadataOnly = headers.accept?.split(",")[0]?.includes("as=PartialObjectMetadata") ?? false;
        const operation = metadataOnly ? "getMetadata" : "getSecret";
        return [operation, name, work(() => ({ status: 200, body: view(this.#existing(name), metadataOnly) }))];
      }
      case "POST list":
        return [
          "createSecret",
          jsonObject(request)?.kind === "Secret" ? nameIn(request) : "",
          work(() => ({ status: 201, body: view(this.#create(objectIn(request), manager), false) })),
        ];
      case "PATCH one":
        return ["applySecret", name, work(() => this.#apply(name, request, manager, query.get("force") === "true"))];
      case "DELETE one":
        return [
          "deleteSecret",
          name,
          work(() => {
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
    const found = this.#secrets.get(name);
    if (!found) throw new Refused(status(404, "NotFound", `secrets "${name}" not found`));
    return found;
  }

  #create(sent: Sent, manager: string): Secret {
    const name = sent.metadata?.name ?? "";
    if (!/^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/.test(name)) throw invalid(`metadata.name: Invalid value: "${name}"`);
    if (this.#secrets.has(name)) throw new Refused(status(409, "AlreadyExists", `secrets "${name}" already exists`));
    const secret: Secret = {
      name,
      uid: randomUUID(),
      version: 0,
      annotations: {},
      labels: {},
      type: sent.type ?? "Opaque",
      data: {},
      immutable: false,
      managers: new Map(),
    };
    this.#change(secret, sent, manager, false);
    this.#secrets.set(name, secret);
    return secret;
  }

  #apply(name: string, request: Incoming, manager: string, force: boolean): Answer {
    if (request.headers["content-type"] !== "application/apply-patch+yaml") {
      return status(415, "UnsupportedMediaType", "the body of the request was in an unknown format");
    }
    const sent = objectIn(request);
    if (sent.metadata?.name !== name) throw invalid("metadata.name: does not match the path");
    const before = this.#secrets.get(name);
    if (!before) return { status: 201, body: view(this.#create(sent, manager), false) };
    const expected = sent.metadata.resourceVersion;
    if (expected !== undefined && expected !== String(before.version)) {
      const text = `Operation cannot be fulfilled on secrets "${name}": the object has been modified`;
      throw new Refused(status(409, "Conflict", text));
    }
    const conflict = changes(before, sent).find((field) => {
      const managers = before.managers.get(field) ?? new Set();
      return [...managers].some((other) => other !== manager);
    });
    if (conflict !== undefined && !force)
      throw new Refused(status(409, "Conflict", `Apply failed with 1 conflict: ${conflict}`));
    this.#change(before, sent, manager, true);
    return { status: 200, body: view(before, false) };
  }

  /**
   * Updates the field managers: a changed field belongs only to the manager that changed it, an applied field also to the
   * manager that applies it.
   */
  #change(secret: Secret, sent: Sent, manager: string, applied: boolean): void {
    for (const [key, text] of Object.entries(sent.data ?? {})) {
      if (!/^[-._a-zA-Z0-9]{1,253}$/.test(key)) throw invalid(`data[${key}]: Invalid value`);
      if (Buffer.from(text, "base64").toString("base64") !== text) throw invalid("data: illegal base64 data");
    }
    const data = { ...secret.data, ...sent.data };
    const size = Object.values(data).reduce((sum, text) => sum + Buffer.byteLength(text, "base64"), 0);
    if (size > MAX_DATA_BYTES) throw invalid(`data: Too long: must have at most ${MAX_DATA_BYTES} bytes`);
    const changed = changes(secret, sent);
    const values = changed.some((field) => field.startsWith("data."));
    if (secret.immutable && values) throw invalid("data: Forbidden: field is immutable when `immutable` is set");
    for (const field of fields(sent)) {
      if (changed.includes(field)) secret.managers.set(field, new Set([manager]));
      else if (applied) secret.managers.get(field)?.add(manager);
    }
    Object.assign(secret.annotations, sent.metadata?.annotations);
    Object.assign(secret.labels, sent.metadata?.labels);
    secret.data = data;
    if (changed.length > 0) secret.version = ++this.#version;
    if (values) this.#written++;
  }
}

const parts = (sent: Sent) =>
  [
    ["data", sent.data ?? {}],
    ["annotations", sent.metadata?.annotations ?? {}],
    ["labels", sent.metadata?.labels ?? {}],
  ] as const;

const fields = (sent: Sent): string[] =>
  parts(sent).flatMap(([part, members]) => Object.keys(members).map((key) => `${part}.${key}`));

/** Returns the fields whose value would change. */
const changes = (secret: Secret, sent: Sent): string[] =>
  parts(sent).flatMap(([part, members]) =>
    Object.entries(members)
      .filter(([key, value]) => secret[part][key] !== value)
      .map(([key]) => `${part}.${key}`),
  );

function objectIn(request: Incoming): Sent {
  const body = jsonObject(request);
  if (body?.kind !== "Secret" || body.apiVersion !== "v1") {
    throw new Refused(status(400, "BadRequest", "the object provided is unrecognized"));
  }
  return body as Sent;
}

const nameIn = (request: Incoming): string => (jsonObject(request) as Sent).metadata?.name ?? "";

function view(secret: Secret, metadataOnly: boolean): object {
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

function fieldsOf(secret: Secret, manager: string): object {
  const own = [...secret.managers].filter(([, names]) => names.has(manager)).map(([field]) => field);
  const under = (part: string) =>
    Object.fromEntries(
      own.filter((field) => field.startsWith(`${part}.`)).map((field) => [`f:${field.slice(part.length + 1)}`, {}]),
    );
  const data = under("data");
  return {
    ...(Object.keys(data).length > 0 && { "f:data": { ".": {}, ...data } }),
    "f:metadata": { "f:annotations": under("annotations"), "f:labels": under("labels") },
  };
}

const status = (code: number, reason: string, message: string): Answer => ({
  status: code,
  body: { kind: "Status", apiVersion: "v1", status: "Failure", message, reason, details: GROUP, code },
});
const invalid = (message: string) => new Refused(status(422, "Invalid", `Secret is invalid: ${message}`));
const forbidden = (namespace: string | undefined): Answer =>
  status(403, "Forbidden", `secrets is forbidden: cannot use resource "secrets" in the namespace "${namespace}"`);

const refusals: Refusals = {
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
