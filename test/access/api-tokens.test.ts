import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { apiTokenText, isApiTokenText } from "../../shared/access/api-token-text.ts";
import { USERS_PARTITION, User } from "../../shared/access/user.ts";
import type { Actor, Role } from "../../shared/http/endpoint.ts";
import { createTables } from "../../shared/storage/tables.ts";
import { DAY_MS } from "../../shared/time.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import { type Deployment, HERE, type Instance, startDeployments, TestClock, whoIs } from "./instances.ts";

let deployments: Awaited<ReturnType<typeof startDeployments>>;
let deployment: Deployment;
let instance: Instance;
let other: Instance;

beforeAll(async () => {
  deployments = await startDeployments();
});
afterAll(() => deployments.azurite.stop());
beforeEach(async () => {
  deployment = deployments.next();
  instance = deployment.start();
  other = deployment.start();
  await instance.access.users.create({ username: "maria", password: "maria's password", role: "operator" }, HERE);
});

const PAGE = { limit: 100, offset: 0, cursor: undefined };
/** Somebody whose sign-in nothing ends. */
const by = (username: string, role: Role): Actor => ({
  username,
  role,
  credential: { kind: "session", id: "s", since: new Date("9999-01-01") },
});
const MARIA = by("maria", "operator");
const ADMIN = by("admin", "admin");
const wanted = (name: string, role: Role = "operator", expiresInDays = 90) => ({ name, role, expiresInDays });
const make = (name = "nightly", role?: Role, days?: number) =>
  instance.access.apiTokens.create(MARIA, wanted(name, role, days), HERE);
const list = async (actor = MARIA, user?: string) =>
  (await instance.access.apiTokens.list(actor, user, PAGE)).items.map(({ name }) => name);

/** Changes maria's row as another room does. */
async function rewrite(change: object): Promise<void> {
  const tables = createTables({ connectionString: deployment.connectionString });
  const row = await tables.get(User, USERS_PARTITION, "maria");
  await tables.replace(User, { ...row!, ...change });
}

describe("the text of an API token", () => {
  test("is clm_ and 49 digits of base62, whatever the bytes", () => {
    for (const bytes of [new Uint8Array(32), new Uint8Array(32).fill(255), new Uint8Array(32).map((_, at) => at * 7)]) {
      expect(apiTokenText(bytes)).toMatch(/^clm_[0-9A-Za-z]{49}$/);
      expect(isApiTokenText(apiTokenText(bytes))).toBe(true);
    }
    expect(new Set([0, 1, 2].map((fill) => apiTokenText(new Uint8Array(32).fill(fill)))).size).toBe(3);
  });

  test("holds a checksum: one with any other digit, swapped or missing is none", () => {
    const text = apiTokenText(new Uint8Array(32).map((_, at) => at * 7));
    for (let at = "clm_".length; at < text.length; at++) {
      const digit = text[at] === "x" ? "y" : "x";
      expect(isApiTokenText(text.slice(0, at) + digit + text.slice(at + 1))).toBe(false);
    }
    for (const bad of [text.slice(0, -1), `${text}0`, text.toUpperCase(), ` ${text}`, `${text}\n`, "clm_"]) {
      expect(isApiTokenText(bad)).toBe(false);
    }
  });
});

