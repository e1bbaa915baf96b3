import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { declarations } from "../../functions/functions.ts";
import { ROLES } from "../../shared/platform/http/endpoint.ts";
import { licence, proClaims } from "../support/licence.ts";
import { tableUnder } from "../support/markdown-table.ts";
import { ADMIN, type Answer, type CallOptions, Service } from "../support/service.ts";
import { createUsers, makeToken, signingKey } from "../support/users.ts";

// Tests of sign-in, tokens, roles and the license over HTTP, on two hosts that share one storage account.

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

let addressCount = 0;
/** Returns a client address that no call has used yet, because sign-ins are limited per address. */
const newAddress = () => `198.51.100.${++addressCount}`;

const signIn = (username: unknown, password: unknown, address = newAddress(), host = service.url): Promise<Answer> =>
  service.call("POST", `${host}/auth/login`, {
    body: { username, password },
    headers: { "X-Forwarded-For": address },
  });
const tokenOf = async (username: string, host = service.url): Promise<string> => {
  const answer = await signIn(username, PASSWORD, newAddress(), host);
  expect(answer.status).toBe(200);
  return answer.body.access_token;
};
/** Returns for each host whether it accepts the token. */
const acceptedByHosts = async (token: string): Promise<boolean[]> =>
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
    /** Everything in the answer that a client could tell apart. The request id (`instance`) differs in any case. */
    const visibleParts = ({ status, headers, body }: Answer) => ({
      status,
      authenticate: headers.get("www-authenticate"),
      names: [...headers.keys()],
      body: { ...body, instance: "" },
    });
    expect(wrong.body.code).toBe("invalidCredentials");
    expect(visibleParts(unknown)).toEqual(visibleParts(wrong));
  });

  test.each([
    ["no username", { password: "x" }],
    ["no password", { username: "x" }],
    ["an empty password", { username: "x", password: "" }],
    ["a number as username", { username: 1, password: "x" }],
    ["an array as username", { username: ["user"], password: PASSWORD }],
    ["a username of 257 characters", { username: "x".repeat(257), password: "x" }],
    ["an unknown member", { username: "user", password: PASSWORD, role: "admin" }],
  ])("with %s is rejected as invalid", async (_what, body) => {
    const answer = await service.call("POST", "/auth/login", { body, headers: { "X-Forwarded-For": newAddress() } });
    expect([answer.status, answer.body.code]).toEqual([400, "invalidRequest"]);
    expect(answer.text).not.toContain(PASSWORD);
  });

  test.each(["/auth/login", "/auth/password"])("to %s, a password as a field's name is not repeated", async (path) => {
    const typed = "Planted-Password_7";
    const headers = { "X-Forwarded-For": newAddress() };
    const answer = await service.call("POST", path, {
      token: await tokenOf("user"),
      body: { username: "user", [typed]: "" },
      headers,
    });
    expect([answer.status, answer.body.code]).toEqual([400, "invalidRequest"]);
    expect(answer.body.errors).toContainEqual({ path: "body.…", message: expect.stringContaining("not a member") });
    expect(answer.text).not.toContain(typed);
  });

  test("a form with a password as the name of two fields does not get it back", async () => {
    const typed = "Planted-Password_7";
    const answer = await service.call("POST", "/auth/login", {
      body: `username=user&${typed}=&${typed}=`,
      headers: { "Content-Type": "application/x-www-form-urlencoded", "X-Forwarded-For": newAddress() },
    });
    expect([answer.status, answer.body.code]).toEqual([400, "invalidRequest"]);
    expect(answer.text).not.toContain(typed);
  });

  // Filter syntax, a NUL, the key of an internal row of the users table, and a line break.
  test.each(["user' or '1'='1", "us\u0000er", "|bootstrap", "ADMIN\n🔑"])(
    "with the username %j is answered like any unknown username",
    async (username) => {
      expect((await signIn(username, PASSWORD)).body.code).toBe("invalidCredentials");
    },
  );

  test("is blocked after five failures for this username and address, and existing tokens stay valid", async () => {
    const [attacker, elsewhere] = [newAddress(), newAddress()];
    const token = await tokenOf("victim");
    for (let failure = 0; failure < 5; failure++) {
      // The hosts alternate. Failures on both count together.
      const answer = await signIn("victim", "wrong password", attacker, service.hosts[failure % 2]!.url);
      expect(answer.body.code).toBe("invalidCredentials");
    }
    for (const { url } of service.hosts) {
      const rejected = await signIn("victim", PASSWORD, attacker, url);
      expect([rejected.status, rejected.body.code]).toEqual([429, "tooManyAttempts"]);
      // The block lasts 15 minutes (900 seconds).
      expect(Number(rejected.headers.get("retry-after"))).toBeGreaterThan(600);
      expect(Number(rejected.headers.get("retry-after"))).toBeLessThanOrEqual(900);
    }
    expect((await signIn("victim", PASSWORD, elsewhere)).status).toBe(200);
    expect((await signIn("user", PASSWORD, attacker)).status).toBe(200);
    expect(await acceptedByHosts(token)).toEqual([true, true]);
  });

  test("is also blocked after five failures of a username that does not exist", async () => {
    const address = newAddress();
    const statuses = [];
    for (let failure = 0; failure < 6; failure++) statuses.push((await signIn("no-such-user", "x", address)).status);
    expect(statuses).toEqual([401, 401, 401, 401, 401, 429]);
  });

  test("is limited to ten calls a minute per address, over both hosts", async () => {
    const headers = { "X-Forwarded-For": newAddress() };
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, index) =>
        service.call("POST", `${service.hosts[index % 2]!.url}/auth/login`, { body: {}, headers }),
      ),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([...Array.from({ length: 10 }, () => 400), 429, 429]);
    const rejected = answers.filter(({ status }) => status === 429);
    for (const answer of rejected) expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(0);
  });
});

