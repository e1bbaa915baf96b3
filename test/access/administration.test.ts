import { beforeEach, describe, expect, test } from "vitest";
import { NewUsername } from "../../shared/access/api.ts";
import { Identity, identityKey, USERS_PARTITION, User, type UserRecord } from "../../shared/access/user.ts";
import { createUsers } from "../../shared/access/users.ts";
import type { Problem } from "../../shared/platform/http/problem.ts";
import { createTables, insert } from "../../shared/platform/storage/tables.ts";
import {
  ADMIN,
  type Deployment,
  from,
  HERE,
  type Instance,
  MINUTES,
  passwords,
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
  await instance.access.signIn(ADMIN, HERE);
});

const PAGE = { limit: 100, offset: 0, cursor: undefined };
const MARIA = { username: "maria", password: "maria's password", role: "user" as const };
const NEXT = "an entirely new password";
const PAIR = { issuer: "https://idp.example", subject: "1234" };

const update = (id: string, change: Parameters<Instance["access"]["users"]["update"]>[1], caller = HERE) =>
  instance.access.users.update(id, change, undefined, caller);
const codeOf = async (refused: Promise<unknown>) =>
  await refused.then(
    () => "done",
    (problem: Problem) => problem.code,
  );

/** A user as single sign-on creates it. */
async function makeFederated(change: Partial<UserRecord> = {}): Promise<void> {
  const now = deployment.clock.now().toISOString();
  const user: UserRecord = {
    uid: "u-federated",
    username: "sso-maria",
    source: "sso",
    sso: PAIR,
    role: "user",
    state: "active",
    tokensValidFrom: now,
    revokedTokens: [],
    revision: "r1",
    createdAt: now,
    createdBy: "system",
    updatedAt: now,
    ...change,
  };
  const users = createUsers(createTables({ connectionString: deployment.connectionString }));
  await users.create(user, user.sso && [insert(Identity, identityKey(user.sso), { user: user.username })]);
}

describe("a reset password", () => {
  beforeEach(async () => {
    await instance.access.users.create(MARIA, HERE);
    await update("maria", { password: NEXT });
  });

  test("is recorded in the audit log without the password; another change is not recorded as a reset", async () => {
    const [entry] = await deployment.entries("user.updated");
    expect(entry).toMatchObject({ outcome: "success", details: { passwordReset: true } });
    expect(JSON.stringify(entry)).not.toContain(NEXT);
    await update("maria", { email: "maria@acme.example" });
    expect((await deployment.entries("user.updated"))[0]!.details).not.toHaveProperty("passwordReset");
  });

  test("must be changed at the next sign-in, and is then an ordinary password", async () => {
    const { access_token } = await instance.access.signIn({ ...MARIA, password: NEXT }, HERE);
    const { cookie } = await instance.access.signInToSession({ ...MARIA, password: NEXT }, HERE, undefined);
    const who = await whoIs(other, access_token);
    expect(who).toMatchObject({ kind: "valid", actor: { mustChangePassword: true } });
    const session = { kind: "session", cookie: cookie.value } as const;
    expect(await other.access.authenticate(session)).toMatchObject({ mustChangePassword: true });
    expect(await instance.access.users.get("maria")).toMatchObject({ mustChangePassword: true });

    if (who.kind === "valid")
      await instance.access.changePassword(who.actor, passwords(NEXT, "maria's own again"), HERE);
    const token = (await instance.access.signIn({ ...MARIA, password: "maria's own again" }, HERE)).access_token;
    expect(await whoIs(other, token)).toMatchObject({ actor: { mustChangePassword: false } });
    expect(await instance.access.users.get("maria")).toMatchObject({ mustChangePassword: false });
  });

  test("does not block a user who signs in with SSO", async () => {
    const { cookie } = await instance.access.signInToSession({ ...MARIA, password: NEXT }, HERE, undefined);
    const session = { kind: "session", cookie: cookie.value } as const;
    const tables = createTables({ connectionString: deployment.connectionString });
    const row = (await tables.get(User, USERS_PARTITION, "maria"))!;
    await tables.replace(User, { ...row, sessions: row.sessions!.map((one) => ({ ...one, by: "sso" as const })) });
    expect(await other.access.authenticate(session)).toMatchObject({ username: "maria", mustChangePassword: false });
  });

  test("can't be set for oneself or for an SSO user", async () => {
    const own = update("maria", { password: NEXT }, { ...HERE, actor: "maria" });
    expect(await codeOf(own)).toBe("conflict");
    await makeFederated();
    expect(await codeOf(update("sso-maria", { password: NEXT }))).toBe("conflict");
  });
});

