import { createPublicKey, createVerify, X509Certificate } from "node:crypto";
import { inflateRawSync } from "node:zlib";
import { SamlLib } from "samlify";
import { readValid } from "simulated-cloud/idp/saml-schema.ts";
import { afterEach, describe, expect, it } from "vitest";
import { readCertificate } from "../../../shared/sso/saml/certificates.ts";
import { parseIdpMetadata } from "../../../shared/sso/saml/idp-metadata.ts";
import {
  authnRequestUrl,
  logoutRequestUrl,
  logoutResponseUrl,
  serviceMetadata,
} from "../../../shared/sso/saml/messages.ts";
import { makeServiceKey } from "../../../shared/sso/saml/service-key.ts";
import { serviceNamesAt } from "../../../shared/sso/saml/service-names.ts";
import { attribute, child, children, parseXml, textOf } from "../../../shared/sso/saml/xml.ts";
import { Signer } from "./signing.ts";

// Tests of the SAML messages and documents that the service sends or reads: requests, metadata and certificates.

const names = serviceNamesAt("https://lifecycle.acme.example");
const NOW = new Date("2026-03-01T12:00:00Z");
const idp = new Signer();

const request = {
  id: "_request",
  issuedAt: NOW,
  relayState: "relay",
  entryPoint: "https://login.acme.example/saml?tenant=a&app=b",
  idpEntityId: "https://login.acme.example/",
  persistentNameId: true,
};

const textOfRequest = (url: URL) =>
  inflateRawSync(Buffer.from(url.searchParams.get("SAMLRequest")!, "base64")).toString();
const requestOf = (url: URL) => parseXml(textOfRequest(url));

const { context: template } = SamlLib.defaultLoginRequestTemplate;
afterEach(() => {
  SamlLib.defaultLoginRequestTemplate.context = template;
});

describe("The AuthnRequest", () => {
  it("goes to the provider's unchanged URL and names the address for the response", () => {
    const url = authnRequestUrl(names, request);
    expect(url.href.startsWith("https://login.acme.example/saml?tenant=a&app=b&SAMLRequest=")).toBe(true);
    expect(url.searchParams.get("RelayState")).toBe("relay");
    expect(url.searchParams.has("Signature")).toBe(false);
    const xml = requestOf(url);
    expect(Object.fromEntries(Array.from(xml.attributes).map(({ name, value }) => [name, value]))).toMatchObject({
      ID: "_request",
      Version: "2.0",
      IssueInstant: "2026-03-01T12:00:00.000Z",
      Destination: request.entryPoint,
      AssertionConsumerServiceURL: "https://lifecycle.acme.example/auth/sso/callback",
      ProtocolBinding: "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST",
    });
    expect(textOf(child(xml, "assertion", "Issuer"))).toBe("https://lifecycle.acme.example/auth/sso/metadata");
    const policy = child(xml, "protocol", "NameIDPolicy")!;
    expect(attribute(policy, "Format")).toBe("urn:oasis:names:tc:SAML:2.0:nameid-format:persistent");
  });

  it("requests no NameID format if an attribute identifies the person", () => {
    const policy = child(
      requestOf(authnRequestUrl(names, { ...request, persistentNameId: false })),
      "protocol",
      "NameIDPolicy",
    )!;
    expect(attribute(policy, "Format")).toBeUndefined();
  });

  it("is valid by the SAML 2.0 protocol schema", async () => {
    const { key } = await makeServiceKey("lifecycle.acme.example", NOW);
    const forms = [{}, { persistentNameId: false }, { signingKey: key }, { persistentNameId: false, signingKey: key }];
    for (const form of forms) {
      const xml = textOfRequest(authnRequestUrl(names, { ...request, ...form }));
      expect(await readValid("protocol", xml, ({ name }) => name)).toBe("AuthnRequest");
      expect(xml).not.toMatch(/[{}]/);
      expect(xml).not.toContain("AssertionConsumerServiceIndex");
    }
  });

  it("is checked by a schema validator that rejects text in place of a boolean", async () => {
    const xml = textOfRequest(authnRequestUrl(names, request)).replace(" ID=", ' IsPassive="{IsPassive}" ID=');
    await expect(readValid("protocol", xml, () => true)).rejects.toThrow("'IsPassive'");
  });

  it("is not created if the library's template has a placeholder without a value", () => {
    SamlLib.defaultLoginRequestTemplate.context = template.replace(" ID=", ' IsPassive="{IsPassive}" ID=');
    expect(() => authnRequestUrl(names, request)).toThrow("IsPassive");
  });

  it("keeps braces in the query of the sign-in URL", () => {
    const entryPoint = "https://login.acme.example/saml?tenant={Issuer}";
    const xml = requestOf(authnRequestUrl(names, { ...request, entryPoint }));
    expect(attribute(xml, "Destination")).toBe(entryPoint);
  });

  it("is signed with the service's key by RSA with SHA-256", async () => {
    const { key, certificate } = await makeServiceKey("lifecycle.acme.example", NOW);
    const url = authnRequestUrl(names, { ...request, signingKey: key });
    expect(url.searchParams.get("SigAlg")).toBe("http://www.w3.org/2001/04/xmldsig-more#rsa-sha256");
    const signedQuery = /SAMLRequest=.*(?=&Signature=)/.exec(url.search)![0];
    const verified = createVerify("sha256")
      .update(signedQuery)
      .verify(createPublicKey(certificate.pem), url.searchParams.get("Signature")!, "base64");
    expect(verified).toBe(true);
  });
});

