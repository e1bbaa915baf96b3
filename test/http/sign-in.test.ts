import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ADMIN, Service } from "../support/service.ts";
import { makeToken } from "../support/users.ts";

let service: Service;
beforeAll(async () => {
  // The clients of these tests choose their addresses, as if one more proxy stood before the service.
  service = await Service.start({ env: { TRUSTED_PROXY_HOPS: "2" } });
  await service.signIn(ADMIN);
});
afterAll(() => service.stop());

const from = (address: string) => ({ "X-Forwarded-For": address });
const HOME = from("192.0.2.1");

/** Does not compare responses with the API description, so that the clients need little processor time. */
async function signIn(username: string, password: string, headers: Record<string, string>) {
  const answer = await fetch(`${service.url}/auth/login`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify({ username, password }),
  });
  await answer.arrayBuffer();
  return { status: answer.status, retryAfter: answer.headers.get("retry-after") };
}

describe("signing in as a form", () => {
  const post = (body: string, headers: Record<string, string> = {}) =>
    service.call("POST", "/auth/login", {
      body,
      headers: { "Content-Type": "application/x-www-form-urlencoded", ...from("198.51.100.1"), ...headers },
    });

  test("is answered like JSON", async () => {
    const answer = await post(new URLSearchParams(ADMIN).toString());
    expect([answer.status, answer.body.token_type]).toEqual([200, "bearer"]);
    const oauth = await post(new URLSearchParams({ grant_type: "password", ...ADMIN }).toString());
    expect(oauth.status).toBe(200);
  });

  test.each([
    ["a wrong password", "username=admin&password=wrong+password", 401, "invalidCredentials"],
    ["a field twice", "username=admin&username=eve&password=x", 400, "invalidRequest"],
    ["no password", "username=admin", 400, "invalidRequest"],
    ["an unknown field", "username=admin&password=x&role=admin", 400, "invalidRequest"],
    ["another grant", "grant_type=client_credentials&username=admin&password=x", 400, "invalidRequest"],
    ["JSON in it", JSON.stringify(ADMIN), 400, "invalidRequest"],
  ])("with %s is rejected", async (_what, body, status, code) => {
    const answer = await post(body, from("198.51.100.2"));
    expect([answer.status, answer.body.code]).toEqual([status, code]);
    expect(answer.text).not.toContain(ADMIN.password);
  });

  test("names both accepted types for any other type", async () => {
    const answer = await post("username: admin", { "Content-Type": "application/yaml", ...from("198.51.100.3") });
    expect([answer.status, answer.body.code]).toEqual([415, "unsupportedMediaType"]);
    expect(answer.body.detail).toMatch(/application\/json.*application\/x-www-form-urlencoded/);
  });

  test("is documented, and forms are accepted only here and for SAML responses", async () => {
    const { body } = await service.call("GET", "/openapi.json");
    const taking = Object.entries<Record<string, { requestBody?: { content: object } }>>(body.paths).flatMap(
      ([path, methods]) =>
        Object.values(methods)
          .filter(({ requestBody }) => "application/x-www-form-urlencoded" in (requestBody?.content ?? {}))
          .map(() => path),
    );
    expect(taking).toEqual(["/auth/login", "/auth/sso/callback"]);
  });
});

describe("a password", () => {
  test.each([
    "password1234",
    "qwertyuiop12",
    "123456789012",
    "Welcome12345",
    "P@ssw0rd1234",
    "letmeinletmein",
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
  expect(answer.body).toEqual({ signedOut: true });
  for (const token of tokens) expect((await service.call("GET", "/auth/me", { token })).status).toBe(401);
});

test("a flood of sign-ins from a hundred addresses does not block addresses with a recent sign-in", async () => {
  expect((await signIn(ADMIN.username, ADMIN.password, HOME)).status).toBe(200);
  let hammering = true;
  const answers: { status: number; retryAfter: string | null }[] = [];
  const attackers = Array.from({ length: 100 }, async (_, client) => {
    const address = from(`203.0.113.${client}`);
    // Half of them guess the user's password, the other half usernames.
    for (let round = 0; hammering; round++) {
      const username = client % 2 ? ADMIN.username : `name${client}-${round}`;
      const answer = await signIn(username, "a wrong password", address);
      answers.push(answer);
      if (answer.status === 429) await delay(50);
    }
  });
  for (let time = 0; time < 3; time++) {
    await delay(200);
    expect((await signIn(ADMIN.username, ADMIN.password, HOME)).status).toBe(200);
  }
  hammering = false;
  await Promise.all(attackers);
  // The flood had an effect: the queue of unknown addresses was full, and a caller with a wrong password was rejected.
  const refused = answers.filter(({ status }) => status === 429);
  expect(refused.length).toBeGreaterThan(50);
  for (const { retryAfter } of refused) expect(Number(retryAfter)).toBeGreaterThan(0);
  expect(answers.filter(({ status }) => status !== 429 && status !== 401)).toEqual([]);
});
