import { readFileSync } from "node:fs";
import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { CALLS } from "../../shared/doctor/calls.ts";
import { licence } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";
import { createUsers } from "../support/users.ts";

// Tests of matches (vault secrets that may store a client secret), policies, issuers and asset rotations over HTTP.

const VAULT = "kv-shop";
const [appId, keyId] = [appIdOf("Shop API"), keyIdOf("Shop API", "current")];
const value = secretValueOf("Shop API", "current");
const BASE = `/api/automation/rotation/apps/${appId}`;

const ISSUERS = "/api/automation/rotation/issuers";
const USER = { username: "uma", password: "quiet-library-window", role: "user" as const };

const [OLD_VALUE, NEW_VALUE] = ["value-of-shop-db", "value-that-somebody-gave"];
const webAppWithReference = (name: string, reference: string) => ({
  type: "Microsoft.Web/sites",
  name,
  kind: "app",
  identity: { system: true },
  settings: { DB: `@Microsoft.KeyVault(VaultName=${VAULT};${reference})` },
});

let service: Service;
let unlicensedUrl: string;
beforeAll(async () => {
  const secrets = [
    { name: "shop-api-client-secret", value, contentType: `shop:${appId}:${keyId}` },
    { name: "shop-api", value: "of something else", createdDaysAgo: 90 },
    { name: "db-main", value: OLD_VALUE, createdDaysAgo: 90 },
    { name: "db-pinned", value: OLD_VALUE, createdDaysAgo: 90 },
    { name: "other-client-secret", tags: { "entra-app-id": appIdOf("Other"), "entra-key-id": keyId } },
  ];
  service = await Service.start({
    company: {
      subscriptions: [
        {
          name: "Shop",
          vaults: [{ name: VAULT, secrets, keys: [{ name: "signing" }], certificates: [{ name: "web" }] }],
          resources: [
            webAppWithReference("web-good", `SecretName=db-main`),
            webAppWithReference("web-pinned", `SecretName=db-pinned;SecretVersion=${"0".repeat(32)}`),
          ],
        },
      ],
      applications: [
        { name: "Shop API", secrets: [{ name: "current", expiresInDays: 20 }] },
        { name: "Unmatched", secrets: [{ name: "current", expiresInDays: 300 }] },
      ],
    },
    env: { LICENSE_KEY: await licence() },
  });
  ({ url: unlicensedUrl } = await service.addHost({ LICENSE_KEY: "" }));
  await service.scan();
  await service.admin("POST", "/api/automation/rotation/discover");
  await fetch(`${service.url}/admin/functions/indexRotationMatches`, { method: "POST", body: "{}" });
  await vi.waitFor(async () => expect((await service.admin("GET", `${BASE}/matches`)).body.coverage).toEqual([]), {
    timeout: 150_000,
    interval: 200,
  });
});
afterAll(() => service?.stop());

const VERIFY = `${BASE}/matches/verify`;
const CONFIRM = `${BASE}/matches/confirm`;

test("matches can be listed, verified and confirmed without exposing the value", async () => {
  const { body: list } = await service.admin("GET", `${BASE}/matches`);
  expect(list).toMatchObject({ total: 2, coverage: [], nextCursor: null });
  expect(list.items).toMatchObject([
    { secretName: "shop-api-client-secret", confidence: "certain", keyId, verified: "none", version: null },
    { secretName: "shop-api", confidence: "possible", evidence: ["name"] },
  ]);
  const first = await service.admin("GET", `${BASE}/matches?limit=1`);
  const second = await service.admin("GET", `${BASE}/matches?limit=1&cursor=${first.body.nextCursor}`);
  expect([...first.body.items, ...second.body.items]).toEqual(list.items);
  const proved = await service.admin("POST", VERIFY, { assetId: list.items[0].assetId });
  expect(proved.body).toMatchObject({ result: "accepted", match: { verified: "signIn" } });
  const other = await service.admin("POST", VERIFY, { assetId: list.items[1].assetId });
  expect(other.body).toMatchObject({ result: "otherHint", match: { verified: "none" } });
  const confirmed = await service.admin("POST", CONFIRM, { assetId: list.items[1].assetId });
  expect(confirmed.body.match).toMatchObject({ confidence: "certain", evidence: ["confirmed", "name"] });
  const withdrawn = await service.admin("POST", CONFIRM, { asset_id: list.items[1].assetId, confirmed: false });
  expect(withdrawn.body.match).toMatchObject({ confidence: "possible" });
  const entries = await service.admin("GET", "/audit/entries?limit=1000");
  const lines = JSON.stringify(service.hosts.map((host) => host.lines));
  for (const text of [proved.text, other.text, confirmed.text, entries.text, lines]) expect(text).not.toContain(value);
});

