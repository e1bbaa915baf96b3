import { Dice } from "simulated-cloud/company/dice.ts";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { type PlannedConsumer, unknownConsumers } from "../../shared/rotation/consumer.ts";
import type { RotationRecord } from "../../shared/rotation/rotation.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { type RefreshFault, SimulatedConsumers } from "./consumers.ts";
import { expectNoValueStored } from "./invariants.ts";
import { BOSS, type SimulatedCrash, VAULT, World } from "./world.ts";

/**
 * Tests of rotations of a vault secret with up to 40 simulated consumers. In a campaign, the long test run, workers crash at
 * 30 moments of each scenario, and each consumer that can be refreshed fails once.
 */

/** The service's own vault, which stores a copy of a new value until the rotation ends. */
const SERVICE_VAULT = "kv-lifecycle-service";
const OLD_VALUE = "value-before-everything";
const NEW_VALUE = "value-that-is-new";

let world: World;
let azurite: TestStorage;
let consumers: SimulatedConsumers;
let secretCount = 0;

beforeAll(async () => {
  azurite = await openStorage();
  const subscriptions = [{ id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }] }];
  const { cloud, config } = await startTestCloud({ company: { subscriptions } });
  world = new World(cloud, config, azurite.connectionString());
});
afterAll(async () => {
  await world.cloud.stop();
  await azurite.stop();
});
beforeEach(() => resetWorld());

function resetWorld(): void {
  world.tier = "pro";
  world.targets = [];
  world.messages.length = 0;
  consumers = new SimulatedConsumers(world);
  world.consumers = consumers;
}

const control = () => world.cloud.control;
const createSecretRequest = () => world.addVaultSecret(`db-password-${++secretCount}`, OLD_VALUE, NEW_VALUE);
type SecretRequest = ReturnType<typeof createSecretRequest>;
const storedValue = ({ secret: { secretName } }: SecretRequest) => control().secretValue(VAULT, secretName);
const stateOf = (row: RotationRecord, id: string) => row.consumers!.find((one) => one.id === id)!.state;
const rejection = (code: string, detail?: RegExp) =>
  expect.objectContaining({ code, ...(detail && { message: expect.stringMatching(detail) }) });

/**
 * Number of consumers by refresh method, 40 in total: refreshed by the rotation (action), reloading by themselves (automatic),
 * or neither refreshable nor readable (blind).
 */
const CONSUMER_COUNTS: { how: PlannedConsumer["how"]; number: number }[] = [
  { how: "action", number: 20 },
  { how: "automatic", number: 12 },
  { how: "blind", number: 8 },
];

function addFortyConsumers(secretName: string, faulty?: { id: string; refreshFault: RefreshFault }): void {
  for (const { how, number } of CONSUMER_COUNTS) {
    for (let index = 0; index < number; index++) {
      const id = `${how}-${index}`;
      // The consumer that is added last affects the fewest other resources (`blast`), so it is refreshed first.
      const rest = { blast: number - index, ...(id === faulty?.id && { refreshFault: faulty.refreshFault }) };
      consumers.add(id, secretName, how, rest);
    }
  }
}

/**
 * Checks that consumers used only the old or the new value, and that the vault and each refreshed consumer have the value of the
 * outcome: the new one if the rotation completed, otherwise the old one. The state of a consumer is `waiting` until its refresh.
 */
function expectNoConsumerBroken(request: SecretRequest, row: RotationRecord): void {
  for (const { id, value } of consumers.usedValues) expect([OLD_VALUE, NEW_VALUE], id).toContain(value);
  const storedCopies = control()
    .items(SERVICE_VAULT, "secrets")
    .filter(({ name }) => name.includes(row.rotationId));
  expect(storedCopies).toEqual([]);
  const expectedValue = row.status === "completed" ? NEW_VALUE : OLD_VALUE;
  expect(storedValue(request)).toBe(expectedValue);
  for (const { id, state, how } of row.consumers!) {
    if (how === "action" && state !== "waiting") expect(consumers.valueOf(id), `${id} is ${state}`).toBe(expectedValue);
  }
}

const startRotation = async (request: SecretRequest) => (await world.start().begin(request, BOSS)).rotationId;

