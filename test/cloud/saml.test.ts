import { deflateRawSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Cloud, startCloud } from "../../infra/local/cloud/cloud.ts";

const ACS = "http://localhost:7071/auth/sso/callback";

let cloud: Cloud;
beforeAll(async () => {
  cloud = await startCloud({ company: "small" });
});
afterAll(() => cloud?.stop());

const signInUrl = () => /Location="([^"]*)"/.exec(cloud.saml.metadata())![1]!;

function requestUrl(acsUrl = ACS): string {
  const xml = `<samlp:AuthnRequest xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="_r" AssertionConsumerServiceURL="${acsUrl}"><saml:Issuer>us</saml:Issuer></samlp:AuthnRequest>`;
  const SAMLRequest = deflateRawSync(xml).toString("base64");
  return `${signInUrl()}?${new URLSearchParams({ SAMLRequest, RelayState: "relay" })}`;
}

async function choose(person: string, url = requestUrl()): Promise<{ page: string; xml: string }> {
  const answer = await fetch(url, { method: "POST", body: new URLSearchParams({ person }) });
  const page = await answer.text();
  const encoded = /name="SAMLResponse" value="([^"]*)"/.exec(page)?.[1] ?? "";
  return { page, xml: Buffer.from(encoded, "base64").toString() };
}

describe("The SAML provider", () => {
  test("asks who signs in, and sends the browser back with a form", async () => {
    const page = await (await fetch(requestUrl())).text();
    expect(page).toContain("Uma Okafor");
    const chosen = await choose("uma");
    expect(chosen.page).toContain(`<form method="post" action="${ACS}">`);
    expect(chosen.page).toContain('name="RelayState" value="relay"');
    expect(chosen.xml).toContain('InResponseTo="_r"');
    expect(chosen.xml).toContain("uma@acme.example");
  });

  test("says so when nobody is chosen", async () => {
    const { xml } = await choose("");
    expect(xml).toContain("status:AuthnFailed");
    expect(xml).not.toContain("<saml:Assertion");
  });

  test("sends nothing to another machine, and nothing without a request", async () => {
    expect((await fetch(requestUrl("https://elsewhere.example/acs"))).status).toBe(400);
    expect((await fetch(signInUrl())).status).toBe(400);
  });

  test("has its metadata at its name, and both certificates while its key rolls over", async () => {
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

  test("makes the mistake it is told to", async () => {
    const put = (mode: string) => fetch(`${cloud.controlUrl}/saml`, { method: "PUT", body: JSON.stringify({ mode }) });
    expect((await put("wrongRecipient")).status).toBe(200);
    expect((await choose("uma")).xml).toContain('Recipient="https://elsewhere.example/saml"');
    expect((await put("none")).status).toBe(400);
    await put("correct");
  });
});

const certificates = () => cloud.saml.metadata().match(/(?<=<ds:X509Certificate>)[^<]*/g) ?? [];