test.each<[what: string, method: string, path: string, body: object | undefined, status: number, code: string]>([
  ["an unknown application", "GET", BASE.replace(appId, appIdOf("Nobody")), undefined, 404, "notFound"],
  ["an invalid application ID", "GET", BASE.replace(appId, "x'y"), undefined, 400, "invalidRequest"],
])("a request for the matches of %s is rejected", async (_, method, path, body, status, code) => {
  const answer = await service.admin(method, `${path}/matches`, body);
  expect([answer.status, answer.body.code]).toEqual([status, code]);
});

test.each<[what: string, body: object, status: number, code: string]>([
  ["an unknown secret", { assetId: `${VAULT}.secret.none` }, 404, "notFound"],
  ["a key", { assetId: `${VAULT}.key.none` }, 404, "notFound"],
  ["a credential's id", { assetId: `entra.${appId}.${appId}.${keyId}` }, 404, "notFound"],
  ["the service's own vault", { assetId: "KV-Lifecycle-Service.secret.x" }, 409, "serviceVault"],
  ["a request with an unknown member", { assetId: `${VAULT}.secret.shop-api`, value: "x" }, 400, "invalidRequest"],
  ["a request without members", {}, 400, "invalidRequest"],
])("verification and confirmation are rejected for %s", async (_, body, status, code) => {
  for (const path of [VERIFY, CONFIRM]) {
    const answer = await service.admin("POST", path, body);
    expect([answer.status, answer.body.code]).toEqual([status, code]);
  }
});

test("the sixth verification of an application within a minute is rejected with 429", async () => {
  const answers = await Promise.all(
    Array.from({ length: 6 }, () => service.admin("POST", VERIFY, { assetId: `${VAULT}.secret.shop-api` })),
  );
  const refused = answers.filter(({ status }) => status === 429);
  expect(refused.length).toBeGreaterThan(0);
  for (const { body, headers } of refused) {
    expect(body.code).toBe("rateLimited");
    expect(Number(headers.get("retry-after"))).toBeLessThanOrEqual(60);
  }
});

test("confirmation of a credential that the application does not have is rejected", async () => {
  const answer = await service.admin("POST", CONFIRM, { assetId: `${VAULT}.secret.shop-api`, keyId: appId });
  expect([answer.status, answer.body.errors[0].path]).toEqual([400, "body.keyId"]);
});

