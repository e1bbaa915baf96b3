import { beforeEach, describe, expect, test, vi } from "vitest";
import { EarlierSession, earlierSessionKey } from "../../shared/access/earlier-sessions.ts";
import { MAX_SESSIONS } from "../../shared/access/sessions.ts";
import { USERS_PARTITION, User, type UserRow } from "../../shared/access/user.ts";
import type { Actor } from "../../shared/platform/http/endpoint.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS } from "../../shared/platform/time.ts";
import { startHeldProxy } from "../state/delaying-proxy.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import { ADMIN, type Deployment, from, HERE, type Instance, MINUTES, SECONDS, useDeployments } from "./instances.ts";

const nextDeployment = useDeployments();
let deployment: Deployment;
let instance: Instance;
let other: Instance;

beforeEach(async () => {
  deployment = nextDeployment();
  instance = deployment.start();
  other = deployment.start();
  for (const { username, password } of [MARIA, BOB]) {
    await instance.access.users.create({ username, password, role: "user" }, HERE);
  }
});

const PAGE = { limit: 100, offset: 0, cursor: undefined };
const MARIA = { username: "Maria", password: "maria's password" };
const BOB = { username: "bob", password: "the password of bob" };

const begin = async (who = MARIA, address = HERE.address!) =>
  (await instance.access.signInToSession(who, from(address), "Firefox")).cookie;
async function actorOf(cookie: string, at = other): Promise<Actor | undefined> {
  const found = await at.access.authenticate({ kind: "session", cookie });
  return found instanceof Problem ? undefined : found;
}

/** A user who may end maria's sessions. */
const OWN: Actor = { username: "maria", role: "user", credential: { kind: "entra" } };
const idOf = (credential: Actor["credential"]): string => (credential as { id: string }).id;
const tables = () => createTables({ connectionString: deployment.connectionString });
const maria = async (): Promise<UserRow> => (await tables().get(User, USERS_PARTITION, "maria"))!;

/** Deletes maria and creates another user of that name. */
async function renewMaria(): Promise<void> {
  await instance.access.users.remove("maria", undefined, HERE);
  await instance.access.users.create({ ...MARIA, role: "user" }, HERE);
}

/** An instance whose requests to the tables are counted. */
async function countedAt() {
  const proxy = await startTableProxy(deployment.connectionString);
  const counted = deployment.start({ connectionString: proxy.connectionString });
  return {
    stop: () => proxy.stop(),
    async requests(cookie: string) {
      proxy.requests.length = 0;
      expect(await actorOf(cookie, counted)).toBeDefined();
      return proxy.requests.map(({ method, path }) => `${method} ${path}`);
    },
  };
}

