import { createPublicKey, generateKeyPairSync, type KeyObject, verify } from "node:crypto";
import { type Members, publicJwk, rs256, type SigningKey } from "./jwt.ts";
import { versionFrom } from "./resources/identifiers.ts";

/** Who a token speaks for: an application and its service principal. */
export interface Principal {
  clientId: string;
  objectId: string;
}

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

export type TokenProblem = "malformed" | "signature" | "expired" | "audience";

/** Issues and checks access tokens: RS256 JWTs in the shape of Entra's version 1 tokens. */
export class Tokens {
  readonly tenantId: string;
  readonly issuer: string;
  readonly lifetimeSeconds: number;
  /** The newest first: it signs. The others are published, as Entra publishes them for a while. */
  #keys: SigningKey[];
  /** The application permissions that stand in a token for a resource, by the resource. */
  readonly roles = new Map<string, (principal: Principal) => readonly string[]>();
  /** Signatures that held, so that a token used many times is verified once. */
  readonly #verified = new Map<string, Claims>();

  constructor(key: KeyObject, tenantId: string, lifetimeSeconds: number) {
    this.#keys = [withId(key)];
    this.tenantId = tenantId;
    this.issuer = issuerOf(tenantId);
    this.lifetimeSeconds = lifetimeSeconds;
  }

  /** @param tenantId - Of the tenant that it is issued in; left out, the service's own. */
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
    const rest = {
      ...(roles.length > 0 && { roles }),
      nbf: iat,
      appidacr: "1",
      idp: issuer,
      sub: principal.objectId,
      idtyp: "app",
      ver: "1.0",
    };
    return { token: this.sign({ ...claims, ...rest }), claims };
  }

  sign(claims: Members): string {
    const key = this.#keys[0]!;
    return rs256({ typ: "JWT", kid: key.id, x5t: key.id }, claims, key);
  }

  /** From now on a new key signs. The one before it stays published, older ones don't. */
  rollKeys(): void {
    const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    this.#keys = [withId(privateKey), this.#keys[0]!];
    this.#verified.clear();
  }

  get signingKey(): SigningKey {
    return this.#keys[0]!;
  }

  /** @param audiences any of which will do; a slash at the end makes no difference. */
  check(token: string, audiences: readonly string[]): Claims | TokenProblem {
    const claims = this.#verified.get(token) ?? this.#verify(token);
    if (typeof claims === "string") return claims;
    if (claims.exp * 1000 <= Date.now()) return "expired";
    return audiences.includes(claims.aud.replace(/\/$/, "")) ? claims : "audience";
  }

  /** The published keys. */
  jwks(): Members[] {
    return this.#keys.map((key) => ({ ...publicJwk(key), x5t: key.id }));
  }

  #verify(token: string): Claims | TokenProblem {
    const [header, payload, signature, ...more] = token.split(".");
    if (header === undefined || payload === undefined || signature === undefined || more.length > 0) return "malformed";
    const signed = Buffer.from(`${header}.${payload}`);
    const holds = (key: SigningKey) => verify("sha256", signed, key.publicKey, Buffer.from(signature, "base64url"));
    if (!this.#keys.some(holds)) return "signature";
    const claims = JSON.parse(Buffer.from(payload, "base64url").toString("utf8")) as Claims;
    if (this.#verified.size > 1000) this.#verified.clear();
    this.#verified.set(token, claims);
    return claims;
  }
}

export const issuerOf = (tenantId: string): string => `https://sts.windows.net/${tenantId}/`;

function withId(privateKey: KeyObject): SigningKey {
  const publicKey = createPublicKey(privateKey);
  const id = versionFrom(publicKey.export({ type: "spki", format: "pem" }).toString());
  return { id, privateKey, publicKey };
}

/** What is wrong with a request's token for a service; undefined when it holds. */
export function tokenProblem(tokens: Tokens, header: string | undefined, audience: string): string | undefined {
  const token = bearerToken(header);
  if (token === undefined) return "The Authorization header with the scheme Bearer is missing.";
  const claims = tokens.check(token, [audience]);
  return typeof claims === "string" ? `The token is not valid: ${claims}.` : undefined;
}

/** The token of an Authorization header; undefined when there is none of the scheme Bearer. */
export function bearerToken(header: string | undefined): string | undefined {
  return /^Bearer\s+(\S+)$/i.exec(header ?? "")?.[1];
}
