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

/** Limits: https://docs.github.com/actions/reference/secrets-reference#limits-for-secrets */
const [MAX_VALUE_BYTES, MAX_SECRETS] = [48 * 1024, 100];
/** Maximum lifetime of an app's JWT: ten minutes. */
const MAX_ASSERTION_SECONDS = 600;

const OWNER = "acme";
/** Repositories that the credentials can access, with their environments. */
const REPOSITORIES: Record<string, readonly string[]> = { shop: ["production"], "old-shop": [] };

interface Secret {
  value: string;
  created: string;
  updated: string;
}

export interface GithubCredentials {
  /** A personal access token for `acme/shop` and `acme/old-shop`. */
  token: string;
  appId: string;
  installationId: string;
}

/** Simulates GitHub Actions secrets in the repositories of one owner: https://docs.github.com/rest/actions/secrets */
export class Github {
  readonly credentials: GithubCredentials;
  /** Remaining requests of the rate limit. Undefined: unlimited. */
  remaining: number | undefined;
  readonly #appKey: KeyObject;
  readonly #secrets = new Map<string, Secret>();
  /** Installation tokens of the app. */
  readonly #issued = new Set<string>();
  /** Repositories whose requests are redirected. */
  readonly #renamed = new Set<string>();
  /** The key pair with which clients seal values. Created by the first request for the public key. */
  #box: { publicKey: Uint8Array; open(sealed: Uint8Array): Uint8Array } | undefined;
  #written = 0;

  /** @param appKey RSA key of the GitHub App */
  constructor(credentials: GithubCredentials, appKey: KeyObject) {
    this.credentials = credentials;
    this.#appKey = createPublicKey(appKey);
  }

  /** Returns the value of a secret. The name is `owner/repository[/environment]/NAME`. */
  value(name: string): string | undefined {
    return this.#secrets.get(name.toLowerCase())?.value;
  }

  /** Writes a secret as another client. */
  write(name: string, value: string): void {
    const now = new Date().toISOString();
    const created = this.#secrets.get(name.toLowerCase())?.created ?? now;
    this.#secrets.set(name.toLowerCase(), { value, created, updated: now });
  }

  /** Deletes a secret as another client. */
  remove(name: string): void {
    this.#secrets.delete(name.toLowerCase());
  }

  /** Returns the number of requests that wrote a value. */
  written(): number {
    return this.#written;
  }

  /** Revokes all installation tokens of the app. */
  revokeIssued(): void {
    this.#issued.clear();
  }

  /** Redirects requests for a repository from now on. */
  rename(repository: string): void {
    this.#renamed.add(repository);
  }