test("a policy can be set, read, changed with its ETag and removed", async () => {
  expect((await service.admin("GET", `${BASE}/policy`)).status).toBe(404);
  const set = await service.admin("PUT", `${BASE}/policy`, {
    automatic: true,
    targets: [`${VAULT}.secret.shop-api-client-secret`],
  });
  expect([set.status, set.body]).toMatchObject([
    200,
    { automatic: true, overlapDays: 7, maintenanceWindow: null, state: "active", attention: null },
  ]);
  expect((await service.admin("GET", BASE)).body.policy).toMatchObject({ automatic: true, etag: set.body.etag });
  const token = await service.signIn(ADMIN);
  const stale = await service.call("PUT", `${BASE}/policy`, { token, body: {}, headers: { "If-Match": '"stale"' } });
  expect(stale.status).toBe(412);
  // 38 days are one too few: due 30 days before the expiry, 7 days of overlap, and one day to spare.
  for (const body of [{ expiryDays: 0 }, { overlapDays: 91 }, { targets: "x" }, { automatic: true, expiryDays: 38 }])
    expect((await service.admin("PUT", `${BASE}/policy`, body)).status).toBe(400);
  const maintenanceWindow = { days: ["friday"], from: "22:00", to: "04:00", timeZone: "Europe/Berlin" };
  const invalid = [
    { days: [] },
    { days: ["Fri"] },
    { from: "24:00" },
    { to: "22:59" },
    { timeZone: "Europe/Nowhere" },
    { timeZone: "+01:00" },
  ];
  for (const change of invalid) {
    const answer = await service.admin("PUT", `${BASE}/policy`, {
      maintenanceWindow: { ...maintenanceWindow, ...change },
    });
    expect([answer.status, answer.body.errors[0].path]).toEqual([
      400,
      expect.stringContaining(`body.maintenanceWindow.${Object.keys(change)[0]}`),
    ]);
  }
  await service.admin("PUT", `${BASE}/policy`, { maintenanceWindow });
  expect((await service.admin("GET", `${BASE}/policy`)).body).toMatchObject({ maintenanceWindow });
  const entries = (await service.admin("GET", "/audit/entries?limit=1000")).body.items;
  expect(entries.filter(({ after }: { after?: object }) => after && "maintenanceWindow" in after)).toContainEqual(
    expect.objectContaining({ after: expect.objectContaining({ maintenanceWindow }) }),
  );
  expect((await service.admin("DELETE", `${BASE}/policy`)).body).toEqual({ deleted: true });
});

const rotate = (name: string) => `/api/assets/dependencies/rotate/${name}`;

test.each<[what: string, id: string, body: object, status: number, code: string]>([
  ["an unknown asset", `${VAULT}.secret.none`, { newValue: NEW_VALUE }, 404, "notFound"],
  ["an invalid ID", "x'y", { newValue: NEW_VALUE }, 404, "notFound"],
  ["a key", `${VAULT}.key.signing`, { newValue: NEW_VALUE }, 409, "notRotatable"],
  ["a certificate", `${VAULT}.certificate.web`, { newValue: NEW_VALUE }, 409, "notRotatable"],
  ["a secret that backs a certificate", `${VAULT}.secret.web`, { newValue: NEW_VALUE }, 409, "notRotatable"],
  ["the service's own vault", "KV-Lifecycle-Service.secret.x", { newValue: NEW_VALUE }, 409, "serviceVault"],
  ["a secret without a value", `${VAULT}.secret.db-main`, {}, 400, "valueRequired"],
  [
    "a generated value without issuerAccepts",
    `${VAULT}.secret.db-main`,
    { generate: { length: 32, alphabet: "hex" } },
    400,
    "valueRequired",
  ],
  [
    "two values",
    `${VAULT}.secret.db-main`,
    { newValue: NEW_VALUE, generate: { length: 32, alphabet: "hex" }, issuerAccepts: true },
    400,
    "invalidRequest",
  ],
  [
    "a generated value of too few characters",
    `${VAULT}.secret.db-main`,
    { generate: { length: 8, alphabet: "hex" }, issuerAccepts: true },
    400,
    "invalidRequest",
  ],
  [
    "a request with an unknown member",
    `${VAULT}.secret.db-main`,
    { newValue: NEW_VALUE, also: 1 },
    400,
    "invalidRequest",
  ],
  ["a value that is too long", `${VAULT}.secret.db-main`, { newValue: "x".repeat(25_601) }, 400, "invalidRequest"],
  [
    "a secret with an included resource that does not use it",
    `${VAULT}.secret.db-main`,
    { newValue: NEW_VALUE, includeResources: ["x"] },
    400,
    "invalidRequest",
  ],
  [
    "a value for a client secret",
    `${VAULT}.secret.shop-api-client-secret`,
    { newValue: NEW_VALUE },
    400,
    "invalidRequest",
  ],
])("a rotation is rejected for %s", async (_, id, body, status, code) => {
  const answer = await service.admin("POST", rotate(id), body);
  expect([answer.status, answer.body.code]).toEqual([status, code]);
  expect(answer.text).not.toContain(NEW_VALUE);
});

