import { beforeEach, describe, expect, test, vi } from "vitest";
import { EarlierSession, earlierSessionKey } from "../../shared/access/earlier-sessions.ts";
import { MAX_SESSIONS } from "../../shared/access/sessions.ts";
import { USERS_PARTITION, User, type UserRow } from "../../shared/access/user.ts";
import type { Actor } from "../../shared/platform/http/endpoint.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS } from "../../shared/platform/time.ts";
import { startDelayingProxy } from "../state/delaying-proxy.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import {
  ADMIN,
  CALLER,
  callerAt,
  type Deployment,
  type Instance,
  MINUTES,
  SECONDS,
  useDeployments,
} from "./instances.ts";

// Tests of sessions in a browser, also those of earlier versions, which are in rows of their own, not in the user's row.

const nextDeployment = useDeployments();
let deployment: Deployment;
let instance: Instance;
let otherInstance: Instance;

beforeEach(async () => {
  deployment = nextDeployment();
  instance = deployment.start();
  otherInstance = deployment.start();
  for (const { username, password } of [MARIA, BOB]) {
    await instance.access.users.create({ username, password, role: "user" }, CALLER);
  }
});

const PAGE = { limit: 100, offset: 0, cursor: undefined };
const MARIA = { username: "Maria", password: "maria's password" };
const BOB = { username: "bob", password: "the password of bob" };

/** Signs in to a browser session and returns its cookie. */
const startSession = async (who = MARIA, address = CALLER.address!) =>
  (await instance.access.signInToSession(who, callerAt(address), "Firefox")).cookie;
/** Returns the user whose session a cookie is, or undefined if the cookie is not valid. */
async function actorOf(cookie: string, atInstance = otherInstance): Promise<Actor | undefined> {
  const result = await atInstance.access.authenticate({ kind: "session", cookie });
  return result instanceof Problem ? undefined : result;
}

/** Maria as the user who ends her own sessions. */
const MARIA_HERSELF: Actor = { username: "maria", role: "user", credential: { kind: "entra" } };
const idOf = (credential: Actor["credential"]): string => (credential as { id: string }).id;
const tables = () => createTables({ connectionString: deployment.connectionString });
const readMariasRow = async (): Promise<UserRow> => (await tables().get(User, USERS_PARTITION, "maria"))!;

/** Deletes maria and creates another user of that name. */
async function replaceMaria(): Promise<void> {
  await instance.access.users.remove("maria", undefined, CALLER);
  await instance.access.users.create({ ...MARIA, role: "user" }, CALLER);
}

/** Starts an instance that records its requests to the tables. */
async function startCountedInstance() {
  const proxy = await startTableProxy(deployment.connectionString);
  const instance = deployment.start({ connectionString: proxy.connectionString });
  return {
    stop: () => proxy.stop(),
    async requests(cookie: string) {
      proxy.requests.length = 0;
      expect(await actorOf(cookie, instance)).toBeDefined();
      return proxy.requests.map(({ method, path }) => `${method} ${path}`);
    },
  };
}

