import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { licence } from "../support/licence.ts";
import { ProviderVisitor } from "../support/provider-visitor.ts";
import { type Answer, Service } from "../support/service.ts";
import { makeToken } from "../support/users.ts";

const ORIGIN = "http://localhost:7071";

/** Two hosts with a license, and one without. */
let service: Service;
let unlicensed: string;
let settings: Record<string, unknown>;
beforeAll(async () => {
  service = await Service.start({
    hosts: 2,
    company: { subscriptions: [] },
    env: { LICENSE_KEY: await licence(), PUBLIC_BASE_URL: ORIGIN, TRUSTED_PROXY_HOPS: "2" },
  });
  ({ url: unlicensed } = await service.addHost({ LICENSE_KEY: "" }));
  service.hosts.splice(2, 1);
  const { issuer, clientId, clientSecret } = service.cloud.oidc;
  settings = {
    is_enabled: true,
    oidcIssuer: issuer,
    oidcClientId: clientId,
    oidcClientSecret: clientSecret,
    autoCreateUsers: true,
    allowedEmailDomains: ["ACME.example"],
  };
  const { status, text } = await service.admin("PUT", "/auth/sso/config", settings);
  expect([status, text]).toEqual([200, expect.not.stringContaining(clientSecret)]);
});
afterEach(() => service.cloud.control.setOidcMode("correct"));
afterAll(() => service.stop());

let addresses = 0;
/** A request of a browser, each from its own address, because sign-ins from one address are limited. */
const browser = (address = `198.51.100.${++addresses}`) => ({
  accept: "text/html,application/xhtml+xml,*/*;q=0.8",
  "X-Forwarded-For": address,
});
const cookiesOf = ({ headers }: Answer) => headers.getSetCookie().map((cookie) => cookie.split(";")[0]!);

/** Starts a sign-in, and returns the URL to which the provider redirects the browser, with the cookie. */
async function begin(person: string, returnUrl = "/docs"): Promise<{ path: string; cookie: string }> {
  const query = new URLSearchParams({ returnUrl });
  const redirection = await service.call("GET", `/auth/sso/login?${query}`, { headers: browser() });
  expect(redirection.status).toBe(302);
  const back = new URL(await new ProviderVisitor().choose(redirection.headers.get("location")!, person));
  expect(back.origin).toBe(ORIGIN);
  return { path: back.pathname + back.search, cookie: cookiesOf(redirection)[0]! };
}

