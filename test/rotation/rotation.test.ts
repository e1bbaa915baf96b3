import { keyIdOf } from "simulated-cloud/company/applications.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { createLogs } from "../../shared/dependencies/logs/logs.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createLogAnalytics } from "../../shared/platform/azure/log-analytics.ts";
import { createSignInProof } from "../../shared/platform/azure/sign-in-proof.ts";
import { createVaultSecrets } from "../../shared/platform/azure/vault-secrets.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { unknownConsumers } from "../../shared/rotation/consumer.ts";
import { createRotationHistory } from "../../shared/rotation/history.ts";
import { nextVersion } from "../../shared/rotation/place-content.ts";
import type { RotationRecord } from "../../shared/rotation/rotation.ts";
import { noLogs } from "../../shared/rotation/secret-usage.ts";
import { RUNS, SecretlessPointers, unfinishedRunKey } from "../../shared/rotation/secretless-run.ts";
import { createStepContext } from "../../shared/rotation/step-context.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { SimulatedConsumers } from "./consumers.ts";
import { expectRotationInvariants } from "./invariants.ts";
import { BOSS, VAULT, WorkerCrashed, World } from "./world.ts";

/** Tests of a rotation's steps, from the plan to the removal of the old client secret, with faults of the simulated cloud. */

/** The service's own vault, which stores a copy of a new value until the rotation ends. */
const SERVICE_VAULT = "kv-lifecycle-service";
/** Vault that receives a new value if a rotation must not write the vaults that store the old one. */
const HANDOVER_VAULT = "kv-handover";
let world: World;
let azurite: TestStorage;
let nameCount = 0;
const newAppName = () => `app-${++nameCount}`;

beforeAll(async () => {
  azurite = await openStorage();
  const vaults = [{ name: VAULT }, { name: HANDOVER_VAULT }];
  const subscriptions = [{ id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults }];
  const { cloud, config } = await startTestCloud({ company: { subscriptions } });
  world = new World(cloud, config, azurite.connectionString());
});
afterAll(async () => {
  await world.cloud.stop();
  await azurite.stop();
});
afterEach(() => {
  world.cloud.control.clearFaults();
  world.tier = "pro";
  world.targets = [];
  world.messages.length = 0;
  world.consumers = unknownConsumers();
  world.usage = noLogs;
  world.graphOf = (real) => real;
  // Lags of the directory's replicas: in reads and writes, and how long a new secret can't sign in, then only at some replicas.
  world.cloud.control.directory.set({ readLagSeconds: 0, writesLag: false, signInDelaySeconds: 0, flappingSeconds: 0 });
  world.cloud.control.directory.set({ writeGapMilliseconds: 0 });
});

/**
 * The crash of a worker in its first step, just after the worker took the rotation's lease: its calls 1 and 2 read the rotation and
 * write the lease.
 */
const CRASH_AFTER_LEASE = { callNumber: 3, crashKind: "before" } as const;

/** Entra allows an application with this audience only two client secrets. */
const TWO_SECRETS_AUDIENCE = "AzureADandPersonalMicrosoftAccount";

/** Longer than the 10 minutes in which a new secret must sign in reliably. */
const TOO_LATE_SECONDS = 3600;

type App = ReturnType<World["addApplication"]>;
const control = () => world.cloud.control;
const validKeyIds = ({ appId }: App): string[] =>
  control()
    .directory.secrets(appId)
    .flatMap(({ keyId, removedAt }) => (removedAt === undefined ? [keyId] : []));
const keyIdInPlace = (app: App, place: string) =>
  control().directory.keyIdOf(app.appId, control().secretValue(VAULT, place)!);
const startRotation = async (app: App): Promise<string> => (await world.start().begin(app.request, BOSS)).rotationId;
const runToOverlap = async (app: App) =>
  (await world.run(await startRotation(app), { until: ({ status }) => status === "overlapping" })).row;
const rejection = (code: string, detail?: RegExp) =>
  expect.objectContaining({ code, ...(detail && { message: expect.stringMatching(detail) }) });

async function expectOldSecretRestored(app: App, row: RotationRecord): Promise<void> {
  expect(validKeyIds(app)).toEqual([app.keyId]);
  for (const place of app.places) expect(keyIdInPlace(app, place)).toBe(app.keyId);
  await expectRotationInvariants(world, app, row);
}

test("a rotation replaces a secret in all places and removes the old one after the overlap", async () => {
  const app = world.addApplication(newAppName(), { places: 2 });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "completed", oldKeyId: app.keyId, needsConfirmation: false });
  expect(row.steps.map(({ name, status }) => `${name} ${status}`)).toEqual([
    "create done",
    "prove done",
    "publish done",
    "verify done",
    "overlap done",
    "revoke done",
    "cleanUp done",
  ]);
  expect(validKeyIds(app)).toEqual([row.newKeyId]);
  for (const place of app.places) {
    expect(keyIdInPlace(app, place)).toBe(row.newKeyId);
    const { tags, expires } = control()
      .items(VAULT, "secrets")
      .find((item) => item.name === place)!;
    const ours = { "rotation-id": row.rotationId, "entra-key-id": row.newKeyId, "entra-app-id": app.appId };
    expect(tags).toMatchObject({ owner: "shop@acme.example", CredentialId: row.newKeyId, ...ours });
    expect(Date.parse(expires!)).toBe(Date.parse(row.newExpiresAt!));
  }
  expect(Date.parse(row.endedAt!) - Date.parse(row.createdAt)).toBeGreaterThan(7 * DAY_MS);
  await expectRotationInvariants(world, app, row);
  expect(new Set(world.events.flatMap(({ type, target }) => (target?.id === row.rotationId ? [type] : [])))).toEqual(
    new Set(["rotation.begun", "rotation.secretAdded", "rotation.secretPublished", "rotation.secretRemoved"]),
  );
});

test("a plan changes nothing", async () => {
  const app = world.addApplication(newAppName(), { places: 2 });
  control().resetCounts();
  const plan = await world.start().plan(app.request);
  expect(plan.publications.map(({ secretName }) => secretName)).toEqual(app.places);
  expect(plan.expiryDays).toBe(180);
  const writes = Object.keys(control().counts()).filter((call) => /set|add|remove|update|delete|getSecret/i.test(call));
  expect(writes).toEqual([]);
  expect(world.messages).toEqual([]);
  await expect(world.start().unfinishedOf(app.appId)).resolves.toBeUndefined();
});

test("a secret that can't be rotated is rejected with the reason", async () => {
  const app = world.addApplication(newAppName());
  const plan = (change: object) => world.start().plan({ ...app.request, ...change });
  const unknown = "00000000-0000-4000-8000-000000000000";
  await expect(plan({ appId: unknown })).rejects.toEqual(rejection("notFound", /client id/));
  await expect(plan({ secretId: unknown })).rejects.toEqual(rejection("notFound", /client secret/));
  await expect(plan({ updateKeyVaults: false })).rejects.toEqual(rejection("invalidRequest"));
  const [secrets, certificates] = [[{ name: "old", expiresInDays: 20 }], [{ name: "tls", expiresInDays: 20 }]];
  const both = { name: newAppName(), secrets, certificates };
  const ofBoth = { appId: control().directory.putApplication(both), secretId: keyIdOf(both.name, "Verify tls") };
  await expect(plan(ofBoth)).rejects.toEqual(rejection("notRotatable", /is a certificate of .* client secrets/));
  await expect(plan({ ...ofBoth, secretId: unknown })).rejects.toEqual(rejection("notFound", /client secret/));
  const [place] = app.places;
  world.targets = [world.target(place!, { confidence: "likely" })];
  await expect(plan({})).rejects.toEqual(rejection("notRotatable", /Test or confirm a match/));
  world.targets = [
    world.target(place!, { vaultName: SERVICE_VAULT.toUpperCase(), vaultUri: world.vaultUriOf(SERVICE_VAULT) }),
  ];
  await expect(plan({})).rejects.toEqual(rejection("serviceVault"));
  world.targets = [world.target("never-there")];
  await expect(plan({})).rejects.toEqual(rejection("notRotatable", /no longer exists/));
  control().putSecret(VAULT, { name: "switched-off", value: "value-of-off", enabled: false });
  world.targets = [world.target("switched-off")];
  await expect(plan({})).rejects.toEqual(rejection("notRotatable", /is disabled/));
  control().addFault({ match: { operation: "graph.*" }, action: { kind: "deny" } });
  await expect(plan({})).rejects.toEqual(rejection("unavailable", /Application\.Read\.All/));
});

