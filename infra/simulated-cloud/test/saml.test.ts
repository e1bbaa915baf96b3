import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { deflateRawSync } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import { readValid } from "../idp/saml-schema.ts";
import { makeCertificate } from "../x509.ts";

// Tests the SAML identity provider of the simulated cloud: it accepts only valid requests of registered services, and a mode
// makes it misbehave in one way.

/** Assertion consumer service: the address of the service that receives SAML responses. */
const ACS_URL = "http://localhost:7071/auth/sso/callback";
const ENTITY_ID = "http://localhost:7071/auth/sso/metadata";
const POST_BINDING = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST";
const RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";
const serviceKeys = generateKeyPairSync("rsa", { modulusLength: 2048 });
const otherKeys = generateKeyPairSync("rsa", { modulusLength: 2048 });

let cloud: Cloud;
beforeAll(async () => {
  cloud = await startCloud({ company: "small" });
});
beforeEach(() => registerService());
afterAll(() => cloud?.stop());

/** Reads the sign-in address from the metadata of the provider. */
const signInUrl = () => /SingleSignOnService [^>]*Location="([^"]*)"/.exec(cloud.saml.metadata())![1]!;

/** Returns the SAML metadata of the service. With a certificate, the metadata says that the service signs its requests. */
function metadataOf(certificate: string, acsUrl = ACS_URL): string {
  const logout = `<md:SingleLogoutService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect" Location="http://localhost:7071/auth/sso/logout"/>`;
  const key = `<md:KeyDescriptor use="signing"><ds:KeyInfo xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><ds:X509Data><ds:X509Certificate>${certificate}</ds:X509Certificate></ds:X509Data></ds:KeyInfo></md:KeyDescriptor>`;
  const signsRequests = certificate !== "";
  return `<md:EntityDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata" entityID="${ENTITY_ID}"><md:SPSSODescriptor AuthnRequestsSigned="${signsRequests}" protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">${signsRequests ? key + logout : ""}<md:AssertionConsumerService index="0" Binding="${POST_BINDING}" Location="${acsUrl}"/></md:SPSSODescriptor></md:EntityDescriptor>`;
}

const putMetadata = (metadata: string) =>
  fetch(`${cloud.controlUrl}/saml/service-providers`, { method: "PUT", body: JSON.stringify({ metadata }) });

async function registerService(certificate = ""): Promise<void> {
  expect((await putMetadata(metadataOf(certificate))).status).toBe(200);
}

/** Returns a valid sign-in request. */
const requestXml = () =>
  `<samlp:AuthnRequest xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="_r" Version="2.0" IssueInstant="${new Date().toISOString()}" Destination="${signInUrl()}" ProtocolBinding="${POST_BINDING}" AssertionConsumerServiceURL="${ACS_URL}"><saml:Issuer>${ENTITY_ID}</saml:Issuer></samlp:AuthnRequest>`;

/** Returns the address to which the browser goes with a request. With a key, the address is signed. */
function requestUrl(xml = requestXml(), signingKey?: KeyObject, more: Record<string, string> = {}): string {
  const SAMLRequest = deflateRawSync(xml).toString("base64");
  const signed = signingKey && { SigAlg: RSA_SHA256 };
  const query = new URLSearchParams({ SAMLRequest, RelayState: "relay", ...signed, ...more });
  if (signingKey) query.set("Signature", sign("sha256", Buffer.from(query.toString()), signingKey).toString("base64"));
  return `${signInUrl()}?${query}`;
}

/** Sends a GET request. Returns the status and the start of the body as one text. */
async function responseOf(url: string): Promise<string> {
  const answer = await fetch(url);
  return `${answer.status} ${(await answer.text()).slice(0, 300)}`;
}

/** Selects a person on the sign-in page. Returns the next page and the SAML response that it contains. */
async function signInAs(person: string, url = requestUrl()): Promise<{ page: string; xml: string }> {
  const answer = await fetch(url, { method: "POST", body: new URLSearchParams({ person }) });
  const page = await answer.text();
  const encoded = /name="SAMLResponse" value="([^"]*)"/.exec(page)?.[1] ?? "";
  return { page, xml: Buffer.from(encoded, "base64").toString() };
}

