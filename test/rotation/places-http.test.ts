import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import type { Fault } from "simulated-cloud/faults.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { licence } from "../support/licence.ts";
import { movedClock } from "../support/moved-clock.ts";
import { type Answer, Service } from "../support/service.ts";
import { createRotationClient } from "./http-client.ts";

/**
 * Tests over HTTP of which vault secrets ("places") a rotation writes. The vaults: two of the shop, one of a former insider who
 * copies secrets, and one that does not answer.
 */

const [SHOP_VAULT, SECOND_VAULT, STRANGER_VAULT, SLOW_VAULT] = ["kv-shop", "kv-second", "kv-stranger", "kv-slow"];
const base = "/api/automation/rotation";
const vaultSecretOf = (name: string, rest: object = {}) => ({
  name: name.toLowerCase().replaceAll(" ", "-"),
  value: secretValueOf(name, "current"),
  contentType: `${name}:${appIdOf(name)}:${keyIdOf(name, "current")}`,
  createdDaysAgo: 30,
  ...rest,
});
const APPS = ["Shop API", "Busy API", "Fresh API", "Leaked API", "Asset API", "Auto API", "Often API", "Slow API"];
const company: Company = {
  subscriptions: [
    {
      name: "Shop",
      vaults: [
        { name: SHOP_VAULT, secrets: APPS.slice(0, 7).map((name) => vaultSecretOf(name)) },
        {
          name: SECOND_VAULT,
          secrets: ["Busy API", "Leaked API", "Asset API"].map((name) => vaultSecretOf(name, { createdDaysAgo: 10 })),
        },
        { name: STRANGER_VAULT, secrets: [{ name: "own", value: "of the stranger" }] },
        { name: SLOW_VAULT, secrets: [vaultSecretOf("Slow API")] },
      ],
    },
  ],
  applications: APPS.map((name) => ({
    name,
    secrets: [{ name: "current", expiresInDays: name === "Auto API" ? 20 : 200 }],
  })),
};

const storageClock = movedClock();
let service: Service;
let http: ReturnType<typeof createRotationClient>;
/** A plan with the slow vault takes a minute and a half, so it is requested first and checked last. */
let slowPlan: Promise<Answer>;

beforeAll(async () => {
  service = await Service.start({
    company,
    lease: 1,
    shortWaits: true,
    env: { LICENSE_KEY: await licence(), ALLOW_PRIVATE_WEBHOOK_ADDRESSES: "true" },
    storageEnv: storageClock.environment,
  });
  http = createRotationClient(service, storageClock);
  await runDiscovery();
  service.cloud.control.addFault({
    match: { vault: SLOW_VAULT, operation: "keyvault.listSecretVersions" },
    action: { kind: "hang" },
  });
  slowPlan = http.admin("POST", `${base}/rotate`, requestFor("Slow API"));
  slowPlan.catch(() => {});
});
afterAll(async () => {
  await service?.stop();
  storageClock.remove();
});

async function runDiscovery(): Promise<void> {
  const { body: scan } = await http.admin("POST", "/api/assets/discovery/scan", { mode: "full" });
  await vi.waitFor(
    async () =>
      expect((await http.admin("GET", `/api/assets/discovery/scan/${scan.scanId}/status`)).body.status).toBe(
        "completed",
      ),
    { timeout: 150_000, interval: 100 },
  );
  await http.admin("POST", `${base}/discover`);
  await fetch(`${service.url}/admin/functions/indexRotationMatches`, { method: "POST", body: "{}" });
  await vi.waitFor(
    async () =>
      expect((await http.admin("GET", `${base}/apps/${appIdOf("Shop API")}/matches`)).body.coverage).toEqual([]),
    { timeout: 150_000, interval: 200 },
  );
}

