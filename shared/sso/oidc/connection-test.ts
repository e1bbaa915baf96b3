import * as z from "zod";
import { type Outgoing, Unreachable } from "../../platform/outgoing/outgoing.ts";
import type { Clock } from "../../platform/runtime.ts";
import type { Check } from "../protocol.ts";
import { type DiscoveryDocument, fetchDiscoveryDocument, NoDiscoveryDocument, unusable } from "./discovery.ts";
import { CALLBACK_PATH, errorNamed, openIdClient } from "./oidc.ts";

/** The issuer and client to test, saved or not. */
export interface Candidate {
  issuer: string;
  clientId: string | undefined;
  secret: string | undefined;
}

interface Dependencies {
  outgoing: Outgoing;
  clock: Clock;
  allowed: (address: string) => boolean;
}

/** A key without `use` may also sign: RFC 7517, 4.2. */
const Keys = z.object({ keys: z.array(z.looseObject({ kty: z.string(), use: z.string().optional() })) });

/**
 * Tests everything that a sign-in needs from an issuer, up to the first failure: its document (OpenID Connect Discovery 1.0,
 * 4), its keys (RFC 7517, 5), and whether its token endpoint accepts the client (RFC 6749, 5.2). Stores nothing. The client
 * authenticates with an invalid code.
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
  const [problem] = unusable(document, issuer, deps.allowed);
  if (problem !== undefined) return [failed("document", problem)];
  const checks: Check[] = [passed("document", `${issuer} answers its discovery document.`)];
  const keys = await testKeys(document, deps);
  if (!keys.passed || clientId === undefined) return [...checks, keys];
  return [...checks, keys, await testClient(document, { id: clientId, secret }, origin, deps)];
}

async function testKeys({ jwks_uri: address }: DiscoveryDocument, { outgoing }: Dependencies): Promise<Check> {
  try {
    const { status, body } = await outgoing.send(address, { method: "GET", headers: { accept: "application/json" } });
    if (status !== 200) return failed("keys", `Its jwks_uri answered ${status}.`);
    const keys = Keys.parse(JSON.parse(body.toString("utf8"))).keys.filter(({ use }) => use !== "enc");
    if (keys.length === 0) return failed("keys", "Its jwks_uri has no key that signs.");
    return passed("keys", `It signs with ${keys.length} ${keys.length === 1 ? "key" : "keys"}.`);
  } catch (error) {
    if (error instanceof Unreachable) return failed("keys", error.message);
    if (error instanceof SyntaxError || error instanceof z.ZodError) {
      return failed("keys", "Its jwks_uri does not answer keys.");
    }
    throw error;
  }
}

/** The error of a provider for a valid client with an invalid code: RFC 6749, 5.2. */
const CLIENT_IS_KNOWN: readonly string[] = ["invalid_grant", "invalid_request"];

async function testClient(
  document: DiscoveryDocument,
  client: { id: string; secret: string | undefined },
  origin: string,
  deps: Dependencies,
): Promise<Check> {
  const { genericGrantRequest } = await import("openid-client");
  const made = await openIdClient(document, client, deps);
  const noCode = { code: "none", redirect_uri: origin + CALLBACK_PATH, code_verifier: "none".padEnd(43, "-") };
  let answered: unknown;
  try {
    await genericGrantRequest(made, "authorization_code", noCode);
  } catch (error) {
    answered = errorNamed(error);
  }
  if (CLIENT_IS_KNOWN.includes(String(answered))) return passed("client", "It knows this client and its secret.");
  if (answered === "invalid_client") return failed("client", "It does not know this client, or the secret is wrong.");
  if (answered === "unauthorized_client") return failed("client", "This client may not use the code flow.");
  return failed("client", "Its token_endpoint did not answer as RFC 6749 says.");
}

const passed = (name: Check["name"], detail: string): Check => ({ name, passed: true, detail });
const failed = (name: Check["name"], detail: string): Check => ({ name, passed: false, detail });
