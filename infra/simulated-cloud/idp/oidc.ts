import { randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { KoaContextWithOIDC, default as Provider } from "oidc-provider";
import {
  decodeUnverified,
  ed25519Key,
  edDsa,
  hs256,
  publicPem,
  rs256,
  type SigningKey,
  signingKey,
  unsigned,
} from "../jwt.ts";
import { type LogoutTokenChange, logoutToken } from "./logout-tokens.ts";
import { OIDC_MODES, type OidcMode, type OidcModeName } from "./oidc-modes.ts";
import { oidcStore } from "./oidc-store.ts";
import type { People } from "./people.ts";
import { signInPage, signOutPage } from "./sign-in-page.ts";

// The simulated identity provider for OpenID Connect: the library oidc-provider with a sign-in page, whose mode can make it
// misbehave.

export interface OidcClient {
  clientId: string;
  clientSecret: string;
}

/** Page of the service to which the browser returns after a sign-out. */
const POST_LOGOUT_URI = "http://localhost/";
/** Redirect URI of the service, on any port: RFC 8252, section 7.3, leaves the ports of loopback addresses open. */
const REDIRECT_URI = "http://localhost/auth/sso/callback";

const DISCOVERY = "/.well-known/openid-configuration";
/** Path prefix to which the discovery document is redirected. All endpoints are also served below it. */
const ELSEWHERE = "/elsewhere";

/**
 * Simulates an OIDC provider: authorization code flow with PKCE, a confidential client, RFC 9207. A page with the people's
 * names replaces the password. The library is certified, so that the provider accepts exactly what the standard allows. A mode
 * changes the provider's responses. The first request loads the library and creates the first key.
 */
export class OidcProvider {
  readonly #issuer: string;
  readonly #client: OidcClient;
  readonly #people: People;
  readonly #store = oidcStore();
  readonly #cookieKey = randomBytes(32).toString("base64url");
  #mode: OidcModeName = "correct";
  /** Undefined before the first request, and after a change that the library must be loaded again for. */
  #loading: Promise<{ provider: Provider; key: SigningKey }> | undefined;
  #key: Promise<SigningKey> | undefined;
  /** A key with the ID of the published key. The provider never publishes it. */
  #foreignKey: Promise<SigningKey> | undefined;
  #ed25519Key: Promise<SigningKey> | undefined;
  /** URL of the service that is called when a session ends. */
  #backchannelLogoutUri: string | undefined;

  constructor(issuer: string, client: OidcClient, people: People) {
    this.#issuer = issuer;
    this.#client = client;
    this.#people = people;
  }

  get mode(): OidcModeName {
    return this.#mode;
  }

  setMode(mode: OidcModeName): void {
    this.#mode = mode;
  }

  /** Signs with a new key and publishes only the new key. */
  rollKeys(): void {
    this.#key = undefined;
    this.#loading = undefined;
  }

  /** Registers the client's back-channel logout URI. Sessions and keys stay. */
  setBackchannelLogoutUri(uri: string | undefined): void {
    this.#backchannelLogoutUri = uri;
    this.#loading = undefined;
  }

  /** Returns a logout token with the changes, as the provider would send it to the back-channel logout URI. */
  async logoutToken(session: { sub?: string; sid?: string }, change: LogoutTokenChange = {}): Promise<string> {
    this.#loading ??= this.#load();
    const { key } = await this.#loading;
    this.#foreignKey ??= signingKey(key.id);
    const keys = { key, foreignKey: await this.#foreignKey, clientSecret: this.#client.clientSecret };
    return logoutToken({ issuer: this.#issuer, clientId: this.#client.clientId }, session, keys, change);
  }

  async handle(message: IncomingMessage, response: ServerResponse): Promise<void> {
    const mode: OidcMode = OIDC_MODES[this.#mode];
    if (mode.redirects && message.url === DISCOVERY) {
      response.writeHead(302, { location: `${ELSEWHERE}${DISCOVERY}` }).end();
      return;
    }
    if (message.url?.startsWith(ELSEWHERE)) message.url = message.url.slice(ELSEWHERE.length);
    // Shows the page even if a session exists, because testers switch between people.
    if (message.url?.startsWith("/authorize")) forgetSession(message);
    this.#loading ??= this.#load();
    const { provider } = await this.#loading;
    if (message.url?.startsWith("/interaction/")) return await this.#handleSignInPage(provider, message, response);
    await provider.callback()(message, response);
  }

  async #load() {
    this.#key ??= signingKey(randomBytes(8).toString("hex"));
    const [{ default: Provider, interactionPolicy }, key] = await Promise.all([import("oidc-provider"), this.#key]);
    const policy = interactionPolicy.base();
    // The company's administrator has consented for all users.
    policy.remove("consent");
    const provider = new Provider(this.#issuer, {
      adapter: this.#store,
      clients: [
        {
          client_id: this.#client.clientId,
          client_secret: this.#client.clientSecret,
          application_type: "native",
          redirect_uris: [REDIRECT_URI],
          post_logout_redirect_uris: [POST_LOGOUT_URI],
          ...(this.#backchannelLogoutUri !== undefined && { backchannel_logout_uri: this.#backchannelLogoutUri }),
          backchannel_logout_session_required: true,
          response_types: ["code"],
          grant_types: ["authorization_code"],
          token_endpoint_auth_method: "client_secret_basic",
        },
      ],
      jwks: { keys: [{ ...key.privateKey.export({ format: "jwk" }), kid: key.id, alg: "RS256", use: "sig" }] },
      cookies: { keys: [this.#cookieKey] },
      routes: { authorization: "/authorize", userinfo: "/userinfo" },
      interactions: { policy, url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
      features: {
        devInteractions: { enabled: false },
        backchannelLogout: { enabled: true },
        rpInitiatedLogout: {
          enabled: true,
          logoutSource(ctx, form) {
            ctx.body = signOutPage(form);
          },
        },
      },
      pkce: { required: () => true },
      // The library's own `fetch` rejects addresses of this machine, where the service's back-channel logout URI is.
      fetch: (url, { method, headers, body, redirect, signal } = {}) =>
        globalThis.fetch(url, { method, headers, body, redirect, signal } as RequestInit),
      scopes: ["openid", "profile", "email"],
      claims: {
        openid: ["sub", "oid"],
        profile: ["name", "preferred_username", "groups", "roles", "realm_access"],
        email: ["email", "email_verified"],
      },
      // The ID token has the claims of all scopes, as Entra's has. By default, only `userinfo` would return them.
      conformIdTokenClaims: false,
      ttl: { AccessToken: 3600, AuthorizationCode: 60, Grant: 3600, IdToken: 3600, Interaction: 3600, Session: 3600 },
      findAccount: (_ctx, objectId) => this.#account(objectId),
      loadExistingGrant: (ctx) => grantAll(provider, ctx),
      renderError(ctx, out) {
        ctx.type = "text/plain";
        ctx.body = `${out.error}: ${out.error_description ?? ""}\n`;
      },
    });
    provider.use(async (ctx, next) => {
      await next();
      // The library sets `oidc` before any of its routes runs.
      await this.#applyMode(ctx as unknown as KoaContextWithOIDC, key);
    });
    return { provider, key };
  }

  #account(objectId: string) {
    const person = this.#people.withObjectId(objectId);
    if (person === undefined) return undefined;
    const { name, email, emailVerified, groups, roles } = person;
    const claims = {
      sub: objectId,
      oid: objectId,
      name,
      preferred_username: email,
      email,
      email_verified: emailVerified,
      groups,
      roles,
      // Keycloak's location of roles: a claim that is read by a JSON pointer.
      realm_access: { roles },
    };
    return { accountId: objectId, claims: () => claims };
  }

  /** Serves the page that lists the people, and completes the sign-in of the selected person. */
  async #handleSignInPage(provider: Provider, message: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      await provider.interactionDetails(message, response);
    } catch {
      response.writeHead(400, { "content-type": "text/plain" });
      response.end("This sign-in has ended or was started in another browser. Start again.\n");
      return;
    }
    if (message.method !== "POST") {
      response.writeHead(200, { "content-type": "text/html; charset=utf-8", "cache-control": "no-store" });
      response.end(signInPage("Sign in to Acme (OIDC)", this.#people.list()));
      return;
    }
    const form = new URLSearchParams(await textOf(message));
    const person = this.#people.find(form.get("person") ?? "");
    // The description contains markup, which the service must escape when it shows the description.
    const result =
      person === undefined
        ? { error: "access_denied", error_description: "<b>Nobody</b> was chosen" }
        : { login: { accountId: person.objectId } };
    await provider.interactionFinished(message, response, result, { mergeWithLastSubmission: false });
  }

  /** Changes a correct response as the mode requires. */
  async #applyMode(ctx: KoaContextWithOIDC, key: SigningKey): Promise<void> {
    const mode: OidcMode = OIDC_MODES[this.#mode];
    const members = ctx.body as Record<string, unknown>;
    switch (ctx.oidc?.route) {
      case "discovery":
        if (mode.discovery) ctx.body = mode.discovery(members);
        break;
      case "token":
        if (mode.rejectedClient && members?.error === "invalid_client") {
          ctx.body = mode.rejectedClient(members);
          if (mode.rejectedClientStatus) ctx.status = mode.rejectedClientStatus;
          // With a challenge, clients don't read the body. Keycloak sends none.
          ctx.remove("www-authenticate");
        }
        if (typeof members?.id_token === "string") members.id_token = await this.#idToken(mode, members.id_token, key);
        break;
      case "jwks":
        if (mode.signature === "edDsa") {
          const { id, publicKey } = await this.#edDsaKey();
          const jwk = { ...publicKey.export({ format: "jwk" }), kid: id, use: "sig", alg: "EdDSA" };
          ctx.body = { keys: [...(members.keys as unknown[]), jwk] };
        }
        break;
      case "userinfo":
        if (mode.userinfo && ctx.status === 200) ctx.body = mode.userinfo(members);
        break;
      default: {
        const location = ctx.response.get("location");
        if (mode.callback && location.includes("/auth/sso/callback?")) {
          const address = new URL(location);
          mode.callback(address.searchParams);
          ctx.set("location", address.href);
        }
      }
    }
  }

  /** Changes the claims and the signature of a correct ID token. */
  async #idToken({ claims, signature }: OidcMode, idToken: string, key: SigningKey): Promise<string> {
    if (claims === undefined && signature === undefined) return idToken;
    const { header, claims: correctClaims } = decodeUnverified(idToken);
    const payload = claims === undefined ? correctClaims : claims(correctClaims);
    switch (signature) {
      case "none":
        return unsigned(header, payload);
      case "clientSecretHmac":
        return hs256(header, payload, this.#client.clientSecret);
      case "publicKeyHmac":
        return hs256(header, payload, publicPem(key));
      case "foreignKey":
        this.#foreignKey ??= signingKey(key.id);
        return rs256(header, payload, await this.#foreignKey);
      case "edDsa":
        return edDsa(header, payload, await this.#edDsaKey());
      case undefined:
        return rs256(header, payload, key);
    }
  }

  async #edDsaKey(): Promise<SigningKey> {
    this.#ed25519Key ??= ed25519Key("ed25519");
    return await this.#ed25519Key;
  }
}

/** Removes the provider's session cookies from a request. */
function forgetSession(message: IncomingMessage): void {
  const cookies = (message.headers.cookie ?? "").split("; ").filter((cookie) => !cookie.startsWith("_session"));
  message.headers.cookie = cookies.join("; ");
}

/** Grants everything that the client requests. */
async function grantAll(provider: Provider, ctx: KoaContextWithOIDC) {
  const grant = new provider.Grant({
    accountId: ctx.oidc.session!.accountId!,
    clientId: ctx.oidc.client!.clientId,
  });
  grant.addOIDCScope([...ctx.oidc.requestParamScopes].join(" "));
  await grant.save();
  return grant;
}

async function textOf(message: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of message) parts.push(part);
  return Buffer.concat(parts).toString("utf8");
}
