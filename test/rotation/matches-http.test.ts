import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { appIdOf, keyIdOf, secretValueOf } from "../../infra/local/cloud/company/applications.ts";
import { licence } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";

const VAULT = "kv-shop";
const [appId, keyId] = [appIdOf("Shop API"), keyIdOf("Shop API", "current")];
const value = secretValueOf("Shop API", "current");
const BASE = `/api/automation/rotation/apps/${appId}`;

let service: Service;
let unlicensed: string;
beforeAll(async () => {
  const secrets = [
    { name: "shop-api-client-secret", value, contentType: `shop:${appId}:${keyId}` },
    { name: "shop-api", value: "of something else", createdDaysAgo: 90 },
    { name: "other-client-secret", tags: { "entra-app-id": appIdOf("Other"), "entra-key-id": keyId } },
  ];
  service = await Service.start({
    company: {
      subscriptions: [{ name: "Shop", vaults: [{ name: VAULT, secrets }] }],
      applications: [{ name: "Shop API", secrets: [{ name: "current", expiresInDays: 20 }] }],
    },
    env: { LICENSE_KEY: await licence() },
  });
  ({ url: unlicensed } = await service.addHost({ LICENSE_KEY: "" }));
  await service.scan();
  await service.admin("POST", "/api/automation/rotation/discover");
  await fetch(`${service.url}/admin/functions/indexRotationMatches`, { method: "POST", body: "{}" });
  await vi.waitFor(async () => expect((await service.admin("GET", `${BASE}/matches`)).body.coverage).toEqual([]), {
    timeout: 20_000,
    interval: 200,
  });
});
afterAll(() => service?.stop());

const VERIFY = `${BASE}/matches/verify`;
const CONFIRM = `${BASE}/matches/confirm`;

test("matches are listed, proved and confirmed, and no answer, entry or line has the value", async () => {
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
  ["an application id that is none", "GET", BASE.replace(appId, "x'y"), undefined, 400, "invalidRequest"],
])("the matches of %s are refused", async (_, method, path, body, status, code) => {
  const answer = await service.admin(method, `${path}/matches`, body);
  expect([answer.status, answer.body.code]).toEqual([status, code]);
});

test.each<[what: string, body: object, status: number, code: string]>([
  ["an unknown secret", { assetId: `${VAULT}.secret.none` }, 404, "notFound"],
  ["a key", { assetId: `${VAULT}.key.none` }, 404, "notFound"],
  ["a credential's id", { assetId: `entra.${appId}.${appId}.${keyId}` }, 404, "notFound"],
  ["the service's own vault", { assetId: "KV-Lifecycle-Service.secret.x" }, 409, "serviceVault"],
  ["another member", { assetId: `${VAULT}.secret.shop-api`, value: "x" }, 400, "invalidRequest"],
  ["no member", {}, 400, "invalidRequest"],
])("a proof and a word about %s are refused", async (_, body, status, code) => {
  for (const path of [VERIFY, CONFIRM]) {
    const answer = await service.admin("POST", path, body);
    expect([answer.status, answer.body.code]).toEqual([status, code]);
  }
});

test("a word about a credential that the application has not is refused", async () => {
  const answer = await service.admin("POST", CONFIRM, { assetId: `${VAULT}.secret.shop-api`, keyId: appId });
  expect([answer.status, answer.body.errors[0].path]).toEqual([400, "body.keyId"]);
});

test("a policy is set, read with its application, changed with its ETag and removed", async () => {
  expect((await service.admin("GET", `${BASE}/policy`)).status).toBe(404);
  const set = await service.admin("PUT", `${BASE}/policy`, {
    automatic: true,
    targets: [`${VAULT}.secret.shop-api-client-secret`],
  });
  expect([set.status, set.body]).toMatchObject([
    200,
    { automatic: true, overlapDays: 7, state: "active", attention: null },
  ]);
  expect((await service.admin("GET", BASE)).body.policy).toMatchObject({ automatic: true, etag: set.body.etag });
  const token = await service.signIn(ADMIN);
  const stale = await service.call("PUT", `${BASE}/policy`, { token, body: {}, headers: { "If-Match": '"stale"' } });
  expect(stale.status).toBe(412);
  for (const body of [{ expiryDays: 0 }, { overlapDays: 91 }, { targets: "x" }, { automatic: true, expiryDays: 38 }])
    expect((await service.admin("PUT", `${BASE}/policy`, body)).status).toBe(400);
  expect((await service.admin("DELETE", `${BASE}/policy`)).body).toEqual({ deleted: true });
});

test("without a licence nothing of it is open", async () => {
  for (const [method, path, body] of [
    ["GET", `${BASE}/matches`, undefined],
    ["POST", VERIFY, { assetId: `${VAULT}.secret.shop-api` }],
    ["GET", `${BASE}/policy`, undefined],
    ["PUT", `${BASE}/policy`, {}],
  ] as const) {
    const answer = await service.admin(method, unlicensed + path, body);
    expect([answer.status, answer.body.code]).toEqual([403, "licenseRequired"]);
  }
});
