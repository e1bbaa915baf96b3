import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { configFor, useManagedIdentity } from "../azure/live-cloud.ts";
import { licence } from "../support/licence.ts";
import { movedClock } from "../support/moved-clock.ts";
import { type PostgresServer, SERVICE_USER, startPostgres } from "../support/postgresql.ts";
import { ADMIN, Service } from "../support/service.ts";
import { createUsers } from "./database-login-world.ts";
import { createRotationClient } from "./http-client.ts";

/** Tests over HTTP of logins of databases: their registration, and a rotation on a real PostgreSQL server. */

const BASE = "/api/automation/rotation/credentials";
const SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
const SECRET = "kv-shop.secret.database";

const storageClock = movedClock();
let service: Service;
let postgres: PostgresServer;
let http: ReturnType<typeof createRotationClient>;
let registration: Record<string, unknown>;
let passwords: [string, string];
beforeAll(async () => {
  postgres = await startPostgres();
  service = await Service.start({
    company: { subscriptions: [{ id: SUBSCRIPTION, name: "Shop", vaults: [{ name: "kv-shop" }] }] },
    lease: 1,
    shortWaits: true,
    env: { LICENSE_KEY: await licence() },
    storageEnv: storageClock.environment,
  });
  http = createRotationClient(service, storageClock);
  const { control } = service.cloud;
  await useManagedIdentity(service.cloud);
  const { objectId = "" } = await createIdentity(configFor(service.cloud)).describe();
  const created = await createUsers(postgres, "shop");
  passwords = created.passwords;
  const fullyQualifiedDomainName = await control.databases.serve(
    "psql-shop",
    postgres.port,
    new Map([[objectId, SERVICE_USER]]),
  );
  const serverId = control.consumers.put(SUBSCRIPTION, {
    type: "Microsoft.DBforPostgreSQL/flexibleServers",
    name: "psql-shop",
    resourceGroup: "rg-shop",
    properties: { fullyQualifiedDomainName },
  });
  const host = fullyQualifiedDomainName.split(":")[0];
  const value = `Host=${host};Username=shop_a;Password=${passwords[0]};Database=postgres`;
  control.putSecret("kv-shop", { name: "database", value });
  control.putSecret("kv-shop", { name: "password", value: passwords[0] });
  await service.scan();
  registration = { serverId, database: "postgres", users: created.users, signInAs: SERVICE_USER, places: [SECRET] };
}, 120_000);
afterAll(async () => {
  await service?.stop();
  await postgres?.stop();
  storageClock.remove();
});

const register = (body: object = {}) => http.admin("POST", BASE, { ...registration, ...body });
const storedLogin = () => service.cloud.control.secretValue("kv-shop", "database") ?? "";

test("the servers whose logins can be registered are listed", async () => {
  const { items } = (await http.admin("GET", "/api/automation/rotation/database-servers")).body;
  const { serverId } = registration;
  const named = { name: "psql-shop", resourceGroup: "rg-shop", subscriptionId: SUBSCRIPTION, kind: "postgresqlLogin" };
  expect(items).toEqual([{ serverId, ...named }]);
});

test("the kinds of issuers say whether the service's identity can read the servers", async () => {
  const { items } = (await http.admin("GET", "/api/automation/rotation/issuers?check=true")).body;
  const { kinds } = items.find(({ kind }: { kind: string }) => kind === "databaseLogin");
  expect(kinds.map(({ name, permissions }: { name: string; permissions: object }) => [name, permissions])).toEqual([
    ["postgresqlLogin", { scopes: [`/subscriptions/${SUBSCRIPTION}`], missing: [] }],
  ]);
});

