import { beforeEach, describe, expect, test } from "vitest";
import { startTableProxy } from "../support/table-proxy.ts";
import {
  ADMIN,
  type Deployment,
  HERE,
  type Instance,
  MINUTES,
  passwords,
  signingKey,
  useDeployments,
  whoIs,
} from "./instances.ts";

const nextDeployment = useDeployments();
let deployment: Deployment;
let instance: Instance;

beforeEach(() => {
  deployment = nextDeployment();
  instance = deployment.start();
});

const PAGE = { limit: 100, offset: 0, cursor: undefined };
const person = (username: string, role: "user" | "auditor" | "admin" = "user") => ({
  username,
  role,
  password: "a long enough password",
});
const NEXT_PASSWORD = "another horse battery";

describe("the bootstrap administrator", () => {
  test("is created once, however many instances start at once", async () => {
    const instances = [instance, ...Array.from({ length: 4 }, () => deployment.start())];
    await Promise.all(instances.map(({ access }) => access.signIn(ADMIN, HERE)));
    expect(await instance.access.users.list(PAGE)).toMatchObject({
      items: [{ username: "Admin", role: "admin", createdBy: "system" }],
      total: 1,
    });
    const outcomes = (await deployment.entries("user.bootstrapped")).map(({ outcome }) => outcome);
    expect(outcomes.filter((outcome) => outcome === "success")).toHaveLength(1);
  });

  test("is reset even when the first request to the new process has a token", async () => {
    await instance.access.signIn(ADMIN, HERE);
    const reset = deployment.start({ config: { BOOTSTRAP_ADMIN_PASSWORD: NEXT_PASSWORD } });
    const { access_token } = await instance.access.signIn(ADMIN, HERE);
    expect(await whoIs(reset, access_token)).toEqual({ kind: "invalid" });
  });

  test("is reset by a changed password: the old password and all tokens become invalid, and the reset is audited", async () => {
    const { access_token } = await instance.access.signIn(ADMIN, HERE);
    for (let time = 0; time < 5; time++) {
      await expect(instance.access.signIn({ ...ADMIN, password: "wrong" }, HERE)).rejects.toThrow();
    }
    const next = deployment.start({ config: { BOOTSTRAP_ADMIN_PASSWORD: NEXT_PASSWORD } });
    await next.access.signIn({ ...ADMIN, password: NEXT_PASSWORD }, HERE);
    expect(await whoIs(instance, access_token)).toEqual({ kind: "invalid" });
    await expect(next.access.signIn(ADMIN, HERE)).rejects.toMatchObject({ code: "invalidCredentials" });
    expect(await deployment.entries("user.bootstrapReset")).toMatchObject([
      { actor: "system", outcome: "success", target: { id: "admin" } },
      { outcome: "intent" },
    ]);
  });

  test("is an administrator again after a reset, whatever others changed", async () => {
    await instance.access.signIn(ADMIN, HERE);
    await instance.access.users.create(person("second", "admin"), HERE);
    await instance.access.users.update("admin", { role: "user" }, undefined, HERE);
    const next = deployment.start({ config: { BOOTSTRAP_ADMIN_PASSWORD: NEXT_PASSWORD } });
    await next.access.signIn({ ...ADMIN, password: NEXT_PASSWORD }, HERE);
    expect(await next.access.users.get("admin")).toMatchObject({ role: "admin" });
    await next.access.users.remove("second", undefined, HERE);
    await expect(next.access.users.remove("admin", undefined, HERE)).rejects.toMatchObject({ code: "conflict" });
  });

  test("keeps its own new password, or stays deleted, while the configuration stays the same", async () => {
    const { access_token } = await instance.access.signIn(ADMIN, HERE);
    const who = await whoIs(instance, access_token);
    if (who.kind !== "valid") throw new Error("The token does not hold.");
    await instance.access.changePassword(who.actor, passwords(ADMIN.password, NEXT_PASSWORD), HERE);
    const restarted = deployment.start();
    await restarted.access.signIn({ ...ADMIN, password: NEXT_PASSWORD }, HERE);
    await restarted.access.users.create(person("second", "admin"), HERE);
    await restarted.access.users.remove("admin", undefined, HERE);
    const again = deployment.start();
    await expect(again.access.signIn({ ...ADMIN, password: NEXT_PASSWORD }, HERE)).rejects.toMatchObject({
      code: "invalidCredentials",
    });
    expect((await again.access.users.list(PAGE)).items.map(({ id }) => id)).toEqual(["second"]);
  });

  test("costs one read and no password check per start, and one read of the user per later token", async () => {
    const { access_token } = await instance.access.signIn(ADMIN, HERE);
    const proxy = await startTableProxy(deployment.connectionString);
    try {
      const restarted = deployment.start({ connectionString: proxy.connectionString });
      for (let time = 0; time < 2; time++) {
        expect(await whoIs(restarted, access_token)).toMatchObject({ kind: "valid" });
      }
      expect(restarted.derived()).toBe(0);
      expect(proxy.requests.map(({ method, path }) => `${method} ${path}`)).toEqual([
        "GET Users(PartitionKey='user',RowKey='|bootstrap')",
        "GET Users(PartitionKey='user',RowKey='admin')",
        "GET Users(PartitionKey='user',RowKey='admin')",
      ]);
    } finally {
      await proxy.stop();
    }
  });

  test("is recognized without a password check under a rotated key, and with one under new keys", async () => {
    await instance.access.signIn(ADMIN, HERE);
    const [old] = deployment.config.JWT_SIGNING_KEYS;
    const [second, third] = [signingKey("k2"), signingKey("k3")];
    const start = async (...ring: (typeof second)[]) => {
      const { access, derived } = deployment.start({ config: { JWT_SIGNING_KEYS: ring } });
      await access.signIn({ ...ADMIN, password: ADMIN.password }, HERE);
      return derived() - 1; // the sign-in's own
    };
    expect(await start(second, old!)).toBe(0);
    expect(await start(second)).toBe(0);
    expect(await start(third)).toBe(1);
    expect(await start(third)).toBe(0);
    expect(await deployment.entries("user.bootstrapReset")).toEqual([]);
  });

  test("with a new name in the configuration is created in addition to the old one", async () => {
    await instance.access.signIn(ADMIN, HERE);
    const next = deployment.start({ config: { BOOTSTRAP_ADMIN_USERNAME: "root" } });
    await next.access.signIn({ ...ADMIN, username: "root" }, HERE);
    await next.access.signIn(ADMIN, HERE);
    expect((await next.access.users.list(PAGE)).total).toBe(2);
  });

  test("is not created if it is not configured", async () => {
    const none = { BOOTSTRAP_ADMIN_USERNAME: undefined, BOOTSTRAP_ADMIN_PASSWORD: undefined };
    const { access } = deployment.start({ config: none });
    await expect(access.signIn(ADMIN, HERE)).rejects.toMatchObject({ code: "invalidCredentials" });
    expect(await access.users.list(PAGE)).toMatchObject({ items: [], total: 0 });
  });
});

