import type { CompanyResource } from "simulated-cloud/company/resources.ts";
import { guidFrom } from "simulated-cloud/vaults/identifiers.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";
import { createUsers, makeToken } from "../support/users.ts";

// The endpoints of dependencies, with a running service and the simulated cloud.

/** Returns a Key Vault reference to a secret of kv-shop. */
const referenceTo = (secret: string): string => `@Microsoft.KeyVault(VaultName=kv-shop;SecretName=${secret})`;
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
/** The value of a setting, which no response may contain. */
const PLANTED = "a-setting-that-nobody-may-see";

let service: Service;
/** URL of a second host of the same service, without a license. */
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
            app("app-orders", { DB: referenceTo("db"), SECRET: PLANTED }, { tags: { env: "prod" } }),
            app("app-batch", {
              DB: "@Microsoft.KeyVault(SecretUri={uri:kv-shop}/secrets/db/{version:kv-shop/secrets/db})",
            }),
            app("app-broken", { SMTP: referenceTo("smtp"), LOST: referenceTo("lost") }),
            app("app-brochure", { HELP: "https://docs.acme.example/vault/secrets/how-to" }),
            app("app-sealed", { DB: referenceTo("db") }, { denied: true }),
          ],
        },
      ],
    },
    env: { LICENSE_KEY: await licence(), LOG_ANALYTICS_WORKSPACE_IDS: WORKSPACE, DEPENDENCY_LITERAL_SCAN: "true" },
  });
  service.cloud.control.logs.addEvent("law-former", {
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

test("before the first run, the coverage lists that nothing was read", async () => {
  const { status, body } = await get("");
  expect([status, body.total, body.coverage.items[0].code]).toEqual([200, 0, "neverRead"]);
  expect((await get("/blast-radius/kv-shop.secret.db")).body).toMatchObject({ score: 0, coverage: { total: 1 } });
});

/** Waits for the end of a run and returns the run. The request that starts a run waits for at most 20 seconds. */
async function waitForEnd(runId: string) {
  const readRun = async () => (await service.admin("GET", `${BASE}/runs/${runId}`)).body;
  await vi.waitUntil(async () => (await readRun()).finishedAt !== null, { timeout: 150_000, interval: 200 });
  return await readRun();
}

test("the results of a discovery run appear in lists, coverage, violations and the audit log", async () => {
  const started = await service.admin("POST", `${BASE}/discover`);
  expect([started.status, started.body]).toMatchObject([201, { mode: "full", failures: [] }]);
  const location = started.headers.get("location")!;
  expect(location).toBe(`${BASE}/runs/${started.body.runId}`);
  const run = await waitForEnd(started.body.runId);
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
  const allPages = await service.listAll(`${BASE}?vault=kv-shop`);
  expect(allPages.length).toBe((await get("?vault=KV-Shop")).body.total);
  const { body: coverage } = await get("/coverage");
  // Two sources can't read the app: the one for references, and the one that compares settings with secret values.
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

test("the blast radius lists the consumers of a secret and the effect of a rotation on each", async () => {
  const { body } = await get("/blast-radius/KV-Shop.Secret.DB");
  expect(body).toMatchObject({ secret: "kv-shop.secret.db", more: false, leftOut: 0, coverage: { total: 2 } });
  expect(body).toMatchObject({ incomplete: true, incompleteReason: "notAllSearched" });
  expect(body.score).toBeGreaterThan(0);
  const uses = body.consumers.filter((one: { strength: string }) => one.strength === "references");
  expect(uses.map((one: { resource: { name: string }; effect: string }) => [one.resource.name, one.effect])).toEqual([
    ["app-batch", expect.stringContaining("pinned to version")],
    ["app-orders", expect.stringContaining("after an update or restart")],
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

test("readers found in vault logs are listed with the versions that they read", async () => {
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

test("a rotation is rejected before it writes anything if a setting contains a copy of the secret", async () => {
  const path = `${BASE}/rotate/kv-shop.secret.copied`;
  const body = { newValue: "another-value-that-nobody-may-see" };
  const rejected = await service.admin("POST", path, body);
  expect([rejected.status, rejected.body.code]).toEqual([409, "willBreak"]);
  expect(rejected.body.detail).toContain("webApp app-orders (appsettings/SECRET)");
  expect(rejected.text).not.toContain(PLANTED);
  expect(service.cloud.control.secretValue("kv-shop", "copied")).toBe(PLANTED);
});

test.each(["kind=x", "resolved=1", "assetId=x", "vault=", "limit=0", "cursor=x", "unknown=1", "offset=1&cursor=e30"])(
  "a list with the invalid query %s returns 400",
  async (query) => {
    expect((await get(`?${query}`)).status).toBe(400);
  },
);

test("operators can start runs, users can only read, and without a license only runs can be read", async () => {
  const password = "a long enough passphrase";
  await createUsers(service, [
    { username: "reader", password, role: "user" },
    { username: "operator", password, role: "operator" },
  ]);
  const reader = await makeToken(service, "reader");
  const operator = await makeToken(service, "operator");
  expect((await service.call("POST", `${BASE}/discover`, { token: reader })).status).toBe(403);
  expect((await service.call("GET", BASE, { token: reader })).status).toBe(200);
  const started = await service.call("POST", `${BASE}/discover`, { token: operator });
  expect(started.status).toBe(201);
  const run = await waitForEnd(started.body.runId);
  expect(run).toMatchObject({ status: "completed", changed: 0 });
  const call = (method: string, path: string) => service.call(method, unlicensed + path, { token: operator });
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
