import * as z from "zod";
import { type Outgoing, Unreachable } from "../../platform/outgoing/outgoing.ts";
import type { Clock } from "../../platform/runtime.ts";
import type { Check } from "../protocol.ts";
import {
  algorithms,
  type DiscoveryDocument,
  fetchDiscoveryDocument,
  NoDiscoveryDocument,
  problemsOf,
} from "./discovery.ts";
import { CALLBACK_PATH, errorCodeOf, openIdClient, statusOf } from "./oidc.ts";

/** The issuer and client to test, saved or not. */
export interface Candidate {
  issuer: string;
  clientId: string | undefined;
  secret: string | undefined;
}

interface Dependencies {
  outgoing: Outgoing;
  clock: Clock;
  /** Decides whether the service uses an address that the document names. */
  isAllowedAddress: (address: string) => boolean;
}

/** A key without `use` may also sign: RFC 7517, 4.2. */
const Keys = z.object({ keys: z.array(z.looseObject({ kty: z.string(), use: z.string().optional() })) });

/**
 * Tests what a sign-in needs from an issuer, up to the first failure. It reads the discovery document (OpenID Connect Discovery
 * 1.0, 4) and the keys (RFC 7517, 5). With an invalid code, it tests whether the token endpoint accepts the client (RFC 6749,
 * 5.2). Runs when an administrator tests the configuration or turns it on. Stores nothing.
 *
 * @param origin - The service's own origin.
 */
export async function testOidc(candidate: Candidate, origin: string, deps: Dependencies): Promise<Check[]> {
  const { issuer, clientId, secret } = candidate;
  let document: DiscoveryDocument;
  try {
    document = await fetchDiscoveryDocument(issuer, deps.outgoing);
  } catch (error) {
    if (error instanceof NoDiscoveryDocument) return [failed("document", error.message)];
    if (error instanceof Unreachable) return [failed("address", error.message)];
    throw error;
  }
  const [problem] = problemsOf(document, issuer, deps.isAllowedAddress);
  if (problem !== undefined) return [failed("document", problem)];
  const checks: Check[] = [passed("document", `${issuer} returns its discovery document.`)];
  const keys = await testKeys(document, deps);
  if (!keys.passed || clientId === undefined) return [...checks, keys];
  return [...checks, keys, await testClient(document, { id: clientId, secret }, origin, deps)];
}

async function testKeys(document: DiscoveryDocument, { outgoing }: Dependencies): Promise<Check> {
  const { jwks_uri: address } = document;
  try {
    const { status, body } = await outgoing.send(address, { method: "GET", headers: { accept: "application/json" } });
    if (status !== 200) return failed("keys", `The provider's jwks_uri returned status ${status}.`);
    const keys = Keys.parse(JSON.parse(body.toString("utf8"))).keys.filter(({ use }) => use !== "enc");
    if (keys.length === 0) return failed("keys", "The provider's jwks_uri has no signing key.");
    const count = `The provider has ${keys.length} signing ${keys.length === 1 ? "key" : "keys"}.`;
    return passed("keys", `${count} Its ID tokens are accepted with ${algorithms(document).join(", ")}.`);
  } catch (error) {
    if (error instanceof Unreachable) return failed("keys", error.message);
    if (error instanceof SyntaxError || error instanceof z.ZodError) {
      return failed("keys", "The provider's jwks_uri does not return keys.");
    }
    throw error;
  }
}

/** Error codes with which a provider rejects an invalid code of a valid client: RFC 6749, 5.2. */
const CLIENT_ACCEPTED_CODES: readonly string[] = ["invalid_grant", "invalid_request"];

async function testClient(
  document: DiscoveryDocument,
  client: { id: string; secret: string | undefined },
  origin: string,
  deps: Dependencies,
): Promise<Check> {
  const { genericGrantRequest } = await import("openid-client");
  const providerClient = await openIdClient(document, client, deps);
  // A code that the provider did not issue. A PKCE verifier has at least 43 characters.
  const invalidCode = { code: "none", redirect_uri: origin + CALLBACK_PATH, code_verifier: "none".padEnd(43, "-") };
  let errorCode: unknown;
  let status: number | undefined;
  try {
    await genericGrantRequest(providerClient, "authorization_code", invalidCode);
  } catch (error) {
    errorCode = errorCodeOf(error);
    status = statusOf(error);
  }
  if (CLIENT_ACCEPTED_CODES.includes(String(errorCode)))
    return passed("client", "The provider accepts this client and its secret.");
  if (errorCode === "invalid_client")
    return failed("client", "The provider does not know this client, or the secret is wrong (invalid_client).");
  if (errorCode === "unauthorized_client") return failed("client", unauthorizedClientDetail(status));
  return failed("client", "The response of the provider's token_endpoint does not conform to RFC 6749.");
}

/**
 * RFC 6749, 5.2 has the code `unauthorized_client` for an authenticated client that may not use the grant. Keycloak sends it
 * with status 401 for a wrong secret, Entra with status 400 for an unknown client (AADSTS700016).
 */
const unauthorizedClientDetail = (status: number | undefined): string =>
  status === 401
    ? "The provider rejected the client (401 unauthorized_client). Either the secret is wrong, or the provider does not know this client, or the code flow is turned off for this client."
    : "This client may not use the code flow, or the provider does not know it (unauthorized_client). Check the client ID, and turn on the authorization code flow for this client at the provider.";

const passed = (name: Check["name"], detail: string): Check => ({ name, passed: true, detail });
const failed = (name: Check["name"], detail: string): Check => ({ name, passed: false, detail });
