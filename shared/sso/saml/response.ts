import { createPublicKey, type KeyObject } from "node:crypto";
import { checkAssertion, type Expected, requireIssuer, type VerifiedAssertion } from "./assertion.ts";
import { decryptAssertion } from "./decrypt.ts";
import { SamlRefused } from "./refused.ts";
import { signatureOf, signedContent } from "./signature.ts";
import { attribute, child, is, named, parseXml } from "./xml.ts";

const SUCCESS = "urn:oasis:names:tc:SAML:2.0:status:Success";

/**
 * Who signed in, from a Response that came by HTTP-POST (Bindings, 3.5; Profiles, 4.1.4). Everything is read from what a signature
 * of the identity provider covers; whatever else stands in the document must not contradict it.
 *
 * @param encoded - The form's `SAMLResponse`: XML in base64.
 * @throws {SamlRefused}
 */
export async function verifyResponse(encoded: string, expected: Expected): Promise<VerifiedAssertion> {
  const xml = decode(encoded);
  const keys = expected.certificates.map((certificate) => createPublicKey(certificate));
  const received = parseXml(xml);
  if (!is(received, "protocol", "Response")) throw new SamlRefused("malformed");

  const signature = signatureOf(received);
  const response = signature ? signedContent(xml, received, signature, keys) : received;
  checkResponse(response, signature !== undefined, expected);
  const assertion = await signedAssertion(xml, received, signature && response, keys, expected.decryptionKey);
  return checkAssertion(assertion, expected);
}

/** @throws {SamlRefused} malformed */
function decode(encoded: string): string {
  const base64 = encoded.replace(/\s/g, "");
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(base64)) throw new SamlRefused("malformed");
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.from(base64, "base64"));
  } catch {
    throw new SamlRefused("malformed");
  }
}

/** An unsigned Response may leave out its Destination's and Issuer's proof, not contradict us (Core, 3.2.2). */
function checkResponse(response: Element, signed: boolean, expected: Expected): void {
  if (attribute(response, "Version") !== "2.0") throw new SamlRefused("malformed");
  const status = child(response, "protocol", "Status");
  const code = status && child(status, "protocol", "StatusCode");
  if (!code || attribute(code, "Value") !== SUCCESS) throw new SamlRefused("status");
  if (attribute(response, "Destination") !== expected.acsUrl) throw new SamlRefused("destination");
  if (attribute(response, "InResponseTo") !== expected.requestId) throw new SamlRefused("inResponseTo");
  const issuer = child(response, "assertion", "Issuer");
  if (issuer || signed) requireIssuer(issuer, expected.idpEntityId);
}

/**
 * The one assertion, as a signature covers it: its own, else that of the Response around it. One that came encrypted must have its
 * own, since what encrypts proves nothing about who did.
 *
 * @param signedResponse - The Response as its own signature covers it, where it has one.
 */
async function signedAssertion(
  xml: string,
  received: Element,
  signedResponse: Element | undefined,
  keys: readonly KeyObject[],
  decryptionKey: string | undefined,
): Promise<Element> {
  const found = oneAssertion(received);
  requireNoOther(received, [received, found]);
  if (found.localName === "EncryptedAssertion") {
    if (decryptionKey === undefined) throw new SamlRefused("encrypted");
    const decrypted = await decryptAssertion(signedResponse ? oneAssertion(signedResponse) : found, decryptionKey);
    if (!is(decrypted.root, "assertion", "Assertion")) throw new SamlRefused("assertionCount");
    requireNoOther(decrypted.root, [decrypted.root]);
    return required(bySignature(decrypted.xml, decrypted.root, keys));
  }
  return required(bySignature(xml, found, keys) ?? (signedResponse && oneAssertion(signedResponse)));
}

function required(signed: Element | undefined): Element {
  if (!signed) throw new SamlRefused("notSigned");
  return signed;
}

const bySignature = (xml: string, assertion: Element, keys: readonly KeyObject[]): Element | undefined => {
  const signature = signatureOf(assertion);
  return signature && signedContent(xml, assertion, signature, keys);
};

/** The assertion of a Response, encrypted or not: its child, and the only one at any depth. */
function oneAssertion(response: Element): Element {
  const [assertion, ...more] = named(response, "Assertion", "EncryptedAssertion");
  const known =
    assertion && (is(assertion, "assertion", "Assertion") || is(assertion, "assertion", "EncryptedAssertion"));
  if (!known || more.length > 0 || assertion.parentNode !== response) throw new SamlRefused("assertionCount");
  return assertion;
}

/** Refuses signatures elsewhere than in the elements named: no message has them, only attempts to have the wrong one checked. */
function requireNoOther(root: Element, signed: readonly Element[]): void {
  const elsewhere = named(root, "Signature").some(
    ({ parentNode }) => !signed.some((element) => element === parentNode),
  );
  if (elsewhere) throw new SamlRefused("signature");
}