  readonly service = (request: IncomingRequest): Operation | undefined => {
    const matched = this.#findOperation(request);
    if (!matched) return undefined;
    const [name, answer, needsNoToken] = matched;
    const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1] ?? "";
    const isAuthenticated = needsNoToken || token === this.credentials.token || this.#issued.has(token);
    return {
      name: `github.${name}`,
      errorResponses,
      anonymous: !isAuthenticated,
      answer: () => {
        if (!request.headers["user-agent"]) return failure(403, "Request forbidden by administrative rules.");
        if (!isAuthenticated) return failure(401, "Bad credentials");
        if (this.remaining !== undefined && this.remaining-- <= 0) return rateLimitExceeded();
        return answer();
      },
    };
  };

  #findOperation(
    request: IncomingRequest,
  ): [name: string, answer: () => ServiceResponse | Promise<ServiceResponse>, needsNoToken?: boolean] | undefined {
    const { method, path, segments } = request;
    if (method === "GET" && path === "/rate_limit") {
      return ["rateLimit", () => ({ status: 200, body: { resources: {}, rate: { limit: 5000, remaining: 4999 } } })];
    }
    const installation = /^\/app\/installations\/(\d+)\/access_tokens$/.exec(path)?.[1];
    if (method === "POST" && installation !== undefined) {
      return ["installationToken", () => this.#installationToken(request, installation), true];
    }
    // `repos/OWNER/REPOSITORY/actions/secrets/NAME`, or `…/environments/ENVIRONMENT/secrets/NAME`.
    const [repos, owner = "", repository = "", area, ...rest] = segments;
    const environment = area === "environments" ? rest.shift() : undefined;
    const collection = area === "environments" ? rest.shift() : area === "actions" ? rest.shift() : undefined;
    const [name, ...more] = rest;
    if (repos !== "repos" || collection !== "secrets" || name === undefined || more.length > 0) return undefined;
    const environments = owner.toLowerCase() === OWNER && REPOSITORIES[repository.toLowerCase()];
    const exists = environments && (environment === undefined || environments.includes(environment));
    const inRepository = (answer: () => ServiceResponse | Promise<ServiceResponse>) => () => {
      if (this.#renamed.has(repository.toLowerCase())) {
        return { status: 301, headers: { location: "/repositories/1" }, body: { message: "Moved Permanently" } };
      }
      return exists ? answer() : failure(404, "Not Found");
    };
    const key = [owner, repository, ...(environment === undefined ? [] : [environment]), name].join("/");
    switch (method) {
      case "GET":
        if (name === "public-key") return ["publicKey", inRepository(() => this.#publicKey())];
        return ["getSecret", inRepository(() => this.#get(key, name))];
      case "PUT":
        return ["putSecret", inRepository(() => this.#put(key, name, request))];
      case "DELETE":
        return ["deleteSecret", inRepository(() => this.#delete(key))];
      default:
        return undefined;
    }
  }

  #installationToken(request: IncomingRequest, installation: string): ServiceResponse {
    const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1] ?? "";
    const problem = this.#assertionProblem(token);
    if (problem !== undefined) return failure(401, problem);
    if (installation !== this.credentials.installationId) return failure(404, "Not Found");
    const issued = `ghs_${randomBytes(18).toString("hex")}`;
    this.#issued.add(issued);
    return { status: 201, body: { token: issued, expires_at: new Date(Date.now() + 3_600_000).toISOString() } };
  }

  /** Verifies the JWT of the GitHub App. Returns the error message if it is invalid. */
  #assertionProblem(token: string): string | undefined {
    const [header, claims, signature, ...more] = token.split(".");
    if (!header || !claims || !signature || more.length > 0) return "A JSON web token could not be decoded";
    const text = Buffer.from(`${header}.${claims}`);
    const isSigned = verify("sha256", text, this.#appKey, Buffer.from(signature, "base64url"));
    const { iss, iat, exp } = decodeUnverified(token).claims as { iss?: unknown; iat?: number; exp?: number };
    const now = Date.now() / 1000;
    if (!isSigned || String(iss) !== this.credentials.appId) return "A JSON web token could not be decoded";
    if (!(Number(iat) <= now)) return "'Issued at' claim ('iat') must be an Integer representing a time in the past";
    if (!(Number(exp) > now && Number(exp) <= now + MAX_ASSERTION_SECONDS)) {
      return "'Expiration time' claim ('exp') is too far in the future";
    }
    return undefined;
  }

  async #publicKey(): Promise<ServiceResponse> {
    if (!this.#box) {
      const { default: sodium } = await import("libsodium-wrappers");
      await sodium.ready;
      const { publicKey, privateKey } = sodium.crypto_box_keypair();
      // A concurrent first request may have created the keys meanwhile.
      this.#box ??= { publicKey, open: (sealed) => sodium.crypto_box_seal_open(sealed, publicKey, privateKey) };
    }
    return { status: 200, body: { key_id: "1", key: Buffer.from(this.#box.publicKey).toString("base64") } };
  }

  #get(key: string, name: string): ServiceResponse {
    const secret = this.#secrets.get(key.toLowerCase());
    if (!secret) return failure(404, "Not Found");
    const { created, updated } = secret;
    return { status: 200, body: { name: name.toUpperCase(), created_at: created, updated_at: updated } };
  }

  #put(key: string, name: string, request: IncomingRequest): ServiceResponse {
    const { encrypted_value: sealed, key_id: id } = jsonObject(request) ?? {};
    if (!/^(?!\d)(?!GITHUB_)[A-Z0-9_]+$/i.test(name))
      return failure(422, "Secret names can only contain alphanumeric characters");
    if (typeof sealed !== "string" || id !== "1" || !this.#box) return failure(422, "Bad request - key_id is wrong");
    let value: string;
    try {
      value = Buffer.from(this.#box.open(Buffer.from(sealed, "base64"))).toString("utf8");
    } catch {
      return failure(422, "Bad request - could not decrypt the secret");
    }
    if (Buffer.byteLength(value) > MAX_VALUE_BYTES) return failure(422, "Secret is too large");
    const existed = this.#secrets.has(key.toLowerCase());
    if (!existed && this.#secrets.size >= MAX_SECRETS) return failure(422, "Too many secrets");
    this.write(key, value);
    this.#written++;
    return existed ? { status: 204 } : { status: 201, body: {} };
  }

  #delete(key: string): ServiceResponse {
    return this.#secrets.delete(key.toLowerCase()) ? { status: 204 } : failure(404, "Not Found");
  }
}

const failure = (status: number, message: string): ServiceResponse => ({
  status,
  body: { message, documentation_url: "https://docs.github.com/rest", status: String(status) },
});

const rateLimitExceeded = (): ServiceResponse => ({
  ...failure(403, "API rate limit exceeded for installation."),
  headers: { "x-ratelimit-remaining": "0", "x-ratelimit-reset": String(Math.floor(Date.now() / 1000) + 1800) },
});

const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({
    ...failure(403, "You have exceeded a secondary rate limit."),
    headers: retryAfter(seconds ?? 60),
  }),
  denied: () => failure(403, "Resource not accessible by personal access token"),
  firewalled: () =>
    failure(
      403,
      "Although you appear to have the correct authorization credentials, your IP address is not permitted.",
    ),
  failed: (status) => failure(status, status === 401 ? "Bad credentials" : "Server Error"),
};
