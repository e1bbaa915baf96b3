import { X509Certificate } from "node:crypto";

/** Bits. https://nvlpubs.nist.gov/nistpubs/SpecialPublications/NIST.SP.800-131Ar2.pdf, section 3 */
const LEAST_RSA_BITS = 2048;

/** A certificate that an identity provider signs with, or we do. */
export interface SamlCertificate {
  /** PEM, in lines of 64. */
  pem: string;
  /** Until when. Identity providers sign on with one that has ended, so it goes on counting; people are told before. */
  expiresOn: Date;
}

/** @param pem - As `readCertificate` gave it. */
export const expiryOf = (pem: string): Date => new X509Certificate(pem).validToDate;

/** SHA-256 of it in hex, as tools show it. */
export const fingerprintOf = (pem: string): string => new X509Certificate(pem).fingerprint256;

/**
 * @param text - PEM, or what stands between its lines, as metadata has it.
 * @returns What is wrong with it, completing "must …", when it is not one that counts.
 */
export function readCertificate(text: string): SamlCertificate | string {
  let certificate: X509Certificate;
  try {
    const base64 = text.replace(/-----(BEGIN|END) CERTIFICATE-----/g, "");
    certificate = new X509Certificate(Buffer.from(base64, "base64"));
    const { asymmetricKeyType, asymmetricKeyDetails } = certificate.publicKey;
    if (asymmetricKeyType !== "rsa") return "must have an RSA key: signatures with other keys are not verified here";
    if ((asymmetricKeyDetails?.modulusLength ?? 0) < LEAST_RSA_BITS)
      return "must have an RSA key of at least 2048 bits";
  } catch {
    return "must be an X.509 certificate in PEM, one each";
  }
  return { pem: certificate.toString(), expiresOn: certificate.validToDate };
}
