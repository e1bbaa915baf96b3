import { TableClient } from "@azure/data-tables";
import type { LogoutTokenChange } from "simulated-cloud/idp/logout-tokens.ts";
import type { SamlLogoutRequest } from "simulated-cloud/idp/saml-logout.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { licence } from "../support/licence.ts";
import { ProviderVisitor } from "../support/provider-visitor.ts";
import { rawRequest } from "../support/raw-request.ts";
import { ADMIN, type Answer, Service } from "../support/service.ts";
import { chooseBySaml } from "./saml/browser-sign-in.ts";

const ORIGIN = "http://localhost:7071";

// Tests over HTTP of sign-outs that involve the identity provider. They start at this service or at the provider.

/** Two hosts (processes) with a license. */
let service: Service;
beforeAll(async () => {
  service = await Service.start({
    hosts: 2,
    company: { subscriptions: [] },
    // The host appends an entry to X-Forwarded-For. With two hops, the entry before it, which the tests set, is the address.
    env: { LICENSE_KEY: await licence(), PUBLIC_BASE_URL: ORIGIN, TRUSTED_PROXY_HOPS: "2" },
  });
});
afterEach(() => service.cloud.control.setOidcMode("correct"));
afterAll(() => service.stop());

let clientAddresses = 0;
/** Headers of a browser at an address of its own, because sign-ins from one address are limited. */
const browserHeaders = () => ({
  accept: "text/html",
  "X-Forwarded-For": `198.51.100.${++clientAddresses}`,
});
const cookieOf = ({ headers }: Answer, name: string) =>
  headers
    .getSetCookie()
    .map((cookie) => cookie.split(";")[0]!)
    .find((pair) => pair.startsWith(`${name}=`))!;
const statusOf = async (session: string) =>
  (await service.call("GET", "/auth/me", { headers: { cookie: session } })).status;
const subjectOf = (id: string) => service.cloud.control.people().find((person) => person.id === id)!.objectId;
const refusals = async () => {
  const { body } = await service.admin("GET", "/audit/entries?event_type=user.signOutRefused");
  return body.items as { requestId: string; details: { reason: string; requestIds?: string[] } }[];
};

const usersTable = () =>
  TableClient.fromConnectionString(service.azurite.connectionString(), "Users", { allowInsecureConnection: true });

/** Returns the IDs of a user's sessions at the provider (`sid`), as the service stored them. */
async function readProviderSessionIds(username: string): Promise<string[]> {
  const { sessions_json } = await usersTable().getEntity<{ sessions_json: string }>("user", username);
  const sessions = JSON.parse(sessions_json) as { provider?: { sessionId?: string } }[];
  return sessions.flatMap(({ provider }) => provider?.sessionId ?? []);
}

/** Signs out with a session's cookie, at the second host. */
const signOut = (session: string, body = {}) =>
  service.call("POST", `${service.hosts[1]!.url}/auth/logout`, {
    headers: { cookie: session, "Sec-Fetch-Site": "same-origin" },
    body,
  });

