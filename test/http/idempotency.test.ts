import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, expect, test } from "vitest";
import { declarations } from "../../functions/functions.ts";
import { acceptsKey } from "../../shared/platform/http/endpoint.ts";
import { licence } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";
import { createUsers } from "../support/users.ts";

// Tests of `Idempotency-Key` over HTTP: a repeat takes no further effect and returns the resource as it is then.

let service: Service;
let token: string;
let keyCount = 0;
beforeAll(async () => {
  const names = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
  const company = { subscriptions: [{ name: "Shop", vaults: names.map((name) => ({ name: `kv-${name}` })) }] };
  service = await Service.start({ company, tableProxy: true, env: { LICENSE_KEY: await licence() } });
  token = await service.signIn(ADMIN);
  // An exemption names a vault that was evaluated.
  await service.scan();
});
afterAll(() => service?.stop());

const newKey = () => `key-${++keyCount}`;
const inDays = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString().slice(0, 10);
const exemption = (id: string) => ({
  checkId: "secret-expired",
  scope: { type: "vault", id },
  category: "waiver",
  reason: "Accepted until the migration is over.",
  until: inDays(30),
});
const PATH = "/compliance/exemptions";
const create = (key: string, body: object, as = token) =>
  service.call("POST", PATH, { token: as, body, headers: { "Idempotency-Key": key } });
const exemptionsOf = async (vault: string) =>
  (await service.listAll(PATH)).filter(({ scope }: { scope: { id: string } }) => scope.id === vault);

test("a repeat with the same key returns the resource of the first request, and takes no further effect", async () => {
  const key = newKey();
  const first = await create(key, exemption("kv-one"));
  expect([first.status, first.headers.get("idempotency-replayed")], first.text).toEqual([201, null]);
  const repeat = await create(key, exemption("kv-one"));
  expect([repeat.status, repeat.headers.get("idempotency-replayed")]).toEqual([201, "true"]);
  for (const name of ["location", "etag"]) {
    expect(first.headers.get(name), name).toBeTruthy();
    expect(repeat.headers.get(name), name).toBe(first.headers.get(name));
  }
  expect(repeat.body).toEqual(first.body);
  expect(await exemptionsOf("kv-one")).toHaveLength(1);
  // Without the key the same request is a second one.
  expect((await service.admin("POST", PATH, exemption("kv-one"))).status).toBe(409);
  // The answer is not stored: the resource is read again.
  expect((await service.admin("DELETE", `${PATH}/${first.body.id}`)).status).toBe(200);
  const gone = await create(key, exemption("kv-one"));
  expect([gone.status, gone.body.code]).toEqual([404, "notFound"]);
});

test("a key that was used for another body is rejected, and other callers have keys of their own", async () => {
  const key = newKey();
  expect((await create(key, exemption("kv-two"))).status).toBe(201);
  const other = await create(key, exemption("kv-three"));
  expect([other.status, other.body.code]).toEqual([422, "idempotencyKeyReused"]);
  expect(await exemptionsOf("kv-three")).toEqual([]);
  const user = { username: "another", password: "a password of another one", role: "admin" } as const;
  await createUsers(service, [user]);
  const others = await create(key, exemption("kv-three"), await service.signIn(user));
  expect([others.status, others.headers.get("idempotency-replayed")]).toEqual([201, null]);
});

test("one of several simultaneous requests with the same key takes effect", async () => {
  const key = newKey();
  const answers = await Promise.all(Array.from({ length: 6 }, () => create(key, exemption("kv-four"))));
  for (const { status, body, headers } of answers) {
    expect([201, 409]).toContain(status);
    if (status === 409) expect([body.code, headers.get("retry-after")]).toEqual(["requestInProgress", "5"]);
  }
  expect(answers.filter(({ status, headers }) => status === 201 && !headers.has("idempotency-replayed"))).toHaveLength(
    1,
  );
  expect(await exemptionsOf("kv-four")).toHaveLength(1);
});

test("a rejected request leaves its key free", async () => {
  const key = newKey();
  const { body: existing } = await service.admin("POST", PATH, exemption("kv-five"));
  expect((await create(key, exemption("kv-five"))).body.code).toBe("alreadyExists");
  await service.admin("DELETE", `${PATH}/${existing.id}`);
  const again = await create(key, exemption("kv-five"));
  expect([again.status, again.headers.get("idempotency-replayed")]).toEqual([201, null]);
  for (const malformed of ["x".repeat(256), "two words"]) {
    const { status, body } = await create(malformed, exemption("kv-six"));
    expect([status, body.code], malformed).toEqual([400, "invalidRequest"]);
  }
});

test("a request whose result could not be stored takes effect once, and a repeat is answered as in progress", async () => {
  const key = newKey();
  // The first write of the row is a POST, which reserves the key. The second one stores the result, and fails here.
  service.tables.fail(
    Array<"InvalidInputInside">(50).fill("InvalidInputInside"),
    ({ path, method }) => path.startsWith("IdempotencyKeys") && method !== "GET" && method !== "POST",
  );
  const first = await create(key, exemption("kv-seven"));
  expect(first.status).toBe(201);
  service.tables.removeFaults();
  const repeat = await create(key, exemption("kv-seven"));
  expect([repeat.status, repeat.body.code]).toEqual([409, "requestInProgress"]);
  expect(await exemptionsOf("kv-seven")).toHaveLength(1);
});

