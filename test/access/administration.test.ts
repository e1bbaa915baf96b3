import { beforeEach, describe, expect, test } from "vitest";
import { NewUsername } from "../../shared/access/api.ts";
import { createTokens } from "../../shared/access/tokens.ts";
import { Identity, identityKey, USERS_PARTITION, User, type UserRecord } from "../../shared/access/user.ts";
import { createUsers } from "../../shared/access/users.ts";
import type { Problem } from "../../shared/platform/http/problem.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createTables, insert } from "../../shared/platform/storage/tables.ts";
import {
  ADMIN,
  authenticateToken,
  CALLER,
  callerAt,
  type Deployment,
  type Instance,
  MINUTES,
  passwords,
  useDeployments,
} from "./instances.ts";

// Tests of what administrators do with users: reset passwords, link SSO identities, assign roles and unlock users.

const nextDeployment = useDeployments();
let deployment: Deployment;
let instance: Instance;
let otherInstance: Instance;

beforeEach(async () => {
  deployment = nextDeployment();
  instance = deployment.start();
  otherInstance = deployment.start();
  await instance.access.signIn(ADMIN, CALLER);
});

const PAGE = { limit: 100, offset: 0, cursor: undefined };
const MARIA = { username: "maria", password: "maria's password", role: "user" as const };
const NEW_PASSWORD = "an entirely new password";
const SSO_IDENTITY = { issuer: "https://idp.example", subject: "1234" };

const updateUser = (id: string, change: Parameters<Instance["access"]["users"]["update"]>[1], caller = CALLER) =>
  instance.access.users.update(id, change, undefined, caller);
/** Returns "done", or the code of the problem with which a request is rejected. */
const outcomeOf = async (request: Promise<unknown>) =>
  await request.then(
    () => "done",
    (problem: Problem) => problem.code,
  );

/** Creates a user as a first sign-in with SSO creates it. */
async function createSsoUser(change: Partial<UserRecord> = {}): Promise<void> {
  const createdAt = deployment.clock.now().toISOString();
  const user: UserRecord = {
    uid: "u-federated",
    username: "sso-maria",
    source: "sso",
    sso: SSO_IDENTITY,
    role: "user",
    state: "active",
    tokensValidFrom: createdAt,
    revokedTokens: [],
    revision: "r1",
    createdAt: createdAt,
    createdBy: "system",
    updatedAt: createdAt,
    ...change,
  };
  const users = createUsers(createTables({ connectionString: deployment.connectionString }));
  await users.create(user, user.sso && [insert(Identity, identityKey(user.sso), { user: user.username })]);
}

describe("a reset password", () => {
  beforeEach(async () => {
    await instance.access.users.create(MARIA, CALLER);
    await updateUser("maria", { password: NEW_PASSWORD });
  });

  test("is recorded in the audit log without the password", async () => {
    const [entry] = await deployment.auditEntries("user.updated");
    expect(entry).toMatchObject({ outcome: "success", details: { passwordReset: true } });
    expect(JSON.stringify(entry)).not.toContain(NEW_PASSWORD);
    // A change of another field is not recorded as a reset.
    await updateUser("maria", { email: "maria@acme.example" });
    expect((await deployment.auditEntries("user.updated"))[0]!.details).not.toHaveProperty("passwordReset");
  });

  test("must be changed after the next sign-in", async () => {
    const { access_token } = await instance.access.signIn({ ...MARIA, password: NEW_PASSWORD }, CALLER);
    const { cookie } = await instance.access.signInToSession({ ...MARIA, password: NEW_PASSWORD }, CALLER, undefined);
    const authenticated = await authenticateToken(otherInstance, access_token);
    expect(authenticated).toMatchObject({ kind: "valid", actor: { mustChangePassword: true } });
    const session = { kind: "session", cookie: cookie.value } as const;
    expect(await otherInstance.access.authenticate(session)).toMatchObject({ mustChangePassword: true });
    expect(await instance.access.users.get("maria")).toMatchObject({ mustChangePassword: true });

    if (authenticated.kind === "valid")
      await instance.access.changePassword(
        authenticated.actor,
        passwords(NEW_PASSWORD, "maria's own new password"),
        CALLER,
      );
    const token = (await instance.access.signIn({ ...MARIA, password: "maria's own new password" }, CALLER))
      .access_token;
    expect(await authenticateToken(otherInstance, token)).toMatchObject({ actor: { mustChangePassword: false } });
    expect(await instance.access.users.get("maria")).toMatchObject({ mustChangePassword: false });
  });

  test("does not block a user who signs in with SSO", async () => {
    const { cookie } = await instance.access.signInToSession({ ...MARIA, password: NEW_PASSWORD }, CALLER, undefined);
    const session = { kind: "session", cookie: cookie.value } as const;
    const tables = createTables({ connectionString: deployment.connectionString });
    const row = (await tables.get(User, USERS_PARTITION, "maria"))!;
    await tables.replace(User, { ...row, sessions: row.sessions!.map((each) => ({ ...each, by: "sso" as const })) });
    expect(await otherInstance.access.authenticate(session)).toMatchObject({
      username: "maria",
      mustChangePassword: false,
    });
  });

  test("can't be set for oneself or for an SSO user", async () => {
    const ownReset = updateUser("maria", { password: NEW_PASSWORD }, { ...CALLER, actor: "maria" });
    expect(await outcomeOf(ownReset)).toBe("conflict");
    await createSsoUser();
    expect(await outcomeOf(updateUser("sso-maria", { password: NEW_PASSWORD }))).toBe("conflict");
  });
});

