import { randomBytes } from "node:crypto";
import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Services } from "../../functions/services.ts";
import { codeOf, confirmWithPreviousCode } from "../support/authenticator-app.ts";
import { licence } from "../support/licence.ts";
import { type Answer, Service } from "../support/service.ts";
import { createUsers, servicesOf } from "../support/users.ts";

// The second factor over HTTP, on two hosts. Passkeys need a browser: test/page/second-factor.test.ts.

let service: Service;
let services: Services;
beforeAll(async () => {
  service = await Service.start({
    hosts: 2,
    tableProxy: true,
    env: { TRUSTED_PROXY_HOPS: "2", LICENSE_KEY: await licence(), PUBLIC_BASE_URL: "https://service.example" },
  });
  services = await servicesOf(service);
});
afterAll(() => service.stop());

const PASSWORD = "seven green bicycles uphill";

/** Each user has an address of its own, so that the failures of one test don't block another one. */
let sequence = 0;
const newAddress = () => `198.51.100.${++sequence}`;

interface TestUser {
  username: string;
  address: string;
  token: string;
}

const headersOf = ({ address }: { address: string }) => ({ "X-Forwarded-For": address });

/** @param host - The instance that receives the request. */
const signIn = (
  user: { username: string; address: string },
  factor: object = {},
  { password = PASSWORD, host = 0 }: { password?: string; host?: number } = {},
) =>
  service.call("POST", `${service.hosts[host]!.url}/auth/login`, {
    body: { username: user.username, password, ...factor },
    headers: headersOf(user),
  });

async function createUser(role: "user" | "admin" = "user"): Promise<TestUser> {
  const username = `person${randomBytes(4).toString("hex")}`;
  await createUsers(service, [{ username, password: PASSWORD, role }], services);
  const address = newAddress();
  const { body } = await signIn({ username, address });
  return { username, address, token: body.access_token };
}

const call = (user: TestUser, method: string, path: string, body?: object): Promise<Answer> =>
  service.call(method, `/auth/me/second-factor${path}`, { token: user.token, body, headers: headersOf(user) });

interface EnrolledUser extends TestUser {
  secret: string;
  recoveryCodes: string[];
}

/** Enrolls an authenticator app, whose current code is not used yet. */
async function enrollApp(user: TestUser): Promise<EnrolledUser> {
  const started = await call(user, "POST", "/totp", { currentPassword: PASSWORD });
  expect(started.status).toBe(200);
  const { secret } = started.body;
  const confirmed = await confirmWithPreviousCode({ secret }, (body) => call(user, "POST", "/totp/confirm", body));
  expect(confirmed.status).toBe(200);
  return { ...user, secret, recoveryCodes: confirmed.body.recoveryCodes };
}
const createEnrolledUser = async (role?: "user" | "admin") => await enrollApp(await createUser(role));

