import { webcrypto } from "node:crypto";
import { Integer, Utf8String } from "asn1js";
import { AttributeTypeAndValue, Certificate } from "pkijs";
import { DAY_MS } from "../../platform/time.ts";
import type { SamlCertificate } from "./certificates.ts";

const ALGORITHM = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" };
/**
 * Lifetime of the service's certificate. It is long, because administrators import the certificate at the identity provider by
 * hand. They are notified before it expires.
 */
const VALID_DAYS = 3 * 365;
/** Object identifier of a certificate's common name. */
const COMMON_NAME = "2.5.4.3";

/**
 * Creates an RSA key with 3072 bits and a self-signed certificate, the format in which identity providers accept keys.
 *
 * @param name - Common name of the certificate.
 * @returns `key` is PKCS#8 in PEM.
 */
export async function makeServiceKey(name: string, now: Date): Promise<{ key: string; certificate: SamlCertificate }> {
  const parameters = { ...ALGORITHM, modulusLength: 3072, publicExponent: new Uint8Array([1, 0, 1]) };
  const keys = await webcrypto.subtle.generateKey(parameters, true, ["sign", "verify"]);
  const certificate = new Certificate();
  certificate.version = 2; // X.509 version 3: versions are counted from 0
  certificate.serialNumber = new Integer({
    valueHex: webcrypto.getRandomValues(new Uint8Array(16)).map(positive).buffer,
  });
  for (const names of [certificate.subject, certificate.issuer]) {
    names.typesAndValues.push(new AttributeTypeAndValue({ type: COMMON_NAME, value: new Utf8String({ value: name }) }));
  }
  const expiresOn = new Date(now.getTime() + VALID_DAYS * DAY_MS);
  certificate.notBefore.value = now;
  certificate.notAfter.value = expiresOn;
  await certificate.subjectPublicKeyInfo.importKey(keys.publicKey as unknown as CryptoKey);
  await certificate.sign(keys.privateKey as unknown as CryptoKey, "SHA-256");
  const pkcs8 = Buffer.from(await webcrypto.subtle.exportKey("pkcs8", keys.privateKey));
  const der = Buffer.from(certificate.toSchema(true).toBER());
  return { key: pem("PRIVATE KEY", pkcs8), certificate: { pem: pem("CERTIFICATE", der), expiresOn } };
}

/** Makes a serial number positive and not start with a zero byte: its first two bits are 01 (RFC 5280, 4.1.2.2). */
const positive = (byte: number, index: number): number => (index === 0 ? (byte & 0x7f) | 0x40 : byte);

function pem(label: string, der: Buffer): string {
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join("\n")}\n-----END ${label}-----\n`;
}
