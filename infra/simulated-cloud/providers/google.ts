import { createPublicKey, type KeyObject, randomBytes, verify } from "node:crypto";
import {
  type ErrorResponses,
  type IncomingRequest,
  jsonObject,
  type Operation,
  retryAfter,
  type ServiceResponse,
} from "../http.ts";
import { decodeUnverified } from "../jwt.ts";

/** Maximum size of a value: https://cloud.google.com/secret-manager/quotas */
const MAX_VALUE_BYTES = 65_536;
/** Maximum size of a secret's annotations. */
const MAX_ANNOTATIONS_BYTES = 16 * 1024;
const TOKEN_LIFETIME_SECONDS = 3599;
/** Requests name the project by its ID, but Google's responses by its number. */
const PROJECT = "projects/1";

interface Secret {
  annotations: Record<string, string>;
  etag: string;
  replication: object;
  versions: { value: string; state: "ENABLED" | "DISABLED" | "DESTROYED"; created: string }[];
}

export interface GoogleCredentials {
  projectId: string;
  clientEmail: string;
  keyId: string;
}

type Body = Record<string, unknown>;

/**
 * Simulates Google's token endpoint and Secret Manager for one project:
 * https://cloud.google.com/secret-manager/docs/reference/rest
 */
export class Google {
  readonly credentials: GoogleCredentials;
  readonly #origin: string;
  readonly #accountKey: KeyObject;
  readonly #secrets = new Map<string, Secret>();
  /** Access tokens of the service account. */
  readonly #issued = new Set<string>();

  /**
   * @param origin Origin of the token endpoint and Secret Manager, such as `https://google.localhost:1234`
   * @param accountKey RSA key of the service account.
   */
  constructor(credentials: GoogleCredentials, origin: string, accountKey: KeyObject) {
    this.credentials = credentials;
    this.#accountKey = createPublicKey(accountKey);
    this.#origin = origin;
  }

  /** Returns the value of the latest version, if it is enabled. */
  value(name: string): string | undefined {
    const latest = this.#secrets.get(name)?.versions.at(-1);
    return latest?.state === "ENABLED" ? latest.value : undefined;
  }

  /** Returns the number of versions of all secrets. */
  written(): number {
    return [...this.#secrets.values()].reduce((sum, { versions }) => sum + versions.length, 0);
  }

  /** Adds a version as another client. */
  write(name: string, value: string): void {
    const secret = this.#secrets.get(name) ?? { annotations: {}, etag: etag(), replication: {}, versions: [] };
    secret.versions.push({ value, state: "ENABLED", created: new Date().toISOString() });
    this.#secrets.set(name, secret);
  }

  /** Changes annotations as another client. */
  annotate(name: string, annotations: Record<string, string>): void {
    const secret = this.#secrets.get(name)!;
    secret.annotations = { ...secret.annotations, ...annotations };
    secret.etag = etag();
  }

  /** Returns the annotations of a secret. */
  annotations(name: string): Record<string, string> | undefined {
    return this.#secrets.get(name)?.annotations;
  }

  /** Disables the latest version as another client. */
  disable(name: string): void {
    this.#secrets.get(name)!.versions.at(-1)!.state = "DISABLED";
  }

  /** Revokes all tokens of the service account. */
  revokeIssued(): void {
    this.#issued.clear();
  }

  /** Deletes a secret as another client. */
  remove(name: string): void {
    this.#secrets.delete(name);
  }

  readonly service = (request: IncomingRequest): Operation | undefined => {
    const { method, path } = request;
    if (method === "POST" && path === "/token") {
      return { name: "google.token", errorResponses, anonymous: true, answer: () => this.#token(request) };
    }
    const matched = this.#findOperation(request);
    if (!matched) return undefined;
    const [name, answer] = matched;
    const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1] ?? "";
    const isAuthenticated = this.#issued.has(token);
    return {
      name: `google.${name}`,
      errorResponses,
      anonymous: !isAuthenticated,
      answer: () =>
        isAuthenticated ? answer() : failure(401, "UNAUTHENTICATED", "Request had invalid authentication credentials."),
    };
  };

  #token(request: IncomingRequest): ServiceResponse {
    const isForm = request.headers["content-type"]?.startsWith("application/x-www-form-urlencoded");
    const form = new URLSearchParams(isForm ? request.body.toString("utf8") : "");
    const grant = form.get("grant_type");
    if (grant !== "urn:ietf:params:oauth:grant-type:jwt-bearer") {
      return {
        status: 400,
        body: { error: "unsupported_grant_type", error_description: `Invalid grant_type: ${grant}` },
      };
    }
    const problem = this.#assertionProblem(form.get("assertion") ?? "");
    if (problem !== undefined) return { status: 400, body: { error: "invalid_grant", error_description: problem } };
    const token = `ya29.${randomBytes(24).toString("hex")}`;
    this.#issued.add(token);
    return { status: 200, body: { access_token: token, expires_in: TOKEN_LIFETIME_SECONDS, token_type: "Bearer" } };
  }