describe("users", () => {
  test("are created once per name, whatever its case and however many requests at once", async () => {
    const other = deployment.start();
    const results = await Promise.allSettled(
      ["maria", "Maria", "MARIA", "maria"].map((name, index) =>
        (index % 2 ? instance : other).access.users.create(person(name), HERE),
      ),
    );
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    for (const result of results) {
      if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "alreadyExists" });
    }
    expect(await instance.access.users.list(PAGE)).toMatchObject({ total: 1, items: [{ id: "maria" }] });
  });

  test("are audited with their creator, and without a password", async () => {
    const caller = { ...HERE, actor: "admin" };
    await instance.access.users.create({ ...person("maria"), email: "maria@example.com" }, caller);
    const [outcome] = await deployment.entries("user.created");
    expect(outcome).toMatchObject({
      actor: "admin",
      target: { type: "user", id: "maria" },
      after: { username: "maria", email: "maria@example.com", role: "user", createdBy: "admin" },
    });
    expect(JSON.stringify(outcome)).not.toMatch(/long enough password|scrypt/i);
  });

  test("are not changed if the intent can't be audited", async () => {
    const append = async () => {
      throw new Error("no audit");
    };
    const silent = deployment.start({ audit: { append } });
    await expect(silent.access.users.create(person("maria"), HERE)).rejects.toThrow("no audit");
    expect((await instance.access.users.list(PAGE)).total).toBe(0);
  });

  test("are changed with If-Match, whose ETag a sign-in does not change", async () => {
    const { etag } = await instance.access.users.create(person("maria"), HERE);
    await instance.access.signIn(person("maria"), HERE);
    deployment.clock.pass(MINUTES);
    const changed = await instance.access.users.update("maria", { email: "maria@example.com" }, etag, HERE);
    expect(changed).toMatchObject({ email: "maria@example.com", role: "user", updatedAt: "2026-11-21T10:01:00.000Z" });
    expect(changed.etag).not.toBe(etag);
    const stale = instance.access.users.update("maria", { role: "admin" }, etag, HERE);
    await expect(stale).rejects.toMatchObject({ code: "preconditionFailed" });
    await expect(instance.access.users.remove("maria", etag, HERE)).rejects.toMatchObject({
      code: "preconditionFailed",
    });
    const cleared = await instance.access.users.update("maria", { email: null }, `"other", ${changed.etag}`, HERE);
    expect(cleared.email).toBeNull();
    await instance.access.users.remove("maria", "*", HERE);
    expect((await instance.access.users.list(PAGE)).items.map(({ id }) => id)).toEqual(["admin"]);
  });

  test("that do not exist are not found", async () => {
    const { users } = instance.access;
    for (const call of [
      () => users.get("nobody"),
      () => users.update("nobody", { role: "user" }, undefined, HERE),
      () => users.remove("nobody", undefined, HERE),
      () => users.unlock("no/body", HERE),
      () => users.get("|directory"),
    ]) {
      await expect(call()).rejects.toMatchObject({ code: "notFound" });
    }
  });

  test("always include an administrator: the last can't be deleted or demoted", async () => {
    const { users } = instance.access;
    await users.create(person("first", "admin"), HERE);
    await users.create(person("maria"), HERE);
    await expect(users.remove("first", undefined, HERE)).rejects.toMatchObject({ code: "conflict" });
    const demotion = users.update("first", { role: "auditor" }, undefined, HERE);
    await expect(demotion).rejects.toMatchObject({ code: "conflict" });
    expect((await deployment.entries("user.deleted"))[0]).toMatchObject({
      outcome: "refused",
      details: { reason: "conflict" },
    });
    await users.update("maria", { role: "admin" }, undefined, HERE);
    await users.remove("first", undefined, HERE);
    await expect(users.remove("maria", undefined, HERE)).rejects.toMatchObject({ code: "conflict" });
  });

  test("always include an administrator, also when instances remove and demote all of them at once", async () => {
    const names = ["first", "second", "third", "fourth"];
    for (const name of names) await instance.access.users.create(person(name, "admin"), HERE);
    const results = await Promise.allSettled(
      names.map((name, index) => {
        const { users } = deployment.start().access;
        return index % 2 ? users.remove(name, undefined, HERE) : users.update(name, { role: "user" }, undefined, HERE);
      }),
    );
    expect(results.filter(({ status }) => status === "rejected")).toMatchObject([{ reason: { code: "conflict" } }]);
    const { items, total } = await instance.access.users.list(PAGE);
    expect(items.filter(({ role }) => role === "admin")).toHaveLength(1);
    expect(total).toBe(items.length);
  });

  test("are listed by name, each once, with an exact total", async () => {
    const names = ["zoe", "Adam", "maria", "bob", "eve"];
    for (const name of names) await instance.access.users.create(person(name), HERE);
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await instance.access.users.list({ limit: 2, offset: 0, cursor });
      expect(page.total).toBe(5);
      seen.push(...page.items.map(({ username }) => username));
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
    expect(seen).toEqual(["Adam", "bob", "eve", "maria", "zoe"]);
    const second = await instance.access.users.list({ limit: 2, offset: 3, cursor: undefined });
    expect(second).toMatchObject({ items: [{ id: "maria" }, { id: "zoe" }], offset: 3, nextCursor: null });
  });
});
