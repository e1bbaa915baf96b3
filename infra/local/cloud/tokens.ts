import { createPublicKey, type KeyObject, sign, verify } from "node:crypto";
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

const base64url = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");

/** Issues and checks access tokens: RS256 JWTs in the shape of Entra's version 1 tokens. */
export class Tokens {
  readonly tenantId: string;
  readonly issuer: string;
  readonly lifetimeSeconds: number;
  readonly #key: KeyObject;
  readonly #publicKey: KeyObject;
  readonly #kid: string;
  /** Signatures that held, so that a token used many times is verified once. */
  readonly #verified = new Map<string, Claims>();

  constructor(key: KeyObject, tenantId: string, lifetimeSeconds: number) {
    this.#key = key;
    this.#publicKey = createPublicKey(key);
    this.#kid = versionFrom(this.#publicKey.export({ type: "spki", format: "pem" }).toString());
    this.tenantId = tenantId;
    this.issuer = `https://sts.windows.net/${tenantId}/`;
    this.lifetimeSeconds = lifetimeSeconds;
  }

  issue(principal: Principal, audience: string): { token: string; claims: Claims } {
    const iat = Math.floor(Date.now() / 1000);
    const claims: Claims = {
      aud: audience,
      iss: this.issuer,
      tid: this.tenantId,
      oid: principal.objectId,
      appid: principal.clientId,
      iat,
      exp: iat + this.lifetimeSeconds,
    };
    const header = { typ: "JWT", alg: "RS256", kid: this.#kid, x5t: this.#kid };
    const rest = { nbf: iat, appidacr: "1", idp: this.issuer, sub: principal.objectId, idtyp: "app", ver: "1.0" };
    const signed = `${base64url(header)}.${base64url({ ...claims, ...rest })}`;
    return { token: `${signed}.${sign("sha256", Buffer.from(signed), this.#key).toString("base64url")}`, claims };
  }

  /** @param audiences any of which will do; a slash at the end makes no difference. */
  check(token: string, audiences: readonly string[]): Claims | TokenProblem {
    const claims = this.#verified.get(token) ?? this.#verify(token);
    if (typeof claims === "string") return claims;
    if (claims.exp * 1000 <= Date.now()) return "expired";
    return audiences.includes(claims.aud.replace(/\/$/, "")) ? claims : "audience";
  }

  jwks(): { keys: object[] } {
    return { keys: [{ ...this.#publicKey.export({ format: "jwk" }), use: "sig", alg: "RS256", kid: this.#kid }] };
  }

  #verify(token: string): Claims | TokenProblem {
    const [header, payload, signature, ...more] = token.split(".");
    if (header === undefined || payload === undefined || signature === undefined || more.length > 0) return "malformed";
    const signed = Buffer.from(`${header}.${payload}`);
    if (!verify("sha256", signed, this.#publicKey, Buffer.from(signature, "base64url"))) return "signature";
    const claims = JSON.parse(Buffer.from(payload, "base64url").toString("utf8")) as Claims;
    if (this.#verified.size > 1000) this.#verified.clear();
    this.#verified.set(token, claims);
    return claims;
  }
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
