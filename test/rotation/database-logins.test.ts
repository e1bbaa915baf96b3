import { TableClient } from "@azure/data-tables";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { unknownConsumers } from "../../shared/rotation/consumer.ts";
import { differencesOfGrants } from "../../shared/rotation/database-logins/grants.ts";
import { readLogin, rewriteLogin } from "../../shared/rotation/database-logins/login-values.ts";
import { LEASE_MS } from "../../shared/rotation/directory-lease.ts";
import { isOver, type RotationStatus } from "../../shared/rotation/rotation.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { openLoginWorld, type RegisteredPair } from "./database-login-world.ts";
import { expectNoValueStored } from "./invariants.ts";
import { BOSS, type SimulatedCrash } from "./world.ts";

/**
 * Tests rotations of logins on a real PostgreSQL server: also with crashes at sampled calls, lost responses and duplicate
 * deliveries. The server decides: the login that a place stores always signs in.
 */

const CALLS_BETWEEN_CRASHES = IS_CAMPAIGN ? 1 : 41;
const CRASH_KINDS: SimulatedCrash["crashKind"][] = ["before", "after", "late"];

let logins: Awaited<ReturnType<typeof openLoginWorld>>;
const values: string[] = [];
beforeAll(async () => {
  logins = await openLoginWorld();
});
afterAll(() => logins?.stop());
afterEach(() => {
  logins.control.clearFaults();
  logins.control.databases.faults.length = 0;
  logins.world.messages.length = 0;
  logins.world.isWatched = true;
  logins.world.serviceVaultOf = (real) => real;
  logins.world.afterWrite = async () => {};
  logins.world.consumers = unknownConsumers();
});

/** Changes the stored registration without its signature, as a stranger with access to the tables can. */
async function changeRow({ request }: RegisteredPair, serverId: string): Promise<void> {
  const client = TableClient.fromConnectionString(logins.azurite.connectionString(), "RotationMatches", {
    allowInsecureConnection: true,
  });
  await client.updateEntity({ partitionKey: "databaseLogins", rowKey: request.loginId, serverId }, "Merge");
}

/** Rotates and returns the row, after the checks that hold for every rotation. */
async function rotate(
  pair: RegisteredPair,
  { crash, isCancelled = false }: { crash?: SimulatedCrash | undefined; isCancelled?: boolean } = {},
) {
  const { world } = logins;
  world.advanceClock(MINUTE_MS);
  const violations = logins.recordViolations(pair);
  const { rotationId } = await world.start().begin(pair.request, BOSS);
  if (isCancelled) {
    await world.run(rotationId, { until: ({ status }) => status === "overlapping" });
    await world.start().cancel(rotationId, BOSS);
  }
  const { row, crashCount } = await world.run(rotationId, crash ? { crash } : {});
  for (const call of world.callsAfterCrash.splice(0)) await call().catch(() => {});
  await logins.expectInvariants(pair, row, violations);
  values.push(...pair.passwords, ...pair.places.map((place) => logins.loginOf(place).password));
  return { row, crashCount };
}

test("a rotation gives the other user a password, writes it in each format, and retires the old password", async () => {
  const pair = await logins.addRegistered();
  const [before, json] = pair.places.map(logins.storedValue);
  const { row } = await rotate(pair);
  expect(row.status).toBe("completed");
  const { password } = logins.loginOf(pair.places[0]!);
  const expected = (text: string) => text.replace(pair.users[0], pair.users[1]).replace(pair.passwords[0], password);
  expect(pair.places.map(logins.storedValue)).toEqual([expected(before!), expected(json!)]);
  const { places } = await logins.world.logins().get(pair.request.loginId);
  expect(places.map(({ user }) => user)).toEqual([pair.users[1], pair.users[1]]);
});

test("the next rotation gives the first user a password again", async () => {
  const pair = await logins.addRegistered();
  for (const user of [pair.users[1], pair.users[0], pair.users[1]]) {
    const { rotationId } = await logins.world.start().begin(pair.request, BOSS);
    expect((await logins.world.run(rotationId)).row.status).toBe("completed");
    expect(logins.loginOf(pair.places[0]!).user).toBe(user);
  }
});