/** The body that the service's specification sends: it has no member for the new value. */
const SPECIFIED_BODY = { includeResources: [], skipVerification: false, dryRun: true };

test("a dry run with the specification's own body answers the plan and what to send besides", async () => {
  const id = `${VAULT}.secret.db-main`;
  const plan = await service.admin("POST", rotate(id), SPECIFIED_BODY);
  expect(plan.status).toBe(200);
  expect(plan.body).toMatchObject({
    rotationId: null,
    assetId: id,
    targets: [{ vaultName: VAULT, secretName: "db-main", kind: "secret", state: "planned" }],
    needs: [{ code: "valueRequired", message: expect.stringContaining("newValue") }],
  });
  expect(plan.body.plan.map(({ step }: { step: string }) => step)).toEqual(["publish", "verify", "overlap", "cleanUp"]);
  const { send } = plan.body.needs[0];
  expect(send).toEqual([
    { newValue: null },
    { generate: { length: 32, alphabet: "alphanumeric" }, issuerAccepts: true },
  ]);
  // Without dryRun the problem document says the same.
  const { dryRun: _, ...body } = SPECIFIED_BODY;
  const refused = await service.admin("POST", rotate(id), body);
  expect([refused.status, refused.body.code, refused.body.send]).toEqual([400, "valueRequired", send]);
  // Each alternative is enough.
  for (const members of [{ newValue: NEW_VALUE }, send[1]]) {
    const complete = await service.admin("POST", rotate(id), { ...SPECIFIED_BODY, ...members });
    expect([complete.status, complete.body.needs]).toEqual([200, []]);
  }
  const unaccepted = await service.admin("POST", rotate(id), { ...SPECIFIED_BODY, generate: send[1].generate });
  expect(unaccepted.body.needs).toMatchObject([{ code: "valueRequired", send: [{ issuerAccepts: true }] }]);
  expect(service.cloud.control.secretValue(VAULT, "db-main")).toBe(OLD_VALUE);
});

test.each([
  ["a key", `${VAULT}.key.signing`, "notRotatable"],
  ["a certificate", `${VAULT}.certificate.web`, "notRotatable"],
  ["a secret that backs a certificate", `${VAULT}.secret.web`, "notRotatable"],
  ["the service's own vault", "KV-Lifecycle-Service.secret.x", "serviceVault"],
])("a dry run of %s answers why it can't be rotated", async (_, id, code) => {
  const plan = await service.admin("POST", rotate(id), SPECIFIED_BODY);
  expect(plan.status).toBe(200);
  expect(plan.body).toMatchObject({ assetId: id, plan: [], steps: [], needs: [{ code, send: [] }] });
});

test.each([
  ["an unknown asset", `${VAULT}.secret.none`, {}, 404],
  ["an invalid body", `${VAULT}.secret.db-main`, { includeResources: ["x"] }, 400],
])("a dry run of %s is rejected", async (_, id, body, status) => {
  expect((await service.admin("POST", rotate(id), { ...SPECIFIED_BODY, ...body })).status).toBe(status);
});

test("a dry run of a client secret without a certain match answers the plan and asks for a match", async () => {
  const body = { appId: appIdOf("Unmatched"), secretId: keyIdOf("Unmatched", "current"), dryRun: true };
  const plan = await service.admin("POST", "/api/automation/rotation/rotate", body);
  expect(plan.status).toBe(200);
  expect(plan.body).toMatchObject({ appName: "Unmatched", targets: [] });
  expect(plan.body.needs).toMatchObject([
    { code: "notRotatable", message: expect.stringContaining("Test or confirm a match") },
  ]);
  const publish = plan.body.plan.find(({ step }: { step: string }) => step === "publish");
  expect(publish.text).toContain("none is certain yet");
  const refused = await service.admin("POST", "/api/automation/rotation/rotate", { ...body, dryRun: false });
  expect([refused.status, refused.body.code]).toEqual([409, "notRotatable"]);
});