test("without a license no rotation starts, but a started one ends", async () => {
  const app = world.addApplication(newAppName());
  const rotationId = await startRotation(app);
  await world.run(rotationId, { until: ({ status }) => status === "publishing" });
  world.tier = "core";
  const other = world.addApplication(newAppName());
  await expect(world.start().begin(other.request, BOSS)).rejects.toEqual(rejection("licenseRequired"));
  await expect(world.start().plan(other.request)).rejects.toEqual(rejection("licenseRequired"));
  await expect(world.start().get("01ARZ3NDEKTSV4RRFFQ69G5FAV")).rejects.toEqual(rejection("licenseRequired"));
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("completed");
  await expectRotationInvariants(world, app, row);
});

test("simultaneous requests start one rotation", async () => {
  const app = world.addApplication(newAppName());
  const requests = await Promise.allSettled([1, 2, 3].map(() => world.start().begin(app.request, BOSS)));
  const [first, ...more] = requests.flatMap((one) => (one.status === "fulfilled" ? [one.value.rotationId] : []));
  expect(more).toEqual([]);
  const reasons = requests.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
  expect(reasons).toHaveLength(2);
  for (const reason of reasons)
    expect(reason).toMatchObject({ code: "rotationUnfinished", members: { rotationId: first } });
  expect((await world.run(first!)).row.status).toBe("completed");
  expect(control().directory.secrets(app.appId)).toHaveLength(2);
  // When the rotation has ended, another one may replace the new secret.
  const [keyId] = validKeyIds(app);
  expect(await world.start().begin({ ...app.request, secretId: keyId! }, BOSS)).toMatchObject({ status: "planned" });
});

test("copies of a message send one follow-up while a rotation is leased or not due, and it ends after a crash", async () => {
  const app = world.addApplication(newAppName());
  const rotationId = await startRotation(app);
  world.messages.length = 0;
  const deliverCopies = async () => {
    const workers = Array.from({ length: 20 }, () => world.start());
    await Promise.all(workers.map((worker) => worker.work(rotationId, "copy")));
  };
  const crashing = world.start(CRASH_AFTER_LEASE);
  await expect(crashing.work(rotationId, "crashed")).rejects.toBeInstanceOf(WorkerCrashed);
  expect((await world.start().get(rotationId)).working).toBeDefined();
  for (let deliveries = 0; deliveries < 2; deliveries++) {
    await deliverCopies();
    expect(world.messages).toHaveLength(1);
  }

  const isWaiting = ({ status, dueAt }: RotationRecord) =>
    status === "proving" && Date.parse(dueAt) > world.clock.now().getTime();
  await world.run(rotationId, { until: isWaiting });
  world.messages.length = 0;
  await deliverCopies();
  expect(world.messages).toHaveLength(1);

  const { row } = await world.run(rotationId);
  expect(row.status).toBe("completed");
  await expectRotationInvariants(world, app, row);
});

test("a follow-up that could not be sent is sent by the redelivered message", async () => {
  const app = world.addApplication(newAppName());
  const rotationId = await startRotation(app);
  world.messages.length = 0;
  const crashing = world.start(CRASH_AFTER_LEASE);
  await expect(crashing.work(rotationId, "crashed")).rejects.toBeInstanceOf(WorkerCrashed);
  world.queueFails = true;
  await expect(world.start().work(rotationId, "waits for the lease")).rejects.toThrow("The queue rejects messages.");
  world.queueFails = false;
  for (let deliveries = 0; deliveries < 2; deliveries++) await world.start().work(rotationId, "redelivered");
  expect(world.messages).toHaveLength(1);
  expect((await world.run(rotationId)).row.status).toBe("completed");
});

test("duplicate messages to two workers at once repeat no step", async () => {
  const app = world.addApplication(newAppName(), { places: 2 });
  const rotationId = await startRotation(app);
  const [firstWorker, secondWorker] = [world.start(), world.start()];
  for (let round = 0; round < 40; round++) {
    const row = await firstWorker.get(rotationId);
    if (row.status === "overlapping") break;
    world.messages.length = 0;
    world.advanceClock(Math.max(0, Date.parse(row.dueAt) - world.clock.now().getTime()));
    await Promise.all([
      firstWorker.work(rotationId, "a"),
      secondWorker.work(rotationId, "b"),
      firstWorker.work(rotationId, "c"),
    ]);
  }
  // Drops the duplicates. `run` continues with one message.
  world.messages.length = 1;
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("completed");
  expect(row.attempts).toHaveLength(1);
  const published = world.events.filter(
    ({ type, target, outcome }) =>
      type === "rotation.secretPublished" && target?.id === rotationId && outcome === "success",
  );
  expect(published).toHaveLength(2);
  await expectRotationInvariants(world, app, row);
});

test("a value is published only after repeated successful sign-ins", async () => {
  control().directory.set({ readLagSeconds: 300, writesLag: true, signInDelaySeconds: 90, flappingSeconds: 600 });
  const app = world.addApplication(newAppName());
  // Longer than the read lag: every replica lists the application and its old secret.
  world.advanceClock(10 * MINUTE_MS);
  const row = await world.rotate(app.request);
  expect(row.status).toBe("completed");
  expect(row.proof!.tries).toBeGreaterThan(5);
  await expectRotationInvariants(world, app, row);
});

test("a new secret that never signs in is removed", async () => {
  control().directory.set({ signInDelaySeconds: TOO_LATE_SECONDS });
  const app = world.addApplication(newAppName());
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "failed", failure: { code: "notProven" } });
  await expectOldSecretRestored(app, row);
});

test("an application that can't sign in at all is not changed", async () => {
  const app = world.addApplication(newAppName());
  control().directory.changeApplication(app.appId, { signIn: "disabled" });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "failed", failure: { code: "signInImpossible" } });
  expect(validKeyIds(app)).toEqual([app.keyId]);
});

test("a place that another writer changed is not overwritten, and the rotation is rolled back", async () => {
  const app = world.addApplication(newAppName(), { places: 2 });
  const rotationId = await startRotation(app);
  await world.run(rotationId, { until: ({ publications }) => publications[0]!.state === "written" });
  const manualSecret = control().directory.addSecret(app.appId, { name: "by hand", expiresInDays: 90 });
  control().putSecret(VAULT, { name: app.places[1]!, value: manualSecret.value });
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "rolledBack", failure: { code: "targetChanged" } });
  expect(row.failure!.message).toContain(`${VAULT}/${app.places[1]}`);
  expect(keyIdInPlace(app, app.places[0]!)).toBe(app.keyId);
  expect(keyIdInPlace(app, app.places[1]!)).toBe(manualSecret.keyId);
  expect(validKeyIds(app)).toEqual([app.keyId, manualSecret.keyId]);
});

test("a place that stores an unexpected value is not overwritten", async () => {
  const app = world.addApplication(newAppName());
  control().putSecret(VAULT, { name: app.places[0]!, value: "an unrelated value" });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "failed", failure: { code: "targetHoldsOther" } });
  expect(control().secretValue(VAULT, app.places[0]!)).toBe("an unrelated value");
  expect(validKeyIds(app)).toEqual([app.keyId]);
});