test("no clear password is in a statement, which the server logs", async () => {
  const pair = await logins.addRegistered();
  await rotate(pair);
  const statements = logins.control.databases.statements.join("\n");
  expect(statements).toContain(`ALTER ROLE "${pair.users[1]}" PASSWORD 'SCRAM-SHA-256$4096:`);
  expect(statements).not.toContain(logins.loginOf(pair.places[0]!).password);
});

test("a client that reads the vault and reconnects every 50 ms never fails", { timeout: 120_000 }, async () => {
  const pair = await logins.addRegistered();
  const failures: string[] = [];
  let isRunning = true;
  let connections = 0;
  const client = (async () => {
    while (isRunning) {
      const { user, password } = logins.loginOf(pair.places[0]!);
      if (!(await logins.postgres.accepts(user, password))) failures.push(user);
      connections++;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  })();
  for (let rotation = 0; rotation < (IS_CAMPAIGN ? 20 : 4); rotation++) {
    const { rotationId } = await logins.world.start().begin(pair.request, BOSS);
    expect((await logins.world.run(rotationId)).row.status).toBe("completed");
  }
  isRunning = false;
  await client;
  expect(failures).toEqual([]);
  expect(connections).toBeGreaterThan(10);
});

describe("a plan stops", () => {
  const begin = (pair: RegisteredPair) => logins.world.start().begin(pair.request, BOSS);

  test("if the secrets name different users", async () => {
    const pair = await logins.addRegistered();
    const value = rewriteLogin(logins.storedValue(pair.places[1]!), {
      user: pair.users[1],
      password: pair.passwords[1],
    });
    logins.control.putSecret(pair.places[1]!.vaultName, { name: pair.places[1]!.secretName, value });
    await expect(begin(pair)).rejects.toMatchObject({
      code: "notRotatable",
      message: expect.stringContaining("Both users are in use"),
    });
  });

  test("if the stored password does not sign in", async () => {
    const pair = await logins.addRegistered();
    await logins.postgres.sql(`ALTER ROLE ${pair.users[0]} PASSWORD 'changed-by-someone'`);
    await expect(begin(pair)).rejects.toMatchObject({ message: expect.stringContaining("rejected the password") });
  });

  test("if the users have different rights", async () => {
    const pair = await logins.addRegistered();
    await logins.postgres.sql(
      `CREATE TABLE extra_${pair.users[0]} (id int); GRANT SELECT ON extra_${pair.users[0]} TO ${pair.users[0]}`,
    );
    const message = expect.stringContaining(`${pair.users[0]} has SELECT on relation`);
    await expect(begin(pair)).rejects.toMatchObject({ code: "notRotatable", message });
  });

  test("if a user owns an object that the other user can't change", async () => {
    const pair = await logins.addRegistered();
    await logins.postgres.sql(
      `CREATE TABLE own_${pair.users[0]} (id int); ALTER TABLE own_${pair.users[0]} OWNER TO ${pair.users[0]}`,
    );
    await expect(begin(pair)).rejects.toMatchObject({ message: expect.stringContaining("ownership of table") });
  });

  test("if the service's identity may not set the passwords", async () => {
    const pair = await logins.addRegistered();
    await logins.postgres.sql(`REVOKE ${pair.users[1]} FROM lifecycle`);
    await expect(begin(pair)).rejects.toMatchObject({ message: expect.stringContaining("ADMIN OPTION") });
  });

  test("if a secret names the host of another server, whatever its tags say", async () => {
    const pair = await logins.addRegistered();
    const [place] = pair.places;
    const value = logins.storedValue(place!).replace(/@[^:]+:/, "@elsewhere.postgres.localhost:");
    logins.control.putSecret(place!.vaultName, {
      name: place!.secretName,
      value,
      tags: { "database-server": pair.serverId },
    });
    await expect(begin(pair)).rejects.toMatchObject({ message: expect.stringContaining("another server") });
  });

  test("if the server's subscription is not monitored", async () => {
    const pair = await logins.addRegistered();
    logins.world.isWatched = false;
    await expect(begin(pair)).rejects.toMatchObject({ code: "notRotatable" });
  });

  test("if someone changed the row of the registration", async () => {
    const [pair, other] = [await logins.addRegistered(), await logins.addPair()];
    await changeRow(pair, other.serverId);
    await expect(begin(pair)).rejects.toMatchObject({ code: "notFound" });
    const registrations = logins.world.logins();
    expect((await registrations.all()).map(({ credentialId }) => credentialId)).not.toContain(pair.request.loginId);
    // An administrator can register the users again after the changed row is deleted.
    await registrations.remove(pair.request.loginId, BOSS);
    await registrations.register(pair.registration, BOSS);
  });
});

test("a registration whose row someone changed during a rotation does not keep it from ending", async () => {
  const pair = await logins.addRegistered();
  const { rotationId } = await logins.world.start().begin(pair.request, BOSS);
  await logins.world.run(rotationId, { until: ({ status }) => status === "overlapping" });
  await changeRow(pair, "/subscriptions/other");
  const { row } = await logins.world.run(rotationId);
  expect(row.status).toBe("completed");
  await logins.expectInvariants(pair, row, []);
});

test("users with very many rights are compared", async () => {
  const rights = Array.from({ length: 200_000 }, (_, index) => ({ label: `right ${index}`, full: `right ${index}` }));
  const query = async (_text: string, [user]: readonly unknown[] = []) =>
    (user === "shop_a" ? rights : rights.slice(1)) as never[];
  expect(await differencesOfGrants({ query }, ["shop_a", "shop_b"])).toEqual([
    "shop_a has right 0, and shop_b has not.",
  ]);
});

test("rights that change after the plan stop the rotation before a secret is written", async () => {
  const pair = await logins.addRegistered();
  const { rotationId } = await logins.world.start().begin(pair.request, BOSS);
  await logins.postgres.sql(`GRANT pg_read_all_data TO ${pair.users[0]}`);
  const { row } = await logins.world.run(rotationId);
  expect(row).toMatchObject({ status: "failed", failure: { code: "grantsDiffer" } });
  await logins.expectInvariants(pair, row, []);
});

test("no password changes if a secret names its user after the plan", async () => {
  const pair = await logins.addRegistered();
  const { rotationId } = await logins.world.start().begin(pair.request, BOSS);
  const [place] = pair.places;
  const value = rewriteLogin(logins.storedValue(place!), { user: pair.users[1], password: pair.passwords[1] });
  logins.control.putSecret(place!.vaultName, { name: place!.secretName, value });
  const { row } = await logins.world.run(rotationId);
  expect(row).toMatchObject({ status: "failed", failure: { code: "targetHoldsOther" } });
  for (const index of [0, 1])
    expect(await logins.postgres.accepts(pair.users[index]!, pair.passwords[index]!)).toBe(true);
});

test("no password changes if the registration was deleted while the rotation started", async () => {
  const pair = await logins.addRegistered();
  const { rotationId } = await logins.world.start().begin(pair.request, BOSS);
  await logins.world.logins().remove(pair.request.loginId, BOSS);
  const { row } = await logins.world.run(rotationId);
  expect(row).toMatchObject({ status: "failed", failure: { code: "notRegistered" } });
  for (const index of [0, 1])
    expect(await logins.postgres.accepts(pair.users[index]!, pair.passwords[index]!)).toBe(true);
});

test("the old password stays while a registered secret names it, even if a user finishes with force", async () => {
  const pair = await logins.addRegistered();
  const old = logins.storedValue(pair.places[1]!);
  const { rotationId } = await logins.world.start().begin(pair.request, BOSS);
  await logins.world.run(rotationId, { until: ({ status }) => status === "overlapping" });
  logins.control.putSecret(pair.places[1]!.vaultName, { name: pair.places[1]!.secretName, value: old });
  await logins.world.start().finish(rotationId, true, BOSS);
  const { row } = await logins.world.run(rotationId);
  expect(row.attention?.code).toBe("stillInUse");
  expect(await logins.postgres.accepts(pair.users[0], pair.passwords[0])).toBe(true);
});

describe("a registration is refused", () => {
  const missing = async (pair: RegisteredPair) => (await logins.world.logins().check(pair.registration, BOSS)).missing;

  test("for a secret that is only a password", async () => {
    const pair = await logins.addPair();
    logins.control.putSecret(pair.places[0]!.vaultName, { name: pair.places[0]!.secretName, value: pair.passwords[0] });
    expect(await missing(pair)).toEqual([expect.stringContaining("names no database user")]);
  });

  test("for a user that another registration has", async () => {
    const pair = await logins.addRegistered();
    const other = { ...pair.registration, users: [pair.users[0], "someone_else"] as [string, string] };
    await logins.postgres.sql(
      `CREATE ROLE someone_else LOGIN IN ROLE ${pair.users[0].slice(0, -2)}; GRANT someone_else TO lifecycle WITH ADMIN TRUE, INHERIT FALSE, SET FALSE`,
    );
    const registrations = logins.world.logins();
    const message = `${pair.users[0]} is already registered.`;
    expect((await registrations.check(other, BOSS)).missing[0]).toBe(message);
    await expect(registrations.register(other, BOSS)).rejects.toMatchObject({ code: "conflict" });
  });

  test("for a role that the service's identity is not mapped to, and for an unknown database", async () => {
    const pair = await logins.addPair();
    const missingOf = async (change: object) =>
      (await logins.world.logins().check({ ...pair.registration, ...change }, BOSS)).missing;
    expect(await missingOf({ signInAs: "postgres" })).toEqual([expect.stringContaining("rejected the access token")]);
    expect(await missingOf({ database: "nowhere" })).toEqual([expect.stringContaining("no database of this name")]);
  });

  test("for a server with a certificate of another name, and for a host outside of the cloud's domain", async () => {
    // The certificate is valid for one level below the domain.
    await expect(missing(await logins.addPair("other."))).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("the connection failed"),
    });
    const pair = await logins.addPair();
    const [, , subscription] = pair.serverId.split("/");
    logins.control.consumers.put(subscription!, {
      type: "Microsoft.DBforPostgreSQL/flexibleServers",
      name: pair.serverId.split("/").at(-1)!,
      resourceGroup: "rg-shop",
      properties: { fullyQualifiedDomainName: "psql-shop.elsewhere.example" },
    });
    await expect(missing(pair)).rejects.toMatchObject({
      message: expect.stringContaining("no domain of the configured"),
    });
  });

  test("for a user that may not connect to the database", async () => {
    const pair = await logins.addPair();
    await logins.postgres.sql(`CREATE DATABASE closed_${pair.users[0]}`);
    await logins.postgres.sql(`REVOKE CONNECT ON DATABASE closed_${pair.users[0]} FROM public`);
    const registration = { ...pair.registration, database: `closed_${pair.users[0]}` };
    expect((await logins.world.logins().check(registration, BOSS)).missing).toEqual([
      expect.stringContaining(`Give the database user ${pair.users[0]} CONNECT on the database closed_`),
    ]);
  });

  test("for a server in a subscription that is not monitored", async () => {
    const pair = await logins.addPair();
    logins.world.isWatched = false;
    await expect(missing(pair)).rejects.toMatchObject({ code: "invalidRequest" });
  });
});