test("an asset is rotated with its consumers without exposing the value", async () => {
  const read = await service.admin("POST", "/api/assets/dependencies/discover");
  await vi.waitFor(
    async () => {
      const run = await service.admin("GET", `/api/assets/dependencies/runs/${read.body.runId}`);
      expect(run.body.status).toBe("completed");
    },
    { timeout: 150_000, interval: 300 },
  );
  // The pinned version does not exist, so the app can't break.
  const broken = await service.admin("POST", rotate(`${VAULT}.secret.db-pinned`), {
    newValue: NEW_VALUE,
    dryRun: true,
  });
  expect(broken.body.consumers).toMatchObject([
    { name: "web-pinned", how: "willBreak", brokenBefore: true, problem: expect.stringContaining("NotFound") },
  ]);
  const { consumers } = service.cloud.control;
  consumers.setSiteFault(consumers.idOf("web-pinned"), { statuses: { DB: "Resolved" } });
  const pinned = await service.admin("POST", rotate(`${VAULT}.secret.db-pinned`), { newValue: NEW_VALUE });
  expect([pinned.status, pinned.body.code]).toEqual([409, "willBreak"]);
  expect(pinned.body.resources[0]).toMatch(/web-pinned$/);
  const breaking = { newValue: NEW_VALUE, dryRun: true };
  const pinnedPlan = await service.admin("POST", rotate(`${VAULT}.secret.db-pinned`), breaking);
  expect([pinnedPlan.status, pinnedPlan.body.consumers]).toMatchObject([200, [{ name: "web-pinned" }]]);
  expect(pinnedPlan.body.needs).toMatchObject([{ code: "willBreak", send: [{ includeResources: [] }] }]);
  expect(pinned.body.send).toEqual(pinnedPlan.body.needs[0].send);
  const id = `${VAULT}.secret.db-main`;
  const plan = await service.admin("POST", rotate(id), { newValue: NEW_VALUE, dryRun: true });
  expect([plan.status, plan.body]).toMatchObject([
    200,
    { rotationId: null, assetId: id, appId: null, consumers: [{ name: "web-good", how: "action", state: "waiting" }] },
  ]);
  expect(service.cloud.control.secretValue(VAULT, "db-main")).toBe(OLD_VALUE);
  const started = await service.admin("POST", rotate(id), { new_value: NEW_VALUE });
  expect(started.status).toBe(201);
  const location = started.headers.get("location")!;
  let ended = await service.admin("GET", location);
  await vi.waitFor(
    async () => {
      ended = await service.admin("GET", location);
      expect(ended.body.status).toBe("completed");
    },
    { timeout: 150_000, interval: 500 },
  );
  expect(ended.body).toMatchObject({
    consumers: [{ state: "verified", holds: "new" }],
    verifiedMeans: expect.stringContaining("reports the new version"),
  });
  expect(service.cloud.control.secretValue(VAULT, "db-main")).toBe(NEW_VALUE);
  const history = await service.admin("GET", `/api/automation/rotation/history?assetId=${id}`);
  expect(history.body.items).toMatchObject([{ rotationId: started.body.rotationId, assetId: id }]);
  const credential = await service.admin("POST", rotate(`${VAULT}.secret.shop-api-client-secret`), { dryRun: true });
  expect(credential.body).toMatchObject({ appId, oldKeyId: keyId, assetId: null });
  const entries = await service.admin("GET", "/audit/entries?limit=1000");
  const lines = JSON.stringify(service.hosts.map((host) => host.lines));
  for (const text of [plan.text, started.text, ended.text, history.text, entries.text, lines]) {
    expect(text).not.toContain(NEW_VALUE);
    expect(text).not.toContain(OLD_VALUE);
  }
});