describe("an API token", () => {
  test("says the role that it counts as, not its user's", async () => {
    const { token } = await make("reader", "user");
    const found = await whoIs(other, token);
    if (found.kind !== "valid") throw new Error("The token does not hold.");
    expect(await other.access.me(found.actor)).toMatchObject({ username: "maria", role: "user" });
  });

  test("stands for its user, with its own role, on every instance, and is shown once", async () => {
    const made = await make();
    expect(made).toMatchObject({
      user: "maria",
      name: "nightly",
      role: "operator",
      createdAt: "2026-11-21T10:00:00.000Z",
      expiresAt: "2027-02-19T10:00:00.000Z",
      expired: false,
      lastUsedOn: null,
    });
    expect(await whoIs(other, made.token)).toEqual({
      kind: "valid",
      actor: { username: "maria", role: "operator", credential: { kind: "apiToken", id: made.id } },
    });
    const { items } = await instance.access.apiTokens.list(MARIA, undefined, PAGE);
    expect(items).toMatchObject([{ id: made.id, lastUsedOn: "2026-11-21" }]);
    expect(JSON.stringify(items)).not.toContain(made.token);
    expect(await deployment.everything()).not.toContain(made.token.slice(4));
    expect(deployment.logged.join()).not.toContain(made.token.slice(4));
  });

  test("counts as the lower of its role and its user's now", async () => {
    const { users } = instance.access;
    const roleOf = async (token: string) => {
      const who = await whoIs(other, token);
      return who.kind === "valid" ? who.actor.role : who.kind;
    };
    const tokens = [await make("as operator"), await make("as user", "user")];
    const seen: Record<string, string[]> = {};
    for (const role of ["operator", "admin", "auditor", "user"] as const) {
      await users.update("maria", { role }, undefined, HERE);
      seen[role] = await Promise.all(tokens.map(({ token }) => roleOf(token)));
    }
    expect(seen).toEqual({
      operator: ["operator", "user"],
      admin: ["operator", "user"],
      auditor: ["user", "user"],
      user: ["user", "user"],
    });
  });

  test.each<[string, Parameters<Instance["access"]["users"]["update"]>[1][]]>([
    ["a reset of the password", [{ password: "another long password" }]],
    ["disabling, enabled again since,", [{ state: "disabled" }, { state: "active" }]],
    ["another role", [{ role: "user" }]],
  ])("is not made by a sign-in that %s has ended since the request was let in", async (_what, changes) => {
    const credentials = { username: "maria", password: "maria's password" };
    const { access_token } = await instance.access.signIn(credentials, HERE);
    const { cookie } = await instance.access.signInToSession(credentials, HERE, undefined);
    const actors = [
      await instance.access.authenticate({ kind: "bearer", token: access_token }),
      await instance.access.authenticate({ kind: "session", cookie: cookie.value }),
    ] as Actor[];
    for (const change of changes) await other.access.users.update("maria", change, undefined, HERE);
    for (const actor of actors) {
      const making = instance.access.apiTokens.create(actor, wanted("kept", "user"), HERE);
      await expect(making).rejects.toMatchObject({ code: "unauthorized" });
    }
    expect(await list()).toEqual([]);
  });

  test.each<[Role, Role[]]>([
    ["user", ["user"]],
    ["auditor", ["user", "auditor"]],
    ["operator", ["user", "operator"]],
    ["admin", ["user", "auditor", "operator", "admin"]],
  ])("of a %s has one of the roles %j", async (own, given) => {
    await rewrite({ role: own });
    for (const role of ["user", "auditor", "operator", "admin"] as const) {
      const making = instance.access.apiTokens.create(by("maria", own), wanted(role, role), HERE);
      if (given.includes(role)) expect((await making).role).toBe(role);
      else await expect(making).rejects.toMatchObject({ code: "forbidden", members: { requiredRole: role } });
    }
  });

  test("ends with its last day, and is shown as expired for 30 more", async () => {
    const { token } = await make("short", "user", 1);
    deployment.clock.pass(DAY_MS - 1);
    expect(await whoIs(other, token)).toMatchObject({ kind: "valid" });
    deployment.clock.pass(1);
    expect(await whoIs(other, token)).toEqual({ kind: "invalid" });
    await instance.access.cleanUp();
    const { items } = await instance.access.apiTokens.list(MARIA, undefined, PAGE);
    expect(items).toMatchObject([{ name: "short", expired: true }]);
    deployment.clock.pass(30 * DAY_MS);
    await instance.access.cleanUp();
    expect(await list()).toEqual([]);
    expect(await deployment.everything()).not.toContain("|token|");
  });

  test("of a user of single sign-on is refused when that user has not come for 30 days", async () => {
    const { token } = await make("of sso", "user", 365);
    await rewrite({ source: "sso", lastSsoSignInAt: deployment.clock.now().toISOString() });
    deployment.clock.pass(30 * DAY_MS);
    expect(await whoIs(other, token)).toMatchObject({ kind: "valid" });
    deployment.clock.pass(1);
    expect(await whoIs(other, token)).toEqual({ kind: "invalid" });
    await rewrite({ lastSsoSignInAt: deployment.clock.now().toISOString() });
    expect(await whoIs(other, token)).toMatchObject({ kind: "valid" });
  });

  test("is named: two of a user have different names, also when both are made at once", async () => {
    const results = await Promise.allSettled([
      instance.access.apiTokens.create(MARIA, wanted("same"), HERE),
      other.access.apiTokens.create(MARIA, wanted("same"), HERE),
      other.access.apiTokens.create(MARIA, wanted("another"), HERE),
    ]);
    const refused = results.flatMap((one) => (one.status === "rejected" ? [one.reason.code] : []));
    expect(refused).toEqual(["alreadyExists"]);
    expect(await list()).toEqual(["another", "same"]);
    // A name is free again with its token's end.
    const same = (await instance.access.apiTokens.list(MARIA, undefined, PAGE)).items[1]!;
    await instance.access.apiTokens.end(MARIA, same.id, HERE);
    expect((await make("same")).name).toBe("same");
    expect(await list()).toEqual(["another", "same"]);
  });

  test("of many that are made at once is kept like each of them", async () => {
    const names = Array.from({ length: 8 }, (_, at) => `token ${at}`);
    await Promise.all(
      names.map((name, at) => (at % 2 ? instance : other).access.apiTokens.create(MARIA, wanted(name), HERE)),
    );
    expect(await list()).toEqual(names);
  });

  test("is one of at most 50; expired ones don't count", async () => {
    for (let at = 0; at < 49; at++) await make(`one ${at}`, "user");
    await make("short", "user", 1);
    await expect(make("too many")).rejects.toMatchObject({ code: "conflict" });
    deployment.clock.pass(DAY_MS);
    expect((await make("in its place")).name).toBe("in its place");
  });

  test("is made and ended in the audit log, without itself", async () => {
    const { id, token } = await make();
    await instance.access.apiTokens.end(MARIA, id, { ...HERE, actor: "maria" });
    const entries = [
      ...(await deployment.entries("apiToken.created")),
      ...(await deployment.entries("apiToken.ended")),
    ];
    expect(entries.map(({ outcome, target }) => [outcome, target?.id])).toEqual([
      ["success", id],
      ["intent", id],
      ["success", id],
      ["intent", id],
    ]);
    expect(JSON.stringify(entries)).not.toContain(token);
    await expect(instance.access.apiTokens.end(MARIA, id, HERE)).rejects.toMatchObject({ code: "notFound" });
  });

  test("holds whatever the clocks of two instances say, and ends whatever they say", async () => {
    const ahead = deployment.start({ clock: TestClock.ahead(deployment.clock, 30_000) });
    const { token } = await ahead.access.apiTokens.create(MARIA, wanted("ahead"), HERE);
    expect(await whoIs(instance, token)).toMatchObject({ kind: "valid" });
    await instance.access.users.update("maria", { state: "disabled" }, undefined, HERE);
    await instance.access.users.update("maria", { state: "active" }, undefined, HERE);
    expect(await whoIs(ahead, token)).toEqual({ kind: "invalid" });
  });

  test("costs one read beside its user's; a typo, and what is too short, cost none", async () => {
    const { token } = await make();
    await whoIs(instance, token);
    const proxy = await startTableProxy(deployment.connectionString);
    try {
      const counted = deployment.start({ connectionString: proxy.connectionString });
      const requests = async (bearer: string) => {
        proxy.requests.length = 0;
        await whoIs(counted, bearer);
        return proxy.requests.map(({ method, path }) => `${method} ${path.replace(/'\|token\|.*'/, "'|token|…'")}`);
      };
      await requests(token);
      expect(await requests(token)).toEqual([
        "GET Users(PartitionKey='user',RowKey='|token|…')",
        "GET Users(PartitionKey='user',RowKey='maria')",
      ]);
      expect(await requests(`${token.slice(0, -1)}${token.endsWith("x") ? "y" : "x"}`)).toEqual([]);
      expect(await requests("clm_")).toEqual([]);
      expect(await requests(apiTokenText(new Uint8Array(32)))).toHaveLength(1);
    } finally {
      await proxy.stop();
    }
  });

  test("costs one write on the first call of a day, and none after that", async () => {
    const { token, id } = await make();
    for (const day of ["2026-11-21", "2026-11-22"]) {
      for (let call = 0; call < 2; call++) await whoIs(call ? other : instance, token);
      const { items } = await instance.access.apiTokens.list(MARIA, undefined, PAGE);
      expect(items).toMatchObject([{ id, lastUsedOn: day }]);
      deployment.clock.pass(DAY_MS);
    }
  });
});