describe("the SAML provider", () => {
  test("asks who signs in, and sends its response with a form that posts to the service", async () => {
    const page = await (await fetch(requestUrl())).text();
    expect(page).toContain("Uma Okafor");
    const signIn = await signInAs("uma");
    expect(signIn.page).toContain(`<form method="post" action="${ACS_URL}">`);
    expect(signIn.page).toContain('name="RelayState" value="relay"');
    expect(signIn.xml).toContain('InResponseTo="_r"');
    expect(signIn.xml).toContain("uma@acme.example");
  });

  test("reports a canceled sign-in", async () => {
    const { xml } = await signInAs("");
    expect(xml).toContain("status:AuthnFailed");
    expect(xml).not.toContain("<saml:Assertion");
  });

  test("sends responses that are valid against the SAML 2.0 protocol schema", async () => {
    for (const person of ["uma", ""])
      expect(await readValid("protocol", (await signInAs(person)).xml, ({ name }) => name)).toBe("Response");
  });

  test.each<[string, (xml: string) => string, string]>([
    ["an unreplaced placeholder", (xml) => xml.replace(" ID=", ' ForceAuthn="{ForceAuthn}" ID='), "'ForceAuthn'"],
    ["an unknown attribute", (xml) => xml.replace(" ID=", ' Unknown="x" ID='), "'Unknown'"],
    ["no ID", (xml) => xml.replace(' ID="_r"', ""), "'ID' is required"],
    ["an ID that begins with a digit", (xml) => xml.replace('"_r"', '"1r"'), "'ID'"],
    ["a truncated document", (xml) => xml.slice(0, -"</samlp:AuthnRequest>".length), "Premature end"],
    [
      "another kind of message",
      (xml) =>
        xml
          .replace(/ ProtocolBinding.*?(?=>)/, "")
          .replace("</saml:Issuer>", "</saml:Issuer><samlp:Artifact>x</samlp:Artifact>")
          .replaceAll("AuthnRequest", "ArtifactResolve"),
      "must be an AuthnRequest, but is ArtifactResolve",
    ],
    ["another version", (xml) => xml.replace('Version="2.0"', 'Version="1.1"'), "Version must be 2.0"],
    ["no issuer", (xml) => xml.replace(/<saml:Issuer>.*<\/saml:Issuer>/, ""), 'Issuer "" is not'],
    ["an issuer that is not registered", (xml) => xml.replace("sso/metadata", "sso/other"), "is not the entity id"],
    ["an issuer of another format", (xml) => xml.replace("<saml:Issuer", '<saml:Issuer Format="urn:x"'), "entity id"],
    ["another destination", (xml) => xml.replace("/saml/sso", "/saml/other"), "Destination must be"],
    [
      "another address of the service",
      (xml) => xml.replace("sso/callback", "sso/other"),
      "is not in the sender's metadata",
    ],
    [
      "no address of the service",
      (xml) => xml.replace(/ AssertionConsumerServiceURL="[^"]*"/, ""),
      "AssertionConsumerServiceURL",
    ],
    [
      "both the address and the index of the service",
      (xml) => xml.replace(" ID=", ' AssertionConsumerServiceIndex="0" ID='),
      "AssertionConsumerServiceIndex excludes",
    ],
    ["another binding", (xml) => xml.replace("HTTP-POST", "HTTP-Artifact"), "ProtocolBinding must be"],
    ["a time without a zone", (xml) => xml.replace(/(IssueInstant="[^"]*)Z/, "$1"), "in UTC"],
    ["an old time", (xml) => xml.replace(/(IssueInstant=")\d+/, "$12020"), "too old or in the future"],
    ["a time in the future", (xml) => xml.replace(/(IssueInstant=")\d+/, "$12120"), "too old or in the future"],
  ])("rejects a request with %s, and names the reason", async (_what, change, message) => {
    expect(await responseOf(requestUrl())).toMatch(/^200 /);
    const answer = await responseOf(requestUrl(change(requestXml())));
    expect(answer).toMatch(/^400 The SAML request is invalid\. /);
    expect(answer).toContain(message);
  });

  test.each<[string, () => string, string]>([
    ["no request", () => signInUrl(), "one parameter SAMLRequest"],
    ["two requests", () => `${requestUrl()}&SAMLRequest=x`, "one parameter SAMLRequest"],
    ["a request that is not compressed", () => `${signInUrl()}?SAMLRequest=PHg%2B`, "DEFLATE"],
    ["another encoding", () => requestUrl(requestXml(), undefined, { SAMLEncoding: "urn:x" }), "SAMLEncoding"],
    ["a long RelayState", () => requestUrl(requestXml(), undefined, { RelayState: "x".repeat(81) }), "80 bytes"],
    [
      "a signature, if the metadata has no certificate",
      () => requestUrl(requestXml(), serviceKeys.privateKey),
      "signature does",
    ],
  ])("rejects a sign-in address with %s", async (_what, url, message) => {
    const answer = await responseOf(url());
    expect(answer).toMatch(/^400 /);
    expect(answer).toContain(message);
  });

  test("accepts only correctly signed requests, if the metadata of the service says that it signs them", async () => {
    await registerService(certificateOf(serviceKeys));
    const signed = requestUrl(requestXml(), serviceKeys.privateKey);
    expect(await responseOf(signed)).toMatch(/^200 /);
    expect(await responseOf(requestUrl())).toContain("not signed");
    expect(await responseOf(requestUrl(requestXml(), otherKeys.privateKey))).toContain("does not match");
    expect(await responseOf(signed.replace("RelayState=relay", "RelayState=other"))).toContain("does not match");
    expect(await responseOf(signed.replace("rsa-sha256", "rsa-sha1"))).toContain("SigAlg must be");
    const signedInside = requestXml().replace("</saml:Issuer>", `</saml:Issuer>${SIGNATURE}`);
    expect(await responseOf(requestUrl(signedInside, serviceKeys.privateKey))).toContain("not in the message");
  });

  test.each<[string, (xml: string) => string, string]>([
    ["an unreplaced placeholder", (xml) => xml.replace(" ID=", ' NotOnOrAfter="{NotOnOrAfter}" ID='), "'NotOnOrAfter'"],
    ["no ID", (xml) => xml.replace(' ID="_l"', ""), "'ID' is required"],
    ["no NameID", (xml) => xml.replace(/<saml:NameID.*<\/saml:NameID>/, ""), "Missing child element"],
    [
      "the session before the NameID",
      (xml) => xml.replace("<saml:NameID", "<samlp:SessionIndex>x</samlp:SessionIndex><saml:NameID"),
      "SessionIndex",
    ],
    ["another destination", (xml) => xml.replace("/saml/slo", "/saml/other"), "Destination must be"],
    ["a NameID of another format", (xml) => xml.replace("persistent", "transient"), "format must be"],
    ["an old time", (xml) => xml.replace(/(IssueInstant=")\d+/, "$12020"), "too old or in the future"],
  ])("rejects a LogoutRequest with %s, and names the reason", async (_what, change, message) => {
    await registerService(certificateOf(serviceKeys));
    const url = signInUrl().replace("/saml/sso", "/saml/slo");
    const xml = `<samlp:LogoutRequest xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="_l" Version="2.0" IssueInstant="${new Date().toISOString()}" Destination="${url}"><saml:Issuer>${ENTITY_ID}</saml:Issuer><saml:NameID Format="urn:oasis:names:tc:SAML:2.0:nameid-format:persistent">nobody</saml:NameID></samlp:LogoutRequest>`;
    const send = (text: string, key?: KeyObject) => responseOf(requestUrl(text, key).replace("/saml/sso", "/saml/slo"));
    // Valid, but nobody is signed in.
    expect(await send(xml, serviceKeys.privateKey)).toMatch(/^400 .*session/);
    expect(await send(xml)).toContain("must be signed");
    const answer = await send(change(xml), serviceKeys.privateKey);
    expect(answer).toMatch(/^400 /);
    expect(answer).toContain(message);
  });

  test("does not register a service on another machine, or metadata that violates the schema", async () => {
    for (const metadata of [
      metadataOf("", "https://elsewhere.example/acs"),
      metadataOf("").replace(' index="0"', ""),
      metadataOf("").replace(POST_BINDING, "urn:x"),
      "<a",
    ])
      expect((await putMetadata(metadata)).status).toBe(400);
  });

  test("publishes the old and the new certificate during a key rollover", async () => {
    const entityId = /entityID="([^"]*)"/.exec(cloud.saml.metadata())![1]!;
    expect(await (await fetch(entityId)).text()).toBe(cloud.saml.metadata());
    const oldCertificates = certificates();
    await fetch(`${cloud.controlUrl}/saml/roll-keys`, { method: "POST" });
    expect(oldCertificates).toHaveLength(1);
    const [newest, ...older] = certificates();
    expect(older).toEqual(oldCertificates);
    expect(newest).not.toBe(oldCertificates[0]);
    expect((await signInAs("uma")).xml).toContain(newest);
  });

  test("misbehaves as the selected mode says", async () => {
    const setMode = (mode: string) =>
      fetch(`${cloud.controlUrl}/saml`, { method: "PUT", body: JSON.stringify({ mode }) });
    expect((await setMode("wrongRecipient")).status).toBe(200);
    expect((await signInAs("uma")).xml).toContain('Recipient="https://elsewhere.example/saml"');
    expect((await setMode("none")).status).toBe(400);
    await setMode("correct");
  });
});

/** A signature element that is valid against the schema. Its values are meaningless. */
const SIGNATURE = `<ds:Signature xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><ds:SignedInfo><ds:CanonicalizationMethod Algorithm="urn:x"/><ds:SignatureMethod Algorithm="urn:x"/><ds:Reference><ds:DigestMethod Algorithm="urn:x"/><ds:DigestValue>AAAA</ds:DigestValue></ds:Reference></ds:SignedInfo><ds:SignatureValue>AAAA</ds:SignatureValue></ds:Signature>`;

/** Returns a self-signed certificate in base64, as in SAML metadata. */
function certificateOf({ publicKey, privateKey }: typeof serviceKeys): string {
  const names = { subject: "CN=sp", issuer: "CN=sp", serial: Buffer.from([1]) };
  const times = { notBefore: new Date("2026-01-01"), notAfter: new Date("2036-01-01") };
  return makeCertificate({ ...names, ...times, publicKey, signingKey: privateKey }).toString("base64");
}

/** Certificates in the metadata of the provider. */
const certificates = () => cloud.saml.metadata().match(/(?<=<ds:X509Certificate>)[^<]*/g) ?? [];
