import { createHash } from "node:crypto";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { NewApiToken, SignOut } from "../../shared/access/api.ts";
import { apiTokenText, readApiToken } from "../../shared/access/api-token-text.ts";
import { ApiToken } from "../../shared/access/api-tokens.ts";
import { USERS_PARTITION, User } from "../../shared/access/user.ts";
import type { Actor, Role } from "../../shared/platform/http/endpoint.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { startHeldProxy } from "../state/delaying-proxy.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import { type Deployment, HERE, type Instance, TestClock, useDeployments, whoIs } from "./instances.ts";

const nextDeployment = useDeployments();
let deployment: Deployment;
let instance: Instance;
let other: Instance;

beforeEach(async () => {
  deployment = nextDeployment();
  instance = deployment.start();
  other = deployment.start();
  await instance.access.users.create({ username: "maria", password: "maria's password", role: "operator" }, HERE);
});

const PAGE = { limit: 100, offset: 0, cursor: undefined };
/** A user whose sign-in is never revoked. */
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

/** Changes maria's row as another module does. */
async function rewrite(change: object): Promise<void> {
  const tables = createTables({ connectionString: deployment.connectionString });
  const row = await tables.get(User, USERS_PARTITION, "maria");
  await tables.replace(User, { ...row!, ...change });
}

describe("the text of an API token", () => {
  const BYTES = [new Uint8Array(32), new Uint8Array(32).fill(255), new Uint8Array(32).map((_, at) => at * 7)];

  test("is clm_ and base62 digits that name the user, for any bytes and any name", () => {
    for (const user of ["a", "0", "00", "maria.lopez@acme.example", "z".repeat(128), `0${"_".repeat(127)}`]) {
      for (const bytes of BYTES) {
        expect(apiTokenText(bytes, user)).toMatch(/^clm_[0-9A-Za-z]{50,221}$/);
        expect(readApiToken(apiTokenText(bytes, user))).toEqual({ user });
      }
    }
    expect(new Set(BYTES.map((bytes) => apiTokenText(bytes, "maria"))).size).toBe(3);
  });

  test("of an earlier version is 49 digits that don't name the user", () => {
    for (const bytes of BYTES) {
      expect(apiTokenText(bytes)).toMatch(/^clm_[0-9A-Za-z]{49}$/);
      expect(readApiToken(apiTokenText(bytes))).toEqual({ user: undefined });
    }
  });

  test.each([apiTokenText(BYTES[2]!), apiTokenText(BYTES[2]!, "maria")])(
    "contains a checksum: a changed, swapped or missing character makes it invalid: %s",
    (text) => {
      for (let at = "clm_".length; at < text.length; at++) {
        const digit = text[at] === "x" ? "y" : "x";
        expect(readApiToken(text.slice(0, at) + digit + text.slice(at + 1))).toBeUndefined();
      }
      for (const bad of [text.slice(0, -1), `${text}0`, text.toUpperCase(), ` ${text}`, `${text}\n`, "clm_"]) {
        expect(readApiToken(bad)).toBeUndefined();
      }
    },
  );

  test.each(["a|b", "|directory", "|token|x", "-a", "a/b", "\u00e9", "x".repeat(129)])(
    "is invalid if its user can't be a username: %s",
    (user) => expect(readApiToken(apiTokenText(BYTES[2]!, user))).toBeUndefined(),
  );
});

