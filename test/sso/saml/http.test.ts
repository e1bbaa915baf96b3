import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { licence } from "../../support/licence.ts";
import { type Answer, Service } from "../../support/service.ts";
import { chooseBySaml, type SamlForm } from "./browser-sign-in.ts";
import { HOSTILE_XML } from "./hostile-xml.ts";

const ORIGIN = "http://localhost:7071";

// Tests of SAML sign-ins through HTTP.

/** Two hosts (processes) with a license. */
let service: Service;
/** URL of a third host, without a license. */
let unlicensedUrl: string;
beforeAll(async () => {
  service = await Service.start({
    hosts: 2,
    company: { subscriptions: [] },
    // The host appends an entry to X-Forwarded-For. With two hops, the entry before it, which the tests set, is the address.
    env: { LICENSE_KEY: await licence(), PUBLIC_BASE_URL: ORIGIN, TRUSTED_PROXY_HOPS: "2" },
  });
  ({ url: unlicensedUrl } = await service.addHost({ LICENSE_KEY: "" }));
  // Removes the third host, so that the tests use it only by its URL.
  service.hosts.splice(2, 1);
  const { status, text } = await service.admin("PUT", "/auth/sso/config", {
    providerType: "saml",
    isEnabled: true,
    autoCreateUsers: true,
    saml_idp_metadata_xml: service.cloud.saml.metadata(),
    samlSignRequests: true,
  });
  expect([status, text]).toEqual([200, expect.not.stringContaining("PRIVATE KEY")]);
  const metadata = (await service.call("GET", "/auth/sso/metadata")).text;
  await service.cloud.control.registerSamlServiceProvider(metadata);
});
afterEach(() => service.cloud.control.setSamlMode("correct"));
afterAll(() => service.stop());

/** Headers of a form that the provider's page, another site, makes a browser post. */
const CROSS_SITE_HEADERS = {
  accept: "text/html,application/xhtml+xml,*/*;q=0.8",
  "Content-Type": "application/x-www-form-urlencoded",
  origin: "http://127.0.0.1:7075",
  "sec-fetch-site": "cross-site",
};
let clientAddresses = 0;
/** Returns the header of a client address that no other call has, because sign-ins from one address are limited. */
const newAddressHeader = () => ({ "X-Forwarded-For": `198.51.100.${++clientAddresses}` });
const cookiesOf = ({ headers }: Answer) => headers.getSetCookie().map((cookie) => cookie.split(";")[0]!);

/** Starts a sign-in, and returns the form that the provider's page posts, with the cookie. */
async function startSignIn(person: string): Promise<{ form: SamlForm; cookie: string; setCookie: string }> {
  const redirection = await service.call("GET", "/auth/sso/login?returnUrl=/docs", {
    headers: { accept: "text/html" },
  });
  expect(redirection.status).toBe(302);
  const { action, form } = await chooseBySaml(redirection.headers.get("location")!, person);
  expect(action).toBe(`${ORIGIN}/auth/sso/callback`);
  return { form, cookie: cookiesOf(redirection)[0]!, setCookie: redirection.headers.getSetCookie()[0]! };
}

const postResponse = (form: object, headers: Record<string, string>, host = service.url) =>
  service.call("POST", `${host}/auth/sso/callback`, {
    body: new URLSearchParams({ ...form }).toString(),
    headers: { ...CROSS_SITE_HEADERS, ...newAddressHeader(), ...headers },
  });

describe("a browser", () => {
  test("that the provider's page makes post the response signs in on another host", async () => {
    const { form, cookie, setCookie } = await startSignIn("uma");
    for (const attribute of ["__Host-sso-saml=", "Secure", "HttpOnly", "SameSite=None", "Path=/"])
      expect(setCookie.toLowerCase()).toContain(attribute.toLowerCase());
    const completed = await postResponse(form, { cookie }, service.hosts[1]!.url);
    expect([completed.status, completed.headers.get("location")]).toEqual([303, "/docs"]);
    const session = cookiesOf(completed).find((pair) => pair.startsWith("__Host-session="))!;
    const me = await service.call("GET", "/auth/me", { headers: { cookie: session } });
    expect([me.status, me.body.username, me.body.source]).toEqual([200, "uma", "sso"]);
    expect(completed.text).toBe("");
    const repeated = await postResponse(form, { cookie });
    expect([repeated.status, repeated.headers.get("content-type")]).toEqual([400, "text/html; charset=utf-8"]);
    expect(repeated.text).toContain(repeated.headers.get("x-request-id"));
  });

  test("that posts the response to two hosts at once signs in once", async () => {
    const { form, cookie } = await startSignIn("olga");
    const responses = await Promise.all(service.hosts.map(({ url }) => postResponse(form, { cookie }, url)));
    expect(responses.map(({ status }) => status).sort()).toEqual([303, 400]);
  });

  test("gets an error page without its cookie, without a response, and with an invalid response", async () => {
    const { form, cookie } = await startSignIn("uma");
    const invalidForm = { ...form, SAMLResponse: Buffer.from("<a>planted</a>").toString("base64") };
    for (const response of [
      await postResponse(form, {}),
      await postResponse({ RelayState: form.RelayState }, { cookie }),
      await postResponse(invalidForm, { cookie }),
    ]) {
      expect([response.status, response.headers.get("content-type")]).toEqual([400, "text/html; charset=utf-8"]);
      expect(response.text).not.toContain("planted");
      expect(response.headers.getSetCookie()).toEqual([]);
    }
    const artifact = await startSignIn("uma");
    const { RelayState } = artifact.form;
    const byArtifact = await postResponse({ SAMLart: "AAQAAMh48", RelayState }, { cookie: artifact.cookie });
    expect(byArtifact.status).toBe(400);
    const { body } = await service.admin("GET", "/audit/entries?event_type=user.signInRefused&limit=20");
    const requestId = byArtifact.headers.get("x-request-id")!;
    expect(
      body.items.find((entry: { requestId: string }) => JSON.stringify(entry).includes(requestId)).details,
    ).toMatchObject({ reason: "badResponse", code: "artifact" });
    const canceled = await startSignIn("");
    const canceledResponse = await postResponse(canceled.form, { cookie: canceled.cookie });
    expect([canceledResponse.status, canceledResponse.text]).toEqual([
      400,
      expect.not.stringMatching(/Nobody<|AuthnFailed/),
    ]);
  });
});