describe("a session", () => {
  test("is a cookie with the attributes HttpOnly, Secure and SameSite=Lax, and with the prefix __Host-", async () => {
    const cookie = await startSession();
    expect(cookie).toMatchObject({ name: "__Host-session", path: "/", httpOnly: true, secure: true, sameSite: "Lax" });
    expect(cookie.maxAge).toBe(12 * 3600);
    expect(await actorOf(cookie.value)).toMatchObject({ username: "Maria", credential: { kind: "session" } });
    expect(await deployment.allRows()).not.toContain(cookie.value.split(".")[1]);
    expect((await startSession()).value).not.toBe(cookie.value);
  });

  test.each(["a/b", "a#b", "a|b", "|directory", "\0", "x".repeat(3000)])(
    "is invalid if the user in it can't be a username: %#",
    async (name) => {
      const secret = "A".repeat(43);
      expect(await actorOf(`${Buffer.from(name).toString("base64url")}.${secret}`)).toBeUndefined();
      const admin = (await actorOf((await startSession()).value))!;
      const request = instance.access.sessions.end({ ...admin, role: "admin" }, `${name}.${secret}`, CALLER);
      await expect(request).rejects.toMatchObject({ code: "notFound" });
    },
  );

  test("expires an hour after the last use, or twelve hours after the sign-in", async () => {
    const [used, idle] = [(await startSession()).value, (await startSession()).value];
    deployment.clock.pass(HOUR_MS - 1);
    expect(await actorOf(used)).toBeDefined();
    deployment.clock.pass(1);
    expect([await actorOf(used), await actorOf(idle)]).toEqual([expect.anything(), undefined]);
    for (let hour = 1; hour < 11; hour++) {
      deployment.clock.pass(HOUR_MS - MINUTES);
      expect(await actorOf(used)).toBeDefined();
    }
    // 10 hours and 50 minutes have passed. Each further use is within an hour of the one before.
    deployment.clock.pass(HOUR_MS - 1);
    expect(await actorOf(used)).toBeDefined();
    deployment.clock.pass(10 * MINUTES);
    expect(await actorOf(used)).toBeDefined();
    deployment.clock.pass(1);
    expect(await actorOf(used)).toBeUndefined();
  });

  test("costs one read of its user's row, and one write every five minutes", async () => {
    const { value } = await startSession();
    const countedInstance = await startCountedInstance();
    try {
      const requests = () => countedInstance.requests(value);
      const read = "GET Users(PartitionKey='user',RowKey='maria')";
      await requests();
      expect(await requests()).toEqual([read]);
      deployment.clock.pass(5 * MINUTES - 1);
      expect(await requests()).toEqual([read]);
      deployment.clock.pass(1);
      expect(await requests()).toEqual([read, read.replace("GET", "PUT")]);
      expect(await requests()).toEqual([read]);
      for (let use = 1; use <= 12; use++) {
        deployment.clock.pass(55 * MINUTES);
        await requests();
      }
      // 11 hours and 5 minutes have passed. The last use extended the session to the end of its twelve hours.
      deployment.clock.pass(10 * MINUTES);
      expect(await requests()).toEqual([read]);
    } finally {
      await countedInstance.stop();
    }
  });

  test("is extended by concurrent requests, all of which are authenticated", async () => {
    const value = (await startSession()).value;
    deployment.clock.pass(59 * MINUTES);
    const actors = await Promise.all(
      Array.from({ length: 8 }, (_, index) => actorOf(value, index % 2 ? instance : otherInstance)),
    );
    expect(actors.filter((actor) => actor === undefined)).toEqual([]);
    deployment.clock.pass(59 * MINUTES);
    expect(await actorOf(value)).toBeDefined();
  });

  test.each<[string, (actor: Actor) => Promise<unknown>]>([
    ["is ended", ({ credential }) => instance.access.sessions.end(MARIA_HERSELF, `maria.${idOf(credential)}`, CALLER)],
    [
      "ends when its user signs out everywhere",
      (actor) => instance.access.signOut(actor, { everywhere: true, apiTokens: false }, CALLER),
    ],
    ["loses its user, who is replaced by another user of that name", replaceMaria],
  ])("that %s while it is being extended stays ended", async (_description, endSession) => {
    const { value } = await startSession();
    const actor = (await actorOf(value))!;
    deployment.clock.pass(30 * MINUTES);
    const proxy = await startDelayingProxy(deployment.connectionString, () => "hold");
    try {
      const slowInstance = deployment.start({ connectionString: proxy.connectionString });
      const extension = actorOf(value, slowInstance);
      await vi.waitUntil(() => proxy.heldWrites.length > 0, { timeout: 150_000 });
      await endSession(actor);
      await proxy.heldWrites[0]!.release();
      expect(await extension).toBeDefined();
      expect(proxy.writes).toMatchObject([{ method: "PUT", applied: false }]);
      expect(await actorOf(value)).toBeUndefined();
      expect(await actorOf(value, slowInstance)).toBeUndefined();
    } finally {
      await proxy.stop();
    }
  });

  test("ends when its user, with 50 sessions, signs in again and it is the least recently used", async () => {
    const { value } = await startSession();
    const user = await readMariasRow();
    const session = user.sessions![0]!;
    const movedIdleEnd = (seconds: number) =>
      new Date(Date.parse(session.idleEndsAt) + seconds * SECONDS).toISOString();
    // The other sessions were used one second after the other, all before the session that is signed in now.
    const others = Array.from({ length: MAX_SESSIONS - 1 }, (_, index) => ({
      ...session,
      id: `other ${index}`,
      idleEndsAt: movedIdleEnd(index - 100),
    }));
    // The session under test was used between the sessions "other 1" and "other 2", so two new sessions end the first two.
    await tables().replace(User, {
      ...user,
      sessions: [{ ...session, idleEndsAt: movedIdleEnd(1.5 - 100) }, ...others],
    });
    for (let more = 0; more < 2; more++) await startSession();
    const ids = (await readMariasRow()).sessions!.map(({ id }) => id);
    expect(ids).toHaveLength(MAX_SESSIONS);
    expect(ids.filter((id) => id.startsWith("other")).at(-1)).toBe("other 2");
    expect(await actorOf(value)).toBeDefined();
    await startSession();
    expect(await actorOf(value)).toBeUndefined();
  });

  test.each([
    ["an empty cookie", () => ""],
    ["a cookie without its secret", (cookie: string) => cookie.split(".")[0]!],
    [
      "a cookie with another user's name",
      (cookie: string) => `${Buffer.from("bob").toString("base64url")}.${cookie.split(".")[1]}`,
    ],
    ["a cookie with another secret", (cookie: string) => `${cookie.split(".")[0]}.${"A".repeat(43)}`],
    ["a cookie with the stored hash as its secret", (cookie: string, id: string) => `${cookie.split(".")[0]}.${id}`],
    ["a cookie with a third part", (cookie: string) => `${cookie}.x`],
    [
      "a cookie with a name that contains a separator of row keys",
      (cookie: string) => `${Buffer.from("x|y").toString("base64url")}.${cookie.split(".")[1]}`,
    ],
  ])("is not authenticated by %s", async (_description, change) => {
    const { value } = await startSession();
    const credential = (await actorOf(value))!.credential as { id: string };
    expect(await actorOf(change(value, credential.id))).toBeUndefined();
  });

  test("is deleted by the clean-up only after it expired", async () => {
    await startSession();
    deployment.clock.pass(30 * MINUTES);
    const { value } = await startSession();
    deployment.clock.pass(30 * MINUTES);
    await instance.access.cleanUp();
    const { sessions } = await readMariasRow();
    expect(sessions!.map(({ id }) => id)).toEqual([idOf((await actorOf(value))!.credential)]);
  });
});

