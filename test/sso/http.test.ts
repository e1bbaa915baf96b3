import type { OidcModeName } from "simulated-cloud/idp/oidc-modes.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { licence } from "../support/licence.ts";
import { ProviderVisitor } from "../support/provider-visitor.ts";
import { type Answer, Service } from "../support/service.ts";
import { makeToken } from "../support/users.ts";

const ORIGIN = "http://localhost:7071";

// Tests of OpenID Connect sign-ins and of the SSO configuration through HTTP.

/** Two hosts (processes) with a license. */
let service: Service;
/** URL of a third host, without a license. */
let unlicensedUrl: string;
let settings: Record<string, unknown>;
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
  const { issuer, clientId, clientSecret } = service.cloud.oidc;
  settings = {
    // The API accepts snake_case too.
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

let clientAddresses = 0;
/**
 * Headers of a browser's request. By default each request has another address, because sign-ins from one address are limited.
 */
const browserHeaders = (address = `198.51.100.${++clientAddresses}`) => ({
  accept: "text/html,application/xhtml+xml,*/*;q=0.8",
  "X-Forwarded-For": address,
});
const cookiesOf = ({ headers }: Answer) => headers.getSetCookie().map((cookie) => cookie.split(";")[0]!);

/**
 * Starts a sign-in, and returns the URL to which the provider redirects the browser, with the cookie. An empty `person` cancels
 * at the provider.
 */
async function startSignIn(person: string, returnUrl = "/docs"): Promise<{ path: string; cookie: string }> {
  const query = new URLSearchParams({ returnUrl });
  const redirection = await service.call("GET", `/auth/sso/login?${query}`, { headers: browserHeaders() });
  expect(redirection.status).toBe(302);
  const callbackUrl = new URL(await new ProviderVisitor().choose(redirection.headers.get("location")!, person));
  expect(callbackUrl.origin).toBe(ORIGIN);
  return { path: callbackUrl.pathname + callbackUrl.search, cookie: cookiesOf(redirection)[0]! };
}

describe("a browser", () => {
  test("signs in on one host and continues with its cookie on the other", async () => {
    const { path, cookie } = await startSignIn("uma");
    const completed = await service.call("GET", service.hosts[1]!.url + path, {
      headers: { ...browserHeaders(), cookie },
    });
    expect([completed.status, completed.headers.get("location")]).toEqual([302, "/docs"]);
    const session = cookiesOf(completed).find((pair) => pair.startsWith("__Host-session="))!;
    for (const attribute of ["Secure", "HttpOnly", "SameSite=Lax", "Path=/"]) {
      expect(completed.headers.getSetCookie()[0]).toMatch(new RegExp(attribute, "i"));
    }
    const me = await service.call("GET", "/auth/me", { headers: { cookie: session } });
    expect([me.status, me.body.username, me.body.source]).toEqual([200, "uma", "sso"]);
    const { body } = await service.admin("GET", "/auth/sso/config");
    expect(body).toMatchObject({ totalSsoLogins: 1, lastSuccessfulLoginAt: expect.any(String) });
  });

  test.each<[string, number, (redirection: { path: string; cookie: string }) => { path: string; cookie?: string }]>([
    ["without its cookie", 400, ({ path }) => ({ path })],
    ["with another browser's cookie", 400, ({ path }) => ({ path, cookie: `__Host-sso=${"A".repeat(43)}` })],
    ["with its cookie twice", 400, ({ path, cookie }) => ({ path, cookie: `${cookie}; ${cookie}` })],
    ["without parameters", 400, ({ cookie }) => ({ path: "/auth/sso/callback", cookie })],
  ])("that returns from the provider %s gets an error page", async (_description, status, change) => {
    const { path, cookie } = change(await startSignIn("uma"));
    const response = await service.call("GET", path, { headers: { ...browserHeaders(), ...(cookie && { cookie }) } });
    expect([response.status, response.headers.get("content-type")]).toEqual([status, "text/html; charset=utf-8"]);
    expect(response.text).toContain("This sign-in can't be completed");
    expect(response.text).toContain(response.headers.get("x-request-id"));
    expect(response.headers.get("content-security-policy")).toContain("default-src 'none'");
    expect(response.headers.getSetCookie()).toEqual([]);
  });

  test("sees no text of the provider or of the URL on the error page", async () => {
    const { path, cookie } = await startSignIn("");
    expect(decodeURIComponent(path)).toMatch(/access_denied.*<b>Nobody/);
    const address = `${path}&extra=${encodeURIComponent("<script>alert(1)</script>planted")}`;
    const response = await service.call("GET", address, { headers: { ...browserHeaders(), cookie } });
    expect(response.status).toBe(400);
    expect(response.text).not.toMatch(/script|planted|Nobody|access_denied/);
  });

  test.each([
    ["/report/ü 日本?q=😀", "/report/%C3%BC%20%E6%97%A5%E6%9C%AC?q=%F0%9F%98%80"],
    ["/a%20b?c=%zz#d", "/a%20b?c=%zz#d"],
  ])("with the returnUrl %s is redirected to the encoded address", async (returnUrl, location) => {
    const { path, cookie } = await startSignIn("uma", returnUrl);
    const completed = await service.call("GET", path, { headers: { ...browserHeaders(), cookie } });
    expect([completed.status, completed.headers.get("location")]).toEqual([302, location]);
  });

  test("is not redirected to another site", async () => {
    const response = await service.call("GET", "/auth/sso/login?returnUrl=https%3A%2F%2Fevil.example%2F", {
      headers: browserHeaders(),
    });
    expect([response.status, response.headers.get("content-type")]).toEqual([400, "text/html; charset=utf-8"]);
    expect(response.text).not.toContain("evil.example");
  });
});

describe("the audit log", () => {
  test("has each rejected sign-in of one address under the request ID on its page, with its own reason", async () => {
    const headers = browserHeaders();
    const rejectionsBy = async (mode: OidcModeName, times: number) => {
      service.cloud.control.setOidcMode(mode);
      const requestIds: string[] = [];
      for (let time = 0; time < times; time++) {
        const { path, cookie } = await startSignIn("uma");
        const page = await service.call("GET", path, { headers: { ...headers, cookie } });
        expect(page.status).toBe(400);
        requestIds.push(page.headers.get("x-request-id")!);
      }
      return requestIds;
    };
    const wrongParty = await rejectionsBy("otherAuthorizedParty", 2);
    const [later] = await rejectionsBy("issuedLater", 1);
    const [unsupported] = await rejectionsBy("clientSecretHmac", 1);
    const { items } = (await service.admin("GET", "/audit/entries?event_type=user.signInRefused")).body;
    const detailsOf = (requestId: string) =>
      items.find(
        (entry: { requestId: string; details: { requestIds?: string[] } }) =>
          entry.requestId === requestId || entry.details.requestIds?.includes(requestId),
      )?.details;
    expect(wrongParty.map(detailsOf)).toMatchObject([{ code: "azp" }, { code: "azp" }]);
    expect(detailsOf(later!)).toMatchObject({ reason: "badResponse", code: "iat" });
    expect(detailsOf(unsupported!)).toMatchObject({
      code: "alg",
      algorithm: "HS256",
      accepted: expect.stringContaining("EdDSA"),
    });
  });
});

describe("the connection test", () => {
  test.each<[OidcModeName, string, RegExp]>([
    ["correct", "wrong secret", /does not know this client, or the secret is wrong \(invalid_client\)/],
    [
      "unauthorizedClient",
      "wrong secret",
      /401 unauthorized_client.*secret is wrong, or.*know this client, or.*code flow/,
    ],
    ["entraUnknownClient", "wrong secret", /code flow, or the provider does not know it.*Check the client ID/],
    ["entraWrongSecret", "wrong secret", /does not know this client, or the secret is wrong \(invalid_client\)/],
  ])("names the fault for a provider in the mode %s and a %s", async (mode, secret, detail) => {
    service.cloud.control.setOidcMode(mode);
    const { status, body } = await service.admin("POST", "/auth/sso/config/test", { oidcClientSecret: secret });
    expect([status, body.success]).toEqual([200, false]);
    expect(body.checks.at(-1)).toMatchObject({ name: "client", passed: false, detail: expect.stringMatching(detail) });
    expect(body.checks.at(-2).detail).toContain("accepted with RS256");
  });
});

describe("callbacks from one address", () => {
  test("count as sign-ins on both hosts, so the eleventh in a minute is rejected", async () => {
    const { path, cookie } = await startSignIn("uma");
    const statuses = [];
    for (let call = 0; call < 10; call++) {
      const host = service.hosts[call % 2]!.url;
      // The browser that started the sign-in, with an answer that is not the provider's.
      const started = await startSignIn("uma");
      const response = await service.call("GET", `${host}${started.path.replace(/code=/, "code=x")}`, {
        headers: { ...browserHeaders("192.0.2.7"), cookie: started.cookie },
      });
      statuses.push(response.status);
    }
    expect(statuses).toEqual(Array(10).fill(400));
    const limited = await service.call("GET", path, { headers: { ...browserHeaders("192.0.2.7"), cookie } });
    const seconds = limited.headers.get("retry-after");
    expect([limited.status, Number(seconds) > 0, Number(seconds) <= 60]).toEqual([429, true, true]);
    expect(limited.text).toContain(`Wait ${seconds} seconds, then try again.`);
    const credentials = { username: "admin", password: "wrong" };
    const passwordSignIn = await service.call("POST", "/auth/login", {
      headers: browserHeaders("192.0.2.7"),
      body: credentials,
    });
    expect([passwordSignIn.status, passwordSignIn.text.includes("Too many requests")]).toEqual([429, true]);
    // The rejected callback can be repeated, here from another address.
    const fromOtherAddress = await service.call("GET", path, { headers: { ...browserHeaders("192.0.2.8"), cookie } });
    expect([fromOtherAddress.status, fromOtherAddress.headers.get("location")]).toEqual([302, "/docs"]);
  });
});

describe("callbacks of sign-ins that the browser did not start", () => {
  test.each<[string, (started: { path: string; cookie: string }) => { path: string; cookie?: string }]>([
    ["without a cookie", ({ path }) => ({ path })],
    ["with an invented cookie", ({ path }) => ({ path, cookie: `__Host-sso=${"A".repeat(43)}` })],
    ["with an unknown state", ({ cookie }) => ({ path: "/auth/sso/callback?code=x&state=y", cookie })],
    ["that were already completed", (started) => started],
  ])("%s don't use up the sign-ins of their address", async (_description, change) => {
    const address = `192.0.2.${100 + ++clientAddresses}`;
    const started = await startSignIn("uma");
    const completed = await service.call("GET", started.path, {
      headers: { ...browserHeaders(), cookie: started.cookie },
    });
    expect(completed.status).toBe(302);
    const forged = change(started);
    for (let call = 0; call < 15; call++) {
      const response = await service.call("GET", forged.path, {
        headers: { ...browserHeaders(address), ...(forged.cookie && { cookie: forged.cookie }) },
      });
      expect(response.status).toBe(400);
    }
    const { path, cookie } = await startSignIn("uma");
    const signedIn = await service.call("GET", path, { headers: { ...browserHeaders(address), cookie } });
    expect([signedIn.status, signedIn.headers.get("location")]).toEqual([302, "/docs"]);
  });
});

describe("a program (a client that accepts JSON)", () => {
  test("gets problem documents at the URLs of the browser", async () => {
    const stale = await service.call("GET", "/auth/sso/callback?code=x&state=y&session_state=z", {
      headers: { ...browserHeaders(), accept: "application/json" },
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
  ])("that sends %s %s %j gets the status %i", async (method, path, body, status) => {
    const response = await service.admin(method, path, body);
    expect(response.status).toBe(status);
    if (status === 200) expect(response.body.success).toBe(false);
  });

  test("that requests discovery for an invalid issuer gets the name of the invalid member", async () => {
    for (const issuerUrl of ["http://login.example.com", "https://login.example.com:8443"]) {
      const { body } = await service.admin("POST", "/auth/sso/discover", { issuerUrl });
      expect(body).toMatchObject({ code: "invalidRequest", errors: [{ path: "body.issuerUrl" }] });
    }
  });

  test("changes the configuration only with its current ETag", async () => {
    const { body, headers } = await service.admin("GET", "/auth/sso/config");
    // The header is the version of the answer. It begins with the version of the configuration.
    expect(headers.get("etag")).toMatch(new RegExp(`^${body.etag.slice(0, -1)}\\.[\\w-]{11}"$`));
    expect(body.allowedEmailDomains).toEqual(["acme.example"]);
    const token = await makeToken(service, "admin");
    const put = (ifMatch: string) =>
      service.call("PUT", "/auth/sso/config", {
        token,
        body: { loginButtonText: "Acme" },
        headers: { "If-Match": ifMatch },
      });
    const [currentResponse, staleResponse] = [await put(body.etag), await put(body.etag)];
    expect([currentResponse.status, staleResponse.status]).toEqual([200, 412]);
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
  ])("%s %s responds with the tier that it needs", async (method, path) => {
    const token = await makeToken(service, "admin");
    const body = method === "PUT" || method === "POST" ? {} : undefined;
    const response = await service.call(method, unlicensedUrl + path, { token, body });
    expect([response.status, response.body.code, response.body.requiredTier]).toEqual([403, "licenseRequired", "pro"]);
    if (method === "GET" && path !== "/auth/sso/config") {
      const page = await service.call(method, unlicensedUrl + path, { headers: browserHeaders() });
      expect([page.status, page.headers.get("content-type")]).toEqual([403, "text/html; charset=utf-8"]);
    }
  });

  test("the status is turned off, while it is turned on for a host with a license", async () => {
    const unlicensedStatus = await service.call("GET", `${unlicensedUrl}/auth/sso/status`);
    expect(unlicensedStatus.body).toMatchObject({ enabled: false, providerType: "oidc", ssoOnlyMode: false });
    const licensedStatus = await service.call("GET", "/auth/sso/status");
    expect(licensedStatus.body).toMatchObject({
      enabled: true,
      providerType: "oidc",
      loginButtonText: expect.any(String),
    });
  });
});