describe("responses from one address", () => {
  const ONE_ADDRESS = { "X-Forwarded-For": "192.0.2.7" };

  test("count as sign-ins on both hosts, so the eleventh in a minute is rejected", async () => {
    const { form, cookie } = await startSignIn("ada");
    const statuses = [];
    // `PGEv` is `<a/` in Base64, no valid response.
    for (let call = 0; call < 10; call++) {
      const started = await startSignIn("ada");
      const invalid = { ...started.form, SAMLResponse: "PGEv" };
      const headers = { cookie: started.cookie, ...ONE_ADDRESS };
      statuses.push((await postResponse(invalid, headers, service.hosts[call % 2]!.url)).status);
    }
    // Posts of sign-ins that the browser did not start are not counted.
    expect((await postResponse({ SAMLResponse: "PGEv" }, ONE_ADDRESS)).status).toBe(400);
    expect(statuses).toEqual(Array(10).fill(400));
    const limited = await postResponse(form, { cookie, ...ONE_ADDRESS });
    expect([limited.status, Number(limited.headers.get("retry-after")) > 0]).toEqual([429, true]);
    // The rejected response can be sent again, here from another address.
    expect((await postResponse(form, { cookie })).status).toBe(303);
  });
});

describe("a response that takes a parser too long", () => {
  test.each([
    "another prefix on each of 10,500 levels",
    "30,000 levels",
    "nothing but <?",
    "<! in an element",
    "an attribute of 250 KB",
    "a document type",
    "text before the root",
  ])("is rejected with its reason in the audit log: %s", async (name) => {
    const { xml, reason } = HOSTILE_XML[name]!;
    const { form, cookie } = await startSignIn("uma");
    const response = await postResponse({ ...form, SAMLResponse: Buffer.from(xml).toString("base64") }, { cookie });
    expect([response.status, response.headers.get("content-type")]).toEqual([400, "text/html; charset=utf-8"]);
    const { body } = await service.admin("GET", "/audit/entries?event_type=user.signInRefused&limit=5");
    const entry = body.items.find(({ requestId }: { requestId: string }) => response.text.includes(requestId));
    expect(entry.details).toMatchObject({ reason: "badResponse", code: reason });
  });
});

describe("the service's metadata", () => {
  test("is available with and without a license", async () => {
    for (const host of [service.url, unlicensedUrl]) {
      const { status, headers, text } = await service.call("GET", `${host}/auth/sso/metadata`);
      expect([status, headers.get("content-type")]).toEqual([200, "application/samlmetadata+xml; charset=utf-8"]);
      expect(text).toContain(`entityID="${ORIGIN}/auth/sso/metadata"`);
      expect(text).toContain("X509Certificate");
    }
  });
});

describe("without a license", () => {
  test("a response is rejected, and the error names the required tier", async () => {
    const { form, cookie } = await startSignIn("uma");
    const response = await postResponse(form, { cookie, accept: "application/json" }, unlicensedUrl);
    expect([response.status, response.body.code, response.body.requiredTier]).toEqual([403, "licenseRequired", "pro"]);
  });
});

describe("secrets", () => {
  test("do not appear in log lines", async () => {
    const { form, cookie } = await startSignIn("uma");
    service.cloud.control.setSamlMode("wrongAudience");
    const rejected = await startSignIn("uma");
    await postResponse(rejected.form, { cookie: rejected.cookie });
    await postResponse(form, { cookie });
    expect(service.hosts[0]!.lines.length).toBeGreaterThan(0);
    const lines = service.hosts.flatMap((host) => host.lines).join("\n");
    for (const secret of [
      form.SAMLResponse.slice(0, 200),
      rejected.form.SAMLResponse.slice(0, 200),
      cookie.split("=")[1]!,
      "PRIVATE KEY",
    ])
      expect(lines).not.toContain(secret);
  });
});