describe("a browser", () => {
  test("signs in on one host and continues with its cookie on the other", async () => {
    const { path, cookie } = await begin("uma");
    const done = await service.call("GET", service.hosts[1]!.url + path, { headers: { ...browser(), cookie } });
    expect([done.status, done.headers.get("location")]).toEqual([302, "/docs"]);
    const session = cookiesOf(done).find((one) => one.startsWith("__Host-session="))!;
    for (const attribute of ["Secure", "HttpOnly", "SameSite=Lax", "Path=/"]) {
      expect(done.headers.getSetCookie()[0]).toMatch(new RegExp(attribute, "i"));
    }
    const me = await service.call("GET", "/auth/me", { headers: { cookie: session } });
    expect([me.status, me.body.username, me.body.source]).toEqual([200, "uma", "sso"]);
    const { body } = await service.admin("GET", "/auth/sso/config");
    expect(body).toMatchObject({ totalSsoLogins: 1, lastSuccessfulLoginAt: expect.any(String) });
  });

  test.each<[string, number, (redirection: { path: string; cookie: string }) => { path: string; cookie?: string }]>([
    ["without its cookie", 400, ({ path }) => ({ path })],
    ["with another's cookie", 400, ({ path }) => ({ path, cookie: `__Host-sso=${"A".repeat(43)}` })],
    ["with its cookie twice", 400, ({ path, cookie }) => ({ path, cookie: `${cookie}; ${cookie}` })],
    ["with nothing", 400, ({ cookie }) => ({ path: "/auth/sso/callback", cookie })],
  ])("that returns %s gets a clear page", async (_what, status, change) => {
    const { path, cookie } = change(await begin("uma"));
    const answer = await service.call("GET", path, { headers: { ...browser(), ...(cookie && { cookie }) } });
    expect([answer.status, answer.headers.get("content-type")]).toEqual([status, "text/html; charset=utf-8"]);
    expect(answer.text).toContain("This sign-in can't be completed");
    expect(answer.text).toContain(answer.headers.get("x-request-id"));
    expect(answer.headers.get("content-security-policy")).toContain("default-src 'none'");
    expect(answer.headers.getSetCookie()).toEqual([]);
  });

  test("sees no text of the provider or of the URL", async () => {
    const { path, cookie } = await begin("");
    expect(decodeURIComponent(path)).toMatch(/access_denied.*<b>Nobody/);
    const address = `${path}&extra=${encodeURIComponent("<script>alert(1)</script>planted")}`;
    const answer = await service.call("GET", address, { headers: { ...browser(), cookie } });
    expect(answer.status).toBe(400);
    expect(answer.text).not.toMatch(/script|planted|Nobody|access_denied/);
  });

  test.each([
    ["/report/ü 日本?q=😀", "/report/%C3%BC%20%E6%97%A5%E6%9C%AC?q=%F0%9F%98%80"],
    ["/a%20b?c=%zz#d", "/a%20b?c=%zz#d"],
  ])("with the returnUrl %s is redirected there", async (returnUrl, location) => {
    const { path, cookie } = await begin("uma", returnUrl);
    const done = await service.call("GET", path, { headers: { ...browser(), cookie } });
    expect([done.status, done.headers.get("location")]).toEqual([302, location]);
  });

  test("is not redirected to another site", async () => {
    const answer = await service.call("GET", "/auth/sso/login?returnUrl=https%3A%2F%2Fevil.example%2F", {
      headers: browser(),
    });
    expect([answer.status, answer.headers.get("content-type")]).toEqual([400, "text/html; charset=utf-8"]);
    expect(answer.text).not.toContain("evil.example");
  });
});

describe("callbacks from one address", () => {
  test("count as sign-ins on both hosts: the eleventh in a minute is rejected, and can be repeated later", async () => {
    const { path, cookie } = await begin("uma");
    const statuses = [];
    for (let call = 0; call < 10; call++) {
      const host = service.hosts[call % 2]!.url;
      const answer = await service.call("GET", `${host}/auth/sso/callback?state=x`, { headers: browser("192.0.2.7") });
      statuses.push(answer.status);
    }
    expect(statuses).toEqual(Array(10).fill(400));
    const limited = await service.call("GET", path, { headers: { ...browser("192.0.2.7"), cookie } });
    const seconds = limited.headers.get("retry-after");
    expect([limited.status, Number(seconds) > 0, Number(seconds) <= 60]).toEqual([429, true, true]);
    expect(limited.text).toContain(`Wait ${seconds} seconds, then try again.`);
    const credentials = { username: "admin", password: "wrong" };
    const password = await service.call("POST", "/auth/login", { headers: browser("192.0.2.7"), body: credentials });
    expect([password.status, password.text.includes("Too many requests")]).toEqual([429, true]);
    const elsewhere = await service.call("GET", path, { headers: { ...browser("192.0.2.8"), cookie } });
    expect([elsewhere.status, elsewhere.headers.get("location")]).toEqual([302, "/docs"]);
  });
});

