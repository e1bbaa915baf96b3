import { BAD_SAML_MODES, GOOD_SAML_MODES } from "simulated-cloud/idp/saml-modes.ts";
import type { SamlMode } from "simulated-cloud/idp/saml-response.ts";
import { describe, expect, it } from "vitest";
import { verifyResponse } from "../../../shared/sso/saml/response.ts";
import type { SamlReason } from "../../../shared/sso/saml/saml-refused.ts";
import { base64, outcome, Signer, uma } from "./signing.ts";

const idp = new Signer();
const MINUTE_MS = 60_000;

/** Each mistake with the check that must detect it. */
const REASONS: Record<keyof typeof BAD_SAML_MODES, SamlReason> = {
  wrongDestination: "destination",
  wrongRecipient: "recipient",
  missingRecipient: "recipient",
  wrongAudience: "audience",
  missingAudience: "audience",
  secondAudience: "audience",
  missingConditions: "audience",
  unknownCondition: "malformed",
  conditionsExpired: "expired",
  conditionsNotYetValid: "notYetValid",
  missingConfirmation: "confirmation",
  otherConfirmation: "confirmation",
  missingConfirmationData: "confirmation",
  confirmationExpired: "expired",
  missingConfirmationEnd: "confirmation",
  sessionOver: "expired",
  missingStatement: "malformed",
  otherRequest: "inResponseTo",
  otherRequestConfirmed: "inResponseTo",
  unsolicited: "inResponseTo",
  unsolicitedWithoutRequest: "inResponseTo",
  wrongAssertionIssuer: "issuer",
  wrongResponseIssuer: "issuer",
  missingResponseIssuer: "issuer",
  otherVersion: "malformed",
  otherAssertionVersion: "malformed",
  otherMessage: "malformed",
  failed: "status",
  notSigned: "notSigned",
  foreignKey: "signature",
  foreignKeyOfResponse: "signature",
  tampered: "signature",
  sha1: "algorithm",
  sha1Digest: "algorithm",
  sha1Signature: "algorithm",
  otherTransform: "algorithm",
  otherCanonicalization: "algorithm",
  documentType: "documentType",
  large: "malformed",
  wide: "malformed",
  manyReferences: "signature",
  threeTransforms: "signature",
  manyTransforms: "signature",
  deep: "malformed",
  notWellFormed: "malformed",
  anotherBefore: "assertionCount",
  anotherAfter: "assertionCount",
  anotherNamespace: "assertionCount",
  signatureElsewhere: "signature",
  transientNameId: "noIdentity",
  unspecifiedNameId: "noIdentity",
  emailNameId: "noIdentity",
  foreignNameId: "noIdentity",
  twoObjectIds: "noIdentity",
  elementInNameId: "noIdentity",
  xsw1: "signature",
  xsw2: "signature",
  xsw3: "assertionCount",
  xsw4: "assertionCount",
  xsw5: "assertionCount",
  xsw6: "assertionCount",
  xsw7: "assertionCount",
  xsw8: "assertionCount",
};

