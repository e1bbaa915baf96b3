import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { licence } from "../../support/licence.ts";
import { type Answer, Service } from "../../support/service.ts";
import { chooseBySaml, type Posted } from "./browser-sign-in.ts";
import { HOSTILE_XML } from "./hostile-xml.ts";

const ORIGIN = "http://localhost:7071";

/** Two hosts with a license, and one without. */
let service: Service;
let unlicensed: string;
beforeAll(async () => {
  service = await Service.start({
    hosts: 2,
    company: { subscriptions: [] },
    env: { LICENSE_KEY: await licence(), PUBLIC_BASE_URL: ORIGIN, TRUSTED_PROXY_HOPS: "2" },
  });
  ({ url: unlicensed } = await service.addHost({ LICENSE_KEY: "" }));
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

/** A form that another site's page makes a browser post. */
const CROSS_SITE = {
  accept: "text/html,application/xhtml+xml,*/*;q=0.8",
  "Content-Type": "application/x-www-form-urlencoded",
  origin: "http://127.0.0.1:7075",
  "sec-fetch-site": "cross-site",
};
let addresses = 0;
/** Each call has another address, because sign-ins from one address are limited. */
const anAddress = () => ({ "X-Forwarded-For": `198.51.100.${++addresses}` });
const cookiesOf = ({ headers }: Answer) => headers.getSetCookie().map((cookie) => cookie.split(";")[0]!);

/** Starts a sign-in, and returns the form that the provider's page posts, with the cookie. */
async function begin(person: string): Promise<{ form: Posted; cookie: string; setCookie: string }> {
  const redirection = await service.call("GET", "/auth/sso/login?returnUrl=/docs", {
    headers: { accept: "text/html" },
  });
  expect(redirection.status).toBe(302);
  const { action, form } = await chooseBySaml(redirection.headers.get("location")!, person);
  expect(action).toBe(`${ORIGIN}/auth/sso/callback`);
  return { form, cookie: cookiesOf(redirection)[0]!, setCookie: redirection.headers.getSetCookie()[0]! };
}

const post = (form: object, headers: Record<string, string>, host = service.url) =>
  service.call("POST", `${host}/auth/sso/callback`, {
    body: new URLSearchParams({ ...form }).toString(),
    headers: { ...CROSS_SITE, ...anAddress(), ...headers },
  });

describe("a browser", () => {
  test("that another site makes post the response signs in on either host", async () => {
    const { form, cookie, setCookie } = await begin("uma");
    for (const attribute of ["__Host-sso-saml=", "Secure", "HttpOnly", "SameSite=None", "Path=/"])
      expect(setCookie.toLowerCase()).toContain(attribute.toLowerCase());
    const done = await post(form, { cookie }, service.hosts[1]!.url);
    expect([done.status, done.headers.get("location")]).toEqual([303, "/docs"]);
    const session = cookiesOf(done).find((one) => one.startsWith("__Host-session="))!;
    const me = await service.call("GET", "/auth/me", { headers: { cookie: session } });
    expect([me.status, me.body.username, me.body.source]).toEqual([200, "uma", "sso"]);
    expect(done.text).toBe("");
    const again = await post(form, { cookie });
    expect([again.status, again.headers.get("content-type")]).toEqual([400, "text/html; charset=utf-8"]);
    expect(again.text).toContain(again.headers.get("x-request-id"));
  });

  test("that posts it to two hosts at once signs in once", async () => {
    const { form, cookie } = await begin("olga");
    const answers = await Promise.all(service.hosts.map(({ url }) => post(form, { cookie }, url)));
    expect(answers.map(({ status }) => status).sort()).toEqual([303, 400]);
  });

  test("gets a clear page without its cookie, without a form, and with an invalid response", async () => {
    const { form, cookie } = await begin("uma");
    const broken = { ...form, SAMLResponse: Buffer.from("<a>planted</a>").toString("base64") };
    for (const answer of [
      await post(form, {}),
      await post({ RelayState: "x" }, { cookie }),
      await post(broken, { cookie }),
    ]) {
      expect([answer.status, answer.headers.get("content-type")]).toEqual([400, "text/html; charset=utf-8"]);
      expect(answer.text).not.toContain("planted");
      expect(answer.headers.getSetCookie()).toEqual([]);
    }
    const refused = await begin("");
    const unknownUser = await post(refused.form, { cookie: refused.cookie });
    expect([unknownUser.status, unknownUser.text]).toEqual([400, expect.not.stringMatching(/Nobody<|AuthnFailed/)]);
  });
});

describe("responses from one address", () => {
  const HERE = { "X-Forwarded-For": "192.0.2.7" };

  test("count as sign-ins on both hosts: the eleventh in a minute is rejected, and can be sent again later", async () => {
    const { form, cookie } = await begin("ada");
    const statuses = [];
    for (let call = 0; call < 10; call++)
      statuses.push((await post({ SAMLResponse: "PGEv" }, HERE, service.hosts[call % 2]!.url)).status);
    expect(statuses).toEqual(Array(10).fill(400));
    const limited = await post(form, { cookie, ...HERE });
    expect([limited.status, Number(limited.headers.get("retry-after")) > 0]).toEqual([429, true]);
    expect((await post(form, { cookie })).status).toBe(303);
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
  ])("is rejected, and the audit log contains the reason: %s", async (name) => {
    const { xml, reason } = HOSTILE_XML[name]!;
    const { form, cookie } = await begin("uma");
    const answer = await post({ ...form, SAMLResponse: Buffer.from(xml).toString("base64") }, { cookie });
    expect([answer.status, answer.headers.get("content-type")]).toEqual([400, "text/html; charset=utf-8"]);
    const { body } = await service.admin("GET", "/audit/entries?event_type=user.signInRefused&limit=5");
    const entry = body.items.find(({ requestId }: { requestId: string }) => answer.text.includes(requestId));
    expect(entry.details).toMatchObject({ reason: "badResponse", code: reason });
  });
});

describe("the service's metadata", () => {
  test("is available in both tiers, with the service's key", async () => {
    for (const host of [service.url, unlicensed]) {
      const { status, headers, text } = await service.call("GET", `${host}/auth/sso/metadata`);
      expect([status, headers.get("content-type")]).toEqual([200, "application/samlmetadata+xml"]);
      expect(text).toContain(`entityID="${ORIGIN}/auth/sso/metadata"`);
      expect(text).toContain("X509Certificate");
    }
  });
});

describe("without a license", () => {
  test("a response is rejected, and the error names the required tier", async () => {
    const { form, cookie } = await begin("uma");
    const answer = await post(form, { cookie, accept: "application/json" }, unlicensed);
    expect([answer.status, answer.body.code, answer.body.requiredTier]).toEqual([403, "licenseRequired", "pro"]);
  });
});

describe("secrets", () => {
  test("are in no log line of a host", async () => {
    const { form, cookie } = await begin("uma");
    service.cloud.control.setSamlMode("wrongAudience");
    const bad = await begin("uma");
    await post(bad.form, { cookie: bad.cookie });
    await post(form, { cookie });
    expect(service.hosts[0]!.lines.length).toBeGreaterThan(0);
    const lines = service.hosts.flatMap((host) => host.lines).join("\n");
    for (const secret of [
      form.SAMLResponse.slice(0, 200),
      bad.form.SAMLResponse.slice(0, 200),
      cookie.split("=")[1]!,
      "PRIVATE KEY",
    ])
      expect(lines).not.toContain(secret);
  });
});