test("a secret with 40 consumers gets a new value", async () => {
  const request = createSecretRequest();
  addFortyConsumers(request.secret.secretName);
  const rotationId = await startRotation(request);
  const waits = (await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation })).row;
  for (const { id, how, state } of waits.consumers!) {
    expect(state, id).toBe(how === "blind" ? "unverified" : "verified");
  }
  expect(waits.reasons).toHaveLength(8);
  expect(waits.reasons[0]).toMatch(/The service can't tell which value webApp blind-\d uses/);
  // Consumers are refreshed once each, the one with the smallest blast first.
  expect(consumers.refreshed).toEqual(Array.from({ length: 20 }, (_, index) => `action-${19 - index}`));
  expect(consumers.calls.filter(({ id }) => id.startsWith("blind"))).toEqual([]);
  await world.start().finish(rotationId, false, BOSS);
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "completed", needsConfirmation: false });
  expect(row.steps.map(({ name }) => name)).toEqual(["publish", "verify", "overlap", "cleanUp"]);
  const { tags, expires } = control()
    .items(VAULT, "secrets")
    .find(({ name }) => name === request.secret.secretName)!;
  expect(tags).toMatchObject({ owner: "shop@acme.example", "rotation-id": rotationId });
  expect(Date.parse(expires!)).toBe(Math.floor(Date.parse(row.newExpiresAt!) / 1000) * 1000);
  expectNoConsumerBroken(request, row);
  const began = world.events.filter(({ type, target }) => type === "rotation.begun" && target?.id === rotationId);
  const places = [`${VAULT}/${request.secret.secretName}`];
  // Two entries: the intent, and the result.
  expect(began.map(({ details }) => details)).toEqual(
    [1, 2].map(() => ({
      assetId: `${VAULT}.secret.${request.secret.secretName}`,
      expiryDays: 180,
      places,
      automatic: false,
    })),
  );
});

/**
 * A write without a response is repeated. If the first write takes effect after the second one, the secret gets another version
 * with the same value.
 */
test.each<[string, (row: RotationRecord) => boolean, boolean]>([
  ["before a consumer is refreshed", ({ publications }) => publications[0]!.state === "written", false],
  ["after a consumer was refreshed", ({ consumers }) => consumers!.some(({ state }) => state === "acted"), false],
  ["while consumers reload the secret", ({ status }) => status === "overlapping", false],
  ["before consumers are restored", ({ publications }) => publications[0]!.state === "restored", true],
])("a delayed write that takes effect %s changes no outcome", async (_, isMoment, isCancelled) => {
  const request = createSecretRequest();
  const { secretName } = request.secret;
  consumers.add("web-refreshed", secretName, "action");
  consumers.add("web-reloading", secretName, "automatic");
  const rotationId = await startRotation(request);
  if (isCancelled) {
    await world.run(rotationId, { until: ({ status }) => status === "overlapping" });
    await world.start().cancel(rotationId, BOSS);
  }
  expect(isMoment((await world.run(rotationId, { until: isMoment })).row)).toBe(true);
  const { tags = {} } = control()
    .items(VAULT, "secrets")
    .find(({ name }) => name === secretName)!;
  control().putSecret(VAULT, { name: secretName, value: storedValue(request)!, tags });
  const { row } = await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  const outcome = { status: isCancelled ? "cancelled" : "completed", needsConfirmation: false };
  expect(row, row.reasons?.join(" ")).toMatchObject(outcome);
  expectNoConsumerBroken(request, row);
});

const REFRESH_FAULTS: RefreshFault[] = ["denied", "never takes it", "says it can't", "throttled"];
/**
 * Each refreshable consumer fails once in a campaign. The normal suite has one that rejects the refresh (16: "denied") and one
 * that can't read (18: "says it can't").
 */
const FAILING_CONSUMERS = Array.from({ length: 20 }, (_, index) => ({
  id: `action-${index}`,
  refreshFault: REFRESH_FAULTS[index % REFRESH_FAULTS.length]!,
})).filter((_, index) => IS_CAMPAIGN || index === 16 || index === 18);

test.each(FAILING_CONSUMERS)(
  "if $id fails ($refreshFault), all refreshed consumers return to the old value",
  async (faultyConsumer) => {
    const request = createSecretRequest();
    addFortyConsumers(request.secret.secretName, faultyConsumer);
    const { row } = await world.run(await startRotation(request));
    expect(row).toMatchObject({ status: "rolledBack", failure: { code: "consumerFailed" } });
    expect(row.failure!.message).toContain(faultyConsumer.id);
    // Consumers are refreshed from action-19 down to the faulty one, which counts unless it rejected the refresh.
    const rejectsRefresh = faultyConsumer.refreshFault === "denied" || faultyConsumer.refreshFault === "throttled";
    const refreshedCount = (rejectsRefresh ? 19 : 20) - Number(faultyConsumer.id.split("-")[1]);
    expect(row.consumers!.filter(({ touchedAt }) => touchedAt !== undefined)).toHaveLength(refreshedCount);
    for (const one of row.consumers!) {
      const stateWithoutRefresh =
        one.id === faultyConsumer.id ? "failed" : one.how === "blind" ? "unverified" : "waiting";
      const expected = one.touchedAt !== undefined ? "restored" : stateWithoutRefresh;
      expect(one.state, one.id).toBe(expected);
    }
    expectNoConsumerBroken(request, row);
  },
);