describe("a token", () => {
  test("is revoked on every host by signing out, and the user's other token is not", async () => {
    const [signedOut, other] = [await tokenOf("mover"), await tokenOf("mover", service.hosts[1]!.url)];
    expect([await acceptedByHosts(signedOut), await acceptedByHosts(other)]).toEqual([
      [true, true],
      [true, true],
    ]);
    const answer = await service.call("POST", `${service.hosts[1]!.url}/auth/logout`, { token: signedOut });
    expect(answer.body).toEqual({ signedOut: true });
    expect([await acceptedByHosts(signedOut), await acceptedByHosts(other)]).toEqual([
      [false, false],
      [true, true],
    ]);
  });

  test("is revoked by a change of the password, like all tokens of the user", async () => {
    const tokens = [await tokenOf("changer"), await tokenOf("changer", service.hosts[1]!.url)];
    const newPassword = "an entirely new password";
    const change = (currentPassword: string, newPassword: string) =>
      service.call("POST", "/auth/password", { token: tokens[0], body: { currentPassword, newPassword } });
    expect((await change("not the password", newPassword)).body.errors[0].path).toBe("body.currentPassword");
    expect((await change(PASSWORD, "short")).body.errors[0].path).toBe("body.newPassword");
    expect((await change(PASSWORD, PASSWORD)).body.errors[0].path).toBe("body.newPassword");
    expect(await acceptedByHosts(tokens[1]!)).toEqual([true, true]);

    expect((await change(PASSWORD, newPassword)).body).toEqual({ passwordChanged: true });
    for (const token of tokens) expect(await acceptedByHosts(token)).toEqual([false, false]);
    expect((await signIn("changer", PASSWORD)).status).toBe(401);
    expect((await signIn("changer", newPassword)).status).toBe(200);
  });

  test("from `makeToken` is accepted if nothing in it is changed, as a control of the tests below", async () => {
    expect(await acceptedByHosts(await makeToken(service, "user"))).toEqual([true, true]);
  });

  const nowSeconds = Date.now() / 1000;
  const toBase64UrlJson = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const validParts = async () => (await makeToken(service, "user")).split(".") as [string, string, string];
  test.each<[string, () => Promise<string>]>([
    ["a signature of another key", () => makeToken(service, "user", { key: randomBytes(32) })],
    ["a signature of a key of zeros", () => makeToken(service, "user", { key: Buffer.alloc(32) })],
    ["an unknown key id", () => makeToken(service, "user", { header: { kid: "other" } })],
    ["no key id", () => makeToken(service, "user", { header: { kid: undefined } })],
    ["the key id __proto__", () => makeToken(service, "user", { header: { kid: "__proto__" } })],
    [
      "the verification key in its header",
      () => makeToken(service, "user", { header: { jwk: { kty: "oct", k: "AAAA" } }, key: Buffer.alloc(32) }),
    ],
    [
      // If the signing library refuses to create such a token, an invalid token takes its place.
      "an unknown critical extension",
      () => makeToken(service, "user", { header: { crit: ["x"], x: 1 } }).catch(() => "a.b.c"),
    ],
    [
      "the algorithm HS512",
      async () =>
        makeToken(service, "user", {
          header: { alg: "HS512" },
          key: Buffer.concat([signingKey(service.environment.JWT_SIGNING_KEYS!).key, Buffer.alloc(32)]),
        }),
    ],
    [
      "the algorithm none and no signature",
      async () => `${toBase64UrlJson({ alg: "none", kid: "test", typ: "JWT" })}.${(await validParts())[1]}.`,
    ],
    [
      "the algorithm none and a signature",
      async () => [toBase64UrlJson({ alg: "none", kid: "test" }), ...(await validParts()).slice(1)].join("."),
    ],
    ["no signature", async () => `${(await validParts()).slice(0, 2).join(".")}.`],
    [
      "a username that was changed after signing",
      async () => {
        const [header, payload, signature] = await validParts();
        const claims = JSON.parse(Buffer.from(payload, "base64url").toString());
        return [header, toBase64UrlJson({ ...claims, sub: "admin" }), signature].join(".");
      },
    ],
    ["another audience", () => makeToken(service, "user", { claims: { aud: "another" } })],
    ["another issuer", () => makeToken(service, "user", { claims: { iss: "another" } })],
    [
      "an expiry in the past",
      () => makeToken(service, "user", { claims: { iat: nowSeconds - 7200, exp: nowSeconds - 3600 } }),
    ],
    ["no expiry", () => makeToken(service, "user", { claims: { exp: undefined } })],
    ["a start in the future", () => makeToken(service, "user", { claims: { nbf: nowSeconds + 600 } })],
    [
      "an issue time before its user was created",
      () => makeToken(service, "user", { claims: { iat: nowSeconds - 600 } }),
    ],
    ["a user who does not exist", () => makeToken(service, "nobody")],
    ["the key of an internal row of the users table", () => makeToken(service, "|directory")],
    ["no token id", () => makeToken(service, "user", { claims: { jti: undefined } })],
    ["parts that are no JSON", async () => "a.b.c"],
  ])("with %s is rejected", async (_what, createInvalidToken) => {
    const answer = await service.call("GET", "/auth/me", { token: await createInvalidToken() });
    expect([answer.status, answer.body.code]).toEqual([401, "unauthorized"]);
  });

  test("stays valid after a change of the signing key while the old key is listed", async () => {
    const oldKeys = service.environment.JWT_SIGNING_KEYS!;
    const newKey = `next:${randomBytes(32).toString("base64")}`;
    const tokenOfOldKey = await makeToken(service, "user");
    const [hostWithBothKeys, hostWithNewKey] = await Promise.all([
      service.addHost({ JWT_SIGNING_KEYS: `${newKey},${oldKeys}` }),
      service.addHost({ JWT_SIGNING_KEYS: newKey }),
    ]);
    // Other tests use only the first two hosts.
    service.hosts.splice(2);
    try {
      const statusOf = async (host: { url: string }, token: string) =>
        (await service.call("GET", `${host.url}/auth/me`, { token })).status;
      const tokenOfNewKey = await tokenOf("user", hostWithBothKeys.url);
      expect(JSON.parse(Buffer.from(tokenOfNewKey.split(".")[0]!, "base64url").toString()).kid).toBe("next");
      expect(await statusOf(hostWithBothKeys, tokenOfOldKey)).toBe(200);
      expect(await statusOf(hostWithBothKeys, tokenOfNewKey)).toBe(200);
      expect(await statusOf(hostWithNewKey, tokenOfOldKey)).toBe(401);
      expect(await statusOf(hostWithNewKey, tokenOfNewKey)).toBe(200);
    } finally {
      await Promise.all([hostWithBothKeys.stop("SIGKILL"), hostWithNewKey.stop("SIGKILL")]);
    }
  });
});