describe("A response to the service's request", () => {
  it.each(Object.entries(GOOD_SAML_MODES) as [string, SamlMode][])(
    "gives the person who signed in: %s",
    async (_name, mode) => {
      const person = await verifyResponse(base64(await idp.respond(mode)), idp.expected());
      expect(person.issuer).toBe(idp.entityId);
      expect(person.subject).toBe(uma.objectId);
      expect(person.attributes.get("http://schemas.microsoft.com/ws/2008/06/identity/claims/role")).toEqual(uma.roles);
      expect(person.endsAt).toEqual(new Date(idp.now.getTime() + 6 * MINUTE_MS));
    },
  );

  it.each(Object.entries(BAD_SAML_MODES) as [keyof typeof REASONS, SamlMode][])(
    "is rejected: %s",
    async (name, mode) => {
      expect(await outcome(await idp.respond(mode), idp.expected())).toBe(REASONS[name]);
    },
  );

  it("is valid from a minute before its start until a minute after its end, by the service's clock", async () => {
    const xml = await idp.respond();
    const at = (ms: number) => outcome(xml, idp.expected({ now: new Date(idp.now.getTime() + ms) }));
    expect(await at(-6 * MINUTE_MS - 1)).toBe("notYetValid");
    expect(await at(-6 * MINUTE_MS)).toMatchObject({ subject: uma.objectId });
    expect(await at(6 * MINUTE_MS - 1)).toMatchObject({ subject: uma.objectId });
    expect(await at(6 * MINUTE_MS)).toBe("expired");
  });

  it("may be signed with any of the provider's certificates, and with no other key", async () => {
    const next = await idp.respond({ foreignKey: true });
    const rolling = idp.expected({ certificates: [idp.certificate, idp.otherCertificate] });
    expect(await outcome(next, rolling)).toMatchObject({ subject: uma.objectId });
    expect(await outcome(await idp.respond(), rolling)).toMatchObject({ subject: uma.objectId });
    expect(await outcome(next, idp.expected({ certificates: [] }))).toBe("signature");
  });

  it("may have a signature that names prefixes of the enclosing elements, as exclusive canonicalization allows", async () => {
    const xml = (await idp.respond({ signs: "response" })).replace(" ID=", ' xmlns:kept="urn:kept" ID=');
    const [, reference] = /<ds:Reference URI="([^"]*)"/.exec(xml)!;
    const [, digest] = /<ds:DigestValue>([^<]*)/.exec(xml)!;
    const exclusive = "http://www.w3.org/2001/10/xml-exc-c14n#";
    const method = (name: string, algorithm: string, inside = "") =>
      `<ds:${name} Algorithm="${algorithm}">${inside}</ds:${name}>`;
    const prefixes = `<ec:InclusiveNamespaces xmlns:ec="${exclusive}" PrefixList="kept"></ec:InclusiveNamespaces>`;
    const transforms =
      method("Transform", "http://www.w3.org/2000/09/xmldsig#enveloped-signature") + method("Transform", exclusive);
    const inside = [
      method("CanonicalizationMethod", exclusive, prefixes),
      method("SignatureMethod", "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"),
      `<ds:Reference URI="${reference}"><ds:Transforms>${transforms}</ds:Transforms>`,
      method("DigestMethod", "http://www.w3.org/2001/04/xmlenc#sha256"),
      `<ds:DigestValue>${digest}</ds:DigestValue></ds:Reference></ds:SignedInfo>`,
    ].join("");
    const namespace = 'xmlns:ds="http://www.w3.org/2000/09/xmldsig#"';
    const value = idp.sign(`<ds:SignedInfo ${namespace} xmlns:kept="urn:kept">${inside}`);
    const signature = `<ds:Signature ${namespace}><ds:SignedInfo>${inside}<ds:SignatureValue>${value}</ds:SignatureValue></ds:Signature>`;
    const signed = xml.replace(/<ds:Signature .*?<\/ds:Signature>/s, signature);
    expect(await outcome(signed, idp.expected())).toMatchObject({ subject: uma.objectId });
    expect(await outcome(signed.replace('"urn:kept"', '"urn:other"'), idp.expected())).toBe("signature");
  });

  it("is identified by the configured attribute, and then by no other", async () => {
    const xml = await idp.respond();
    const named = (idAttribute: string) => outcome(xml, idp.expected({ idAttribute }));
    expect(await named("email_verified")).toMatchObject({ subject: "true" });
    expect(await named("employeeNumber")).toBe("noIdentity");
    expect(await named("http://schemas.microsoft.com/ws/2008/06/identity/claims/groups")).toMatchObject({
      subject: "everyone",
    });
  });

  it.each(["", "====", "PD94", "%3Cxml", "w6TDtg", "/////w", "PGEv"])(
    "is rejected when it is not XML: %s",
    async (text) => {
      await expect(verifyResponse(text, idp.expected())).rejects.toMatchObject({ reason: "malformed" });
    },
  );
});
