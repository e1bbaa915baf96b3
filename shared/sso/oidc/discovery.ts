import * as z from "zod";
import { type Outgoing, type OutgoingAnswer, Unreachable } from "../../platform/outgoing/outgoing.ts";
import type { Clock } from "../../platform/runtime.ts";
import { MINUTE_MS } from "../../platform/time.ts";

// Reads, checks and caches the discovery document of the OpenID Connect provider.

const text = z.string().max(2048);
const texts = z.array(z.string().max(256)).max(500);

/**
 * The members of a discovery document that this service uses. Others are dropped.
 * https://openid.net/specs/openid-connect-discovery-1_0.html#ProviderMetadata and RFC 8414, 9207
 */
export const DiscoveryDocument = z
  .object({
    issuer: text.meta({ description: "Issuer of the provider's tokens.", example: "https://login.example.com" }),
    authorization_endpoint: text.meta({
      description: "URL to which browsers are redirected to sign in.",
      example: "https://login.example.com/authorize",
    }),
    token_endpoint: text.meta({
      description: "URL at which a code is exchanged for tokens.",
      example: "https://login.example.com/token",
    }),
    jwks_uri: text.meta({
      description: "URL of the provider's public keys.",
      example: "https://login.example.com/keys",
    }),
    userinfo_endpoint: text.optional().meta({
      description: "URL at which claims of a person can be read.",
      example: "https://login.example.com/userinfo",
    }),
    end_session_endpoint: text.optional().meta({
      description: "URL to which browsers are redirected to sign out.",
      example: "https://login.example.com/logout",
    }),
    scopes_supported: texts
      .optional()
      .meta({ description: "Scopes that can be requested.", example: ["openid", "profile", "email"] }),
    response_types_supported: texts
      .optional()
      .meta({ description: "Response types that the provider supports.", example: ["code"] }),
    response_modes_supported: texts
      .optional()
      .meta({ description: "How the provider can return the response to a browser.", example: ["query"] }),
    grant_types_supported: texts
      .optional()
      .meta({ description: "Grant types with which tokens can be requested.", example: ["authorization_code"] }),
    subject_types_supported: texts
      .optional()
      .meta({ description: "Whether all clients see one subject for a person.", example: ["pairwise"] }),
    id_token_signing_alg_values_supported: texts
      .optional()
      .meta({ description: "Algorithms with which the provider signs ID tokens.", example: ["RS256"] }),
    token_endpoint_auth_methods_supported: texts
      .optional()
      .meta({ description: "Methods with which a client can authenticate.", example: ["client_secret_post"] }),
    claims_supported: texts
      .optional()
      .meta({ description: "Claims that the provider can return.", example: ["sub", "email"] }),
    code_challenge_methods_supported: texts
      .optional()
      .meta({ description: "Methods of PKCE (RFC 7636).", example: ["S256"] }),
    authorization_response_iss_parameter_supported: z
      .boolean()
      .optional()
      .meta({ description: "Whether the provider's responses name the issuer (RFC 9207)." }),
  })
  .meta({ id: "OidcDiscoveryDocument" });
export type DiscoveryDocument = z.infer<typeof DiscoveryDocument>;

/** The issuer has no usable discovery document. The message contains nothing from the issuer. */
export class NoDiscoveryDocument extends Error {
  override readonly name = "NoDiscoveryDocument";
}

/**
 * Requests the issuer's discovery document, uncached. As OpenID Connect Discovery 1.0, 4 requires, its URL is below the
 * issuer's path without a trailing slash, and the response must be JSON with status 200. Redirects are not followed.
 *
 * @throws {NoDiscoveryDocument} for an invalid response, {Unreachable} if there is no response
 */
export async function fetchDiscoveryDocument(issuer: string, outgoing: Outgoing): Promise<DiscoveryDocument> {
  const address = `${issuer.replace(/\/+$/, "")}/.well-known/openid-configuration`;
  const response = await outgoing.send(address, { method: "GET", headers: { accept: "application/json" } });
  const document = DiscoveryDocument.safeParse(jsonOf(response));
  if (!document.success) {
    const members = [...new Set(document.error.issues.map(({ path }) => String(path[0] ?? "")))].join(", ");
    throw new NoDiscoveryDocument(`The discovery document has missing or invalid members: ${members}.`);
  }
  return document.data;
}