test("a consumer that can't be refreshed causes a rollback", async () => {
  const app = world.addApplication(newAppName(), { places: 2 });
  const consumers = new SimulatedConsumers(world);
  world.consumers = consumers;
  consumers.add(`web-shop-${app.appId}`, app.places[0]!, "action", { refreshFault: "denied" });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({
    status: "rolledBack",
    failure: { code: "consumerFailed", message: expect.stringContaining("web-shop") },
  });
  await expectOldSecretRestored(app, row);
  const { tags } = control()
    .items(VAULT, "secrets")
    .find((item) => item.name === app.places[0])!;
  expect(tags).toEqual({ owner: "shop@acme.example", CredentialId: app.keyId });
});

test("an old secret that a consumer still uses is not removed automatically", async () => {
  const app = world.addApplication(newAppName());
  const consumers = new SimulatedConsumers(world);
  world.consumers = consumers;
  consumers.add("web-late", app.places[0]!, "willBreak");
  // A plan that includes a consumer with `willBreak` is rejected, so this request includes no consumer.
  app.request.includeResources = [];
  // The new secret must outlive the 13 months of this test, because an old secret is not removed without a valid new one.
  app.request.expiryDays = 730;
  const { rotationId } = await runToOverlap(app);
  // The old secret stays valid for 900 days, so for the 13 months of this test only the consumer delays its removal.
  control().directory.expireSecret(app.appId, app.keyId, 900);
  for (let months = 0; months < 13; months++) {
    world.advanceClock(30 * DAY_MS);
    await world.start().continueOverdue();
    for (const message of world.messages.splice(0)) await world.start().work(message.rotationId, "monthly");
  }
  const row = await world.start().get(rotationId);
  expect(row).toMatchObject({ status: "overlapping", needsConfirmation: true });
  expect(row.reasons).toEqual(["webApp web-late still uses the old value."]);
  expect(validKeyIds(app)).toHaveLength(2);
  await expect(world.start().finish(rotationId, false, BOSS)).rejects.toMatchObject({
    code: "notFinishable",
    members: { reasons: row.reasons },
  });
  await world.start().finish(rotationId, true, BOSS);
  const ended = (await world.run(rotationId)).row;
  expect(ended.status).toBe("completed");
  expect(validKeyIds(app)).toEqual([ended.newKeyId]);
  const forced = world.events.find(({ type, target }) => type === "rotation.finished" && target?.id === rotationId);
  expect(forced).toMatchObject({ caller: { actor: "boss" }, details: { force: true } });
});

test("finishing ends the overlap at once if all places store the new secret", async () => {
  const app = world.addApplication(newAppName());
  const { rotationId } = await runToOverlap(app);
  world.targets.push(world.target("somewhere-else", { confidence: "likely" }));
  await expect(world.start().finish(rotationId, false, BOSS)).rejects.toEqual(
    rejection("notFinishable", /somewhere-else/),
  );
  world.targets.pop();
  await world.start().finish(rotationId, false, BOSS);
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("completed");
  expect(Date.parse(row.endedAt!) - Date.parse(row.createdAt)).toBeLessThan(DAY_MS);
  await expect(world.start().finish(rotationId, false, BOSS)).rejects.toEqual(rejection("conflict"));
});

test("a rotation that hands the value over waits for a user", async () => {
  const { config } = world;
  world.config = { ...config, HANDOVER_KEY_VAULT_URL: world.vaultUriOf(HANDOVER_VAULT) };
  const app = world.addApplication(newAppName());
  const { rotationId } = await world.start().begin({ ...app.request, updateKeyVaults: false }, BOSS);
  const { row } = await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  expect(row.publications).toMatchObject([{ vaultName: HANDOVER_VAULT, kind: "handover", state: "written" }]);
  expect(row.reasons.join(" ")).toMatch(/handed over.*stores the old secret/);
  const { secretName } = row.publications[0]!;
  expect(control().directory.keyIdOf(app.appId, control().secretValue(HANDOVER_VAULT, secretName)!)).toBe(row.newKeyId);
  expect(keyIdInPlace(app, app.places[0]!)).toBe(app.keyId);
  await world.start().cancel(rotationId, BOSS);
  expect((await world.run(rotationId)).row.status).toBe("cancelled");
  expect(validKeyIds(app)).toEqual([app.keyId]);
  expect(control().items(HANDOVER_VAULT, "secrets")).toMatchObject([{ name: secretName, enabled: false }]);
  world.config = { ...config, HANDOVER_KEY_VAULT_URL: world.vaultUriOf(SERVICE_VAULT) };
  await expect(world.start().plan({ ...app.request, updateKeyVaults: false })).rejects.toEqual(
    rejection("serviceVault"),
  );
  world.config = config;
});

test.each(["planned", "creating", "proving", "publishing", "verifying", "overlapping"] as const)(
  "cancelling a rotation that is %s restores the previous state",
  async (status) => {
    const app = world.addApplication(newAppName(), { places: 2 });
    if (status === "creating") {
      control().addFault({ match: { operation: "graph.addPassword" }, action: { kind: "loseAnswer" }, times: 1 });
    }
    const rotationId = await startRotation(app);
    await world.run(rotationId, { until: (row) => row.status === status });
    const messagesBefore = world.messages.length;
    await world.start().cancel(rotationId, BOSS);
    // Cancelling sends a message, so the rollback does not wait for the timer.
    const sent = world.messages.slice(messagesBefore);
    expect(sent).toMatchObject([{ rotationId }]);
    expect(sent[0]!.dueAtMs).toBeLessThanOrEqual(world.clock.now().getTime());
    await expect(world.start().cancel(rotationId, BOSS)).resolves.toMatchObject({ rotationId });
    const { row } = await world.run(rotationId);
    expect(row.status).toBe("cancelled");
    await expectOldSecretRestored(app, row);
    await expect(world.start().cancel(rotationId, BOSS)).rejects.toEqual(rejection("conflict", /has ended/));
  },
);

test("cancelling a rotation that needs attention rolls it back", async () => {
  const app = world.addApplication(newAppName());
  const { rotationId } = await runToOverlap(app);
  await world.run(rotationId, { until: ({ status }) => status === "revoking" });
  await world.start().giveUp(rotationId);
  expect(await world.start().cancel(rotationId, BOSS)).toMatchObject({ status: "revoking" });
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("cancelled");
  await expectOldSecretRestored(app, row);
});

test("a rollback ends although the handed-over secret is already disabled, as after a crash before the record", async () => {
  const { config } = world;
  world.config = { ...config, HANDOVER_KEY_VAULT_URL: world.vaultUriOf(HANDOVER_VAULT) };
  const app = world.addApplication(newAppName());
  const { rotationId } = await world.start().begin({ ...app.request, updateKeyVaults: false }, BOSS);
  const { row } = await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  await world.start().cancel(rotationId, BOSS);
  const cloud = { config, identity: createIdentity(config), log: world.log };
  const { vaultName, vaultUri, secretName, writtenVersion } = row.publications[0]!;
  const vault = createVaultSecrets(cloud).open({ name: vaultName, vaultUri });
  await vault.enable(secretName, writtenVersion!, false);
  const ended = (await world.run(rotationId)).row;
  world.config = config;
  expect(ended, JSON.stringify(ended.attention)).toMatchObject({
    status: "cancelled",
    publications: [{ state: "restored" }],
  });
  expect(validKeyIds(app)).toEqual([app.keyId]);
});

