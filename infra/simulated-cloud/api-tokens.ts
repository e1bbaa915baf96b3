import type { People } from "./idp/people.ts";
import {
  decodeUnverified,
  hs256,
  type Members,
  publicJwk,
  publicPem,
  rs256,
  type SigningKey,
  signingKey,
  unsigned,
} from "./jwt.ts";
import type { Principal, Tokens } from "./tokens.ts";

/**
 * The tenant of personal Microsoft accounts. The version 2 key endpoint of every tenant also publishes the keys of this tenant.
 */
const PERSONAL_TENANT = "9188040d-6c67-4c5b-b112-36a304b66dad";

/** An access token that a test requests. The token is valid unless `claims`, `header` or `signature` make it invalid. */
export interface ApiTokenRequest {
  version?: 1 | 2;
  /** ID of the signed-in person (idp/people.ts). Default: the token is for an application. */
  person?: string;
  /** Claims to set. Null removes a claim. */
  claims?: Members;
  /** Header members to set. */
  header?: Members;
  /**
   * How the token is signed. Default: RS256 with the tenant's key. `foreignKey`: with an unpublished key, but the ID of a
   * published key. `personalKey`: with a key of another tenant. `publicKeyHmac`: HS256 with the tenant's public key as the
   * secret.
   */
  signature?: "none" | "foreignKey" | "personalKey" | "publicKeyHmac";
}

export interface ApiTokenOptions {
  tokens: Tokens;
  people: People;
  /** Application ID of the API registration of the service under test. */
  clientId: string;
  /** `https://login.localhost:port` */
  authority: string;
}

/**
 * Issues Entra access tokens for the API of the service under test: valid ones for clients, and invalid ones that a test
 * requests. Claims: https://learn.microsoft.com/entra/identity-platform/access-token-claims-reference. The token version
 * follows from the API registration (`accessTokenAcceptedVersion`), not from the endpoint that the client called.
 */
export class ApiTokens {
  readonly #options: ApiTokenOptions;
  #version: 1 | 2 = 2;
  #roles: readonly string[] = [];
  #otherKeys: { foreign: SigningKey; personal: SigningKey } | undefined;

  constructor(options: ApiTokenOptions) {
    this.#options = options;
  }

  /**
   * Sets the token version, and the app roles that applications have from now on. Applications without a role still get tokens.
   * @param roles Values of app roles, such as `Lifecycle.User`.
   */
  register(version: 1 | 2, roles: readonly string[]): void {
    this.#version = version;
    this.#roles = roles;
  }

  /** Returns whether the audience is the API of the service. */
  isFor(audience: string): boolean {
    return audience === this.#options.clientId || audience === `api://${this.#options.clientId}`;
  }

  /** Returns the token of an application that authenticates with a secret or as a managed identity. */
  issue(principal: Principal, audience: string): { token: string; claims: { exp: number } } {
    const claims = this.#applicationClaims(this.#version, principal, this.#roles);
    // A version 1 token has the audience that the client named, a version 2 token always the application ID.
    if (this.#version === 1) claims.aud = audience;
    return { token: this.#options.tokens.sign(claims), claims };
  }

  /** Returns a token that a test requests. */
  async createToken({ version = 2, person, claims = {}, header = {}, signature }: ApiTokenRequest): Promise<string> {
    const { tokens, people } = this.#options;
    const user = person === undefined ? undefined : people.find(person);
    if (person !== undefined && user === undefined) throw new Error(`Unknown person ${person}`);
    const application = {
      clientId: "b1a5e000-0000-4000-8000-000000000001",
      objectId: "b1a5e000-0000-4000-8000-000000000002",
    };
    const validClaims = this.#applicationClaims(version, application, ["Lifecycle.User"]);
    if (user !== undefined) {
      const { name, email, objectId, roles } = user;
      const nameClaims = version === 1 ? { upn: email, unique_name: email } : { preferred_username: email };
      // The `sub` of a person differs per application. The `sub` of an application is its object ID.
      Object.assign(validClaims, nameClaims, {
        name,
        oid: objectId,
        sub: `pairwise-${objectId}`,
        scp: "access_as_user",
        roles,
      });
      Object.assign(validClaims, { idtyp: undefined });
    }
    const claimEntries = Object.entries({ ...validClaims, ...claims }).filter(
      ([, value]) => value !== null && value !== undefined,
    );
    const payload = Object.fromEntries(claimEntries);
    const tokenHeader = { ...decodeUnverified(tokens.sign({})).header, ...header };
    this.#otherKeys ??= await createOtherKeys(tokens.signingKey.id);
    switch (signature) {
      case "none":
        return unsigned(tokenHeader, payload);
      case "publicKeyHmac":
        return hs256(tokenHeader, payload, publicPem(tokens.signingKey));
      case "foreignKey":
        return rs256(tokenHeader, payload, this.#otherKeys.foreign);
      case "personalKey":
        return rs256({ ...tokenHeader, kid: this.#otherKeys.personal.id }, payload, this.#otherKeys.personal);
      case undefined:
        return rs256(tokenHeader, payload, tokens.signingKey);
    }
  }

  /** Returns the published keys of one endpoint version. Version 2 adds the issuer that may use each key. */
  async jwks(version: 1 | 2): Promise<{ keys: Members[] }> {
    const { tokens, authority } = this.#options;
    if (version === 1) return { keys: tokens.jwks() };
    this.#otherKeys ??= await createOtherKeys(tokens.signingKey.id);
    const personal = { ...publicJwk(this.#otherKeys.personal), issuer: `${authority}/${PERSONAL_TENANT}/v2.0` };
    return { keys: [...tokens.jwks().map((key) => ({ ...key, issuer: `${authority}/{tenantid}/v2.0` })), personal] };
  }

  #applicationClaims(
    version: 1 | 2,
    { clientId, objectId }: Principal,
    roles: readonly string[],
  ): Members & { exp: number } {
    const { tokens, clientId: api, authority } = this.#options;
    const { tenantId, lifetimeSeconds } = tokens;
    const iat = Math.floor(Date.now() / 1000);
    const times = { iat, nbf: iat, exp: iat + lifetimeSeconds };
    const commonClaims = { ...times, tid: tenantId, oid: objectId, sub: objectId, idtyp: "app" };
    // If the application has no role, Entra omits the claim and still issues the token.
    if (roles.length > 0) Object.assign(commonClaims, { roles });
    return version === 1
      ? {
          ...commonClaims,
          aud: `api://${api}`,
          iss: tokens.issuer,
          idp: tokens.issuer,
          appid: clientId,
          appidacr: "1",
          ver: "1.0",
        }
      : { ...commonClaims, aud: api, iss: `${authority}/${tenantId}/v2.0`, azp: clientId, azpacr: "1", ver: "2.0" };
  }
}

async function createOtherKeys(id: string) {
  const [foreign, personal] = await Promise.all([signingKey(id), signingKey("personal-accounts")]);
  return { foreign, personal };
}