const SCENARIOS: { name: string; finalStatus: RotationStatus; isCancelled: boolean }[] = [
  { name: "a rotation", finalStatus: "completed", isCancelled: false },
  { name: "a rotation that a user cancels", finalStatus: "cancelled", isCancelled: true },
];

test.each(SCENARIOS)(
  "$name ends correctly after a crash at a sampled call",
  { timeout: 7_200_000 },
  async ({ finalStatus, isCancelled }) => {
    const { calls } = logins.world;
    const callsBefore = calls.length;
    expect((await rotate(await logins.addRegistered(), { isCancelled })).row.status).toBe(finalStatus);
    const count = calls.length - callsBefore;
    let [crashes, round] = [0, 0];
    for (let callNumber = 1 + (SEED % CALLS_BETWEEN_CRASHES); callNumber < count; callNumber += CALLS_BETWEEN_CRASHES) {
      for (const crashKind of IS_CAMPAIGN ? CRASH_KINDS : [CRASH_KINDS[(SEED + round++) % 3]!]) {
        const crash = { callNumber, crashKind };
        const { row, crashCount } = await rotate(await logins.addRegistered(), { crash, isCancelled }).catch(
          (error) => {
            throw new Error(`SEED=${SEED}, ${crashKind} call ${callNumber}: ${(error as Error).message}`, {
              cause: error,
            });
          },
        );
        expect(row.status, `SEED=${SEED}, ${crashKind} call ${callNumber}`).toBe(finalStatus);
        crashes += crashCount;
      }
    }
    expect(crashes).toBeGreaterThan(0);
    if (IS_CAMPAIGN) console.log(`${crashes} crashes, ${count} calls of a rotation without one`);
  },
);

