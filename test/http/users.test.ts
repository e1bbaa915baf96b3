import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { licence } from "../support/licence.ts";
import { ADMIN, type Answer, type CallOptions, Service } from "../support/service.ts";
import { leaveSessionsUnused, makeToken } from "../support/users.ts";

let service: Service;
let token: string;
beforeAll(async () => {
  const env = { TRUSTED_PROXY_HOPS: "2", LICENSE_KEY: await licence() };
  service = await Service.start({ tableProxy: true, hosts: 2, env });
  token = await service.signIn(ADMIN);
});
afterAll(() => service.stop());

const PASSWORD = "a password of their own";
let clients = 0;
/** From an address of its own, on either host. */
const call = (method: string, path: string, options: CallOptions = {}): Promise<Answer> =>
  service.call(method, service.hosts[++clients % 2]!.url + path, {
    ...options,
    headers: { "X-Forwarded-For": `198.51.100.${clients}`, ...options.headers },
  });
const admin = (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) =>
  call(method, path, { token, body, headers });
const signIn = (username: string, password: string, more: object = {}, headers = {}) =>
  call("POST", "/auth/login", { body: { username, password, ...more }, headers });
const codeOf = ({ status, body }: Answer) => [status, body?.code];

describe("users", () => {
  test("are created, read, listed, changed, unlocked and deleted", async () => {
    const wanted = { username: "Maria", email: "maria@example.com", password: PASSWORD, role: "auditor" };
    const made = await admin("POST", "/auth/users", wanted);
    expect([made.status, made.headers.get("location")]).toEqual([201, "/auth/users/maria"]);
    expect(made.body).toEqual({
      id: "maria",
      username: "Maria",
      email: "maria@example.com",
      role: "auditor",
      source: "local",
      sso: null,
      state: "active",
      mustChangePassword: false,
      lockedUntil: null,
      createdAt: expect.any(String),
      createdBy: "admin",
      updatedAt: made.body.createdAt,
      lastSignInAt: null,
      etag: made.headers.get("etag"),
    });
    expect(codeOf(await admin("POST", "/auth/users", wanted))).toEqual([409, "alreadyExists"]);
    expect((await admin("GET", made.headers.get("location")!)).body).toEqual(made.body);
    const page = (await admin("GET", "/auth/users?limit=1&offset=1")).body;
    expect(page).toMatchObject({ items: [made.body], total: 2, limit: 1, offset: 1, nextCursor: null });

    const stale = { "If-Match": '"other"' };
    expect(codeOf(await admin("PUT", "/auth/users/maria", { role: "user" }, stale))).toEqual([
      412,
      "preconditionFailed",
    ]);
    expect(codeOf(await admin("DELETE", "/auth/users/maria", undefined, stale))).toEqual([412, "preconditionFailed"]);
    const changed = await admin(
      "PUT",
      "/auth/users/MARIA",
      { role: "user", email: null },
      { "If-Match": made.body.etag },
    );
    expect(changed.body).toMatchObject({ role: "user", email: null });
    expect(changed.headers.get("etag")).toBe(changed.body.etag);

    const headers = { "X-Forwarded-For": "203.0.113.9" };
    for (let failure = 0; failure < 5; failure++) await signIn("maria", "wrong", {}, headers);
    expect(codeOf(await signIn("maria", PASSWORD, {}, headers))).toEqual([429, "tooManyAttempts"]);
    const locked = (await admin("GET", "/auth/users/maria")).body.lockedUntil;
    expect(Date.parse(locked) - Date.now()).toBeGreaterThan(14 * 60_000);
    expect((await admin("POST", "/auth/users/maria/unlock")).body.lockedUntil).toBeNull();
    expect((await signIn("maria", PASSWORD, {}, headers)).status).toBe(200);

    expect((await admin("DELETE", "/auth/users/maria")).body).toEqual({ deleted: true });
    expect(codeOf(await admin("DELETE", "/auth/users/maria"))).toEqual([404, "notFound"]);
    expect(codeOf(await admin("POST", "/auth/users/maria/unlock"))).toEqual([404, "notFound"]);
  });

  test.each<[string, object, string]>([
    ["a short password", { password: "short" }, "body.password"],
    ["a common password", { password: "password1234" }, "body.password"],
    ["its name as the password", { password: "zoe.smith.zoe" }, "body.password"],
    ["a role that is none", { role: "root" }, "body.role"],
    ["an address that is none", { email: "zoe" }, "body.email"],
    ["a reserved name", { username: "System" }, "body.username"],
    ["the name of single sign-on's", { username: "sso-1" }, "body.username"],
    ["a name of another fixture", { username: "|directory" }, "body.username"],
    ["a name with a colon", { username: "entra:1:2" }, "body.username"],
    ["a member that is none", { state: "disabled" }, "body.state"],
  ])("are not created with %s", async (_what, change, path) => {
    const answer = await admin("POST", "/auth/users", { username: "zoe.smith", password: PASSWORD, ...change });
    expect([...codeOf(answer), answer.body.errors[0].path]).toEqual([400, "invalidRequest", path]);
    expect(answer.text).not.toContain(PASSWORD);
  });

  test.each(["|directory", "|bootstrap", "%7Cdirectory", "a%2Fb", "..", "x".repeat(2000)])(
    "are not found under %s",
    async (id) => {
      for (const [method, path] of [
        ["GET", `/auth/users/${id}`],
        ["DELETE", `/auth/users/${id}`],
        ["POST", `/auth/users/${id}/unlock`],
      ] as const) {
        expect([404, 405]).toContain((await admin(method, path)).status);
      }
    },
  );

  test("with a password set by an administrator must choose another one before anything else", async () => {
    await admin("POST", "/auth/users", { username: "reset", password: PASSWORD });
    const set = "set by an administrator";
    const made = await admin("POST", "/auth/tokens", { name: "an admin's", role: "admin" });
    const byProgram = await call("PUT", "/auth/users/reset", { token: made.body.token, body: { password: set } });
    expect(codeOf(byProgram)).toEqual([403, "interactiveOnly"]);
    const other = await call("PUT", "/auth/users/reset", { token: made.body.token, body: { role: "operator" } });
    expect(other.body.role).toBe("operator");
    expect((await admin("PUT", "/auth/users/reset", { password: set })).body.mustChangePassword).toBe(true);
    expect(codeOf(await admin("PUT", "/auth/users/admin", { password: set }))).toEqual([409, "conflict"]);

    const held = (await signIn("reset", set)).body.access_token;
    const refused = await call("GET", "/subscriptions", { token: held });
    expect(codeOf(refused)).toEqual([403, "passwordChangeRequired"]);
    expect(refused.body.detail).toContain("POST /auth/password");
    expect(codeOf(await call("POST", "/auth/tokens", { token: held, body: { name: "x" } }))).toEqual([
      403,
      "passwordChangeRequired",
    ]);
    expect((await call("GET", "/auth/me", { token: held })).body.mustChangePassword).toBe(true);
    const change = { currentPassword: set, newPassword: "their own once more" };
    expect((await call("POST", "/auth/password", { token: held, body: change })).status).toBe(200);
    const next = (await signIn("reset", change.newPassword)).body.access_token;
    expect((await call("GET", "/subscriptions", { token: next })).status).toBe(200);
  });

  test("the last administrator with a password can't be removed", async () => {
    for (const [method, body] of [
      ["DELETE", undefined],
      ["PUT", { state: "disabled" }],
      ["PUT", { role: "operator" }],
    ] as const) {
      const answer = await admin(method, "/auth/users/admin", body);
      expect(codeOf(answer)).toEqual([409, "conflict"]);
      expect(answer.body.detail).toContain("last administrator");
    }
  });
});

