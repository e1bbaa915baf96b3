import { parseTemplates } from "template-checks/check.ts";
import { readInfraFiles } from "template-checks/files.ts";
import { grantsOf } from "template-checks/grants.ts";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import type { RotationRecord } from "../../shared/rotation/rotation.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { AzureCompany, KINDS, type Kind } from "./azure-company.ts";
import { holds, keepsSecrets } from "./invariants.ts";
import { BOSS, VAULT, World } from "./world.ts";

/** Full-stack rotation over the stand-in cloud. In a campaign each of the company's consumers fails in turn. */
const SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
const [OLD, NEW] = ["value-before-everything", "value-that-is-new"];

let world: World;
let azurite: TestStorage;
let company: AzureCompany | undefined;
let names = 0;

beforeAll(async () => {
  azurite = await openStorage();
  const subscriptions = [{ id: SUBSCRIPTION, name: "Shop", vaults: [{ name: VAULT }] }];
  const { cloud, config } = await liveIn({ company: { subscriptions } });
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

/** Some consumers of each kind. In a campaign the 40 of `KINDS`. */
const SOME: Partial<Record<Kind, number>> = {
  webApp: 3,
  functionApp: 1,
  slot: 1,
  apiManagement: 1,
  containerApp: 2,
  job: 1,
};
const NUMBERS = IS_CAMPAIGN ? KINDS : SOME;
const total = Object.values(NUMBERS).reduce((sum, number) => sum + number, 0);

async function populated(secret: string, kinds = NUMBERS): Promise<AzureCompany> {
  company = new AzureCompany(world, SUBSCRIPTION, secret, kinds);
  world.consumers = await company.discovered();
  // They run for a while before anything is rotated.
  world.pass(10 * MINUTE_MS);
  return company;
}

const HOW: Record<Kind, "action" | "automatic" | "blind"> = {
  webApp: "action",
  functionApp: "action",
  slot: "action",
  apiManagement: "action",
  containerApp: "automatic",
  job: "blind",
};

/** Kinds of consumers by ID in lower case. */
const kindsOf = (all: AzureCompany) => new Map(all.ids.map(({ id, kind }) => [id.toLowerCase(), kind]));

test(`an application's secret that ${total} use is rotated, each ends as its kind says, and none was ever without one that works`, async () => {
  const app = world.application(`app-${++names}`);
  const all = await populated(app.places[0]!);
  const { rotationId } = await world.start().begin(app.request, BOSS);
  const waits = (await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation })).row;
  const kinds = kindsOf(all);
  expect(waits.consumers).toHaveLength(total);
  for (const { id, how, state } of waits.consumers!) {
    expect([how, state], id).toEqual([
      HOW[kinds.get(id.toLowerCase())!],
      kinds.get(id.toLowerCase()) === "job" ? "unverified" : "verified",
    ]);
  }
  expect(waits.reasons).toHaveLength(NUMBERS.job!);
  await world.start().finish(rotationId, false, BOSS);
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("completed");
  const { values, gaps } = all.working();
  // Each named value is one; the services have two each.
  expect(values).toHaveLength(total + NUMBERS.apiManagement!);
  const current = world.cloud.control.secretValue(VAULT, app.places[0]!);
  for (const { id, value } of values) expect(value === current, id).toBe(true);
  expect(gaps).toEqual([]);
  await holds(world, app, row);
});

const acted = (Object.keys(KINDS) as Kind[]).filter((kind) => HOW[kind] === "action");
/** Each of the consumers that can be acted on; otherwise one that does nothing. */
const FAILING = acted
  .flatMap((kind) => Array.from({ length: KINDS[kind] }, (_, index) => ({ kind, index })))
  .filter(({ kind, index }) => IS_CAMPAIGN || (index === 0 && kind === "apiManagement"));

test.each(FAILING)(
  "where the $kind $index does not take it, all are back on the old value",
  async ({ kind, index }) => {
    const secret = `db-${++names}`;
    const request = world.vaultSecret(secret, OLD, NEW);
    const all = await populated(secret);
    const { consumers } = world.cloud.control;
    const failing = all.ids.filter((one) => one.kind === kind)[index]!.id;
    if (kind === "apiManagement") {
      consumers.plantNamedValue(`${failing}/namedValues/apimanagement-${secret}-${index}-a`, true);
    } else consumers.plantSite(failing, { staysOld: true });
    const { row } = await world.run((await world.start().begin(request, BOSS)).rotationId);
    expect(row, JSON.stringify(row.attention)).toMatchObject({
      status: "rolledBack",
      failure: { code: "consumerFailed" },
    });
    expect(row.failure!.message).toContain(failing.split("/").at(-1));
    touchedAreBack(row);
    // Automatic consumers may have had the new value for a while.
    world.pass(31 * MINUTE_MS);
    const { values, gaps } = all.working();
    for (const { id, value } of values) expect(value, id).toBe(OLD);
    expect(gaps).toEqual([]);
  },
);