describe("an API token", () => {
  test("has its own role, not its user's", async () => {
    const { token } = await make("reader", "user");
    const found = await whoIs(other, token);
    if (found.kind !== "valid") throw new Error("The token does not hold.");
    expect(await other.access.me(found.actor)).toMatchObject({ username: "maria", role: "user" });
  });

  test("authenticates its user with its own role on every instance, and is shown once", async () => {
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

  test("has the lower of its role and its user's present role", async () => {
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
  ])("is not created if %s revoked the sign-in after the request was authenticated", async (_what, changes) => {
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
  ])("of a %s can have the roles %j", async (own, given) => {
    await rewrite({ role: own });
    for (const role of ["user", "auditor", "operator", "admin"] as const) {
      const making = instance.access.apiTokens.create(by("maria", own), wanted(role, role), HERE);
      if (given.includes(role)) expect((await making).role).toBe(role);
      else await expect(making).rejects.toMatchObject({ code: "forbidden", members: { requiredRole: role } });
    }
  });

  test("expires after its last day, and is shown as expired for 30 more days", async () => {
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

  test("of an SSO user is rejected if the user has not signed in for 30 days", async () => {
    const { token } = await make("of sso", "user", 365);
    await rewrite({ source: "sso", lastSsoSignInAt: deployment.clock.now().toISOString() });
    deployment.clock.pass(30 * DAY_MS);
    expect(await whoIs(other, token)).toMatchObject({ kind: "valid" });
    deployment.clock.pass(1);
    expect(await whoIs(other, token)).toEqual({ kind: "invalid" });
    await rewrite({ lastSsoSignInAt: deployment.clock.now().toISOString() });
    expect(await whoIs(other, token)).toMatchObject({ kind: "valid" });
  });

  test("has a unique name per user, also when two are created at once", async () => {
    const results = await Promise.allSettled([
      instance.access.apiTokens.create(MARIA, wanted("same"), HERE),
      other.access.apiTokens.create(MARIA, wanted("same"), HERE),
      other.access.apiTokens.create(MARIA, wanted("another"), HERE),
    ]);
    const refused = results.flatMap((one) => (one.status === "rejected" ? [one.reason.code] : []));
    expect(refused).toEqual(["alreadyExists"]);
    expect(await list()).toEqual(["another", "same"]);
    // The name is available again after the token expired.
    const same = (await instance.access.apiTokens.list(MARIA, undefined, PAGE)).items[1]!;
    await instance.access.apiTokens.end(MARIA, same.id, HERE);
    expect((await make("same")).name).toBe("same");
    expect(await list()).toEqual(["another", "same"]);
  });

  test("is stored even if many are created at once", async () => {
    const names = Array.from({ length: 8 }, (_, at) => `token ${at}`);
    await Promise.all(
      names.map((name, at) => (at % 2 ? instance : other).access.apiTokens.create(MARIA, wanted(name), HERE)),
    );
    expect(await list()).toEqual(names);
  });

  test("is limited to 50 per user; expired ones don't count", async () => {
    for (let at = 0; at < 49; at++) await make(`one ${at}`, "user");
    await make("short", "user", 1);
    await expect(make("too many")).rejects.toMatchObject({ code: "conflict" });
    deployment.clock.pass(DAY_MS);
    expect((await make("in its place")).name).toBe("in its place");
  });

  test("is recorded in the audit log when created and revoked, without the token itself", async () => {
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

  test("is valid until revoked, even if the clocks of two instances differ", async () => {
    const ahead = deployment.start({ clock: TestClock.ahead(deployment.clock, 30_000) });
    const { token } = await ahead.access.apiTokens.create(MARIA, wanted("ahead"), HERE);
    expect(await whoIs(instance, token)).toMatchObject({ kind: "valid" });
    await instance.access.users.update("maria", { state: "disabled" }, undefined, HERE);
    await instance.access.users.update("maria", { state: "active" }, undefined, HERE);
    expect(await whoIs(ahead, token)).toEqual({ kind: "invalid" });
  });

  test("costs one read of its user's row, and one write on the first call of a day; a typo costs nothing", async () => {
    const { token, id } = await make();
    const proxy = await startTableProxy(deployment.connectionString);
    try {
      const counted = deployment.start({ connectionString: proxy.connectionString });
      const requests = async (bearer: string) => {
        proxy.requests.length = 0;
        await whoIs(counted, bearer);
        return proxy.requests.map(({ method, path }) => `${method} ${path.replace(/'\|token\|.*'/, "'|token|…'")}`);
      };
      await requests(apiTokenText(new Uint8Array(32), "maria")); // the bootstrap administrator is checked once
      const read = "GET Users(PartitionKey='user',RowKey='maria')";
      for (const lastUsedOn of ["2026-11-21", "2026-11-22"]) {
        expect(await requests(token)).toEqual([read, "POST $batch"]);
        expect(await requests(token)).toEqual([read]);
        expect((await instance.access.apiTokens.list(MARIA, undefined, PAGE)).items).toMatchObject([
          { id, lastUsedOn },
        ]);
        deployment.clock.pass(DAY_MS);
      }
      expect(await requests(`${token.slice(0, -1)}${token.endsWith("x") ? "y" : "x"}`)).toEqual([]);
      expect(await requests("clm_")).toEqual([]);
      for (const user of ["maria", "nobody", undefined]) {
        expect(await requests(apiTokenText(new Uint8Array(32), user))).toHaveLength(1);
      }
    } finally {
      await proxy.stop();
    }
  });

  test("shows the newest day of use that any instance recorded, also when several are used at once", async () => {
    const tokens = await Promise.all(["a", "b", "c"].map((name) => make(name)));
    const ahead = deployment.start({ clock: TestClock.ahead(deployment.clock, DAY_MS) });
    await Promise.all(tokens.flatMap(({ token }) => [instance, other, ahead].map((at) => whoIs(at, token))));
    const { items } = await instance.access.apiTokens.list(MARIA, undefined, PAGE);
    expect(items.map(({ lastUsedOn }) => lastUsedOn)).toEqual(["2026-11-22", "2026-11-22", "2026-11-22"]);
  });

  test.each<[string, () => Promise<unknown>]>([
    ["is ended", () => instance.access.apiTokens.endAll("maria", HERE)],
    [
      "loses its user to another of that name",
      async () => {
        await instance.access.users.remove("maria", undefined, HERE);
        await instance.access.users.create({ username: "maria", password: "maria's password", role: "user" }, HERE);
      },
    ],
  ])("that %s while its use is being recorded stays revoked", async (_what, end) => {
    const { token } = await make();
    const proxy = await startHeldProxy(deployment.connectionString, ({ body }) =>
      body.includes("lastUsedOn") ? "hold" : "pass",
    );
    try {
      const late = deployment.start({ connectionString: proxy.connectionString });
      const using = whoIs(late, token);
      await vi.waitUntil(() => proxy.held.length > 0, { timeout: 150_000 });
      await end();
      await proxy.held[0]!.release();
      await using;
      expect(proxy.answered.filter(({ fate }) => fate === "hold")).toMatchObject([{ applied: false }]);
      expect(await whoIs(late, token)).toEqual({ kind: "invalid" });
      expect(await list()).toEqual([]);
    } finally {
      await proxy.stop();
    }
  });
});

describe("an API token of an earlier version", () => {
  const TEXT = apiTokenText(new Uint8Array(32).fill(7));
  const ID = createHash("sha256").update(TEXT).digest("base64url");

  beforeEach(async () => {
    const row = { user: "maria", name: "older", role: "operator", createdAt: "2026-11-01T00:00:00.000Z" } as const;
    const tables = createTables({ connectionString: deployment.connectionString });
    const value = { ...row, expiresAt: "2027-11-01T00:00:00.000Z", lastUsedOn: "2026-11-20" };
    await tables.insert(ApiToken, USERS_PARTITION, `|token|${ID}`, value);
    await rewrite({ apiTokens: [ID] });
  });

  test("is valid, is listed with the day of its last use, and counts for the user's limit", async () => {
    const shown = async () =>
      [
        await instance.access.apiTokens.list(MARIA, undefined, PAGE),
        await other.access.apiTokens.list(ADMIN, undefined, PAGE),
      ].map(({ items }) => items.map(({ id, name, lastUsedOn }) => ({ id, name, lastUsedOn })));
    const days = (lastUsedOn: string) => Array(2).fill([{ id: ID, name: "older", lastUsedOn }]);
    expect(await shown()).toEqual(days("2026-11-20"));
    for (let call = 0; call < 2; call++) {
      expect(await whoIs(call ? other : instance, TEXT)).toMatchObject({ kind: "valid", actor: { role: "operator" } });
      expect(await shown()).toEqual(days("2026-11-21"));
    }
    await expect(make("older")).rejects.toMatchObject({ code: "alreadyExists" });
    const { token } = await make("newer");
    expect(await list()).toEqual(["newer", "older"]);
    for (const text of [TEXT, token]) expect(await whoIs(other, text)).toMatchObject({ kind: "valid" });
    expect((await instance.access.apiTokens.list(MARIA, undefined, PAGE)).items[1]).toMatchObject({
      lastUsedOn: "2026-11-21",
    });
  });

  test("stays valid, like a newer one, after an earlier version wrote the user, and can be revoked", async () => {
    const { token } = await make("newer");
    await rewrite({ apiTokenDetails: undefined });
    for (const text of [TEXT, token]) expect(await whoIs(other, text)).toMatchObject({ kind: "valid" });
    await instance.access.apiTokens.end(MARIA, ID, HERE);
    expect(await whoIs(other, TEXT)).toEqual({ kind: "invalid" });
    await instance.access.users.update("maria", { state: "disabled" }, undefined, HERE);
    expect(await whoIs(other, token)).toEqual({ kind: "invalid" });
  });
});

describe("a list of API tokens", () => {
  beforeEach(async () => {
    await instance.access.users.create({ username: "bob", password: "the password of bob", role: "user" }, HERE);
    await make("b");
    await make("a");
    await instance.access.apiTokens.create(by("bob", "user"), wanted("of bob", "user"), HERE);
  });

  test("contains one's own tokens by name, and for an administrator all tokens or one user's", async () => {
    expect(await list()).toEqual(["a", "b"]);
    expect(await list(MARIA, "maria")).toEqual(["a", "b"]);
    await expect(list(MARIA, "bob")).rejects.toMatchObject({ code: "forbidden" });
    expect(await list(ADMIN, "bob")).toEqual(["of bob"]);
    expect(await list(ADMIN, "nobody")).toEqual([]);
    expect((await list(ADMIN)).sort()).toEqual(["a", "b", "of bob"]);
  });

  test("is read with cursors, each token once, without tokens of deleted users", async () => {
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

  test("allows only the user and administrators to revoke a token", async () => {
    const [ofBob] = (await instance.access.apiTokens.list(ADMIN, "bob", PAGE)).items;
    const { apiTokens } = instance.access;
    await expect(apiTokens.end(MARIA, ofBob!.id, HERE)).rejects.toMatchObject({ code: "notFound" });
    expect(await list(ADMIN, "bob")).toEqual(["of bob"]);
    await apiTokens.end(ADMIN, ofBob!.id, HERE);
    expect(await list(ADMIN, "bob")).toEqual([]);
    await expect(apiTokens.end(ADMIN, "no-such", HERE)).rejects.toMatchObject({ code: "notFound" });
  });
});

test.each([
  [0, false],
  [1, true],
  [365, true],
  [366, false],
  [1.5, false],
])("a token for %d days is requested: %s", (expiresInDays, taken) => {
  expect(NewApiToken.safeParse({ name: "ci", expiresInDays }).success).toBe(taken);
});

test("signing out can revoke API tokens only together with all sessions, and the error names the member", () => {
  expect(SignOut.safeParse({ everywhere: true, apiTokens: true }).success).toBe(true);
  const { error } = SignOut.safeParse({ apiTokens: true });
  expect(error?.issues).toMatchObject([{ path: ["apiTokens"], message: "must be sent with everywhere: true" }]);
});
