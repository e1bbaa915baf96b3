import type { CompanyResource } from "simulated-cloud/company/resources.ts";
import { guidFrom } from "simulated-cloud/vaults/identifiers.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";
import { createUsers, makeToken } from "../support/users.ts";

const named = (secret: string): string => `@Microsoft.KeyVault(VaultName=kv-shop;SecretName=${secret})`;
const app = (name: string, settings: Record<string, string>, more: Partial<CompanyResource> = {}): CompanyResource => ({
  type: "Microsoft.Web/sites",
  name,
  kind: "app,linux",
  identity: { system: true },
  properties: { state: "Running", enabled: true, keyVaultReferenceIdentity: "SystemAssigned" },
  settings,
  ...more,
});
const WORKSPACE = guidFrom("workspace law-former");
const READER = "33333333-3333-4333-8333-333333333333";
const PLANTED = "a-setting-that-nobody-may-see";

/** A host that has a licence, and one that has none. */
let service: Service;
let unlicensed: string;
beforeAll(async () => {
  service = await Service.start({
    company: {
      subscriptions: [
        {
          name: "Shop",
          vaults: [
            {
              name: "kv-shop",
              secrets: [
                { name: "db", expiresInDays: 400 },
                { name: "smtp", expiresInDays: 3 },
                { name: "unused" },
                { name: "copied", value: PLANTED },
              ],
            },
          ],
          resources: [
            app("app-orders", { DB: named("db"), SECRET: PLANTED }, { tags: { env: "prod" } }),
            app("app-batch", {
              DB: "@Microsoft.KeyVault(SecretUri={uri:kv-shop}/secrets/db/{version:kv-shop/secrets/db})",
            }),
            app("app-broken", { SMTP: named("smtp"), LOST: named("lost") }),
            app("app-brochure", { HELP: "https://docs.acme.example/vault/secrets/how-to" }),
            app("app-sealed", { DB: named("db") }, { denied: true }),
          ],
        },
      ],
    },
    env: { LICENSE_KEY: await licence(), LOG_ANALYTICS_WORKSPACE_IDS: WORKSPACE, DEPENDENCY_LITERAL_SCAN: "true" },
  });
  service.cloud.control.logs.plant("law-former", {
    table: "AzureDiagnostics",
    at: Date.now() - 60_000,
    operation: "SecretGet",
    vaultId: service.cloud.control.vaultId("kv-shop")!,
    id: `https://kv-shop.vault.localhost:1/secrets/smtp/${"a".repeat(32)}`,
    requestUri: "",
    status: 200,
    objectId: READER,
    appId: READER,
    userName: "ada@acme.example",
  });
  ({ url: unlicensed } = await service.addHost({ LICENSE_KEY: "" }));
  await service.scan({ mode: "full" });
});
afterAll(() => service?.stop());

const BASE = "/api/assets/dependencies";
const get = async (path: string) => await service.admin("GET", `${BASE}${path}`);

test("before the first reading the coverage says that nothing was read", async () => {
  const { status, body } = await get("");
  expect([status, body.total, body.coverage.items[0].code]).toEqual([200, 0, "neverRead"]);
  expect((await get("/blast-radius/kv-shop.secret.db")).body).toMatchObject({ score: 0, coverage: { total: 1 } });
});

/** Returns a run after its end. The request that starts it waits for at most 20 seconds. */
async function ended(runId: string) {
  const find = async () => (await service.admin("GET", `${BASE}/runs/${runId}`)).body;
  await vi.waitUntil(async () => (await find()).finishedAt !== null, { timeout: 150_000, interval: 200 });
  return await find();
}

test("a reading is asked for, followed, and found in lists, coverage, violations and the audit log", async () => {
  const started = await service.admin("POST", `${BASE}/discover`);
  expect([started.status, started.body]).toMatchObject([201, { mode: "full", failures: [] }]);
  const location = started.headers.get("location")!;
  expect(location).toBe(`${BASE}/runs/${started.body.runId}`);
  const run = await ended(started.body.runId);
  expect(run).toMatchObject({ status: "completed", unitsFailed: 0, failures: [] });
  // If the run ends within 20 seconds the response has its end.
  if (started.body.finishedAt !== null) expect(run).toEqual(started.body);

  const { body: list } = await get("?strength=references");
  const reported = list.items.map(
    // biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
    (one: any) => `${one.secret} ${one.resource.name} ${one.pinned ? "pinned" : ""} ${one.state?.status}`,
  );
  expect(reported.sort()).toEqual([
    "kv-shop.secret.copied app-orders  undefined",
    "kv-shop.secret.db app-batch pinned Resolved",
    "kv-shop.secret.db app-orders  Resolved",
    "kv-shop.secret.lost app-broken  SecretNotFound",
    "kv-shop.secret.smtp app-broken  Resolved",
  ]);
  expect((await get("?assetId=kv-shop.secret.db&pinned=true")).body.total).toBe(1);
  expect((await get("?resolved=false")).body.items).toMatchObject([{ name: "lost" }]);
  expect((await get("?environment=PROD&kind=webApp&secret=db")).body.items).toMatchObject([
    { resource: { name: "app-orders" } },
  ]);
  const walked = await service.all(`${BASE}?vault=kv-shop`);
  expect(walked.length).toBe((await get("?vault=KV-Shop")).body.total);
  const { body: coverage } = await get("/coverage");
  expect(coverage.items.map(({ scope }: { scope: string }) => scope.split("/").at(-1))).toEqual([
    "app-sealed",
    "app-sealed",
  ]);
  expect(list.coverage).toMatchObject({ total: 2, items: coverage.items });
  for (const { text } of [await get(""), await get("/coverage")]) expect(text).not.toContain(PLANTED);

  const { body: entries } = await service.admin("GET", "/audit/entries?event_type=dependencies.discovered");
  expect(entries.items).toMatchObject([{ outcome: "success", target: { id: started.body.runId } }]);
  await expect
    .poll(
      async () => {
        const { body } = await service.admin("GET", "/compliance/violations");
        const found = body.items.filter((one: { checkId: string }) => one.checkId.endsWith("reference-resolved"));
        return found.map((one: { resourceId: string; evidence: string }) => `${one.resourceId}: ${one.evidence}`);
      },
      { timeout: 150_000 },
    )
    .toEqual([
      expect.stringMatching(/^kv-shop: 1 reference does not resolve: app-broken \(webApp\), .*LOST: SecretNot/),
    ]);
});

