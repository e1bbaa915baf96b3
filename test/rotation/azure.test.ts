import { parseTemplates } from "template-checks/check.ts";
import { readInfraFiles } from "template-checks/files.ts";
import { grantsOf } from "template-checks/grants.ts";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import type { RotationRecord } from "../../shared/rotation/rotation.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { AzureConsumers, CAMPAIGN_COUNTS, type ConsumerKind } from "./azure-company.ts";
import { expectNoValueStored, expectRotationInvariants } from "./invariants.ts";
import { BOSS, VAULT, World } from "./world.ts";

/**
 * Tests of rotations whose consumers are Azure resources in the simulated cloud: web apps, API Management, Container Apps and
 * jobs. In a campaign, the long test run, each consumer fails in turn.
 */

const SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
const [OLD, NEW] = ["value-before-everything", "value-that-is-new"];

let world: World;
let azurite: TestStorage;
let company: AzureConsumers | undefined;
let nameCount = 0;

beforeAll(async () => {
  azurite = await openStorage();
  const subscriptions = [{ id: SUBSCRIPTION, name: "Shop", vaults: [{ name: VAULT }] }];
  const { cloud, config } = await startTestCloud({ company: { subscriptions } });
  world = new World(cloud, config, azurite.connectionString());
});
afterAll(async () => {
  await world.cloud.stop();
  await azurite.stop();
});
afterEach(() => {
  world.cloud.control.clearFaults();
  world.cloud.control.allowOnly(undefined);
  world.targets = [];
  world.messages.length = 0;
  company?.remove();
});

/** Number of consumers of each kind in the normal suite. A campaign uses the 40 of `CAMPAIGN_COUNTS`. */
const DEFAULT_COUNTS: Partial<Record<ConsumerKind, number>> = {
  webApp: 3,
  functionApp: 1,
  slot: 1,
  apiManagement: 1,
  containerApp: 2,
  job: 1,
};
const COUNTS = IS_CAMPAIGN ? CAMPAIGN_COUNTS : DEFAULT_COUNTS;
const consumerCount = Object.values(COUNTS).reduce((sum, number) => sum + number, 0);

async function createConsumers(secret: string, kinds = COUNTS): Promise<AzureConsumers> {
  company = new AzureConsumers(world, SUBSCRIPTION, secret, kinds);
  world.consumers = await company.discover();
  // The consumers use the old value for a while before the rotation starts.
  world.advanceClock(10 * MINUTE_MS);
  return company;
}

/**
 * How a rotation refreshes each kind of consumer. `action`: it restarts or updates the consumer. `automatic`: it waits until
 * the consumer reloads the secret. `blind`: it can neither refresh nor check the consumer.
 */
const REFRESH_METHODS: Record<ConsumerKind, "action" | "automatic" | "blind"> = {
  webApp: "action",
  functionApp: "action",
  slot: "action",
  apiManagement: "action",
  containerApp: "automatic",
  job: "blind",
};

/** Returns the kind of each consumer by its ID in lower case. */
const kindsOf = (azureConsumers: AzureConsumers) =>
  new Map(azureConsumers.ids.map(({ id, kind }) => [id.toLowerCase(), kind]));

test(`an application's secret with ${consumerCount} consumers is rotated without an outage`, async () => {
  const app = world.addApplication(`app-${++nameCount}`);
  const all = await createConsumers(app.places[0]!);
  const { rotationId } = await world.start().begin(app.request, BOSS);
  const waiting = (await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation })).row;
  const kinds = kindsOf(all);
  expect(waiting.consumers).toHaveLength(consumerCount);
  for (const { id, how, state } of waiting.consumers!) {
    expect([how, state], id).toEqual([
      REFRESH_METHODS[kinds.get(id.toLowerCase())!],
      kinds.get(id.toLowerCase()) === "job" ? "unverified" : "verified",
    ]);
  }
  // One reason for each job: the service can't see which value a job has, so a user must finish the rotation.
  expect(waiting.reasons).toHaveLength(COUNTS.job!);
  await world.start().finish(rotationId, false, BOSS);
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("completed");
  const { values, gaps } = all.currentValues();
  // The simulated cloud reports each named value. Each API Management service has two.
  expect(values).toHaveLength(consumerCount + COUNTS.apiManagement!);
  const current = world.cloud.control.secretValue(VAULT, app.places[0]!);
  for (const { id, value } of values) expect(value === current, id).toBe(true);
  expect(gaps).toEqual([]);
  await expectRotationInvariants(world, app, row);
});