describe("a list of API tokens", () => {
  beforeEach(async () => {
    await instance.access.users.create({ username: "bob", password: "the password of bob", role: "user" }, HERE);
    await make("b");
    await make("a");
    await instance.access.apiTokens.create(by("bob", "user"), wanted("of bob", "user"), HERE);
  });

  test("has one's own by name, and for an administrator everybody's or one user's", async () => {
    expect(await list()).toEqual(["a", "b"]);
    expect(await list(MARIA, "maria")).toEqual(["a", "b"]);
    await expect(list(MARIA, "bob")).rejects.toMatchObject({ code: "forbidden" });
    expect(await list(ADMIN, "bob")).toEqual(["of bob"]);
    expect(await list(ADMIN, "nobody")).toEqual([]);
    expect((await list(ADMIN)).sort()).toEqual(["a", "b", "of bob"]);
  });

  test("is walked by cursor, each once, and leaves out those whose user is gone", async () => {
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await instance.access.apiTokens.list(ADMIN, undefined, { limit: 1, offset: 0, cursor });
      seen.push(...page.items.map(({ name }) => name));
      cursor = page.nextCursor ?? undefined;
    } while (cursor);
    expect(seen.sort()).toEqual(["a", "b", "of bob"]);
    await instance.access.users.remove("bob", undefined, HERE);
    expect((await list(ADMIN)).sort()).toEqual(["a", "b"]);
    await instance.access.cleanUp();
    expect((await deployment.everything()).match(/\|token\|/g)).toHaveLength(2);
  });

  test("is nobody else's to end, but an administrator's", async () => {
    const [ofBob] = (await instance.access.apiTokens.list(ADMIN, "bob", PAGE)).items;
    const { apiTokens } = instance.access;
    await expect(apiTokens.end(MARIA, ofBob!.id, HERE)).rejects.toMatchObject({ code: "notFound" });
    expect(await list(ADMIN, "bob")).toEqual(["of bob"]);
    await apiTokens.end(ADMIN, ofBob!.id, HERE);
    expect(await list(ADMIN, "bob")).toEqual([]);
    await expect(apiTokens.end(ADMIN, "no-such", HERE)).rejects.toMatchObject({ code: "notFound" });
  });
});