describe("a user with an authenticator app", () => {
  test("signs in with the password and a code, and gets the same answer as without", async () => {
    const user = await createEnrolledUser();
    const first = await signIn(user);
    expect([first.status, first.body.code, first.body.methods]).toEqual([
      401,
      "secondFactorRequired",
      ["totp", "recoveryCode"],
    ]);
    const second = await signIn(user, { totp: codeOf(user) });
    expect([second.status, Object.keys(second.body).sort()]).toEqual([
      200,
      ["access_token", "expires_in", "token_type"],
    ]);
    const me = await service.call("GET", "/auth/me", { token: second.body.access_token });
    expect([me.status, me.body.secondFactorEnrolled]).toEqual([200, true]);
    // The sign-in before the enrollment stays valid.
    expect((await service.call("GET", "/auth/me", { token: user.token })).status).toBe(200);
  });

  test("can use a code once, also on another instance", async () => {
    const user = await createEnrolledUser();
    const totp = codeOf(user);
    expect((await signIn(user, { totp })).status).toBe(200);
    for (const host of [0, 1]) {
      const repeated = await signIn(user, { totp }, { host });
      expect([repeated.status, repeated.body.code]).toEqual([401, "secondFactorFailed"]);
    }
    // A code of an earlier step (30 seconds) is rejected too, although it was not used.
    expect((await signIn(user, { totp: codeOf(user, -1) })).body.code).toBe("secondFactorFailed");
  });

  test("signs in once with two parallel requests that have the same code", async () => {
    for (const factorOf of [
      (user: EnrolledUser) => ({ totp: codeOf(user) }),
      (user: EnrolledUser) => ({ recoveryCode: user.recoveryCodes[0]! }),
    ]) {
      const user = await createEnrolledUser();
      const factor = factorOf(user);
      const answers = await Promise.all([0, 1, 0, 1].map((host) => signIn(user, factor, { host })));
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 401, 401, 401]);
    }
  });

  test("can have a clock that is one step ahead", async () => {
    const user = await createEnrolledUser();
    expect((await signIn(user, { totp: codeOf(user, 3) })).body.code).toBe("secondFactorFailed");
    expect((await signIn(user, { totp: codeOf(user, 1) })).status).toBe(200);
  });

  test("can write the code with a space", async () => {
    const user = await createEnrolledUser();
    expect((await signIn(user, { totp: codeOf(user).replace(/^.{3}/, "$& ") })).status).toBe(200);
  });

  test("gets the same answer to a wrong password as any other user", async () => {
    const [user, other] = [await createEnrolledUser(), await createUser()];
    const signInWrongly = (testUser: TestUser, factor: object = {}) =>
      signIn(testUser, factor, { password: "not the password" });
    const [first, withCode, second] = [
      await signInWrongly(user),
      await signInWrongly(user, { totp: codeOf(user) }),
      await signInWrongly(other),
    ];
    const comparable = ({ status, body: { instance: _, ...body } }: Answer) => ({ status, body });
    expect(comparable(first)).toEqual(comparable(second));
    expect(comparable(withCode)).toEqual(comparable(second));
    expect(first.body.code).toBe("invalidCredentials");
  });

  test("is blocked after five wrong codes, which requests with the password alone don't reset", async () => {
    const user = await createEnrolledUser();
    for (let attempt = 0; attempt < 5; attempt++) {
      expect((await signIn(user, { totp: "000000" })).body.code).toBe("secondFactorFailed");
      if (attempt % 2 === 1) expect((await signIn(user)).body.code).toBe("secondFactorRequired");
    }
    expect((await signIn(user)).body.code).toBe("tooManyAttempts");
    expect((await signIn(user, { totp: codeOf(user) })).body.code).toBe("tooManyAttempts");
  });

  test("is not blocked by requests with the password alone", async () => {
    const user = await createEnrolledUser();
    for (let attempt = 0; attempt < 7; attempt++) {
      expect((await signIn(user)).body.code).toBe("secondFactorRequired");
    }
    expect((await signIn(user, { totp: codeOf(user) })).status).toBe(200);
  });

  test("can send one second factor at a time", async () => {
    const user = await createEnrolledUser();
    const answer = await signIn(user, { totp: codeOf(user), recoveryCode: user.recoveryCodes[0] });
    expect([answer.status, answer.body.errors[0].path]).toEqual([400, "body.totp"]);
  });
});

describe("recovery codes", () => {
  test("are ten, and each signs in once", async () => {
    const user = await createEnrolledUser();
    expect(new Set(user.recoveryCodes).size).toBe(10);
    // 24 digits of 5 bits. https://www.crockford.com/base32.html
    for (const code of user.recoveryCodes) expect(code).toMatch(/^[0-9a-hjkmnp-tv-z]{4}(?:-[0-9a-hjkmnp-tv-z]{4}){5}$/);
    // People type codes in capitals and with O for 0.
    const recoveryCode = user.recoveryCodes[3]!.toUpperCase().replaceAll("0", "O").replaceAll("-", " ");
    expect((await signIn(user, { recoveryCode })).status).toBe(200);
    expect((await signIn(user, { recoveryCode })).body.code).toBe("secondFactorFailed");
    expect((await call(user, "GET", "")).body.recoveryCodesLeft).toBe(9);
  });

  test("can be replaced with the password and a second factor", async () => {
    const user = await createEnrolledUser();
    const replaced = await call(user, "POST", "/recovery-codes", { currentPassword: PASSWORD, totp: codeOf(user) });
    expect([replaced.status, replaced.body.recoveryCodes.length]).toEqual([200, 10]);
    expect((await signIn(user, { recoveryCode: user.recoveryCodes[0] })).body.code).toBe("secondFactorFailed");
    expect((await signIn(user, { recoveryCode: replaced.body.recoveryCodes[0] })).status).toBe(200);
  });
});

