import { beforeEach, describe, expect, test } from "vitest";
import type { Actor } from "../../shared/platform/http/endpoint.ts";
import type { Problem } from "../../shared/platform/http/problem.ts";
import {
  type Deployment,
  HERE,
  type Instance,
  MINUTES,
  passwords,
  quickly,
  TestClock,
  useDeployments,
  whoIs,
} from "./instances.ts";

const nextDeployment = useDeployments();
let deployment: Deployment;
let instance: Instance;
let other: Instance;

beforeEach(async () => {
  deployment = nextDeployment();
  instance = deployment.start();
  other = deployment.start();
  await instance.access.users.create(MARIA, HERE);
});

const MARIA = { username: "maria", password: "maria's password", role: "user" as const };

const signIn = async (at = instance, { username, password } = MARIA) =>
  (await at.access.signIn({ username, password }, HERE)).access_token;

async function actor(token: string): Promise<Actor> {
  const who = await whoIs(instance, token);
  if (who.kind !== "valid") throw new Error("The token does not hold.");
  return who.actor;
}

const holds = async (token: string, at = other) => (await whoIs(at, token)).kind === "valid";

/** The rows of users, as text. */
async function userRows(): Promise<string> {
  const rows = JSON.parse(await deployment.everything()) as { partitionKey: string }[];
  return JSON.stringify(rows.filter((row) => row.partitionKey === "user"));
}

describe("a token", () => {
  test("is revoked by signing out, on every instance, and no other token is", async () => {
    const [token, second] = [await signIn(), await signIn()];
    expect([await holds(token), await holds(second)]).toEqual([true, true]);
    await instance.access.signOut(
      await actor(token),
      { everywhere: false, apiTokens: false },
      { ...HERE, actor: "maria" },
    );
    expect([await holds(token), await holds(second)]).toEqual([false, true]);
    expect(await deployment.entries("user.signedOut")).toMatchObject([{ outcome: "success", actor: "maria" }, {}]);
  });

  test("is revoked with all others by signing out everywhere", async () => {
    const [token, second] = [await signIn(), await signIn(other)];
    await instance.access.signOut(
      await actor(token),
      { everywhere: true, apiTokens: false },
      { ...HERE, actor: "maria" },
    );
    expect([await holds(token), await holds(second), await holds(second, instance)]).toEqual([false, false, false]);
    expect(await holds(await signIn())).toBe(true);
    expect((await deployment.entries("user.signedOut"))[0]).toMatchObject({ details: { everywhere: true } });
  });

  test("is revoked even if many are signed out at once", async () => {
    const tokens = await Promise.all(Array.from({ length: 8 }, () => signIn()));
    const actors = await Promise.all(tokens.map(actor));
    await Promise.all(
      actors.map((one, index) =>
        (index % 2 ? instance : other).access.signOut(one, { everywhere: false, apiTokens: false }, HERE),
      ),
    );
    expect(await Promise.all(tokens.map((token) => holds(token)))).toEqual(tokens.map(() => false));
  });

  test("is removed from the revoked tokens once it has expired", async () => {
    const token = await signIn();
    await instance.access.signOut(await actor(token), { everywhere: false, apiTokens: false }, HERE);
    const tokenId = JSON.parse(Buffer.from(token.split(".")[1]!, "base64url").toString()).jti;
    expect(await userRows()).toContain(tokenId);
    deployment.clock.pass(61 * MINUTES);
    await signIn();
    expect(await userRows()).not.toContain(tokenId);
  });

  test("is revoked by a new role, which the next token has", async () => {
    const token = await signIn();
    await instance.access.users.update("maria", { role: "auditor" }, undefined, HERE);
    expect(await holds(token)).toBe(false);
    expect(await actor(await signIn())).toMatchObject({ role: "auditor" });
  });

  test("stays valid if the role does not change", async () => {
    const token = await signIn();
    await instance.access.users.update("maria", { email: "maria@example.com", role: "user" }, undefined, HERE);
    expect(await holds(token)).toBe(true);
  });

  test("is revoked by deleting the user, also for a new user of that name", async () => {
    const token = await signIn();
    await instance.access.users.remove("maria", undefined, HERE);
    expect(await holds(token)).toBe(false);
    deployment.clock.pass(1);
    await instance.access.users.create(MARIA, HERE);
    expect(await holds(token)).toBe(false);
  });

  test("signed with a rotated key is valid until the key is removed", async () => {
    const token = await signIn();
    const [old] = deployment.config.JWT_SIGNING_KEYS;
    const newest = { kid: "k2", key: new Uint8Array(32).fill(7) };
    expect(await holds(token, deployment.start({ config: { JWT_SIGNING_KEYS: [newest, old!] } }))).toBe(true);
    expect(await holds(token, deployment.start({ config: { JWT_SIGNING_KEYS: [newest] } }))).toBe(false);
  });
});

