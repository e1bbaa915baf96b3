import { X509Certificate } from "node:crypto";

/** Minimum key size in bits. https://nvlpubs.nist.gov/nistpubs/SpecialPublications/NIST.SP.800-131Ar2.pdf, section 3 */
const MIN_RSA_BITS = 2048;

/** A signing certificate of an identity provider or of this service. */
export interface SamlCertificate {
  /** PEM, in lines of 64 characters. */
  pem: string;
  /**
   * Expiry date. Identity providers continue to sign with an expired certificate, so the service accepts it. Administrators are
   * notified before it expires.
   */
  expiresOn: Date;
}

/** Returns the expiry date of a certificate. @param pem - The result of `readCertificate`. */
export const expiryOf = (pem: string): Date => new X509Certificate(pem).validToDate;

/** Returns the SHA-256 fingerprint of a certificate: upper-case hexadecimal bytes, separated by colons. */
export const fingerprintOf = (pem: string): string => new X509Certificate(pem).fingerprint256;

/**
 * Parses a certificate.
 *
 * @param text - PEM, or its base64 content as in metadata.
 * @returns The certificate, or what is wrong with it, as the end of a sentence "must …".
 */
export function readCertificate(text: string): SamlCertificate | string {
  let certificate: X509Certificate;
  try {
    const base64 = text.replace(/-----(BEGIN|END) CERTIFICATE-----/g, "");
    certificate = new X509Certificate(Buffer.from(base64, "base64"));
    const { asymmetricKeyType, asymmetricKeyDetails } = certificate.publicKey;
    if (asymmetricKeyType !== "rsa") return "must have an RSA key: signatures with other keys are not verified here";
    if ((asymmetricKeyDetails?.modulusLength ?? 0) < MIN_RSA_BITS) return "must have an RSA key of at least 2048 bits";
  } catch {
    return "must be one X.509 certificate in PEM";
  }
  return { pem: certificate.toString(), expiresOn: certificate.validToDate };
}
