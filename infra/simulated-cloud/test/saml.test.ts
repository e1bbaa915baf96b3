import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { deflateRawSync } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import { readValid } from "../idp/saml-schema.ts";
import { makeCertificate } from "../x509.ts";

const ACS = "http://localhost:7071/auth/sso/callback";
const ENTITY_ID = "http://localhost:7071/auth/sso/metadata";
const POST = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST";
const RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";
const keys = generateKeyPairSync("rsa", { modulusLength: 2048 });
const otherKeys = generateKeyPairSync("rsa", { modulusLength: 2048 });

let cloud: Cloud;
beforeAll(async () => {
  cloud = await startCloud({ company: "small" });
});
beforeEach(() => register());
afterAll(() => cloud?.stop());

const signInUrl = () => /Location="([^"]*)"/.exec(cloud.saml.metadata())![1]!;

/** Returns the metadata of a service provider. With a certificate it signs its requests. */
function metadataOf(certificate: string, acsUrl = ACS): string {
  const key = `<md:KeyDescriptor use="signing"><ds:KeyInfo xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><ds:X509Data><ds:X509Certificate>${certificate}</ds:X509Certificate></ds:X509Data></ds:KeyInfo></md:KeyDescriptor>`;
  const signs = certificate !== "";
  return `<md:EntityDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata" entityID="${ENTITY_ID}"><md:SPSSODescriptor AuthnRequestsSigned="${signs}" protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">${signs ? key : ""}<md:AssertionConsumerService index="0" Binding="${POST}" Location="${acsUrl}"/></md:SPSSODescriptor></md:EntityDescriptor>`;
}

const putMetadata = (metadata: string) =>
  fetch(`${cloud.controlUrl}/saml/service-providers`, { method: "PUT", body: JSON.stringify({ metadata }) });

async function register(certificate = ""): Promise<void> {
  expect((await putMetadata(metadataOf(certificate))).status).toBe(200);
}

const requestXml = () =>
  `<samlp:AuthnRequest xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="_r" Version="2.0" IssueInstant="${new Date().toISOString()}" Destination="${signInUrl()}" ProtocolBinding="${POST}" AssertionConsumerServiceURL="${ACS}"><saml:Issuer>${ENTITY_ID}</saml:Issuer></samlp:AuthnRequest>`;

function requestUrl(xml = requestXml(), signingKey?: KeyObject, more: Record<string, string> = {}): string {
  const SAMLRequest = deflateRawSync(xml).toString("base64");
  const signed = signingKey && { SigAlg: RSA_SHA256 };
  const query = new URLSearchParams({ SAMLRequest, RelayState: "relay", ...signed, ...more });
  if (signingKey) query.set("Signature", sign("sha256", Buffer.from(query.toString()), signingKey).toString("base64"));
  return `${signInUrl()}?${query}`;
}

async function answerTo(url: string): Promise<string> {
  const answer = await fetch(url);
  return `${answer.status} ${(await answer.text()).slice(0, 300)}`;
}

async function choose(person: string, url = requestUrl()): Promise<{ page: string; xml: string }> {
  const answer = await fetch(url, { method: "POST", body: new URLSearchParams({ person }) });
  const page = await answer.text();
  const encoded = /name="SAMLResponse" value="([^"]*)"/.exec(page)?.[1] ?? "";
  return { page, xml: Buffer.from(encoded, "base64").toString() };
}