const refreshableKinds = (Object.keys(CAMPAIGN_COUNTS) as ConsumerKind[]).filter(
  (kind) => REFRESH_METHODS[kind] === "action",
);
/** Consumers whose refresh fails, one a test: each refreshable consumer in a campaign, otherwise one API Management service. */
const FAILING_CONSUMERS = refreshableKinds
  .flatMap((kind) => Array.from({ length: CAMPAIGN_COUNTS[kind] }, (_, index) => ({ kind, index })))
  .filter(({ kind, index }) => IS_CAMPAIGN || (index === 0 && kind === "apiManagement"));

test.each(FAILING_CONSUMERS)(
  "if $kind $index keeps the old value, the rotation is rolled back",
  async ({ kind, index }) => {
    const secret = `db-${++nameCount}`;
    const request = world.addVaultSecret(secret, OLD, NEW);
    const all = await createConsumers(secret);
    const { consumers } = world.cloud.control;
    const failing = all.ids.filter((one) => one.kind === kind)[index]!.id;
    if (kind === "apiManagement") {
      consumers.setNamedValueStaysOld(`${failing}/namedValues/apimanagement-${secret}-${index}-a`, true);
    } else consumers.setSiteFault(failing, { staysOld: true });
    const { row } = await world.run((await world.start().begin(request, BOSS)).rotationId);
    expect(row, JSON.stringify(row.attention)).toMatchObject({
      status: "rolledBack",
      failure: { code: "consumerFailed" },
    });
    expect(row.failure!.message).toContain(failing.split("/").at(-1));
    expectRefreshedConsumersRestored(row);
    // A container app can have the new value until it reads its secrets again, which takes up to 30 minutes.
    world.advanceClock(31 * MINUTE_MS);
    const { values, gaps } = all.currentValues();
    for (const { id, value } of values) expect(value, id).toBe(OLD);
    expect(gaps).toEqual([]);
  },
);

test("if an app can't resolve its Key Vault reference, the rotation is rolled back", async () => {
  const secret = `db-${++nameCount}`;
  const request = world.addVaultSecret(secret, OLD, NEW);
  const all = await createConsumers(secret, { webApp: 2 });
  const { consumers } = world.cloud.control;
  const appWithoutAccess = all.ids[1]!.id;
  consumers.allow(appWithoutAccess, VAULT, false);
  const { row } = await world.run((await world.start().begin(request, BOSS)).rotationId);
  expect(row, JSON.stringify(row.attention)).toMatchObject({
    status: "rolledBack",
    failure: { code: "consumerFailed", message: expect.stringMatching(/AccessToKeyVaultDenied/) },
  });
  expectRefreshedConsumersRestored(row);
  for (const { id, value } of all.currentValues().values) expect(value, id).toBe(OLD);
  expect(all.currentValues().gaps).toEqual([]);
});

test("an app that could not resolve its reference before the rotation does not stop it", async () => {
  const secret = `db-${++nameCount}`;
  const request = { ...world.addVaultSecret(secret, OLD, NEW), overlapDays: 0 };
  const all = await createConsumers(secret, { webApp: 2, slot: 1 });
  const { consumers } = world.cloud.control;
  const brokenApp = all.ids[1]!.id;
  consumers.setSiteFault(brokenApp, { statuses: { DB_PASSWORD: "AccessToKeyVaultDenied" } });
  const { row } = await world.run((await world.start().begin(request, BOSS)).rotationId);
  expect(row.status, JSON.stringify(row)).toBe("completed");
  expect(row.consumers!.map(({ id, state, problem }) => [id, state, problem]).sort()).toEqual(
    all.ids
      .map(({ id }) =>
        id === brokenApp
          ? [id, "unverified", "App Service can't follow DB_PASSWORD: AccessToKeyVaultDenied."]
          : [id, "verified", undefined],
      )
      .sort(),
  );
  expect(row.consumers!.find(({ id }) => id === brokenApp)!.touchedAt).toBeUndefined();
  consumers.setSiteFault(brokenApp, undefined);
});