/** The calls around both statements, where the new password is decided. */
test("places keep a valid login after a crash at each call around a statement", { timeout: 7_200_000 }, async () => {
  const { world } = logins;
  const callsBefore = world.calls.length;
  await rotate(await logins.addRegistered());
  const calls = world.calls.slice(callsBefore);
  const begin = calls.lastIndexOf("audit.append", calls.indexOf("queues.send"));
  const worker = calls.slice(begin + 2);
  const statements = worker.flatMap((call, index) => (call === "servers.setPassword" ? [index + 1] : []));
  expect(statements).toHaveLength(2);
  // A normal run crashes at the statements, and while the held copy of the new password is written.
  const offsets = IS_CAMPAIGN ? [-4, -3, -2, -1, 0, 1, 2, 3] : [0];
  const crashes: SimulatedCrash[] = [
    ...(IS_CAMPAIGN ? [] : [{ callNumber: worker.indexOf("own.writeSecret") + 1, crashKind: "late" as const }]),
    ...statements.flatMap((statement) =>
      offsets.flatMap((offset) => CRASH_KINDS.map((crashKind) => ({ callNumber: statement + offset, crashKind }))),
    ),
  ];
  for (const crash of crashes) {
    const { row, crashCount } = await rotate(await logins.addRegistered(), { crash });
    expect([row.status, crashCount], JSON.stringify(crash)).toEqual(["completed", 1]);
  }
});

