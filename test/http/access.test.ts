import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { declarations } from "../../functions/functions.ts";
import { ROLES } from "../../shared/platform/http/endpoint.ts";
import { licence, proClaims } from "../support/licence.ts";
import { tableUnder } from "../support/markdown-table.ts";
import { ADMIN, type Answer, type CallOptions, Service } from "../support/service.ts";
import { createUsers, makeToken, signingKey } from "../support/users.ts";

const { endpoints } = await declarations();

const PASSWORD = "a password of their own";

let service: Service;
beforeAll(async () => {
  // Clients of these tests choose their addresses, as if another trusted proxy preceded the service.
  service = await Service.start({ hosts: 2, env: { TRUSTED_PROXY_HOPS: "2" } });
  await service.signIn(ADMIN);
  const others = ["user", "victim", "mover", "changer"].map((username) => ({ username, role: "user" as const }));
  const special = (["auditor", "operator"] as const).map((role) => ({ username: role, role }));
  const users = [...others, ...special];
  await createUsers(
    service,
    users.map((user) => ({ ...user, password: PASSWORD })),
  );
});
afterAll(() => service.stop());

let clients = 0;
const anAddress = () => `198.51.100.${++clients}`;

const signIn = (username: unknown, password: unknown, address = anAddress(), host = service.url): Promise<Answer> =>
  service.call("POST", `${host}/auth/login`, {
    body: { username, password },
    headers: { "X-Forwarded-For": address },
  });
const tokenOf = async (username: string, host = service.url): Promise<string> => {
  const answer = await signIn(username, PASSWORD, anAddress(), host);
  expect(answer.status).toBe(200);
  return answer.body.access_token;
};
/** Returns whether the token is accepted on every host. */
const holds = async (token: string): Promise<boolean[]> =>
  (await Promise.all(service.hosts.map(({ url }) => service.call("GET", `${url}/auth/me`, { token })))).map(
    ({ status }) => status === 200,
  );

describe("signing in", () => {
  test("returns a token for an hour with the user's name and role", async () => {
    const answer = await signIn("USER", PASSWORD);
    expect(answer.body).toEqual({ access_token: expect.any(String), token_type: "bearer", expires_in: 3600 });
    const me = await service.call("GET", "/auth/me", { token: answer.body.access_token });
    expect(me.body).toMatchObject({ id: "user", username: "user", role: "user", state: "active", createdBy: "system" });
    expect(Object.keys(me.body).join()).not.toMatch(/passwordHash|token/i);
  });

  test("answers an unknown user like a wrong password", async () => {
    const [wrong, unknown] = [await signIn("user", "wrong password"), await signIn("nobody", "wrong password")];
    const shown = ({ status, headers, body }: Answer) => ({
      status,
      authenticate: headers.get("www-authenticate"),
      names: [...headers.keys()],
      body: { ...body, instance: "" },
    });
    expect(wrong.body.code).toBe("invalidCredentials");
    expect(shown(unknown)).toEqual(shown(wrong));
  });

  test.each([
    ["no username", { password: "x" }],
    ["no password", { username: "x" }],
    ["an empty password", { username: "x", password: "" }],
    ["a number", { username: 1, password: "x" }],
    ["an array for a name", { username: ["user"], password: PASSWORD }],
    ["a name of 257 characters", { username: "x".repeat(257), password: "x" }],
    ["one thing too many", { username: "user", password: PASSWORD, role: "admin" }],
  ])("with %s is malformed", async (_what, body) => {
    const answer = await service.call("POST", "/auth/login", { body, headers: { "X-Forwarded-For": anAddress() } });
    expect([answer.status, answer.body.code]).toEqual([400, "invalidRequest"]);
    expect(answer.text).not.toContain(PASSWORD);
  });

  test.each(["user' or '1'='1", "us\u0000er", "|bootstrap", "ADMIN\n🔑"])(
    "as %j is answered like a wrong username",
    async (username) => {
      expect((await signIn(username, PASSWORD)).body.code).toBe("invalidCredentials");
    },
  );

  test("is blocked after five failures for this username and address only, and tokens stay valid", async () => {
    const [attacker, elsewhere] = [anAddress(), anAddress()];
    const token = await tokenOf("victim");
    for (let failure = 0; failure < 5; failure++) {
      // On either host: both count together.
      const answer = await signIn("victim", "wrong password", attacker, service.hosts[failure % 2]!.url);
      expect(answer.body.code).toBe("invalidCredentials");
    }
    for (const { url } of service.hosts) {
      const refused = await signIn("victim", PASSWORD, attacker, url);
      expect([refused.status, refused.body.code]).toEqual([429, "tooManyAttempts"]);
      expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(600);
      expect(Number(refused.headers.get("retry-after"))).toBeLessThanOrEqual(900);
    }
    expect((await signIn("victim", PASSWORD, elsewhere)).status).toBe(200);
    expect((await signIn("user", PASSWORD, attacker)).status).toBe(200);
    expect(await holds(token)).toEqual([true, true]);
  });

  test("is also blocked after five failures of a user who does not exist", async () => {
    const address = anAddress();
    const answers = [];
    for (let failure = 0; failure < 6; failure++) answers.push((await signIn("no-such-user", "x", address)).status);
    expect(answers).toEqual([401, 401, 401, 401, 401, 429]);
  });

  test("is limited to ten calls a minute per address, for any username and any header", async () => {
    const headers = { "X-Forwarded-For": anAddress() };
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, index) =>
        service.call("POST", `${service.hosts[index % 2]!.url}/auth/login`, { body: {}, headers }),
      ),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([...Array.from({ length: 10 }, () => 400), 429, 429]);
    const refused = answers.filter(({ status }) => status === 429);
    for (const answer of refused) expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(0);
  });
});

