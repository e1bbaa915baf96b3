import { beforeEach, describe, expect, test } from "vitest";
import type { Actor } from "../../shared/platform/http/endpoint.ts";
import type { Problem } from "../../shared/platform/http/problem.ts";
import {
  authenticateToken,
  CALLER,
  type Deployment,
  deriveQuickly,
  type Instance,
  MINUTES,
  passwords,
  TestClock,
  useDeployments,
} from "./instances.ts";

// Tests of access tokens: signing out, changes of role and password, and rotation of the signing keys.

const nextDeployment = useDeployments();
let deployment: Deployment;
let instance: Instance;
let otherInstance: Instance;

beforeEach(async () => {
  deployment = nextDeployment();
  instance = deployment.start();
  otherInstance = deployment.start();
  await instance.access.users.create(MARIA, CALLER);
});

const MARIA = { username: "maria", password: "maria's password", role: "user" as const };

const signIn = async (atInstance = instance, { username, password } = MARIA) =>
  (await atInstance.access.signIn({ username, password }, CALLER)).access_token;

async function actorOf(token: string): Promise<Actor> {
  const authenticated = await authenticateToken(instance, token);
  if (authenticated.kind !== "valid") throw new Error("The token is not valid.");
  return authenticated.actor;
}

const isValid = async (token: string, atInstance = otherInstance) =>
  (await authenticateToken(atInstance, token)).kind === "valid";

/** Returns the rows of users as JSON. */
async function userRows(): Promise<string> {
  const rows = JSON.parse(await deployment.allRows()) as { partitionKey: string }[];
  return JSON.stringify(rows.filter((row) => row.partitionKey === "user"));
}

describe("a token", () => {
  test("is revoked on another instance when its user signs out with it", async () => {
    const [token, second] = [await signIn(), await signIn()];
    expect([await isValid(token), await isValid(second)]).toEqual([true, true]);
    await instance.access.signOut(
      await actorOf(token),
      { everywhere: false, apiTokens: false },
      { ...CALLER, actor: "maria" },
    );
    expect([await isValid(token), await isValid(second)]).toEqual([false, true]);
    expect(await deployment.auditEntries("user.signedOut")).toMatchObject([{ outcome: "success", actor: "maria" }, {}]);
  });

  test("is revoked when its user signs out everywhere with another token", async () => {
    const [token, second] = [await signIn(), await signIn(otherInstance)];
    await instance.access.signOut(
      await actorOf(token),
      { everywhere: true, apiTokens: false },
      { ...CALLER, actor: "maria" },
    );
    expect([await isValid(token), await isValid(second), await isValid(second, instance)]).toEqual([
      false,
      false,
      false,
    ]);
    expect(await isValid(await signIn())).toBe(true);
    expect((await deployment.auditEntries("user.signedOut"))[0]).toMatchObject({ details: { everywhere: true } });
  });

  test("is revoked even if 8 tokens are signed out at once", async () => {
    const tokens = await Promise.all(Array.from({ length: 8 }, () => signIn()));
    const actors = await Promise.all(tokens.map(actorOf));
    await Promise.all(
      actors.map((actor, index) =>
        (index % 2 ? instance : otherInstance).access.signOut(actor, { everywhere: false, apiTokens: false }, CALLER),
      ),
    );
    expect(await Promise.all(tokens.map((token) => isValid(token)))).toEqual(tokens.map(() => false));
  });

  test("is removed from the revoked tokens once it has expired", async () => {
    const token = await signIn();
    await instance.access.signOut(await actorOf(token), { everywhere: false, apiTokens: false }, CALLER);
    const tokenId = JSON.parse(Buffer.from(token.split(".")[1]!, "base64url").toString()).jti;
    expect(await userRows()).toContain(tokenId);
    deployment.clock.pass(61 * MINUTES);
    await signIn();
    expect(await userRows()).not.toContain(tokenId);
  });

  test("is revoked when its user gets another role", async () => {
    const token = await signIn();
    await instance.access.users.update("maria", { role: "auditor" }, undefined, CALLER);
    expect(await isValid(token)).toBe(false);
    expect(await actorOf(await signIn())).toMatchObject({ role: "auditor" });
  });

  test("stays valid if the role does not change", async () => {
    const token = await signIn();
    await instance.access.users.update("maria", { email: "maria@example.com", role: "user" }, undefined, CALLER);
    expect(await isValid(token)).toBe(true);
  });

  test("is revoked when its user is deleted, and stays revoked for a new user of that name", async () => {
    const token = await signIn();
    await instance.access.users.remove("maria", undefined, CALLER);
    expect(await isValid(token)).toBe(false);
    deployment.clock.pass(1);
    await instance.access.users.create(MARIA, CALLER);
    expect(await isValid(token)).toBe(false);
  });

  test("is valid until its signing key is removed", async () => {
    const token = await signIn();
    const [oldKey] = deployment.config.JWT_SIGNING_KEYS;
    const newKey = { kid: "k2", key: new Uint8Array(32).fill(7) };
    expect(await isValid(token, deployment.start({ config: { JWT_SIGNING_KEYS: [newKey, oldKey!] } }))).toBe(true);
    expect(await isValid(token, deployment.start({ config: { JWT_SIGNING_KEYS: [newKey] } }))).toBe(false);
  });
});