describe("blocked identities of single sign-on", () => {
  test("identities of deleted users are blocked until an administrator unblocks them", async () => {
    await admin("POST", "/auth/users", { username: "linked", password: PASSWORD });
    const sso = { issuer: "https://idp.example", subject: "1234" };
    expect((await admin("PUT", "/auth/users/linked", { sso })).body.sso).toEqual(sso);
    expect(codeOf(await admin("PUT", "/auth/users/admin", { sso }))).toEqual([409, "conflict"]);
    await admin("DELETE", "/auth/users/linked");
    const { items, total } = (await admin("GET", "/auth/sso/refused")).body;
    expect(items).toMatchObject([{ ...sso, username: "linked", refusedBy: "admin" }]);
    expect(total).toBe(1);
    expect((await admin("DELETE", `/auth/sso/refused/${items[0].id}`)).body).toEqual({ deleted: true });
    expect(codeOf(await admin("DELETE", `/auth/sso/refused/${items[0].id}`))).toEqual([404, "notFound"]);
    expect((await admin("GET", "/auth/sso/refused")).body.items).toEqual([]);
  });
});

describe("API tokens", () => {
  test("are created, shown once, used, listed and revoked", async () => {
    const made = await admin("POST", "/auth/tokens", { name: "nightly", role: "auditor", expires_in_days: 7 });
    expect([made.status, made.headers.get("location")]).toEqual([201, "/auth/tokens?user=admin"]);
    expect(made.body).toMatchObject({
      name: "nightly",
      user: "admin",
      role: "auditor",
      expired: false,
      lastUsedOn: null,
    });
    expect(made.body.token).toMatch(/^clm_[0-9A-Za-z]{50,221}$/);
    expect(Date.parse(made.body.expiresAt) - Date.parse(made.body.createdAt)).toBe(7 * 86_400_000);
    const used = await call("GET", "/audit/entries?event_type=apiToken.created", { token: made.body.token });
    expect(used.body.items[0]).toMatchObject({ actor: "admin", target: { type: "apiToken", id: made.body.id } });
    expect((await call("GET", "/auth/me", { token: made.body.token })).body.id).toBe("admin");
    const listed = (await admin("GET", made.headers.get("location")!)).body.items;
    expect(listed.find(({ id }: { id: string }) => id === made.body.id)).toMatchObject({
      lastUsedOn: expect.stringMatching(/^\d{4}-\d\d-\d\d$/),
    });
    expect(JSON.stringify(listed)).not.toContain(made.body.token);
    expect((await admin("DELETE", `/auth/tokens/${made.body.id}`)).body).toEqual({ deleted: true });
    const after = await call("GET", "/auth/me", { token: made.body.token });
    expect([...codeOf(after), after.headers.get("www-authenticate")]).toEqual([
      401,
      "unauthorized",
      'Bearer error="invalid_token"',
    ]);
    expect(codeOf(await admin("DELETE", `/auth/tokens/${made.body.id}`))).toEqual([404, "notFound"]);
  });

  test.each<[string, object, string]>([
    ["no name", { name: undefined }, "body.name"],
    ["an empty name", { name: "  " }, "body.name"],
    ["no day", { expiresInDays: 0 }, "body.expiresInDays"],
    ["too many days", { expiresInDays: 366 }, "body.expiresInDays"],
    ["half a day", { expiresInDays: 0.5 }, "body.expiresInDays"],
    ["a role that is none", { role: "root" }, "body.role"],
    ["a token of one's own choice", { token: "clm_" }, "body.token"],
  ])("are not created with %s", async (_what, change, path) => {
    const answer = await admin("POST", "/auth/tokens", { name: "one", ...change });
    expect([...codeOf(answer), answer.body.errors[0].path]).toEqual([400, "invalidRequest", path]);
  });
});