const requestFor = (app: string, rest: object = {}) => ({
  appId: appIdOf(app),
  secretId: keyIdOf(app, "current"),
  overlapDays: 2,
  ...rest,
});
const rotate = (app: string, rest: object = {}) => http.admin("POST", `${base}/rotate`, requestFor(app, rest));
const assetId = (vault: string, app: string) => `${vault}.secret.${vaultSecretOf(app).name}`;
const confirm = (vault: string, app: string) =>
  http.admin("POST", `${base}/apps/${appIdOf(app)}/matches/confirm`, {
    assetId: assetId(vault, app),
    keyId: keyIdOf(app, "current"),
  });
const targetVaults = ({ body }: Answer) => body.targets.map(({ vaultName }: { vaultName: string }) => vaultName);
const skippedPlaces = ({ body }: Answer) =>
  body.notUpdated.map(
    ({ vaultName, confidence, reason }: Record<string, string>) => `${vaultName} ${confidence} ${reason}`,
  );
const keyIdInVault = (vault: string, app: string) =>
  service.cloud.control.directory.keyIdOf(
    appIdOf(app),
    service.cloud.control.secretValue(vault, vaultSecretOf(app).name) ?? "",
  );
const validKeyIds = (app: string) =>
  service.cloud.control.directory
    .secrets(appIdOf(app))
    .flatMap(({ keyId, removedAt }) => (removedAt === undefined ? [keyId] : []));

test("lists and alert previews follow three rotations of an application in a row, without a discovery or scan", async () => {
  const app = "Often API";
  const appId = appIdOf(app);
  const rule = { name: "Soon", alertType: "credentialExpiry", thresholds: [365], recipients: ["team@acme.example"] };
  /** Returns the key IDs that each endpoint shows of this application. */
  const lists = async () => {
    const { body: one } = await http.admin("GET", `${base}/apps/${appId}`);
    const { body: all } = await http.admin("GET", `${base}/apps?limit=1000`);
    const listed = all.items.find((each: { appId: string }) => each.appId === appId);
    const { body: preview } = await http.admin("POST", "/alerts/preview", rule);
    const ids: string[] = preview.items.map(({ id }: { id: string }) => id);
    const { body: assets } = await http.admin(
      "GET",
      `/api/assets/discovery/assets?search=${appId}&source=entra&limit=1000`,
    );
    const keyIds = (all: { keyId: string }[]) => all.map(({ keyId }) => keyId).sort();
    return [
      keyIds(one.credentials),
      keyIds(listed.credentials),
      keyIds(assets.items.map((each: { credential: object }) => each.credential)),
      ids.filter((id) => id.includes(appId)).map((id) => id.split(".").at(-1)),
    ];
  };
  let secretId = keyIdOf(app, "current");
  expect(await lists()).toEqual(Array(4).fill([secretId]));
  for (let count = 0; count < 3; count++) {
    const started = await rotate(app, { secretId, overlapDays: 0 });
    expect(started.status, started.text).toBe(201);
    const ended = await http.waitUntil(
      started.body.rotationId,
      ({ endedAt, attention }) => endedAt !== null || attention !== null,
    );
    expect(ended.status, JSON.stringify(ended.attention)).toBe("completed");
    const results = Object.fromEntries(ended.steps.map(({ name, result }: Record<string, string>) => [name, result]));
    expect(results).toMatchObject({
      prove: "Signed in 4 times in a row with the new secret.",
      overlap: "Ended at once, because an overlap period of 0 days was requested.",
    });
    expect(ended.targets).toMatchObject([{ writtenAt: expect.any(String), checkedAt: expect.any(String) }]);
    secretId = ended.newKeyId;
    await expect.poll(lists, { timeout: 60_000 }).toEqual(Array(4).fill([secretId]));
  }
  const { body } = await http.admin("GET", `${base}/apps/${appId}/matches`);
  expect(body.items).toMatchObject([{ assetId: assetId(SHOP_VAULT, app), keyId: secretId, confidence: "certain" }]);
  // The written vault is read again too. Its re-scan waits half a minute after the last read.
  const modified = async () => {
    await http.advanceClock(40_000);
    await fetch(`${service.url}/admin/functions/watchScans`, { method: "POST", body: "{}" });
    return (await http.admin("GET", `/api/assets/discovery/assets/${assetId(SHOP_VAULT, app)}`)).body.tags[
      "entra-key-id"
    ];
  };
  await expect.poll(modified, { timeout: 60_000 }).toBe(secretId);
});