describe("changing one's own password", () => {
  const NEXT = "maria's next password";

  test("revokes every token, even of the same millisecond, and only the new password is valid", async () => {
    const tokens = [await signIn(), await signIn(other)];
    await instance.access.changePassword(await actor(tokens[0]!), passwords(MARIA.password, NEXT), {
      ...HERE,
      actor: "maria",
    });
    expect([await holds(tokens[0]!), await holds(tokens[1]!)]).toEqual([false, false]);
    const newer = await signIn(instance, { ...MARIA, password: NEXT });
    expect(await holds(newer)).toBe(true);
    await expect(signIn()).rejects.toMatchObject({ code: "invalidCredentials" });
    expect(await deployment.entries("user.passwordChanged")).toMatchObject([
      { outcome: "success", actor: "maria", target: { type: "user", id: "maria" } },
      { outcome: "intent" },
    ]);
  });

  test("revokes tokens of an instance whose clock is ahead, and does not block one whose clock is behind", async () => {
    const ahead = deployment.start({ clock: TestClock.ahead(deployment.clock, 30_000) });
    const behind = deployment.start({ clock: TestClock.ahead(deployment.clock, -30_000) });
    const token = await signIn(ahead);
    await instance.access.changePassword(await actor(token), passwords(MARIA.password, NEXT), HERE);
    expect([await holds(token), await holds(token, ahead)]).toEqual([false, false]);
    expect(await holds(await signIn(behind, { ...MARIA, password: NEXT }))).toBe(true);
  });

  test("requires the current password, and wrong ones count as failed sign-ins", async () => {
    const who = await actor(await signIn());
    for (let time = 0; time < 5; time++) {
      await expect(
        instance.access.changePassword(who, passwords("a wrong password", NEXT), HERE),
      ).rejects.toMatchObject({
        code: "invalidRequest",
        errors: [{ path: "body.currentPassword" }],
      });
    }
    const refused = instance.access.changePassword(who, passwords(MARIA.password, NEXT), HERE);
    await expect(refused).rejects.toMatchObject({ code: "tooManyAttempts" });
    expect(await deployment.entries("user.passwordChanged")).toMatchObject([
      { outcome: "refused", details: { reason: "wrong current password" }, target: { id: "maria" }, count: 5 },
    ]);
  });

  test("to the same password is rejected", async () => {
    const same = instance.access.changePassword(
      await actor(await signIn()),
      passwords(MARIA.password, MARIA.password),
      HERE,
    );
    await expect(same).rejects.toMatchObject({ code: "invalidRequest", errors: [{ path: "body.newPassword" }] });
  });

  test("by two requests at once succeeds for one of them", async () => {
    const who = await actor(await signIn());
    const results = await Promise.allSettled([
      instance.access.changePassword(who, passwords(MARIA.password, "the first new password"), HERE),
      other.access.changePassword(who, passwords(MARIA.password, "the second new password"), HERE),
    ]);
    const codes = results.map((result) => (result.status === "fulfilled" ? "done" : (result.reason as Problem).code));
    // The second request fails because the password has changed or the given one is no longer correct.
    expect(codes.filter((one) => one === "done")).toHaveLength(1);
    expect(["conflict", "invalidRequest"]).toContain(codes.find((one) => one !== "done"));
  });

  test("while a sign-in verifies the old password leaves no valid token", async () => {
    let changing: Promise<void> | undefined;
    const who = await actor(await signIn());
    const slow = deployment.start({
      // When the old password is verified, it has already been changed.
      derive: async (password, salt, parameters) => {
        changing ??= instance.access.changePassword(who, passwords(MARIA.password, NEXT), {
          ...HERE,
          address: "198.51.100.7",
        });
        await changing;
        return await quickly(password, salt, parameters);
      },
    });
    await expect(signIn(slow)).rejects.toMatchObject({ code: "invalidCredentials" });
  });
});

test("me returns the user's row without anything about the password", async () => {
  const me = await instance.access.me(await actor(await signIn()));
  expect(me).toMatchObject({ id: "maria", username: "maria", role: "user", email: null, state: "active" });
  expect(Object.keys(me)).not.toContain("passwordHash");
});
