import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DAY_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { licence } from "../support/licence.ts";
import { ADMIN, type Answer, type CallOptions, Service } from "../support/service.ts";
import { leaveSessionsUnused, makeToken } from "../support/users.ts";

// Tests of users, API tokens and browser sessions over HTTP, on two hosts that share one storage account.

let service: Service;
let token: string;
beforeAll(async () => {
  const env = { TRUSTED_PROXY_HOPS: "2", LICENSE_KEY: await licence() };
  service = await Service.start({ tableProxy: true, hosts: 2, env });
  token = await service.signIn(ADMIN);
});
afterAll(() => service.stop());

const PASSWORD = "a password of their own";
let callCount = 0;
/** Sends each call from a new address, because sign-ins are limited per address, and alternates between the two hosts. */
const call = (method: string, path: string, options: CallOptions = {}): Promise<Answer> =>
  service.call(method, service.hosts[++callCount % 2]!.url + path, {
    ...options,
    headers: { "X-Forwarded-For": `198.51.100.${callCount}`, ...options.headers },
  });
const admin = (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) =>
  call(method, path, { token, body, headers });
const signIn = (username: string, password: string, more: object = {}, headers = {}) =>
  call("POST", "/auth/login", { body: { username, password, ...more }, headers });
const codeOf = ({ status, body }: Answer) => [status, body?.code];

/** Returns the session cookie that a sign-in sets, as the value of a `Cookie` header. */
const cookieOf = (answer: Answer) => answer.headers.getSetCookie()[0]!.split(";")[0]!;

