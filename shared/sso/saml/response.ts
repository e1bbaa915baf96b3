import { createPublicKey } from "node:crypto";
import { checkAssertion, type ExpectedValues, requireIssuer, type VerifiedAssertion } from "./assertion.ts";
import { decryptAssertion } from "./decrypt.ts";
import { SamlRefused } from "./saml-refused.ts";
import { signatureOf, signedContent } from "./signature.ts";
import { attribute, child, descendantsNamed, isElement, parseXml } from "./xml.ts";

const SUCCESS = "urn:oasis:names:tc:SAML:2.0:status:Success";

/**
 * Verifies the Response that a browser posted after a SAML sign-in, and returns the person who signed in (SAML Bindings, 3.5;
 * Profiles, 4.1.4). The person is read only from content that a signature of the identity provider covers.
 *
 * @param encoded - The form's `SAMLResponse`: XML in base64.
 * @throws {SamlRefused}
 */
export async function verifyResponse(encoded: string, expected: ExpectedValues): Promise<VerifiedAssertion> {
  const xml = decode(encoded);
  const keys = expected.certificates.map((certificate) =>
    createPublicKey(certificate).export({ type: "spki", format: "pem" }).toString(),
  );
  const received = parseXml(xml);
  if (!isElement(received, "protocol", "Response")) throw new SamlRefused("malformed");

  // The signature can be on the Response, on its assertion, or on both. Signed content is read again from the signed bytes.
  const signature = signatureOf(received);
  const response = signature ? signedContent(xml, received, signature, keys) : received;
  checkResponse(response, signature !== undefined, expected);
  const assertion = await signedAssertionOf(xml, received, signature && response, keys, expected.decryptionKey);
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

/**
 * Checks the Response around the assertion: its status, recipient and request. An unsigned Response may omit Issuer, but must not
 * contain a wrong one (Core, 3.2.2). Destination is always required.
 *
 * @throws {SamlRefused} malformed, status, destination, inResponseTo, issuer
 */
function checkResponse(response: Element, signed: boolean, expected: ExpectedValues): void {
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
async function signedAssertionOf(
  xml: string,
  received: Element,
  signedResponse: Element | undefined,
  keys: readonly string[],
  decryptionKey: string | undefined,
): Promise<Element> {
  const receivedAssertion = singleAssertion(received);
  requireNoOtherSignature(received, [received, receivedAssertion]);
  if (receivedAssertion.localName === "EncryptedAssertion") {
    if (decryptionKey === undefined) throw new SamlRefused("encrypted");
    const decrypted = await decryptAssertion(
      signedResponse ? singleAssertion(signedResponse) : receivedAssertion,
      decryptionKey,
    );
    if (!isElement(decrypted.root, "assertion", "Assertion")) throw new SamlRefused("assertionCount");
    requireNoOtherSignature(decrypted.root, [decrypted.root]);
    return requireSigned(signedByItself(decrypted.xml, decrypted.root, keys));
  }
  return requireSigned(
    signedByItself(xml, receivedAssertion, keys) ?? (signedResponse && singleAssertion(signedResponse)),
  );
}

function requireSigned(signed: Element | undefined): Element {
  if (!signed) throw new SamlRefused("notSigned");
  return signed;
}

const signedByItself = (xml: string, assertion: Element, keys: readonly string[]): Element | undefined => {
  const signature = signatureOf(assertion);
  return signature && signedContent(xml, assertion, signature, keys);
};

/** Returns the assertion of a Response, encrypted or not: a child of the Response, and the only assertion at any depth. */
function singleAssertion(response: Element): Element {
  const [assertion, ...more] = descendantsNamed(response, "Assertion", "EncryptedAssertion");
  const isAssertion =
    assertion &&
    (isElement(assertion, "assertion", "Assertion") || isElement(assertion, "assertion", "EncryptedAssertion"));
  if (!isAssertion || more.length > 0 || assertion.parentNode !== response) throw new SamlRefused("assertionCount");
  return assertion;
}

/**
 * Throws if a signature is anywhere but directly in one of the given elements, which need not be signed. Valid messages have no
 * others. Attackers add signatures so that the wrong one is verified.
 */
function requireNoOtherSignature(root: Element, mayHaveSignature: readonly Element[]): void {
  const hasOtherSignature = descendantsNamed(root, "Signature").some(
    ({ parentNode }) => !mayHaveSignature.some((element) => element === parentNode),
  );
  if (hasOtherSignature) throw new SamlRefused("signature");
}
