import {
  type CryptoKey,
  createRemoteJWKSet,
  decodeJwt,
  errors,
  type JSONWebKeySet,
  type JWSHeaderParameters,
  jwtVerify,
  type RemoteJWKSet,
} from "jose";
import * as z from "zod";
import type { Config } from "../platform/config/config.ts";
import { badCredential } from "../platform/http/admission.ts";
import type { Actor, Role } from "../platform/http/endpoint.ts";
import { Problem, retryLater } from "../platform/http/problem.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { HOUR_MS, SECOND_MS } from "../platform/time.ts";

/** The app roles that the app registration of this API declares, and the role of this service for each. */
const APP_ROLES = new Map<string, Role>([
  ["Lifecycle.Admin", "admin"],
  ["Lifecycle.Auditor", "auditor"],
  ["Lifecycle.Operator", "operator"],
  ["Lifecycle.User", "user"],
]);

/** Chosen by the service, never by the token: https://www.rfc-editor.org/rfc/rfc8725#section-3.1 */
const ALGORITHM = "RS256";

/** Tolerated clock difference between Entra and this service. */
const CLOCK_TOLERANCE_SECONDS = 60;

/** Timeout in milliseconds for reading a document or keys from Entra. */
const TIMEOUT_MS = 5 * SECOND_MS;

/** Time for which keys are cached. */
const KEY_CACHE_MS = HOUR_MS;
/** Minimum time between two refreshes of the keys. A token that names an unknown key causes a refresh. */
const KEY_REFRESH_INTERVAL_MS = 30 * SECOND_MS;

/** Seconds of `Retry-After` when Entra's keys can't be read. */
const RETRY_SECONDS = 10;

const Metadata = z.object({ issuer: z.string(), jwks_uri: z.url({ protocol: /^https$/ }) });

/** Claims that `jwtVerify` does not check. https://learn.microsoft.com/entra/identity-platform/access-token-claims-reference */
const Claims = z.object({
  tid: z.guid(),
  oid: z.guid(),
  ver: z.string(),
  sub: z.string(),
  roles: z.array(z.string()).default([]),
  /** Delegated scopes, separated by spaces. */
  scp: z.string().optional(),
  /** `app` or `user`: an optional claim of the registration. */
  idtyp: z.string().optional(),
  /** Time of the person's sign-in, in seconds since 1970: an optional claim of the registration. */
  auth_time: z.number().optional(),
});
type Claims = z.infer<typeof Claims>;

/** A tenant as the issuer of tokens in format 1.0 or 2.0. */
interface Issuer {
  /** `iss` claim of its tokens. */
  name: string;
  tenant: string;
  /** `ver` claim of its tokens. */
  version: "1.0" | "2.0";
  /** URL of its discovery document. */
  metadata: string;
  /** The `issuer` that a signing key of this tenant may name. */
  keyIssuer: string;
}

/** Verifies access tokens that Entra issued for this API. The service's authentication calls it for each bearer token. */
export interface EntraTokens {
  /**
   * Returns the actor of an access token of a configured tenant, or the problem with which to reject the request: 401, 403, or
   * 503 while Entra's keys can't be read. Returns undefined if the token does not name one of these tenants.
   */
  authenticate(token: string): Promise<Actor | Problem | undefined>;
}

/** Verifies access tokens of Entra. Without `ENTRA_API_CLIENT_ID` it accepts none. */
export function createEntraTokens(deps: {
  config: Pick<Config, "ENTRA_API_CLIENT_ID" | "ENTRA_TENANT_IDS" | "ENTRA_API_SCOPE" | "cloud">;
  clock: Clock;
  log: Logger;
}): EntraTokens {
  const { config, clock, log } = deps;
  const clientId = config.ENTRA_API_CLIENT_ID;
  const issuers = new Map(config.ENTRA_TENANT_IDS.flatMap((tenant) => issuersOf(tenant.toLowerCase(), config.cloud)));
  const keySets = new Map<Issuer, Promise<RemoteJWKSet>>();

  /** Returns the issuer's cached key set. A failed read is retried for the next token. */
  async function keySetOf(issuer: Issuer): Promise<RemoteJWKSet> {
    const keys = keySets.get(issuer) ?? openKeySet(issuer);
    keySets.set(issuer, keys);
    try {
      return await keys;
    } catch (error) {
      if (keySets.get(issuer) === keys) keySets.delete(issuer);
      throw error;
    }
  }

  /** Returns the signing key that a token names. @throws {JOSEError} if the issuer has no such key. @throws {KeysUnreadable} */
  async function keyOf(issuer: Issuer, header: JWSHeaderParameters): Promise<CryptoKey> {
    try {
      const keys = await keySetOf(issuer);
      const key = await keys(header);
      const publishedKey = keys.jwks()?.keys.find(({ kid }) => kid === header.kid);
      if (!publishedKey || !isKeyOf(issuer, publishedKey)) throw new errors.JWKSNoMatchingKey();
      return key;
    } catch (error) {
      if (error instanceof errors.JWKSNoMatchingKey || error instanceof errors.JWKSMultipleMatchingKeys) throw error;
      throw new KeysUnreadable(issuer, error);
    }
  }

  async function verifyClaims(token: string, issuer: Issuer): Promise<Claims | undefined> {
    const { payload } = await jwtVerify(token, (header) => keyOf(issuer, header), {
      algorithms: [ALGORITHM],
      issuer: issuer.name,
      audience: [clientId!, `api://${clientId}`],
      requiredClaims: ["exp", "iat"],
      clockTolerance: CLOCK_TOLERANCE_SECONDS,
      currentDate: clock.now(),
    });
    const claims = Claims.safeParse(payload).data;
    if (claims?.tid.toLowerCase() !== issuer.tenant || claims.ver !== issuer.version) return undefined;
    return claims;
  }

  function actorOf(claims: Claims, { tenant }: Issuer): Actor | Problem {
    // A person's access token needs the scope of this API. An application's token has no scopes and needs none. A person's ID
    // token has no scopes either, so this check rejects ID tokens.
    // Without `idtyp`: only the subject of an application's token is its object ID. A person's `sub` differs for each API.
    const isApplication = claims.idtyp === undefined ? claims.oid === claims.sub : claims.idtyp === "app";
    const scopes = claims.scp?.split(" ");
    if (scopes ? !scopes.includes(config.ENTRA_API_SCOPE) : !isApplication) {
      const scope = `api://${clientId}/${config.ENTRA_API_SCOPE}`;
      return new Problem("forbidden", `A person's token needs the scope ${scope}: ask Entra for it.`);
    }
    const role = roleOf(claims.roles);
    if (role instanceof Problem) return role;
    const { auth_time: authTime } = claims;
    const confirmedAt = isApplication || authTime === undefined ? undefined : new Date(authTime * 1000);
    return {
      username: `entra:${tenant}:${claims.oid.toLowerCase()}`,
      role,
      credential: { kind: "entra" },
      confirmedAt,
    };
  }

  return {
    async authenticate(token) {
      if (clientId === undefined) return undefined;
      const issuer = issuers.get(claimedIssuer(token));
      if (!issuer) return undefined;
      try {
        const claims = await verifyClaims(token, issuer);
        return claims ? actorOf(claims, issuer) : badCredential("bearer");
      } catch (error) {
        if (error instanceof errors.JOSEError) return badCredential("bearer");
        if (!(error instanceof KeysUnreadable)) throw error;
        log.warn(error.message, { error: String(error.cause) });
        return retryLater(
          "unavailable",
          "Entra's keys can't be read now, so its tokens can't be checked.",
          RETRY_SECONDS,
        );
      }
    },
  };
}