test("a rotation refreshes the included consumers only", async () => {
  const request = createSecretRequest();
  const { secretName } = request.secret;
  consumers.add("in-1", secretName, "action");
  consumers.add("in-2", secretName, "automatic");
  consumers.add("out-1", secretName, "action");
  consumers.add("out-2", secretName, "blind");
  consumers.add("pinned", secretName, "willBreak");
  control().resetCounts();
  await expect(startRotation(request)).rejects.toEqual(rejection("willBreak", /pinned.*includeResources/));
  await expect(startRotation({ ...request, includeResources: ["in-1", "no-one"] })).rejects.toEqual(
    rejection("invalidRequest", /no-one/),
  );
  expect(Object.keys(control().counts()).filter((call) => /setSecret/.test(call))).toEqual([]);
  const { row } = await world.run(await startRotation({ ...request, includeResources: ["IN-1", "in-2"] }));
  expect(row.status).toBe("completed");
  expect(new Set(consumers.calls.map(({ id }) => id))).toEqual(new Set(["in-1", "in-2"]));
  expect(row.consumers!.map(({ id, included, state }) => [id, included, state])).toEqual([
    ["in-1", true, "verified"],
    ["in-2", true, "verified"],
    ["out-1", false, "unverified"],
    ["out-2", false, "unverified"],
    ["pinned", false, "unverified"],
  ]);
});

test("without verification each consumer is refreshed once and none is restored", async () => {
  const request = { ...createSecretRequest(), skipVerification: true };
  consumers.add("good", request.secret.secretName, "action", { blast: 1 });
  consumers.add("slow", request.secret.secretName, "action", { blast: 2, refreshFault: "never takes it" });
  const rotationId = await startRotation(request);
  const { row } = await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  expect(row.reasons).toEqual(["webApp slow still uses the old value."]);
  expect(consumers.refreshed).toEqual(["good", "slow"]);
  consumers.consumersById.get("slow")!.refreshFault = undefined;
  await expect(world.start().finish(rotationId, false, BOSS)).rejects.toEqual(rejection("notFinishable"));
  await consumers.refresh(row.consumers![1]!, {
    ...request.secret,
    version: row.publications[0]!.writtenVersion!,
    restart: false,
    value: async () => NEW_VALUE,
  });
  await world.start().finish(rotationId, false, BOSS);
  expect((await world.run(rotationId)).row.status).toBe("completed");
});

test("a consumer that can't be restored needs attention after all others are restored", async () => {
  const request = createSecretRequest();
  const { secretName } = request.secret;
  for (const [index, id] of ["first", "second", "last"].entries()) {
    consumers.add(id, secretName, "action", { blast: index, ...(id === "last" && { refreshFault: "never takes it" }) });
  }
  const rotationId = await startRotation(request);
  await world.run(rotationId, { until: (row) => stateOf(row, "last") === "acted" });
  consumers.consumersById.get("first")!.refreshFault = "denied";
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "needsAttention", attention: { code: "consumerNotRestored" } });
  expect(row.attention!.done).toMatch(
    /Refreshed to take it: webApp first\..*Consumers with the previous value again: webApp second, webApp last/,
  );
  expect(consumers.valueOf("first")).toBe(NEW_VALUE);
  consumers.consumersById.get("first")!.refreshFault = undefined;
  await world.start().retry(rotationId, BOSS);
  const ended = (await world.run(rotationId)).row;
  expect(ended.status).toBe("rolledBack");
  expectNoConsumerBroken(request, ended);
});

test("more consumers than a table row can store are rejected before the secret is written", async () => {
  const request = createSecretRequest();
  const { vaultName, secretName } = request.secret;
  const many = Array.from({ length: 1000 }, (_, index): PlannedConsumer => {
    const id = `/subscriptions/${"1".repeat(36)}/resourceGroups/shop/providers/Microsoft.Web/sites/shop-backend-${index}`;
    const one = { id, kind: "webApp", name: `shop-backend-${index}`, vaultName, secretName, evidence: "DB_PASSWORD" };
    return { ...one, how: "action", slowestSeconds: 0, blast: 1 };
  });
  world.consumers = { ...unknownConsumers(), findConsumers: async () => ({ consumers: many, coverage: [] }) };
  await expect(startRotation(request)).rejects.toEqual(rejection("notRotatable", /^1000 consumers/));
  expect(storedValue(request)).toBe(OLD_VALUE);
});

