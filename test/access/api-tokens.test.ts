import { createHash } from "node:crypto";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { NewApiToken, SignOut } from "../../shared/access/api.ts";
import { apiTokenText, readApiToken } from "../../shared/access/api-token-text.ts";
import { ApiToken } from "../../shared/access/api-tokens.ts";
import { USERS_PARTITION, User } from "../../shared/access/user.ts";
import type { Actor, Role } from "../../shared/platform/http/endpoint.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { startDelayingProxy } from "../state/delaying-proxy.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import { authenticateToken, CALLER, type Deployment, type Instance, TestClock, useDeployments } from "./instances.ts";

// Tests of API tokens: their text, creation, use and revocation, and tokens of earlier versions, whose text does not name the
// user.

const nextDeployment = useDeployments();
let deployment: Deployment;
let instance: Instance;
let otherInstance: Instance;

beforeEach(async () => {
  deployment = nextDeployment();
  instance = deployment.start();
  otherInstance = deployment.start();
  await instance.access.users.create({ username: "maria", password: "maria's password", role: "operator" }, CALLER);
});

const PAGE = { limit: 100, offset: 0, cursor: undefined };
/** Returns a signed-in user whose session is newer than any revocation in these tests. */
const actorFor = (username: string, role: Role): Actor => ({
  username,
  role,
  credential: { kind: "session", id: "s", since: new Date("9999-01-01") },
});
const MARIA = actorFor("maria", "operator");
const ADMIN = actorFor("admin", "admin");
const tokenRequest = (name: string, role: Role = "operator", expiresInDays = 90) => ({ name, role, expiresInDays });
const createToken = (name = "nightly", role?: Role, days?: number) =>
  instance.access.apiTokens.create(MARIA, tokenRequest(name, role, days), CALLER);
const listNames = async (actor = MARIA, user?: string) =>
  (await instance.access.apiTokens.list(actor, user, PAGE)).items.map(({ name }) => name);

/** Changes columns of maria's row directly, without the checks of the users' module. */
async function changeMariasRow(change: object): Promise<void> {
  const tables = createTables({ connectionString: deployment.connectionString });
  const row = await tables.get(User, USERS_PARTITION, "maria");
  await tables.replace(User, { ...row!, ...change });
}

describe("the text of an API token", () => {
  /** Random parts of a token: 32 bytes of zeros, of ones, and of different values. */
  const BYTES = [new Uint8Array(32), new Uint8Array(32).fill(255), new Uint8Array(32).map((_, index) => index * 7)];

  test("consists of clm_ and base62 digits from which the username can be read", () => {
    for (const user of ["a", "0", "00", "maria.lopez@acme.example", "z".repeat(128), `0${"_".repeat(127)}`]) {
      for (const bytes of BYTES) {
        // 43 digits of the random bytes, 1 to 172 of the username, and 6 of the checksum.
        expect(apiTokenText(bytes, user)).toMatch(/^clm_[0-9A-Za-z]{50,221}$/);
        expect(readApiToken(apiTokenText(bytes, user))).toEqual({ user });
      }
    }
    expect(new Set(BYTES.map((bytes) => apiTokenText(bytes, "maria"))).size).toBe(3);
  });

  test("has 49 digits without the username in the earlier format", () => {
    for (const bytes of BYTES) {
      expect(apiTokenText(bytes)).toMatch(/^clm_[0-9A-Za-z]{49}$/);
      expect(readApiToken(apiTokenText(bytes))).toEqual({ user: undefined });
    }
  });

  test.each([apiTokenText(BYTES[2]!), apiTokenText(BYTES[2]!, "maria")])(
    "contains a checksum that detects a changed or missing character: %s",
    (text) => {
      for (let index = "clm_".length; index < text.length; index++) {
        const digit = text[index] === "x" ? "y" : "x";
        expect(readApiToken(text.slice(0, index) + digit + text.slice(index + 1))).toBeUndefined();
      }
      for (const bad of [text.slice(0, -1), `${text}0`, text.toUpperCase(), ` ${text}`, `${text}\n`, "clm_"]) {
        expect(readApiToken(bad)).toBeUndefined();
      }
    },
  );

  test.each(["a|b", "|directory", "|token|x", "-a", "a/b", "\u00e9", "x".repeat(129)])(
    "is invalid if the user in it can't be a username: %s",
    (user) => expect(readApiToken(apiTokenText(BYTES[2]!, user))).toBeUndefined(),
  );
});