describe("roles", () => {
  const rolesMatrix = tableUnder("docs/roles-matrix.md", "## Endpoints");
  /** One endpoint of each combination of access and tier. test/http/roles.test.ts checks all endpoints without HTTP. */
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
  /** The tested callers. `program` is true for an API token: some endpoints accept only a person who signed in. */
  const callers: { who: string; role: string; program: boolean; options: CallOptions }[] = [];

  beforeAll(async () => {
    callers.push({ who: "nobody", role: "nobody", program: false, options: {} });
    const admin = await makeToken(service, "admin");
    for (const role of ROLES) {
      const token = await makeToken(service, role);
      callers.push({ who: `the token of ${role}`, role, program: false, options: { token } });
      const createdToken = await service.call("POST", "/auth/tokens", { token: admin, body: { name: role, role } });
      callers.push({ who: `API token ${role}`, role, program: true, options: { token: createdToken.body.token } });
    }
    const answer = await service.call("POST", "/auth/login", {
      body: { ...ADMIN, session: true },
      headers: { ...sameOrigin, "X-Forwarded-For": newAddress() },
    });
    const cookie = answer.headers.getSetCookie()[0]!.split(";")[0]!;
    const headers = { ...sameOrigin, Cookie: cookie };
    callers.push({ who: "the session of admin", role: "admin", program: false, options: { headers } });
  });

  test.each(SAMPLE)("%s can be called by the callers that docs/roles-matrix.md names", async (id) => {
    const matrixRow = rolesMatrix.find(({ endpoint }) => endpoint === id)!;
    const [method, path] = id.split(" ") as [string, string];
    for (const { who, role, program, options } of callers) {
      const answer = await service.call(method, path, {
        ...options,
        // An authorized caller gets a 400 for this body, so the calls change nothing.
        ...(method === "GET" ? {} : { body: { "no such member": true } }),
        headers: { "X-Forwarded-For": newAddress(), ...options.headers },
      });
      const code = answer.body?.code;
      if (role === "nobody" && matrixRow.nobody !== "yes") {
        expect([who, answer.status, code]).toEqual([who, 401, "unauthorized"]);
      } else if (matrixRow[role] !== "yes") {
        expect([who, answer.status, code]).toEqual([who, 403, "forbidden"]);
        expect(answer.body.detail).toContain(`needs the role ${answer.body.requiredRole}`);
      } else if (program && matrixRow.programs !== "yes") {
        expect([who, answer.status, code]).toEqual([who, 403, "interactiveOnly"]);
      } else if (matrixRow["without license"] !== "yes") {
        expect([who, answer.status, code, answer.body.requiredTier]).toEqual([who, 403, "licenseRequired", "pro"]);
      } else {
        expect([who, answer.status]).toEqual([who, method === "GET" ? 200 : 400]);
      }
    }
  });
});