test("a call with a session or an API token reads the same rows as one with a token, and writes at most one more", async () => {
  await admin("POST", "/auth/users", { username: "counted", password: PASSWORD });
  const { access_token } = (await signIn("counted", PASSWORD)).body;
  const session = await signIn("counted", PASSWORD, { session: true }, { "Sec-Fetch-Site": "same-origin" });
  const cookie = { Cookie: session.headers.getSetCookie()[0]!.split(";")[0]! };
  const made = await call("POST", "/auth/tokens", { token: access_token, body: { name: "counted" } });
  const asked = async (options: CallOptions) => {
    const { status, tableRequests } = await call("GET", "/compliance/frameworks", options);
    expect(status).toBe(200);
    // The handler's result depends on recent reads of its host.
    return tableRequests().flatMap(({ method, path }) => {
      if (method !== "GET") return ["write"];
      return path.startsWith("Users") ? [path] : [];
    });
  };
  const user = "Users(PartitionKey='user',RowKey='counted')";
  expect(await asked({ token: access_token })).toEqual([user]);
  expect(await asked({ headers: cookie })).toEqual([user]);
  await leaveSessionsUnused(service, "counted", 10 * MINUTE_MS);
  expect(await asked({ headers: cookie })).toEqual([user, "write"]);
  expect(await asked({ headers: cookie })).toEqual([user]);
  expect(await asked({ token: made.body.token })).toEqual([user, "write"]);
});