// `finish` with force also continues a rollback that a consumer blocks.
test("a forced finish skips a consumer that can't be restored", async () => {
  const request = createSecretRequest();
  const { secretName } = request.secret;
  consumers.add("gone", secretName, "action", { blast: 1, copy: true });
  consumers.add("last", secretName, "action", { blast: 2, refreshFault: "never takes it" });
  const { rotationId } = await world.start().begin(request, BOSS);
  await world.run(rotationId, { until: (row) => stateOf(row, "last") === "acted" });
  consumers.consumersById.get("gone")!.refreshFault = "denied";
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "needsAttention", attention: { code: "consumerNotRestored" } });
  await expect(world.start().finish(rotationId, false, BOSS)).rejects.toEqual(
    rejection("notFinishable", /webApp gone/),
  );
  await world.start().finish(rotationId, true, BOSS);
  const ended = (await world.run(rotationId)).row;
  expect(ended.status).toBe("rolledBack");
  expect([stateOf(ended, "gone"), stateOf(ended, "last")]).toEqual(["left", "restored"]);
  expect(ended.notes.join(" ")).toMatch(/Left unchanged by decision of a user: webApp gone/);
  expect(storedValue(request)).toBe(OLD_VALUE);
  consumers.consumersById.delete("last");
  consumers.consumersById.get("gone")!.refreshFault = undefined;
  expect((await world.run(await startRotation(request))).row.status).toBe("completed");
});

test("a consumer that is not included keeps the old client secret from being removed", async () => {
  const app = world.addApplication(`shop-${++secretCount}`);
  const [place] = app.places as [string];
  consumers.add("included", place, "action");
  consumers.add("left-out", place, "action");
  const rotationId = (await world.start().begin({ ...app.request, includeResources: ["included"] }, BOSS)).rotationId;
  const { row } = await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  expect(row.reasons).toEqual(["webApp left-out still uses the old value."]);
  expect(consumers.refreshed).toEqual(["included"]);
  const used = (id: string) => control().directory.keyIdOf(app.appId, consumers.valueOf(id));
  expect([used("included"), used("left-out")]).toEqual([row.newKeyId, app.keyId]);
  const left = row.consumers!.find(({ id }) => id === "left-out")!;
  await consumers.refresh(left, {
    ...left,
    version: row.publications[0]!.writtenVersion!,
    restart: false,
    value: async () => "",
  });
  expect((await world.run(rotationId)).row.status).toBe("completed");
});

test("a rollback keeps the new secret of an application while a consumer may hold it", async () => {
  const live = (appId: string) =>
    control()
      .directory.secrets(appId)
      .filter(({ removedAt }) => removedAt === undefined);
  const app = world.addApplication(`blind-${++secretCount}`);
  consumers.add("nobody-sees", app.places[0]!, "blind");
  consumers.add("takes-its-time", app.places[0]!, "automatic", { slowestSeconds: 7200 });
  consumers.add("fails", app.places[0]!, "action", { refreshFault: "says it can't" });
  consumers.consumersById.get("nobody-sees")!.planned.slowestSeconds = 60;
  const { row } = await world.run((await world.start().begin(app.request, BOSS)).rotationId);
  expect(row).toMatchObject({ status: "rolledBack", attempts: [{ state: "left" }] });
  expect(row.notes.join(" ")).toMatch(/not removed.*nobody-sees/);
  expect(live(app.appId)).toHaveLength(2);
  // Without the blind consumer the secret is removed as soon as the slow one has the old value again.
  consumers.consumersById.delete("nobody-sees");
  const other = world.addApplication(`slow-${++secretCount}`);
  consumers.consumersById.clear();
  consumers.add("takes-its-time", other.places[0]!, "automatic", { slowestSeconds: 7200 });
  const { rotationId } = await world.start().begin(other.request, BOSS);
  await world.run(rotationId, { until: (now) => stateOf(now, "takes-its-time") === "verified" });
  await world.start().cancel(rotationId, BOSS);
  const cancelledAtMs = world.clock.now().getTime();
  const ended = (await world.run(rotationId)).row;
  expect(ended).toMatchObject({ status: "cancelled", attempts: [{ state: "removed" }] });
  expect(Date.parse(ended.endedAt!) - cancelledAtMs).toBeGreaterThan(HOUR_MS / 2);
  expect(control().directory.keyIdOf(other.appId, consumers.valueOf("takes-its-time"))).toBe(other.keyId);
  expect(live(other.appId)).toHaveLength(1);
});