test("each kind of credential is listed with the permissions that its rotation needs", async () => {
  await createUsers(service, [USER]);
  const token = await service.signIn(USER);
  const { status, body } = await service.call("GET", ISSUERS, { token });
  expect([status, body.items.length]).toEqual([200, 3]);
  expect(body.items[0]).toMatchObject({
    kind: "clientSecret",
    title: "Client secret of an application",
    canHoldTwo: true,
    regenerates: false,
    permissions: ["Application.Read.All", "Application.ReadWrite.OwnedBy", "Policy.Read.ApplicationConfiguration"].map(
      (name) => ({ name, purpose: expect.any(String), optional: name.startsWith("Policy.") }),
    ),
  });
  expect(body.items[1]).toMatchObject({ kind: "resourceKey", canHoldTwo: true, regenerates: true });
  expect(body.items[1].permissions.map(({ name }: { name: string }) => name)).toContain(
    "Microsoft.Storage/storageAccounts/regeneratekey/action",
  );
  // The permission check and the documentation use the same names.
  const tested = CALLS.flatMap(({ permissions }) => permissions);
  const documented = readFileSync(new URL("../../docs/rotation.md", import.meta.url), "utf8");
  for (const { name } of body.items[0].permissions) {
    expect(tested).toContain(name);
    expect(documented).toContain(name);
  }
});

test("a check of the kinds says in which resource groups the identity may rotate keys, and which actions are missing", async () => {
  const { id } = service.cloud.control.subscriptions().find(({ name }) => name === "Shop")!;
  const subscription = `/subscriptions/${id}`;
  const shop = `${subscription}/resourceGroups/rg-shop`;
  const grantsOf = async () => {
    const { status, body } = await service.admin("GET", `${ISSUERS}?check=true`);
    expect(status).toBe(200);
    const kinds = body.items[1].kinds as { name: string; permissions: object | null }[];
    return { coverage: body.coverage, of: (kind: string) => kinds.find(({ name }) => name === kind)!.permissions };
  };
  const { body: unchecked } = await service.admin("GET", ISSUERS);
  expect(new Set(unchecked.items[1].kinds.map(({ permissions }: { permissions: unknown }) => permissions))).toEqual(
    new Set([null]),
  );
  const storage = ["read", "listkeys/action", "regeneratekey/action"].map(
    (action) => `Microsoft.Storage/storageAccounts/${action}`,
  );
  const reader = ["roleAssignments/read", "roleDefinitions/read"].map((action) => `Microsoft.Authorization/${action}`);
  const assign = (scope: string, actions: string[]) => ({ scope, actions, dataActions: [] });
  try {
    const inSubscription = assign(subscription, [...reader, "Microsoft.Cache/redis/read"]);
    service.cloud.control.allowOnly([
      inSubscription,
      assign(shop, [...storage, "Microsoft.Cache/redis/listKeys/action"]),
      assign(`${shop}/providers/Microsoft.Storage/storageAccounts/st`, storage),
    ]);
    const granted = await grantsOf();
    expect(granted.coverage).toEqual([]);
    expect(granted.of("storage")).toEqual({ scopes: [shop.toLowerCase()], missing: [] });
    expect(granted.of("redis")).toEqual({ scopes: [], missing: ["Microsoft.Cache/redis/regenerateKey/action"] });
    expect(granted.of("maps")).toMatchObject({
      scopes: [],
      missing: expect.arrayContaining(["Microsoft.Maps/accounts/read"]),
    });
    expect(granted.of("iotHub")).toBeNull();
    service.cloud.control.allowOnly([assign(subscription, storage)]);
    const unread = await grantsOf();
    expect([unread.coverage, unread.of("storage")]).toEqual([
      [expect.stringContaining(id)],
      { scopes: [], missing: storage },
    ]);
  } finally {
    service.cloud.control.allowOnly(undefined);
  }
});

test("without a license the endpoints are denied", async () => {
  for (const [method, path, body] of [
    ["GET", ISSUERS, undefined],
    ["GET", `${BASE}/matches`, undefined],
    ["POST", VERIFY, { assetId: `${VAULT}.secret.shop-api` }],
    ["GET", `${BASE}/policy`, undefined],
    ["PUT", `${BASE}/policy`, {}],
    ["POST", rotate(`${VAULT}.secret.db-main`), { newValue: NEW_VALUE }],
  ] as const) {
    const answer = await service.admin(method, unlicensedUrl + path, body);
    expect([answer.status, answer.body.code]).toEqual([403, "licenseRequired"]);
  }
});
