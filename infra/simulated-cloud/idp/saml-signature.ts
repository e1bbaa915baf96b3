import { webcrypto } from "node:crypto";
import { createRequire } from "node:module";

/** What signs: a key pair of RSA with its certificate (base64 of the DER), which goes into the signature. */
export interface SamlKey {
  privateKey: webcrypto.JsonWebKey;
  certificate: string;
}

export interface SignatureOptions {
  hash?: "SHA-1" | "SHA-256" | "SHA-512";
  digest?: "SHA-1" | "SHA-256" | "SHA-512";
  /** Of what is signed. Default `exc-c14n`. */
  transform?: "exc-c14n" | "exc-c14n-com" | "c14n";
  /** How often the transform that takes the signature out is named. Default 1; more change nothing but the work. */
  enveloped?: number;
  /** Of the signature's own SignedInfo: inclusive, which SAML does not use. */
  inclusive?: true;
}

/**
 * The library takes parser and cryptography from outside: those that are installed with it. Signer and parser are others than
 * those the service verifies with, so that no mistake of one is made on both sides.
 */
function library() {
  const load = createRequire(createRequire(import.meta.url).resolve("xmldsigjs"));
  const { DOMImplementation, DOMParser, XMLSerializer } = load("@xmldom/xmldom") as typeof import("@xmldom/xmldom");
  const core = load("xml-core") as { setNodeDependencies(parts: object): void };
  core.setNodeDependencies({ DOMParser, XMLSerializer, DOMImplementation, xpath: load("xpath") as object });
  const { Application, Parse, SignedXml } = load("xmldsigjs") as typeof import("xmldsigjs");
  Application.setEngine("node", webcrypto as unknown as Crypto);
  return { Parse, SignedXml, XMLSerializer };
}
let loaded: ReturnType<typeof library> | undefined;

/**
 * Signs the root of a document, with an enveloped signature behind its Issuer, where the schema of SAML wants it.
 *
 * @param xml - Its root has an ID.
 */
export async function signXml(xml: string, key: SamlKey, options: SignatureOptions = {}): Promise<string> {
  loaded ??= library();
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