describe("a token", () => {
  test("is revoked by signing out, on every host at once, and other tokens are not", async () => {
    const [one, other] = [await tokenOf("mover"), await tokenOf("mover", service.hosts[1]!.url)];
    expect([await holds(one), await holds(other)]).toEqual([
      [true, true],
      [true, true],
    ]);
    const answer = await service.call("POST", `${service.hosts[1]!.url}/auth/logout`, { token: one });
    expect(answer.body).toEqual({ signedOut: true });
    expect([await holds(one), await holds(other)]).toEqual([
      [false, false],
      [true, true],
    ]);
  });

  test("is revoked by a password change, with all tokens of the user", async () => {
    const tokens = [await tokenOf("changer"), await tokenOf("changer", service.hosts[1]!.url)];
    const next = "an entirely new password";
    const change = (currentPassword: string, newPassword: string) =>
      service.call("POST", "/auth/password", { token: tokens[0], body: { currentPassword, newPassword } });
    expect((await change("not the password", next)).body.errors[0].path).toBe("body.currentPassword");
    expect((await change(PASSWORD, "short")).body.errors[0].path).toBe("body.newPassword");
    expect((await change(PASSWORD, PASSWORD)).body.errors[0].path).toBe("body.newPassword");
    expect(await holds(tokens[1]!)).toEqual([true, true]);

    expect((await change(PASSWORD, next)).body).toEqual({ passwordChanged: true });
    for (const token of tokens) expect(await holds(token)).toEqual([false, false]);
    expect((await signIn("changer", PASSWORD)).status).toBe(401);
    expect((await signIn("changer", next)).status).toBe(200);
  });

  test("with the service's own format is accepted (the control for the tests below)", async () => {
    expect(await holds(await makeToken(service, "user"))).toEqual([true, true]);
  });

  const now = Date.now() / 1000;
  const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const parts = async () => (await makeToken(service, "user")).split(".") as [string, string, string];
  test.each<[string, () => Promise<string>]>([
    ["is signed with another key", () => makeToken(service, "user", { key: randomBytes(32) })],
    ["is signed with no key's bytes", () => makeToken(service, "user", { key: Buffer.alloc(32) })],
    ["names an unknown key", () => makeToken(service, "user", { header: { kid: "other" } })],
    ["names no key", () => makeToken(service, "user", { header: { kid: undefined } })],
    ["names a key that every object has", () => makeToken(service, "user", { header: { kid: "__proto__" } })],
    [
      "brings a key along",
      () => makeToken(service, "user", { header: { jwk: { kty: "oct", k: "AAAA" } }, key: Buffer.alloc(32) }),
    ],
    [
      "wants an extension understood",
      () => makeToken(service, "user", { header: { crit: ["x"], x: 1 } }).catch(() => "a.b.c"),
    ],
    [
      "has another algorithm",
      async () =>
        makeToken(service, "user", {
          header: { alg: "HS512" },
          key: Buffer.concat([signingKey(service.environment.JWT_SIGNING_KEYS!).key, Buffer.alloc(32)]),
        }),
    ],
    ["has no algorithm", async () => `${encoded({ alg: "none", kid: "test", typ: "JWT" })}.${(await parts())[1]}.`],
    [
      "says none of its algorithm and keeps a signature",
      async () => [encoded({ alg: "none", kid: "test" }), ...(await parts()).slice(1)].join("."),
    ],
    ["has no signature", async () => `${(await parts()).slice(0, 2).join(".")}.`],
    [
      "says another name than was signed",
      async () => {
        const [header, payload, signature] = await parts();
        const claims = JSON.parse(Buffer.from(payload, "base64url").toString());
        return [header, encoded({ ...claims, sub: "admin" }), signature].join(".");
      },
    ],
    ["is for another service", () => makeToken(service, "user", { claims: { aud: "another" } })],
    ["is from another service", () => makeToken(service, "user", { claims: { iss: "another" } })],
    ["has expired", () => makeToken(service, "user", { claims: { iat: now - 7200, exp: now - 3600 } })],
    ["never expires", () => makeToken(service, "user", { claims: { exp: undefined } })],
    ["is not valid yet", () => makeToken(service, "user", { claims: { nbf: now + 600 } })],
    ["was issued before the user was made", () => makeToken(service, "user", { claims: { iat: now - 600 } })],
    ["is somebody's who does not exist", () => makeToken(service, "nobody")],
    ["is a row's that is no user", () => makeToken(service, "|directory")],
    ["has no id to revoke", () => makeToken(service, "user", { claims: { jti: undefined } })],
    ["is not one", async () => "a.b.c"],
  ])("with %s is rejected", async (_what, make) => {
    const answer = await service.call("GET", "/auth/me", { token: await make() });
    expect([answer.status, answer.body.code]).toEqual([401, "unauthorized"]);
  });

  test("stays valid after a change of the signing key while the old key is listed", async () => {
    const old = service.environment.JWT_SIGNING_KEYS!;
    const next = `next:${randomBytes(32).toString("base64")}`;
    const token = await makeToken(service, "user");
    const [both, nextOnly] = await Promise.all([
      service.addHost({ JWT_SIGNING_KEYS: `${next},${old}` }),
      service.addHost({ JWT_SIGNING_KEYS: next }),
    ]);
    service.hosts.splice(2);
    try {
      const me = async (url: string, bearer: string) =>
        (await service.call("GET", `${url}/auth/me`, { token: bearer })).status;
      const signedAnew = await tokenOf("user", both.url);
      expect(JSON.parse(Buffer.from(signedAnew.split(".")[0]!, "base64url").toString()).kid).toBe("next");
      expect([await me(both.url, token), await me(both.url, signedAnew)]).toEqual([200, 200]);
      expect([await me(nextOnly.url, token), await me(nextOnly.url, signedAnew)]).toEqual([401, 200]);
    } finally {
      await Promise.all([both.stop("SIGKILL"), nextOnly.stop("SIGKILL")]);
    }
  });
});

