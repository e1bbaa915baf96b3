import { randomBytes } from "node:crypto";
import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { codeOf, confirmWithPreviousCode } from "../support/authenticator-app.ts";
import { type Answer, Service } from "../support/service.ts";
import { createUsers } from "../support/users.ts";
import { SoftwarePasskey } from "./software-passkey.ts";

// Attempts to get around the second factor, over HTTP. The passkeys are in software.

const HOST = "service.example";
const ORIGIN = `https://${HOST}`;
const PASSWORD = "seven green bicycles uphill";

let service: Service;
beforeAll(async () => {
  service = await Service.start({ env: { TRUSTED_PROXY_HOPS: "2", PUBLIC_BASE_URL: ORIGIN } });
});
afterAll(() => service.stop());

interface TestUser {
  username: string;
  address: string;
  token: string;
}

let sequence = 0;
const headersOf = ({ address }: { address: string }) => ({ "X-Forwarded-For": address });
const signIn = (user: { username: string; address: string }, factor: object = {}) =>
  service.call("POST", "/auth/login", {
    body: { username: user.username, password: PASSWORD, ...factor },
    headers: headersOf(user),
  });

/** Creates a user with an address of its own, so that the failures of one test don't block another one. */
async function createUser(role: "user" | "admin" = "user"): Promise<TestUser> {
  const username = `person${randomBytes(4).toString("hex")}`;
  await createUsers(service, [{ username, password: PASSWORD, role }]);
  const user = { username, address: `198.51.100.${++sequence}` };
  return { ...user, token: (await signIn(user)).body.access_token };
}

const call = (user: TestUser, path: string, body: object, url = service.url): Promise<Answer> =>
  service.call("POST", `${url}/auth/me/second-factor${path}`, { token: user.token, body, headers: headersOf(user) });
const PROOF = { currentPassword: PASSWORD };

/** Adds an authenticator app, whose current code is not used yet. Returns its secret. */
async function addApp(user: TestUser): Promise<string> {
  const { secret } = (await call(user, "/totp", PROOF)).body;
  const confirmed = await confirmWithPreviousCode({ secret }, (body) => call(user, "/totp/confirm", body));
  expect(confirmed.status).toBe(200);
  return secret;
}

/** Returns a challenge for a new passkey. */
const startPasskey = async (user: TestUser): Promise<string> =>
  (await call(user, "/passkeys", PROOF)).body.options.challenge;
const confirmPasskey = (user: TestUser, passkey: object) =>
  call(user, "/passkeys/confirm", { name: "Software", passkey });
async function addPasskey(user: TestUser, counter = 0): Promise<SoftwarePasskey> {
  const passkey = new SoftwarePasskey(HOST);
  const answer = passkey.register({ challenge: await startPasskey(user), origin: ORIGIN, counter });
  expect((await confirmPasskey(user, answer)).status).toBe(200);
  return passkey;
}
/** Returns a challenge for a sign-in. */
const challengeOf = async (user: TestUser): Promise<string> => (await signIn(user)).body.passkeyOptions.challenge;

test("a password change that is rejected does not reset the count of wrong codes", async () => {
  const user = await createUser();
  await addApp(user);
  // The fifth wrong code blocks the user. A rejected change in between must not start the count again.
  for (let attempt = 0; attempt < 4; attempt++)
    expect((await signIn(user, { totp: "000000" })).body.code).toBe("secondFactorFailed");
  const change = { currentPassword: PASSWORD, newPassword: "password1234" };
  const options = { token: user.token, body: change, headers: headersOf(user) };
  expect((await service.call("POST", "/auth/password", options)).status).toBe(400);
  expect((await signIn(user, { totp: "000000" })).body.code).toBe("secondFactorFailed");
  expect((await signIn(user)).body.code).toBe("tooManyAttempts");
});

describe("an enrollment that was started with the password alone", () => {
  test("of a passkey can't be finished after the user has added a second factor", async () => {
    const user = await createUser();
    const challenge = await startPasskey(user);
    await addApp(user);
    const answer = new SoftwarePasskey(HOST).register({ challenge, origin: ORIGIN });
    const confirmed = await confirmPasskey(user, answer);
    expect([confirmed.status, confirmed.body.errors?.[0].path]).toEqual([400, "body.passkey"]);
  });

  test("of an authenticator app can't be finished after the user has added a second factor", async () => {
    const user = await createUser();
    const { secret } = (await call(user, "/totp", PROOF)).body;
    await addPasskey(user);
    expect((await call(user, "/totp/confirm", { code: codeOf({ secret }) })).body.code).toBe("conflict");
    expect((await signIn(user)).body.methods).toEqual(["passkey", "recoveryCode"]);
  });
});

