import { readFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";
import type { Expected } from "../../../shared/sso/saml/assertion.ts";
import { FIXTURE_IDP, FIXTURE_NOW, FIXTURE_REQUEST } from "../../fixtures/saml/facts.ts";
import { outcome, uma } from "./signing.ts";

const read = (name: string) => readFileSync(path.join(import.meta.dirname, "../../fixtures/saml", name), "utf8");

const expected = (more: Partial<Expected> = {}): Expected => ({
  idpEntityId: FIXTURE_IDP,
  certificates: [read("idp.crt")],
  acsUrl: FIXTURE_REQUEST.acsUrl,
  spEntityId: FIXTURE_REQUEST.issuer,
  requestId: FIXTURE_REQUEST.id,
  now: FIXTURE_NOW,
  ...more,
});
const decryptionKey = read("service.key");

describe("A response that xmlsec1 signed", () => {
  it.each(["assertion-signed", "response-signed", "both-signed", "sha512"])("is taken: %s", async (name) => {
    const person = await outcome(read(`${name}.xml`), expected());
    expect(person).toMatchObject({ issuer: FIXTURE_IDP, subject: uma.objectId });
  });

  it.each(["encrypted-cbc", "encrypted-gcm", "encrypted-in-signed"])(
    "and encrypted is taken with our key, and only then: %s",
    async (name) => {
      expect(await outcome(read(`${name}.xml`), expected({ decryptionKey }))).toMatchObject({ subject: uma.objectId });
      expect(await outcome(read(`${name}.xml`), expected())).toBe("encrypted");
    },
  );

  it("and encrypted must be signed within: what encrypts proves nothing", async () => {
    expect(await outcome(read("encrypted-not-signed.xml"), expected({ decryptionKey }))).toBe("notSigned");
  });

  it.each(["encrypted-rsa-1_5", "encrypted-tripledes"])(
    "and encrypted in a way that others can undo is refused: %s",
    async (name) => {
      expect(await outcome(read(`${name}.xml`), expected({ decryptionKey }))).toBe("algorithm");
    },
  );

  it("and encrypted is refused when it was changed", async () => {
    const change = (xml: string) =>
      xml.replace(/(<xenc:CipherValue>.{40})./g, "$1A").replace(/(<xenc:CipherValue>.{41})./g, "$1B");
    for (const name of ["encrypted-cbc", "encrypted-gcm"])
      expect(await outcome(change(read(`${name}.xml`)), expected({ decryptionKey }))).toBe("encrypted");
  });

  it("with the next key is taken once its certificate is known too", async () => {
    const xml = read("next-key.xml");
    expect(await outcome(xml, expected())).toBe("signature");
    const certificates = [read("idp.crt"), read("idp-next.crt")];
    expect(await outcome(xml, expected({ certificates }))).toMatchObject({ subject: uma.objectId });
  });

  it.each([
    ["sha1", "algorithm"],
    ...[1, 2].map((way) => [`xsw${way}`, "signature"]),
    ...[3, 4, 5, 6, 7, 8].map((way) => [`xsw${way}`, "assertionCount"]),
  ])("is refused: %s", async (name, reason) => {
    expect(await outcome(read(`${name}.xml`), expected())).toBe(reason);
  });
});