describe("A logout message", () => {
  const nameId = { value: "<uma & co>", format: "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent" };
  const parties = async () => ({
    names,
    idpEntityId: request.idpEntityId,
    logoutUrl: "https://login.acme.example/slo?tenant=a&app={Issuer}",
    signingKey: (await makeServiceKey("lifecycle.acme.example", NOW)).key,
    id: "_logout",
    issuedAt: NOW,
  });
  const textOf = (url: URL, parameter: string) =>
    inflateRawSync(Buffer.from(url.searchParams.get(parameter)!, "base64")).toString();

  it("to sign out is valid by the SAML 2.0 protocol schema", async () => {
    const qualified = { ...nameId, nameQualifier: "https://login.acme.example/", spNameQualifier: names.entityId };
    for (const session of [{ nameId }, { nameId: qualified, sessionId: "a::b" }, { nameId: { value: "uma" } }]) {
      const xml = textOf(logoutRequestUrl(await parties(), session), "SAMLRequest");
      expect(await readValid("protocol", xml, ({ name }) => name)).toBe("LogoutRequest");
      expect(xml.replace("app={Issuer}", "")).not.toMatch(/[{}]/);
    }
  });

  it("that answers the provider is valid by the SAML 2.0 protocol schema", async () => {
    const url = logoutResponseUrl(await parties(), { id: "_request", relayState: undefined });
    const xml = textOf(url, "SAMLResponse");
    expect(await readValid("protocol", xml, ({ name }) => name)).toBe("LogoutResponse");
    expect(xml.replace("app={Issuer}", "")).not.toMatch(/[{}]/);
  });
});

describe("The service's key", () => {
  it("has a self-signed certificate that OpenSSL accepts, for 1,095 days", async () => {
    const { key, certificate } = await makeServiceKey("lifecycle.acme.example", NOW);
    const x509 = new X509Certificate(certificate.pem);
    expect(x509.verify(x509.publicKey)).toBe(true);
    expect(createPublicKey(key).equals(x509.publicKey)).toBe(true);
    expect(x509.subject).toBe("CN=lifecycle.acme.example");
    expect(x509.validFromDate).toEqual(NOW);
    expect(x509.validToDate).toEqual(certificate.expiresOn);
    expect(x509.validToDate.getTime() - NOW.getTime()).toBe(1095 * 24 * 60 * 60 * 1000);
    expect(readCertificate(certificate.pem)).toEqual(certificate);
  });
});