describe("a browser", () => {
  const site = { "Sec-Fetch-Site": "same-origin" };

  test("signs in with a session, which works like a token, and signs out", async () => {
    const answer = await signIn("admin", ADMIN.password, { session: true }, { ...site, "User-Agent": "Firefox" });
    expect(answer.body.user.id).toBe("admin");
    expect(answer.text).not.toContain("access_token");
    const [set] = answer.headers.getSetCookie();
    expect(set).toMatch(/^__Host-session=[\w.-]+; .*(?=.*HttpOnly)(?=.*Secure)(?=.*SameSite=Lax)(?=.*Path=\/)/i);
    const Cookie = set!.split(";")[0]!;
    const asSession = (method: string, path: string, body?: unknown, headers: Record<string, string> = site) =>
      call(method, path, { body, headers: { Cookie, ...headers } });
    expect((await asSession("GET", "/auth/me", undefined, {})).body.id).toBe("admin");
    expect((await asSession("PUT", "/api/settings/logging", { logLevel: "INFO" })).status).toBe(200);
    for (const headers of [{}, { "Sec-Fetch-Site": "same-site" }, { Origin: "https://elsewhere.example" }]) {
      const refused = await asSession("PUT", "/api/settings/logging", { logLevel: "INFO" }, headers as never);
      expect(codeOf(refused)).toEqual([403, "crossSite"]);
    }
    const { items } = (await asSession("GET", "/auth/sessions")).body;
    expect(items).toMatchObject([{ current: true, userAgent: "Firefox", by: "password" }]);

    const second = await signIn("admin", ADMIN.password, { session: true }, site);
    const other = second.headers.getSetCookie()[0]!.split(";")[0]!;
    const [newest] = (await asSession("GET", "/auth/sessions")).body.items;
    expect((await asSession("DELETE", `/auth/sessions/${newest.id}`)).body).toEqual({ deleted: true });
    expect((await call("GET", "/auth/me", { headers: { Cookie: other } })).status).toBe(401);

    const out = await asSession("POST", "/auth/logout", { everywhere: false });
    expect(out.headers.getSetCookie()[0]).toMatch(/^__Host-session=; .*Max-Age=0/i);
    const after = await asSession("GET", "/auth/me");
    expect([after.status, after.body.detail]).toEqual([401, "Your session has ended. Sign in again."]);
  });

  test("can't start a session from another site or with a wrong password", async () => {
    for (const headers of [{}, { "Sec-Fetch-Site": "cross-site" }, { Origin: "null" }]) {
      const answer = await signIn("admin", ADMIN.password, { session: true }, headers);
      expect([...codeOf(answer), answer.headers.getSetCookie()]).toEqual([403, "crossSite", []]);
    }
    const wrong = await signIn("admin", "wrong", { session: true }, site);
    expect([...codeOf(wrong), wrong.headers.getSetCookie()]).toEqual([401, "invalidCredentials", []]);
  });

  test("signs out everywhere; API tokens are revoked only on request", async () => {
    const held = await makeToken(service, "admin");
    const alone = await call("POST", "/auth/logout", { token: held, body: { apiTokens: true } });
    expect([...codeOf(alone), alone.body.errors[0].path]).toEqual([400, "invalidRequest", "body.apiTokens"]);
    expect((await call("GET", "/auth/me", { token: held })).status).toBe(200);
  });
});