test("a delayed request that adds a secret after the cancellation leaves no secret behind", async () => {
  // Workers wait between changes of applications. After 5 seconds the next change is allowed at once.
  world.advanceClock(5000);
  // A first rotation, whose worker does not crash, shows which call of a worker adds the secret.
  const alive = await startRotation(world.addApplication(newAppName()));
  const callsBefore = world.calls.length;
  await world.start().work(alive, "alive");
  const callNumber = world.calls.slice(callsBefore).indexOf("graph.addPassword") + 1;
  expect(callNumber).toBeGreaterThan(0);
  const app = world.addApplication(newAppName());
  world.advanceClock(5000);
  const rotationId = await startRotation(app);
  // The worker of the second rotation crashes at this call. The directory carries the call out later, during the rollback.
  await expect(world.start({ callNumber, crashKind: "late" }).work(rotationId, "dying")).rejects.toThrow(WorkerCrashed);
  const [delayedCall] = world.callsAfterCrash.splice(0);
  await world.start().cancel(rotationId, BOSS);
  await world.run(rotationId, { until: ({ steps }) => steps.some((step) => step.name === "removeNew") });
  await delayedCall!();
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("cancelled");
  // The list includes removed secrets: the delayed call did add one.
  expect(control().directory.secrets(app.appId)).toHaveLength(2);
  await expectOldSecretRestored(app, row);
});

test("an application with the maximum of two secrets is rejected with both key IDs", async () => {
  const secrets = [
    { name: "old", expiresInDays: 20 },
    { name: "second", expiresInDays: 200 },
  ];
  const app = world.addApplication(newAppName(), { secrets, audience: TWO_SECRETS_AUDIENCE });
  await expect(world.start().begin(app.request, BOSS)).rejects.toMatchObject({
    code: "noRoomForSecret",
    members: { keyIds: expect.arrayContaining(validKeyIds(app)) },
  });
});

test("a rotation fails at once if the directory allows no further secret", async () => {
  const app = world.addApplication(newAppName(), { audience: TWO_SECRETS_AUDIENCE });
  const rotationId = await startRotation(app);
  const started = world.clock.now().getTime();
  control().directory.addSecret(app.appId, { name: "of a colleague", expiresInDays: 90 });
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "failed", failure: { code: "noRoomForSecret" } });
  expect(row.attempts.map(({ state }) => state)).toEqual(["refused"]);
  // The directory rejected the request, so no secret can appear later and the rotation does not wait.
  expect(world.clock.now().getTime() - started).toBeLessThan(MINUTE_MS);
  expect(validKeyIds(app)).not.toContain(row.newKeyId);
});

test("a forced finish does not remove the last unexpired client secret", async () => {
  const app = world.addApplication(newAppName());
  const { rotationId, newKeyId } = await runToOverlap(app);
  control().directory.removeSecret(app.appId, newKeyId!);
  await world.start().finish(rotationId, true, BOSS);
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "needsAttention", attention: { code: "lastCredential" } });
  expect(row.attention!.message).toMatch(/has no other client secret that has not expired/);
  expect(validKeyIds(app)).toEqual([app.keyId]);
});

test("a forced finish does not remove the old secret if the new one is gone, although another secret is valid", async () => {
  const secrets = [
    { name: "old", expiresInDays: 20 },
    { name: "second", expiresInDays: 200 },
  ];
  const app = world.addApplication(newAppName(), { secrets });
  const { rotationId, newKeyId } = await runToOverlap(app);
  control().directory.removeSecret(app.appId, newKeyId!);
  // The place has the old value again, so its consumers still need the old secret.
  control().putSecret(VAULT, { name: app.places[0]!, value: app.oldValue });
  await world.start().finish(rotationId, true, BOSS);
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "needsAttention", attention: { code: "newSecretGone" } });
  expect(row.attention!.message).toContain(`the secret ${newKeyId} that replaces it is not in the directory`);
  expect(validKeyIds(app)).toContain(app.keyId);
});

test.each([
  ["deleted", (place: string) => control().remove(VAULT, "secrets", place)],
  ["disabled", (place: string) => control().change(VAULT, "secrets", place, { enabled: false })],
])("a failed rotation does not remove its new secret while the place is %s, and notes that", async (_, change) => {
  const app = world.addApplication(newAppName());
  const rotationId = await startRotation(app);
  await world.run(rotationId, { until: ({ status }) => status === "publishing" });
  change(app.places[0]!);
  const { row } = await world.run(rotationId);
  expect(row.status, JSON.stringify(row)).toBe("failed");
  expect(row.notes).toEqual([expect.stringMatching(`${row.newKeyId} was not removed: .* was deleted or disabled`)]);
  expect(validKeyIds(app)).toEqual([app.keyId, row.newKeyId]);
});

test("a rollback does not remove the new secret while another vault secret certainly holds it", async () => {
  const app = world.addApplication(newAppName());
  const { rotationId, newKeyId } = await runToOverlap(app);
  const value = control().secretValue(VAULT, app.places[0]!)!;
  const copy = `${app.places[0]}-copy`;
  control().putSecret(VAULT, { name: copy, value });
  world.targets.push({ ...world.target(copy, { knownAs: "new" }), appId: app.appId });
  await world.start().cancel(rotationId, BOSS);
  const waiting = (await world.run(rotationId)).row;
  expect(waiting).toMatchObject({ status: "cancelled", notes: [expect.stringContaining(`${VAULT}/${copy} holds it`)] });
  expect(validKeyIds(app)).toEqual([app.keyId, newKeyId]);
});

test("a rollback does not remove the new secret while another vault secret may hold it and does not answer", async () => {
  const app = world.addApplication(newAppName());
  const { rotationId, newKeyId } = await runToOverlap(app);
  const unanswered = new CloudFailure("unreachable", "The vault does not answer.", { remedy: "Wait." });
  world.targets.push({
    ...world.target("silent", { vaultName: "kv-silent", confidence: "likely", knownAs: "new", unanswered }),
    appId: app.appId,
  });
  await world.start().cancel(rotationId, BOSS);
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "cancelled", notes: [expect.stringContaining("The vault does not answer.")] });
  expect(validKeyIds(app)).toEqual([app.keyId, newKeyId]);
});

test("consumers that can't be read keep the old secret until a user finishes the rotation", async () => {
  const app = world.addApplication(newAppName());
  const unread = ["A stored consumer can't be read."];
  world.consumers = { ...unknownConsumers(), findConsumers: async () => ({ consumers: [], coverage: unread, unread }) };
  const rotationId = await startRotation(app);
  const { row } = await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  expect([row.status, row.reasons]).toEqual(["overlapping", unread]);
  await world.start().finish(rotationId, false, BOSS);
  expect((await world.run(rotationId)).row.status).toBe("completed");
});

test("a failed rotation does not remove the only valid client secret", async () => {
  const app = world.addApplication(newAppName());
  control().directory.expireSecret(app.appId, app.keyId, -1);
  control().directory.set({ signInDelaySeconds: TOO_LATE_SECONDS });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "failed", failure: { code: "notProven" } });
  expect(row.notes).toEqual([expect.stringMatching(`${row.newKeyId} was not removed: .* no other client secret`)]);
  expect(validKeyIds(app)).toEqual([app.keyId, row.newKeyId]);
});

test("a rotation that is denied access to its target fails and notes that the new secret remains", async () => {
  const app = world.addApplication(newAppName());
  const rotationId = await startRotation(app);
  await world.run(rotationId, { until: ({ status }) => status === "publishing" });
  control().addFault({ match: { operation: "keyvault.*", vault: VAULT }, action: { kind: "deny" } });
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "failed", failure: { code: "accessDenied" } });
  expect(row.notes).toEqual([expect.stringMatching(`${row.newKeyId} was not removed`)]);
  expect(validKeyIds(app)).toEqual([app.keyId, row.newKeyId]);
  await expect(world.start().unfinishedOf(app.appId)).resolves.toBeUndefined();
});

test("a failed rotation retains the stored copy of the only valid client secret", async () => {
  const app = world.addApplication(newAppName());
  const rotationId = await startRotation(app);
  await world.run(rotationId, { until: ({ status }) => status === "proving" });
  control().directory.removeSecret(app.appId, app.keyId);
  const { row } = await world.run(rotationId);
  expect(validKeyIds(app)).toEqual([row.newKeyId]);
  const copyNames = control()
    .items(SERVICE_VAULT, "secrets")
    .map((item) => item.name);
  expect(copyNames).toContain(`rotation-${rotationId}-${row.newKeyId}`);
  expect(row.notes.join(" ")).toContain(`rotation-${rotationId}-${row.newKeyId}`);
});