test("an unknown copy of a secret is written only after a user confirms it", async () => {
  const app = "Shop API";
  const { control } = service.cloud;
  const sink = service.cloud.controlUrl.replace("/control", "/sink/rotations");
  const rule = { name: "rotations", alertType: "rotationFailed", deliveryMethod: "webhook", webhookUrl: sink };
  expect((await http.admin("POST", "/alerts/rules", rule)).status).toBe(201);
  const tags = { "entra-app-id": appIdOf(app), "entra-key-id": keyIdOf(app, "current") };
  control.putSecret(STRANGER_VAULT, { name: vaultSecretOf(app).name, value: secretValueOf(app, "current"), tags });
  await runDiscovery();
  const plan = await rotate(app, { dryRun: true });
  expect([plan.status, targetVaults(plan), skippedPlaces(plan)]).toEqual([
    200,
    [SHOP_VAULT],
    [`${STRANGER_VAULT} certain newPlace`],
  ]);
  const started = await rotate(app);
  expect([started.status, targetVaults(started), skippedPlaces(started)]).toEqual([
    201,
    [SHOP_VAULT],
    [`${STRANGER_VAULT} certain newPlace`],
  ]);
  const id: string = started.body.rotationId;

  const notified = () =>
    control
      .sinkRequests("rotations")
      .flatMap(({ body }) => (JSON.parse(body).data.items as { why: string }[]).map(({ why }) => why));
  const evaluate = () => service.call("POST", "/__host/timers/evaluateAlerts", { body: {} });
  await evaluate();
  const alert = `${STRANGER_VAULT}/shop-api stores the old secret. No user confirmed this place, so the rotation does not write the new secret there.`;
  await expect.poll(notified, { timeout: 150_000 }).toEqual([alert]);

  const overlapping = await http.waitUntil(id, ({ status }) => status === "overlapping", { skipsDays: false });
  expect([keyIdInVault(SHOP_VAULT, app), keyIdInVault(STRANGER_VAULT, app)]).toEqual([
    overlapping.newKeyId,
    keyIdOf(app, "current"),
  ]);
  const waiting = await http.waitUntil(id, ({ needsConfirmation }) => needsConfirmation);
  expect(waiting.reasons).toEqual([
    expect.stringMatching(/^kv-stranger\/shop-api stores the old secret, is new .*Confirm/),
  ]);
  const refused = await http.admin("POST", `${base}/rotations/${id}/finish`);
  expect([refused.status, refused.body.code]).toEqual([409, "notFinishable"]);

  expect((await confirm(STRANGER_VAULT, app)).status).toBe(200);
  // The place is written at once and not at the next daily check.
  const both = await http.waitUntil(id, ({ targets: all }) => all.length === 2 && all[1].state === "written", {
    skipsDays: false,
  });
  expect(both.notUpdated).toEqual([]);
  const ended = await http.waitUntil(id, ({ endedAt, attention }) => endedAt !== null || attention !== null);
  expect(ended).toMatchObject({ status: "completed", reasons: [] });
  expect([keyIdInVault(SHOP_VAULT, app), keyIdInVault(STRANGER_VAULT, app)]).toEqual([ended.newKeyId, ended.newKeyId]);
  expect(validKeyIds(app)).toEqual([ended.newKeyId]);
  await evaluate();
  expect((await http.admin("GET", "/alerts/history")).body.total).toBe(1);
});