describe("a session", () => {
  test("is in a cookie that scripts can't read, other hosts can't set, and forms of other sites don't send", async () => {
    const cookie = await begin();
    expect(cookie).toMatchObject({ name: "__Host-session", path: "/", httpOnly: true, secure: true, sameSite: "Lax" });
    expect(cookie.maxAge).toBe(12 * 3600);
    expect(await actorOf(cookie.value)).toMatchObject({ username: "Maria", credential: { kind: "session" } });
    expect(await deployment.everything()).not.toContain(cookie.value.split(".")[1]);
    expect((await begin()).value).not.toBe(cookie.value);
  });

  test.each(["a/b", "a#b", "a|b", "|directory", "\0", "x".repeat(3000)])(
    "is invalid if its user can't be a username, and can't be ended: %#",
    async (name) => {
      const secret = "A".repeat(43);
      expect(await actorOf(`${Buffer.from(name).toString("base64url")}.${secret}`)).toBeUndefined();
      const admin = (await actorOf((await begin()).value))!;
      const ending = instance.access.sessions.end({ ...admin, role: "admin" }, `${name}.${secret}`, HERE);
      await expect(ending).rejects.toMatchObject({ code: "notFound" });
    },
  );

  test("is extended by use, and expires an hour after the last use or twelve hours after the sign-in", async () => {
    const [used, idle] = [(await begin()).value, (await begin()).value];
    deployment.clock.pass(HOUR_MS - 1);
    expect(await actorOf(used)).toBeDefined();
    deployment.clock.pass(1);
    expect([await actorOf(used), await actorOf(idle)]).toEqual([expect.anything(), undefined]);
    for (let hour = 1; hour < 11; hour++) {
      deployment.clock.pass(HOUR_MS - MINUTES);
      expect(await actorOf(used)).toBeDefined();
    }
    deployment.clock.pass(11 * MINUTES - 1);
    expect(await actorOf(used)).toBeDefined();
    deployment.clock.pass(HOUR_MS);
    expect(await actorOf(used)).toBeUndefined();
  });

  test("costs one read of its user's row, and is extended at most every five minutes, with one write", async () => {
    const { value } = await begin();
    const counted = await countedAt();
    try {
      const requests = () => counted.requests(value);
      const read = "GET Users(PartitionKey='user',RowKey='maria')";
      await requests();
      expect(await requests()).toEqual([read]);
      deployment.clock.pass(5 * MINUTES - 1);
      expect(await requests()).toEqual([read]);
      deployment.clock.pass(1);
      expect(await requests()).toEqual([read, read.replace("GET", "PUT")]);
      expect(await requests()).toEqual([read]);
    } finally {
      await counted.stop();
    }
  });

  test("is extended by concurrent requests, at least one of which succeeds", async () => {
    const value = (await begin()).value;
    deployment.clock.pass(59 * MINUTES);
    const found = await Promise.all(Array.from({ length: 8 }, (_, at) => actorOf(value, at % 2 ? instance : other)));
    expect(found.filter((actor) => actor === undefined)).toEqual([]);
    deployment.clock.pass(59 * MINUTES);
    expect(await actorOf(value)).toBeDefined();
  });

  test.each<[string, (actor: Actor) => Promise<unknown>]>([
    ["is ended", ({ credential }) => instance.access.sessions.end(OWN, `maria.${idOf(credential)}`, HERE)],
    ["ends with all others", (actor) => instance.access.signOut(actor, { everywhere: true, apiTokens: false }, HERE)],
    ["loses its user to another of that name", renewMaria],
  ])("that %s while it is being extended stays ended", async (_what, end) => {
    const { value } = await begin();
    const actor = (await actorOf(value))!;
    deployment.clock.pass(30 * MINUTES);
    const proxy = await startHeldProxy(deployment.connectionString, () => "hold");
    try {
      const late = deployment.start({ connectionString: proxy.connectionString });
      const moving = actorOf(value, late);
      await vi.waitUntil(() => proxy.held.length > 0, { timeout: 150_000 });
      await end(actor);
      await proxy.held[0]!.release();
      expect(await moving).toBeDefined();
      expect(proxy.answered).toMatchObject([{ method: "PUT", applied: false }]);
      expect(await actorOf(value)).toBeUndefined();
      expect(await actorOf(value, late)).toBeUndefined();
    } finally {
      await proxy.stop();
    }
  });

  test("is limited to 50 per user: another one ends the least recently used one", async () => {
    const { value } = await begin();
    const user = await maria();
    const own = user.sessions![0]!;
    const later = (seconds: number) => new Date(Date.parse(own.idleEndsAt) + seconds * SECONDS).toISOString();
    const others = Array.from({ length: MAX_SESSIONS - 1 }, (_, at) => ({
      ...own,
      id: `other ${at}`,
      idleEndsAt: later(at - 100),
    }));
    await tables().replace(User, { ...user, sessions: [{ ...own, idleEndsAt: later(1.5 - 100) }, ...others] });
    for (let more = 0; more < 2; more++) await begin();
    const ids = (await maria()).sessions!.map(({ id }) => id);
    expect(ids).toHaveLength(MAX_SESSIONS);
    expect(ids.filter((id) => id.startsWith("other")).at(-1)).toBe("other 2");
    expect(await actorOf(value)).toBeDefined();
    await begin();
    expect(await actorOf(value)).toBeUndefined();
  });

  test.each([
    ["nothing", () => ""],
    ["no secret", (cookie: string) => cookie.split(".")[0]!],
    ["another user's name", (cookie: string) => `${Buffer.from("bob").toString("base64url")}.${cookie.split(".")[1]}`],
    ["another secret", (cookie: string) => `${cookie.split(".")[0]}.${"A".repeat(43)}`],
    ["the hash that is stored", (cookie: string, id: string) => `${cookie.split(".")[0]}.${id}`],
    ["one part more", (cookie: string) => `${cookie}.x`],
    [
      "a name that leads to another row",
      (cookie: string) => `${Buffer.from("x|y").toString("base64url")}.${cookie.split(".")[1]}`,
    ],
  ])("is not %s", async (_what, change) => {
    const { value } = await begin();
    const id = (await actorOf(value))!.credential as { id: string };
    expect(await actorOf(change(value, id.id))).toBeUndefined();
  });

  test("is deleted after it expired, and not before", async () => {
    await begin();
    deployment.clock.pass(30 * MINUTES);
    const { value } = await begin();
    deployment.clock.pass(30 * MINUTES);
    await instance.access.cleanUp();
    const { sessions } = await maria();
    expect(sessions!.map(({ id }) => id)).toEqual([idOf((await actorOf(value))!.credential)]);
  });
});