describe("an API token", () => {
  test("has its own role, not its user's", async () => {
    const { token } = await createToken("reader", "user");
    const authenticated = await authenticateToken(otherInstance, token);
    if (authenticated.kind !== "valid") throw new Error("The token is not valid.");
    expect(await otherInstance.access.me(authenticated.actor)).toMatchObject({ username: "maria", role: "user" });
  });

  test("authenticates its user on another instance, and can't be read after its creation", async () => {
    const created = await createToken();
    expect(created).toMatchObject({
      user: "maria",
      name: "nightly",
      role: "operator",
      createdAt: "2026-11-21T10:00:00.000Z",
      expiresAt: "2027-02-19T10:00:00.000Z",
      expired: false,
      lastUsedOn: null,
    });
    expect(await authenticateToken(otherInstance, created.token)).toEqual({
      kind: "valid",
      actor: { username: "maria", role: "operator", credential: { kind: "apiToken", id: created.id } },
    });
    const { items } = await instance.access.apiTokens.list(MARIA, undefined, PAGE);
    expect(items).toMatchObject([{ id: created.id, lastUsedOn: "2026-11-21" }]);
    expect(JSON.stringify(items)).not.toContain(created.token);
    expect(await deployment.allRows()).not.toContain(created.token.slice(4));
    expect(deployment.logLines.join()).not.toContain(created.token.slice(4));
  });

  test("has at most its user's current role", async () => {
    const { users } = instance.access;
    const roleOf = async (token: string) => {
      const who = await authenticateToken(otherInstance, token);
      return who.kind === "valid" ? who.actor.role : who.kind;
    };
    const tokens = [await createToken("as operator"), await createToken("as user", "user")];
    const rolesOfTokens: Record<string, string[]> = {};
    for (const role of ["operator", "admin", "auditor", "user"] as const) {
      await users.update("maria", { role }, undefined, CALLER);
      rolesOfTokens[role] = await Promise.all(tokens.map(({ token }) => roleOf(token)));
    }
    expect(rolesOfTokens).toEqual({
      operator: ["operator", "user"],
      admin: ["operator", "user"],
      auditor: ["user", "user"],
      user: ["user", "user"],
    });
  });

  test.each<[string, Parameters<Instance["access"]["users"]["update"]>[1][]]>([
    ["a reset of the password", [{ password: "another long password" }]],
    ["disabling and enabling the user", [{ state: "disabled" }, { state: "active" }]],
    ["another role", [{ role: "user" }]],
  ])("is not created if %s revoked the sign-in after the request was authenticated", async (_description, changes) => {
    const credentials = { username: "maria", password: "maria's password" };
    const { access_token } = await instance.access.signIn(credentials, CALLER);
    const { cookie } = await instance.access.signInToSession(credentials, CALLER, undefined);
    const actors = [
      await instance.access.authenticate({ kind: "bearer", token: access_token }),
      await instance.access.authenticate({ kind: "session", cookie: cookie.value }),
    ] as Actor[];
    for (const change of changes) await otherInstance.access.users.update("maria", change, undefined, CALLER);
    for (const actor of actors) {
      const creation = instance.access.apiTokens.create(actor, tokenRequest("kept", "user"), CALLER);
      await expect(creation).rejects.toMatchObject({ code: "unauthorized" });
    }
    expect(await listNames()).toEqual([]);
  });

  test.each<[Role, Role[]]>([
    ["user", ["user"]],
    ["auditor", ["user", "auditor"]],
    ["operator", ["user", "operator"]],
    ["admin", ["user", "auditor", "operator", "admin"]],
  ])("created by a user with role %s can have the roles %j", async (userRole, allowedRoles) => {
    await changeMariasRow({ role: userRole });
    for (const role of ["user", "auditor", "operator", "admin"] as const) {
      const creation = instance.access.apiTokens.create(actorFor("maria", userRole), tokenRequest(role, role), CALLER);
      if (allowedRoles.includes(role)) expect((await creation).role).toBe(role);
      else await expect(creation).rejects.toMatchObject({ code: "forbidden", members: { requiredRole: role } });
    }
  });

  test("is listed as expired for 30 days after its expiry", async () => {
    const { token } = await createToken("short", "user", 1);
    deployment.clock.pass(DAY_MS - 1);
    expect(await authenticateToken(otherInstance, token)).toMatchObject({ kind: "valid" });
    deployment.clock.pass(1);
    expect(await authenticateToken(otherInstance, token)).toEqual({ kind: "invalid" });
    await instance.access.cleanUp();
    const { items } = await instance.access.apiTokens.list(MARIA, undefined, PAGE);
    expect(items).toMatchObject([{ name: "short", expired: true }]);
    deployment.clock.pass(30 * DAY_MS);
    await instance.access.cleanUp();
    expect(await listNames()).toEqual([]);
    expect(await deployment.allRows()).not.toContain("|token|");
  });

  test("is rejected if its SSO user has not signed in for 30 days", async () => {
    const { token } = await createToken("of sso", "user", 365);
    await changeMariasRow({ source: "sso", lastSsoSignInAt: deployment.clock.now().toISOString() });
    deployment.clock.pass(30 * DAY_MS);
    expect(await authenticateToken(otherInstance, token)).toMatchObject({ kind: "valid" });
    deployment.clock.pass(1);
    expect(await authenticateToken(otherInstance, token)).toEqual({ kind: "invalid" });
    await changeMariasRow({ lastSsoSignInAt: deployment.clock.now().toISOString() });
    expect(await authenticateToken(otherInstance, token)).toMatchObject({ kind: "valid" });
  });

  test("has a unique name per user, even if two requests create it at once", async () => {
    const results = await Promise.allSettled([
      instance.access.apiTokens.create(MARIA, tokenRequest("same"), CALLER),
      otherInstance.access.apiTokens.create(MARIA, tokenRequest("same"), CALLER),
      otherInstance.access.apiTokens.create(MARIA, tokenRequest("another"), CALLER),
    ]);
    const rejectionCodes = results.flatMap((result) => (result.status === "rejected" ? [result.reason.code] : []));
    expect(rejectionCodes).toEqual(["alreadyExists"]);
    expect(await listNames()).toEqual(["another", "same"]);
    // The name is available again after the token was revoked.
    const tokenToRevoke = (await instance.access.apiTokens.list(MARIA, undefined, PAGE)).items[1]!;
    await instance.access.apiTokens.end(MARIA, tokenToRevoke.id, CALLER);
    expect((await createToken("same")).name).toBe("same");
    expect(await listNames()).toEqual(["another", "same"]);
  });

  test("is stored even if requests create 8 tokens at once", async () => {
    const names = Array.from({ length: 8 }, (_, index) => `token ${index}`);
    await Promise.all(
      names.map((name, index) =>
        (index % 2 ? instance : otherInstance).access.apiTokens.create(MARIA, tokenRequest(name), CALLER),
      ),
    );
    expect(await listNames()).toEqual(names);
  });

  test("can't be created if its user has 50 tokens that have not expired", async () => {
    for (let count = 0; count < 49; count++) await createToken(`one ${count}`, "user");
    await createToken("short", "user", 1);
    await expect(createToken("too many")).rejects.toMatchObject({ code: "conflict" });
    deployment.clock.pass(DAY_MS);
    expect((await createToken("in its place")).name).toBe("in its place");
  });

  test("is recorded in the audit log when created and revoked, without the token itself", async () => {
    const { id, token } = await createToken();
    await instance.access.apiTokens.end(MARIA, id, { ...CALLER, actor: "maria" });
    const entries = [
      ...(await deployment.auditEntries("apiToken.created")),
      ...(await deployment.auditEntries("apiToken.ended")),
    ];
    // The creation and the revocation, each newest first.
    expect(entries.map(({ outcome, target }) => [outcome, target?.id])).toEqual([
      ["success", id],
      ["intent", id],
      ["success", id],
      ["intent", id],
    ]);
    expect(JSON.stringify(entries)).not.toContain(token);
    await expect(instance.access.apiTokens.end(MARIA, id, CALLER)).rejects.toMatchObject({ code: "notFound" });
  });

  test("is revoked even if the clock of the instance that created it was 30 seconds ahead", async () => {
    const instanceAhead = deployment.start({ clock: TestClock.ahead(deployment.clock, 30 * SECOND_MS) });
    const { token } = await instanceAhead.access.apiTokens.create(MARIA, tokenRequest("ahead"), CALLER);
    expect(await authenticateToken(instance, token)).toMatchObject({ kind: "valid" });
    await instance.access.users.update("maria", { state: "disabled" }, undefined, CALLER);
    await instance.access.users.update("maria", { state: "active" }, undefined, CALLER);
    expect(await authenticateToken(instanceAhead, token)).toEqual({ kind: "invalid" });
  });

  test("costs one read of its user's row, and one write on the first call of a day", async () => {
    const { token, id } = await createToken();
    const proxy = await startTableProxy(deployment.connectionString);
    try {
      const countedInstance = deployment.start({ connectionString: proxy.connectionString });
      const requests = async (bearer: string) => {
        proxy.requests.length = 0;
        await authenticateToken(countedInstance, bearer);
        return proxy.requests.map(({ method, path }) => `${method} ${path.replace(/'\|token\|.*'/, "'|token|…'")}`);
      };
      await requests(apiTokenText(new Uint8Array(32), "maria")); // The first request also checks that the bootstrap administrator exists.
      const read = "GET Users(PartitionKey='user',RowKey='maria')";
      for (const lastUsedOn of ["2026-11-21", "2026-11-22"]) {
        expect(await requests(token)).toEqual([read, "POST $batch"]);
        expect(await requests(token)).toEqual([read]);
        expect((await instance.access.apiTokens.list(MARIA, undefined, PAGE)).items).toMatchObject([
          { id, lastUsedOn },
        ]);
        deployment.clock.pass(DAY_MS);
      }
      // A text that is not a token is rejected without a request, because its checksum is wrong.
      expect(await requests(`${token.slice(0, -1)}${token.endsWith("x") ? "y" : "x"}`)).toEqual([]);
      expect(await requests("clm_")).toEqual([]);
      // A well-formed token that was never issued costs one read, whether or not its user exists.
      for (const user of ["maria", "nobody", undefined]) {
        expect(await requests(apiTokenText(new Uint8Array(32), user))).toHaveLength(1);
      }
    } finally {
      await proxy.stop();
    }
  });

  test("shows the newest day of use that any instance recorded", async () => {
    const tokens = await Promise.all(["a", "b", "c"].map((name) => createToken(name)));
    const instanceOneDayAhead = deployment.start({ clock: TestClock.ahead(deployment.clock, DAY_MS) });
    await Promise.all(
      tokens.flatMap(({ token }) =>
        [instance, otherInstance, instanceOneDayAhead].map((each) => authenticateToken(each, token)),
      ),
    );
    const { items } = await instance.access.apiTokens.list(MARIA, undefined, PAGE);
    expect(items.map(({ lastUsedOn }) => lastUsedOn)).toEqual(["2026-11-22", "2026-11-22", "2026-11-22"]);
  });

  test.each<[string, () => Promise<unknown>]>([
    ["is revoked", () => instance.access.apiTokens.endAll("maria", CALLER)],
    [
      "belongs to a user who is replaced by another user of that name",
      async () => {
        await instance.access.users.remove("maria", undefined, CALLER);
        await instance.access.users.create({ username: "maria", password: "maria's password", role: "user" }, CALLER);
      },
    ],
  ])("that %s while its use is being recorded stays revoked", async (_description, revoke) => {
    const { token } = await createToken();
    const proxy = await startDelayingProxy(deployment.connectionString, ({ body }) =>
      body.includes("lastUsedOn") ? "hold" : "pass",
    );
    try {
      const slowInstance = deployment.start({ connectionString: proxy.connectionString });
      const authentication = authenticateToken(slowInstance, token);
      await vi.waitUntil(() => proxy.heldWrites.length > 0, { timeout: 150_000 });
      await revoke();
      await proxy.heldWrites[0]!.release();
      await authentication;
      expect(proxy.writes.filter(({ fate }) => fate === "hold")).toMatchObject([{ applied: false }]);
      expect(await authenticateToken(slowInstance, token)).toEqual({ kind: "invalid" });
      expect(await listNames()).toEqual([]);
    } finally {
      await proxy.stop();
    }
  });
});