describe("a password that an administrator gave", () => {
  const DAYS = 24 * 60 * MINUTES;
  const withPassword = (password: string) => outcomeOf(instance.access.signIn({ ...MARIA, password }, CALLER));

  test("expires after 14 days without use, and the answer to the right password says so", async () => {
    await instance.access.users.create(MARIA, CALLER);
    deployment.clock.pass(14 * DAYS);
    expect(await withPassword("wrong password")).toBe("invalidCredentials");
    await expect(instance.access.signIn(MARIA, CALLER)).rejects.toMatchObject({
      code: "passwordExpired",
      status: 401,
      message: expect.stringContaining("Ask an administrator"),
    });
    expect((await deployment.auditEntries("user.signInRefused"))[0]).toMatchObject({
      target: { id: "maria" },
      details: { reason: "passwordExpired" },
    });
    await updateUser("maria", { password: NEW_PASSWORD });
    deployment.clock.pass(14 * DAYS - 1);
    expect(await withPassword(NEW_PASSWORD)).toBe("done");
  });

  test("does not expire after it was used once, nor does a password that the user chose", async () => {
    await instance.access.users.create(MARIA, CALLER);
    const { access_token } = await instance.access.signIn(MARIA, CALLER);
    const authenticated = await authenticateToken(instance, access_token);
    deployment.clock.pass(20 * MINUTES);
    await updateUser("maria", { password: NEW_PASSWORD });
    deployment.clock.pass(20 * MINUTES);
    const own = "maria's own new password";
    if (authenticated.kind === "valid")
      await instance.access.changePassword(authenticated.actor, passwords(NEW_PASSWORD, own), CALLER);
    deployment.clock.pass(400 * DAYS);
    expect(await withPassword(own)).toBe("done");
    await instance.access.users.create({ ...MARIA, username: "used" }, CALLER);
    await instance.access.signIn({ ...MARIA, username: "used" }, CALLER);
    deployment.clock.pass(400 * DAYS);
    expect(await outcomeOf(instance.access.signIn({ ...MARIA, username: "used" }, CALLER))).toBe("done");
  });

  test("that expired unused leaves the other administrator the last one who can sign in", async () => {
    await instance.access.users.create({ ...MARIA, role: "admin" }, CALLER);
    const demote = () => outcomeOf(updateUser(ADMIN.username, { role: "user" }, { ...CALLER, actor: "maria" }));
    const remove = () => outcomeOf(instance.access.users.remove(ADMIN.username, undefined, CALLER));
    deployment.clock.pass(14 * DAYS);
    expect([await demote(), await remove()]).toEqual(["conflict", "conflict"]);
    await updateUser("maria", { password: NEW_PASSWORD });
    expect(await demote()).toBe("done");
    // `admin` is no administrator anymore, so it can be removed.
    expect(await remove()).toBe("done");
  });

  test("does not expire if it is the bootstrap administrator's, which another administrator reset", async () => {
    await instance.access.users.create({ ...MARIA, role: "admin" }, CALLER);
    await instance.access.users.update(ADMIN.username, { password: NEW_PASSWORD }, undefined, {
      ...CALLER,
      actor: MARIA.username,
    });
    deployment.clock.pass(400 * DAYS);
    expect(await outcomeOf(instance.access.signIn({ ...ADMIN, password: NEW_PASSWORD }, CALLER))).toBe("done");
  });

  test("does not expire if an earlier version stored it, nor does the bootstrap administrator's", async () => {
    await instance.access.users.create(MARIA, CALLER);
    const tables = createTables({ connectionString: deployment.connectionString });
    const { unusedPasswordSince, ...earlier } = (await tables.get(User, USERS_PARTITION, "maria"))!;
    expect(unusedPasswordSince).toBe(deployment.clock.now().toISOString());
    await tables.replace(User, earlier);
    deployment.clock.pass(400 * DAYS);
    expect(await withPassword(MARIA.password)).toBe("done");
    expect(await outcomeOf(instance.access.signIn(ADMIN, CALLER))).toBe("done");
  });
});