describe("roles", () => {
  const table = tableUnder("docs/roles-matrix.md", "## Endpoints");
  /** One row of each kind. test/http/roles.test.ts checks all combinations without HTTP. */
  const SAMPLE = [
    "GET /system/license/status",
    "GET /subscriptions",
    "GET /audit/entries",
    "POST /alerts/snoozes",
    "PUT /api/settings/logging",
    "POST /auth/tokens",
    "GET /auth/users",
  ];
  const sameOrigin = { "Sec-Fetch-Site": "same-origin" };
  const callers: { who: string; role: string; program: boolean; options: CallOptions }[] = [];

  beforeAll(async () => {
    callers.push({ who: "nobody", role: "nobody", program: false, options: {} });
    const admin = await makeToken(service, "admin");
    for (const role of ROLES) {
      const token = await makeToken(service, role);
      callers.push({ who: `the token of ${role}`, role, program: false, options: { token } });
      const made = await service.call("POST", "/auth/tokens", { token: admin, body: { name: role, role } });
      callers.push({ who: `API token ${role}`, role, program: true, options: { token: made.body.token } });
    }
    const answer = await service.call("POST", "/auth/login", {
      body: { ...ADMIN, session: true },
      headers: { ...sameOrigin, "X-Forwarded-For": anAddress() },
    });
    const cookie = answer.headers.getSetCookie()[0]!.split(";")[0]!;
    const headers = { ...sameOrigin, Cookie: cookie };
    callers.push({ who: "the session of admin", role: "admin", program: false, options: { headers } });
  });

  test.each(SAMPLE)("%s can be called by the callers that docs/roles-matrix.md names", async (id) => {
    const line = table.find((one) => one.endpoint === id)!;
    const [method, path] = id.split(" ") as [string, string];
    for (const { who, role, program, options } of callers) {
      const answer = await service.call(method, path, {
        ...options,
        // An authorized caller gets a 400, and nothing changes.
        ...(method === "GET" ? {} : { body: { "no such member": true } }),
        headers: { "X-Forwarded-For": anAddress(), ...options.headers },
      });
      const code = answer.body?.code;
      if (role === "nobody" && line.nobody !== "yes") {
        expect([who, answer.status, code]).toEqual([who, 401, "unauthorized"]);
      } else if (line[role] !== "yes") {
        expect([who, answer.status, code]).toEqual([who, 403, "forbidden"]);
        expect(answer.body.detail).toContain(`needs the role ${answer.body.requiredRole}`);
      } else if (program && line.programs !== "yes") {
        expect([who, answer.status, code]).toEqual([who, 403, "interactiveOnly"]);
      } else if (line["without license"] !== "yes") {
        expect([who, answer.status, code, answer.body.requiredTier]).toEqual([who, 403, "licenseRequired", "pro"]);
      } else {
        expect([who, answer.status]).toEqual([who, method === "GET" ? 200 : 400]);
      }
    }
  });
});