// An earlier version stored each session in a row of its own, not in the user's row. Such sessions must stay valid.
describe("a session of an earlier version", () => {
  /** Starts a session, moves it to a row of its own, and returns its cookie. */
  async function startEarlierSession(change: object = {}): Promise<string> {
    const { value } = await startSession();
    const user = await readMariasRow();
    const { id, ...session } = user.sessions![0]!;
    await tables().replace(User, { ...user, sessions: undefined });
    const row = { ...session, uid: user.uid!, ...change };
    await tables().insert(EarlierSession, USERS_PARTITION, earlierSessionKey("maria", id), row);
    return value;
  }

  test("stays valid, and costs one request more than a session in the user's row", async () => {
    const value = await startEarlierSession();
    const countedInstance = await startCountedInstance();
    try {
      await countedInstance.requests(value);
      expect(await countedInstance.requests(value)).toHaveLength(2);
      deployment.clock.pass(HOUR_MS - 1);
      expect(await countedInstance.requests(value)).toHaveLength(3);
    } finally {
      await countedInstance.stop();
    }
    await startSession();
    deployment.clock.pass(30 * MINUTES);
    const actor = (await actorOf(value))!;
    const { items } = await instance.access.sessions.list(actor, undefined, PAGE);
    expect(items.map(({ current }) => current)).toEqual([false, true]);
    deployment.clock.pass(HOUR_MS);
    expect(await actorOf(value)).toBeUndefined();
    await instance.access.cleanUp();
    expect(await deployment.allRows()).not.toContain("|session|");
  });

  test.each<[string, (actor: Actor) => Promise<unknown>]>([
    ["is ended", ({ credential }) => instance.access.sessions.end(MARIA_HERSELF, `maria.${idOf(credential)}`, CALLER)],
    ["gets another role", () => instance.access.users.update("maria", { role: "auditor" }, undefined, CALLER)],
    ["loses its user, who is replaced by another user of that name", replaceMaria],
  ])("becomes invalid once it %s", async (_description, invalidate) => {
    const value = await startEarlierSession();
    await invalidate((await actorOf(value))!);
    expect(await actorOf(value)).toBeUndefined();
  });
});