// Clocks of instances may differ, so a token that was issued up to a minute in the future is accepted.
test.each([
  [59, "valid"],
  [61, "invalid"],
  [3 * 3600, "invalid"],
])("a token with an issue time %i seconds ahead is %s", async (seconds, kind) => {
  await instance.access.users.create(MARIA, CALLER);
  const tables = createTables({ connectionString: deployment.connectionString });
  const { uid } = (await tables.get(User, USERS_PARTITION, "maria"))!;
  const { config, clock } = deployment;
  const tokens = createTokens({ config, clock, randomness: systemRandomness() });
  const issuedAt = new Date(clock.now().getTime() + seconds * 1000);
  expect((await authenticateToken(instance, await tokens.issue({ username: "maria", uid: uid! }, issuedAt))).kind).toBe(
    kind,
  );
});

describe("the last administrator", () => {
  test("is the last one who has a password, so SSO users do not count", async () => {
    await createSsoUser({ role: "admin" });
    expect(await outcomeOf(instance.access.users.remove("admin", undefined, CALLER))).toBe("conflict");
    expect(await outcomeOf(updateUser("admin", { state: "disabled" }))).toBe("conflict");
    expect(await outcomeOf(updateUser("admin", { role: "operator" }))).toBe("conflict");
    await instance.access.users.create({ ...MARIA, role: "admin" }, CALLER);
    expect(await outcomeOf(updateUser("admin", { state: "disabled" }))).toBe("done");
    expect(await outcomeOf(instance.access.users.remove("maria", undefined, CALLER))).toBe("conflict");
    // An SSO user can be deleted, even the last one.
    expect(await outcomeOf(instance.access.users.remove("sso-maria", undefined, CALLER))).toBe("done");
  });
});