// An earlier version stored a token in a row of its own, and only the ids in the user's row. Such tokens must stay valid.
describe("an API token of an earlier version", () => {
  const EARLIER_TOKEN = apiTokenText(new Uint8Array(32).fill(7));
  const EARLIER_TOKEN_ID = createHash("sha256").update(EARLIER_TOKEN).digest("base64url");

  beforeEach(async () => {
    const row = { user: "maria", name: "older", role: "operator", createdAt: "2026-11-01T00:00:00.000Z" } as const;
    const tables = createTables({ connectionString: deployment.connectionString });
    const value = { ...row, expiresAt: "2027-11-01T00:00:00.000Z", lastUsedOn: "2026-11-20" };
    await tables.insert(ApiToken, USERS_PARTITION, `|token|${EARLIER_TOKEN_ID}`, value);
    await changeMariasRow({ apiTokens: [EARLIER_TOKEN_ID] });
  });

  test("is valid and is listed with the day of its last use", async () => {
    const listedTokens = async () =>
      [
        await instance.access.apiTokens.list(MARIA, undefined, PAGE),
        await otherInstance.access.apiTokens.list(ADMIN, undefined, PAGE),
      ].map(({ items }) => items.map(({ id, name, lastUsedOn }) => ({ id, name, lastUsedOn })));
    /** The list of maria and the list of an administrator: both contain the token. */
    const expectedLists = (lastUsedOn: string) => Array(2).fill([{ id: EARLIER_TOKEN_ID, name: "older", lastUsedOn }]);
    expect(await listedTokens()).toEqual(expectedLists("2026-11-20"));
    for (let call = 0; call < 2; call++) {
      expect(await authenticateToken(call ? otherInstance : instance, EARLIER_TOKEN)).toMatchObject({
        kind: "valid",
        actor: { role: "operator" },
      });
      expect(await listedTokens()).toEqual(expectedLists("2026-11-21"));
    }
    await expect(createToken("older")).rejects.toMatchObject({ code: "alreadyExists" });
    const { token } = await createToken("newer");
    expect(await listNames()).toEqual(["newer", "older"]);
    for (const text of [EARLIER_TOKEN, token])
      expect(await authenticateToken(otherInstance, text)).toMatchObject({ kind: "valid" });
    expect((await instance.access.apiTokens.list(MARIA, undefined, PAGE)).items[1]).toMatchObject({
      lastUsedOn: "2026-11-21",
    });
  });

  test("stays valid after an earlier version of the service wrote the user's row", async () => {
    const { token } = await createToken("newer");
    await changeMariasRow({ apiTokenDetails: undefined }); // Earlier versions drop this column when they write the row.
    for (const text of [EARLIER_TOKEN, token])
      expect(await authenticateToken(otherInstance, text)).toMatchObject({ kind: "valid" });
    await instance.access.apiTokens.end(MARIA, EARLIER_TOKEN_ID, CALLER);
    expect(await authenticateToken(otherInstance, EARLIER_TOKEN)).toEqual({ kind: "invalid" });
    await instance.access.users.update("maria", { state: "disabled" }, undefined, CALLER);
    expect(await authenticateToken(otherInstance, token)).toEqual({ kind: "invalid" });
  });
});