test("an expired secret is removed only if the request allows it", async () => {
  const secrets = [
    { name: "old", expiresInDays: 20 },
    { name: "expired", expiresInDays: -20 },
  ];
  const app = world.addApplication(newAppName(), { secrets, audience: TWO_SECRETS_AUDIENCE });
  await expect(world.start().begin(app.request, BOSS)).rejects.toEqual(rejection("noRoomForSecret", /removeExpired/));
  app.request.removeExpired = true;
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "completed", removeExpired: expect.any(String) });
  expect(validKeyIds(app)).toEqual([row.newKeyId]);
  await expectRotationInvariants(world, app, row);
});

test("the tenant's policy limits the lifetime of a new secret", async () => {
  const app = world.addApplication(newAppName());
  control().directory.changeApplication(app.appId, { policy: { longestDays: 60 } });
  const plan = await world.start().plan({ ...app.request, expiryDays: 90 });
  expect(plan).toMatchObject({ expiryDays: 60, notes: [expect.stringContaining("from 90 to 60 days")] });
  control().directory.changeApplication(app.appId, { policy: { longestDays: 0 } });
  await expect(world.start().plan(app.request)).rejects.toEqual(rejection("notRotatable", /less than a day/));
  control().directory.changeApplication(app.appId, { policy: { additionRefused: true } });
  await expect(world.start().plan(app.request)).rejects.toEqual(rejection("notRotatable", /policy/));
});

test("a limited lifetime is accepted by a directory whose clock is five minutes behind", async () => {
  const app = world.addApplication(newAppName());
  control().directory.changeApplication(app.appId, { policy: { longestDays: 60 } });
  const { rotationId } = await world.start().begin({ ...app.request, expiryDays: 90 }, BOSS);
  const { now } = world.clock;
  world.clock.now = () => new Date(now().getTime() + 5 * MINUTE_MS);
  const { row } = await world.run(rotationId, { until: ({ newKeyId }) => newKeyId !== undefined });
  world.clock.now = now;
  expect(row.newKeyId, JSON.stringify(row.failure)).toBeDefined();
  await world.start().cancel(rotationId, BOSS);
  await world.run(rotationId);
});

test("a plan accepts IDs in upper case and is rejected during a rotation", async () => {
  const app = world.addApplication(newAppName());
  expect(await world.start().plan({ ...app.request, appId: app.appId.toUpperCase() })).toMatchObject({
    appId: app.appId,
  });
  const rotationId = await startRotation(app);
  await expect(world.start().plan(app.request)).rejects.toMatchObject({ code: "rotationUnfinished" });
  await world.start().cancel(rotationId, BOSS);
  await world.run(rotationId);
});

test("a secret whose response was lost is removed although the directory lists it late", async () => {
  control().directory.set({ readLagSeconds: 280, writesLag: true });
  const app = world.addApplication(newAppName());
  // Longer than the read lag: every replica lists the application.
  world.advanceClock(10 * MINUTE_MS);
  control().addFault({ match: { operation: "graph.addPassword" }, action: { kind: "loseAnswer" }, times: 2 });
  const row = await world.rotate(app.request);
  expect(row.status).toBe("completed");
  expect(row.attempts.map(({ state }) => state)).toEqual(["removed", "removed", "made"]);
  expect(validKeyIds(app)).toEqual([row.newKeyId]);
  await expectRotationInvariants(world, app, row);
});

test("a rotation completes despite lost responses and temporary errors", async () => {
  const app = world.addApplication(newAppName(), { places: 2 });
  const lose = { kind: "loseAnswer" as const };
  control().addFault({ match: { operation: "graph.removePassword" }, action: lose, times: 1 });
  control().addFault({
    match: { operation: "graph.addPassword" },
    action: { kind: "refuse", as: "concurrent400" },
    times: 1,
  });
  control().addFault({ match: { operation: "keyvault.setSecret", vault: VAULT }, action: lose, times: 1 });
  control().addFault({ match: { operation: "keyvault.getSecret" }, action: { kind: "fail", status: 503 }, times: 3 });
  const row = await world.rotate(app.request);
  expect(row.status).toBe("completed");
  await expectRotationInvariants(world, app, row);
});

test("repeated unclear responses fail the rotation and leave no secret behind", async () => {
  const app = world.addApplication(newAppName());
  control().addFault({ match: { operation: "graph.addPassword" }, action: { kind: "fail", status: 400 } });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "failed", failure: { code: "notCreated" } });
  await expectOldSecretRestored(app, row);
});

test("a directory that denies access fails the rotation without a change", async () => {
  const app = world.addApplication(newAppName());
  control().addFault({ match: { operation: "graph.addPassword" }, action: { kind: "deny" } });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "failed", failure: { code: "accessDenied" }, attempts: [{ state: "refused" }] });
  await expectOldSecretRestored(app, row);
});

test("a secret whose response was lost is removed if it occupies the last slot", async () => {
  const app = world.addApplication(newAppName(), { audience: TWO_SECRETS_AUDIENCE });
  // No replica lists the lost secret before the rotation requests the next one.
  let listsNewSecrets = false;
  let additions = 0;
  world.graphOf = (real) => ({
    ...real,
    findApplication: async (id) => {
      const application = await real.findApplication(id);
      return (
        application && {
          ...application,
          passwords: application.passwords.filter(({ keyId }) => listsNewSecrets || keyId === app.keyId),
        }
      );
    },
    addPassword: (...wanted) =>
      real.addPassword(...wanted).finally(() => {
        additions++;
        listsNewSecrets = additions > 1;
      }),
  });
  control().addFault({ match: { operation: "graph.addPassword" }, action: { kind: "loseAnswer" }, times: 1 });
  const row = await world.rotate(app.request);
  expect(row.status, JSON.stringify(row.failure)).toBe("completed");
  expect(row.attempts.map(({ state }) => state)).toEqual(["removed", "refused", "made"]);
  expect(validKeyIds(app)).toEqual([row.newKeyId]);
  await expectRotationInvariants(world, app, row);
});

test.each([
  ["the expiry date of the directory's response", -HOUR_MS],
  ["the requested expiry date if the response has none", undefined],
] as const)("a new secret is written with %s", async (_, expiryShiftMs) => {
  const app = world.addApplication(newAppName());
  let requestedExpiryMs = 0;
  world.graphOf = (real) => ({
    ...real,
    addPassword: async (objectId, wanted) => {
      requestedExpiryMs = wanted.expiresOn * 1000;
      const { expiresOn: _expiresOn, ...password } = await real.addPassword(objectId, wanted);
      return expiryShiftMs === undefined
        ? password
        : { ...password, expiresOn: (requestedExpiryMs + expiryShiftMs) / 1000 };
    },
  });
  const row = await runToOverlap(app);
  const written = control()
    .items(VAULT, "secrets")
    .find((item) => item.name === app.places[0])!;
  const expiryDates = [row.newExpiresAt!, written.expires!].map((instant) => Date.parse(instant));
  expect(expiryDates).toEqual([requestedExpiryMs + (expiryShiftMs ?? 0), requestedExpiryMs + (expiryShiftMs ?? 0)]);
  await world.start().cancel(row.rotationId, BOSS);
  await world.run(row.rotationId);
});

test("a vault that denies access causes a rollback", async () => {
  const app = world.addApplication(newAppName(), { places: 2 });
  const match = { operation: "keyvault.setSecret", item: app.places[1]! };
  control().addFault({ match, action: { kind: "deny" } });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "rolledBack", failure: { code: "accessDenied" } });
  expect(row.failure!.remedy).toContain("Key Vault Secrets Officer");
  await expectOldSecretRestored(app, row);
});