describe("an SSO identity (issuer and subject)", () => {
  beforeEach(() => instance.access.users.create(MARIA, CALLER));

  test("is linked to one user, shown, and unlinked", async () => {
    expect(await updateUser("maria", { sso: SSO_IDENTITY })).toMatchObject({ sso: SSO_IDENTITY, source: "local" });
    expect(await outcomeOf(updateUser("admin", { sso: SSO_IDENTITY }))).toBe("conflict");
    expect(await outcomeOf(updateUser("maria", { sso: SSO_IDENTITY, email: "maria@example.com" }))).toBe("done");
    expect(await updateUser("maria", { sso: { ...SSO_IDENTITY, subject: "5678" } })).toMatchObject({
      sso: { subject: "5678" },
    });
    // The first identity is available again.
    expect(await outcomeOf(updateUser("admin", { sso: SSO_IDENTITY }))).toBe("done");
    expect(await updateUser("maria", { sso: null })).toMatchObject({ sso: null });
    // Of all identity rows, whose keys start with `|sso|`, only the one that links the identity to `admin` is left.
    expect((await deployment.allRows()).match(/"\|sso\|/g)).toHaveLength(1);
  });

  test("can be linked to one user only, even when two instances link it at once", async () => {
    const results = await Promise.all([
      outcomeOf(updateUser("maria", { sso: SSO_IDENTITY })),
      outcomeOf(otherInstance.access.users.update("admin", { sso: SSO_IDENTITY }, undefined, CALLER)),
    ]);
    expect(results.sort()).toEqual(["conflict", "done"]);
  });

  test("can't be moved from a user whom SSO created", async () => {
    await createSsoUser();
    expect(await outcomeOf(updateUser("sso-maria", { sso: null }))).toBe("conflict");
    expect(await outcomeOf(updateUser("maria", { sso: SSO_IDENTITY }))).toBe("conflict");
  });

  test.each([
    ["linked to a local user", "maria"],
    ["of a user whom SSO created", "sso-maria"],
  ])("%s is blocked after the user is deleted until an administrator unblocks it", async (_, name) => {
    if (name === "maria") await updateUser("maria", { sso: SSO_IDENTITY });
    else await createSsoUser();
    await instance.access.users.remove(name, undefined, { ...CALLER, actor: "admin" });
    const tables = createTables({ connectionString: deployment.connectionString });
    const readIdentityRow = () => tables.get(Identity, "user", identityKey(SSO_IDENTITY));
    // The identity's row stays, so that its sign-in does not create a new user.
    expect(await readIdentityRow()).toMatchObject({ user: name, refused: true });
    const linking = updateUser("admin", { sso: SSO_IDENTITY });
    await expect(linking).rejects.toMatchObject({ code: "conflict", message: expect.stringContaining("is blocked") });
    const { identities } = instance.access;
    const { items, total } = await identities.refusals(PAGE);
    expect([items, total]).toEqual([
      [
        {
          id: items[0]!.id,
          ...SSO_IDENTITY,
          username: name,
          refusedAt: "2026-11-21T10:00:00.000Z",
          refusedBy: "admin",
        },
      ],
      1,
    ]);
    await identities.allow(items[0]!.id, CALLER);
    expect(await readIdentityRow()).toBeUndefined();
    expect((await identities.refusals(PAGE)).total).toBe(0);
    expect(await outcomeOf(identities.allow(items[0]!.id, CALLER))).toBe("notFound");
    expect(await outcomeOf(updateUser("admin", { sso: SSO_IDENTITY }))).toBe("done");
    expect((await deployment.auditEntries("user.identityAllowed"))[0]).toMatchObject({
      outcome: "success",
      details: SSO_IDENTITY,
    });
  });

  test("is not blocked if the deleted user had none", async () => {
    await instance.access.users.remove("maria", undefined, CALLER);
    expect((await instance.access.identities.refusals(PAGE)).items).toEqual([]);
    expect(await outcomeOf(instance.access.identities.allow("0".repeat(64), CALLER))).toBe("notFound");
  });
});

describe("the role of an SSO user", () => {
  test("can't be changed by an administrator while the SSO configuration maps roles", async () => {
    await createSsoUser();
    await instance.access.users.create(MARIA, CALLER);
    const usersWithMappedRoles = deployment.start({ roleMapped: async () => true }).access.users;
    expect(await outcomeOf(usersWithMappedRoles.update("sso-maria", { role: "auditor" }, undefined, CALLER))).toBe(
      "conflict",
    );
    expect(
      await outcomeOf(usersWithMappedRoles.update("sso-maria", { role: "user", state: "disabled" }, undefined, CALLER)),
    ).toBe("done");
    expect(await outcomeOf(usersWithMappedRoles.update("maria", { role: "auditor" }, undefined, CALLER))).toBe("done");
    expect(await updateUser("sso-maria", { role: "auditor" })).toMatchObject({ role: "auditor", source: "sso" });
  });
});

describe("a user who failed to sign in", () => {
  /** Signs in with a wrong password from an address. */
  const failToSignIn = (address: string) =>
    outcomeOf(instance.access.signIn({ username: "maria", password: "wrong" }, callerAt(address)));

  test("is shown as locked until the block ends or an administrator unlocks the user", async () => {
    await instance.access.users.create(MARIA, CALLER);
    const lockedUntil = async () => (await otherInstance.access.users.get("maria")).lockedUntil;
    // The fifth failure from an address blocks the username there for 15 minutes. The clock starts at 10:00.
    for (let failure = 0; failure < 4; failure++) await failToSignIn("198.51.100.1");
    expect(await lockedUntil()).toBeNull();
    await failToSignIn("198.51.100.1");
    expect(await lockedUntil()).toBe("2026-11-21T10:15:00.000Z");
    expect(
      (await otherInstance.access.users.list(PAGE)).items.map(({ id, lockedUntil: until }) => [id, until]),
    ).toEqual([
      ["admin", null],
      ["maria", "2026-11-21T10:15:00.000Z"],
    ]);
    deployment.clock.pass(15 * MINUTES);
    expect(await lockedUntil()).toBeNull();

    for (let failure = 0; failure < 5; failure++) await failToSignIn("198.51.100.2");
    expect(await lockedUntil()).toBe("2026-11-21T10:30:00.000Z");
    expect(await instance.access.users.unlock("maria", CALLER)).toMatchObject({ lockedUntil: null });
    expect(await outcomeOf(instance.access.signIn(MARIA, callerAt("198.51.100.2")))).toBe("done");
  });

  test("from many addresses is shown as delayed", async () => {
    await instance.access.users.create(MARIA, CALLER);
    // After 10 failures from any addresses, each further failure delays the next sign-in, first by 2 seconds. `lockedUntil` is
    // the end of the delay.
    for (let failure = 0; failure < 11; failure++) await failToSignIn(`198.51.100.${failure}`);
    expect((await otherInstance.access.users.get("maria")).lockedUntil).toBe("2026-11-21T10:00:02.000Z");
  });
});

describe("a username", () => {
  test.each(["system", "System", "ANONYMOUS", "sso-x", "SSO-1", "a:b", "entra:1:2", ""])(
    '"%s" is reserved or invalid',
    (name) => {
      expect(NewUsername.safeParse(name).success).toBe(false);
    },
  );

  test.each(["systems", "sso", "my-sso-x", "maria.lopez", "a"])("%s is not reserved", (name) => {
    expect(NewUsername.safeParse(name).success).toBe(true);
  });
});
