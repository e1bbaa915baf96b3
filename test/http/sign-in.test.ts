import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ADMIN, Service } from "../support/service.ts";
import { makeToken } from "../support/users.ts";

// Tests of sign-ins with a form, of new passwords that are easy to guess, of signing out everywhere, and of sign-ins during a flood.

let service: Service;
beforeAll(async () => {
  // Clients of these tests choose their addresses, as if another trusted proxy preceded the service.
  service = await Service.start({ env: { TRUSTED_PROXY_HOPS: "2" } });
  await service.signIn(ADMIN);
});
afterAll(() => service.stop());

/** Returns the header of a client at this address. */
const from = (address: string) => ({ "X-Forwarded-For": address });
const HOME = from("192.0.2.1");

/**
 * Signs in without comparing the answer with the API description, as `service.call` does, so that many clients need little
 * processor time.
 */
async function signIn(username: string, password: string, headers: Record<string, string>) {
  const answer = await fetch(`${service.url}/auth/login`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify({ username, password }),
  });
  await answer.arrayBuffer();
  return { status: answer.status, retryAfter: answer.headers.get("retry-after") };
}

describe("signing in with a form (application/x-www-form-urlencoded)", () => {
  const post = (body: string, headers: Record<string, string> = {}) =>
    service.call("POST", "/auth/login", {
      body,
      headers: { "Content-Type": "application/x-www-form-urlencoded", ...from("198.51.100.1"), ...headers },
    });

  test("returns a token, as with JSON", async () => {
    const answer = await post(new URLSearchParams(ADMIN).toString());
    expect([answer.status, answer.body.token_type]).toEqual([200, "bearer"]);
    // OAuth clients also send the grant type.
    const oauth = await post(new URLSearchParams({ grant_type: "password", ...ADMIN }).toString());
    expect(oauth.status).toBe(200);
  });

  test.each([
    ["a wrong password", "username=admin&password=wrong+password", 401, "invalidCredentials"],
    ["a field twice", "username=admin&username=eve&password=x", 400, "invalidRequest"],
    ["no password", "username=admin", 400, "invalidRequest"],
    ["an unknown field", "username=admin&password=x&role=admin", 400, "invalidRequest"],
    ["another grant type", "grant_type=client_credentials&username=admin&password=x", 400, "invalidRequest"],
    ["JSON as its content", JSON.stringify(ADMIN), 400, "invalidRequest"],
  ])("with %s is rejected", async (_what, body, status, code) => {
    const answer = await post(body, from("198.51.100.2"));
    expect([answer.status, answer.body.code]).toEqual([status, code]);
    expect(answer.text).not.toContain(ADMIN.password);
  });

  test("is rejected with another Content-Type, with both accepted types in the problem", async () => {
    const answer = await post("username: admin", { "Content-Type": "application/yaml", ...from("198.51.100.3") });
    expect([answer.status, answer.body.code]).toEqual([415, "unsupportedMediaType"]);
    expect(answer.body.detail).toMatch(/application\/json.*application\/x-www-form-urlencoded/);
  });

  test("is documented, as the only form besides messages of identity providers", async () => {
    const { body } = await service.call("GET", "/openapi.json");
    const pathsWithForms = Object.entries<Record<string, { requestBody?: { content: object } }>>(body.paths).flatMap(
      ([path, methods]) =>
        Object.values(methods)
          .filter(({ requestBody }) => "application/x-www-form-urlencoded" in (requestBody?.content ?? {}))
          .map(() => path),
    );
    expect(pathsWithForms).toEqual(["/auth/login", "/auth/sso/callback", "/auth/sso/logout"]);
  });
});

describe("a new password", () => {
  test.each([
    "password1234",
    "qwertyuiop12",
    "123456789012",
    "Welcome12345",
    "P@ssw0rd1234",
    "letmeinletmein",
    // The username, repeated, reversed, or with digits.
    "adminadminadmin",
    "Admin-Admin-Admin",
    "nimdanimdanimda",
    "admin1234567",
  ])("that is commonly guessed is rejected: %s", async (newPassword) => {
    const answer = await service.call("POST", "/auth/password", {
      token: await makeToken(service, ADMIN.username),
      headers: HOME,
      body: { currentPassword: ADMIN.password, newPassword },
    });
    expect([newPassword, answer.status, answer.body.errors?.[0].path]).toEqual([newPassword, 400, "body.newPassword"]);
    expect(answer.body.detail).toContain("easy to guess");
    expect(answer.text).not.toContain(newPassword);
  });
});

test("signing out everywhere revokes every token", async () => {
  const tokens = [await makeToken(service, "admin"), await makeToken(service, "admin")];
  const answer = await service.call("POST", "/auth/logout", { token: tokens[0], body: { everywhere: true } });
  // A browser may have kept answers with a version on its disk.
  expect(answer.headers.get("clear-site-data")).toBe('"cache"');
  expect(answer.body).toEqual({ signedOut: true });
  for (const token of tokens) expect((await service.call("GET", "/auth/me", { token })).status).toBe(401);
});

test("a flood of sign-ins from a hundred addresses does not block addresses with a recent sign-in", async () => {
  expect((await signIn(ADMIN.username, ADMIN.password, HOME)).status).toBe(200);
  let attackRunning = true;
  const answers: { status: number; retryAfter: string | null }[] = [];
  const attackers = Array.from({ length: 100 }, async (_, client) => {
    const address = from(`203.0.113.${client}`);
    // Half of them guess the user's password, the other half usernames.
    for (let round = 0; attackRunning; round++) {
      const username = client % 2 ? ADMIN.username : `name${client}-${round}`;
      const answer = await signIn(username, "a wrong password", address);
      answers.push(answer);
      // Rejections are fast. Without a pause, they would use all of the processor.
      if (answer.status === 429) await delay(50);
    }
  });
  for (let attempt = 0; attempt < 3; attempt++) {
    // Time in which the flood continues.
    await delay(200);
    expect((await signIn(ADMIN.username, ADMIN.password, HOME)).status).toBe(200);
  }
  attackRunning = false;
  await Promise.all(attackers);
  // Control: the flood reached the limits of sign-ins.
  const rejected = answers.filter(({ status }) => status === 429);
  expect(rejected.length).toBeGreaterThan(50);
  for (const { retryAfter } of rejected) expect(Number(retryAfter)).toBeGreaterThan(0);
  expect(answers.filter(({ status }) => status !== 429 && status !== 401)).toEqual([]);
});
