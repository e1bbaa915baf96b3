import { SignedXml } from "xml-crypto";
import { SamlRefused } from "./saml-refused.ts";
import { attribute, child, descendants, parentOf, parseXml, textOf } from "./xml.ts";

/** RSA with SHA-256 or more, which identity providers offer in addition to SHA-1: https://www.rfc-editor.org/rfc/rfc9231 */
const SIGNATURE_ALGORITHMS = [
  "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256",
  "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512",
  "http://www.w3.org/2007/05/xmldsig-more#sha256-rsa-MGF1",
];
const DIGEST_ALGORITHMS = ["http://www.w3.org/2001/04/xmlenc#sha256", "http://www.w3.org/2001/04/xmlenc#sha512"];
/** Exclusive canonicalization (a normal form of XML, over which the digest is computed), without and with comments. */
const CANONICALIZATIONS = [
  "http://www.w3.org/2001/10/xml-exc-c14n#",
  "http://www.w3.org/2001/10/xml-exc-c14n#WithComments",
];
/** The only transforms allowed in SAML signatures (Core, 5.4.4). */
const TRANSFORMS = ["http://www.w3.org/2000/09/xmldsig#enveloped-signature", ...CANONICALIZATIONS];

/** Maximum number of elements in a signature. It has about 15, and more if it contains a chain of certificates. */
const MAX_ELEMENTS = 50;
/** Maximum number of inclusive namespace prefixes of a canonicalization. The library compares each with each attribute. */
const MAX_PREFIXES = 64;

/** Returns the signature of a Response or Assertion, which is its child. Undefined if it has none. */
export const signatureOf = (element: Element): Element | undefined => child(element, "signature", "Signature");

/**
 * Returns the content that an element's signature covers: the element, parsed again from exactly the bytes that were hashed.
 * Callers read only this element, so content that was wrapped around or injected into it is ignored.
 *
 * @param xml - The whole document that the element was parsed from.
 * @param keys - Public keys of the identity provider's certificates, PEM, which is the only form that the library takes for
 * RSA-PSS. One of them must have signed. A key in the message is never used.
 * @throws {SamlRefused} algorithm, signature
 */
export function signedContent(xml: string, element: Element, signature: Element, keys: readonly string[]): Element {
  const bytes = verifiedContent(xml, signature, signerOf(signature, keys));
  const content = parseXml(bytes.toString());
  const isSameElement = content.namespaceURI === element.namespaceURI && content.localName === element.localName;
  if (!isSameElement || attribute(content, "ID") !== attribute(element, "ID")) throw new SamlRefused("signature");
  return content;
}

/**
 * Returns the key that signed the SignedInfo, the part of a signature that contains the digest. This takes a millisecond,
 * whereas hashing the referenced content takes the library up to seconds for a document at the limits. So the content is hashed
 * only if the identity provider signed the digest.
 *
 * @throws {SamlRefused} algorithm, signature
 */
function signerOf(signature: Element, keys: readonly string[]): string {
  const elements = descendants(signature);
  const [signedInfo, ...otherInfos] = elements.filter(({ localName }) => localName === "SignedInfo");
  const prefixes = elements.flatMap((element) => attribute(element, "PrefixList")?.split(" ") ?? []).length;
  if (!signedInfo || otherInfos.length > 0 || elements.length > MAX_ELEMENTS || prefixes > MAX_PREFIXES)
    throw new SamlRefused("signature");
  const signedXml = load(signature);
  const canonical = signedXml.getCanonXml([signedXml.canonicalizationAlgorithm!], signedInfo, {
    ancestorNamespaces: namespacesAround(signedInfo),
  });
  const value = textOf(child(signature, "signature", "SignatureValue", "signature")) ?? "";
  const Algorithm =
    signedXml.SignatureAlgorithms[signedXml.signatureAlgorithm as (typeof SIGNATURE_ALGORITHMS)[number]]!;
  const algorithm = new Algorithm();
  const key = keys.find((candidate) => algorithm.verifySignature(canonical, candidate, value));
  if (!key) throw new SamlRefused("signature");
  return key;
}

/** Returns the content that the signature covers, in canonical form. @throws {SamlRefused} signature */
function verifiedContent(xml: string, signature: Element, key: string): Buffer {
  const signed = load(signature, key);
  try {
    const isValid = signed.checkSignature(xml);
    const [content, ...more] = signed.getSignedReferences();
    if (isValid && content !== undefined && more.length === 0) return Buffer.from(content);
  } catch {
    // An error counts as an invalid signature.
  }
  throw new SamlRefused("signature");
}

/**
 * Loads a signature. Throws before the library uses an algorithm that is not allowed, or processes more references or
 * transforms than SAML allows (SAML Core, 5.4.2 and 5.4.4).
 *
 * @throws {SamlRefused} algorithm, signature
 */
function load(signature: Element, key?: string): SignedXml {
  const signed = new SignedXml({ publicCert: key });
  try {
    signed.loadSignature(signature);
  } catch {
    throw new SamlRefused("signature");
  }
  const [reference, ...more] = signed.getReferences();
  if (!reference || more.length > 0 || reference.transforms.length > 2) throw new SamlRefused("signature");
  const areAllowed =
    SIGNATURE_ALGORITHMS.includes(signed.signatureAlgorithm ?? "") &&
    CANONICALIZATIONS.includes(signed.canonicalizationAlgorithm ?? "") &&
    DIGEST_ALGORITHMS.includes(reference.digestAlgorithm) &&
    reference.transforms.every((name) => TRANSFORMS.includes(name));
  if (!areAllowed) throw new SamlRefused("algorithm");
  return signed;
}

/** Returns the namespaces that an element inherits, the nearest first. */
function namespacesAround(element: Element): { prefix: string; namespaceURI: string }[] {
  const namespaces = new Map<string, string>();
  for (let parent = parentOf(element); parent; parent = parentOf(parent)) {
    for (const { name, value } of Array.from(parent.attributes)) {
      const [xmlns, prefix = ""] = name.split(":");
      if (xmlns === "xmlns" && !namespaces.has(prefix)) namespaces.set(prefix, value);
    }
  }
  return [...namespaces].map(([prefix, namespaceURI]) => ({ prefix, namespaceURI }));
}