/** Without HTTP, test/licensing covers invalid licenses. */
describe("the license", () => {
  const [TENANT, OTHER] = ["11111111-2222-4333-8444-555555555555", "99999999-2222-4333-8444-555555555555"];
  const pro = { tier: "pro", valid: true };
  const core = { tier: "core", valid: false, features: expect.not.arrayContaining(["rotation"]) };
  test.each<[string, () => Promise<string>, object]>([
    [
      "for this tenant opens PRO",
      () => licence(proClaims(30, { tenantId: TENANT })),
      { ...pro, reason: null, inGrace: false, daysLeft: 30, features: expect.arrayContaining(["rotation", "users"]) },
    ],
    [
      "for another tenant opens nothing",
      () => licence(proClaims(30, { tenantId: OTHER })),
      { ...core, reason: "wrongTenant" },
    ],
    [
      "that expired 13 days ago still opens PRO",
      () => licence(proClaims(-13)),
      { ...pro, reason: "expired", inGrace: true },
    ],
  ])("%s", async (_what, make, expected) => {
    const text = await make();
    const host = await service.addHost({ LICENSE_KEY: text, AZURE_TENANT_ID: TENANT });
    service.hosts.splice(2);
    try {
      const answer = await service.call("GET", `${host.url}/system/license/status`);
      expect(answer.body).toMatchObject(expected);
      expect(answer.text).not.toContain("Acme");
      const endpoint = endpoints.find(
        ({ tier, method, access }) => tier === "pro" && method === "GET" && access !== "open",
      );
      const guarded = await service.call("GET", `${host.url}/${endpoint!.route.replaceAll(/\{\w+\}/g, "none")}`, {
        token: await makeToken(service, "admin"),
      });
      expect(guarded.body.code === "licenseRequired").toBe(answer.body.tier === "core");
    } finally {
      await host.stop("SIGKILL");
    }
  });

  test("without a license, core endpoints stay available and the status says so", async () => {
    const { body } = await service.call("GET", "/system/license/status");
    expect(body).toMatchObject({ ...core, reason: "missing", expiresAt: null, daysLeft: null });
  });
});

test("a changed BOOTSTRAP_ADMIN_PASSWORD resets the password at the next start and revokes the administrator's tokens", async () => {
  const own = await Service.start();
  try {
    const token = await own.signIn(ADMIN);
    const changed = await own.call("POST", "/auth/password", {
      token,
      body: { currentPassword: ADMIN.password, newPassword: "set by an intruder" },
    });
    expect(changed.status).toBe(200);
    const intruder = await own.signIn({ username: ADMIN.username, password: "set by an intruder" });

    // The same environment again resets nothing.
    await own.hosts.pop()!.stop("SIGKILL");
    await own.addHost();
    expect((await own.call("GET", "/auth/me", { token: intruder })).status).toBe(200);

    const next = { username: ADMIN.username, password: "break the glass, please" };
    await own.hosts.pop()!.stop("SIGKILL");
    const host = await own.addHost({ BOOTSTRAP_ADMIN_PASSWORD: next.password });
    expect((await own.call("GET", "/auth/me", { token: intruder })).status).toBe(401);
    const back = await own.signIn(next);
    expect((await own.call("GET", "/auth/me", { token: back })).body).toMatchObject({
      username: "admin",
      role: "admin",
    });
    expect((await own.call("POST", "/auth/login", { body: { ...next, password: "set by an intruder" } })).status).toBe(
      401,
    );
    expect(host.lines.join("\n")).toContain("Reset the bootstrap administrator");
    expect(host.lines.join("\n")).not.toContain(next.password);
  } finally {
    await own.stop();
  }
});