test("the blast radius says what a rotation would touch", async () => {
  const { body } = await get("/blast-radius/KV-Shop.Secret.DB");
  expect(body).toMatchObject({ secret: "kv-shop.secret.db", more: false, leftOut: 0, coverage: { total: 2 } });
  expect(body.score).toBeGreaterThan(0);
  const uses = body.consumers.filter((one: { strength: string }) => one.strength === "references");
  expect(uses.map((one: { resource: { name: string }; effect: string }) => [one.resource.name, one.effect])).toEqual([
    ["app-batch", expect.stringContaining("Pinned to version")],
    ["app-orders", expect.stringContaining("after a trigger")],
  ]);
  expect(body.nodes.map(({ id }: { id: string }) => id)).toContain(uses[0].resource.id);
  expect(body.edges).toContainEqual({
    from: uses[0].resource.id,
    to: "kv-shop.secret.db",
    strength: "references",
    refresh: "willBreak",
  });
  expect(body.byKind.webApp).toBe(2);
  const unused = (await get("/blast-radius/kv-shop.secret.unused")).body;
  expect(unused.consumers.filter((one: { strength: string }) => one.strength !== "entitled")).toEqual([]);
  expect(unused.score).toBeLessThan(body.score);
  expect((await get("/blast-radius/kv-shop.secret.lost")).status).toBe(404);
  expect((await get("/blast-radius/no-id")).status).toBe(404);
});

test("who was seen to read an asset shows with the versions, and among the dependencies", async () => {
  const { status, body } = await get("/usage/KV-Shop.secret.SMTP");
  expect(status).toBe(200);
  const reader = { id: READER, name: "ada@acme.example", kind: "person", operations: ["SecretGet"], reads: 1 };
  const lastReadAt = body.lastReadAt;
  expect(body).toMatchObject({
    secret: "kv-shop.secret.smtp",
    readers: [{ ...reader, lastReadAt, versions: [{ version: "a".repeat(32), lastReadAt }] }],
    lastSignInAt: null,
    logs: [{ workspaceId: WORKSPACE, failure: null, vaultSince: expect.any(String) }],
  });
  expect((await get("?strength=observed")).body.items).toMatchObject([
    { secret: "kv-shop.secret.smtp", resource: { kind: "principal", name: "ada@acme.example" }, evidence: "SecretGet" },
  ]);
  expect((await get("/usage/kv-shop.secret.db")).body).toMatchObject({ lastReadAt: null, readers: [] });
  expect((await get("/usage/kv-shop.secret.lost")).status).toBe(404);
  expect((await get("/usage/no-id")).status).toBe(404);
});

test("a rotation stops at a copy in a setting, before it writes anything", async () => {
  const path = `${BASE}/rotate/kv-shop.secret.copied`;
  const body = { newValue: "another-value-that-nobody-may-see" };
  const refused = await service.admin("POST", path, body);
  expect([refused.status, refused.body.code]).toEqual([409, "willBreak"]);
  expect(refused.body.detail).toContain("webApp app-orders (appsettings/SECRET)");
  expect(refused.text).not.toContain(PLANTED);
  expect(service.cloud.control.secretValue("kv-shop", "copied")).toBe(PLANTED);
});

test.each(["kind=x", "resolved=1", "assetId=x", "vault=", "limit=0", "cursor=x", "unknown=1", "offset=1&cursor=e30"])(
  "a list with %s is refused",
  async (query) => {
    expect((await get(`?${query}`)).status).toBe(400);
  },
);

test("operators begin readings, users look; without a licence only runs are shown", async () => {
  const password = "a long enough passphrase";
  await createUsers(service, [
    { username: "reader", password, role: "user" },
    { username: "keeper", password, role: "operator" },
  ]);
  const reader = await makeToken(service, "reader");
  const keeper = await makeToken(service, "keeper");
  expect((await service.call("POST", `${BASE}/discover`, { token: reader })).status).toBe(403);
  expect((await service.call("GET", BASE, { token: reader })).status).toBe(200);
  const again = await service.call("POST", `${BASE}/discover`, { token: keeper });
  expect(again.status).toBe(201);
  const run = await ended(again.body.runId);
  expect(run).toMatchObject({ status: "completed", changed: 0 });
  const call = (method: string, path: string) => service.call(method, unlicensed + path, { token: keeper });
  for (const [method, path] of [
    ["POST", `${BASE}/discover`],
    ["GET", BASE],
    ["GET", `${BASE}/coverage`],
    ["GET", `${BASE}/blast-radius/kv-shop.secret.db`],
    ["GET", `${BASE}/usage/kv-shop.secret.db`],
  ] as const)
    expect([path, (await call(method, path)).body.code]).toEqual([path, "licenseRequired"]);
  expect((await call("GET", `${BASE}/runs/${run.runId}`)).body).toEqual(run);
});