test("an app whose reference can't be followed any more is not restarted, and all are back on the old value", async () => {
  const secret = `db-${++names}`;
  const request = world.vaultSecret(secret, OLD, NEW);
  const all = await populated(secret, { webApp: 2 });
  const { consumers } = world.cloud.control;
  const shut = all.ids[1]!.id;
  consumers.allow(shut, VAULT, false);
  const { row } = await world.run((await world.start().begin(request, BOSS)).rotationId);
  expect(row, JSON.stringify(row.attention)).toMatchObject({
    status: "rolledBack",
    failure: { code: "consumerFailed", message: expect.stringMatching(/AccessToKeyVaultDenied/) },
  });
  touchedAreBack(row);
  for (const { id, value } of all.working().values) expect(value, id).toBe(OLD);
  expect(all.working().gaps).toEqual([]);
});

function touchedAreBack({ consumers = [] }: RotationRecord): void {
  expect(consumers.some(({ touchedAt }) => touchedAt !== undefined)).toBe(true);
  for (const { id, touchedAt, state } of consumers) if (touchedAt !== undefined) expect(state, id).toBe("restored");
}

test("an excluded consumer gets no call, and a rejected refresh rolls everything back", async () => {
  const secret = `db-${++names}`;
  const request = world.vaultSecret(secret, OLD, NEW);
  const all = await populated(secret, { webApp: 3, functionApp: 1, apiManagement: 1 });
  const { control } = world.cloud;
  const [first, second, third, ...others] = all.ids.map(({ id }) => id) as [string, string, string, ...string[]];
  const before = control.consumers.calls();
  const calls = (id: string) => (control.consumers.calls()[id.toLowerCase()] ?? 0) - (before[id.toLowerCase()] ?? 0);
  const included = { ...request, includeResources: [first, second], overlapDays: 0 };
  const done = (await world.run((await world.start().begin(included, BOSS)).rotationId)).row;
  expect(done.status).toBe("completed");
  expect(calls(first)).toBeGreaterThan(0);
  for (const id of [third, ...others]) expect(calls(id), id).toBe(0);
  const again = { ...included, value: "value-of-another-try", includeResources: [first, third] };
  control.consumers.change(third, { denied: true });
  const { row } = await world.run((await world.start().begin(again, BOSS)).rotationId);
  expect(row).toMatchObject({ status: "rolledBack", failure: { code: "consumerFailed" } });
  expect(row.failure!.message).toMatch(/Website Contributor/);
  touchedAreBack(row);
  expect(row.consumers!.find(({ id }) => id === third)).toMatchObject({ state: "failed" });
  for (const { id, value } of all.working().values) if (id === first) expect(value).toBe(NEW);
  expect(all.working().gaps).toEqual([]);
});

test("the roles of the templates, and an officer's on the vaults, are enough for it, and nothing asks for more", async () => {
  const secret = `db-${++names}`;
  const request = world.vaultSecret(secret, OLD, NEW);
  await populated(secret, { webApp: 1, slot: 1, apiManagement: 1, containerApp: 1 });
  const { control } = world.cloud;
  const { bicep } = await parseTemplates(readInfraFiles());
  const given = grantsOf(bicep).filter(({ scope }) => scope === "watched" || scope === "rotated");
  const vaults = [VAULT, "kv-lifecycle-service"].flatMap((name) => control.vaultId(name) ?? []);
  const officer = { actions: [], dataActions: ["Microsoft.KeyVault/vaults/secrets/*"] };
  control.allowOnly([
    ...given.map((grant) => ({ ...grant, scope: `/subscriptions/${SUBSCRIPTION}` })),
    ...vaults.map((scope) => ({ ...officer, scope })),
  ]);
  const refused = () => control.requests({}).filter(({ status }) => status === 403).length;
  const before = refused();
  const { row } = await world.run((await world.start().begin({ ...request, overlapDays: 0 }, BOSS)).rotationId);
  expect(row.status).toBe("completed");
  expect(row.consumers!.map(({ state }) => state)).toEqual(["verified", "verified", "verified", "verified"]);
  expect(refused()).toBe(before);
});

test("no value was written down on the way", () =>
  keepsSecrets(world, azurite.connectionString(), [OLD, NEW, "value-of-another-try"]));
