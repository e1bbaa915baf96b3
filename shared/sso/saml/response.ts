import { createPublicKey, type KeyObject } from "node:crypto";
import { checkAssertion, type Expected, requireIssuer, type VerifiedAssertion } from "./assertion.ts";
import { decryptAssertion } from "./decrypt.ts";
import { SamlRefused } from "./saml-refused.ts";
import { signatureOf, signedContent } from "./signature.ts";
import { attribute, child, is, named, parseXml } from "./xml.ts";

const SUCCESS = "urn:oasis:names:tc:SAML:2.0:status:Success";

/**
 * Returns the person of a Response that was posted (Bindings, 3.5; Profiles, 4.1.4). Reads only content that a signature of the
 * identity provider covers. Other content of the document must not contradict it.
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

/** An unsigned Response may omit Destination and Issuer, but must not contain wrong ones (Core, 3.2.2). */
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
 * Returns the single assertion with the content that its own signature covers, or else the signature of the Response. An
 * encrypted assertion needs its own signature, because encryption does not prove who encrypted.
 *
 * @param signedResponse - The Response as its own signature covers it, if it has one.
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

/** Returns the assertion of a Response, encrypted or not: a child of the Response, and the only assertion at any depth. */
function oneAssertion(response: Element): Element {
  const [assertion, ...more] = named(response, "Assertion", "EncryptedAssertion");
  const known =
    assertion && (is(assertion, "assertion", "Assertion") || is(assertion, "assertion", "EncryptedAssertion"));
  if (!known || more.length > 0 || assertion.parentNode !== response) throw new SamlRefused("assertionCount");
  return assertion;
}

/**
 * Rejects signatures outside the named elements. Valid messages have none; attackers add them so that the wrong one is checked.
 */
function requireNoOther(root: Element, signed: readonly Element[]): void {
  const elsewhere = named(root, "Signature").some(
    ({ parentNode }) => !signed.some((element) => element === parentNode),
  );
  if (elsewhere) throw new SamlRefused("signature");
}