/** test/licensing covers all other licenses without HTTP. */
describe("the license", () => {
  const [TENANT, OTHER_TENANT] = ["11111111-2222-4333-8444-555555555555", "99999999-2222-4333-8444-555555555555"];
  const pro = { tier: "pro", valid: true };
  const core = { tier: "core", valid: false, features: expect.not.arrayContaining(["rotation"]) };
  test.each<[string, () => Promise<string>, object]>([
    [
      "for this tenant makes PRO endpoints available",
      () => licence(proClaims(30, { tenantId: TENANT })),
      { ...pro, reason: null, inGrace: false, daysLeft: 30, features: expect.arrayContaining(["rotation", "users"]) },
    ],
    [
      "for another tenant has no effect",
      () => licence(proClaims(30, { tenantId: OTHER_TENANT })),
      { ...core, reason: "wrongTenant" },
    ],
    [
      "that expired 13 days ago is in its grace period",
      () => licence(proClaims(-13)),
      { ...pro, reason: "expired", inGrace: true },
    ],
  ])("%s", async (_what, createLicense, expectedStatus) => {
    const host = await service.addHost({ LICENSE_KEY: await createLicense(), AZURE_TENANT_ID: TENANT });
    service.hosts.splice(2);
    try {
      const answer = await service.call("GET", `${host.url}/system/license/status`);
      expect(answer.body).toMatchObject(expectedStatus);
      // The status is public, so it must not contain the customer's name from the license.
      expect(answer.text).not.toContain("Acme");
      const proEndpoint = endpoints.find(
        ({ tier, method, access }) => tier === "pro" && method === "GET" && access !== "open",
      );
      const path = proEndpoint!.route.replaceAll(/\{\w+\}/g, "none");
      const proAnswer = await service.call("GET", `${host.url}/${path}`, { token: await makeToken(service, "admin") });
      expect(proAnswer.body.code === "licenseRequired").toBe(answer.body.tier === "core");
    } finally {
      await host.stop("SIGKILL");
    }
  });

  test("that is missing is reported as the reason of the tier core", async () => {
    const { body } = await service.call("GET", "/system/license/status");
    expect(body).toMatchObject({ ...core, reason: "missing", expiresAt: null, daysLeft: null });
  });
});