describe("a list of API tokens", () => {
  beforeEach(async () => {
    await instance.access.users.create({ username: "bob", password: "the password of bob", role: "user" }, CALLER);
    await createToken("b");
    await createToken("a");
    await instance.access.apiTokens.create(actorFor("bob", "user"), tokenRequest("of bob", "user"), CALLER);
  });

  test("contains the user's own tokens, and for an administrator all tokens or those of one user", async () => {
    expect(await listNames()).toEqual(["a", "b"]);
    expect(await listNames(MARIA, "maria")).toEqual(["a", "b"]);
    await expect(listNames(MARIA, "bob")).rejects.toMatchObject({ code: "forbidden" });
    expect(await listNames(ADMIN, "bob")).toEqual(["of bob"]);
    expect(await listNames(ADMIN, "nobody")).toEqual([]);
    expect((await listNames(ADMIN)).sort()).toEqual(["a", "b", "of bob"]);
  });

  test("contains each token once when it is read page by page", async () => {
    const names: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await instance.access.apiTokens.list(ADMIN, undefined, { limit: 1, offset: 0, cursor });
      names.push(...page.items.map(({ name }) => name));
      cursor = page.nextCursor ?? undefined;
    } while (cursor);
    expect(names.sort()).toEqual(["a", "b", "of bob"]);
    // Tokens of a deleted user are not listed.
    await instance.access.users.remove("bob", undefined, CALLER);
    expect((await listNames(ADMIN)).sort()).toEqual(["a", "b"]);
    await instance.access.cleanUp();
    expect((await deployment.allRows()).match(/\|token\|/g)).toHaveLength(2);
  });

  test("lets only the token's user and administrators revoke a token", async () => {
    const [ofBob] = (await instance.access.apiTokens.list(ADMIN, "bob", PAGE)).items;
    const { apiTokens } = instance.access;
    await expect(apiTokens.end(MARIA, ofBob!.id, CALLER)).rejects.toMatchObject({ code: "notFound" });
    expect(await listNames(ADMIN, "bob")).toEqual(["of bob"]);
    await apiTokens.end(ADMIN, ofBob!.id, CALLER);
    expect(await listNames(ADMIN, "bob")).toEqual([]);
    await expect(apiTokens.end(ADMIN, "no-such", CALLER)).rejects.toMatchObject({ code: "notFound" });
  });
});

test.each([
  [0, false],
  [1, true],
  [365, true],
  [366, false],
  [1.5, false],
])("a token for %d days can be requested: %s", (expiresInDays, isValid) => {
  expect(NewApiToken.safeParse({ name: "ci", expiresInDays }).success).toBe(isValid);
});

test("signing out revokes API tokens only together with all sessions", () => {
  expect(SignOut.safeParse({ everywhere: true, apiTokens: true }).success).toBe(true);
  const { error } = SignOut.safeParse({ apiTokens: true });
  expect(error?.issues).toMatchObject([{ path: ["apiTokens"], message: "must be sent with everywhere: true" }]);
});
