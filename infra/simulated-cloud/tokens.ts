import { createPublicKey, generateKeyPairSync, type KeyObject, verify } from "node:crypto";
import { type Members, publicJwk, rs256, type SigningKey } from "./jwt.ts";
import { versionFrom } from "./vaults/identifiers.ts";

/** The subject of a token: an application and its service principal. */
export interface Principal {
  clientId: string;
  objectId: string;
}

/** Claims of an access token. */
export interface Claims {
  aud: string;
  iss: string;
  tid: string;
  oid: string;
  appid: string;
  /** Unix seconds. */
  iat: number;
  exp: number;
}

/** The claims of a workload's token that federated credentials name. */
export interface WorkloadClaims {
  issuer: string;
  subject: string;
  audience: string;
}

/** Why a token is not valid. */
export type TokenProblem = "malformed" | "signature" | "expired" | "audience";

/** The cache of verified tokens is cleared above this size. */
const MAX_VERIFIED_TOKENS = 1000;

/** Issues and verifies access tokens: RS256 JWTs in the format of Entra's version 1 tokens. */
export class Tokens {
  readonly tenantId: string;
  readonly issuer: string;
  readonly lifetimeSeconds: number;
  /** Signing keys, newest first. The newest key signs. The previous key is still published, as in Entra. */
  #keys: SigningKey[];
  /** Functions that return a principal's application permissions, by the token's audience. They become the claim `roles`. */
  readonly roles = new Map<string, (principal: Principal) => readonly string[]>();
  /** Claims of verified tokens, so that the signature of a reused token is verified only once. */
  readonly #verified = new Map<string, Claims>();

  constructor(key: KeyObject, tenantId: string, lifetimeSeconds: number) {
    this.#keys = [withId(key)];
    this.tenantId = tenantId;
    this.issuer = issuerOf(tenantId);
    this.lifetimeSeconds = lifetimeSeconds;
  }

  /**
   * Issues a token.
   * @param tenantId - Tenant that issues the token. Default: the service's own.
   */
  issue(principal: Principal, audience: string, tenantId = this.tenantId): { token: string; claims: Claims } {
    const iat = Math.floor(Date.now() / 1000);
    const issuer = issuerOf(tenantId);
    const claims: Claims = {
      aud: audience,
      iss: issuer,
      tid: tenantId,
      oid: principal.objectId,
      appid: principal.clientId,
      iat,
      exp: iat + this.lifetimeSeconds,
    };
    const roles = this.roles.get(audience.replace(/\/$/, ""))?.(principal) ?? [];
    const furtherClaims = {
      ...(roles.length > 0 && { roles }),
      nbf: iat,
      appidacr: "1",
      idp: issuer,
      sub: principal.objectId,
      idtyp: "app",
      ver: "1.0",
    };
    return { token: this.sign({ ...claims, ...furtherClaims }), claims };
  }

  /** Signs claims with the newest key. */
  sign(claims: Members): string {
    const key = this.#keys[0]!;
    return rs256({ typ: "JWT", kid: key.id, x5t: key.id }, claims, key);
  }

  /** Issues a token of a workload on any platform, such as GitHub Actions or Kubernetes. It is valid for ten minutes. */
  workloadToken({ issuer, subject, audience }: WorkloadClaims, issuedAt = Date.now()): string {
    const iat = Math.floor(issuedAt / 1000);
    return this.sign({ iss: issuer, sub: subject, aud: audience, iat, nbf: iat, exp: iat + 600 });
  }

  /** Verifies a token of a workload. */
  checkWorkload(token: string): WorkloadClaims | Exclude<TokenProblem, "audience"> {
    let claims: Claims | TokenProblem;
    try {
      claims = this.#verify(token);
    } catch {
      return "malformed"; // The parts are no JSON.
    }
    if (typeof claims === "string") return claims === "audience" ? "malformed" : claims;
    const { iss, aud, exp, sub } = claims as Claims & { sub?: unknown };
    if (typeof sub !== "string" || typeof aud !== "string" || typeof iss !== "string") return "malformed";
    return exp * 1000 <= Date.now() ? "expired" : { issuer: iss, subject: sub, audience: aud };
  }

  /** Starts to sign with a new key. Only the previous one of the older keys stays published. */
  rollKeys(): void {
    const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    this.#keys = [withId(privateKey), this.#keys[0]!];
    this.#verified.clear();
  }

  get signingKey(): SigningKey {
    return this.#keys[0]!;
  }

  /**
   * Verifies a token.
   * @param audiences - Accepted audiences, without a trailing slash. The token's audience can have one.
   */
  check(token: string, audiences: readonly string[]): Claims | TokenProblem {
    const claims = this.#verified.get(token) ?? this.#verify(token);
    if (typeof claims === "string") return claims;
    if (claims.exp * 1000 <= Date.now()) return "expired";
    return audiences.includes(claims.aud.replace(/\/$/, "")) ? claims : "audience";
  }

  /** Returns the published keys. */
  jwks(): Members[] {
    return this.#keys.map((key) => ({ ...publicJwk(key), x5t: key.id }));
  }

  #verify(token: string): Claims | TokenProblem {
    const [header, payload, signature, ...more] = token.split(".");
    if (header === undefined || payload === undefined || signature === undefined || more.length > 0) return "malformed";
    const signed = Buffer.from(`${header}.${payload}`);
    const isSignedBy = (key: SigningKey) =>
      verify("sha256", signed, key.publicKey, Buffer.from(signature, "base64url"));
    if (!this.#keys.some(isSignedBy)) return "signature";
    const claims = JSON.parse(Buffer.from(payload, "base64url").toString("utf8")) as Claims;
    if (this.#verified.size > MAX_VERIFIED_TOKENS) this.#verified.clear();
    this.#verified.set(token, claims);
    return claims;
  }
}

/** Issuer of version 1 tokens. */
export const issuerOf = (tenantId: string): string => `https://sts.windows.net/${tenantId}/`;

/** Derives the public key and the key ID: 32 hexadecimal digits of a hash of the public key. */
function withId(privateKey: KeyObject): SigningKey {
  const publicKey = createPublicKey(privateKey);
  const id = versionFrom(publicKey.export({ type: "spki", format: "pem" }).toString());
  return { id, privateKey, publicKey };
}

/** Checks the token in an Authorization header. Returns the error, or undefined if the token is valid for the audience. */
export function tokenProblem(tokens: Tokens, header: string | undefined, audience: string): string | undefined {
  const token = bearerToken(header);
  if (token === undefined) return "The Authorization header with the scheme Bearer is missing.";
  const claims = tokens.check(token, [audience]);
  return typeof claims === "string" ? `The token is not valid: ${claims}.` : undefined;
}

/** Returns the token of a Bearer Authorization header. Undefined if there is none. */
export function bearerToken(header: string | undefined): string | undefined {
  return /^Bearer\s+(\S+)$/i.exec(header ?? "")?.[1];
}