describe("The SAML provider", () => {
  test("asks who signs in, and returns the browser with a form", async () => {
    const page = await (await fetch(requestUrl())).text();
    expect(page).toContain("Uma Okafor");
    const chosen = await choose("uma");
    expect(chosen.page).toContain(`<form method="post" action="${ACS}">`);
    expect(chosen.page).toContain('name="RelayState" value="relay"');
    expect(chosen.xml).toContain('InResponseTo="_r"');
    expect(chosen.xml).toContain("uma@acme.example");
  });

  test("reports a canceled sign-in", async () => {
    const { xml } = await choose("");
    expect(xml).toContain("status:AuthnFailed");
    expect(xml).not.toContain("<saml:Assertion");
  });

  test("sends responses that the SAML 2.0 protocol schema allows", async () => {
    for (const person of ["uma", ""])
      expect(await readValid("protocol", (await choose(person)).xml, ({ name }) => name)).toBe("Response");
  });

  test.each<[string, (xml: string) => string, string]>([
    ["an unfilled tag", (xml) => xml.replace(" ID=", ' ForceAuthn="{ForceAuthn}" ID='), "'ForceAuthn'"],
    ["an unknown attribute", (xml) => xml.replace(" ID=", ' Unknown="x" ID='), "'Unknown'"],
    ["no ID", (xml) => xml.replace(' ID="_r"', ""), "'ID' is required"],
    ["an ID that begins with a digit", (xml) => xml.replace('"_r"', '"1r"'), "'ID'"],
    ["a document that is cut off", (xml) => xml.slice(0, -"</samlp:AuthnRequest>".length), "Premature end"],
    [
      "another message",
      (xml) =>
        xml
          .replace(/ ProtocolBinding.*?(?=>)/, "")
          .replace("</saml:Issuer>", "</saml:Issuer><samlp:Artifact>x</samlp:Artifact>")
          .replaceAll("AuthnRequest", "ArtifactResolve"),
      "must be an AuthnRequest, but is ArtifactResolve",
    ],
    ["another version", (xml) => xml.replace('Version="2.0"', 'Version="1.1"'), "Version must be 2.0"],
    ["no issuer", (xml) => xml.replace(/<saml:Issuer>.*<\/saml:Issuer>/, ""), 'Issuer "" is not'],
    ["an issuer that nobody registered", (xml) => xml.replace("sso/metadata", "sso/other"), "is not the entity id"],
    ["an issuer of another format", (xml) => xml.replace("<saml:Issuer", '<saml:Issuer Format="urn:x"'), "entity id"],
    ["another destination", (xml) => xml.replace("/saml/sso", "/saml/other"), "Destination must be"],
    ["another service", (xml) => xml.replace("sso/callback", "sso/other"), "is not in the sender's metadata"],
    ["no service", (xml) => xml.replace(/ AssertionConsumerServiceURL="[^"]*"/, ""), "AssertionConsumerServiceURL"],
    [
      "URL and index of the service together",
      (xml) => xml.replace(" ID=", ' AssertionConsumerServiceIndex="0" ID='),
      "AssertionConsumerServiceIndex excludes",
    ],
    ["another binding", (xml) => xml.replace("HTTP-POST", "HTTP-Artifact"), "ProtocolBinding must be"],
    ["a time without a zone", (xml) => xml.replace(/(IssueInstant="[^"]*)Z/, "$1"), "in UTC"],
    ["an old time", (xml) => xml.replace(/(IssueInstant=")\d+/, "$12020"), "too old or in the future"],
    ["a time to come", (xml) => xml.replace(/(IssueInstant=")\d+/, "$12120"), "too old or in the future"],
  ])("rejects a request with %s, and says so", async (_what, change, message) => {
    expect(await answerTo(requestUrl())).toMatch(/^200 /);
    const answer = await answerTo(requestUrl(change(requestXml())));
    expect(answer).toMatch(/^400 The SAML request is refused\. /);
    expect(answer).toContain(message);
  });

  test.each<[string, () => string, string]>([
    ["no request", () => signInUrl(), "one parameter SAMLRequest"],
    ["two requests", () => `${requestUrl()}&SAMLRequest=x`, "one parameter SAMLRequest"],
    ["what is not compressed", () => `${signInUrl()}?SAMLRequest=PHg%2B`, "DEFLATE"],
    ["another encoding", () => requestUrl(requestXml(), undefined, { SAMLEncoding: "urn:x" }), "SAMLEncoding"],
    ["a long RelayState", () => requestUrl(requestXml(), undefined, { RelayState: "x".repeat(81) }), "80 bytes"],
    ["a signature that it has no certificate for", () => requestUrl(requestXml(), keys.privateKey), "signature does"],
  ])("rejects an address with %s", async (_what, url, message) => {
    const answer = await answerTo(url());
    expect(answer).toMatch(/^400 /);
    expect(answer).toContain(message);
  });

  test("accepts only signed requests of a service whose metadata says that it signs them", async () => {
    await register(certificateOf(keys));
    const signed = requestUrl(requestXml(), keys.privateKey);
    expect(await answerTo(signed)).toMatch(/^200 /);
    expect(await answerTo(requestUrl())).toContain("not signed");
    expect(await answerTo(requestUrl(requestXml(), otherKeys.privateKey))).toContain("does not match");
    expect(await answerTo(signed.replace("RelayState=relay", "RelayState=other"))).toContain("does not match");
    expect(await answerTo(signed.replace("rsa-sha256", "rsa-sha1"))).toContain("SigAlg must be");
    const inside = requestXml().replace("</saml:Issuer>", `</saml:Issuer>${SIGNATURE}`);
    expect(await answerTo(requestUrl(inside, keys.privateKey))).toContain("not in the message");
  });

  test("does not register a service on another machine, or metadata that violates the schema", async () => {
    for (const metadata of [
      metadataOf("", "https://elsewhere.example/acs"),
      metadataOf("").replace(' index="0"', ""),
      metadataOf("").replace(POST, "urn:x"),
      "<a",
    ])
      expect((await putMetadata(metadata)).status).toBe(400);
  });

  test("serves its metadata at its entity ID, with both certificates during a key rollover", async () => {
    const entityId = /entityID="([^"]*)"/.exec(cloud.saml.metadata())![1]!;
    expect(await (await fetch(entityId)).text()).toBe(cloud.saml.metadata());
    const before = certificates();
    await fetch(`${cloud.controlUrl}/saml/roll-keys`, { method: "POST" });
    expect(before).toHaveLength(1);
    const [newest, ...older] = certificates();
    expect(older).toEqual(before);
    expect(newest).not.toBe(before[0]);
    expect((await choose("uma")).xml).toContain(newest);
  });

  test("makes the mistake of the selected mode", async () => {
    const put = (mode: string) => fetch(`${cloud.controlUrl}/saml`, { method: "PUT", body: JSON.stringify({ mode }) });
    expect((await put("wrongRecipient")).status).toBe(200);
    expect((await choose("uma")).xml).toContain('Recipient="https://elsewhere.example/saml"');
    expect((await put("none")).status).toBe(400);
    await put("correct");
  });
});

/** Has the form that the schema requires. No test verifies the signature. */
const SIGNATURE = `<ds:Signature xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><ds:SignedInfo><ds:CanonicalizationMethod Algorithm="urn:x"/><ds:SignatureMethod Algorithm="urn:x"/><ds:Reference><ds:DigestMethod Algorithm="urn:x"/><ds:DigestValue>AAAA</ds:DigestValue></ds:Reference></ds:SignedInfo><ds:SignatureValue>AAAA</ds:SignatureValue></ds:Signature>`;

/** Base64, as in metadata. */
function certificateOf({ publicKey, privateKey }: typeof keys): string {
  const names = { subject: "CN=sp", issuer: "CN=sp", serial: Buffer.from([1]) };
  const times = { notBefore: new Date("2026-01-01"), notAfter: new Date("2036-01-01") };
  return makeCertificate({ ...names, ...times, publicKey, signingKey: privateKey }).toString("base64");
}

const certificates = () => cloud.saml.metadata().match(/(?<=<ds:X509Certificate>)[^<]*/g) ?? [];
