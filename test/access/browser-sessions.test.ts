import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { idOfSession, Session } from "../../shared/access/sessions.ts";
import type { Actor } from "../../shared/http/endpoint.ts";
import { Problem } from "../../shared/http/problem.ts";
import { createTables } from "../../shared/storage/tables.ts";
import { HOUR_MS } from "../../shared/time.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import { ADMIN, type Deployment, from, HERE, type Instance, MINUTES, startDeployments } from "./instances.ts";

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

describe("a session", () => {
  test("is a cookie that scripts can't read, other hosts can't set, and other sites' forms don't send", async () => {
    const cookie = await begin();
    expect(cookie).toMatchObject({ name: "__Host-session", path: "/", httpOnly: true, secure: true, sameSite: "Lax" });
    expect(cookie.maxAge).toBe(12 * 3600);
    expect(await actorOf(cookie.value)).toMatchObject({ username: "Maria", credential: { kind: "session" } });
    expect(await deployment.everything()).not.toContain(cookie.value.split(".")[1]);
    expect((await begin()).value).not.toBe(cookie.value);
  });

  test.each(["a/b", "a#b", "a|b", "|directory", "\0", "x".repeat(3000)])(
    "is not one of what can't be a username, nor can that be ended: %#",
    async (name) => {
      const secret = "A".repeat(43);
      expect(await actorOf(`${Buffer.from(name).toString("base64url")}.${secret}`)).toBeUndefined();
      const admin = (await actorOf((await begin()).value))!;
      const ending = instance.access.sessions.end({ ...admin, role: "admin" }, `${name}.${secret}`, HERE);
      await expect(ending).rejects.toMatchObject({ code: "notFound" });
    },
  );

  test("goes on while it is used, and ends an hour after that, or twelve hours after the sign-in", async () => {
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

  test("costs one read beside its user's, and moves its end at most every five minutes", async () => {
    const { value } = await begin();
    const proxy = await startTableProxy(deployment.connectionString);
    try {
      const counted = deployment.start({ connectionString: proxy.connectionString });
      const requests = async () => {
        proxy.requests.length = 0;
        expect(await actorOf(value, counted)).toBeDefined();
        return proxy.requests.map(({ method, path }) => `${method} ${path.replace(/\|session\|.*'/, "|session|…'")}`);
      };
      const reads = [
        "GET Users(PartitionKey='user',RowKey='maria')",
        "GET Users(PartitionKey='user',RowKey='|session|…')",
      ];
      await requests();
      expect((await requests()).sort()).toEqual(reads);
      deployment.clock.pass(5 * MINUTES - 1);
      expect((await requests()).sort()).toEqual(reads);
      deployment.clock.pass(1);
      expect((await requests()).sort()).toEqual([...reads, "PUT Users(PartitionKey='user',RowKey='|session|…')"]);
      expect((await requests()).sort()).toEqual(reads);
    } finally {
      await proxy.stop();
    }
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

  test("is removed once it has ended, and not before", async () => {
    await begin();
    deployment.clock.pass(30 * MINUTES);
    const { value } = await begin();
    deployment.clock.pass(30 * MINUTES);
    await instance.access.cleanUp();
    const tables = createTables({ connectionString: deployment.connectionString });
    const rows = [];
    const range = { partitionKey: "user", from: "|session|", before: "|session|~" };
    for await (const page of tables.pages(Session, range)) rows.push(...page);
    expect(rows.map(idOfSession)).toEqual([((await actorOf(value))!.credential as { id: string }).id]);
  });
});

describe("the list of sessions", () => {
  test("has one's own, the newest first, and says which is the current one", async () => {
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

  test("is one's own; an administrator may ask for another user's", async () => {
    await begin();
    const bob = (await actorOf((await begin(BOB)).value))!;
    const admin = (await actorOf((await begin(ADMIN)).value))!;
    const { sessions } = instance.access;
    await expect(sessions.list(bob, "maria", PAGE)).rejects.toMatchObject({ code: "forbidden" });
    expect((await sessions.list(bob, "bob", PAGE)).total).toBe(1);
    expect((await sessions.list(admin, "maria", PAGE)).items).toMatchObject([{ user: "maria", current: false }]);
    expect((await sessions.list(admin, "nobody", PAGE)).total).toBe(0);
  });

  test("leaves out what has ended", async () => {
    const { value } = await begin();
    const actor = (await actorOf(value))!;
    const shown = async () => (await instance.access.sessions.list(actor, undefined, PAGE)).total;
    expect(await shown()).toBe(1);
    await instance.access.users.update("maria", { role: "auditor" }, undefined, HERE);
    expect(await shown()).toBe(0);
  });
});

describe("ending a session", () => {
  test("is for its user and for administrators", async () => {
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