  /** Verifies the JWT of the service account. Returns the error message if it is invalid. */
  #assertionProblem(assertion: string): string | undefined {
    const [header, claims, signature, ...more] = assertion.split(".");
    if (!header || !claims || !signature || more.length > 0) return "Invalid JWT.";
    const text = Buffer.from(`${header}.${claims}`);
    const isSigned = verify("sha256", text, this.#accountKey, Buffer.from(signature, "base64url"));
    const { iss, aud, iat, exp, scope } = decodeUnverified(assertion).claims as Record<string, unknown>;
    if (iss !== this.credentials.clientEmail) return "Invalid grant: account not found";
    if (!isSigned) return "Invalid JWT Signature.";
    const now = Date.now() / 1000;
    if (aud !== `${this.#origin}/token`) return "Invalid JWT: Failed audience check.";
    if (!(Number(iat) <= now + 60 && Number(exp) > now && Number(exp) - Number(iat) <= 3600)) {
      return "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe.";
    }
    return scope === "https://www.googleapis.com/auth/cloud-platform" ? undefined : "Invalid scope.";
  }

  #findOperation(request: IncomingRequest): [name: string, answer: () => ServiceResponse] | undefined {
    const { method, segments, query } = request;
    const [version, projects, project, secrets, nameAndAction = "", versions, number = "", ...more] = segments;
    if (`${version}/${projects}/${secrets}` !== "v1/projects/secrets" || more.length > 0) return undefined;
    const [name = "", action] = nameAndAction.split(":");
    const inProject = (answer: (body: Body) => ServiceResponse) => () => {
      if (project !== this.credentials.projectId) return denied(`projects/${project}`);
      const body = request.body.length === 0 ? {} : jsonObject(request);
      return body === undefined ? failure(400, "INVALID_ARGUMENT", "Invalid JSON payload received.") : answer(body);
    };
    if (versions === "versions" && method === "GET") {
      const [wanted = "", access] = number.split(":");
      if (access === "access") return ["accessVersion", inProject(() => this.#version(name, wanted, true))];
      return ["getVersion", inProject(() => this.#version(name, wanted, false))];
    }
    // The path ends with `secrets` (all), a name (one), or a name and an action: `secrets/NAME:addVersion`.
    switch (`${method} ${action ?? (name === "" ? "all" : "one")}`) {
      case "POST all":
        return ["createSecret", inProject((body) => this.#create(query.get("secretId") ?? "", body))];
      case "GET one":
        return ["getSecret", inProject(() => this.#withSecret(name, (secret) => ok(this.#toJson(name, secret))))];
      case "PATCH one":
        return ["updateSecret", inProject((body) => this.#update(name, query.get("updateMask"), body))];
      case "DELETE one":
        return [
          "deleteSecret",
          inProject(() =>
            this.#withSecret(name, () => {
              this.#secrets.delete(name);
              return ok({});
            }),
          ),
        ];
      case "POST addVersion":
        return ["addVersion", inProject((body) => this.#addVersion(name, body))];
      default:
        return undefined;
    }
  }

  #withSecret(name: string, answer: (secret: Secret) => ServiceResponse): ServiceResponse {
    const secret = this.#secrets.get(name);
    return secret ? answer(secret) : failure(404, "NOT_FOUND", `Secret [${PROJECT}/secrets/${name}] not found.`);
  }

  #toJson(name: string, { annotations, etag, replication }: Secret): object {
    return { name: `${PROJECT}/secrets/${name}`, annotations, etag, replication };
  }

  #create(name: string, { replication, annotations }: Body): ServiceResponse {
    if (!/^[A-Za-z0-9_-]{1,255}$/.test(name)) return failure(400, "INVALID_ARGUMENT", "The secretId is invalid.");
    if (this.#secrets.has(name))
      return failure(409, "ALREADY_EXISTS", `Secret [${PROJECT}/secrets/${name}] already exists.`);
    if (typeof replication !== "object" || replication === null) {
      return failure(400, "INVALID_ARGUMENT", "Secret.replication is required.");
    }
    const problem = annotationProblem(annotations);
    if (problem !== undefined) return failure(400, "INVALID_ARGUMENT", problem);
    const newAnnotations = (annotations ?? {}) as Record<string, string>;
    const secret: Secret = { annotations: newAnnotations, etag: etag(), replication, versions: [] };
    this.#secrets.set(name, secret);
    return ok(this.#toJson(name, secret));
  }

  #update(name: string, mask: string | null, body: Body): ServiceResponse {
    return this.#withSecret(name, (secret) => {
      if (mask !== "annotations")
        return failure(400, "INVALID_ARGUMENT", "The updateMask is missing or not supported.");
      if (body.etag !== undefined && body.etag !== secret.etag) {
        return failure(400, "FAILED_PRECONDITION", "The etag of the request does not match the secret's.");
      }
      const problem = annotationProblem(body.annotations);
      if (problem !== undefined) return failure(400, "INVALID_ARGUMENT", problem);
      secret.annotations = body.annotations as Record<string, string>;
      secret.etag = etag();
      return ok(this.#toJson(name, secret));
    });
  }

  #addVersion(name: string, { payload }: Body): ServiceResponse {
    return this.#withSecret(name, (secret) => {
      const { data, dataCrc32c: sum } = (payload ?? {}) as { data?: unknown; dataCrc32c?: unknown };
      if (typeof data !== "string" || data === "") return failure(400, "INVALID_ARGUMENT", "The payload is empty.");
      const bytes = Buffer.from(data, "base64");
      if (bytes.length > MAX_VALUE_BYTES)
        return failure(400, "INVALID_ARGUMENT", "The payload is larger than 65536 bytes.");
      if (sum !== undefined && String(sum) !== String(crc32c(bytes))) {
        return failure(400, "INVALID_ARGUMENT", "The checksum does not match the payload.");
      }
      this.write(name, bytes.toString("utf8"));
      return ok({
        ...versionJson(name, secret, secret.versions.length),
        clientSpecifiedPayloadChecksum: sum !== undefined,
      });
    });
  }

  #version(name: string, wanted: string, access: boolean): ServiceResponse {
    return this.#withSecret(name, (secret) => {
      const number = wanted === "latest" ? secret.versions.length : Number(wanted);
      const version = secret.versions[number - 1];
      if (!version) return failure(404, "NOT_FOUND", `Secret Version [${wanted}] not found.`);
      if (!access) return ok(versionJson(name, secret, number));
      if (version.state !== "ENABLED") {
        return failure(400, "FAILED_PRECONDITION", `Secret Version [${wanted}] is in ${version.state} state.`);
      }
      const data = Buffer.from(version.value).toString("base64");
      return ok({ name: `${PROJECT}/secrets/${name}/versions/${number}`, payload: { data } });
    });
  }
}

