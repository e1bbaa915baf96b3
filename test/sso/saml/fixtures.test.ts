import { readFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";
import type { ExpectedValues } from "../../../shared/sso/saml/assertion.ts";
import { FIXTURE_IDP, FIXTURE_NOW, FIXTURE_REQUEST } from "../../fixtures/saml/facts.ts";
import { uma, verificationResult } from "./signing.ts";

// Tests with responses that xmlsec1, another implementation of XML signatures and encryption, created. The files are in
// test/fixtures/saml: `idp.crt` is the identity provider's certificate, `service.key` the service's key for decryption.

const readFixture = (name: string) => readFileSync(path.join(import.meta.dirname, "../../fixtures/saml", name), "utf8");

/** The values that a valid response must have, with changes by a test. */
const expectedValues = (change: Partial<ExpectedValues> = {}): ExpectedValues => ({
  idpEntityId: FIXTURE_IDP,
  certificates: [readFixture("idp.crt")],
  acsUrl: FIXTURE_REQUEST.acsUrl,
  spEntityId: FIXTURE_REQUEST.issuer,
  requestId: FIXTURE_REQUEST.id,
  now: FIXTURE_NOW,
  ...change,
});
const decryptionKey = readFixture("service.key");

describe("A response that xmlsec1 signed", () => {
  it.each(["assertion-signed", "response-signed", "both-signed", "sha512"])("is accepted: %s", async (name) => {
    const person = await verificationResult(readFixture(`${name}.xml`), expectedValues());
    expect(person).toMatchObject({ issuer: FIXTURE_IDP, subject: uma.objectId });
  });

  it.each(["encrypted-cbc", "encrypted-gcm", "encrypted-in-signed"])(
    "and encrypted is accepted only with the service's key: %s",
    async (name) => {
      expect(await verificationResult(readFixture(`${name}.xml`), expectedValues({ decryptionKey }))).toMatchObject({
        subject: uma.objectId,
      });
      expect(await verificationResult(readFixture(`${name}.xml`), expectedValues())).toBe("encrypted");
    },
  );

  it("is rejected if only the encryption protects it, because everyone can encrypt for the service", async () => {
    expect(await verificationResult(readFixture("encrypted-not-signed.xml"), expectedValues({ decryptionKey }))).toBe(
      "notSigned",
    );
  });

  it.each(["encrypted-rsa-1_5", "encrypted-tripledes"])(
    "and encrypted with a weak algorithm is rejected: %s",
    async (name) => {
      expect(await verificationResult(readFixture(`${name}.xml`), expectedValues({ decryptionKey }))).toBe("algorithm");
    },
  );

  it("and encrypted is rejected if the encrypted data was changed", async () => {
    // Replaces two characters of each encrypted value.
    const change = (xml: string) =>
      xml.replace(/(<xenc:CipherValue>.{40})./g, "$1A").replace(/(<xenc:CipherValue>.{41})./g, "$1B");
    for (const name of ["encrypted-cbc", "encrypted-gcm"])
      expect(await verificationResult(change(readFixture(`${name}.xml`)), expectedValues({ decryptionKey }))).toBe(
        "encrypted",
      );
  });

  it("with the provider's next key is accepted once its certificate is configured", async () => {
    const xml = readFixture("next-key.xml");
    expect(await verificationResult(xml, expectedValues())).toBe("signature");
    const certificates = [readFixture("idp.crt"), readFixture("idp-next.crt")];
    expect(await verificationResult(xml, expectedValues({ certificates }))).toMatchObject({ subject: uma.objectId });
  });

  it.each([
    ["sha1", "algorithm"],
    // XML signature wrapping: the signed assertion is moved, and a forged assertion takes its place.
    ...[1, 2].map((variant) => [`xsw${variant}`, "signature"]),
    ...[3, 4, 5, 6, 7, 8].map((variant) => [`xsw${variant}`, "assertionCount"]),
  ])("is rejected if it is defective: %s", async (name, reason) => {
    expect(await verificationResult(readFixture(`${name}.xml`), expectedValues())).toBe(reason);
  });
});

// Keycloak 26.0.7 created the response. Its realm is deleted, and so is the key.
describe("A response that Keycloak signed", () => {
  const expected = (): ExpectedValues => ({
    idpEntityId: "http://127.0.0.1:8180/realms/lifecycle-4cd1c9ad",
    certificates: [readFixture("keycloak.crt")],
    acsUrl: "http://localhost:7071/auth/sso/callback",
    spEntityId: "http://localhost:7071/auth/sso/metadata",
    requestId: "_keycloak",
    now: new Date("2026-11-27T09:07:00Z"),
  });

  it("with RSA-PSS is accepted", async () => {
    const person = await verificationResult(readFixture("keycloak-rsa-pss.xml"), expected());
    expect(person).toMatchObject({ subject: "G-1c20dc0a-45ce-40d5-bc94-10bd6172295d" });
  });

  it("with RSA-PSS is rejected with another key, or after a change", async () => {
    const xml = readFixture("keycloak-rsa-pss.xml");
    const otherKey = { ...expected(), certificates: [readFixture("idp.crt")] };
    expect(await verificationResult(xml, otherKey)).toBe("signature");
    expect(await verificationResult(xml.replace("Lifecycle.User", "Lifecycle.Admin"), expected())).toBe("signature");
  });
});
