import type { ApiTokenRequest } from "simulated-cloud/api-tokens.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ADMIN, Service } from "../support/service.ts";

// Calls with access tokens of Microsoft Entra ID. The simulated tenant has the people Ada (admin), Bruno (auditor) and Uma
// (user).

let service: Service;
beforeAll(async () => {
  service = await Service.start({ tableProxy: true });
});
afterAll(() => service?.stop());

const call = async (request: ApiTokenRequest, method: string, path: string, body?: unknown) =>
  await service.call(method, path, { token: await service.cloud.control.apiToken(request), body });

/** Returns the username that the service derives from a person's token: `entra:<tenant>:<object id>`. */
const usernameOf = (person: string) => {
  const { objectId } = service.cloud.control.people().find(({ id }) => id === person)!;
  return `entra:${service.cloud.app.tenantId}:${objectId}`;
};

// biome-ignore lint/suspicious/noExplicitAny: the assertions of the tests check the entries
const auditEntries = async (query: string): Promise<any[]> =>
  (await service.admin("GET", `/audit/entries?${query}`)).body.items;

test("an Entra token identifies its user without reading a table", async () => {
  // The first call may read tables to fill caches. Only the second call is checked.
  await call({ person: "ada" }, "GET", "/auth/me");
  const me = await call({ person: "ada" }, "GET", "/auth/me");
  const username = usernameOf("ada");
  expect([me.status, me.body]).toEqual([200, { id: username, username, role: "admin", source: "entra", tier: "core" }]);
  expect(me.tableRequests()).toEqual([]);
  // Control: a call that does read a table is counted.
  expect((await service.admin("GET", "/auth/me")).tableRequests()).not.toEqual([]);
});

test("an Entra token has the permissions of its app role, and its username is in the audit log", async () => {
  const rejected = await call({ person: "uma" }, "GET", "/audit/entries");
  expect([rejected.status, rejected.body.code, rejected.body.requiredRole]).toEqual([403, "forbidden", "auditor"]);
  expect((await call({ person: "bruno" }, "GET", "/audit/entries")).status).toBe(200);
  const [entry] = await auditEntries(`actor=${encodeURIComponent(usernameOf("uma"))}`);
  expect(entry).toMatchObject({ eventType: "access.refused", actor: usernameOf("uma"), outcome: "refused" });

  const withoutRole = await call({ claims: { roles: null } }, "GET", "/auth/me");
  expect([withoutRole.status, withoutRole.body.detail]).toEqual([403, expect.stringContaining("Lifecycle.User")]);
});

test("an Entra token can't create API tokens, change a password or sign out, and lists no tokens and sessions", async () => {
  for (const [path, body] of [
    ["/auth/tokens", { name: "pipeline" }],
    ["/auth/password", { currentPassword: "x", newPassword: "correct horse battery staple" }],
    ["/auth/logout", {}],
  ] as const) {
    const answer = await call({ person: "ada" }, "POST", path, body);
    expect([path, answer.status, answer.body.code]).toEqual([path, 403, "interactiveOnly"]);
  }
  for (const path of ["/auth/tokens", "/auth/sessions"]) {
    const answer = await call({ person: "uma" }, "GET", path);
    expect([path, answer.status, answer.body.items]).toEqual([path, 200, []]);
  }
});

test("an Entra token for another audience is a 401", async () => {
  const answer = await call({ claims: { aud: "https://graph.microsoft.com" } }, "GET", "/auth/me");
  expect([answer.status, answer.headers.get("www-authenticate")]).toEqual([401, 'Bearer error="invalid_token"']);
});

test("an Entra token is a 503 while the tenant's signing keys can't be read, and the audit log records no rejection", async () => {
  // A new host has no signing keys in its cache.
  const host = await service.addHost();
  service.cloud.control.addFault({ match: { operation: "entra.keys" }, action: { kind: "reset" } });
  const rejectionCount = (await auditEntries("event_type=access.refused")).length;
  const unverified = await call({}, "GET", `${host.url}/auth/me`);
  expect([unverified.status, unverified.body.code]).toEqual([503, "unavailable"]);
  expect(Number(unverified.headers.get("retry-after"))).toBeGreaterThan(0);
  expect((await auditEntries("event_type=access.refused")).length).toBe(rejectionCount);
  // Users of the service itself are accepted meanwhile, and the Entra token when the keys can be read again.
  expect((await service.call("GET", `${host.url}/auth/me`, { token: await service.signIn(ADMIN) })).status).toBe(200);
  service.cloud.control.clearFaults();
  expect((await call({}, "GET", `${host.url}/auth/me`)).status).toBe(200);
});