test("a changed BOOTSTRAP_ADMIN_PASSWORD resets the password at the next start and revokes the administrator's tokens", async () => {
  const takenOver = await Service.start();
  try {
    const token = await takenOver.signIn(ADMIN);
    const intruder = { username: ADMIN.username, password: "set by an intruder" };
    const changed = await takenOver.call("POST", "/auth/password", {
      token,
      body: { currentPassword: ADMIN.password, newPassword: intruder.password },
    });
    expect(changed.status).toBe(200);
    const intruderToken = await takenOver.signIn(intruder);

    // A restart with the same BOOTSTRAP_ADMIN_PASSWORD resets nothing.
    await takenOver.hosts.pop()!.stop("SIGKILL");
    await takenOver.addHost();
    expect((await takenOver.call("GET", "/auth/me", { token: intruderToken })).status).toBe(200);

    const reset = { username: ADMIN.username, password: "break the glass, please" };
    // With a changed one, the administrator's password is set to it again.
    await takenOver.hosts.pop()!.stop("SIGKILL");
    const host = await takenOver.addHost({ BOOTSTRAP_ADMIN_PASSWORD: reset.password });
    expect((await takenOver.call("GET", "/auth/me", { token: intruderToken })).status).toBe(401);
    const resetToken = await takenOver.signIn(reset);
    const me = await takenOver.call("GET", "/auth/me", { token: resetToken });
    expect(me.body).toMatchObject({ username: "admin", role: "admin" });
    expect((await takenOver.call("POST", "/auth/login", { body: intruder })).status).toBe(401);
    expect(host.lines.join("\n")).toContain("Reset the bootstrap administrator");
    expect(host.lines.join("\n")).not.toContain(reset.password);
  } finally {
    await takenOver.stop();
  }
});