describe("changing the user's own password", () => {
  const NEW_PASSWORD = "maria's next password";

  test("revokes all tokens, even those of the same millisecond", async () => {
    const tokens = [await signIn(), await signIn(otherInstance)];
    await instance.access.changePassword(await actorOf(tokens[0]!), passwords(MARIA.password, NEW_PASSWORD), {
      ...CALLER,
      actor: "maria",
    });
    expect([await isValid(tokens[0]!), await isValid(tokens[1]!)]).toEqual([false, false]);
    const newer = await signIn(instance, { ...MARIA, password: NEW_PASSWORD });
    expect(await isValid(newer)).toBe(true);
    await expect(signIn()).rejects.toMatchObject({ code: "invalidCredentials" });
    expect(await deployment.auditEntries("user.passwordChanged")).toMatchObject([
      { outcome: "success", actor: "maria", target: { type: "user", id: "maria" } },
      { outcome: "intent" },
    ]);
  });

  test("revokes tokens, and accepts new ones, of instances whose clocks differ by 30 seconds", async () => {
    const instanceAhead = deployment.start({ clock: TestClock.ahead(deployment.clock, 30_000) });
    const instanceBehind = deployment.start({ clock: TestClock.ahead(deployment.clock, -30_000) });
    const token = await signIn(instanceAhead);
    await instance.access.changePassword(await actorOf(token), passwords(MARIA.password, NEW_PASSWORD), CALLER);
    expect([await isValid(token), await isValid(token, instanceAhead)]).toEqual([false, false]);
    expect(await isValid(await signIn(instanceBehind, { ...MARIA, password: NEW_PASSWORD }))).toBe(true);
  });

  test("counts wrong current passwords as failed sign-ins", async () => {
    const actor = await actorOf(await signIn());
    for (let time = 0; time < 5; time++) {
      await expect(
        instance.access.changePassword(actor, passwords("a wrong password", NEW_PASSWORD), CALLER),
      ).rejects.toMatchObject({
        code: "invalidRequest",
        errors: [{ path: "body.currentPassword" }],
      });
    }
    const change = instance.access.changePassword(actor, passwords(MARIA.password, NEW_PASSWORD), CALLER);
    await expect(change).rejects.toMatchObject({ code: "tooManyAttempts" });
    expect(await deployment.auditEntries("user.passwordChanged")).toMatchObject([
      { outcome: "refused", details: { reason: "wrong current password" }, target: { id: "maria" }, count: 5 },
    ]);
  });

  test("is rejected if the new password is the current one", async () => {
    const change = instance.access.changePassword(
      await actorOf(await signIn()),
      passwords(MARIA.password, MARIA.password),
      CALLER,
    );
    await expect(change).rejects.toMatchObject({ code: "invalidRequest", errors: [{ path: "body.newPassword" }] });
  });

  test("succeeds for one of two requests at once", async () => {
    const actor = await actorOf(await signIn());
    const results = await Promise.allSettled([
      instance.access.changePassword(actor, passwords(MARIA.password, "the first new password"), CALLER),
      otherInstance.access.changePassword(actor, passwords(MARIA.password, "the second new password"), CALLER),
    ]);
    const codes = results.map((result) => (result.status === "fulfilled" ? "done" : (result.reason as Problem).code));
    // The second request fails because the password has changed or the given one is no longer correct.
    expect(codes.filter((code) => code === "done")).toHaveLength(1);
    expect(["conflict", "invalidRequest"]).toContain(codes.find((code) => code !== "done"));
  });

  test("makes a sign-in fail that is verifying the old password", async () => {
    let passwordChange: Promise<void> | undefined;
    const actor = await actorOf(await signIn());
    const slowInstance = deployment.start({
      // Changes the password between the sign-in's read of the user and its verification of the password.
      derive: async (password, salt, parameters) => {
        passwordChange ??= instance.access.changePassword(actor, passwords(MARIA.password, NEW_PASSWORD), {
          ...CALLER,
          address: "198.51.100.7",
        });
        await passwordChange;
        return await deriveQuickly(password, salt, parameters);
      },
    });
    await expect(signIn(slowInstance)).rejects.toMatchObject({ code: "invalidCredentials" });
  });
});

test("`me` returns the user without the password hash", async () => {
  const me = await instance.access.me(await actorOf(await signIn()));
  expect(me).toMatchObject({ id: "maria", username: "maria", role: "user", email: null, state: "active" });
  expect(Object.keys(me)).not.toContain("passwordHash");
});