test("a row that was changed outside of the service is rejected, and no resource is returned", async () => {
  const [mine, foreign] = [newKey(), newKey()];
  const [{ body: first }, { body: other }] = [
    await create(mine, exemption("kv-eight")),
    await create(foreign, exemption("kv-nine")),
  ];
  const table = TableClient.fromConnectionString(service.azurite.connectionString(), "IdempotencyKeys", {
    allowInsecureConnection: true,
  });
  for await (const row of table.listEntities<Record<string, unknown>>()) {
    if (row.resourceId === first.id) await table.updateEntity({ ...row, resourceId: other.id } as never, "Merge");
  }
  const repeat = await create(mine, exemption("kv-eight"));
  expect([repeat.status, repeat.body.code]).toEqual([503, "rowUnreadable"]);
});

test("no row has a text of a request or of an answer", async () => {
  const table = TableClient.fromConnectionString(service.azurite.connectionString(), "IdempotencyKeys", {
    allowInsecureConnection: true,
  });
  const { body } = await create(newKey(), { ...exemption("kv-ten"), reason: "A reason that no such row repeats." });
  const rows: unknown[] = [];
  for await (const row of table.listEntities()) rows.push(row);
  const text = JSON.stringify(rows);
  expect(text).toContain(body.id);
  for (const absent of [body.reason, exemption("").reason, `key-${keyCount}`]) expect(text).not.toContain(absent);
});

test("a repeat of a snooze with filters creates no second snooze, and works after the snooze ended", async () => {
  const key = newKey();
  const body = { filters: { vault: "kv-one" }, reason: "The vault is being replaced.", until: inDays(3) };
  const snooze = () => service.call("POST", "/alerts/snoozes", { token, body, headers: { "Idempotency-Key": key } });
  const first = await snooze();
  expect(first.status, first.text).toBe(201);
  expect((await snooze()).body).toEqual(first.body);
  expect(await service.listAll("/alerts/snoozes")).toHaveLength(1);
  // Without the key the same request is a second one.
  expect((await service.admin("POST", "/alerts/snoozes", body)).body.id).not.toBe(first.body.id);
  expect((await service.admin("DELETE", `/alerts/snoozes/${first.body.id}`)).status).toBe(200);
  const ended = await snooze();
  expect([ended.status, ended.body.id, ended.headers.get("idempotency-replayed")]).toEqual([
    201,
    first.body.id,
    "true",
  ]);
});

test("a repeat of an added subscription returns the subscription, not that it already exists", async () => {
  const key = newKey();
  const body = { subscriptionId: "6d0f2b1c-3f6e-4c0e-9a55-0d9a8f6c7b21", name: "Another" };
  const add = () => service.call("POST", "/subscriptions", { token, body, headers: { "Idempotency-Key": key } });
  const first = await add();
  const repeat = await add();
  expect([first.status, repeat.status, repeat.headers.get("idempotency-replayed")]).toEqual([201, 201, "true"]);
  expect(repeat.body).toEqual(first.body);
});

/** Requests that a repeat would send a message for, or whose answer shows a secret once. All of `/auth` rejects keys too. */
const REJECTING = [
  "/alerts/rules",
  "/alerts/rules/{rule_id}/rotate-secret",
  "/alerts/rules/{rule_id}/test",
  "/audit/streams",
  "/audit/streams/{stream_id}/rotate-secret",
  "/audit/streams/{stream_id}/test",
];

test("only sign-ins and answers with a secret or a message reject a key, and they do before anything happens", async () => {
  const { body: document } = await service.call("GET", "/openapi.json");
  const posts = (await declarations()).endpoints.filter(
    ({ method, undocumented }) => method === "POST" && !undocumented,
  );
  const rejecting = posts.filter((endpoint) => !acceptsKey(endpoint)).map(({ route }) => `/${route}`);
  expect(rejecting.filter((path) => !path.startsWith("/auth/")).sort()).toEqual(REJECTING);
  expect(posts.filter((endpoint) => endpoint.route.startsWith("auth/") && acceptsKey(endpoint))).toEqual([]);
  for (const path of rejecting) {
    const answer = await service.call("POST", path.replace(/\{\w+\}/g, "x"), {
      token,
      body: {},
      headers: { "Idempotency-Key": newKey() },
    });
    expect([answer.status, answer.body.code], path).toEqual([400, "idempotencyKeyNotAccepted"]);
  }
  // Where a repeat is answered from the resource, the document names the header.
  const named = (path: string) =>
    JSON.stringify(document.paths[path].post.parameters ?? []).includes("Idempotency-Key");
  for (const { route, repeat } of posts) expect(named(`/${route}`), route).toBe(repeat !== undefined);
});

test("a request that only reads accepts a key, and runs again", async () => {
  const key = newKey();
  const rule = { name: "Preview", alertType: "expiration", thresholdDays: 30, deliveryMethod: "email" };
  const body = { ...rule, deliveryMode: "digest", recipients: ["platform@acme.example"] };
  const preview = (given: object) =>
    service.call("POST", "/alerts/preview", { token, body: given, headers: { "Idempotency-Key": key } });
  for (const given of [body, { ...body, thresholdDays: 60 }]) {
    const { status, headers, text } = await preview(given);
    expect([status, headers.get("idempotency-replayed")], text).toEqual([200, null]);
  }
});
