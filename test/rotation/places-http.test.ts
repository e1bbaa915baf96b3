import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import type { Fault } from "simulated-cloud/faults.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { licence } from "../support/licence.ts";
import { movedClock } from "../support/moved-clock.ts";
import { type Answer, Service } from "../support/service.ts";
import { overHttp } from "./http-client.ts";

/** Vaults in scope: two of the shop, one of a person who once saw its secrets, and one that never answers. */
const [SHOP, SECOND, STRANGER, SLOW] = ["kv-shop", "kv-second", "kv-stranger", "kv-slow"];
const base = "/api/automation/rotation";
const secretOf = (name: string, rest: object = {}) => ({
  name: name.toLowerCase().replaceAll(" ", "-"),
  value: secretValueOf(name, "current"),
  contentType: `${name}:${appIdOf(name)}:${keyIdOf(name, "current")}`,
  createdDaysAgo: 30,
  ...rest,
});
const APPS = ["Shop API", "Busy API", "Fresh API", "Leaked API", "Asset API", "Auto API", "Slow API"];
const company: Company = {
  subscriptions: [
    {
      name: "Shop",
      vaults: [
        { name: SHOP, secrets: APPS.slice(0, 6).map((name) => secretOf(name)) },
        {
          name: SECOND,
          secrets: ["Busy API", "Leaked API", "Asset API"].map((name) => secretOf(name, { createdDaysAgo: 10 })),
        },
        { name: STRANGER, secrets: [{ name: "own", value: "of the stranger" }] },
        { name: SLOW, secrets: [secretOf("Slow API")] },
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
let http: ReturnType<typeof overHttp>;
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
  http = overHttp(service, storageClock);
  await discovered();
  service.cloud.control.addFault({
    match: { vault: SLOW, operation: "keyvault.listSecretVersions" },
    action: { kind: "hang" },
  });
  slowPlan = http.admin("POST", `${base}/rotate`, requestFor("Slow API"));
  slowPlan.catch(() => {});
});
afterAll(async () => {
  await service?.stop();
  storageClock.remove();
});

async function discovered(): Promise<void> {
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
const assetId = (vault: string, app: string) => `${vault}.secret.${secretOf(app).name}`;
const confirm = (vault: string, app: string) =>
  http.admin("POST", `${base}/apps/${appIdOf(app)}/matches/confirm`, {
    assetId: assetId(vault, app),
    keyId: keyIdOf(app, "current"),
  });
const targets = ({ body }: Answer) => body.targets.map(({ vaultName }: { vaultName: string }) => vaultName);
const leftOut = ({ body }: Answer) =>
  body.notUpdated.map(
    ({ vaultName, confidence, reason }: Record<string, string>) => `${vaultName} ${confidence} ${reason}`,
  );
const keyAt = (vault: string, app: string) =>
  service.cloud.control.directory.keyIdOf(
    appIdOf(app),
    service.cloud.control.secretValue(vault, secretOf(app).name) ?? "",
  );
const validKeys = (app: string) =>
  service.cloud.control.directory
    .secrets(appIdOf(app))
    .flatMap(({ keyId, removedAt }) => (removedAt === undefined ? [keyId] : []));

test("an unknown copy of a secret is not written and is reported, and is written only after a user confirms it", async () => {
  const app = "Shop API";
  const { control } = service.cloud;
  const sink = service.cloud.controlUrl.replace("/control", "/sink/rotations");
  const rule = { name: "rotations", alertType: "rotationFailed", deliveryMethod: "webhook", webhookUrl: sink };
  expect((await http.admin("POST", "/alerts/rules", rule)).status).toBe(201);
  const tags = { "entra-app-id": appIdOf(app), "entra-key-id": keyIdOf(app, "current") };
  control.putSecret(STRANGER, { name: secretOf(app).name, value: secretValueOf(app, "current"), tags });
  await discovered();
  const plan = await rotate(app, { dryRun: true });
  expect([plan.status, targets(plan), leftOut(plan)]).toEqual([200, [SHOP], [`${STRANGER} certain newPlace`]]);
  const begun = await rotate(app);
  expect([begun.status, targets(begun), leftOut(begun)]).toEqual([201, [SHOP], [`${STRANGER} certain newPlace`]]);
  const id: string = begun.body.rotationId;

  const told = () =>
    control
      .sunk("rotations")
      .flatMap(({ body }) => (JSON.parse(body).data.items as { why: string }[]).map(({ why }) => why));
  const evaluate = () => service.call("POST", "/__host/timers/evaluateAlerts", { body: {} });
  await evaluate();
  const alert = `${STRANGER}/shop-api holds the old secret, is new to this service, and was not written.`;
  await expect.poll(told, { timeout: 150_000 }).toEqual([alert]);

  const overlapping = await http.until(id, ({ status }) => status === "overlapping", false);
  expect([keyAt(SHOP, app), keyAt(STRANGER, app)]).toEqual([overlapping.newKeyId, keyIdOf(app, "current")]);
  const waiting = await http.until(id, ({ needsConfirmation }) => needsConfirmation);
  expect(waiting.reasons).toEqual([
    expect.stringMatching(/^kv-stranger\/shop-api holds the old secret, is new .*Confirm/),
  ]);
  const refused = await http.admin("POST", `${base}/rotations/${id}/finish`);
  expect([refused.status, refused.body.code]).toEqual([409, "notFinishable"]);

  expect((await confirm(STRANGER, app)).status).toBe(200);
  // At once, and not when the next look is due, a day later.
  const both = await http.until(id, ({ targets: all }) => all.length === 2 && all[1].state === "written", false);
  expect(both.notUpdated).toEqual([]);
  const ended = await http.until(id, ({ endedAt, attention }) => endedAt !== null || attention !== null);
  expect(ended).toMatchObject({ status: "completed", reasons: [] });
  expect([keyAt(SHOP, app), keyAt(STRANGER, app)]).toEqual([ended.newKeyId, ended.newKeyId]);
  expect(validKeys(app)).toEqual([ended.newKeyId]);
  await evaluate();
  expect((await http.admin("GET", "/alerts/history")).body.total).toBe(1);
});

const away: [what: string, app: string, ...faults: Fault[]][] = [
  ["the first vault answers 503", "Busy API", { match: { vault: SHOP }, action: { kind: "fail", status: 503 } }],
  ["the second vault answers 503", "Busy API", { match: { vault: SECOND }, action: { kind: "fail", status: 503 } }],
  ["the first vault cuts the connection", "Busy API", { match: { vault: SHOP }, action: { kind: "reset" } }],
  ["the second vault cuts the connection", "Busy API", { match: { vault: SECOND }, action: { kind: "reset" } }],
  [
    "both vaults answer 503",
    "Busy API",
    { match: { vault: SHOP }, action: { kind: "fail", status: 503 } },
    { match: { vault: SECOND }, action: { kind: "fail", status: 503 } },
  ],
  [
    "the sign-in is unclear",
    "Fresh API",
    { match: { operation: "entra.token" }, action: { kind: "fail", status: 503 } },
  ],
];

test("while a vault or the sign-in gives no clear answer a rotation is 503 with Retry-After, and afterwards its plan is whole", async () => {
  for (const vault of [SHOP, SECOND]) expect((await confirm(vault, "Busy API")).status).toBe(200);
  const whole: Record<string, string[]> = { "Busy API": [SECOND, SHOP], "Fresh API": [SHOP] };
  for (const [what, app, ...faults] of away) {
    const ids = faults.map((fault) => service.cloud.control.addFault(fault));
    const [byIds, byAsset] = [
      await rotate(app),
      await http.admin("POST", `/api/assets/dependencies/rotate/${assetId(SHOP, app)}`, {}),
    ];
    for (const answer of [byIds, byAsset]) {
      expect([answer.status, answer.body.code], `${what}: ${answer.text}`).toEqual([503, "unavailable"]);
      expect(Number(answer.headers.get("retry-after")), what).toBeGreaterThan(0);
    }
    for (const id of ids) service.cloud.control.removeFault(id);
  }
  expect((await http.admin("GET", `${base}/history?appId=${appIdOf("Busy API")}`)).body.items).toEqual([]);
  for (const [app, vaults] of Object.entries(whole)) {
    const plan = await rotate(app, { dryRun: true });
    expect([plan.status, targets(plan).sort(), leftOut(plan)]).toEqual([200, vaults, []]);
  }
});

test("a compromised secret is replaced only where the request says so, and the other places keep nothing alive", async () => {
  const app = "Leaked API";
  const unnamed = await rotate(app, { reason: "compromised" });
  expect([unnamed.status, unnamed.body.errors[0].path]).toEqual([400, "body.targets"]);
  expect(unnamed.body.detail).toContain("/matches lists the");
  for (const wrong of ["x", `${SHOP}.key.leaked-api`]) {
    const answer = await rotate(app, { targets: [wrong] });
    expect([answer.status, answer.body.errors[0].path]).toEqual([400, "body.targets"]);
  }
  expect((await rotate(app, { reason: "stolen" })).status).toBe(400);
  const unproved = await rotate(app, { targets: [`${SHOP}.secret.shop-api`] });
  expect([unproved.status, unproved.body.code]).toEqual([409, "notRotatable"]);
  const withoutPlace = await http.admin("POST", `/api/assets/dependencies/rotate/${SECOND}.secret.leaked-api`, {
    reason: "compromised",
    dryRun: true,
  });
  expect([withoutPlace.status, targets(withoutPlace), leftOut(withoutPlace)]).toEqual([
    200,
    [SECOND],
    [`${SHOP} certain notNamed`],
  ]);
  const begun = await rotate(app, { reason: "compromised", targets: [assetId(SHOP, app)], overlapDays: 0 });
  expect([begun.status, begun.body.reason, targets(begun)]).toEqual([201, "compromised", [SHOP]]);
  expect(leftOut(begun)).toEqual([`${SECOND} certain notNamed`]);
  const ended = await http.until(
    begun.body.rotationId,
    ({ endedAt, attention }) => endedAt !== null || attention !== null,
  );
  expect(ended.status, JSON.stringify(ended.reasons)).toBe("completed");
  expect([validKeys(app), keyAt(SHOP, app)]).toEqual([[ended.newKeyId], ended.newKeyId]);
  expect(service.cloud.control.secretValue(SECOND, secretOf(app).name)).toBe(secretValueOf(app, "current"));
  const entries = await http.admin("GET", "/audit/entries?limit=1000&event_type=rotation.begun");
  expect(JSON.stringify(entries.body.items.map(({ details }: { details: unknown }) => details))).toContain(
    '"reason":"compromised"',
  );
});

test("a secret that is rotated by its asset id is written there, though it is new, and a new place beside it is named", async () => {
  const app = "Asset API";
  const byAsset = (id: string, body: object = {}) =>
    http.admin("POST", `/api/assets/dependencies/rotate/${id}`, { dryRun: true, ...body });
  const younger = await byAsset(assetId(SECOND, app));
  expect([targets(younger), leftOut(younger)]).toEqual([[SECOND], [`${SHOP} certain newPlace`]]);
  expect((await confirm(SHOP, app)).status).toBe(200);
  const both = await byAsset(assetId(SECOND, app));
  expect([targets(both).sort(), leftOut(both)]).toEqual([[SECOND, SHOP], []]);
  const only = await byAsset(assetId(SECOND, app), { targets: [assetId(SECOND, app)] });
  expect([targets(only), leftOut(only)]).toEqual([[SECOND], [`${SHOP} certain notNamed`]]);
  const plain = await byAsset(`${STRANGER}.secret.own`, { newValue: "another", targets: [`${STRANGER}.secret.own`] });
  expect([plain.status, plain.body.errors[0].path]).toEqual([400, "body.targets"]);
});

test("an automatic rotation that meets a busy vault is retried automatically, and its policy needs no attention", async () => {
  const app = "Auto API";
  const { control } = service.cloud;
  const policy = `${base}/apps/${appIdOf(app)}/policy`;
  expect((await confirm(SHOP, app)).status).toBe(200);
  expect((await http.admin("PUT", policy, { automatic: true })).status).toBe(200);
  // All tries of one call: the message fails once.
  const match = { vault: SHOP, operation: "keyvault.listSecretVersions" };
  const fault = control.addFault({ match, action: { kind: "fail", status: 503 }, times: 3 });
  await service.call("POST", "/__host/timers/beginDueRotations", { body: {} });
  const begun = async () => (await http.admin("GET", `${base}/history?appId=${appIdOf(app)}`)).body.items;
  await expect
    .poll(begun, { timeout: 150_000 })
    .toMatchObject([{ automatic: true, oldKeyId: keyIdOf(app, "current") }]);
  expect(control.faults().find(({ id }) => id === fault)?.happened).toBe(3);
  expect((await http.admin("GET", policy)).body).toMatchObject({ state: "active", attention: null });
});

test("while a vault never answers a rotation is 503 with Retry-After, and nothing begins", async () => {
  const answer = await slowPlan;
  expect([answer.status, answer.body.code], answer.text).toEqual([503, "unavailable"]);
  expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(0);
  expect((await http.admin("GET", `${base}/history?appId=${appIdOf("Slow API")}`)).body.items).toEqual([]);
});
