import { BAD_SAML_MODES, GOOD_SAML_MODES } from "simulated-cloud/idp/saml-modes.ts";
import type { SamlMode } from "simulated-cloud/idp/saml-response.ts";
import { describe, expect, it } from "vitest";
import { MINUTE_MS } from "../../../shared/platform/time.ts";
import { verifyResponse } from "../../../shared/sso/saml/response.ts";
import type { SamlReason } from "../../../shared/sso/saml/saml-refused.ts";
import { base64, Signer, uma, verificationResult } from "./signing.ts";

const idp = new Signer();

// Tests of the verification of SAML responses. The simulated provider sends a response with each defect ("mode").

/** The check that must detect each defect, as the reason of the rejection. */
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
    "gives the person who signed in, in the valid form %s",
    async (_name, mode) => {
      const person = await verifyResponse(base64(await idp.respond(mode)), idp.expected());
      expect(person.issuer).toBe(idp.entityId);
      expect(person.subject).toBe(uma.objectId);
      expect(person.attributes.get("http://schemas.microsoft.com/ws/2008/06/identity/claims/role")).toEqual(uma.roles);
      // The response is valid for 5 minutes. The service tolerates clocks that differ by 1 minute.
      expect(person.endsAt).toEqual(new Date(idp.now.getTime() + 6 * MINUTE_MS));
    },
  );

  it.each(Object.entries(BAD_SAML_MODES) as [keyof typeof REASONS, SamlMode][])(
    "is rejected with the defect %s",
    async (name, mode) => {
      expect(await verificationResult(await idp.respond(mode), idp.expected())).toBe(REASONS[name]);
    },
  );

  it("is accepted from a minute before its start until a minute after its end", async () => {
    const xml = await idp.respond();
    // The response is valid from 5 minutes before to 5 minutes after its time of issue.
    const resultAfter = (ms: number) =>
      verificationResult(xml, idp.expected({ now: new Date(idp.now.getTime() + ms) }));
    expect(await resultAfter(-6 * MINUTE_MS - 1)).toBe("notYetValid");
    expect(await resultAfter(-6 * MINUTE_MS)).toMatchObject({ subject: uma.objectId });
    expect(await resultAfter(6 * MINUTE_MS - 1)).toMatchObject({ subject: uma.objectId });
    expect(await resultAfter(6 * MINUTE_MS)).toBe("expired");
  });

  it("is accepted if it is signed with one of the provider's certificates", async () => {
    const signedWithOtherKey = await idp.respond({ foreignKey: true });
    const expectedWithBothCertificates = idp.expected({ certificates: [idp.certificate, idp.foreignCertificate] });
    expect(await verificationResult(signedWithOtherKey, expectedWithBothCertificates)).toMatchObject({
      subject: uma.objectId,
    });
    expect(await verificationResult(await idp.respond(), expectedWithBothCertificates)).toMatchObject({
      subject: uma.objectId,
    });
    expect(await verificationResult(signedWithOtherKey, idp.expected({ certificates: [] }))).toBe("signature");
  });

  it("is accepted with a signature that includes prefixes of the enclosing elements", async () => {
    // The standard for exclusive canonicalization calls this InclusiveNamespaces. The signature covers the prefix `kept`.
    const xml = (await idp.respond({ signs: "response" })).replace(" ID=", ' xmlns:kept="urn:kept" ID=');
    const [, reference] = /<ds:Reference URI="([^"]*)"/.exec(xml)!;
    const [, digest] = /<ds:DigestValue>([^<]*)/.exec(xml)!;
    const exclusive = "http://www.w3.org/2001/10/xml-exc-c14n#";
    const algorithmElement = (name: string, algorithm: string, inside = "") =>
      `<ds:${name} Algorithm="${algorithm}">${inside}</ds:${name}>`;
    const prefixes = `<ec:InclusiveNamespaces xmlns:ec="${exclusive}" PrefixList="kept"></ec:InclusiveNamespaces>`;
    const transforms =
      algorithmElement("Transform", "http://www.w3.org/2000/09/xmldsig#enveloped-signature") +
      algorithmElement("Transform", exclusive);
    const inside = [
      algorithmElement("CanonicalizationMethod", exclusive, prefixes),
      algorithmElement("SignatureMethod", "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"),
      `<ds:Reference URI="${reference}"><ds:Transforms>${transforms}</ds:Transforms>`,
      algorithmElement("DigestMethod", "http://www.w3.org/2001/04/xmlenc#sha256"),
      `<ds:DigestValue>${digest}</ds:DigestValue></ds:Reference></ds:SignedInfo>`,
    ].join("");
    const namespace = 'xmlns:ds="http://www.w3.org/2000/09/xmldsig#"';
    const value = idp.sign(`<ds:SignedInfo ${namespace} xmlns:kept="urn:kept">${inside}`);
    const signature = `<ds:Signature ${namespace}><ds:SignedInfo>${inside}<ds:SignatureValue>${value}</ds:SignatureValue></ds:Signature>`;
    const signed = xml.replace(/<ds:Signature .*?<\/ds:Signature>/s, signature);
    expect(await verificationResult(signed, idp.expected())).toMatchObject({ subject: uma.objectId });
    expect(await verificationResult(signed.replace('"urn:kept"', '"urn:other"'), idp.expected())).toBe("signature");
  });

  it("identifies the person only by the configured attribute", async () => {
    const xml = await idp.respond();
    const resultWithAttribute = (idAttribute: string) => verificationResult(xml, idp.expected({ idAttribute }));
    expect(await resultWithAttribute("email_verified")).toMatchObject({ subject: "true" });
    expect(await resultWithAttribute("employeeNumber")).toBe("noIdentity");
    expect(await resultWithAttribute("http://schemas.microsoft.com/ws/2008/06/identity/claims/groups")).toMatchObject({
      subject: "everyone",
    });
  });

  // Among them are `<?x` and `<a/` in Base64, and bytes that are not UTF-8.
  it.each(["", "====", "PD94", "%3Cxml", "w6TDtg", "/////w", "PGEv"])(
    "is rejected if it is not Base64 of valid XML: %s",
    async (text) => {
      await expect(verifyResponse(text, idp.expected())).rejects.toMatchObject({ reason: "malformed" });
    },
  );
});