describe("the last administrator", () => {
  test("needs a password: SSO users do not count", async () => {
    await makeFederated({ role: "admin" });
    expect(await codeOf(instance.access.users.remove("admin", undefined, HERE))).toBe("conflict");
    expect(await codeOf(update("admin", { state: "disabled" }))).toBe("conflict");
    expect(await codeOf(update("admin", { role: "operator" }))).toBe("conflict");
    await instance.access.users.create({ ...MARIA, role: "admin" }, HERE);
    expect(await codeOf(update("admin", { state: "disabled" }))).toBe("done");
    expect(await codeOf(instance.access.users.remove("maria", undefined, HERE))).toBe("conflict");
    // An SSO user can be deleted, even the last one.
    expect(await codeOf(instance.access.users.remove("sso-maria", undefined, HERE))).toBe("done");
  });
});

describe("an identity of single sign-on", () => {
  beforeEach(() => instance.access.users.create(MARIA, HERE));

  test("is linked to one user, shown, and unlinked", async () => {
    expect(await update("maria", { sso: PAIR })).toMatchObject({ sso: PAIR, source: "local" });
    expect(await codeOf(update("admin", { sso: PAIR }))).toBe("conflict");
    expect(await codeOf(update("maria", { sso: PAIR, email: "maria@example.com" }))).toBe("done");
    expect(await update("maria", { sso: { ...PAIR, subject: "5678" } })).toMatchObject({ sso: { subject: "5678" } });
    // The first identity is available again.
    expect(await codeOf(update("admin", { sso: PAIR }))).toBe("done");
    expect(await update("maria", { sso: null })).toMatchObject({ sso: null });
    expect((await deployment.everything()).match(/"\|sso\|/g)).toHaveLength(1);
  });

  test("can be linked to one user only, even when two instances link it at once", async () => {
    const results = await Promise.all([
      codeOf(update("maria", { sso: PAIR })),
      codeOf(other.access.users.update("admin", { sso: PAIR }, undefined, HERE)),
    ]);
    expect(results.sort()).toEqual(["conflict", "done"]);
  });

  test("stays with the user that single sign-on created", async () => {
    await makeFederated();
    expect(await codeOf(update("sso-maria", { sso: null }))).toBe("conflict");
    expect(await codeOf(update("maria", { sso: PAIR }))).toBe("conflict");
  });

  test.each(["maria", "sso-maria"])("of %s is blocked after the deletion until it is unblocked", async (name) => {
    if (name === "maria") await update("maria", { sso: PAIR });
    else await makeFederated();
    await instance.access.users.remove(name, undefined, { ...HERE, actor: "admin" });
    const tables = createTables({ connectionString: deployment.connectionString });
    const identity = () => tables.get(Identity, "user", identityKey(PAIR));
    expect(await identity()).toMatchObject({ user: name, refused: true });
    const linking = update("admin", { sso: PAIR });
    await expect(linking).rejects.toMatchObject({ code: "conflict", message: expect.stringContaining("is blocked") });
    const { identities } = instance.access;
    const { items, total } = await identities.refusals(PAGE);
    expect([items, total]).toEqual([
      [{ id: items[0]!.id, ...PAIR, username: name, refusedAt: "2026-11-21T10:00:00.000Z", refusedBy: "admin" }],
      1,
    ]);
    await identities.allow(items[0]!.id, HERE);
    expect(await identity()).toBeUndefined();
    expect((await identities.refusals(PAGE)).total).toBe(0);
    expect(await codeOf(identities.allow(items[0]!.id, HERE))).toBe("notFound");
    expect(await codeOf(update("admin", { sso: PAIR }))).toBe("done");
    expect((await deployment.entries("user.identityAllowed"))[0]).toMatchObject({ outcome: "success", details: PAIR });
  });

  test("of an unknown user is not blocked", async () => {
    await instance.access.users.remove("maria", undefined, HERE);
    expect((await instance.access.identities.refusals(PAGE)).items).toEqual([]);
    expect(await codeOf(instance.access.identities.allow("0".repeat(64), HERE))).toBe("notFound");
  });
});

describe("the role of an SSO user", () => {
  test("is assigned by an administrator unless roles are mapped", async () => {
    await makeFederated();
    await instance.access.users.create(MARIA, HERE);
    const mapped = deployment.start({ roleMapped: async () => true }).access.users;
    expect(await codeOf(mapped.update("sso-maria", { role: "auditor" }, undefined, HERE))).toBe("conflict");
    expect(await codeOf(mapped.update("sso-maria", { role: "user", state: "disabled" }, undefined, HERE))).toBe("done");
    expect(await codeOf(mapped.update("maria", { role: "auditor" }, undefined, HERE))).toBe("done");
    expect(await update("sso-maria", { role: "auditor" })).toMatchObject({ role: "auditor", source: "sso" });
  });
});

describe("a user who failed to sign in", () => {
  const fail = (address: string) =>
    codeOf(instance.access.signIn({ username: "maria", password: "wrong" }, from(address)));

  test("is shown as locked until the block ends or an administrator unlocks the user", async () => {
    await instance.access.users.create(MARIA, HERE);
    const lockedUntil = async () => (await other.access.users.get("maria")).lockedUntil;
    for (let failure = 0; failure < 4; failure++) await fail("198.51.100.1");
    expect(await lockedUntil()).toBeNull();
    await fail("198.51.100.1");
    expect(await lockedUntil()).toBe("2026-11-21T10:15:00.000Z");
    expect((await other.access.users.list(PAGE)).items.map(({ id, lockedUntil: until }) => [id, until])).toEqual([
      ["admin", null],
      ["maria", "2026-11-21T10:15:00.000Z"],
    ]);
    deployment.clock.pass(15 * MINUTES);
    expect(await lockedUntil()).toBeNull();

    for (let failure = 0; failure < 5; failure++) await fail("198.51.100.2");
    expect(await lockedUntil()).toBe("2026-11-21T10:30:00.000Z");
    expect(await instance.access.users.unlock("maria", HERE)).toMatchObject({ lockedUntil: null });
    expect(await codeOf(instance.access.signIn(MARIA, from("198.51.100.2")))).toBe("done");
  });

  test("from many addresses is shown as delayed", async () => {
    await instance.access.users.create(MARIA, HERE);
    for (let failure = 0; failure < 11; failure++) await fail(`198.51.100.${failure}`);
    expect((await other.access.users.get("maria")).lockedUntil).toBe("2026-11-21T10:00:02.000Z");
  });
});

describe("a username", () => {
  test.each(["system", "System", "ANONYMOUS", "sso-x", "SSO-1", "a:b", "entra:1:2", ""])("%s is reserved", (name) => {
    expect(NewUsername.safeParse(name).success).toBe(false);
  });

  test.each(["systems", "sso", "my-sso-x", "maria.lopez", "a"])("%s is not reserved", (name) => {
    expect(NewUsername.safeParse(name).success).toBe(true);
  });
});