function jsonOf({ status, headers, body, complete }: OutgoingAnswer): unknown {
  if (status >= 300 && status < 400) {
    throw new NoDiscoveryDocument("The issuer returned a redirect. Redirects are not followed.");
  }
  if (status !== 200) throw new NoDiscoveryDocument(`The issuer returned status ${status}.`);
  if (!complete) throw new NoDiscoveryDocument("The issuer returned more than 256 KiB.");
  if (!/^application\/([\w.-]+\+)?json\b/i.test(headers["content-type"] ?? "")) {
    throw new NoDiscoveryDocument("The issuer did not return JSON.");
  }
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    throw new NoDiscoveryDocument("The issuer did not return JSON.");
  }
}

/**
 * Matches the accepted signature algorithms of ID tokens, for example RS256. All are asymmetric: HS256 and `none` are rejected.
 */
const ACCEPTED_ALGORITHM = /^((RS|PS|ES)(256|384|512)|EdDSA|Ed25519)$/;
/** The accepted algorithms, for messages. */
export const ACCEPTED_ALGORITHMS = "RS, PS and ES with 256, 384 or 512, EdDSA (Ed25519)";

/**
 * Returns the problems of a discovery document that prevent sign-ins, one sentence each. Issuer: OpenID Connect Discovery 1.0,
 * 4.3. PKCE: RFC 8414, 2, with the method S256 of RFC 7636, 4.2. Allowed addresses are a rule of this service.
 */
export function problemsOf(
  document: DiscoveryDocument,
  issuer: string,
  isAllowedAddress: (address: string) => boolean,
): string[] {
  const problems: string[] = [];
  if (document.issuer !== issuer)
    problems.push(
      "The document belongs to another issuer: its member issuer must match exactly, including a slash at the end.",
    );
  const endpoints = ["authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint"] as const;
  for (const name of endpoints) {
    const address = document[name];
    if (address !== undefined && !isAllowedAddress(address))
      problems.push(`The document's ${name} is not an allowed address.`);
  }
  if (algorithms(document).length === 0)
    problems.push(`The provider signs ID tokens with none of the accepted algorithms: ${ACCEPTED_ALGORITHMS}.`);
  const methods = document.code_challenge_methods_supported;
  if (methods && !methods.includes("S256")) problems.push("The provider does not support PKCE with S256.");
  return problems;
}

/** Returns the accepted signature algorithms of the provider. RS256 is mandatory for providers (OpenID Connect Core, 15.1). */
export const algorithms = (document: DiscoveryDocument): string[] =>
  (document.id_token_signing_alg_values_supported ?? ["RS256"]).filter(isAcceptedAlgorithm);

export const isAcceptedAlgorithm = (name: string): boolean => ACCEPTED_ALGORITHM.test(name);

/** A cache of the configured issuer's discovery document in this instance. Sign-ins read the document through it. */
export interface Discovery {
  /** Returns the issuer's document. @throws {NoDiscoveryDocument}; {Unreachable} */
  documentOf(issuer: string): Promise<DiscoveryDocument>;
}

/** Time for which a valid document is cached. */
const CACHE_MS = 10 * MINUTE_MS;

/** @param deps.isAllowedAddress - Decides whether the service uses an address that a document names. */
export function createDiscovery(deps: {
  outgoing: Outgoing;
  clock: Clock;
  isAllowedAddress: (address: string) => boolean;
}): Discovery {
  const { outgoing, clock, isAllowedAddress } = deps;
  let cached: { issuer: string; until: number; document: DiscoveryDocument } | undefined;
  return {
    async documentOf(issuer) {
      const now = clock.now().getTime();
      // If the clock was set back, `until` may be further ahead than `CACHE_MS`. Then the document is fetched again.
      if (cached?.issuer === issuer && now < cached.until && cached.until - now <= CACHE_MS) return cached.document;
      const document = await fetchDiscoveryDocument(issuer, outgoing);
      const [problem] = problemsOf(document, issuer, isAllowedAddress);
      if (problem !== undefined) throw new NoDiscoveryDocument(problem);
      cached = { issuer, until: now + CACHE_MS, document };
      return document;
    },
  };
}

/** Returns true if the issuer could not be reached, also for an error of the library openid-client that wraps this cause. */
export const isUnreachable = (error: unknown): boolean =>
  error instanceof Unreachable || (error instanceof Error && error.cause instanceof Unreachable);