describe("a passkey", () => {
  test("signs in once for each challenge, and its counter never goes back", async () => {
    const user = await createUser();
    const passkey = await addPasskey(user, 5);
    const answer = passkey.signIn({ challenge: await challengeOf(user), origin: ORIGIN, counter: 7 });
    expect((await signIn(user, { passkey: answer })).status).toBe(200);
    expect((await signIn(user, { passkey: answer })).body.code).toBe("secondFactorFailed");
    for (const counter of [7, 0]) {
      const earlier = passkey.signIn({ challenge: await challengeOf(user), origin: ORIGIN, counter });
      expect((await signIn(user, { passkey: earlier })).body.code).toBe("secondFactorFailed");
    }
    const later = passkey.signIn({ challenge: await challengeOf(user), origin: ORIGIN, counter: 8 });
    expect((await signIn(user, { passkey: later })).status).toBe(200);
  });

  test("signs in once with parallel requests that have the same answer", async () => {
    const user = await createUser();
    const passkey = await addPasskey(user);
    const answer = passkey.signIn({ challenge: await challengeOf(user), origin: ORIGIN });
    const answers = await Promise.all([0, 1, 2].map(() => signIn(user, { passkey: answer })));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 401, 401]);
  });

  test("needs a challenge for a sign-in of this user, and the service's own origin", async () => {
    const [user, other] = [await createUser(), await createUser()];
    const passkey = await addPasskey(user);
    await addPasskey(other);
    const otherChallenge = await challengeOf(other);
    const registrationChallenge = (
      await call(user, "/passkeys", {
        ...PROOF,
        passkey: passkey.signIn({ challenge: await challengeOf(user), origin: ORIGIN }),
      })
    ).body.options.challenge as string;
    const own = await challengeOf(user);
    for (const wrong of [
      { challenge: otherChallenge, origin: ORIGIN },
      { challenge: registrationChallenge, origin: ORIGIN },
      { challenge: own, origin: "https://service.example.attacker.example" },
      // As long as a challenge of the service, but not created by it.
      { challenge: randomBytes(54).toString("base64url"), origin: ORIGIN },
    ])
      expect((await signIn(user, { passkey: passkey.signIn(wrong) })).body.code).toBe("secondFactorFailed");
    expect((await signIn(user, { passkey: passkey.signIn({ challenge: own, origin: ORIGIN }) })).status).toBe(200);
  });

  test("can't have a public key so long that the user's row becomes too large", async () => {
    const user = await createUser();
    const challenge = await startPasskey(user);
    const answer = new SoftwarePasskey(HOST).register({ challenge, origin: ORIGIN }, SoftwarePasskey.longKey(40_000));
    const confirmed = await confirmPasskey(user, answer);
    expect([confirmed.status, confirmed.body.errors?.[0].message]).toEqual([400, "has a public key that is too long"]);
  });
});

test("while the stored settings can't be read, users without a second factor can only add one; then they find the row in the audit log", async () => {
  const [administrator, protectedUser] = [await createUser("admin"), await createUser("admin")];
  await addApp(protectedUser);
  const options = { allowInsecureConnection: true };
  const table = TableClient.fromConnectionString(service.azurite.connectionString(), "Settings", options);
  const row = { partitionKey: "settings", rowKey: "overrides" };
  await table.upsertEntity({ ...row, overrides_json: "no JSON" }, "Replace");
  // A host that has not cached the settings yet.
  const { url } = await service.addHost();
  const get = (user: TestUser, path: string) =>
    service.call("GET", url + path, { token: user.token, headers: headersOf(user) });
  const auditLog = "/audit/entries?event_type=storage.rowUnreadable";
  expect((await get(administrator, auditLog)).body.code).toBe("secondFactorEnrollmentRequired");
  expect((await get(protectedUser, auditLog)).status).toBe(200);
  const { secret } = (await call(administrator, "/totp", PROOF, url)).body;
  expect((await call(administrator, "/totp/confirm", { code: codeOf({ secret }) }, url)).status).toBe(200);
  const { items } = (await get(administrator, auditLog)).body;
  expect(items[0].target.id).toBe("Settings/settings/overrides");
  await table.deleteEntity(row.partitionKey, row.rowKey);
});