function issuersOf(tenant: string, { authorityHost, issuers }: Config["cloud"]): [string, Issuer][] {
  const [v1, v2] = [`${issuers.v1}/${tenant}/`, `${issuers.v2}/${tenant}/v2.0`];
  const document = ".well-known/openid-configuration";
  return [
    [v1, { name: v1, tenant, version: "1.0", metadata: `${authorityHost}/${tenant}/${document}`, keyIssuer: v2 }],
    [v2, { name: v2, tenant, version: "2.0", metadata: `${authorityHost}/${tenant}/v2.0/${document}`, keyIssuer: v2 }],
  ];
}

/** Returns the issuer that a token claims, unverified. Empty if the text is not a token. */
function claimedIssuer(token: string): string {
  try {
    return decodeJwt(token).iss ?? "";
  } catch (error) {
    if (error instanceof errors.JOSEError) return "";
    throw error;
  }
}

/**
 * Reads the issuer's metadata and returns its key set, which reads and caches the keys.
 *
 * @throws {Error} if the metadata can't be read or is not valid.
 */
async function openKeySet(issuer: Issuer): Promise<RemoteJWKSet> {
  const response = await fetch(issuer.metadata, { redirect: "error", signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (!response.ok) throw new Error(`${issuer.metadata} returned status ${response.status}`);
  const metadata = Metadata.parse(await response.json());
  if (metadata.issuer !== issuer.name) throw new Error(`${issuer.metadata} belongs to another issuer`);
  return createRemoteJWKSet(new URL(metadata.jwks_uri), {
    timeoutDuration: TIMEOUT_MS,
    cacheMaxAge: KEY_CACHE_MS,
    cooldownDuration: KEY_REFRESH_INTERVAL_MS,
  });
}

/**
 * Returns true if the key belongs to the issuer. A key set can contain keys of other tenants; a key's `issuer` is in version 2
 * format. https://learn.microsoft.com/entra/identity-platform/access-tokens#validate-the-signing-key-issuer
 */
function isKeyOf(
  { tenant, keyIssuer }: Issuer,
  { issuer }: JSONWebKeySet["keys"][number] & { issuer?: unknown },
): boolean {
  return issuer === undefined || (typeof issuer === "string" && issuer.replace("{tenantid}", tenant) === keyIssuer);
}

function roleOf(appRoles: readonly string[]): Role | Problem {
  const roles = new Set(appRoles.flatMap((name) => APP_ROLES.get(name) ?? []));
  if (roles.has("admin")) return "admin";
  if (roles.has("auditor") && roles.has("operator")) {
    return new Problem(
      "forbidden",
      "The token has the app roles Lifecycle.Auditor and Lifecycle.Operator, which exclude each other. Remove one of the assignments in Entra.",
    );
  }
  const role = (["auditor", "operator", "user"] as const).find((candidate) => roles.has(candidate));
  return (
    role ??
    new Problem(
      "forbidden",
      `The token has no app role of this service. Assign one in Entra: ${[...APP_ROLES.keys()].join(", ")}.`,
    )
  );
}

/** The token can't be verified now because Entra's keys could not be read. */
class KeysUnreadable extends Error {
  constructor(issuer: Issuer, cause: unknown) {
    super(`The keys of ${issuer.name} can't be read`, { cause });
  }
}
