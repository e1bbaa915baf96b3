import { createPublicKey, type KeyObject } from "node:crypto";
import { makeCertificate } from "../x509.ts";
import { versionFrom } from "./identifiers.ts";
import { type Certificate, type CertificateVersion, current } from "./items.ts";
import { publicKey } from "./key-pool.ts";

/** Distinguished names of authorities, by the issuer in the vault's policy. `LetsEncrypt` is the only one that is no such issuer. */
const ISSUERS: Record<string, string> = {
  DigiCert: "CN=DigiCert Global G2 TLS RSA SHA256 2020 CA1, O=DigiCert Inc, C=US",
  GlobalSign: "CN=GlobalSign RSA OV SSL CA 2018, O=GlobalSign nv-sa, C=BE",
  Unknown: "CN=Acme Issuing CA 01, O=Acme Corporation, C=NL",
  LetsEncrypt: "CN=R12, O=Let's Encrypt, C=US",
};
/** Authorities whose certificates browsers trust. They embed signed certificate timestamps (SCT) of certificate transparency logs. */
const PUBLIC_AUTHORITIES = ["DigiCert", "GlobalSign", "LetsEncrypt"];

/**
 * Creates the X.509 certificates of the vaults on first use. One RSA key signs for every issuer. Self-signed RSA-2048
 * certificates have this key as their own, so their signatures are valid. Signatures of other self-signed certificates are not
 * valid.
 */
export class CertificateMaker {
  /** Signs for every issuer. */
  readonly signingKey: KeyObject;
  readonly #derCache = new Map<string, Buffer>();

  constructor(signingKey: KeyObject) {
    this.signingKey = signingKey;
  }

  /** Returns a certificate as DER. */
  der(certificate: Certificate, version: CertificateVersion = current(certificate)): Buffer {
    const key = certificate.shared === undefined ? version.id : `shared ${certificate.shared}`;
    let der = this.#derCache.get(key);
    if (der === undefined) {
      der = this.#create(certificate.name, version);
      this.#derCache.set(key, der);
    }
    return der;
  }

  #create(name: string, version: CertificateVersion): Buffer {
    if (version.der !== undefined) return Buffer.from(version.der, "base64");
    // Vaults can't order from Let's Encrypt or from the company's own authority, so a vault names both issuers `Unknown`. Only
    // `authority` shows that Let's Encrypt signed a certificate. The company's own authority has the name of `Unknown`.
    const authority = version.authority === "LetsEncrypt" ? version.authority : version.issuer;
    const selfSigned = version.issuer === "Self";
    const usesSigningKey = selfSigned && version.shape.type === "RSA" && version.shape.size === 2048;
    return makeCertificate({
      subject: version.subject,
      issuer: selfSigned ? version.subject : (ISSUERS[authority] ?? `CN=${authority} CA`),
      serial: Buffer.from(versionFrom(version.id), "hex"),
      notBefore: new Date((version.notBefore ?? version.created) * 1000),
      notAfter: new Date((version.expires ?? version.created) * 1000),
      publicKey: usesSigningKey ? createPublicKey(this.signingKey) : publicKey(version.shape, name),
      signingKey: this.signingKey,
      dnsNames: version.dnsNames,
      timestamps: PUBLIC_AUTHORITIES.includes(authority),
    });
  }
}
