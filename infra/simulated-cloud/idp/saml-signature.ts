// Signs XML documents.

import { webcrypto } from "node:crypto";
import { createRequire } from "node:module";

/** An RSA signing key with its certificate (base64 of the DER), which the signature contains. */
export interface SamlKey {
  privateKey: webcrypto.JsonWebKey;
  certificate: string;
}

export interface SignatureOptions {
  /** Hash of the signature algorithm. Default SHA-256. */
  hash?: "SHA-1" | "SHA-256" | "SHA-512";
  /** Hash of the signed element. Default: as `hash`. */
  digest?: "SHA-1" | "SHA-256" | "SHA-512";
  /** Canonicalization of the signed element. Default `exc-c14n` (exclusive). `exc-c14n-com` keeps comments. */
  transform?: "exc-c14n" | "exc-c14n-com" | "c14n";
  /** Number of enveloped-signature transforms. Default 1. More transforms have the same result but cost time. */
  enveloped?: number;
  /** Uses inclusive canonicalization of SignedInfo, which SAML does not allow. Default: exclusive. */
  inclusive?: true;
}

/**
 * Loads the library, and sets its XML parser and cryptography. The service verifies signatures with others, so that tests
 * detect a defect of either.
 */
function loadLibrary() {
  const load = createRequire(createRequire(import.meta.url).resolve("xmldsigjs"));
  const { DOMImplementation, DOMParser, XMLSerializer } = load("@xmldom/xmldom") as typeof import("@xmldom/xmldom");
  const core = load("xml-core") as { setNodeDependencies(parts: object): void };
  core.setNodeDependencies({ DOMParser, XMLSerializer, DOMImplementation, xpath: load("xpath") as object });
  const { Application, Parse, SignedXml } = load("xmldsigjs") as typeof import("xmldsigjs");
  Application.setEngine("node", webcrypto as unknown as Crypto);
  return { Parse, SignedXml, XMLSerializer };
}
let loaded: ReturnType<typeof loadLibrary> | undefined;

/**
 * Signs the root of a document. The enveloped signature follows the Issuer, as the SAML schema requires.
 *
 * @param xml - Document whose root has an ID.
 */
export async function signXml(xml: string, key: SamlKey, options: SignatureOptions = {}): Promise<string> {
  loaded ??= loadLibrary();
  const { Parse, SignedXml, XMLSerializer } = loaded;
  const { hash = "SHA-256", digest = hash, transform = "exc-c14n", enveloped = 1, inclusive } = options;
  const algorithm = { name: "RSASSA-PKCS1-v1_5", hash };
  const privateKey = await webcrypto.subtle.importKey("jwk", key.privateKey, algorithm, false, ["sign"]);
  const document = Parse(xml);
  const id = document.documentElement.getAttribute("ID");
  const signed = new SignedXml();
  const exclusive = "http://www.w3.org/2001/10/xml-exc-c14n#";
  signed.XmlSignature.SignedInfo.CanonicalizationMethod.Algorithm = inclusive
    ? "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"
    : exclusive;
  const envelopedTransforms = Array.from({ length: enveloped }, () => "enveloped" as const);
  await signed.Sign(algorithm, privateKey as unknown as CryptoKey, document, {
    x509: [key.certificate],
    references: [{ uri: `#${id}`, hash: digest, transforms: [...envelopedTransforms, transform] }],
  });
  const signature = new XMLSerializer().serializeToString(signed.XmlSignature.GetXml() as never);
  return xml.replace(/^<[^>]*>(<saml:Issuer>[^<]*<\/saml:Issuer>)?/, (start) => start + signature);
}