describe("a session of an earlier version, in a row of its own,", () => {
  /** @returns The cookie. */
  async function made(change: object = {}): Promise<string> {
    const { value } = await begin();
    const user = await maria();
    const { id, ...session } = user.sessions![0]!;
    await tables().replace(User, { ...user, sessions: undefined });
    const row = { ...session, uid: user.uid!, ...change };
    await tables().insert(EarlierSession, USERS_PARTITION, earlierSessionKey("maria", id), row);
    return value;
  }

  test("stays valid, is listed and extended, for one more request than a newer one", async () => {
    const value = await made();
    const counted = await countedAt();
    try {
      await counted.requests(value);
      expect(await counted.requests(value)).toHaveLength(2);
      deployment.clock.pass(HOUR_MS - 1);
      expect(await counted.requests(value)).toHaveLength(3);
    } finally {
      await counted.stop();
    }
    await begin();
    deployment.clock.pass(30 * MINUTES);
    const actor = (await actorOf(value))!;
    const { items } = await instance.access.sessions.list(actor, undefined, PAGE);
    expect(items.map(({ current }) => current)).toEqual([false, true]);
    deployment.clock.pass(HOUR_MS);
    expect(await actorOf(value)).toBeUndefined();
    await instance.access.cleanUp();
    expect(await deployment.everything()).not.toContain("|session|");
  });

  test.each<[string, (actor: Actor) => Promise<unknown>]>([
    ["is ended", ({ credential }) => instance.access.sessions.end(OWN, `maria.${idOf(credential)}`, HERE)],
    ["gets another role", () => instance.access.users.update("maria", { role: "auditor" }, undefined, HERE)],
    ["loses its user to another of that name", renewMaria],
  ])("becomes invalid once it %s", async (_what, end) => {
    const value = await made();
    await end((await actorOf(value))!);
    expect(await actorOf(value)).toBeUndefined();
  });
});

describe("the list of sessions", () => {
  test("contains one's own sessions, the newest first, and marks the current one", async () => {
    await begin(BOB);
    const first = await begin();
    deployment.clock.pass(MINUTES);
    await begin(MARIA, "198.51.100.7");
    const actor = (await actorOf(first.value))!;
    const { items, total } = await other.access.sessions.list(actor, undefined, PAGE);
    expect(total).toBe(2);
    expect(items).toMatchObject([
      { user: "maria", current: false, address: "198.51.100.7", by: "password", userAgent: "Firefox" },
      {
        user: "maria",
        current: true,
        address: HERE.address,
        createdAt: "2026-11-21T10:00:00.000Z",
        idleEndsAt: "2026-11-21T11:00:00.000Z",
        endsAt: "2026-11-21T22:00:00.000Z",
      },
    ]);
    expect(JSON.stringify(items)).not.toContain(first.value.split(".")[1]);
  });

  test("is limited to one's own sessions; an administrator may list another user's", async () => {
    await begin();
    const bob = (await actorOf((await begin(BOB)).value))!;
    const admin = (await actorOf((await begin(ADMIN)).value))!;
    const { sessions } = instance.access;
    await expect(sessions.list(bob, "maria", PAGE)).rejects.toMatchObject({ code: "forbidden" });
    expect((await sessions.list(bob, "bob", PAGE)).total).toBe(1);
    expect((await sessions.list(admin, "maria", PAGE)).items).toMatchObject([{ user: "maria", current: false }]);
    expect((await sessions.list(admin, "nobody", PAGE)).total).toBe(0);
  });

  test("does not contain ended sessions", async () => {
    const { value } = await begin();
    const actor = (await actorOf(value))!;
    const shown = async () => (await instance.access.sessions.list(actor, undefined, PAGE)).total;
    expect(await shown()).toBe(1);
    await instance.access.users.update("maria", { role: "auditor" }, undefined, HERE);
    expect(await shown()).toBe(0);
  });
});

describe("ending a session", () => {
  test("is allowed for its user and for administrators", async () => {
    const { value } = await begin();
    const maria = (await actorOf(value))!;
    const bob = (await actorOf((await begin(BOB)).value))!;
    const admin = (await actorOf((await begin(ADMIN)).value))!;
    const { sessions } = instance.access;
    const [session] = (await sessions.list(maria, undefined, PAGE)).items;
    await expect(sessions.end(bob, session!.id, HERE)).rejects.toMatchObject({ code: "notFound" });
    expect(await actorOf(value)).toBeDefined();
    await sessions.end(admin, session!.id, { ...HERE, actor: "Admin" });
    expect(await actorOf(value)).toBeUndefined();
    await expect(sessions.end(admin, session!.id, HERE)).rejects.toMatchObject({ code: "notFound" });
    for (const id of ["", "maria", "maria.", ".x", `maria.${"A".repeat(43)}`, "maria.|directory"]) {
      await expect(sessions.end(maria, id, HERE)).rejects.toMatchObject({ code: "notFound" });
    }
    expect((await deployment.entries("session.ended")).find(({ actor }) => actor === "Admin")).toMatchObject({
      outcome: "success",
      target: { type: "session", id: session!.id },
    });
  });
});
