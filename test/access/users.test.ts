import { TableClient } from "@azure/data-tables";
import { beforeEach, describe, expect, test } from "vitest";
import { BOOTSTRAP_KEY, USERS_PARTITION } from "../../shared/access/user.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import {
  ADMIN,
  authenticateToken,
  CALLER,
  type Deployment,
  type Instance,
  MINUTES,
  passwords,
  signingKey,
  useDeployments,
} from "./instances.ts";

// Tests of the users and of the bootstrap administrator, whom the service creates from its configuration
// (BOOTSTRAP_ADMIN_USERNAME and BOOTSTRAP_ADMIN_PASSWORD).

const nextDeployment = useDeployments();
let deployment: Deployment;
let instance: Instance;

beforeEach(() => {
  deployment = nextDeployment();
  instance = deployment.start();
});

const PAGE = { limit: 100, offset: 0, cursor: undefined };
const newUser = (username: string, role: "user" | "auditor" | "admin" = "user") => ({
  username,
  role,
  password: "a long enough password",
});
const NEXT_PASSWORD = "another horse battery";

describe("the bootstrap administrator", () => {
  test("is created once when five instances start at once", async () => {
    const instances = [instance, ...Array.from({ length: 4 }, () => deployment.start())];
    await Promise.all(instances.map(({ access }) => access.signIn(ADMIN, CALLER)));
    expect(await instance.access.users.list(PAGE)).toMatchObject({
      items: [{ username: "Admin", role: "admin", createdBy: "system" }],
      total: 1,
    });
    const outcomes = (await deployment.auditEntries("user.bootstrapped")).map(({ outcome }) => outcome);
    expect(outcomes.filter((outcome) => outcome === "success")).toHaveLength(1);
  });

  test("is reset to the configured password before a new process accepts an old token", async () => {
    await instance.access.signIn(ADMIN, CALLER);
    const restarted = deployment.start({ config: { BOOTSTRAP_ADMIN_PASSWORD: NEXT_PASSWORD } });
    const { access_token } = await instance.access.signIn(ADMIN, CALLER);
    expect(await authenticateToken(restarted, access_token)).toEqual({ kind: "invalid" });
  });

  test("loses the old password and all tokens when the configured password changes", async () => {
    const { access_token } = await instance.access.signIn(ADMIN, CALLER);
    for (let time = 0; time < 5; time++) {
      await expect(instance.access.signIn({ ...ADMIN, password: "wrong" }, CALLER)).rejects.toThrow();
    }
    const restarted = deployment.start({ config: { BOOTSTRAP_ADMIN_PASSWORD: NEXT_PASSWORD } });
    await restarted.access.signIn({ ...ADMIN, password: NEXT_PASSWORD }, CALLER);
    expect(await authenticateToken(instance, access_token)).toEqual({ kind: "invalid" });
    await expect(restarted.access.signIn(ADMIN, CALLER)).rejects.toMatchObject({ code: "invalidCredentials" });
    expect(await deployment.auditEntries("user.bootstrapReset")).toMatchObject([
      { actor: "system", outcome: "success", target: { id: "admin" } },
      { outcome: "intent" },
    ]);
  });

  test("is an administrator again after a reset, even if the role was changed", async () => {
    await instance.access.signIn(ADMIN, CALLER);
    await instance.access.users.create(newUser("second", "admin"), CALLER);
    await instance.access.users.update("admin", { role: "user" }, undefined, CALLER);
    const restarted = deployment.start({ config: { BOOTSTRAP_ADMIN_PASSWORD: NEXT_PASSWORD } });
    await restarted.access.signIn({ ...ADMIN, password: NEXT_PASSWORD }, CALLER);
    expect(await restarted.access.users.get("admin")).toMatchObject({ role: "admin" });
    await restarted.access.users.remove("second", undefined, CALLER);
    await expect(restarted.access.users.remove("admin", undefined, CALLER)).rejects.toMatchObject({ code: "conflict" });
  });

  test("keeps a changed password, or stays deleted, while the configuration stays the same", async () => {
    const { access_token } = await instance.access.signIn(ADMIN, CALLER);
    const authenticated = await authenticateToken(instance, access_token);
    if (authenticated.kind !== "valid") throw new Error("The token is not valid.");
    await instance.access.changePassword(authenticated.actor, passwords(ADMIN.password, NEXT_PASSWORD), CALLER);
    const restarted = deployment.start();
    await restarted.access.signIn({ ...ADMIN, password: NEXT_PASSWORD }, CALLER);
    await restarted.access.users.create(newUser("second", "admin"), CALLER);
    await restarted.access.users.remove("admin", undefined, CALLER);
    const restartedAgain = deployment.start();
    await expect(restartedAgain.access.signIn({ ...ADMIN, password: NEXT_PASSWORD }, CALLER)).rejects.toMatchObject({
      code: "invalidCredentials",
    });
    expect((await restartedAgain.access.users.list(PAGE)).items.map(({ id }) => id)).toEqual(["second"]);
  });

  test("can't sign in while the row that records its configured password can't be read, but other users can", async () => {
    const table = TableClient.fromConnectionString(deployment.connectionString, "Users", {
      allowInsecureConnection: true,
    });
    await instance.access.signIn(ADMIN, CALLER);
    const second = newUser("second", "admin");
    await instance.access.users.create(second, CALLER);
    const tokenOf = async (user: { username: string; password: string }, { access } = instance) =>
      (await access.signIn(user, CALLER)).access_token;
    const [adminToken, secondToken] = [await tokenOf(ADMIN), await tokenOf(second)];
    const sessionOf = async (user: typeof ADMIN) =>
      (await instance.access.signInToSession(user, CALLER, undefined)).cookie;
    const [adminSession, secondSession] = [await sessionOf(ADMIN), await sessionOf(second)];
    const keys = { partitionKey: USERS_PARTITION, rowKey: BOOTSTRAP_KEY };
    await table.upsertEntity({ ...keys, username: 5 }, "Replace");

    const restarted = deployment.start();
    const corrupt = { name: "StorageCorrupt", rowKey: BOOTSTRAP_KEY };
    const authenticateSession = ({ value: cookie }: { value: string }) =>
      restarted.access.authenticate({ kind: "session", cookie });
    await expect(tokenOf(ADMIN, restarted)).rejects.toMatchObject(corrupt);
    await expect(authenticateToken(restarted, adminToken)).rejects.toMatchObject(corrupt);
    await expect(authenticateSession(adminSession)).rejects.toMatchObject(corrupt);
    expect(await authenticateToken(restarted, await tokenOf(second, restarted))).toMatchObject({ kind: "valid" });
    expect(await authenticateToken(restarted, secondToken)).toMatchObject({ kind: "valid" });
    expect(await authenticateSession(secondSession)).toMatchObject({ username: "second" });
    await table.deleteEntity(keys.partitionKey, keys.rowKey);
    // Without the row, the user is reset to the configured password.
    expect(await authenticateToken(restarted, adminToken)).toEqual({ kind: "invalid" });
    expect(await authenticateToken(restarted, await tokenOf(ADMIN, restarted))).toMatchObject({ kind: "valid" });
  });

  test("costs one read and no password hash at the start of a process", async () => {
    const { access_token } = await instance.access.signIn(ADMIN, CALLER);
    const proxy = await startTableProxy(deployment.connectionString);
    try {
      const restarted = deployment.start({ connectionString: proxy.connectionString });
      for (let time = 0; time < 2; time++) {
        expect(await authenticateToken(restarted, access_token)).toMatchObject({ kind: "valid" });
      }
      expect(restarted.derivationCount()).toBe(0);
      expect(proxy.requests.map(({ method, path }) => `${method} ${path}`)).toEqual([
        "GET Users(PartitionKey='user',RowKey='|bootstrap')",
        "GET Users(PartitionKey='user',RowKey='admin')",
        "GET Users(PartitionKey='user',RowKey='admin')",
      ]);
    } finally {
      await proxy.stop();
    }
  });

  // The service recognizes an unchanged password by a stored hash with a signing key. Once that key is removed, it compares the
  // password with a stored password hash, and stores a hash with the newest key.
  test("costs a password hash only when all signing keys are replaced", async () => {
    await instance.access.signIn(ADMIN, CALLER);
    const [oldKey] = deployment.config.JWT_SIGNING_KEYS;
    const [secondKey, thirdKey] = [signingKey("k2"), signingKey("k3")];
    /** Starts a process with these signing keys, and returns the number of hashes apart from that of the sign-in. */
    const hashesAtStart = async (...keys: (typeof secondKey)[]) => {
      const { access, derivationCount } = deployment.start({ config: { JWT_SIGNING_KEYS: keys } });
      await access.signIn({ ...ADMIN, password: ADMIN.password }, CALLER);
      return derivationCount() - 1;
    };
    expect(await hashesAtStart(secondKey, oldKey!)).toBe(0);
    expect(await hashesAtStart(secondKey)).toBe(0);
    expect(await hashesAtStart(thirdKey)).toBe(1);
    expect(await hashesAtStart(thirdKey)).toBe(0);
    expect(await deployment.auditEntries("user.bootstrapReset")).toEqual([]);
  });

  test("is created in addition to the old one when the configured name changes", async () => {
    await instance.access.signIn(ADMIN, CALLER);
    const restarted = deployment.start({ config: { BOOTSTRAP_ADMIN_USERNAME: "root" } });
    await restarted.access.signIn({ ...ADMIN, username: "root" }, CALLER);
    await restarted.access.signIn(ADMIN, CALLER);
    expect((await restarted.access.users.list(PAGE)).total).toBe(2);
  });

  test("is not created if it is not configured", async () => {
    const noBootstrapAdmin = { BOOTSTRAP_ADMIN_USERNAME: undefined, BOOTSTRAP_ADMIN_PASSWORD: undefined };
    const { access } = deployment.start({ config: noBootstrapAdmin });
    await expect(access.signIn(ADMIN, CALLER)).rejects.toMatchObject({ code: "invalidCredentials" });
    expect(await access.users.list(PAGE)).toMatchObject({ items: [], total: 0 });
  });
});