describe("with OpenID Connect", () => {
  beforeAll(async () => {
    const { issuer, clientId, clientSecret } = service.cloud.oidc;
    const settings = { isEnabled: true, oidcIssuer: issuer, oidcClientId: clientId, oidcClientSecret: clientSecret };
    const { status } = await service.admin("PUT", "/auth/sso/config", { ...settings, autoCreateUsers: true });
    expect(status).toBe(200);
    service.cloud.control.setOidcBackchannelLogoutUri(`${service.url}/auth/sso/logout`);
  });

  /** Signs a person in with a new browser. Returns the browser at the provider and the session's cookie here. */
  async function signIn(person: string) {
    const visitor = new ProviderVisitor();
    const redirection = await service.call("GET", "/auth/sso/login", { headers: browserHeaders() });
    const callbackUrl = new URL(await visitor.choose(redirection.headers.get("location")!, person));
    const completed = await service.call("GET", callbackUrl.pathname + callbackUrl.search, {
      headers: { ...browserHeaders(), cookie: cookieOf(redirection, "__Host-sso") },
    });
    expect(completed.status).toBe(302);
    return { visitor, session: cookieOf(completed, "__Host-session") };
  }

  const postToken = (token: string) =>
    service.call("POST", "/auth/sso/logout", {
      headers: { "Content-Type": "application/x-www-form-urlencoded" },
      body: new URLSearchParams({ logout_token: token }).toString(),
    });

  test("a sign-out returns the URL that ends the provider's session, and the provider ends the other session of that browser", async () => {
    const { visitor, session } = await signIn("uma");
    const response = await signOut(session);
    expect([response.status, response.body]).toEqual([200, { signedOut: true, logoutUrl: expect.any(String) }]);
    expect(await statusOf(session)).toBe(401);
    const logoutUrl = new URL(response.body.logoutUrl);
    expect(Object.fromEntries(logoutUrl.searchParams)).toEqual({
      client_id: service.cloud.oidc.clientId,
      post_logout_redirect_uri: `${ORIGIN}/`,
    });
    expect(await visitor.signOut(logoutUrl.href)).toBe(`${ORIGIN}/`);
    // The provider has no session any more, so it does not ask.
    expect(await visitor.signOut(logoutUrl.href)).toBe("nobody is signed in");
  });

  test("a sign-out at the provider ends the session of that browser, and not that of another browser", async () => {
    const [first, second] = [await signIn("uma"), await signIn("uma")];
    const { body } = await signOut((await signIn("ada")).session);
    await first.visitor.signOut(body.logoutUrl);
    expect([await statusOf(first.session), await statusOf(second.session)]).toEqual([401, 200]);
    const { items } = (await service.admin("GET", "/audit/entries?event_type=user.signedOut")).body;
    expect(items[0]).toMatchObject({ target: { id: "uma" }, details: { by: "provider", sessions: 1 } });
  });

  test("a sign-out has no URL for a provider without an end_session_endpoint, and none for a session by password", async () => {
    const { session } = await signIn("olga");
    service.cloud.control.setOidcMode("noLogout");
    const host = await service.addHost({});
    const url = `${host.url}/auth/logout`;
    // Later tests use the two hosts of the suite. `service.stop` also stops this host.
    service.hosts.splice(2, 1);
    const headers = { cookie: session, "Sec-Fetch-Site": "same-origin" };
    expect((await service.call("POST", url, { headers, body: {} })).body).toEqual({ signedOut: true, logoutUrl: null });
    const token = await service.signIn(ADMIN);
    expect((await service.call("POST", "/auth/logout", { token, body: {} })).body).toEqual({ signedOut: true });
  });

  test("a logout token of a person ends all sessions by single sign-on of that person, once", async () => {
    const sessions = [await signIn("uma"), await signIn("uma"), await signIn("ada")].map(({ session }) => session);
    const token = await service.cloud.control.oidcLogoutToken({ sub: subjectOf("uma") });
    const response = await postToken(token);
    expect([response.status, response.body.endedSessions >= 2]).toEqual([200, true]);
    expect(response.headers.get("cache-control")).toContain("no-store");
    expect(await Promise.all(sessions.map(statusOf))).toEqual([401, 401, 200]);
    // A new session does not end by the same token.
    const { session } = await signIn("uma");
    expect((await postToken(token)).status).toBe(400);
    expect(await statusOf(session)).toBe(200);
    expect((await refusals())[0]!.details.reason).toBe("used");
  });

  test("many logout tokens from the provider's address are accepted, and only rejected ones count against its limit", async () => {
    const host = await service.addHost({ RATE_LIMIT_PER_MINUTE: "3" });
    // Later tests use the two hosts of the suite. `service.stop` also stops this host.
    service.hosts.splice(service.hosts.indexOf(host), 1);
    const headers = { "Content-Type": "application/x-www-form-urlencoded", ...browserHeaders() };
    const post = async (token: string) => {
      const body = new URLSearchParams({ logout_token: token }).toString();
      return await service.call("POST", `${host.url}/auth/sso/logout`, { headers, body });
    };
    const sessions: string[] = [];
    for (let index = 0; index < 5; index++) {
      const { session } = await signIn("ada");
      sessions.push(session);
      const token = await service.cloud.control.oidcLogoutToken({ sub: subjectOf("ada") });
      expect(await post(token)).toMatchObject({ status: 200, body: { endedSessions: expect.any(Number) } });
    }
    expect(await Promise.all(sessions.map(statusOf))).toEqual([401, 401, 401, 401, 401]);
    for (const status of [400, 400, 400, 429, 429]) expect((await post("no.logout.token")).status).toBe(status);
    // Rejected tokens do not keep the provider out.
    expect((await post(await service.cloud.control.oidcLogoutToken({ sub: subjectOf("ada") }))).status).toBe(200);
  });

  test("a logout token with only a session ID ends that session, and no other session of the person", async () => {
    const other = await signIn("uma");
    const earlierIds = await readProviderSessionIds("uma");
    const { session } = await signIn("uma");
    const sid = (await readProviderSessionIds("uma")).find((id) => !earlierIds.includes(id))!;
    const token = await service.cloud.control.oidcLogoutToken({ sid });
    expect((await postToken(token)).body).toEqual({ endedSessions: 1 });
    expect([await statusOf(session), await statusOf(other.session)]).toEqual([401, 200]);
  });

  test("a logout token that has only an unknown session ID ends no session", async () => {
    const { session } = await signIn("uma");
    const token = await service.cloud.control.oidcLogoutToken({ sid: "another session" });
    expect((await postToken(token)).body).toEqual({ endedSessions: 0 });
    expect(await statusOf(session)).toBe(200);
  });

  test.each<[string, LogoutTokenChange]>([
    ["iss", { claims: (claims) => ({ ...claims, iss: "https://login.elsewhere.example" }) }],
    ["aud", { claims: (claims) => ({ ...claims, aud: "another-client" }) }],
    ["iat", { claims: ({ iat: _, ...claims }) => claims }],
    ["iat", { claims: (claims) => ({ ...claims, iat: Number(claims.iat) - 3600 }) }],
    ["iat", { claims: (claims) => ({ ...claims, iat: Number(claims.iat) + 3600, exp: Number(claims.exp) + 3600 }) }],
    ["exp", { claims: ({ exp: _, ...claims }) => claims }],
    ["exp", { claims: (claims) => ({ ...claims, exp: Number(claims.iat) - 300 }) }],
    ["jti", { claims: ({ jti: _, ...claims }) => claims }],
    ["jti", { claims: (claims) => ({ ...claims, jti: "" }) }],
    ["events", { claims: ({ events: _, ...claims }) => claims }],
    ["events", { claims: (claims) => ({ ...claims, events: { "https://example.com/other": {} } }) }],
    ["nonce", { claims: (claims) => ({ ...claims, nonce: "n" }) }],
    ["sub", { claims: ({ sub: _, ...claims }) => claims }],
    ["sub", { claims: (claims) => ({ ...claims, sub: 7 }) }],
    ["typ", { header: (header) => ({ ...header, typ: "at+jwt" }) }],
    ["alg", { signature: "none" }],
    ["alg", { signature: "clientSecretHmac" }],
    ["signature", { signature: "foreignKey" }],
    ["signature", { header: (header) => ({ ...header, kid: "unknown" }) }],
  ])("a logout token that fails the check of %s is rejected and recorded (case %#)", async (reason, change) => {
    const response = await postToken(await service.cloud.control.oidcLogoutToken({ sub: subjectOf("ada") }, change));
    expect([response.status, response.body.detail]).toEqual([400, expect.stringContaining(`${reason}.`)]);
    const requestId = response.headers.get("x-request-id")!;
    const entry = (await refusals()).find(
      (one) => one.requestId === requestId || one.details.requestIds?.includes(requestId),
    );
    expect(entry?.details.reason).toBe(reason);
  });

  test("text that is not a token is rejected", async () => {
    for (const token of ["", "x", "a.b.c", "x".repeat(20_000)]) expect((await postToken(token)).status).toBe(400);
  });
});