test("a blocked rotation reports what it did, what is safe and what to do next", async () => {
  const app = world.addApplication(newAppName());
  const { rotationId, newKeyId } = await runToOverlap(app);
  control().addFault({ match: { operation: "graph.removePassword" }, action: { kind: "deny" } });
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "needsAttention", attention: { code: "accessDenied" } });
  expect(row.attention!.done).toContain(newKeyId);
  expect(row.attention!.safe).toMatch(/new client secret .* stays/);
  expect(row.attention!.next).toMatch(/Application\.ReadWrite\.OwnedBy.*retry/s);
  await expect(world.start().begin(app.request, BOSS)).rejects.toEqual(rejection("rotationUnfinished"));
  control().clearFaults();
  await world.start().retry(rotationId, BOSS);
  const ended = (await world.run(rotationId)).row;
  expect(ended.status).toBe("completed");
  await expectRotationInvariants(world, app, ended);
  await expect(world.start().retry(rotationId, BOSS)).rejects.toEqual(rejection("conflict"));
});

test("the attention entry describes the state of the rotation at each step", async () => {
  const app = world.addApplication(newAppName());
  const rotationId = await startRotation(app);
  // Stops the rotation as the poison queue does, reads its attention entry, and lets the rotation continue.
  const readEntry = async (id = rotationId) => {
    await world.start().giveUp(id);
    const { attention } = await world.start().get(id);
    await world.start().retry(id, BOSS);
    return attention;
  };
  const common = {
    code: "internal",
    message: "The service failed repeatedly at this step.",
    since: expect.stringMatching(/Z$/),
  };
  const log = "Find the errors in the service's log by this rotation's ID. Report them if their cause is unclear.";
  const nextSteps = `${log} Then retry this rotation, or cancel it, which rolls everything back.`;
  const { appName } = await world.start().get(rotationId);
  expect(await readEntry()).toEqual({
    ...common,
    done: `No new client secret of ${appName} is in use. No vault holds the new value.`,
    safe: `The old client secret ${app.keyId} was not touched.`,
    next: nextSteps,
    resume: "planned",
  });
  const { newKeyId } = (await world.run(rotationId, { until: ({ status }) => status === "publishing" })).row;
  const secretAdded = `The client secret ${newKeyId} was added to ${appName}.`;
  const oldSecretSafe = `The old client secret ${app.keyId} was not removed. While the rotation waits, it removes no secret that it did not create.`;
  expect(await readEntry()).toEqual({
    ...common,
    done: `${secretAdded} No vault holds the new value.`,
    safe: oldSecretSafe,
    next: nextSteps,
    resume: "publishing",
  });
  await world.run(rotationId, { until: ({ status }) => status === "overlapping" });
  expect(await readEntry()).toEqual({
    ...common,
    done: `${secretAdded} The new value was written to ${VAULT}/${app.places[0]}.`,
    safe: oldSecretSafe,
    next: nextSteps,
    resume: "overlapping",
  });
  await world.start().cancel(rotationId, BOSS);
  await world.run(rotationId, { until: ({ publications }) => publications[0]!.state === "restored" });
  expect(await readEntry()).toEqual({
    ...common,
    done: `${secretAdded} No vault holds the new value. ${VAULT}/${app.places[0]} got the previous value again.`,
    safe: oldSecretSafe,
    next: `${log} Then retry this rotation, which continues the rollback.`,
    resume: "overlapping",
  });
  expect((await world.run(rotationId)).row.status).toBe("cancelled");

  const request = world.addVaultSecret(newAppName(), "value-before", "value-after");
  const ofVault = (await world.start().begin(request, BOSS)).rotationId;
  expect(await readEntry(ofVault)).toEqual({
    ...common,
    done: "No vault holds the new value.",
    safe: "The version with the old value is still in the vault and can be read.",
    next: nextSteps,
    resume: "planned",
  });
  expect((await world.run(ofVault)).row.status).toBe("completed");
});

test("an old value that no longer signs in is not restored", async () => {
  const app = world.addApplication(newAppName());
  const { rotationId, newKeyId } = await runToOverlap(app);
  control().directory.removeSecret(app.appId, app.keyId);
  await world.start().cancel(rotationId, BOSS);
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "needsAttention", attention: { code: "previousValueDead" } });
  expect(keyIdInPlace(app, app.places[0]!)).toBe(newKeyId);
  await world.start().finish(rotationId, false, BOSS);
  expect((await world.run(rotationId)).row.status).toBe("completed");
  expect(validKeyIds(app)).toEqual([newKeyId]);
});

test("the old secret is not removed if the new one was deleted", async () => {
  const app = world.addApplication(newAppName());
  const { rotationId, newKeyId } = await runToOverlap(app);
  control().directory.removeSecret(app.appId, newKeyId!);
  const { row } = await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  expect(row.reasons.join(" ")).toContain(newKeyId);
  expect(validKeyIds(app)).toEqual([app.keyId]);
});

describe("a removal of the old secret that was interrupted", () => {
  /** Runs a rotation until its removal of the old secret needs attention: the directory answers that it is forbidden. */
  async function interruptRemoval() {
    const app = world.addApplication(newAppName());
    const { rotationId, newKeyId } = await runToOverlap(app);
    control().addFault({ match: { operation: "graph.removePassword" }, action: { kind: "deny" } });
    const { row } = await world.run(rotationId);
    expect([row.status, row.revokingSince]).toEqual(["needsAttention", expect.any(String)]);
    control().clearFaults();
    return { app, rotationId, newKeyId: newKeyId! };
  }

  test("completes if the secret is gone although the place and the new secret are gone too", async () => {
    const { app, rotationId, newKeyId } = await interruptRemoval();
    for (const keyId of [app.keyId, newKeyId]) control().directory.removeSecret(app.appId, keyId);
    control().remove(VAULT, "secrets", app.places[0]!);
    await world.start().retry(rotationId, BOSS);
    expect((await world.run(rotationId)).row.status).toBe("completed");
  });

  test("can be finished by force although the place is gone", async () => {
    const { app, rotationId, newKeyId } = await interruptRemoval();
    control().remove(VAULT, "secrets", app.places[0]!);
    await world.start().retry(rotationId, BOSS);
    expect((await world.run(rotationId)).row.attention?.code).toBe("placeGone");
    await expect(world.start().finish(rotationId, false, BOSS)).rejects.toEqual(rejection("conflict", /force/));
    await world.start().finish(rotationId, true, BOSS);
    expect((await world.run(rotationId)).row.status).toBe("completed");
    expect(validKeyIds(app)).toEqual([newKeyId]);
  });

  test("can be cancelled while the directory lists the secret, once no late request can remove it", async () => {
    const { app, rotationId } = await interruptRemoval();
    await expect(world.start().cancel(rotationId, BOSS)).rejects.toEqual(rejection("conflict"));
    // A request to remove the secret has no effect after two minutes.
    world.advanceClock(2 * MINUTE_MS);
    await world.start().cancel(rotationId, BOSS);
    const { row } = await world.run(rotationId);
    expect(row.status).toBe("cancelled");
    await expectOldSecretRestored(app, row);
  });
});

test("workers change applications of a tenant one at a time", async () => {
  control().directory.set({ writeGapMilliseconds: 1000 });
  const apps = [1, 2, 3].map(() => world.addApplication(newAppName()));
  const ids = await Promise.all(apps.map((app) => startRotation(app)));
  world.log.lines.length = 0;
  const rows = () => Promise.all(ids.map((id) => world.start().get(id)));
  for (let rounds = 0; rounds < 100; rounds++) {
    if ((await rows()).every(({ status }) => status === "proving")) break;
    const due = world.messages.splice(0);
    world.advanceClock(Math.max(0, Math.min(...due.map(({ dueAtMs }) => dueAtMs)) - world.clock.now().getTime()));
    const [first, second, ...rest] = due.map(
      ({ rotationId }) =>
        () =>
          world.start().work(rotationId, "together"),
    );
    await Promise.all([first?.(), second?.()]);
    for (const work of rest) await work();
  }
  for (const row of await rows()) expect(row).toMatchObject({ status: "proving", attempts: [{ state: "made" }] });
  expect(world.log.lines.filter((line) => line.includes("concurrency"))).toEqual([]);
});