test.each(["reset", "loseAnswer"] as const)("a rotation completes if a statement gets no answer (%s)", async (kind) => {
  const pair = await logins.addRegistered();
  for (const user of pair.users) logins.control.databases.faults.push({ kind, statement: `ALTER ROLE "${user}"` });
  const { row } = await rotate(pair);
  expect(row.status, JSON.stringify(row.failure ?? row.attention)).toBe("completed");
  expect(logins.control.databases.faults).toEqual([]);
});

test("three workers that get each message at the same time set each password once", async () => {
  const pair = await logins.addRegistered();
  const { world } = logins;
  const violations = logins.recordViolations(pair);
  logins.control.databases.statements.length = 0;
  const { rotationId } = await world.start().begin(pair.request, BOSS);
  const workers = [world.start(), world.start(), world.start()];
  let row = await workers[0]!.get(rotationId);
  for (let round = 0; round < 100 && !isOver(row.status); round++) {
    const wait = Date.parse(row.dueAt) - world.clock.now().getTime();
    if (wait > 0) world.advanceClock(wait);
    await Promise.all(workers.map((worker) => worker.work(rotationId, "request-of-worker")));
    row = await workers[0]!.get(rotationId);
  }
  expect(row.status).toBe("completed");
  expect(logins.control.databases.statements.filter((text) => text.includes("ALTER ROLE"))).toHaveLength(2);
  await logins.expectInvariants(pair, row, violations);
});

