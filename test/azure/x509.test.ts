import { generateKeyPairSync, type KeyObject, randomBytes } from "node:crypto";
import { makeCertificate } from "simulated-cloud/x509.ts";
import { expect, test } from "vitest";
import { readX509 } from "../../shared/platform/azure/x509.ts";

const signingKey = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;

const certificateOf = (publicKey: KeyObject): Buffer =>
  makeCertificate({
    subject: "CN=www.acme.example, O=Acme",
    issuer: "CN=Acme CA",
    serial: randomBytes(8),
    notBefore: new Date("2026-01-01"),
    notAfter: new Date("2027-01-01"),
    publicKey,
    signingKey,
    dnsNames: ["www.acme.example", "acme.example"],
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
  const {
    keyType: type,
    keySize: size,
    ...facts
  } = readX509(certificateOf(key), { operation: "read", resource: "www" }, true);
  expect([type, size]).toEqual([keyType, keySize]);
  expect(facts).toEqual({
    subject: "O=Acme, CN=www.acme.example",
    issuer: "CN=Acme CA",
    subjectAlternativeNames: ["www.acme.example", "acme.example"],
    validityMonths: 12,
  });
});