describe("enrolling", () => {
  test("needs the current password", async () => {
    const user = await createUser();
    const answer = await call(user, "POST", "/totp", { currentPassword: "not the password" });
    expect([answer.status, answer.body.errors[0].path]).toEqual([400, "body.currentPassword"]);
    const passkey = await call(user, "POST", "/passkeys", { currentPassword: "not the password" });
    expect([passkey.status, passkey.body.errors[0].path]).toEqual([400, "body.currentPassword"]);
  });

  test("counts wrong passwords as failed sign-ins", async () => {
    const user = await createUser();
    for (let attempt = 0; attempt < 5; attempt++) await call(user, "POST", "/totp", { currentPassword: "wrong" });
    const blocked = await call(user, "POST", "/totp", { currentPassword: PASSWORD });
    expect([blocked.status, blocked.body.code]).toEqual([429, "tooManyAttempts"]);
    expect((await signIn(user)).body.code).toBe("tooManyAttempts");
  });

  test("is rejected for API tokens", async () => {
    const user = await createUser();
    const { body } = await service.call("POST", "/auth/tokens", { token: user.token, body: { name: "program" } });
    const program = { ...user, token: body.token };
    for (const path of ["/totp", "/passkeys", "/recovery-codes", "/methods/totp/remove"]) {
      expect((await call(program, "POST", path, { currentPassword: PASSWORD })).body.code).toBe("interactiveOnly");
    }
  });

  test("changes nothing about sign-ins before the code of the app confirms it", async () => {
    const user = await createUser();
    await call(user, "POST", "/totp", { currentPassword: PASSWORD });
    const wrong = await call(user, "POST", "/totp/confirm", { code: "000000" });
    expect([wrong.status, wrong.body.errors[0].path]).toEqual([400, "body.code"]);
    expect((await signIn(user)).status).toBe(200);
  });

  test("needs a second factor once the user has one", async () => {
    const user = await createEnrolledUser();
    for (const path of ["/totp", "/passkeys", "/recovery-codes", "/methods/totp/remove"]) {
      const answer = await call(user, "POST", path, { currentPassword: PASSWORD });
      expect([path, answer.status, answer.body.errors[0].path]).toEqual([path, 400, "body.totp"]);
    }
    const wrong = await call(user, "POST", "/passkeys", { currentPassword: PASSWORD, totp: "000000" });
    expect([wrong.status, wrong.body.errors[0].path]).toEqual([400, "body.totp"]);
    const right = await call(user, "POST", "/passkeys", { currentPassword: PASSWORD, totp: codeOf(user) });
    expect([right.status, right.body.options.rp.id]).toEqual([200, "service.example"]);
  });

  test("can be undone: without a method, the password is enough", async () => {
    const user = await createEnrolledUser();
    const proof = { currentPassword: PASSWORD, recoveryCode: user.recoveryCodes[9] };
    expect((await call(user, "POST", "/methods/none/remove", proof)).status).toBe(404);
    expect((await call(user, "POST", "/methods/totp/remove", proof)).status).toBe(200);
    expect((await call(user, "GET", "")).body).toMatchObject({ enrolled: false, methods: [], recoveryCodesLeft: 0 });
    expect((await signIn(user)).status).toBe(200);
  });

  test("stores no secret and no recovery code in plain text", async () => {
    const user = await createEnrolledUser();
    const connection = service.azurite.connectionString();
    const table = TableClient.fromConnectionString(connection, "Users", { allowInsecureConnection: true });
    let rows = "";
    for await (const row of table.listEntities()) rows += JSON.stringify(row);
    expect(rows).toContain(user.username);
    expect(rows).not.toContain(user.secret);
    for (const code of user.recoveryCodes) expect(rows).not.toContain(code);
  });

  test("is in the audit log", async () => {
    const user = await createEnrolledUser();
    const { body } = await service.admin("GET", `/audit/entries?actor=${user.username}&limit=100`);
    const events = body.items.map((entry: { eventType: string; outcome: string }) => [entry.eventType, entry.outcome]);
    expect(events).toEqual(
      expect.arrayContaining([
        ["user.secondFactorStarted", "success"],
        ["user.secondFactorAdded", "success"],
      ]),
    );
  });
});