test("a repeated rotation replaces the service's tags and retains the others", () => {
  const otherTags = Object.fromEntries(
    Array.from({ length: 10 }, (_, index) => [`own-${index}`, index === 0 ? "of key-1" : "x"]),
  );
  const record = { rotationId: "first", appId: "app", oldKeyId: "key-0", newKeyId: "key-1" } as RotationRecord;
  const first = nextVersion(record, { tags: otherTags, contentType: "x:app:key-0" }, "one", new Date(0));
  const again = {
    ...record,
    rotationId: "second",
    oldKeyId: "key-1",
    newKeyId: "key-2",
    newExpiresAt: "1970-01-02T00:00:00.999Z",
  };
  expect(nextVersion(again, { ...first, tags: first.tags ?? {} }, "two", new Date(DAY_MS))).toEqual({
    value: "two",
    contentType: "x:app:key-2",
    expiresOn: 86_400,
    tags: {
      ...otherTags,
      "own-0": "of key-2",
      "rotation-id": "second",
      "entra-key-id": "key-2",
      "entra-app-id": "app",
      "managed-by": first.tags?.["managed-by"],
      "rotated-at": "1970-01-02T00:00:00.000Z",
    },
  });
});

test("a worker that needs the directory lease waits about as long as the lease is old, 3 to 30 seconds", async () => {
  const tables = world.tables();
  const { clock } = world;
  const changed: string[] = [];
  /** Changes an application while the store reports that the lease was taken or released some time ago. */
  const changeApplication = async (worker: string, leaseAgeMs?: number, meanwhile = async () => {}) => {
    const getWithAge: typeof tables.getWithAge = async (...row) => {
      const lease = await tables.getWithAge(...row);
      return lease && { ...lease, ageMs: leaseAgeMs ?? lease.ageMs };
    };
    const context = createStepContext(
      { tables: { ...tables, getWithAge }, clock, randomness: systemRandomness() } as never,
      {} as never,
      worker,
      BOSS,
    );
    return await context.withDirectoryLease(async () => {
      changed.push(worker);
      await meanwhile();
    });
  };
  const retryAfter = (seconds: number) => expect.objectContaining({ name: "ContinueLater", seconds });
  // A released lease can be taken after 2 seconds. A lease that a worker has can be taken after 5 minutes: the worker crashed.
  await changeApplication("first", 5 * MINUTE_MS);
  await expect(changeApplication("too early", 0)).rejects.toEqual(retryAfter(2));
  await expect(changeApplication("too early", 1_999)).rejects.toEqual(retryAfter(2));
  await changeApplication("second", 2_000, async () => {
    for (const [ageMs, seconds] of [
      [0, 3],
      [3_000, 3],
      [3_001, 4],
      [29_001, 30],
      [299_999, 30],
    ] as const)
      await expect(changeApplication("meanwhile", ageMs)).rejects.toEqual(retryAfter(seconds));
    await changeApplication("after the second crashed", 5 * MINUTE_MS);
  });
  expect(changed).toEqual(["first", "second", "after the second crashed"]);
});

test("a crash during the request leaves either no rotation or one that runs", async () => {
  let startedCount = 0;
  for (let callNumber = 1; ; callNumber++) {
    const app = world.addApplication(newAppName());
    world.messages.length = 0;
    const failure = await world
      .start({ callNumber, crashKind: callNumber % 2 ? "before" : "after" })
      .begin(app.request, BOSS)
      .catch((error: unknown) => error);
    if (!(failure instanceof WorkerCrashed)) break;
    const rotationId = await world.start().unfinishedOf(app.appId);
    if (rotationId === undefined) continue;
    startedCount++;
    const { row } = await world.run(rotationId, { until: ({ status }) => status === "proving" });
    expect(row.attempts).toHaveLength(1);
  }
  expect(startedCount).toBeGreaterThan(2);
});

test("a version that another writer creates during the write needs attention", async () => {
  const app = world.addApplication(newAppName());
  const rotationId = await startRotation(app);
  await world.run(rotationId, { until: ({ status }) => status === "publishing" });
  const { config, log } = world;
  const otherWriter = createVaultSecrets({ config, identity: createIdentity(config), log });
  const vault = otherWriter.open({ name: VAULT, vaultUri: world.vaultUriOf(VAULT) });
  // The first call signs in, so that the write below takes no extra time.
  await vault.versions(app.places[0]!);
  const fault = control().addFault({
    match: { operation: "keyvault.setSecret", vault: VAULT },
    action: { kind: "latency", milliseconds: 1_500 },
    times: 1,
  });
  world.advanceClock(5000);
  const runningRotation = world.run(rotationId);
  const isWriting = () =>
    control()
      .faults()
      .some(({ id, happened }) => id === fault && happened > 0);
  await vi.waitUntil(isWriting, { timeout: 150_000, interval: 5 });
  const { version } = await vault.write(app.places[0]!, { value: "value-of-theirs" });
  const { row } = await runningRotation;
  expect(row).toMatchObject({ status: "needsAttention", attention: { code: "targetChangedMeanwhile" } });
  expect(row.attention!.message).toContain(version);
  await world.start().retry(rotationId, BOSS);
  expect((await world.run(rotationId)).row.status).toBe("completed");
});

test("the history is filtered, sorted newest first and purged", async () => {
  const app = world.addApplication(newAppName());
  const rotationId = await startRotation(app);
  const rotations = world.start();
  const page = { limit: 10, offset: 0, cursor: undefined };
  const list = async (filter: object) => (await rotations.history({ subject: app.appId, ...filter }, page)).items;
  expect(await list({ status: "planned" })).toMatchObject([{ rotationId }]);
  const { row } = await world.run(rotationId);
  expect(await list({ status: "planned" })).toEqual([]);
  expect(await list({ status: "completed" })).toMatchObject([{ rotationId, newKeyId: row.newKeyId }]);
  const createdAtMs = Date.parse(row.createdAt);
  expect(await list({ start: new Date(createdAtMs - HOUR_MS), end: new Date(createdAtMs + HOUR_MS) })).toHaveLength(1);
  expect(await list({ start: new Date(createdAtMs + HOUR_MS) })).toEqual([]);
  expect(await list({ end: new Date(createdAtMs - HOUR_MS) })).toEqual([]);
  const all = await rotations.history({}, { ...page, limit: 2 });
  const next = await rotations.history({}, { limit: 2, offset: 0, cursor: all.nextCursor! });
  const ids = [...all.items, ...next.items].map((one) => one.rotationId);
  expect(ids).toEqual([...new Set(ids)].sort().reverse());
  expect(all.total).toBe(next.total);

  const events = [];
  for await (const some of rotations.events()) events.push(...some);
  expect(events.filter((one) => one.rotationId === rotationId)).toMatchObject([{ status: "completed" }]);
  const open = world.addApplication(newAppName());
  const unfinished = await startRotation(open);
  world.advanceClock(400 * DAY_MS);
  const cut = { retentionDays: 365, before: new Date(world.clock.now().getTime() - 365 * DAY_MS) };
  const purged = await rotations.store().purge(cut, BOSS);
  expect(purged.removed).toBeGreaterThan(0);
  expect(purged.more).toBe(false);
  expect(await list({})).toEqual([]);
  await expect(rotations.get(rotationId)).rejects.toEqual(rejection("notFound"));
  expect(await rotations.get(unfinished)).toMatchObject({ status: "planned" });
  for await (const some of rotations.events()) expect(some).toEqual([]);
});