describe("The service's metadata", () => {
  it("is valid by the SAML 2.0 metadata schema", async () => {
    const { certificate } = await makeServiceKey("lifecycle.acme.example", NOW);
    for (const form of [{ signed: false }, { certificate: certificate.pem, signed: true }])
      expect(await readValid("metadata", serviceMetadata(names, form), ({ name }) => name)).toBe("EntityDescriptor");
  });

  it("contains the service's addresses and its key for signing and encryption", async () => {
    const { certificate } = await makeServiceKey("lifecycle.acme.example", NOW);
    const root = parseXml(serviceMetadata(names, { certificate: certificate.pem, signed: true }));
    expect(attribute(root, "entityID")).toBe(names.entityId);
    const descriptor = child(root, "metadata", "SPSSODescriptor")!;
    expect(attribute(descriptor, "AuthnRequestsSigned")).toBe("true");
    expect(attribute(descriptor, "WantAssertionsSigned")).toBe("true");
    const consumer = child(descriptor, "metadata", "AssertionConsumerService")!;
    expect(attribute(consumer, "Location")).toBe(names.acsUrl);
    expect(attribute(consumer, "Binding")).toBe("urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST");
    const keys = children(descriptor, "metadata", "KeyDescriptor");
    expect(keys.map((key) => attribute(key, "use"))).toEqual(["signing", "encryption"]);
    const descriptorWithoutKey = child(
      parseXml(serviceMetadata(names, { signed: false })),
      "metadata",
      "SPSSODescriptor",
    )!;
    expect(children(descriptorWithoutKey, "metadata", "KeyDescriptor")).toEqual([]);
    expect(attribute(descriptorWithoutKey, "AuthnRequestsSigned")).toBe("false");
  });
});

const keyDescriptor = (use: string, certificate: string) =>
  `<md:KeyDescriptor${use}><ds:KeyInfo xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><ds:X509Data><ds:X509Certificate>\n${certificate}\n</ds:X509Certificate></ds:X509Data></ds:KeyInfo></md:KeyDescriptor>`;
const base64OfPem = (pem: string) => pem.replace(/-----[A-Z ]+-----|\n/g, "");
const metadata = (keys: string) =>
  `<?xml version="1.0"?><md:EntityDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata" entityID="https://login.acme.example/"><md:IDPSSODescriptor protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">${keys}<md:SingleSignOnService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST" Location="https://login.acme.example/post"/><md:SingleSignOnService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect" Location="https://login.acme.example/redirect"/></md:IDPSSODescriptor></md:EntityDescriptor>`;

describe("An identity provider's metadata", () => {
  it("is read: its name, its address, and all its signing certificates", () => {
    const [certificate, otherCertificate] = [idp.certificate, idp.foreignCertificate];
    const keys =
      keyDescriptor(' use="signing"', base64OfPem(certificate)) +
      keyDescriptor("", base64OfPem(otherCertificate)) +
      keyDescriptor(' use="encryption"', "broken");
    expect(parseIdpMetadata(metadata(keys))).toEqual({
      entityId: "https://login.acme.example/",
      entryPoint: "https://login.acme.example/redirect",
      certificates: [certificate, otherCertificate],
    });
  });

  const validMetadata = metadata(keyDescriptor("", base64OfPem(idp.certificate)));

  it("is accepted with a byte order mark and empty lines around it", () => {
    expect(parseIdpMetadata(`\uFEFF\n${validMetadata}\n`)).toEqual(parseIdpMetadata(validMetadata));
  });

  it.each([
    ["a document type", validMetadata.replace("<md:Entity", "<!DOCTYPE x><md:Entity"), /document type/],
    ["broken XML", validMetadata.slice(0, -3), /well-formed/],
    ["more than 256 KiB", validMetadata.replace("<md:IDP", `<!--${"x".repeat(256 * 1024)}--><md:IDP`), /256 KiB/],
    [
      "several providers",
      `<md:EntitiesDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata"/>`,
      /EntityDescriptor/,
    ],
    ["a service provider", validMetadata.replaceAll("IDPSSO", "SPSSO"), /IDPSSODescriptor/],
    ["only SAML 1.1", validMetadata.replace("SAML:2.0:protocol", "SAML:1.1:protocol"), /IDPSSODescriptor/],
    ["no name", validMetadata.replace("entityID", "entity"), /entityID/],
    ["no redirect binding", validMetadata.replace("HTTP-Redirect", "SOAP"), /HTTP-Redirect/],
    ["no certificate", metadata(""), /certificate/],
    ["a broken certificate", metadata(keyDescriptor("", "AAAA")), /X\.509/],
  ])("is rejected with %s", (_description, xml, message) => {
    expect(() => parseIdpMetadata(xml)).toThrow(message);
  });
});

describe("A certificate", () => {
  it("with an RSA key is accepted, and other text is rejected", async () => {
    expect(readCertificate("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----")).toMatch(/X\.509/);
    expect(readCertificate("")).toMatch(/X\.509/);
    expect(readCertificate(idp.certificate)).toMatchObject({ pem: idp.certificate });
  });
});
