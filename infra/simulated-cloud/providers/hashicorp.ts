import { randomUUID } from "node:crypto";
import {
  type ErrorResponses,
  type IncomingRequest,
  jsonObject,
  type Operation,
  retryAfter,
  type ServiceResponse,
} from "../http.ts";

/** Versions of the KV engines by mount path. */
const MOUNTS: Record<string, string> = { secret: "2", "team-kv": "2", "old-kv": "1" };

/** Maximum size of an entry with integrated storage: https://developer.hashicorp.com/vault/docs/internals/limits */
const MAX_ENTRY_BYTES = 1024 * 1024;

/** Limits of custom metadata: keys per secret, characters per key, and bytes per value. */
const [MAX_METADATA_KEYS, MAX_KEY_LENGTH, MAX_METADATA_VALUE_BYTES] = [64, 128, 512];

interface Version {
  data: Record<string, unknown>;
  created: string;
  /** Time of the deletion. Empty if the version is not deleted. */
  deleted: string;
  destroyed: boolean;
}

interface Secret {
  custom: Record<string, string>;
  versions: Version[];
}

export interface HashicorpCredentials {
  /** A token with all permissions below `secret/`. */
  token: string;
  roleId: string;
  secretId: string;
}

/** Runs an operation with the JSON body of its request. */
type RunOperation = (body: Record<string, unknown>) => ServiceResponse;

/**
 * Simulates HashiCorp Vault: the KV version 2 engine at `secret/`, tokens and AppRole.
 * https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2
 */
export class Hashicorp {
  readonly credentials: HashicorpCredentials;
  /** While true, every request gets the error of a sealed Vault. */
  sealed = false;
  /** By path below the mount. Paths of other mounts than `secret` start with the mount and a colon: `team-kv:/app`. */
  readonly #secrets = new Map<string, Secret>();
  /** Tokens of the AppRole. */
  readonly #issued = new Set<string>();

  constructor(credentials: HashicorpCredentials) {
    this.credentials = credentials;
  }

  /** Returns the data of a path's current version. Undefined if there is none or it is deleted. */
  data(path: string): Record<string, unknown> | undefined {
    const version = this.#secrets.get(path)?.versions.at(-1);
    return version === undefined || version.deleted !== "" || version.destroyed ? undefined : version.data;
  }

  /** Returns the custom metadata of a path. */
  metadata(path: string): Record<string, string> | undefined {
    return this.#secrets.get(path)?.custom;
  }

  /** Adds custom metadata as another client. */
  addMetadata(path: string, addedMetadata: Record<string, string>): void {
    const secret = this.#secrets.get(path) ?? { custom: {}, versions: [] };
    Object.assign(secret.custom, addedMetadata);
    this.#secrets.set(path, secret);
  }

