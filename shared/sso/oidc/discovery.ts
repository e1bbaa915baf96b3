import * as z from "zod";
import { type Outgoing, type OutgoingAnswer, Unreachable } from "../../platform/outgoing/outgoing.ts";
import type { Clock } from "../../platform/runtime.ts";
import { MINUTE_MS } from "../../platform/time.ts";

const text = z.string().max(2048);
const texts = z.array(z.string().max(256)).max(500);

/**
 * The members of a discovery document that this service uses. Others are dropped.
 * https://openid.net/specs/openid-connect-discovery-1_0.html#ProviderMetadata and RFC 8414, 9207
 */
export const DiscoveryDocument = z
  .object({
    issuer: text.meta({ description: "The issuer, as its tokens name it.", example: "https://login.example.com" }),
    authorization_endpoint: text.meta({
      description: "Where browsers are sent to sign in.",
      example: "https://login.example.com/authorize",
    }),
    token_endpoint: text.meta({
      description: "Where a code is exchanged for tokens.",
      example: "https://login.example.com/token",
    }),
    jwks_uri: text.meta({ description: "Where its public keys are.", example: "https://login.example.com/keys" }),
    userinfo_endpoint: text
      .optional()
      .meta({ description: "Where claims of a person can be read.", example: "https://login.example.com/userinfo" }),
    end_session_endpoint: text
      .optional()
      .meta({ description: "Where browsers are sent to sign out.", example: "https://login.example.com/logout" }),
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
      .meta({ description: "How tokens can be got.", example: ["authorization_code"] }),
    subject_types_supported: texts
      .optional()
      .meta({ description: "Whether all clients see one subject for a person.", example: ["pairwise"] }),
    id_token_signing_alg_values_supported: texts
      .optional()
      .meta({ description: "How its ID tokens are signed.", example: ["RS256"] }),
    token_endpoint_auth_methods_supported: texts
      .optional()
      .meta({ description: "How a client can prove who it is.", example: ["client_secret_post"] }),
    claims_supported: texts.optional().meta({ description: "Claims that it may give.", example: ["sub", "email"] }),
    code_challenge_methods_supported: texts
      .optional()
      .meta({ description: "Methods of PKCE (RFC 7636).", example: ["S256"] }),
    authorization_response_iss_parameter_supported: z
      .boolean()
      .optional()
      .meta({ description: "Whether its answers name the issuer (RFC 9207)." }),
  })
  .meta({ id: "OidcDiscoveryDocument" });
export type DiscoveryDocument = z.infer<typeof DiscoveryDocument>;

/** The issuer has no usable discovery document. The message contains nothing from the issuer. */
export class NoDiscoveryDocument extends Error {
  override readonly name = "NoDiscoveryDocument";
}

/**
 * Requests the issuer's document, uncached. OpenID Connect Discovery 1.0, 4: below the issuer's path without a trailing slash;
 * status 200 and JSON. Redirects are not followed.
 *
 * @throws {NoDiscoveryDocument}; {Unreachable}
 */
export async function fetchDiscoveryDocument(issuer: string, outgoing: Outgoing): Promise<DiscoveryDocument> {
  const address = `${issuer.replace(/\/+$/, "")}/.well-known/openid-configuration`;
  const answer = await outgoing.send(address, { method: "GET", headers: { accept: "application/json" } });
  const document = DiscoveryDocument.safeParse(jsonOf(answer));
  if (!document.success) {
    const members = [...new Set(document.error.issues.map(({ path }) => String(path[0] ?? "")))].join(", ");
    throw new NoDiscoveryDocument(`The discovery document lacks or has unusable members: ${members}.`);
  }
  return document.data;
}

function jsonOf({ status, headers, body, complete }: OutgoingAnswer): unknown {
  if (status >= 300 && status < 400) {
    throw new NoDiscoveryDocument("The issuer answered with a redirect, and none is followed.");
  }
  if (status !== 200) throw new NoDiscoveryDocument(`The issuer answered ${status}.`);
  if (!complete) throw new NoDiscoveryDocument("The issuer answered more than 256 KiB.");
  if (!/^application\/([\w.-]+\+)?json\b/i.test(headers["content-type"] ?? "")) {
    throw new NoDiscoveryDocument("The issuer did not answer JSON.");
  }
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    throw new NoDiscoveryDocument("The issuer did not answer JSON.");
  }
}

/** Accepted signatures of ID tokens: asymmetric ones only. Rejects signatures with the client secret, and unsigned tokens. */
const SIGNED_WITH = /^(RS|PS|ES)(256|384|512)$/;

/**
 * Returns the problems of a discovery document that prevent sign-ins, one sentence each. Issuer: OpenID Connect Discovery 1.0,
 * 4.3. PKCE: RFC 8414, 2, with the method S256 of RFC 7636, 4.2. Allowed addresses are a rule of this service.
 */
export function unusable(document: DiscoveryDocument, issuer: string, allowed: (address: string) => boolean): string[] {
  const problems: string[] = [];
  if (document.issuer !== issuer)
    problems.push(
      "The document is another issuer's: its member issuer must be the same, to the letter and to a slash at its end.",
    );
  const endpoints = ["authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint"] as const;
  for (const name of endpoints) {
    const address = document[name];
    if (address !== undefined && !allowed(address)) problems.push(`Its ${name} is no address that is allowed.`);
  }
  if (algorithms(document).length === 0) problems.push("It signs ID tokens with none of RS, PS and ES.");
  const methods = document.code_challenge_methods_supported;
  if (methods && !methods.includes("S256")) problems.push("It does not take PKCE with S256.");
  return problems;
}

/** RS256 is mandatory for providers (OpenID Connect Core, 15.1). */
export const algorithms = (document: DiscoveryDocument): string[] =>
  (document.id_token_signing_alg_values_supported ?? ["RS256"]).filter((name) => SIGNED_WITH.test(name));

/** Cache of discovery documents in this instance. */
export interface Discovery {
  /** @throws {NoDiscoveryDocument}; {Unreachable} */
  of(issuer: string): Promise<DiscoveryDocument>;
}

/** How long a valid document is cached. */
const KEPT_MS = 10 * MINUTE_MS;

export function createDiscovery(deps: {
  outgoing: Outgoing;
  clock: Clock;
  allowed: (address: string) => boolean;
}): Discovery {
  const { outgoing, clock, allowed } = deps;
  let kept: { issuer: string; until: number; document: DiscoveryDocument } | undefined;
  return {
    async of(issuer) {
      const now = clock.now().getTime();
      if (kept?.issuer === issuer && now < kept.until && kept.until - now <= KEPT_MS) return kept.document;
      const document = await fetchDiscoveryDocument(issuer, outgoing);
      const [problem] = unusable(document, issuer, allowed);
      if (problem !== undefined) throw new NoDiscoveryDocument(problem);
      kept = { issuer, until: now + KEPT_MS, document };
      return document;
    },
  };
}

/** Returns true if the issuer could not be reached, false if its response was invalid. */
export const isUnreachable = (error: unknown): boolean =>
  error instanceof Unreachable || (error instanceof Error && error.cause instanceof Unreachable);