const OUTAGES: [what: string, app: string, ...faults: Fault[]][] = [
  ["the first vault answers 503", "Busy API", { match: { vault: SHOP_VAULT }, action: { kind: "fail", status: 503 } }],
  [
    "the second vault answers 503",
    "Busy API",
    { match: { vault: SECOND_VAULT }, action: { kind: "fail", status: 503 } },
  ],
  ["the first vault cuts the connection", "Busy API", { match: { vault: SHOP_VAULT }, action: { kind: "reset" } }],
  ["the second vault cuts the connection", "Busy API", { match: { vault: SECOND_VAULT }, action: { kind: "reset" } }],
  [
    "both vaults answer 503",
    "Busy API",
    { match: { vault: SHOP_VAULT }, action: { kind: "fail", status: 503 } },
    { match: { vault: SECOND_VAULT }, action: { kind: "fail", status: 503 } },
  ],
  [
    "the sign-in service answers 503",
    "Fresh API",
    { match: { operation: "entra.token" }, action: { kind: "fail", status: 503 } },
  ],
];

test("while a vault or the sign-in service fails, a rotation fails with 503 and Retry-After", async () => {
  for (const vault of [SHOP_VAULT, SECOND_VAULT]) expect((await confirm(vault, "Busy API")).status).toBe(200);
  const expectedVaults: Record<string, string[]> = {
    "Busy API": [SECOND_VAULT, SHOP_VAULT],
    "Fresh API": [SHOP_VAULT],
  };
  for (const [what, app, ...faults] of OUTAGES) {
    const ids = faults.map((fault) => service.cloud.control.addFault(fault));
    const [byIds, byAsset] = [
      await rotate(app),
      await http.admin("POST", `/api/assets/dependencies/rotate/${assetId(SHOP_VAULT, app)}`, {}),
    ];
    for (const answer of [byIds, byAsset]) {
      expect([answer.status, answer.body.code], `${what}: ${answer.text}`).toEqual([503, "unavailable"]);
      expect(Number(answer.headers.get("retry-after")), what).toBeGreaterThan(0);
    }
    for (const id of ids) service.cloud.control.removeFault(id);
  }
  expect((await http.admin("GET", `${base}/history?appId=${appIdOf("Busy API")}`)).body.items).toEqual([]);
  for (const [app, vaults] of Object.entries(expectedVaults)) {
    const plan = await rotate(app, { dryRun: true });
    expect([plan.status, targetVaults(plan).sort(), skippedPlaces(plan)]).toEqual([200, vaults, []]);
  }
});

test("a compromised secret is replaced only in the places that the request names", async () => {
  const app = "Leaked API";
  const unnamed = await rotate(app, { reason: "compromised" });
  expect([unnamed.status, unnamed.body.errors[0].path]).toEqual([400, "body.targets"]);
  expect(unnamed.body.detail).toContain("/matches lists the");
  for (const wrong of ["x", `${SHOP_VAULT}.key.leaked-api`]) {
    const answer = await rotate(app, { targets: [wrong] });
    expect([answer.status, answer.body.errors[0].path]).toEqual([400, "body.targets"]);
  }
  expect((await rotate(app, { reason: "stolen" })).status).toBe(400);
  const unproved = await rotate(app, { targets: [`${SHOP_VAULT}.secret.shop-api`] });
  expect([unproved.status, unproved.body.code]).toEqual([409, "notRotatable"]);
  const withoutPlace = await http.admin("POST", `/api/assets/dependencies/rotate/${SECOND_VAULT}.secret.leaked-api`, {
    reason: "compromised",
    dryRun: true,
  });
  expect([withoutPlace.status, targetVaults(withoutPlace), skippedPlaces(withoutPlace)]).toEqual([
    200,
    [SECOND_VAULT],
    [`${SHOP_VAULT} certain notNamed`],
  ]);
  const started = await rotate(app, { reason: "compromised", targets: [assetId(SHOP_VAULT, app)], overlapDays: 0 });
  expect([started.status, started.body.reason, targetVaults(started)]).toEqual([201, "compromised", [SHOP_VAULT]]);
  expect(skippedPlaces(started)).toEqual([`${SECOND_VAULT} certain notNamed`]);
  const ended = await http.waitUntil(
    started.body.rotationId,
    ({ endedAt, attention }) => endedAt !== null || attention !== null,
  );
  expect(ended.status, JSON.stringify(ended.reasons)).toBe("completed");
  expect([validKeyIds(app), keyIdInVault(SHOP_VAULT, app)]).toEqual([[ended.newKeyId], ended.newKeyId]);
  expect(service.cloud.control.secretValue(SECOND_VAULT, vaultSecretOf(app).name)).toBe(secretValueOf(app, "current"));
  const entries = await http.admin("GET", "/audit/entries?limit=1000&event_type=rotation.begun");
  expect(JSON.stringify(entries.body.items.map(({ details }: { details: unknown }) => details))).toContain(
    '"reason":"compromised"',
  );
});