  /** Returns the number of versions of all secrets. */
  written(): number {
    return [...this.#secrets.values()].reduce((sum, { versions }) => sum + versions.length, 0);
  }

  /** Writes data as another client. */
  write(path: string, data: Record<string, unknown>): void {
    const secret = this.#secrets.get(path) ?? { custom: {}, versions: [] };
    secret.versions.push({ data, created: new Date().toISOString(), deleted: "", destroyed: false });
    this.#secrets.set(path, secret);
  }

  /** Deletes the latest version as another client. */
  remove(path: string): void {
    const version = this.#secrets.get(path)?.versions.at(-1);
    if (version) version.deleted = new Date().toISOString();
  }

  /** Revokes all tokens of the AppRole. */
  revokeIssued(): void {
    this.#issued.clear();
  }

  readonly service = (request: IncomingRequest): Operation | undefined => {
    const matched = this.#findOperation(request);
    if (!matched) return undefined;
    const [name, runOperation, needsNoToken] = matched;
    const token = String(request.headers["x-vault-token"] ?? "");
    const isAuthenticated = needsNoToken || token === this.credentials.token || this.#issued.has(token);
    return {
      name: `hashicorp.${name}`,
      errorResponses,
      anonymous: !isAuthenticated,
      answer: () => {
        if (this.sealed) return failure(503, "Vault is sealed");
        if (!isAuthenticated) return unknownToken();
        const body = request.body.length === 0 ? {} : jsonObject(request);
        return body === undefined ? failure(400, "failed to parse JSON input") : runOperation(body);
      },
    };
  };

  #findOperation({
    method,
    path,
    segments,
    query,
  }: IncomingRequest): [name: string, handle: RunOperation, needsNoToken?: boolean] | undefined {
    const [api, mount = "", part, ...rest] = segments;
    if (api !== "v1") return undefined;
    if (method === "POST" && path === "/v1/auth/approle/login")
      return ["auth.login", (body) => this.#login(body), true];
    if (method === "GET" && path === "/v1/auth/token/lookup-self") {
      return ["auth.lookupSelf", () => ok({ ttl: 3600, policies: ["default", "sync"] })];
    }
    if (method === "GET" && path.startsWith("/v1/sys/internal/ui/mounts/")) {
      // The path has `ui` and `mounts` before the mount path.
      const version = MOUNTS[rest.slice(2).join("/")];
      // Vault returns the same error for a missing mount and for a mount without permissions.
      const answer = version === undefined ? errorResponses.denied() : ok({ type: "kv", options: { version } });
      return ["kv.readMount", () => answer];
    }
    if (MOUNTS[mount] !== "2" || part === undefined || rest.length === 0) return undefined;
    const name = mount === "secret" ? rest.join("/") : [`${mount}:`, ...rest].join("/");
    switch (`${method} ${part}`) {
      case "GET metadata":
        return ["kv.readMetadata", () => this.#metadata(name)];
      case "POST metadata":
        return ["kv.writeMetadata", (body) => this.#writeMetadata(name, body)];
      case "GET data":
        return ["kv.readData", () => this.#read(name, query.get("version"))];
      case "POST data":
        return ["kv.writeData", (body) => this.#writeData(name, body)];
      case "DELETE data":
        return ["kv.deleteData", () => this.#delete(name)];
      case "POST undelete":
        return ["kv.undelete", (body) => this.#undelete(name, body)];
      default:
        return undefined;
    }
  }

  #login({ role_id: role, secret_id: secret }: Record<string, unknown>): ServiceResponse {
    if (role !== this.credentials.roleId) return failure(400, "invalid role ID");
    if (secret !== this.credentials.secretId) return failure(400, "invalid role or secret ID");
    const token = `hvs.${randomUUID()}`;
    this.#issued.add(token);
    return { status: 200, body: { auth: { client_token: token, lease_duration: 1200, renewable: true } } };
  }

  #metadata(name: string): ServiceResponse {
    const secret = this.#secrets.get(name);
    if (!secret) return { status: 404, body: { errors: [] } };
    const versions = secret.versions.map(({ created, deleted, destroyed }, index) => [
      String(index + 1),
      { created_time: created, deletion_time: deleted, destroyed },
    ]);
    return ok({
      current_version: secret.versions.length,
      custom_metadata: Object.keys(secret.custom).length === 0 ? null : secret.custom,
      max_versions: 0,
      versions: Object.fromEntries(versions),
    });
  }

  #writeMetadata(name: string, { custom_metadata: custom }: Record<string, unknown>): ServiceResponse {
    const entries = Object.entries((custom ?? {}) as Record<string, unknown>);
    const isValid = ([key, value]: [string, unknown]) =>
      key.length <= MAX_KEY_LENGTH && typeof value === "string" && Buffer.byteLength(value) <= MAX_METADATA_VALUE_BYTES;
    if (entries.length > MAX_METADATA_KEYS || !entries.every(isValid))
      return failure(400, "custom_metadata validation failed");
    const secret = this.#secrets.get(name) ?? { custom: {}, versions: [] };
    if (custom !== undefined) secret.custom = Object.fromEntries(entries) as Record<string, string>;
    this.#secrets.set(name, secret);
    return { status: 204 };
  }

  #read(name: string, wanted: string | null): ServiceResponse {
    const versions = this.#secrets.get(name)?.versions ?? [];
    const number = wanted === null || wanted === "0" ? versions.length : Number(wanted);
    const version = versions[number - 1];
    if (version?.deleted !== "" || version.destroyed) return { status: 404, body: { errors: [] } };
    return ok({ data: version.data, metadata: { version: number, created_time: version.created } });
  }

  #writeData(name: string, { options, data }: Record<string, unknown>): ServiceResponse {
    if (typeof data !== "object" || data === null) return failure(400, "no data provided");
    if (Buffer.byteLength(JSON.stringify(data)) > MAX_ENTRY_BYTES) return failure(413, "request body too large");
    const current = this.#secrets.get(name)?.versions.length ?? 0;
    // Check-and-set: the version that the client expects, 0 for a new secret.
    const { cas } = (options ?? {}) as { cas?: number };
    if (cas !== undefined && cas !== current) {
      return failure(400, "check-and-set parameter did not match the current version");
    }
    this.write(name, data as Record<string, unknown>);
    const { created } = this.#secrets.get(name)!.versions.at(-1)!;
    return ok({ version: current + 1, created_time: created, deletion_time: "", destroyed: false });
  }

  #delete(name: string): ServiceResponse {
    this.remove(name);
    return { status: 204 };
  }

  #undelete(name: string, { versions }: Record<string, unknown>): ServiceResponse {
    if (!Array.isArray(versions) || versions.length === 0) return failure(400, "No version number provided");
    for (const number of versions as number[]) {
      const version = this.#secrets.get(name)?.versions[number - 1];
      if (version && !version.destroyed) version.deleted = "";
    }
    return { status: 204 };
  }
}

const ok = (data: object): ServiceResponse => ({ status: 200, body: { request_id: randomUUID(), data } });
const failure = (status: number, text: string): ServiceResponse => ({ status, body: { errors: [text] } });

const unknownToken = () => failure(403, "2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n");

const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({
    ...failure(429, 'request path "secret/data": rate limit quota exceeded'),
    headers: retryAfter(seconds),
  }),
  denied: () => failure(403, "1 error occurred:\n\t* permission denied\n\n"),
  firewalled: () => failure(403, "1 error occurred:\n\t* permission denied\n\n"),
  failed: (status) => (status === 403 ? unknownToken() : failure(status, "internal error")),
};
