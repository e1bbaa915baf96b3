import type { KeyObject } from "node:crypto";
import { SignedXml } from "xml-crypto";
import { SamlRefused } from "./refused.ts";
import { attribute, child, parseXml } from "./xml.ts";

/** RSA with SHA-256 or more, which is what identity providers offer beside SHA-1: https://www.rfc-editor.org/rfc/rfc9231 */
const SIGNATURES = [
  "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256",
  "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512",
  "http://www.w3.org/2007/05/xmldsig-more#sha256-rsa-MGF1",
];
const DIGESTS = ["http://www.w3.org/2001/04/xmlenc#sha256", "http://www.w3.org/2001/04/xmlenc#sha512"];
const EXCLUSIVE = ["http://www.w3.org/2001/10/xml-exc-c14n#", "http://www.w3.org/2001/10/xml-exc-c14n#WithComments"];
/** The only transforms that SAML signatures have (Core, 5.4.4). */
const TRANSFORMS = ["http://www.w3.org/2000/09/xmldsig#enveloped-signature", ...EXCLUSIVE];

/** The signature of a Response or Assertion, which is its child; undefined without one. */
export const signatureOf = (element: Element): Element | undefined => child(element, "signature", "Signature");

/**
 * What the signature of an element really covers: the element again, read from exactly the bytes that the digest was made of. What
 * a message says is taken from there alone, so that whatever was put around or into it is never seen.
 *
 * @param xml - The whole document that the element was parsed from.
 * @param keys - Of the identity provider's certificates, one of which must have signed. A key in the message itself never counts.
 * @throws {SamlRefused} algorithm, signature
 */
export function signedContent(xml: string, element: Element, signature: Element, keys: readonly KeyObject[]): Element {
  for (const key of keys) {
    const bytes = verified(xml, signature, key);
    if (bytes === undefined) continue;
    const content = parseXml(bytes.toString());
    const same = content.namespaceURI === element.namespaceURI && content.localName === element.localName;
    if (!same || attribute(content, "ID") !== attribute(element, "ID")) throw new SamlRefused("signature");
    return content;
  }
  throw new SamlRefused("signature");
}

/** The canonical bytes that were signed; undefined when they were not signed by this key. */
function verified(xml: string, signature: Element, key: KeyObject): Buffer | undefined {
  const signed = new SignedXml({ publicCert: key });
  try {
    signed.loadSignature(signature);
  } catch {
    throw new SamlRefused("signature");
  }
  requireKnown(signed);
  try {
    const held = signed.checkSignature(xml);
    const [content, ...more] = signed.getSignedReferences();
    return held && content !== undefined && more.length === 0 ? Buffer.from(content) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Refuses algorithms that are not on the lists before any of them is used, and more references or transforms than SAML has (Core,
 * 5.4.2 and 5.4.4): each is work for the library, which does it before it looks at the signature.
 */
function requireKnown(signed: SignedXml): void {
  const [reference, ...more] = signed.getReferences();
  if (!reference || more.length > 0 || reference.transforms.length > 2) throw new SamlRefused("signature");
  const known =
    SIGNATURES.includes(signed.signatureAlgorithm ?? "") &&
    EXCLUSIVE.includes(signed.canonicalizationAlgorithm ?? "") &&
    DIGESTS.includes(reference.digestAlgorithm) &&
    reference.transforms.every((name) => TRANSFORMS.includes(name));
  if (!known) throw new SamlRefused("algorithm");
}