describe("the list of sessions", () => {
  test("contains the user's own sessions, newest first, and marks the current one", async () => {
    await startSession(BOB);
    const first = await startSession();
    deployment.clock.pass(MINUTES);
    await startSession(MARIA, "198.51.100.7");
    const actor = (await actorOf(first.value))!;
    const { items, total } = await otherInstance.access.sessions.list(actor, undefined, PAGE);
    expect(total).toBe(2);
    expect(items).toMatchObject([
      { user: "maria", current: false, address: "198.51.100.7", by: "password", userAgent: "Firefox" },
      {
        user: "maria",
        current: true,
        address: CALLER.address,
        createdAt: "2026-11-21T10:00:00.000Z",
        idleEndsAt: "2026-11-21T11:00:00.000Z",
        endsAt: "2026-11-21T22:00:00.000Z",
      },
    ]);
    expect(JSON.stringify(items)).not.toContain(first.value.split(".")[1]);
  });

  test("contains another user's sessions only for an administrator", async () => {
    await startSession();
    const bob = (await actorOf((await startSession(BOB)).value))!;
    const admin = (await actorOf((await startSession(ADMIN)).value))!;
    const { sessions } = instance.access;
    await expect(sessions.list(bob, "maria", PAGE)).rejects.toMatchObject({ code: "forbidden" });
    expect((await sessions.list(bob, "bob", PAGE)).total).toBe(1);
    expect((await sessions.list(admin, "maria", PAGE)).items).toMatchObject([{ user: "maria", current: false }]);
    expect((await sessions.list(admin, "nobody", PAGE)).total).toBe(0);
  });

  test("does not contain ended sessions", async () => {
    const { value } = await startSession();
    const actor = (await actorOf(value))!;
    const listedTotal = async () => (await instance.access.sessions.list(actor, undefined, PAGE)).total;
    expect(await listedTotal()).toBe(1);
    await instance.access.users.update("maria", { role: "auditor" }, undefined, CALLER);
    expect(await listedTotal()).toBe(0);
  });
});

describe("ending a session", () => {
  test("is allowed only for its user and for administrators", async () => {
    const { value } = await startSession();
    const maria = (await actorOf(value))!;
    const bob = (await actorOf((await startSession(BOB)).value))!;
    const admin = (await actorOf((await startSession(ADMIN)).value))!;
    const { sessions } = instance.access;
    const [session] = (await sessions.list(maria, undefined, PAGE)).items;
    await expect(sessions.end(bob, session!.id, CALLER)).rejects.toMatchObject({ code: "notFound" });
    expect(await actorOf(value)).toBeDefined();
    await sessions.end(admin, session!.id, { ...CALLER, actor: "Admin" });
    expect(await actorOf(value)).toBeUndefined();
    await expect(sessions.end(admin, session!.id, CALLER)).rejects.toMatchObject({ code: "notFound" });
    for (const id of ["", "maria", "maria.", ".x", `maria.${"A".repeat(43)}`, "maria.|directory"]) {
      await expect(sessions.end(maria, id, CALLER)).rejects.toMatchObject({ code: "notFound" });
    }
    expect((await deployment.auditEntries("session.ended")).find(({ actor }) => actor === "Admin")).toMatchObject({
      outcome: "success",
      target: { type: "session", id: session!.id },
    });
  });
});