test("a rotation by asset ID writes that asset although it is a new place", async () => {
  const app = "Asset API";
  const byAsset = (id: string, body: object = {}) =>
    http.admin("POST", `/api/assets/dependencies/rotate/${id}`, { dryRun: true, ...body });
  const younger = await byAsset(assetId(SECOND_VAULT, app));
  expect([targetVaults(younger), skippedPlaces(younger)]).toEqual([[SECOND_VAULT], [`${SHOP_VAULT} certain newPlace`]]);
  expect((await confirm(SHOP_VAULT, app)).status).toBe(200);
  const both = await byAsset(assetId(SECOND_VAULT, app));
  expect([targetVaults(both).sort(), skippedPlaces(both)]).toEqual([[SECOND_VAULT, SHOP_VAULT], []]);
  const only = await byAsset(assetId(SECOND_VAULT, app), { targets: [assetId(SECOND_VAULT, app)] });
  expect([targetVaults(only), skippedPlaces(only)]).toEqual([[SECOND_VAULT], [`${SHOP_VAULT} certain notNamed`]]);
  const plain = await byAsset(`${STRANGER_VAULT}.secret.own`, {
    newValue: "another",
    targets: [`${STRANGER_VAULT}.secret.own`],
  });
  expect([plain.status, plain.body.errors[0].path]).toEqual([400, "body.targets"]);
});

test("an automatic rotation is retried after a vault was unavailable", async () => {
  const app = "Auto API";
  const { control } = service.cloud;
  const policy = `${base}/apps/${appIdOf(app)}/policy`;
  expect((await confirm(SHOP_VAULT, app)).status).toBe(200);
  expect((await http.admin("PUT", policy, { automatic: true })).status).toBe(200);
  // One call makes three attempts, so the message fails once.
  const match = { vault: SHOP_VAULT, operation: "keyvault.listSecretVersions" };
  const fault = control.addFault({ match, action: { kind: "fail", status: 503 }, times: 3 });
  await service.call("POST", "/__host/timers/beginDueRotations", { body: {} });
  const started = async () => (await http.admin("GET", `${base}/history?appId=${appIdOf(app)}`)).body.items;
  await expect
    .poll(started, { timeout: 150_000 })
    .toMatchObject([{ automatic: true, oldKeyId: keyIdOf(app, "current") }]);
  expect(control.faults().find(({ id }) => id === fault)?.happened).toBe(3);
  expect((await http.admin("GET", policy)).body).toMatchObject({ state: "active", attention: null });
});

test("while a vault does not answer, a rotation fails with 503 and does not start", async () => {
  const answer = await slowPlan;
  expect([answer.status, answer.body.code], answer.text).toEqual([503, "unavailable"]);
  expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(0);
  expect((await http.admin("GET", `${base}/history?appId=${appIdOf("Slow API")}`)).body.items).toEqual([]);
});