describe("a program", () => {
  test("gets problem documents at the same URLs", async () => {
    const stale = await service.call("GET", "/auth/sso/callback?code=x&state=y&session_state=z", {
      headers: { ...browser(), accept: "application/json" },
    });
    expect([stale.status, stale.body.code]).toEqual([400, "signInStale"]);
    const foreign = await service.call("GET", "/auth/sso/login?returnUrl=//evil.example");
    expect(foreign.body).toMatchObject({ code: "invalidRequest", errors: [{ path: "query.returnUrl" }] });
  });

  test.each<[string, string, unknown, number]>([
    ["PUT", "/auth/sso/config", { defaultRole: "admin" }, 400],
    ["PUT", "/auth/sso/config", { roleMapping: { a: "root" }, rolesClaim: "r" }, 400],
    ["PUT", "/auth/sso/config", { oidcIssuer: "x" }, 400],
    ["PUT", "/auth/sso/config", { oidcScopes: ["a b"] }, 400],
    ["PUT", "/auth/sso/config", { samlIdpEntityId: "" }, 400],
    ["PUT", "/auth/sso/config", { allowedEmailDomains: ["@acme.example"] }, 400],
    ["PUT", "/auth/sso/config", { unknown: 1 }, 400],
    ["PUT", "/auth/sso/config", "[]", 400],
    ["POST", "/auth/sso/config/test", { oidcIssuer: "https://127.0.0.1" }, 200],
    ["POST", "/auth/sso/discover", { issuerUrl: "https://127.0.0.1" }, 400],
    ["POST", "/auth/sso/discover", { issuerUrl: "file:///etc/passwd" }, 400],
    ["POST", "/auth/sso/discover", {}, 400],
  ])("that sends %s %s %j gets %#", async (method, path, body, status) => {
    const answer = await service.admin(method, path, body);
    expect(answer.status).toBe(status);
    if (status === 200) expect(answer.body.success).toBe(false);
  });

  test("that requests discovery for an invalid issuer gets the name of the wrong member", async () => {
    for (const issuerUrl of ["http://login.example.com", "https://login.example.com:8443"]) {
      const { body } = await service.admin("POST", "/auth/sso/discover", { issuerUrl });
      expect(body).toMatchObject({ code: "invalidRequest", errors: [{ path: "body.issuerUrl" }] });
    }
  });

  test("changes the configuration only with its current ETag", async () => {
    const { body, headers } = await service.admin("GET", "/auth/sso/config");
    expect(headers.get("etag")).toBe(body.etag);
    expect(body.allowedEmailDomains).toEqual(["acme.example"]);
    const token = await makeToken(service, "admin");
    const put = (ifMatch: string) =>
      service.call("PUT", "/auth/sso/config", {
        token,
        body: { loginButtonText: "Acme" },
        headers: { "If-Match": ifMatch },
      });
    const [right, stale] = [await put(body.etag), await put(body.etag)];
    expect([right.status, stale.status]).toEqual([200, 412]);
    expect((await service.admin("POST", "/auth/sso/config/test", {})).body).toMatchObject({ success: true });
  });
});

describe("without a license", () => {
  test.each<[string, string]>([
    ["GET", "/auth/sso/config"],
    ["PUT", "/auth/sso/config"],
    ["POST", "/auth/sso/config/test"],
    ["DELETE", "/auth/sso/config"],
    ["POST", "/auth/sso/discover"],
    ["GET", "/auth/sso/login"],
    ["GET", "/auth/sso/callback"],
  ])("%s %s says which tier it needs", async (method, path) => {
    const token = await makeToken(service, "admin");
    const body = method === "PUT" || method === "POST" ? {} : undefined;
    const answer = await service.call(method, unlicensed + path, { token, body });
    expect([answer.status, answer.body.code, answer.body.requiredTier]).toEqual([403, "licenseRequired", "pro"]);
    if (method === "GET" && path !== "/auth/sso/config") {
      const page = await service.call(method, unlicensed + path, { headers: browser() });
      expect([page.status, page.headers.get("content-type")]).toEqual([403, "text/html; charset=utf-8"]);
    }
  });

  test("the status says that it is turned off, and with one that it is turned on", async () => {
    const off = await service.call("GET", `${unlicensed}/auth/sso/status`);
    expect(off.body).toMatchObject({ enabled: false, providerType: "oidc", ssoOnlyMode: false });
    const on = await service.call("GET", "/auth/sso/status");
    expect(on.body).toMatchObject({ enabled: true, providerType: "oidc", loginButtonText: expect.any(String) });
  });
});