test("a worker that lost its lease before it set the new password does not set it", async () => {
  const pair = await logins.addRegistered();
  const { world } = logins;
  const violations = logins.recordViolations(pair);
  logins.control.databases.statements.length = 0;
  const { rotationId } = await world.start().begin(pair.request, BOSS);
  const [paused, resumed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  world.serviceVaultOf = (real) => ({
    ...real,
    async writeSecret(...copy) {
      paused.resolve();
      await resumed.promise;
      return await real.writeSecret(...copy);
    },
  });
  const slow = world.start().work(rotationId, "request-of-slow-worker");
  world.serviceVaultOf = (real) => real;
  await paused.promise;
  world.advanceClock(LEASE_MS + MINUTE_MS);
  const { row } = await world.run(rotationId, { until: ({ status }) => status === "overlapping" });
  expect(row.status).toBe("overlapping");
  resumed.resolve();
  await slow;
  const passwords = logins.control.databases.statements.filter((text) => text.includes("ALTER ROLE"));
  expect(passwords).toHaveLength(1);
  await logins.expectInvariants(pair, (await world.run(rotationId)).row, violations);
});

test("no password is logged, stored, sent or audited", async () => {
  await expectNoValueStored(logins.world, logins.azurite.connectionString(), values);
  const options = { allowInsecureConnection: true };
  const table = TableClient.fromConnectionString(logins.azurite.connectionString(), "RotationMatches", options);
  const rows: unknown[] = [];
  for await (const row of table.listEntities()) rows.push(row);
  expect(rows.length).toBeGreaterThan(0);
  for (const value of values) expect(JSON.stringify(rows)).not.toContain(value);
});

describe("a secret in each format keeps everything but the login", () => {
  const next = { user: "app_b", password: "N3wPassword" };
  test.each([
    [
      "postgresql://app_a:p%40ss%2Fword@h.example:5432/db?sslmode=require#x",
      "postgresql://app_b:N3wPassword@h.example:5432/db?sslmode=require#x",
      "p@ss/word",
    ],
    [
      "jdbc:postgresql://h.example/db?user=app_a&ssl=true&password=p%26ssword",
      "jdbc:postgresql://h.example/db?user=app_b&ssl=true&password=N3wPassword",
      "p&ssword",
    ],
    ["mysql+pymysql://app_a:password@h.example/db\n", "mysql+pymysql://app_b:N3wPassword@h.example/db\n", "password"],
    [
      "host=h.example user = app_a password='it\\'s a secret' dbname=db",
      "host=h.example user = app_b password='N3wPassword' dbname=db",
      "it's a secret",
    ],
    [
      'Host=h.example;Username=app_a; Password="a;b""c" ;SSL Mode=Require',
      'Host=h.example;Username=app_b; Password="N3wPassword" ;SSL Mode=Require',
      'a;b"c',
    ],
    ["Server=h.example;Uid=app_a;Pwd=pass=word;", "Server=h.example;Uid=app_b;Pwd=N3wPassword;", "pass=word"],
    [
      '{"engine":"postgres", "username" : "app_a","password":"q\\"\\u00fcword", "host":"h.example"}',
      '{"engine":"postgres", "username" : "app_b","password":"N3wPassword", "host":"h.example"}',
      'q"üword',
    ],
  ])("%s", (text, rewritten, password) => {
    expect(readLogin(text).login).toMatchObject({ user: "app_a", password, host: "h.example" });
    expect(rewriteLogin(text, next)).toBe(rewritten);
  });

  test.each([
    ["only-a-password"],
    ["postgresql://h.example/db"],
    ["postgresql://a:b@one.example,two.example/db"],
    ["postgresql://a:long-password@h.example/db?password=long-password"],
    ["user=a user=b password=c"],
    ["redis://:key@h.example"],
    ['{"username":"a","password":"long-password","uri":"postgresql://a:long-password@h/db"}'],
    ['{"username":"a"'],
    ['Host=h;Username=a;Password="b" c'],
    ['Host=h;Username=a;Password= "b'],
    [`Host=h;Username=a;Password${" ".repeat(20_000)};${" ".repeat(20_000)}x`],
  ])("%s can't be rotated", (text) => {
    expect(readLogin(text).login).toBeUndefined();
    expect(() => rewriteLogin(text, next)).toThrow(TypeError);
  });
});
