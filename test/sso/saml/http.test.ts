import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { licence } from "../../support/licence.ts";
import { type Answer, Service } from "../../support/service.ts";
import { chooseBySaml, type Posted } from "./visitor.ts";

const ORIGIN = "http://localhost:7071";

/** With two hosts that have a licence, and one that has none. */
let service: Service;
let unlicensed: string;
beforeAll(async () => {
  service = await Service.start({
    hosts: 2,
    company: { subscriptions: [] },
    env: { LICENSE_KEY: await licence(), PUBLIC_BASE_URL: ORIGIN },
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

/** What a browser sends with a form that another site's page posts. */
const CROSS_SITE = {
  accept: "text/html,application/xhtml+xml,*/*;q=0.8",
  "Content-Type": "application/x-www-form-urlencoded",
  origin: "http://127.0.0.1:7075",
  "sec-fetch-site": "cross-site",
};
const cookiesOf = ({ headers }: Answer) => headers.getSetCookie().map((cookie) => cookie.split(";")[0]!);

/** Begins a sign-in, and answers what the provider's page has the browser post, with the cookie it has by then. */
async function begin(person: string): Promise<{ form: Posted; cookie: string; setCookie: string }> {
  const begun = await service.call("GET", "/auth/sso/login?returnUrl=/docs", { headers: { accept: "text/html" } });
  expect(begun.status).toBe(302);
  const { action, form } = await chooseBySaml(begun.headers.get("location")!, person);
  expect(action).toBe(`${ORIGIN}/auth/sso/callback`);
  return { form, cookie: cookiesOf(begun)[0]!, setCookie: begun.headers.getSetCookie()[0]! };
}

const post = (form: object, headers: Record<string, string>, host = service.url) =>
  service.call("POST", `${host}/auth/sso/callback`, {
    body: new URLSearchParams({ ...form }).toString(),
    headers: { ...CROSS_SITE, ...headers },
  });

describe("a browser", () => {
  test("that another site has post the response signs in on either host", async () => {
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

  test("that brings it to two hosts at once signs in once", async () => {
    const { form, cookie } = await begin("olga");
    const answers = await Promise.all(service.hosts.map(({ url }) => post(form, { cookie }, url)));
    expect(answers.map(({ status }) => status).sort()).toEqual([303, 400]);
  });

  test("gets a clear page without its cookie, with nothing, and with what does not hold", async () => {
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
    const nobody = await post(refused.form, { cookie: refused.cookie });
    expect([nobody.status, nobody.text]).toEqual([400, expect.not.stringMatching(/Nobody<|AuthnFailed/)]);
  });
});

describe("our metadata", () => {
  test("is there in both tiers, with our key", async () => {
    for (const host of [service.url, unlicensed]) {
      const { status, headers, text } = await service.call("GET", `${host}/auth/sso/metadata`);
      expect([status, headers.get("content-type")]).toEqual([200, "application/samlmetadata+xml"]);
      expect(text).toContain(`entityID="${ORIGIN}/auth/sso/metadata"`);
      expect(text).toContain("X509Certificate");
    }
  });
});

describe("without a licence", () => {
  test("a response signs nobody in, and says which tier it needs", async () => {
    const { form, cookie } = await begin("uma");
    const answer = await post(form, { cookie, accept: "application/json" }, unlicensed);
    expect([answer.status, answer.body.code, answer.body.requiredTier]).toEqual([403, "licenseRequired", "pro"]);
  });
});

describe("secrets", () => {
  test("stand in no line of a host", async () => {
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