test("cancellation during the overlap restores the vault secret and its consumers", async () => {
  const request = { ...createSecretRequest(), overlapDays: 7 };
  consumers.add("web", request.secret.secretName, "action");
  const rotationId = await startRotation(request);
  await world.run(rotationId, { until: ({ status }) => status === "overlapping" });
  expect(consumers.valueOf("web")).toBe(NEW_VALUE);
  await expect(startRotation(request)).rejects.toMatchObject({ code: "rotationUnfinished", members: { rotationId } });
  await world.start().cancel(rotationId, BOSS);
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("cancelled");
  expect(stateOf(row, "web")).toBe("restored");
  expectNoConsumerBroken(request, row);
});

test("the stored copy of a new value is removed if its rotation was never recorded", async () => {
  const storedCopies = () =>
    control()
      .items(SERVICE_VAULT, "secrets")
      .filter(({ name }) => name.startsWith("rotation-"));
  let startedCount = 0;
  for (let callNumber = 1; startedCount < 3; callNumber++) {
    for (const crashKind of ["before", "after"] as const) {
      const request = createSecretRequest();
      try {
        const { rotationId } = await world.start({ callNumber, crashKind }).begin(request, BOSS);
        expect((await world.run(rotationId)).row.status).toBe("completed");
        startedCount++;
      } catch (error) {
        expect(String(error)).toContain("WorkerCrashed");
        const asset = `${VAULT}.secret.${request.secret.secretName}`;
        const unfinished = await world.start().unfinishedOf(asset);
        if (unfinished !== undefined) await world.run(unfinished);
      }
    }
    expect(callNumber).toBeLessThan(40);
  }
  world.advanceClock(2 * HOUR_MS);
  await world.start().continueOverdue();
  expect(storedCopies()).toEqual([]);
  // A copy without a rotation is removed after an hour at the earliest, because its request may still record the rotation.
  for (let callNumber = 1; storedCopies().length === 0; callNumber++)
    await world
      .start({ callNumber, crashKind: "after" })
      .begin(createSecretRequest(), BOSS)
      .catch(() => {});
  world.advanceClock(HOUR_MS - MINUTE_MS);
  await world.start().continueOverdue();
  expect(storedCopies()).toHaveLength(1);
  world.advanceClock(2 * MINUTE_MS);
  await world.start().continueOverdue();
  expect(storedCopies()).toEqual([]);
});

/** Number of moments at which a worker crashes, spread over the calls of a rotation. */
const CRASH_COUNT = IS_CAMPAIGN ? 30 : 2;

test.each(["completed", "rolledBack"] as const)(
  "a rotation that ends %s handles all consumers correctly after a worker crash",
  async (finalStatus) => {
    const rotateWithCrash = async (crash?: SimulatedCrash) => {
      resetWorld();
      const request = createSecretRequest();
      const { secretName } = request.secret;
      for (const [index, id] of ["a", "b", "c", "d"].entries())
        consumers.add(id, secretName, "action", { blast: index });
      consumers.add("own-time", secretName, "automatic");
      if (finalStatus === "rolledBack") consumers.consumersById.get("d")!.refreshFault = "never takes it";
      const callsBefore = world.calls.length;
      const { row, crashCount } = await world.run(await startRotation(request), crash ? { crash } : {});
      expect(row.status, JSON.stringify([crash, row.attention])).toBe(finalStatus);
      for (const { id, how, state } of row.consumers!) {
        const back = how === "action" ? "restored" : "waiting";
        expect(state, `${id} ${JSON.stringify(crash)}`).toBe(finalStatus === "completed" ? "verified" : back);
      }
      expectNoConsumerBroken(request, row);
      return { crashCount, calls: world.calls.length - callsBefore };
    };
    const { calls } = await rotateWithCrash();
    const dice = new Dice(SEED);
    let crashes = 0;
    // The worker crashes before or after one of its calls, or before a call that the network still delivers later ("late").
    for (let moment = 0; moment < CRASH_COUNT; moment++) {
      const callNumber = 1 + Math.floor(((moment + dice.next()) * calls) / CRASH_COUNT);
      crashes += (await rotateWithCrash({ callNumber, crashKind: (["before", "after", "late"] as const)[moment % 3]! }))
        .crashCount;
    }
    expect(crashes).toBeGreaterThan(0);
    if (IS_CAMPAIGN) console.log(`${finalStatus}: ${crashes} crashes, ${calls} calls of a rotation without one`);
  },
);

test("no secret value is logged, stored, sent or audited", () =>
  expectNoValueStored(world, azurite.connectionString(), [OLD_VALUE, NEW_VALUE]));