const versionJson = (name: string, { versions }: Secret, number: number) => ({
  name: `${PROJECT}/secrets/${name}/versions/${number}`,
  createTime: versions[number - 1]!.created,
  state: versions[number - 1]!.state,
});

/**
 * Validates annotations. Returns the error message if they are invalid:
 * https://cloud.google.com/secret-manager/docs/creating-and-accessing-annotations
 */
function annotationProblem(annotations: unknown): string | undefined {
  const entries = Object.entries((annotations ?? {}) as Record<string, unknown>);
  if (Buffer.byteLength(JSON.stringify(annotations ?? {})) > MAX_ANNOTATIONS_BYTES)
    return "The annotations are larger than 16 KiB.";
  const isValid = entries.every(
    ([key, value]) => /^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/.test(key) && typeof value === "string",
  );
  return isValid ? undefined : "An annotation is invalid.";
}

/** Computes CRC32C bit by bit: https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4 */
function crc32c(bytes: Uint8Array): number {
  let remainder = ~0;
  for (const byte of bytes) {
    remainder ^= byte;
    for (let bit = 0; bit < 8; bit++) remainder = (remainder >>> 1) ^ (0x82f63b78 & -(remainder & 1));
  }
  return ~remainder >>> 0;
}

const etag = () => `"${randomBytes(7).toString("hex")}"`;
const ok = (body: object): ServiceResponse => ({ status: 200, body });
const failure = (code: number, status: string, message: string): ServiceResponse => ({
  status: code,
  body: { error: { code, message, status } },
});
const denied = (resource: string) =>
  failure(403, "PERMISSION_DENIED", `Permission denied for resource '${resource}' (or it may not exist).`);

const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({
    ...failure(429, "RESOURCE_EXHAUSTED", "Quota exceeded for quota metric 'Access requests'."),
    headers: retryAfter(seconds),
  }),
  denied: () => denied(`${PROJECT}/secrets`),
  firewalled: () => denied(`${PROJECT}/secrets`),
  failed: (status) => failure(status, status === 401 ? "UNAUTHENTICATED" : "INTERNAL", "error"),
};