describe("users", () => {
  test("are created once per name when four requests create it at once in different cases", async () => {
    const otherInstance = deployment.start();
    const results = await Promise.allSettled(
      ["maria", "Maria", "MARIA", "maria"].map((name, index) =>
        (index % 2 ? instance : otherInstance).access.users.create(newUser(name), CALLER),
      ),
    );
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    for (const result of results) {
      if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "alreadyExists" });
    }
    expect(await instance.access.users.list(PAGE)).toMatchObject({ total: 1, items: [{ id: "maria" }] });
  });

  test("are recorded in the audit log without their password", async () => {
    const caller = { ...CALLER, actor: "admin" };
    await instance.access.users.create({ ...newUser("maria"), email: "maria@example.com" }, caller);
    const [outcome] = await deployment.auditEntries("user.created");
    expect(outcome).toMatchObject({
      actor: "admin",
      target: { type: "user", id: "maria" },
      after: { username: "maria", email: "maria@example.com", role: "user", createdBy: "admin" },
    });
    expect(JSON.stringify(outcome)).not.toMatch(/long enough password|scrypt/i);
  });

  test("are not created if the intent can't be recorded in the audit log", async () => {
    const append = async () => {
      throw new Error("no audit");
    };
    const instanceWithoutAudit = deployment.start({ audit: { append } });
    await expect(instanceWithoutAudit.access.users.create(newUser("maria"), CALLER)).rejects.toThrow("no audit");
    expect((await instance.access.users.list(PAGE)).total).toBe(0);
  });

  test("are changed only with a current ETag, which a sign-in does not change", async () => {
    const { etag } = await instance.access.users.create(newUser("maria"), CALLER);
    await instance.access.signIn(newUser("maria"), CALLER);
    deployment.clock.pass(MINUTES);
    const changed = await instance.access.users.update("maria", { email: "maria@example.com" }, etag, CALLER);
    expect(changed).toMatchObject({ email: "maria@example.com", role: "user", updatedAt: "2026-11-21T10:01:00.000Z" });
    expect(changed.etag).not.toBe(etag);
    const staleChange = instance.access.users.update("maria", { role: "admin" }, etag, CALLER);
    await expect(staleChange).rejects.toMatchObject({ code: "preconditionFailed" });
    await expect(instance.access.users.remove("maria", etag, CALLER)).rejects.toMatchObject({
      code: "preconditionFailed",
    });
    // An If-Match header can list several ETags. One of them must be the current one.
    const cleared = await instance.access.users.update("maria", { email: null }, `"other", ${changed.etag}`, CALLER);
    expect(cleared.email).toBeNull();
    await instance.access.users.remove("maria", "*", CALLER);
    expect((await instance.access.users.list(PAGE)).items.map(({ id }) => id)).toEqual(["admin"]);
  });

  test("are reported as not found if they do not exist", async () => {
    const { users } = instance.access;
    for (const call of [
      () => users.get("nobody"),
      () => users.update("nobody", { role: "user" }, undefined, CALLER),
      () => users.remove("nobody", undefined, CALLER),
      () => users.unlock("no/body", CALLER),
      () => users.get("|directory"),
    ]) {
      await expect(call()).rejects.toMatchObject({ code: "notFound" });
    }
  });

  test("can't be deleted or demoted if they are the last administrator", async () => {
    const { users } = instance.access;
    await users.create(newUser("first", "admin"), CALLER);
    await users.create(newUser("maria"), CALLER);
    await expect(users.remove("first", undefined, CALLER)).rejects.toMatchObject({ code: "conflict" });
    const demotion = users.update("first", { role: "auditor" }, undefined, CALLER);
    await expect(demotion).rejects.toMatchObject({ code: "conflict" });
    expect((await deployment.auditEntries("user.deleted"))[0]).toMatchObject({
      outcome: "refused",
      details: { reason: "conflict" },
    });
    await users.update("maria", { role: "admin" }, undefined, CALLER);
    await users.remove("first", undefined, CALLER);
    await expect(users.remove("maria", undefined, CALLER)).rejects.toMatchObject({ code: "conflict" });
  });

  test("keep one administrator when instances delete and demote all of them at once", async () => {
    const names = ["first", "second", "third", "fourth"];
    for (const name of names) await instance.access.users.create(newUser(name, "admin"), CALLER);
    const results = await Promise.allSettled(
      names.map((name, index) => {
        const { users } = deployment.start().access;
        return index % 2
          ? users.remove(name, undefined, CALLER)
          : users.update(name, { role: "user" }, undefined, CALLER);
      }),
    );
    expect(results.filter(({ status }) => status === "rejected")).toMatchObject([{ reason: { code: "conflict" } }]);
    const { items, total } = await instance.access.users.list(PAGE);
    expect(items.filter(({ role }) => role === "admin")).toHaveLength(1);
    expect(total).toBe(items.length);
  });

  test("are listed by name, each once, page by page", async () => {
    const names = ["zoe", "Adam", "maria", "bob", "eve"];
    for (const name of names) await instance.access.users.create(newUser(name), CALLER);
    const usernames: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await instance.access.users.list({ limit: 2, offset: 0, cursor });
      expect(page.total).toBe(5);
      usernames.push(...page.items.map(({ username }) => username));
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
    expect(usernames).toEqual(["Adam", "bob", "eve", "maria", "zoe"]);
    const lastPage = await instance.access.users.list({ limit: 2, offset: 3, cursor: undefined });
    expect(lastPage).toMatchObject({ items: [{ id: "maria" }, { id: "zoe" }], offset: 3, nextCursor: null });
  });
});
