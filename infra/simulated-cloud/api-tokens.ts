import type { People } from "./idp/people.ts";
import {
  decoded,
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

/** The tenant of personal accounts, whose keys stand among those of every tenant's version 2 endpoint. */
const PERSONAL_TENANT = "9188040d-6c67-4c5b-b112-36a304b66dad";

/** A token to be made: one that the service must take, but for what is asked for. */
export interface ApiTokenRequest {
  version?: 1 | 2;
  /** Who asked for it, by the id in `idp/people.ts`; left out, an application. */
  person?: string;
  /** Claims that are set; null leaves one out. */
  claims?: Members;
  header?: Members;
  /** Left out, RS256 with the tenant's key. `foreignKey` has that key's id, `personalKey` is one of another tenant. */
  signature?: "none" | "foreignKey" | "personalKey" | "publicKeyHmac";
}

export interface ApiTokenOptions {
  tokens: Tokens;
  people: People;
  /** The application id that the service is registered with as an API. */
  clientId: string;
  /** `https://login.localhost:port` */
  authority: string;
}

/**
 * Entra's access tokens for the service's own API: claims and their shapes as in
 * https://learn.microsoft.com/entra/identity-platform/access-token-claims-reference. Which version an application gets
 * is a setting of the API's registration (`accessTokenAcceptedVersion`), not of the endpoint it asked.
 */
export class ApiTokens {
  readonly #options: ApiTokenOptions;
  #version: 1 | 2 = 2;
  #roles: readonly string[] = [];
  #others: { foreign: SigningKey; personal: SigningKey } | undefined;

  constructor(options: ApiTokenOptions) {
    this.#options = options;
  }

  /** @param roles the app roles that every application has from now on; without any, tokens are given all the same. */
  register(version: 1 | 2, roles: readonly string[]): void {
    this.#version = version;
    this.#roles = roles;
  }

  isFor(audience: string): boolean {
    return audience === this.#options.clientId || audience === `api://${this.#options.clientId}`;
  }

  /** What an application gets that asks with its secret or as a managed identity. */
  issue(principal: Principal, audience: string): { token: string; claims: { exp: number } } {
    const claims = this.#applicationClaims(this.#version, principal, this.#roles);
    if (this.#version === 1) claims.aud = audience;
    return { token: this.#options.tokens.sign(claims), claims };
  }

  async make({ version = 2, person, claims = {}, header = {}, signature }: ApiTokenRequest): Promise<string> {
    const { tokens, people } = this.#options;
    const somebody = person === undefined ? undefined : people.find(person);
    if (person !== undefined && somebody === undefined) throw new Error(`Nobody has the id ${person}`);
    const application = {
      clientId: "b1a5e000-0000-4000-8000-000000000001",
      objectId: "b1a5e000-0000-4000-8000-000000000002",
    };
    const correct = this.#applicationClaims(version, application, ["Lifecycle.User"]);
    if (somebody !== undefined) {
      const { name, email, objectId, roles } = somebody;
      const named = version === 1 ? { upn: email, unique_name: email } : { preferred_username: email };
      // The subject of a person differs for each application; that of an application is its object id.
      Object.assign(correct, named, { name, oid: objectId, sub: `pairwise-${objectId}`, scp: "access_as_user", roles });
      Object.assign(correct, { idtyp: undefined });
    }
    const all = Object.entries({ ...correct, ...claims }).filter(([, value]) => value !== null && value !== undefined);
    const payload = Object.fromEntries(all);
    const head = { ...decoded(tokens.sign({})).header, ...header };
    this.#others ??= await makeOthers(tokens.signingKey.id);
    switch (signature) {
      case "none":
        return unsigned(head, payload);
      case "publicKeyHmac":
        return hs256(head, payload, publicPem(tokens.signingKey));
      case "foreignKey":
        return rs256(head, payload, this.#others.foreign);
      case "personalKey":
        return rs256({ ...head, kid: this.#others.personal.id }, payload, this.#others.personal);
      case undefined:
        return rs256(head, payload, tokens.signingKey);
    }
  }

  /** The keys of one version: those of version 2 say which issuer may use them. */
  async jwks(version: 1 | 2): Promise<{ keys: Members[] }> {
    const { tokens, authority } = this.#options;
    if (version === 1) return { keys: tokens.jwks() };
    this.#others ??= await makeOthers(tokens.signingKey.id);
    const personal = { ...publicJwk(this.#others.personal), issuer: `${authority}/${PERSONAL_TENANT}/v2.0` };
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
    const same = { ...times, tid: tenantId, oid: objectId, sub: objectId, idtyp: "app" };
    // Without a role the claim is left out, and the token given all the same.
    if (roles.length > 0) Object.assign(same, { roles });
    return version === 1
      ? {
          ...same,
          aud: `api://${api}`,
          iss: tokens.issuer,
          idp: tokens.issuer,
          appid: clientId,
          appidacr: "1",
          ver: "1.0",
        }
      : { ...same, aud: api, iss: `${authority}/${tenantId}/v2.0`, azp: clientId, azpacr: "1", ver: "2.0" };
  }
}

async function makeOthers(id: string) {
  const [foreign, personal] = await Promise.all([signingKey(id), signingKey("personal-accounts")]);
  return { foreign, personal };
}