test("no rotation of an application changes anything while a run replaces its client secret", async () => {
  const app = world.addApplication(newAppName());
  const rotations = world.start();
  const tables = world.tables();
  const insertPointer = () => tables.insert(SecretlessPointers, RUNS, unfinishedRunKey(app.appId), { runId: "RUN-1" });
  await insertPointer();
  await expect(rotations.begin(app.request, BOSS)).rejects.toEqual(rejection("conflict", /RUN-1/));
  await tables.remove(SecretlessPointers, RUNS, unfinishedRunKey(app.appId));
  // The run is stored after the rotation was planned.
  const rotationId = await startRotation(app);
  await insertPointer();
  const { row } = await world.run(rotationId);
  expect([row.status, row.failure?.code]).toEqual(["failed", "replacementUnfinished"]);
  await tables.remove(SecretlessPointers, RUNS, unfinishedRunKey(app.appId));
  await expectOldSecretRestored(app, row);
});

test("the history counts up to 10,000 rotations and returns the page at any offset", async () => {
  const listPage = async (count: number, offset: number) => {
    const rows = Array.from({ length: count }, (_, index) => ({
      rowKey: `x${String(index).padStart(5, "0")}`,
      rotationId: index,
    }));
    async function* pages(_: unknown, { after = "", pageSize = 1000 }: { after?: string; pageSize?: number }) {
      for (let start = rows.findIndex(({ rowKey }) => rowKey > after); start >= 0 && start < count; start += pageSize)
        yield rows.slice(start, start + pageSize);
    }
    const history = createRotationHistory({ pages } as never, undefined as never);
    const { items, total, totalAtLeast } = await history.list({}, { limit: 2, offset, cursor: undefined });
    return { items: items.map(({ rotationId }) => rotationId), total, totalAtLeast };
  };
  expect(await listPage(2_500, 0)).toEqual({ items: [0, 1], total: 2_500 });
  expect(await listPage(2_500, 999)).toEqual({ items: [999, 1_000], total: 2_500 });
  expect(await listPage(2_500, 1_000)).toEqual({ items: [1_000, 1_001], total: 2_500 });
  expect(await listPage(2_500, 2_499)).toEqual({ items: [2_499], total: 2_500 });
  expect(await listPage(2_500, 2_501)).toEqual({ items: [], total: 2_500 });
  expect(await listPage(10_000, 5)).toEqual({ items: [5, 6], total: 10_000 });
  expect(await listPage(10_001, 5)).toEqual({ items: [5, 6], total: null, totalAtLeast: 10_000 });
});

const workspace = () => control().logs.getOrThrow("law-operations");
/** Connects the rotations to the Log Analytics workspace of the simulated cloud. */
function enableLogAnalytics(): void {
  const config = { ...world.config, LOG_ANALYTICS_WORKSPACE_IDS: [workspace().id] };
  const identity = createIdentity(config);
  const { log, clock } = world;
  world.usage = createLogs({
    tables: world.tables(),
    config,
    logAnalytics: createLogAnalytics({ config, identity, log }),
    ownObjectId: async () => (await identity.describe()).objectId,
    settings: undefined as never,
    inventory: undefined as never,
    unusedChanged: async () => {},
    clock,
    randomness: systemRandomness(),
  }).usage;
}
/** Adds a log entry that `caller` read this version of the vault secret, at the cloud's current time. */
const logSecretRead = (caller: string, place: string, version: string) =>
  control().logs.addEvent("law-operations", {
    table: "AZKVAuditLogs",
    at: Date.parse(control().now()),
    operation: "SecretGet",
    vaultId: control().vaultId(VAULT)!,
    id: `${world.vaultUriOf(VAULT)}/secrets/${place}/${version}`,
    requestUri: `${world.vaultUriOf(VAULT)}/secrets/${place}`,
    status: 200,
    objectId: caller,
    appId: caller,
  });
const currentVersion = (place: string) =>
  control()
    .items(VAULT, "secrets")
    .find((item) => item.name === place)!.version;
const runUntil = async (rotationId: string, until: (row: RotationRecord) => boolean = (row) => row.needsConfirmation) =>
  (await world.run(rotationId, { until })).row;

test("an application that read the old version delays the removal", async () => {
  enableLogAnalytics();
  const app = world.addApplication(newAppName());
  const [place] = app.places as [string];
  const old = currentVersion(place);
  const row = await runToOverlap(app);
  const { rotationId } = row;
  const overlapStartedAt = world.clock.now().getTime();
  const [oldVersionReader, newVersionReader] = [
    "33333333-3333-4333-8333-333333333333",
    "44444444-4444-4444-8444-444444444444",
  ];
  logSecretRead(oldVersionReader, place, old);
  logSecretRead(newVersionReader, place, old);
  world.advanceClock(HOUR_MS);
  logSecretRead(newVersionReader, place, currentVersion(place));
  // The hourly dependency discovery reads the log in the same way.
  await world.usage.unreadSignIns();

  const waits = await runUntil(rotationId);
  expect(world.clock.now().getTime() - overlapStartedAt).toBeGreaterThan(7 * DAY_MS - HOUR_MS);
  expect(waits).toMatchObject({
    status: "overlapping",
    reasons: [expect.stringContaining(`${oldVersionReader} read the old version ${old} of ${VAULT}/${place}`)],
  });
  // Missing reads do not prove that the reader has the new version.
  const now = () => world.clock.now().getTime();
  for (let day = 0; day < 2; day++) {
    world.advanceClock(DAY_MS + HOUR_MS);
    const { status, reasons } = await runUntil(rotationId, ({ dueAt }) => Date.parse(dueAt) > now());
    expect([status, reasons.length]).toEqual(["overlapping", 1]);
  }
  expect(now() - overlapStartedAt).toBeGreaterThan(9 * DAY_MS);
  expect(validKeyIds(app)).toContain(app.keyId);
  await expect(world.start().finish(rotationId, false, BOSS)).rejects.toEqual(
    rejection("notFinishable", new RegExp(oldVersionReader)),
  );

  logSecretRead(oldVersionReader, place, currentVersion(place));
  world.advanceClock(HOUR_MS);
  expect((await world.run(rotationId)).row).toMatchObject({ status: "completed", reasons: [] });
  expect(validKeyIds(app)).toEqual([row.newKeyId]);
});

test("a sign-in with the old secret delays its removal for 24 hours", async () => {
  enableLogAnalytics();
  const app = world.addApplication(newAppName());
  const value = control().secretValue(VAULT, app.places[0]!)!;
  const { rotationId } = await runToOverlap(app);
  // Two hours before the overlap ends.
  world.advanceClock(7 * DAY_MS - 2 * HOUR_MS);
  const { kind } = await createSignInProof(world.config)(app.appId, value, world.cloud.app.tenantId);
  expect(kind).toBe("accepted");
  const signedInAt = world.clock.now().getTime();
  const signedIn = await runUntil(rotationId);
  const timePattern = "[\\d-]{10}T\\d\\d:\\d\\d:\\d\\dZ";
  expect(signedIn.reasons).toEqual([
    expect.stringMatching(`^The old secret ${app.keyId} signed in at ${timePattern}, less than 24 hours ago\\.$`),
  ]);

  // Meanwhile the 24 hours pass. Without logs, there may be later sign-ins.
  const fault = control().addFault({ match: { operation: "loganalytics.query" }, action: { kind: "deny" } });
  const unread = await runUntil(rotationId, ({ reasons }) => !reasons.some((one) => one.includes("signed in")));
  expect(unread.reasons).toEqual([
    expect.stringMatching(
      `^Sign-ins may be missing: the workspace ${workspace().id} can't be read now. .*Log Analytics`,
    ),
  ]);
  control().removeFault(fault);
  expect((await world.run(rotationId)).row.status).toBe("completed");
  expect(world.clock.now().getTime() - signedInAt).toBeGreaterThan(DAY_MS);
  expect(JSON.stringify([world.sent, world.events, world.log.lines])).not.toContain(value);
});