describe("with SAML", () => {
  let entityId: string;
  beforeAll(async () => {
    const { status, body } = await service.admin("PUT", "/auth/sso/config", {
      providerType: "saml",
      isEnabled: true,
      autoCreateUsers: true,
      samlIdpMetadataXml: service.cloud.saml.metadata(),
      samlSignRequests: true,
    });
    expect([status, body.samlLogoutUrl]).toEqual([200, expect.stringMatching(/\/saml\/slo$/)]);
    const metadata = (await service.call("GET", "/auth/sso/metadata")).text;
    entityId = await service.cloud.control.registerSamlServiceProvider(metadata);
  });

  /** Signs a person in. Returns the session's cookie here, and the index of the session at the provider. */
  async function signIn(person: string) {
    const redirection = await service.call("GET", "/auth/sso/login", { headers: browserHeaders() });
    const { form } = await chooseBySaml(redirection.headers.get("location")!, person);
    const completed = await service.call("POST", "/auth/sso/callback", {
      headers: {
        ...browserHeaders(),
        "Content-Type": "application/x-www-form-urlencoded",
        cookie: cookieOf(redirection, "__Host-sso-saml"),
      },
      body: new URLSearchParams({ ...form }).toString(),
    });
    expect(completed.status).toBe(303);
    const [, sessionIndex] = /SessionIndex="([^"]+)"/.exec(Buffer.from(form.SAMLResponse, "base64").toString())!;
    return { session: cookieOf(completed, "__Host-session"), sessionIndex: sessionIndex! };
  }

  const openHere = (url: string) => {
    const { pathname, search } = new URL(url);
    return service.call("GET", pathname + search, { headers: browserHeaders() });
  };

  test("a sign-out leads to the provider with a signed LogoutRequest, and back to the page with its response", async () => {
    const { session } = await signIn("uma");
    const { logoutUrl } = (await signOut(session)).body;
    const atProvider = await fetch(logoutUrl, { redirect: "manual" });
    expect([atProvider.status, await atProvider.text()]).toEqual([302, ""]);
    const back = await openHere(atProvider.headers.get("location")!);
    expect([back.status, back.headers.get("location")]).toEqual([302, "/"]);
    // The provider's session has ended, so the provider does not know it any more.
    expect((await fetch(logoutUrl, { redirect: "manual" })).status).toBe(400);
  });

  test("a LogoutRequest of the provider ends the session that it names, and is answered with a signed response", async () => {
    const [first, second] = [await signIn("uma"), await signIn("uma")];
    const request = { nameId: subjectOf("uma"), sessionIndexes: [first.sessionIndex] };
    const url = service.cloud.control.samlLogoutRequestUrl(entityId, request);
    const answer = await openHere(url);
    expect(answer.status).toBe(302);
    expect(await (await fetch(answer.headers.get("location")!)).text()).toBe("Signed out everywhere.\n");
    expect(new URL(answer.headers.get("location")!).searchParams.get("RelayState")).toBe("state");
    expect([await statusOf(first.session), await statusOf(second.session)]).toEqual([401, 200]);
    expect((await openHere(url)).status).toBe(400);
    expect((await refusals())[0]!.details.reason).toBe("used");
  });

  test.each<[string, Partial<SamlLogoutRequest>]>([
    ["notSigned", { signature: "none" }],
    ["signature", { signature: "foreignKey" }],
    [
      "destination",
      { change: (xml) => xml.replace(/Destination="[^"]*"/, 'Destination="https://elsewhere.example/"') },
    ],
    ["issuer", { change: (xml) => xml.replace(/<saml:Issuer>[^<]*/, "<saml:Issuer>https://elsewhere.example") }],
    ["expired", { change: (xml) => xml.replace(/IssueInstant="[^"]*"/, 'IssueInstant="2026-01-01T00:00:00Z"') }],
    ["notYetValid", { change: (xml) => xml.replace(/IssueInstant="[^"]*"/, 'IssueInstant="2036-01-01T00:00:00Z"') }],
    ["noIdentity", { change: (xml) => xml.replace(/<saml:NameID.*<\/saml:NameID>/, "") }],
    ["malformed", { change: (xml) => xml.replaceAll("LogoutRequest", "LogoutResponse") }],
    ["malformed", { change: (xml) => xml.replace('Version="2.0"', 'Version="1.1"') }],
    ["documentType", { change: (xml) => `<!DOCTYPE a>${xml}` }],
  ])("a LogoutRequest with the defect %s is rejected and ends nothing", async (reason, defect) => {
    const { session, sessionIndex } = await signIn("uma");
    const request = { nameId: subjectOf("uma"), sessionIndexes: [sessionIndex], ...defect };
    const response = await openHere(service.cloud.control.samlLogoutRequestUrl(entityId, request));
    expect(response.status).toBe(400);
    expect(await statusOf(session)).toBe(200);
    expect((await refusals()).map(({ details }) => details.reason)).toContain(reason);
  });

  test("a LogoutRequest to a host without PUBLIC_BASE_URL is rejected with that reason", async () => {
    const { session, sessionIndex } = await signIn("uma");
    const request = { nameId: subjectOf("uma"), sessionIndexes: [sessionIndex] };
    const { search } = new URL(service.cloud.control.samlLogoutRequestUrl(entityId, request));
    const host = await service.addHost({ PUBLIC_BASE_URL: "" });
    // Later tests use the two hosts of the suite. `service.stop` also stops this host.
    service.hosts.splice(2, 1);
    // On a loopback address, the service knows its own address without the setting.
    const response = await rawRequest(host.url, [
      `GET /auth/sso/logout${search} HTTP/1.1`,
      "Host: service.example",
      "Connection: close",
    ]);
    expect([response.status, await statusOf(session)]).toEqual([400, 200]);
    expect((await refusals())[0]!.details.reason).toBe("noPublicBaseUrl");
  });

  test.each<[string, string, Partial<SamlLogoutRequest>]>([
    ["a repeated parameter", "RelayState=other", {}],
    ["a parameter with an escaped name, which the signature does not cover", "RelaySt%61te=x", { relayState: "none" }],
  ])("a LogoutRequest with %s is rejected", async (_, parameter, change) => {
    const { session, sessionIndex } = await signIn("uma");
    const request = { nameId: subjectOf("uma"), sessionIndexes: [sessionIndex], ...change };
    const url = service.cloud.control.samlLogoutRequestUrl(entityId, request);
    expect((await openHere(`${url}&${parameter}`)).status).toBe(400);
    expect(await statusOf(session)).toBe(200);
  });

  test("a LogoutRequest ends the session that it names although the row of another user can't be read", async () => {
    const users = usersTable();
    await signIn("ada");
    const { session, sessionIndex } = await signIn("uma");
    const stored = await users.getEntity<Record<string, unknown>>("user", "ada");
    await users.updateEntity({ partitionKey: "user", rowKey: "ada", role: 1 }, "Merge");
    const request = { nameId: subjectOf("uma"), sessionIndexes: [sessionIndex] };
    expect((await openHere(service.cloud.control.samlLogoutRequestUrl(entityId, request))).status).toBe(302);
    expect(await statusOf(session)).toBe(401);
    await users.updateEntity({ partitionKey: "user", rowKey: "ada", role: stored.role }, "Merge");
  });

  test("without a key of the service, a sign-out has no URL, and a LogoutRequest leads to the page", async () => {
    const [{ session }, other] = [await signIn("ada"), await signIn("ada")];
    expect((await service.admin("PUT", "/auth/sso/config", { samlSignRequests: false })).status).toBe(200);
    expect((await signOut(session)).body).toEqual({ signedOut: true, logoutUrl: null });
    const request = { nameId: subjectOf("ada"), sessionIndexes: [other.sessionIndex] };
    const answer = await openHere(service.cloud.control.samlLogoutRequestUrl(entityId, request));
    expect([answer.status, answer.headers.get("location")]).toEqual([302, "/"]);
    expect(await statusOf(other.session)).toBe(401);
  });
});