test("a dry run of a registration says what is missing, and registers nothing", async () => {
  const plain = await register({ places: [SECRET, "kv-shop.secret.password"], dryRun: true });
  expect([plain.status, plain.body.missing]).toEqual([
    200,
    [expect.stringContaining("kv-shop/password names no database user")],
  ]);
  const token = await service.signIn(ADMIN);
  const headers = { "Idempotency-Key": randomUUID() };
  for (const _ of ["a request", "its repeat"]) {
    const complete = await service.call("POST", BASE, { token, headers, body: { ...registration, dryRun: true } });
    expect([complete.status, complete.body.missing, complete.body.credentialId]).toEqual([200, [], null]);
  }
  expect((await http.admin("GET", BASE)).body.items).toEqual([]);
});

test("a registration that lacks something, or names another resource, is rejected", async () => {
  expect((await register({ places: ["kv-shop.secret.password"] })).status).toBe(409);
  const storage = `/subscriptions/${SUBSCRIPTION}/resourceGroups/rg-shop/providers/Microsoft.Storage/storageAccounts/one`;
  expect((await register({ serverId: storage })).status).toBe(400);
  const { serverId } = registration as { serverId: string };
  const elsewhere = serverId.replace(SUBSCRIPTION, "22222222-2222-4222-8222-222222222222");
  expect((await register({ serverId: elsewhere })).status).toBe(400);
  expect((await register({ users: ["shop_a", "shop_a"] })).status).toBe(400);
  for (const name of ["postgres\0options\0-csearch_path=public", "two\nlines"])
    for (const member of ["database", "signInAs"])
      expect((await register({ [member]: name })).status, member).toBe(400);
});

test("a registered login is listed, rotated, and forgotten", async () => {
  const registered = await register();
  expect(registered.status, registered.text).toBe(201);
  const { credentialId } = registered.body;
  expect(registered.headers.get("location")).toBe(`${BASE}/${credentialId}`);
  const [listed] = (await http.admin("GET", `${BASE}?kind=postgresqlLogin`)).body.items;
  expect(listed).toMatchObject({ issuer: "databaseLogin", resourceName: "psql-shop", keyInUse: "shop_a" });
  expect((await register()).status).toBe(409);

  const path = `${BASE}/${credentialId}`;
  const plan = await http.admin("POST", `${path}/rotate`, { dryRun: true });
  expect([plan.status, plan.body.needs, plan.body.oldKeyId]).toEqual([200, [], "shop_a"]);
  expect(plan.body.plan.find(({ step }: { step: string }) => step === "create").text).toContain("Give shop_b");
  expect((await http.admin("POST", `${path}/rotate`, { targets: ["kv-shop.secret.password"] })).status).toBe(400);

  const byAsset = await http.admin("POST", `/api/assets/dependencies/rotate/${SECRET}`, { dryRun: true });
  expect([byAsset.status, byAsset.body.needs, byAsset.body.oldKeyId]).toEqual([200, [], "shop_a"]);

  const started = await http.admin("POST", `${path}/rotate`, { overlapDays: 1 });
  expect(started.status, started.text).toBe(201);
  expect((await http.admin("GET", path)).body.rotationId).toBe(started.body.rotationId);
  expect((await http.admin("DELETE", path)).status).toBe(409);
  const done = await http.waitUntil(started.body.rotationId, ({ endedAt }) => endedAt !== null);
  expect([done.status, done.newKeyId]).toEqual(["completed", "shop_b"]);
  const password = /Username=shop_b;Password=(\w+);Database=postgres$/.exec(storedLogin())?.[1] ?? "";
  expect(await postgres.accepts("shop_b", password)).toBe(true);
  expect(await postgres.accepts("shop_a", passwords[0])).toBe(false);
  const history = await http.admin("GET", `/api/automation/rotation/history?credentialId=${credentialId}`);
  expect(history.body.items.map(({ newKeyId }: { newKeyId: string }) => newKeyId)).toEqual(["shop_b"]);
  const answers = JSON.stringify([done, (await http.admin("GET", "/api/audit?limit=200")).body]);
  for (const secret of [password, ...passwords]) expect(answers).not.toContain(secret);

  expect((await http.admin("DELETE", path)).body).toEqual({ deleted: true });
  expect((await http.admin("GET", path)).status).toBe(404);
  expect(await postgres.accepts("shop_b", password)).toBe(true);
});