describe("an administrator", () => {
  test("sees who has a second factor, and resets it, which ends the user's sign-ins", async () => {
    const user = await createEnrolledUser();
    const account = `/auth/users/${user.username}`;
    expect((await service.admin("GET", account)).body.secondFactorEnrolled).toBe(true);
    expect((await service.admin("DELETE", `${account}/second-factor`)).status).toBe(200);
    expect((await service.admin("GET", account)).body.secondFactorEnrolled).toBe(false);
    expect((await service.call("GET", "/auth/me", { token: user.token })).status).toBe(401);
    expect((await signIn(user)).status).toBe(200);
    expect((await service.admin("DELETE", `${account}/second-factor`)).status).toBe(404);
  });

  test("can't reset the own second factor without proof", async () => {
    const user = await createEnrolledUser("admin");
    const path = `/auth/users/${user.username}/second-factor`;
    expect((await service.call("DELETE", path, { token: user.token })).body.code).toBe("conflict");
  });
});

describe("with requireSecondFactor", () => {
  /** Changes the setting. The host that receives the request applies the change at once. */
  const requireSecondFactor = async (administrator: TestUser, users: string) => {
    const { token } = administrator;
    const answer = await service.call("PUT", "/api/settings/features", { token, body: { requireSecondFactor: users } });
    expect(answer.status).toBe(200);
  };

  test("a user without a second factor can only enroll one, and API tokens keep working", async () => {
    const enrolledAdministrator = await createEnrolledUser("admin");
    const [administrator, user] = [await createUser("admin"), await createUser()];
    const program = await service.call("POST", "/auth/tokens", {
      token: administrator.token,
      body: { name: "program", role: "admin" },
    });
    /** Returns the status of a request, or the code of its problem. */
    const result = async ({ token }: { token: string }) => {
      const { status, body } = await service.call("GET", "/identity", { token });
      return body.code ?? status;
    };
    await requireSecondFactor(enrolledAdministrator, "administrators");
    expect(await result(administrator)).toBe("secondFactorEnrollmentRequired");
    expect([await result(user), await result(enrolledAdministrator), await result(program.body)]).toEqual([
      200, 200, 200,
    ]);
    const me = await service.call("GET", "/auth/me", { token: administrator.token });
    expect(me.body).toMatchObject({ secondFactorEnrolled: false, mustEnrollSecondFactor: true });
    // The sign-in itself works, and the enrollment ends the restriction of an earlier token.
    expect((await signIn(administrator)).status).toBe(200);
    await enrollApp(administrator);
    expect(await result(administrator)).toBe(200);
    await requireSecondFactor(enrolledAdministrator, "everyone");
    expect(await result(user)).toBe("secondFactorEnrollmentRequired");
    await requireSecondFactor(enrolledAdministrator, "none");
    expect(await result(user)).toBe(200);
  });
});

test("a sign-in without a second factor reads the user's row and the list of signed rows, and no settings", async () => {
  const user = await createUser();
  await signIn(user);
  const requests = (await signIn(user)).tableRequests().map(({ method, path }) => `${method} ${path.split("(")[0]}`);
  // The rate limit by address, single sign-on, the user and its list, the failures of this address, and the audit entry.
  expect(requests.filter((request) => request.startsWith("GET Users"))).toHaveLength(2);
  expect(requests.length).toBeLessThanOrEqual(12);
  expect(requests.filter((request) => request.includes("Settings"))).toEqual([]);
});
