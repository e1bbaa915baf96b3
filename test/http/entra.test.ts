import type { ApiTokenRequest } from "simulated-cloud/api-tokens.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ADMIN, Service } from "../support/service.ts";

let service: Service;
beforeAll(async () => {
  service = await Service.start({ tableProxy: true });
});
afterAll(() => service?.stop());

const call = async (request: ApiTokenRequest, method: string, path: string, body?: unknown) =>
  await service.call(method, path, { token: await service.cloud.control.apiToken(request), body });

const nameOf = (person: string) => {
  const { objectId } = service.cloud.control.people().find(({ id }) => id === person)!;
  return `entra:${service.cloud.app.tenantId}:${objectId}`;
};

// biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
const entries = async (query: string): Promise<any[]> =>
  (await service.admin("GET", `/audit/entries?${query}`)).body.items;

test("an Entra token identifies its user without reading a table", async () => {
  await call({ person: "ada" }, "GET", "/auth/me");
  const me = await call({ person: "ada" }, "GET", "/auth/me");
  const name = nameOf("ada");
  expect([me.status, me.body]).toEqual([
    200,
    { id: name, username: name, role: "admin", source: "entra", tier: "core" },
  ]);
  expect(me.tableRequests()).toEqual([]);
  // Control: a call that does read a table is counted.
  expect((await service.admin("GET", "/auth/me")).tableRequests()).not.toEqual([]);
});

test("an Entra token has the permissions of its app role, and its user is in the audit log", async () => {
  const refused = await call({ person: "uma" }, "GET", "/audit/entries");
  expect([refused.status, refused.body.code, refused.body.requiredRole]).toEqual([403, "forbidden", "auditor"]);
  expect((await call({ person: "bruno" }, "GET", "/audit/entries")).status).toBe(200);
  const [entry] = await entries(`actor=${encodeURIComponent(nameOf("uma"))}`);
  expect(entry).toMatchObject({ eventType: "access.refused", actor: nameOf("uma"), outcome: "refused" });

  const none = await call({ claims: { roles: null } }, "GET", "/auth/me");
  expect([none.status, none.body.detail]).toEqual([403, expect.stringContaining("Lifecycle.User")]);
});

test("an Entra token can't manage passwords, tokens and sessions, and lists none", async () => {
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

test("an invalid Entra token is a 401; a token that can't be verified is a retryable 503 and not recorded as rejected", async () => {
  const wrong = await call({ claims: { aud: "https://graph.microsoft.com" } }, "GET", "/auth/me");
  expect([wrong.status, wrong.headers.get("www-authenticate")]).toEqual([401, 'Bearer error="invalid_token"']);

  const host = await service.addHost();
  service.cloud.control.addFault({ match: { operation: "entra.keys" }, action: { kind: "reset" } });
  const refusals = (await entries("event_type=access.refused")).length;
  const unchecked = await call({}, "GET", `${host.url}/auth/me`);
  expect([unchecked.status, unchecked.body.code]).toEqual([503, "unavailable"]);
  expect(Number(unchecked.headers.get("retry-after"))).toBeGreaterThan(0);
  expect((await entries("event_type=access.refused")).length).toBe(refusals);
  // Other users are accepted, and this user later.
  expect((await service.call("GET", `${host.url}/auth/me`, { token: await service.signIn(ADMIN) })).status).toBe(200);
  service.cloud.control.clearFaults();
  expect((await call({}, "GET", `${host.url}/auth/me`)).status).toBe(200);
});
