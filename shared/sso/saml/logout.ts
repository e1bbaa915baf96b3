import { createPublicKey, type KeyObject, verify } from "node:crypto";
import { inflateRawSync } from "node:zlib";
import type { ProviderSession } from "../../access/user.ts";
import { SECOND_MS } from "../../platform/time.ts";
import { requireIssuer } from "./assertion.ts";
import { nameIdOf } from "./name-id.ts";
import { SamlRefused } from "./saml-refused.ts";
import { attribute, child, children, isElement, parseXml, textOf } from "./xml.ts";

/** Tolerated clock difference to the identity provider. */
const SKEW_MS = 60 * SECOND_MS;
/** Maximum age of a request. */
const MAX_AGE_MS = 10 * 60 * SECOND_MS;
/** Maximum size of an inflated request. */
const MAX_REQUEST_BYTES = 64 * 1024;
/** The limit of SAML Bindings, 3.4.3. */
const MAX_RELAY_STATE_BYTES = 80;
/** Hashes by signature algorithm. Only algorithms of RSA: certificates with other keys can't be configured (certificates.ts). */
const HASHES: Readonly<Record<string, string>> = {
  "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256": "sha256",
  "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512": "sha512",
};

/** A verified LogoutRequest. */
export interface LogoutRequest {
  id: string;
  nameId: NonNullable<ProviderSession["nameId"]>;
  /** The provider's indexes of the sessions to end. Empty: all sessions of the person. */
  sessionIndexes: string[];
  relayState: string | undefined;
  /** Time from which the request is no longer accepted. */
  endsAt: Date;
}

/**
 * Verifies a LogoutRequest that an identity provider sent by HTTP-Redirect (SAML Bindings, 3.4; Core, 3.7.1; Profiles, 4.4.4.1).
 *
 * @param query - The query string as the browser sent it, without the question mark. The signature covers its exact bytes.
 * @param expected.destination - The service's own single logout URL.
 * @throws {SamlRefused}
 */
export function verifyLogoutRequest(
  query: string,
  expected: { idpEntityId: string; certificates: readonly string[]; destination: string; now: Date },
): LogoutRequest {
  const parameters = new URLSearchParams(query);
  const [encoded, ...more] = parameters.getAll("SAMLRequest");
  const relayState = parameters.get("RelayState") ?? undefined;
  if (encoded === undefined || more.length > 0) throw new SamlRefused("malformed");
  if (Buffer.byteLength(relayState ?? "") > MAX_RELAY_STATE_BYTES) throw new SamlRefused("malformed");
  requireSignature(
    query,
    expected.certificates.map((certificate) => createPublicKey(certificate)),
  );

  const request = parseXml(inflate(encoded));
  const id = attribute(request, "ID");
  if (!isElement(request, "protocol", "LogoutRequest") || attribute(request, "Version") !== "2.0" || id === undefined)
    throw new SamlRefused("malformed");
  if (attribute(request, "Destination") !== expected.destination) throw new SamlRefused("destination");
  requireIssuer(child(request, "assertion", "Issuer"), expected.idpEntityId);
  const endsAt = requireRecent(request, expected.now.getTime());
  const nameId = nameIdOf(request);
  if (!nameId) throw new SamlRefused("noIdentity");
  const sessionIndexes = children(request, "protocol", "SessionIndex").flatMap((element) => textOf(element) ?? []);
  return { id, nameId, sessionIndexes, relayState, endsAt };
}

/** The parameters that the signature covers, in its order (Bindings, 3.4.4.1). */
const SIGNED_PARAMETERS = ["SAMLRequest", "RelayState", "SigAlg"];

/**
 * Verifies the signature before the message is read. The signature covers the parameters as they were sent.
 *
 * @throws {SamlRefused} notSigned, algorithm, signature
 */
function requireSignature(query: string, keys: readonly KeyObject[]): void {
  const pairs = query.split("&").map((pair) => [pair.split("=", 1)[0]!, pair] as const);
  const sent = new Map(pairs);
  const parameters = new URLSearchParams(query);
  // The verified value of a parameter could differ from the value that is read, if it is repeated or its name is escaped.
  const isAmbiguous = SIGNED_PARAMETERS.some((name) => parameters.getAll(name).length !== (sent.has(name) ? 1 : 0));
  if (sent.size !== pairs.length || isAmbiguous) throw new SamlRefused("malformed");
  const signature = parameters.get("Signature");
  if (signature === null) throw new SamlRefused("notSigned");
  const algorithm = parameters.get("SigAlg") ?? "";
  const hash = Object.hasOwn(HASHES, algorithm) ? HASHES[algorithm]! : undefined;
  if (hash === undefined) throw new SamlRefused("algorithm");
  const signed = Buffer.from(SIGNED_PARAMETERS.flatMap((name) => sent.get(name) ?? []).join("&"));
  const value = Buffer.from(signature, "base64");
  if (!keys.some((key) => verify(hash, signed, key, value))) throw new SamlRefused("signature");
}

/** Decodes a message: base64 of raw DEFLATE of UTF-8 (Bindings, 3.4.4.1). @throws {SamlRefused} malformed */
function inflate(encoded: string): string {
  try {
    const bytes = inflateRawSync(Buffer.from(encoded, "base64"), { maxOutputLength: MAX_REQUEST_BYTES });
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new SamlRefused("malformed");
  }
}

/** Checks the times of a request, in UTC (Core, 1.3.3). @returns The time from which it is no longer accepted. */
function requireRecent(request: Element, now: number): Date {
  const [issuedAt, notOnOrAfter] = ["IssueInstant", "NotOnOrAfter"].map((name) => {
    const text = attribute(request, name);
    if (text !== undefined && !/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/.test(text))
      throw new SamlRefused("malformed");
    return text === undefined ? Number.NaN : Date.parse(text);
  });
  if (Number.isNaN(issuedAt)) throw new SamlRefused("malformed");
  if (issuedAt! - SKEW_MS > now) throw new SamlRefused("notYetValid");
  const endsAt = Math.min(issuedAt! + MAX_AGE_MS, Number.isNaN(notOnOrAfter) ? Infinity : notOnOrAfter!) + SKEW_MS;
  if (endsAt <= now) throw new SamlRefused("expired");
  return new Date(endsAt);
}
