import { createHash, createPublicKey, generateKeyPairSync, type KeyObject } from "node:crypto";
import { type CertificateRequest, makeCertificate } from "simulated-cloud/x509.ts";
import { expect, test } from "vitest";
import { readX509 } from "../../shared/platform/azure/x509.ts";

// Tests of the properties that the service reads from the bytes (DER) of a certificate.

const signingKey = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;

const TARGET = { operation: "read", resource: "www" };

const certificateOf = (publicKey: KeyObject, more: Partial<CertificateRequest> = {}): Buffer =>
  makeCertificate({
    subject: "CN=www.acme.example, O=Acme",
    issuer: "CN=Acme CA",
    // The first bit is set, so that DER adds a zero byte.
    serial: Buffer.from("a1b2c3d4e5f60718", "hex"),
    notBefore: new Date("2026-01-01"),
    notAfter: new Date("2027-01-01"),
    publicKey,
    signingKey,
    dnsNames: ["www.acme.example", "acme.example"],
    ...more,
  });
const ec = (namedCurve: string) => generateKeyPairSync("ec", { namedCurve }).publicKey;

test.each([
  ["RSA with 1024 bits", generateKeyPairSync("rsa", { modulusLength: 1024 }).publicKey, "RSA", 1024],
  ["RSA with 3072 bits", generateKeyPairSync("rsa", { modulusLength: 3072 }).publicKey, "RSA", 3072],
  ["P-256", ec("prime256v1"), "EC", undefined],
  ["P-521", ec("secp521r1"), "EC", undefined],
  ["P-256K", ec("secp256k1"), "EC", undefined],
  ["Ed25519", generateKeyPairSync("ed25519").publicKey, undefined, undefined],
])("the properties of a certificate with a key of %s are read", (_, key, keyType, keySize) => {
  const { keyType: type, keySize: size, ...facts } = readX509(certificateOf(key), TARGET, true);
  expect([type, size]).toEqual([keyType, keySize]);
  expect(facts).toEqual({
    subject: "O=Acme, CN=www.acme.example",
    issuer: "CN=Acme CA",
    subjectAlternativeNames: ["www.acme.example", "acme.example"],
    validityMonths: 12,
    serialNumber: "00a1b2c3d4e5f60718",
    authorityKeyId: createHash("sha1")
      .update(createPublicKey(signingKey).export({ type: "spki", format: "der" }))
      .digest("hex"),
    hasTimestamps: false,
    // RSA with SHA-256.
    signatureAlgorithm: "1.2.840.113549.1.1.11",
    notBefore: Date.parse("2026-01-01") / 1000,
    notAfter: Date.parse("2027-01-01") / 1000,
  });
});

test("the serial number keeps the leading zero of its DER, and timestamps are found", () => {
  const { serialNumber, authorityKeyId, hasTimestamps } = readX509(
    certificateOf(ec("prime256v1"), { timestamps: true }),
    TARGET,
    false,
  );
  expect([serialNumber, hasTimestamps]).toEqual(["00a1b2c3d4e5f60718", true]);
  expect(authorityKeyId).toMatch(/^[0-9a-f]{40}$/);
});

test("a date that can't be read leaves out the validity, and nothing else", () => {
  const der = certificateOf(ec("prime256v1"));
  // The 32nd day of January 2027, as UTCTime.
  der.write("270132", der.indexOf("270101"), "latin1");
  const facts = readX509(der, TARGET, true);
  expect(facts).toMatchObject({ subject: "O=Acme, CN=www.acme.example", keyType: "EC" });
  for (const member of ["notBefore", "notAfter", "validityMonths"]) expect(facts).not.toHaveProperty(member);
});

test("a certificate with 10,000 names and a serial number of 2,000 bytes is read", () => {
  const dnsNames = Array.from({ length: 10_000 }, (_, index) => `host-${index}.acme.example`);
  const serial = Buffer.alloc(2000, 0x11);
  const facts = readX509(certificateOf(ec("prime256v1"), { dnsNames, serial }), TARGET, false);
  expect(facts.subjectAlternativeNames).toEqual(dnsNames);
  expect(facts.serialNumber).toBe(serial.toString("hex"));
});