describe("users", () => {
  test("are created, read, listed, changed, unlocked and deleted", async () => {
    const newUser = { username: "Maria", email: "maria@example.com", password: PASSWORD, role: "auditor" };
    const created = await admin("POST", "/auth/users", newUser);
    expect([created.status, created.headers.get("location")]).toEqual([201, "/auth/users/maria"]);
    expect(created.body).toEqual({
      id: "maria",
      username: "Maria",
      email: "maria@example.com",
      role: "auditor",
      source: "local",
      sso: null,
      state: "active",
      mustChangePassword: false,
      lockedUntil: null,
      secondFactorEnrolled: false,
      createdAt: expect.any(String),
      createdBy: "admin",
      updatedAt: created.body.createdAt,
      lastSignInAt: null,
      etag: created.headers.get("etag"),
    });
    expect(codeOf(await admin("POST", "/auth/users", newUser))).toEqual([409, "alreadyExists"]);
    expect((await admin("GET", created.headers.get("location")!)).body).toEqual(created.body);
    const page = (await admin("GET", "/auth/users?limit=1&offset=1")).body;
    expect(page).toMatchObject({ items: [created.body], total: 2, limit: 1, offset: 1, nextCursor: null });

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
      { "If-Match": created.body.etag },
    );
    expect(changed.body).toMatchObject({ role: "user", email: null });
    expect(changed.headers.get("etag")).toBe(changed.body.etag);

    const headers = { "X-Forwarded-For": "203.0.113.9" };
    for (let failure = 0; failure < 5; failure++) await signIn("maria", "wrong", {}, headers);
    expect(codeOf(await signIn("maria", PASSWORD, {}, headers))).toEqual([429, "tooManyAttempts"]);
    const lockedUntil = (await admin("GET", "/auth/users/maria")).body.lockedUntil;
    expect(Date.parse(lockedUntil) - Date.now()).toBeGreaterThan(14 * 60_000);
    expect((await admin("POST", "/auth/users/maria/unlock")).body.lockedUntil).toBeNull();
    expect((await signIn("maria", PASSWORD, {}, headers)).status).toBe(200);

    expect((await admin("DELETE", "/auth/users/maria")).body).toEqual({ deleted: true });
    expect(codeOf(await admin("DELETE", "/auth/users/maria"))).toEqual([404, "notFound"]);
    expect(codeOf(await admin("POST", "/auth/users/maria/unlock"))).toEqual([404, "notFound"]);
  });

  test.each<[string, object, string]>([
    ["a short password", { password: "short" }, "body.password"],
    ["a common password", { password: "password1234" }, "body.password"],
    ["the service's name as a password", { password: "credential-lifecycle" }, "body.password"],
    ["a season and a year as a password", { password: "Summer2026!!!" }, "body.password"],
    ["mustChangePassword as text", { mustChangePassword: "yes" }, "body.mustChangePassword"],
    ["the username in the password", { password: "zoe.smith.zoe" }, "body.password"],
    ["an unknown role", { role: "root" }, "body.role"],
    ["an invalid e-mail address", { email: "zoe" }, "body.email"],
    ["the reserved name of the service", { username: "System" }, "body.username"],
    ["a name that is reserved for single sign-on", { username: "sso-1" }, "body.username"],
    ["the key of an internal row of the users table", { username: "|directory" }, "body.username"],
    ["the form of an Entra user's name", { username: "entra:1:2" }, "body.username"],
    ["an unknown member", { state: "disabled" }, "body.…"],
  ])("are not created with %s", async (_what, change, path) => {
    const answer = await admin("POST", "/auth/users", { username: "zoe.smith", password: PASSWORD, ...change });
    expect([...codeOf(answer), answer.body.errors[0].path]).toEqual([400, "invalidRequest", path]);
    expect(answer.text).not.toContain(PASSWORD);
  });

  // `|directory` and `|bootstrap` are keys of internal rows of the users table.
  test.each(["|directory", "|bootstrap", "%7Cdirectory", "a%2Fb", "..", "x".repeat(2000)])(
    "are not found by the id %s",
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

  test("must change a password that an administrator set before any other call", async () => {
    await admin("POST", "/auth/users", { username: "reset", password: PASSWORD });
    const initialPassword = "set by an administrator";
    // An administrator sets passwords in person. An API token of an administrator can change only other members.
    const apiToken = (await admin("POST", "/auth/tokens", { name: "an admin's", role: "admin" })).body.token;
    const byApiToken = await call("PUT", "/auth/users/reset", { token: apiToken, body: { password: initialPassword } });
    expect(codeOf(byApiToken)).toEqual([403, "interactiveOnly"]);
    const roleChange = await call("PUT", "/auth/users/reset", { token: apiToken, body: { role: "operator" } });
    expect(roleChange.body.role).toBe("operator");
    expect((await admin("PUT", "/auth/users/reset", { password: initialPassword })).body.mustChangePassword).toBe(true);
    expect(codeOf(await admin("PUT", "/auth/users/admin", { password: initialPassword }))).toEqual([409, "conflict"]);

    const restrictedToken = (await signIn("reset", initialPassword)).body.access_token;
    const rejected = await call("GET", "/subscriptions", { token: restrictedToken });
    expect(codeOf(rejected)).toEqual([403, "passwordChangeRequired"]);
    expect(rejected.body.detail).toContain("POST /auth/password");
    expect(codeOf(await call("POST", "/auth/tokens", { token: restrictedToken, body: { name: "x" } }))).toEqual([
      403,
      "passwordChangeRequired",
    ]);
    expect((await call("GET", "/auth/me", { token: restrictedToken })).body.mustChangePassword).toBe(true);
    const change = { currentPassword: initialPassword, newPassword: "their own once more" };
    expect((await call("POST", "/auth/password", { token: restrictedToken, body: change })).status).toBe(200);
    const fullToken = (await signIn("reset", change.newPassword)).body.access_token;
    expect((await call("GET", "/subscriptions", { token: fullToken })).status).toBe(200);
  });

  test("must change their first password if the administrator or the setting says so", async () => {
    const create = async (username: string, more: object = {}): Promise<unknown> =>
      (await admin("POST", "/auth/users", { username, password: PASSWORD, ...more })).body.mustChangePassword;
    expect(await create("first.a", { mustChangePassword: true })).toBe(true);
    const { access_token } = (await signIn("first.a", PASSWORD)).body;
    expect(codeOf(await call("GET", "/subscriptions", { token: access_token }))).toEqual([
      403,
      "passwordChangeRequired",
    ]);
    expect(await create("first.b")).toBe(false);
    expect((await admin("PUT", "/api/settings/features", { requirePasswordChange: true })).status).toBe(200);
    await expect.poll(() => create(`first.c${callCount}`), { timeout: 30_000 }).toBe(true);
    // Members are also accepted in snake_case.
    expect(await create("first.d", { must_change_password: false })).toBe(false);
    await admin("DELETE", "/api/settings/features/requirePasswordChange");
  });

  test("can't be deleted, disabled or demoted if they are the last administrator with a password", async () => {
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
  test("contain the identity of a deleted user until an administrator unblocks it", async () => {
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
  test("are created, used, listed without their secret, and revoked", async () => {
    // Members are also accepted in snake_case.
    const created = await admin("POST", "/auth/tokens", { name: "nightly", role: "auditor", expires_in_days: 7 });
    expect([created.status, created.headers.get("location")]).toEqual([201, "/auth/tokens?user=admin"]);
    expect(created.body).toMatchObject({
      name: "nightly",
      user: "admin",
      role: "auditor",
      expired: false,
      lastUsedOn: null,
    });
    const { id: tokenId, token: apiToken } = created.body;
    expect(apiToken).toMatch(/^clm_[0-9A-Za-z]{50,221}$/);
    expect(Date.parse(created.body.expiresAt) - Date.parse(created.body.createdAt)).toBe(7 * DAY_MS);
    const auditLog = await call("GET", "/audit/entries?event_type=apiToken.created", { token: apiToken });
    expect(auditLog.body.items[0]).toMatchObject({ actor: "admin", target: { type: "apiToken", id: tokenId } });
    expect((await call("GET", "/auth/me", { token: apiToken })).body.id).toBe("admin");
    const listedTokens = (await admin("GET", created.headers.get("location")!)).body.items;
    expect(listedTokens.find(({ id }: { id: string }) => id === tokenId)).toMatchObject({
      lastUsedOn: expect.stringMatching(/^\d{4}-\d\d-\d\d$/),
    });
    expect(JSON.stringify(listedTokens)).not.toContain(apiToken);
    expect((await admin("DELETE", `/auth/tokens/${tokenId}`)).body).toEqual({ deleted: true });
    const afterRevocation = await call("GET", "/auth/me", { token: apiToken });
    expect([...codeOf(afterRevocation), afterRevocation.headers.get("www-authenticate")]).toEqual([
      401,
      "unauthorized",
      'Bearer error="invalid_token"',
    ]);
    expect(codeOf(await admin("DELETE", `/auth/tokens/${tokenId}`))).toEqual([404, "notFound"]);
  });

  test.each<[string, object, string]>([
    ["no name", { name: undefined }, "body.name"],
    ["an empty name", { name: "  " }, "body.name"],
    ["an expiry in 0 days", { expiresInDays: 0 }, "body.expiresInDays"],
    ["an expiry in 366 days", { expiresInDays: 366 }, "body.expiresInDays"],
    ["an expiry in half a day", { expiresInDays: 0.5 }, "body.expiresInDays"],
    ["an unknown role", { role: "root" }, "body.role"],
    ["a token that the caller chose", { token: "clm_" }, "body.token"],
  ])("are not created with %s", async (_what, change, path) => {
    const answer = await admin("POST", "/auth/tokens", { name: "one", ...change });
    expect([...codeOf(answer), answer.body.errors[0].path]).toEqual([400, "invalidRequest", path]);
  });
});

test("a session or an API token costs one read of the user's row per call, and sometimes a write of its last use", async () => {
  await admin("POST", "/auth/users", { username: "counted", password: PASSWORD });
  const { access_token } = (await signIn("counted", PASSWORD)).body;
  const session = await signIn("counted", PASSWORD, { session: true }, { "Sec-Fetch-Site": "same-origin" });
  const cookie = { Cookie: cookieOf(session) };
  const apiToken = (await call("POST", "/auth/tokens", { token: access_token, body: { name: "counted" } })).body.token;
  /** Sends a call, and returns its reads of the users table by path, and `write` for each write. */
  const userRequestsOf = async (options: CallOptions) => {
    const { status, tableRequests } = await call("GET", "/compliance/frameworks", options);
    expect(status).toBe(200);
    // Reads of other tables are left out, because the handler reads them only if its host has no recent copy.
    return tableRequests().flatMap(({ method, path }) => {
      if (method !== "GET") return ["write"];
      return path.startsWith("Users") ? [path] : [];
    });
  };
  const userRow = "Users(PartitionKey='user',RowKey='counted')";
  expect(await userRequestsOf({ token: access_token })).toEqual([userRow]);
  expect(await userRequestsOf({ headers: cookie })).toEqual([userRow]);
  // A use extends a session, with one write, only if the last extension is at least five minutes old.
  await leaveSessionsUnused(service, "counted", 10 * MINUTE_MS);
  // The row is signed and listed, so a write also reads its list.
  const list = expect.stringContaining("|~list|");
  expect(await userRequestsOf({ headers: cookie })).toEqual([userRow, list, "write"]);
  expect(await userRequestsOf({ headers: cookie })).toEqual([userRow]);
  expect(await userRequestsOf({ token: apiToken })).toEqual([userRow, list, "write"]);
});

describe("a browser", () => {
  /** The header that a browser adds to requests of the service's own pages. */
  const SAME_ORIGIN = { "Sec-Fetch-Site": "same-origin" };

  test("signs in to a session, which works like a token, and signs out", async () => {
    const answer = await signIn(
      "admin",
      ADMIN.password,
      { session: true },
      { ...SAME_ORIGIN, "User-Agent": "Firefox" },
    );
    expect(answer.body.user.id).toBe("admin");
    expect(answer.text).not.toContain("access_token");
    const [setCookie] = answer.headers.getSetCookie();
    // All four attributes, in any order.
    expect(setCookie).toMatch(/^__Host-session=[\w.-]+; .*(?=.*HttpOnly)(?=.*Secure)(?=.*SameSite=Lax)(?=.*Path=\/)/i);
    const Cookie = cookieOf(answer);
    const asSession = (method: string, path: string, body?: unknown, headers: Record<string, string> = SAME_ORIGIN) =>
      call(method, path, { body, headers: { Cookie, ...headers } });
    expect((await asSession("GET", "/auth/me", undefined, {})).body.id).toBe("admin");
    expect((await asSession("PUT", "/api/settings/logging", { logLevel: "INFO" })).status).toBe(200);
    for (const headers of [{}, { "Sec-Fetch-Site": "same-site" }, { Origin: "https://elsewhere.example" }]) {
      const crossSite = await asSession("PUT", "/api/settings/logging", { logLevel: "INFO" }, headers as never);
      expect(codeOf(crossSite)).toEqual([403, "crossSite"]);
    }
    const { items } = (await asSession("GET", "/auth/sessions")).body;
    expect(items).toMatchObject([{ current: true, userAgent: "Firefox", by: "password" }]);

    const secondSession = cookieOf(await signIn("admin", ADMIN.password, { session: true }, SAME_ORIGIN));
    const [newestSession] = (await asSession("GET", "/auth/sessions")).body.items;
    expect((await asSession("DELETE", `/auth/sessions/${newestSession.id}`)).body).toEqual({ deleted: true });
    expect((await call("GET", "/auth/me", { headers: { Cookie: secondSession } })).status).toBe(401);

    const signOut = await asSession("POST", "/auth/logout", { everywhere: false });
    expect(signOut.headers.getSetCookie()[0]).toMatch(/^__Host-session=; .*Max-Age=0/i);
    const afterSignOut = await asSession("GET", "/auth/me");
    expect([afterSignOut.status, afterSignOut.body.detail]).toEqual([401, "Your session has ended. Sign in again."]);
  });

  test("can't start a session from another site or with a wrong password", async () => {
    for (const headers of [{}, { "Sec-Fetch-Site": "cross-site" }, { Origin: "null" }]) {
      const answer = await signIn("admin", ADMIN.password, { session: true }, headers);
      expect([...codeOf(answer), answer.headers.getSetCookie()]).toEqual([403, "crossSite", []]);
    }
    const wrongPassword = await signIn("admin", "wrong", { session: true }, SAME_ORIGIN);
    expect([...codeOf(wrongPassword), wrongPassword.headers.getSetCookie()]).toEqual([401, "invalidCredentials", []]);
  });

  test("can't revoke its API tokens without signing out everywhere", async () => {
    const token = await makeToken(service, "admin");
    const answer = await call("POST", "/auth/logout", { token, body: { apiTokens: true } });
    expect([...codeOf(answer), answer.body.errors[0].path]).toEqual([400, "invalidRequest", "body.apiTokens"]);
    expect((await call("GET", "/auth/me", { token })).status).toBe(200);
  });
});