test.each(["Initialized", "FetchTimedOut"])(
  "an app whose reference has the temporary status %s before the rotation is refreshed and verified",
  async (status) => {
    const secret = `db-${++nameCount}`;
    const request = { ...world.addVaultSecret(secret, OLD, NEW), overlapDays: 0 };
    const all = await createConsumers(secret, { webApp: 1 });
    const { consumers } = world.cloud.control;
    consumers.setSiteFault(all.ids[0]!.id, { statuses: { DB_PASSWORD: status as "Initialized" } });
    const planned = await world.start().begin(request, BOSS);
    expect(planned.consumers).toMatchObject([{ state: "waiting" }]);
    consumers.setSiteFault(all.ids[0]!.id, undefined);
    const { row } = await world.run(planned.rotationId);
    expect([row.status, row.consumers![0]!.state]).toEqual(["completed", "verified"]);
  },
);

function expectRefreshedConsumersRestored({ consumers = [] }: RotationRecord): void {
  expect(consumers.some(({ touchedAt }) => touchedAt !== undefined)).toBe(true);
  for (const { id, touchedAt, state } of consumers) if (touchedAt !== undefined) expect(state, id).toBe("restored");
}

test("an excluded consumer gets no call, and a rejected refresh rolls everything back", async () => {
  const secret = `db-${++nameCount}`;
  const request = world.addVaultSecret(secret, OLD, NEW);
  const all = await createConsumers(secret, { webApp: 3, functionApp: 1, apiManagement: 1 });
  const { control } = world.cloud;
  const [first, second, third, ...others] = all.ids.map(({ id }) => id) as [string, string, string, ...string[]];
  const callsBefore = control.consumers.calls();
  const calls = (id: string) =>
    (control.consumers.calls()[id.toLowerCase()] ?? 0) - (callsBefore[id.toLowerCase()] ?? 0);
  const included = { ...request, includeResources: [first, second], overlapDays: 0 };
  const done = (await world.run((await world.start().begin(included, BOSS)).rotationId)).row;
  expect(done.status).toBe("completed");
  expect(calls(first)).toBeGreaterThan(0);
  for (const id of [third, ...others]) expect(calls(id), id).toBe(0);
  const secondRequest = { ...included, value: "value-of-another-try", includeResources: [first, third] };
  control.consumers.change(third, { denied: true });
  const { row } = await world.run((await world.start().begin(secondRequest, BOSS)).rotationId);
  expect(row).toMatchObject({ status: "rolledBack", failure: { code: "consumerFailed" } });
  expect(row.failure!.message).toMatch(/Website Contributor/);
  expectRefreshedConsumersRestored(row);
  expect(row.consumers!.find(({ id }) => id === third)).toMatchObject({ state: "failed" });
  for (const { id, value } of all.currentValues().values) if (id === first) expect(value).toBe(NEW);
  expect(all.currentValues().gaps).toEqual([]);
});

test("the roles of the infrastructure templates are sufficient for a rotation", async () => {
  const secret = `db-${++nameCount}`;
  const request = world.addVaultSecret(secret, OLD, NEW);
  await createConsumers(secret, { webApp: 1, slot: 1, apiManagement: 1, containerApp: 1 });
  const { control } = world.cloud;
  const { bicep } = await parseTemplates(readInfraFiles());
  const grants = grantsOf(bicep).filter(({ scope }) => scope === "watched" || scope === "rotated");
  const vaults = [VAULT, "kv-lifecycle-service"].flatMap((name) => control.vaultId(name) ?? []);
  const officer = { actions: [], dataActions: ["Microsoft.KeyVault/vaults/secrets/*"] };
  control.allowOnly([
    ...grants.map((grant) => ({ ...grant, scope: `/subscriptions/${SUBSCRIPTION}` })),
    ...vaults.map((scope) => ({ ...officer, scope })),
  ]);
  const countForbiddenCalls = () => control.requests({}).filter(({ status }) => status === 403).length;
  const forbiddenBefore = countForbiddenCalls();
  const { row } = await world.run((await world.start().begin({ ...request, overlapDays: 0 }, BOSS)).rotationId);
  expect(row.status).toBe("completed");
  expect(row.consumers!.map(({ state }) => state)).toEqual(["verified", "verified", "verified", "verified"]);
  expect(countForbiddenCalls()).toBe(forbiddenBefore);
});

test("no secret value is logged, stored, sent or audited", () =>
  expectNoValueStored(world, azurite.connectionString(), [OLD, NEW, "value-of-another-try"]));
