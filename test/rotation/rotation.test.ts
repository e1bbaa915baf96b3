import { keyIdOf } from "simulated-cloud/company/applications.ts";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { createLogs } from "../../shared/dependencies/logs/logs.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createLogAnalytics } from "../../shared/platform/azure/log-analytics.ts";
import { createSignInProof } from "../../shared/platform/azure/sign-in-proof.ts";
import { createVaultSecrets } from "../../shared/platform/azure/vault-secrets.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { unknownConsumers } from "../../shared/rotation/consumer.ts";
import { createRotationHistory } from "../../shared/rotation/history.ts";
import { nextVersion } from "../../shared/rotation/publications.ts";
import type { RotationRecord } from "../../shared/rotation/rotation.ts";
import { noLogs } from "../../shared/rotation/secret-usage.ts";
import { createStepContext } from "../../shared/rotation/step-context.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { Company } from "./consumers.ts";
import { holds } from "./invariants.ts";
import { BOSS, Died, VAULT, World } from "./world.ts";

const OWN = "kv-lifecycle-service";
const HANDOVER = "kv-handover";
let world: World;
let azurite: TestStorage;
let names = 0;
const name = () => `app-${++names}`;

beforeAll(async () => {
  azurite = await openStorage();
  const vaults = [{ name: VAULT }, { name: HANDOVER }];
  const subscriptions = [{ id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults }];
  const { cloud, config } = await liveIn({ company: { subscriptions } });
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
  world.cloud.control.directory.set({ readLagSeconds: 0, writesLag: false, signInDelaySeconds: 0, flappingSeconds: 0 });
  world.cloud.control.directory.set({ writeGapMilliseconds: 0 });
});

type App = ReturnType<World["application"]>;
const control = () => world.cloud.control;
const live = ({ appId }: App): string[] =>
  control()
    .directory.secrets(appId)
    .flatMap(({ keyId, removedAt }) => (removedAt === undefined ? [keyId] : []));
const holder = (app: App, place: string) =>
  control().directory.keyIdOf(app.appId, control().secretValue(VAULT, place)!);
const startRotation = async (app: App): Promise<string> => (await world.start().begin(app.request, BOSS)).rotationId;
const overlapping = async (app: App) =>
  (await world.run(await startRotation(app), { until: ({ status }) => status === "overlapping" })).row;
const refused = (code: string, detail?: RegExp) =>
  expect.objectContaining({ code, ...(detail && { message: expect.stringMatching(detail) }) });

async function putBack(app: App, row: RotationRecord): Promise<void> {
  expect(live(app)).toEqual([app.keyId]);
  for (const place of app.places) expect(holder(app, place)).toBe(app.keyId);
  await holds(world, app, row);
}

test("a secret is replaced everywhere, and the old one removed after the overlap", async () => {
  const app = world.application(name(), { places: 2 });
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
  expect(live(app)).toEqual([row.newKeyId]);
  for (const place of app.places) {
    expect(holder(app, place)).toBe(row.newKeyId);
    const { tags, expires } = control()
      .items(VAULT, "secrets")
      .find((item) => item.name === place)!;
    const ours = { "rotation-id": row.rotationId, "entra-key-id": row.newKeyId, "entra-app-id": app.appId };
    expect(tags).toMatchObject({ owner: "shop@acme.example", CredentialId: row.newKeyId, ...ours });
    expect(Date.parse(expires!)).toBe(Date.parse(row.newExpiresAt!));
  }
  expect(Date.parse(row.endedAt!) - Date.parse(row.createdAt)).toBeGreaterThan(7 * DAY_MS);
  await holds(world, app, row);
  expect(new Set(world.events.flatMap(({ type, target }) => (target?.id === row.rotationId ? [type] : [])))).toEqual(
    new Set(["rotation.begun", "rotation.secretAdded", "rotation.secretPublished", "rotation.secretRemoved"]),
  );
});

test("a plan says what would be done, and does nothing", async () => {
  const app = world.application(name(), { places: 2 });
  control().resetCounts();
  const plan = await world.start().plan(app.request);
  expect(plan.publications.map(({ secretName }) => secretName)).toEqual(app.places);
  expect(plan.expiryDays).toBe(180);
  const writes = Object.keys(control().counts()).filter((call) => /set|add|remove|update|delete|getSecret/i.test(call));
  expect(writes).toEqual([]);
  expect(world.messages).toEqual([]);
  await expect(world.start().unfinishedOf(app.appId)).resolves.toBeUndefined();
});

test("what can't be rotated is refused with the reason", async () => {
  const app = world.application(name());
  const plan = (change: object) => world.start().plan({ ...app.request, ...change });
  const unknown = "00000000-0000-4000-8000-000000000000";
  await expect(plan({ appId: unknown })).rejects.toEqual(refused("notFound", /client id/));
  await expect(plan({ secretId: unknown })).rejects.toEqual(refused("notFound", /client secret/));
  await expect(plan({ updateKeyVaults: false })).rejects.toEqual(refused("invalidRequest"));
  const [secrets, certificates] = [[{ name: "old", expiresInDays: 20 }], [{ name: "tls", expiresInDays: 20 }]];
  const both = { name: name(), secrets, certificates };
  const ofBoth = { appId: control().directory.putApplication(both), secretId: keyIdOf(both.name, "Verify tls") };
  await expect(plan(ofBoth)).rejects.toEqual(refused("notRotatable", /is a certificate of .* client secrets/));
  await expect(plan({ ...ofBoth, secretId: unknown })).rejects.toEqual(refused("notFound", /client secret/));
  const [place] = app.places;
  world.targets = [world.target(place!, { confidence: "likely" })];
  await expect(plan({})).rejects.toEqual(refused("notRotatable", /Confirm a match/));
  world.targets = [world.target(place!, { vaultName: OWN.toUpperCase(), vaultUri: world.uriOf(OWN) })];
  await expect(plan({})).rejects.toEqual(refused("serviceVault"));
  world.targets = [world.target("never-there")];
  await expect(plan({})).rejects.toEqual(refused("notRotatable", /no longer exists/));
  control().putSecret(VAULT, { name: "switched-off", value: "value-of-off", enabled: false });
  world.targets = [world.target("switched-off")];
  await expect(plan({})).rejects.toEqual(refused("notRotatable", /is disabled/));
  control().addFault({ match: { operation: "graph.*" }, action: { kind: "deny" } });
  await expect(plan({})).rejects.toEqual(refused("unavailable", /Application\.Read\.All/));
});

test("nothing new begins without a licence, and what began ends", async () => {
  const app = world.application(name());
  const rotationId = await startRotation(app);
  await world.run(rotationId, { until: ({ status }) => status === "publishing" });
  world.tier = "core";
  const other = world.application(name());
  await expect(world.start().begin(other.request, BOSS)).rejects.toEqual(refused("licenseRequired"));
  await expect(world.start().plan(other.request)).rejects.toEqual(refused("licenseRequired"));
  await expect(world.start().get("01ARZ3NDEKTSV4RRFFQ69G5FAV")).rejects.toEqual(refused("licenseRequired"));
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("completed");
  await holds(world, app, row);
});

test("two rotations asked for at once are one", async () => {
  const app = world.application(name());
  const asked = await Promise.allSettled([1, 2, 3].map(() => world.start().begin(app.request, BOSS)));
  const [first, ...more] = asked.flatMap((one) => (one.status === "fulfilled" ? [one.value.rotationId] : []));
  expect(more).toEqual([]);
  const reasons = asked.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
  expect(reasons).toHaveLength(2);
  for (const reason of reasons)
    expect(reason).toMatchObject({ code: "rotationUnfinished", members: { rotationId: first } });
  expect((await world.run(first!)).row.status).toBe("completed");
  expect(control().directory.secrets(app.appId)).toHaveLength(2);
  // After it another may begin, of the new secret.
  const [keyId] = live(app);
  expect(await world.start().begin({ ...app.request, secretId: keyId! }, BOSS)).toMatchObject({ status: "planned" });
});

test("messages that come twice, to two workers at once, do everything once", async () => {
  const app = world.application(name(), { places: 2 });
  const rotationId = await startRotation(app);
  const [one, two] = [world.start(), world.start()];
  for (let turns = 0; turns < 40; turns++) {
    const row = await one.get(rotationId);
    if (row.status === "overlapping") break;
    world.messages.length = 0;
    world.pass(Math.max(0, Date.parse(row.dueAt) - world.clock.now().getTime()));
    await Promise.all([one.work(rotationId, "a"), two.work(rotationId, "b"), one.work(rotationId, "c")]);
  }
  world.messages.length = 1;
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("completed");
  expect(row.attempts).toHaveLength(1);
  const published = world.events.filter(
    ({ type, target, outcome }) =>
      type === "rotation.secretPublished" && target?.id === rotationId && outcome === "success",
  );
  expect(published).toHaveLength(2);
  await holds(world, app, row);
});

test("no value is published before spaced sign-ins held, while new secrets flap and reads lag", async () => {
  control().directory.set({ readLagSeconds: 300, writesLag: true, signInDelaySeconds: 90, flappingSeconds: 600 });
  const app = world.application(name());
  world.pass(10 * MINUTE_MS);
  const row = await world.rotate(app.request);
  expect(row.status).toBe("completed");
  expect(row.proof!.tries).toBeGreaterThan(5);
  await holds(world, app, row);
});

test("a secret that never signs in is removed again", async () => {
  control().directory.set({ signInDelaySeconds: 86_400 });
  const app = world.application(name());
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "failed", failure: { code: "notProven" } });
  await putBack(app, row);
});

test("an application that can't sign in at all is not changed", async () => {
  const app = world.application(name());
  control().directory.changeApplication(app.appId, { signIn: "disabled" });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "failed", failure: { code: "signInImpossible" } });
  expect(live(app)).toEqual([app.keyId]);
});

test("a place that another writer changed is not overwritten, and the others are rolled back", async () => {
  const app = world.application(name(), { places: 2 });
  const rotationId = await startRotation(app);
  await world.run(rotationId, { until: ({ publications }) => publications[0]!.state === "written" });
  const foreign = control().directory.addSecret(app.appId, { name: "by hand", expiresInDays: 90 });
  control().putSecret(VAULT, { name: app.places[1]!, value: foreign.value });
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "rolledBack", failure: { code: "targetChanged" } });
  expect(row.failure!.message).toContain(`${VAULT}/${app.places[1]}`);
  expect(holder(app, app.places[0]!)).toBe(app.keyId);
  expect(holder(app, app.places[1]!)).toBe(foreign.keyId);
  expect(live(app)).toEqual([app.keyId, foreign.keyId]);
});

test("a place that holds another secret than thought is not overwritten", async () => {
  const app = world.application(name());
  control().putSecret(VAULT, { name: app.places[0]!, value: "~another value altogether" });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "failed", failure: { code: "targetHoldsOther" } });
  expect(control().secretValue(VAULT, app.places[0]!)).toBe("~another value altogether");
  expect(live(app)).toEqual([app.keyId]);
});

test("consumers that can't be refreshed get the old value back", async () => {
  const app = world.application(name(), { places: 2 });
  const company = new Company(world);
  world.consumers = company;
  company.add(`web-shop-${app.appId}`, app.places[0]!, "action", { trouble: "denied" });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({
    status: "rolledBack",
    failure: { code: "consumerFailed", message: expect.stringContaining("web-shop") },
  });
  await putBack(app, row);
  const { tags } = control()
    .items(VAULT, "secrets")
    .find((item) => item.name === app.places[0])!;
  expect(tags).toEqual({ owner: "shop@acme.example", CredentialId: app.keyId });
});

test("an old secret whose consumers do not all hold the new value is still there after a year", async () => {
  const app = world.application(name());
  const company = new Company(world);
  world.consumers = company;
  company.add("web-late", app.places[0]!, "willBreak");
  app.request.includeResources = [];
  app.request.expiryDays = 730;
  const { rotationId } = await overlapping(app);
  control().directory.expireSecret(app.appId, app.keyId, 900);
  for (let months = 0; months < 13; months++) {
    world.pass(30 * DAY_MS);
    await world.start().wake();
    for (const message of world.messages.splice(0)) await world.start().work(message.rotationId, "monthly");
  }
  const row = await world.start().get(rotationId);
  expect(row).toMatchObject({ status: "overlapping", needsConfirmation: true });
  expect(row.reasons).toEqual(["webApp web-late still holds the old value."]);
  expect(live(app)).toHaveLength(2);
  await expect(world.start().finish(rotationId, false, BOSS)).rejects.toMatchObject({
    code: "notFinishable",
    members: { reasons: row.reasons },
  });
  await world.start().finish(rotationId, true, BOSS);
  const ended = (await world.run(rotationId)).row;
  expect(ended.status).toBe("completed");
  expect(live(app)).toEqual([ended.newKeyId]);
  const forced = world.events.find(({ type, target }) => type === "rotation.finished" && target?.id === rotationId);
  expect(forced).toMatchObject({ caller: { actor: "boss" }, details: { force: true } });
});

test("finishing ends the overlap at once, where everything holds the new secret", async () => {
  const app = world.application(name());
  const { rotationId } = await overlapping(app);
  world.targets.push(world.target("somewhere-else", { confidence: "likely" }));
  await expect(world.start().finish(rotationId, false, BOSS)).rejects.toEqual(
    refused("notFinishable", /somewhere-else/),
  );
  world.targets.pop();
  await world.start().finish(rotationId, false, BOSS);
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("completed");
  expect(Date.parse(row.endedAt!) - Date.parse(row.createdAt)).toBeLessThan(DAY_MS);
  await expect(world.start().finish(rotationId, false, BOSS)).rejects.toEqual(refused("conflict"));
});

test("a handed over value needs a user", async () => {
  const { config } = world;
  world.config = { ...config, HANDOVER_KEY_VAULT_URL: world.uriOf(HANDOVER) };
  const app = world.application(name());
  const { rotationId } = await world.start().begin({ ...app.request, updateKeyVaults: false }, BOSS);
  const { row } = await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  expect(row.publications).toMatchObject([{ vaultName: HANDOVER, kind: "handover", state: "written" }]);
  expect(row.reasons.join(" ")).toMatch(/handed over.*holds the old secret/);
  const { secretName } = row.publications[0]!;
  expect(control().directory.keyIdOf(app.appId, control().secretValue(HANDOVER, secretName)!)).toBe(row.newKeyId);
  expect(holder(app, app.places[0]!)).toBe(app.keyId);
  await world.start().cancel(rotationId, BOSS);
  expect((await world.run(rotationId)).row.status).toBe("cancelled");
  expect(live(app)).toEqual([app.keyId]);
  expect(control().items(HANDOVER, "secrets")).toMatchObject([{ name: secretName, enabled: false }]);
  world.config = { ...config, HANDOVER_KEY_VAULT_URL: world.uriOf(OWN) };
  await expect(world.start().plan({ ...app.request, updateKeyVaults: false })).rejects.toEqual(refused("serviceVault"));
  world.config = config;
});

test.each(["planned", "creating", "proving", "publishing", "verifying", "overlapping"] as const)(
  "cancelled while it is %s, it leaves everything as it was",
  async (status) => {
    const app = world.application(name(), { places: 2 });
    if (status === "creating") {
      control().addFault({ match: { operation: "graph.addPassword" }, action: { kind: "loseAnswer" }, times: 1 });
    }
    const rotationId = await startRotation(app);
    await world.run(rotationId, { until: (row) => row.status === status });
    const before = world.messages.length;
    await world.start().cancel(rotationId, BOSS);
    // It goes back at once, and not when a timer finds it.
    const sent = world.messages.slice(before);
    expect(sent).toMatchObject([{ rotationId }]);
    expect(sent[0]!.at).toBeLessThanOrEqual(world.clock.now().getTime());
    await expect(world.start().cancel(rotationId, BOSS)).resolves.toMatchObject({ rotationId });
    const { row } = await world.run(rotationId);
    expect(row.status).toBe("cancelled");
    await putBack(app, row);
    await expect(world.start().cancel(rotationId, BOSS)).rejects.toEqual(refused("conflict", /has ended/));
  },
);

test("a rotation that needs attention before the old secret is removed can be cancelled, which rolls it back", async () => {
  const app = world.application(name());
  const { rotationId } = await overlapping(app);
  await world.run(rotationId, { until: ({ status }) => status === "revoking" });
  await world.start().giveUp(rotationId);
  expect(await world.start().cancel(rotationId, BOSS)).toMatchObject({ status: "revoking" });
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("cancelled");
  await putBack(app, row);
});

test("a handover whose disabling was not recorded is rolled back nevertheless", async () => {
  const { config } = world;
  world.config = { ...config, HANDOVER_KEY_VAULT_URL: world.uriOf(HANDOVER) };
  const app = world.application(name());
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
  expect(live(app)).toEqual([app.keyId]);
});

test("a request that is carried out once everybody took it for lost leaves nothing behind", async () => {
  // No application was changed recently.
  world.pass(5000);
  const alive = await startRotation(world.application(name()));
  const before = world.calls.length;
  await world.start().work(alive, "alive");
  const at = world.calls.slice(before).indexOf("graph.addPassword") + 1;
  expect(at).toBeGreaterThan(0);
  const app = world.application(name());
  world.pass(5000);
  const rotationId = await startRotation(app);
  await expect(world.start({ at, how: "late" }).work(rotationId, "dying")).rejects.toThrow(Died);
  const [underWay] = world.late.splice(0);
  await world.start().cancel(rotationId, BOSS);
  await world.run(rotationId, { until: ({ steps }) => steps.some((step) => step.name === "removeNew") });
  await underWay!();
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("cancelled");
  expect(control().directory.secrets(app.appId)).toHaveLength(2);
  await putBack(app, row);
});

test("an application that may have two secrets says so and names both", async () => {
  const secrets = [
    { name: "old", expiresInDays: 20 },
    { name: "second", expiresInDays: 200 },
  ];
  const app = world.application(name(), { secrets, audience: "AzureADandPersonalMicrosoftAccount" });
  await expect(world.start().begin(app.request, BOSS)).rejects.toMatchObject({
    code: "noRoomForSecret",
    members: { keyIds: expect.arrayContaining(live(app)) },
  });
});

test("a new secret that the directory has no room for ends the rotation at once with that reason", async () => {
  const app = world.application(name(), { audience: "AzureADandPersonalMicrosoftAccount" });
  const rotationId = await startRotation(app);
  const started = world.clock.now().getTime();
  control().directory.addSecret(app.appId, { name: "of a colleague", expiresInDays: 90 });
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "failed", failure: { code: "noRoomForSecret" } });
  expect(row.attempts.map(({ state }) => state)).toEqual(["refused"]);
  // A refusal is an answer: no secret can come to light later, so nothing is waited for.
  expect(world.clock.now().getTime() - started).toBeLessThan(MINUTE_MS);
  expect(live(app)).not.toContain(row.newKeyId);
});

test("the last client secret that has not expired is not removed, even when a person forces the end", async () => {
  const app = world.application(name());
  const { rotationId, newKeyId } = await overlapping(app);
  control().directory.removeSecret(app.appId, newKeyId!);
  await world.start().finish(rotationId, true, BOSS);
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "needsAttention", attention: { code: "lastCredential" } });
  expect(row.attention!.message).toMatch(/has no other client secret that has not expired/);
  expect(live(app)).toEqual([app.keyId]);
});

test("a new secret that failed is left when the application has no other valid one, and the rotation says so", async () => {
  const app = world.application(name());
  control().directory.expireSecret(app.appId, app.keyId, -1);
  control().directory.set({ signInDelaySeconds: 3600 });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "failed", failure: { code: "notProven" } });
  expect(row.notes).toEqual([expect.stringMatching(`${row.newKeyId} was not removed: .* no other client secret`)]);
  expect(live(app)).toEqual([app.keyId, row.newKeyId]);
});

test("a rotation whose target refuses the service for good ends, and leaves the new secret with the reason", async () => {
  const app = world.application(name());
  const rotationId = await startRotation(app);
  await world.run(rotationId, { until: ({ status }) => status === "publishing" });
  control().addFault({ match: { operation: "keyvault.*", vault: VAULT }, action: { kind: "deny" } });
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "failed", failure: { code: "accessDenied" } });
  expect(row.notes).toEqual([expect.stringMatching(`${row.newKeyId} was not removed`)]);
  expect(live(app)).toEqual([app.keyId, row.newKeyId]);
  await expect(world.start().unfinishedOf(app.appId)).resolves.toBeUndefined();
});

test("the value of the only valid client secret stays held when its rotation fails", async () => {
  const app = world.application(name());
  const rotationId = await startRotation(app);
  await world.run(rotationId, { until: ({ status }) => status === "proving" });
  control().directory.removeSecret(app.appId, app.keyId);
  const { row } = await world.run(rotationId);
  expect(live(app)).toEqual([row.newKeyId]);
  const held = control()
    .items(OWN, "secrets")
    .map((item) => item.name);
  expect(held).toContain(`rotation-${rotationId}-${row.newKeyId}`);
  expect(row.notes.join(" ")).toContain(`rotation-${rotationId}-${row.newKeyId}`);
});

test("an expired secret makes room only where that was asked for", async () => {
  const secrets = [
    { name: "old", expiresInDays: 20 },
    { name: "expired", expiresInDays: -20 },
  ];
  const app = world.application(name(), { secrets, audience: "AzureADandPersonalMicrosoftAccount" });
  await expect(world.start().begin(app.request, BOSS)).rejects.toEqual(refused("noRoomForSecret", /removeExpired/));
  app.request.removeExpired = true;
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "completed", removeExpired: expect.any(String) });
  expect(live(app)).toEqual([row.newKeyId]);
  await holds(world, app, row);
});

test("the tenant's policy cuts the life of a new secret, and says so", async () => {
  const app = world.application(name());
  control().directory.changeApplication(app.appId, { policy: { longestDays: 60 } });
  const plan = await world.start().plan({ ...app.request, expiryDays: 90 });
  expect(plan).toMatchObject({ expiryDays: 60, notes: [expect.stringContaining("from 90 to 60 days")] });
  control().directory.changeApplication(app.appId, { policy: { longestDays: 0 } });
  await expect(world.start().plan(app.request)).rejects.toEqual(refused("notRotatable", /less than a day/));
  control().directory.changeApplication(app.appId, { policy: { additionRefused: true } });
  await expect(world.start().plan(app.request)).rejects.toEqual(refused("notRotatable", /policy/));
});

test("a life that a policy cut is not refused where the directory's clock is some minutes behind", async () => {
  const app = world.application(name());
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

test("a plan is refused where a rotation would be, and ids are taken in any case of letters", async () => {
  const app = world.application(name());
  expect(await world.start().plan({ ...app.request, appId: app.appId.toUpperCase() })).toMatchObject({
    appId: app.appId,
  });
  const rotationId = await startRotation(app);
  await expect(world.start().plan(app.request)).rejects.toMatchObject({ code: "rotationUnfinished" });
  await world.start().cancel(rotationId, BOSS);
  await world.run(rotationId);
});

test("a secret whose answer was lost is removed, also when the directory shows it late", async () => {
  control().directory.set({ readLagSeconds: 280, writesLag: true });
  const app = world.application(name());
  world.pass(10 * MINUTE_MS);
  control().addFault({ match: { operation: "graph.addPassword" }, action: { kind: "loseAnswer" }, times: 2 });
  const row = await world.rotate(app.request);
  expect(row.status).toBe("completed");
  expect(row.attempts.map(({ state }) => state)).toEqual(["removed", "removed", "made"]);
  expect(live(app)).toEqual([row.newKeyId]);
  await holds(world, app, row);
});

test("other lost answers and refusals for now do nothing twice", async () => {
  const app = world.application(name(), { places: 2 });
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
  await holds(world, app, row);
});

test("an answer that says nothing ends it after some tries, with nothing left behind", async () => {
  const app = world.application(name());
  control().addFault({ match: { operation: "graph.addPassword" }, action: { kind: "fail", status: 400 } });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "failed", failure: { code: "notCreated" } });
  await putBack(app, row);
});

test("a directory that refuses a new secret for good leaves everything as it was", async () => {
  const app = world.application(name());
  control().addFault({ match: { operation: "graph.addPassword" }, action: { kind: "deny" } });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "failed", failure: { code: "accessDenied" }, attempts: [{ state: "refused" }] });
  await putBack(app, row);
});

test("a secret whose answer was lost and that takes the last place is waited for, and removed", async () => {
  const app = world.application(name(), { audience: "AzureADandPersonalMicrosoftAccount" });
  // No replica shows it before the next one is asked for.
  let isShown = false;
  let asked = 0;
  world.graphOf = (real) => ({
    ...real,
    application: async (id) => {
      const found = await real.application(id);
      return found && { ...found, passwords: found.passwords.filter(({ keyId }) => isShown || keyId === app.keyId) };
    },
    addPassword: (...wanted) =>
      real.addPassword(...wanted).finally(() => {
        asked++;
        isShown = asked > 1;
      }),
  });
  control().addFault({ match: { operation: "graph.addPassword" }, action: { kind: "loseAnswer" }, times: 1 });
  const row = await world.rotate(app.request);
  expect(row.status, JSON.stringify(row.failure)).toBe("completed");
  expect(row.attempts.map(({ state }) => state)).toEqual(["removed", "refused", "made"]);
  expect(live(app)).toEqual([row.newKeyId]);
  await holds(world, app, row);
});

test.each([
  ["the end that the directory gave it", -HOUR_MS],
  ["the end that was asked for, where the directory says none", undefined],
] as const)("a new secret is written with %s", async (_, later) => {
  const app = world.application(name());
  let asked = 0;
  world.graphOf = (real) => ({
    ...real,
    addPassword: async (objectId, wanted) => {
      asked = wanted.expiresOn * 1000;
      const { expiresOn: _given, ...made } = await real.addPassword(objectId, wanted);
      return later === undefined ? made : { ...made, expiresOn: (asked + later) / 1000 };
    },
  });
  const row = await overlapping(app);
  const written = control()
    .items(VAULT, "secrets")
    .find((item) => item.name === app.places[0])!;
  const ends = [row.newExpiresAt!, written.expires!].map((instant) => Date.parse(instant));
  expect(ends).toEqual([asked + (later ?? 0), asked + (later ?? 0)]);
  await world.start().cancel(row.rotationId, BOSS);
  await world.run(row.rotationId);
});

test("a vault that refuses for good puts everything back", async () => {
  const app = world.application(name(), { places: 2 });
  const match = { operation: "keyvault.setSecret", item: app.places[1]! };
  control().addFault({ match, action: { kind: "deny" } });
  const row = await world.rotate(app.request);
  expect(row).toMatchObject({ status: "rolledBack", failure: { code: "accessDenied" } });
  expect(row.failure!.remedy).toContain("Key Vault Secrets Officer");
  await putBack(app, row);
});

test("if it can neither continue nor roll back, attention says what was done, what is safe and what to do", async () => {
  const app = world.application(name());
  const { rotationId, newKeyId } = await overlapping(app);
  control().addFault({ match: { operation: "graph.removePassword" }, action: { kind: "deny" } });
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "needsAttention", attention: { code: "accessDenied" } });
  expect(row.attention!.done).toContain(newKeyId);
  expect(row.attention!.safe).toMatch(/new client secret .* stays/);
  expect(row.attention!.next).toMatch(/Application\.ReadWrite\.OwnedBy.*retry/s);
  await expect(world.start().begin(app.request, BOSS)).rejects.toEqual(refused("rotationUnfinished"));
  control().clearFaults();
  await world.start().retry(rotationId, BOSS);
  const ended = (await world.run(rotationId)).row;
  expect(ended.status).toBe("completed");
  await holds(world, app, ended);
  await expect(world.start().retry(rotationId, BOSS)).rejects.toEqual(refused("conflict"));
});

test("attention contains the complete state of the rotation", async () => {
  const app = world.application(name());
  const rotationId = await startRotation(app);
  const readEntries = async (id = rotationId) => {
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
  const anyWay = `${log} Then retry this rotation, or cancel it, which rolls everything back.`;
  const { appName } = await world.start().get(rotationId);
  expect(await readEntries()).toEqual({
    ...common,
    done: `No new client secret of ${appName} is in use. No vault holds the new value.`,
    safe: `The old client secret ${app.keyId} was not touched.`,
    next: anyWay,
    resume: "planned",
  });
  const { newKeyId } = (await world.run(rotationId, { until: ({ status }) => status === "publishing" })).row;
  const added = `The client secret ${newKeyId} was added to ${appName}.`;
  const kept = `The old client secret ${app.keyId} was not removed. While the rotation waits, it removes no secret that it did not create.`;
  expect(await readEntries()).toEqual({
    ...common,
    done: `${added} No vault holds the new value.`,
    safe: kept,
    next: anyWay,
    resume: "publishing",
  });
  await world.run(rotationId, { until: ({ status }) => status === "overlapping" });
  expect(await readEntries()).toEqual({
    ...common,
    done: `${added} The new value was written to ${VAULT}/${app.places[0]}.`,
    safe: kept,
    next: anyWay,
    resume: "overlapping",
  });
  await world.start().cancel(rotationId, BOSS);
  await world.run(rotationId, { until: ({ publications }) => publications[0]!.state === "restored" });
  expect(await readEntries()).toEqual({
    ...common,
    done: `${added} No vault holds the new value. ${VAULT}/${app.places[0]} got the previous value again.`,
    safe: kept,
    next: `${log} Then retry this rotation, which continues the rollback.`,
    resume: "overlapping",
  });
  expect((await world.run(rotationId)).row.status).toBe("cancelled");

  const request = world.vaultSecret(name(), "value-before", "value-after");
  const ofVault = (await world.start().begin(request, BOSS)).rotationId;
  expect(await readEntries(ofVault)).toEqual({
    ...common,
    done: "No vault holds the new value.",
    safe: "The version with the old value is still in the vault and can be read.",
    next: anyWay,
    resume: "planned",
  });
  expect((await world.run(ofVault)).row.status).toBe("completed");
});

test("an old value that no longer signs in is not restored", async () => {
  const app = world.application(name());
  const { rotationId, newKeyId } = await overlapping(app);
  control().directory.removeSecret(app.appId, app.keyId);
  await world.start().cancel(rotationId, BOSS);
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "needsAttention", attention: { code: "previousValueDead" } });
  expect(holder(app, app.places[0]!)).toBe(newKeyId);
  await world.start().finish(rotationId, false, BOSS);
  expect((await world.run(rotationId)).row.status).toBe("completed");
  expect(live(app)).toEqual([newKeyId]);
});

test("a new secret that another party removed keeps the old one from being removed", async () => {
  const app = world.application(name());
  const { rotationId, newKeyId } = await overlapping(app);
  control().directory.removeSecret(app.appId, newKeyId!);
  const { row } = await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  expect(row.reasons.join(" ")).toContain(newKeyId);
  expect(live(app)).toEqual([app.keyId]);
});

test("one worker at a time changes applications of the tenant, with a pause between", async () => {
  control().directory.set({ writeGapMilliseconds: 1000 });
  const apps = [1, 2, 3].map(() => world.application(name()));
  const ids = await Promise.all(apps.map((app) => startRotation(app)));
  world.log.lines.length = 0;
  const rows = () => Promise.all(ids.map((id) => world.start().get(id)));
  for (let rounds = 0; rounds < 100; rounds++) {
    if ((await rows()).every(({ status }) => status === "proving")) break;
    const due = world.messages.splice(0);
    world.pass(Math.max(0, Math.min(...due.map(({ at }) => at)) - world.clock.now().getTime()));
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

test("a secret that was rotated before keeps its own tags, and has room for the same of ours again", () => {
  const own = Object.fromEntries(Array.from({ length: 10 }, (_, at) => [`own-${at}`, at === 0 ? "of key-1" : "x"]));
  const record = { rotationId: "first", appId: "app", oldKeyId: "key-0", newKeyId: "key-1" } as RotationRecord;
  const first = nextVersion(record, { tags: own, contentType: "x:app:key-0" }, "one", new Date(0));
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
      ...own,
      "own-0": "of key-2",
      "rotation-id": "second",
      "entra-key-id": "key-2",
      "entra-app-id": "app",
      "managed-by": first.tags?.["managed-by"],
      "rotated-at": "1970-01-02T00:00:00.000Z",
    },
  });
});

test("a worker that wants to change an application gets the remaining time of another worker's lease, to the millisecond", async () => {
  const tables = world.tables();
  const { clock } = world;
  const changed: string[] = [];
  /** Changes an application while the store reports that the lease was taken or released some time ago. */
  const change = async (who: string, ageMs?: number, meanwhile = async () => {}) => {
    const getWithAge: typeof tables.getWithAge = async (...row) => {
      const found = await tables.getWithAge(...row);
      return found && { ...found, ageMs: ageMs ?? found.ageMs };
    };
    const turn = createStepContext(
      { tables: { ...tables, getWithAge }, clock, randomness: systemRandomness() } as never,
      {} as never,
      who,
      BOSS,
    );
    return await turn.withDirectoryLease(async () => {
      changed.push(who);
      await meanwhile();
    });
  };
  const later = (seconds: number) => expect.objectContaining({ name: "Later", seconds });
  await change("first", 5 * MINUTE_MS);
  await expect(change("too early", 0)).rejects.toEqual(later(2));
  await expect(change("too early", 1_999)).rejects.toEqual(later(2));
  await change("second", 2_000, async () => {
    for (const [ageMs, seconds] of [
      [0, 3],
      [3_000, 3],
      [3_001, 4],
      [29_001, 30],
      [299_999, 30],
    ] as const)
      await expect(change("meanwhile", ageMs)).rejects.toEqual(later(seconds));
    await change("after the second crashed", 5 * MINUTE_MS);
  });
  expect(changed).toEqual(["first", "second", "after the second crashed"]);
});

test("after a crash while a rotation is requested, it either started or did not", async () => {
  let begins = 0;
  for (let at = 1; ; at++) {
    const app = world.application(name());
    world.messages.length = 0;
    const failure = await world
      .start({ at, how: at % 2 ? "before" : "after" })
      .begin(app.request, BOSS)
      .catch((error: unknown) => error);
    if (!(failure instanceof Died)) break;
    const rotationId = await world.start().unfinishedOf(app.appId);
    if (rotationId === undefined) continue;
    begins++;
    const { row } = await world.run(rotationId, { until: ({ status }) => status === "proving" });
    expect(row.attempts).toHaveLength(1);
  }
  expect(begins).toBeGreaterThan(2);
});

test("a version of another writer in between needs attention", async () => {
  const app = world.application(name());
  const rotationId = await startRotation(app);
  await world.run(rotationId, { until: ({ status }) => status === "publishing" });
  const { config, log } = world;
  const theirs = createVaultSecrets({ config, identity: createIdentity(config), log });
  const vault = theirs.open({ name: VAULT, vaultUri: world.uriOf(VAULT) });
  // Its first call signs in.
  await vault.versions(app.places[0]!);
  const fault = control().addFault({
    match: { operation: "keyvault.setSecret", vault: VAULT },
    action: { kind: "latency", milliseconds: 1_500 },
    times: 1,
  });
  world.pass(5000);
  const ours = world.run(rotationId);
  const isUnderWay = () =>
    control()
      .faults()
      .some(({ id, happened }) => id === fault && happened > 0);
  await vi.waitUntil(isUnderWay, { timeout: 150_000, interval: 5 });
  const { version } = await vault.write(app.places[0]!, { value: "value-of-theirs" });
  const { row } = await ours;
  expect(row).toMatchObject({ status: "needsAttention", attention: { code: "targetChangedMeanwhile" } });
  expect(row.attention!.message).toContain(version);
  await world.start().retry(rotationId, BOSS);
  expect((await world.run(rotationId)).row.status).toBe("completed");
});

test("history shows the newest first by every filter, and is purged", async () => {
  const app = world.application(name());
  const rotationId = await startRotation(app);
  const rotations = world.start();
  const page = { limit: 10, offset: 0, cursor: undefined };
  const list = async (filter: object) => (await rotations.history({ subject: app.appId, ...filter }, page)).items;
  expect(await list({ status: "planned" })).toMatchObject([{ rotationId }]);
  const { row } = await world.run(rotationId);
  expect(await list({ status: "planned" })).toEqual([]);
  expect(await list({ status: "completed" })).toMatchObject([{ rotationId, newKeyId: row.newKeyId }]);
  const at = Date.parse(row.createdAt);
  expect(await list({ start: new Date(at - HOUR_MS), end: new Date(at + HOUR_MS) })).toHaveLength(1);
  expect(await list({ start: new Date(at + HOUR_MS) })).toEqual([]);
  expect(await list({ end: new Date(at - HOUR_MS) })).toEqual([]);
  const all = await rotations.history({}, { ...page, limit: 2 });
  const next = await rotations.history({}, { limit: 2, offset: 0, cursor: all.nextCursor! });
  const ids = [...all.items, ...next.items].map((one) => one.rotationId);
  expect(ids).toEqual([...new Set(ids)].sort().reverse());
  expect(all.total).toBe(next.total);

  const events = [];
  for await (const some of rotations.events()) events.push(...some);
  expect(events.filter((one) => one.rotationId === rotationId)).toMatchObject([{ status: "completed" }]);
  const open = world.application(name());
  const unfinished = await startRotation(open);
  world.pass(400 * DAY_MS);
  const cut = { retentionDays: 365, before: new Date(world.clock.now().getTime() - 365 * DAY_MS) };
  const purged = await rotations.store().purge(cut, BOSS);
  expect(purged.removed).toBeGreaterThan(0);
  expect(purged.more).toBe(false);
  expect(await list({})).toEqual([]);
  await expect(rotations.get(rotationId)).rejects.toEqual(refused("notFound"));
  expect(await rotations.get(unfinished)).toMatchObject({ status: "planned" });
  for await (const some of rotations.events()) expect(some).toEqual([]);
});

test("rotations are counted up to ten thousand, and a page is found behind its offset wherever that lies", async () => {
  const listed = async (count: number, offset: number) => {
    const rows = Array.from({ length: count }, (_, at) => ({
      rowKey: `x${String(at).padStart(5, "0")}`,
      rotationId: at,
    }));
    async function* pages(_: unknown, { after = "", pageSize = 1000 }: { after?: string; pageSize?: number }) {
      for (let at = rows.findIndex(({ rowKey }) => rowKey > after); at >= 0 && at < count; at += pageSize)
        yield rows.slice(at, at + pageSize);
    }
    const history = createRotationHistory({ pages } as never, undefined as never);
    const { items, total, totalAtLeast } = await history.list({}, { limit: 2, offset, cursor: undefined });
    return { items: items.map(({ rotationId }) => rotationId), total, totalAtLeast };
  };
  expect(await listed(2_500, 0)).toEqual({ items: [0, 1], total: 2_500 });
  expect(await listed(2_500, 999)).toEqual({ items: [999, 1_000], total: 2_500 });
  expect(await listed(2_500, 1_000)).toEqual({ items: [1_000, 1_001], total: 2_500 });
  expect(await listed(2_500, 2_499)).toEqual({ items: [2_499], total: 2_500 });
  expect(await listed(2_500, 2_501)).toEqual({ items: [], total: 2_500 });
  expect(await listed(10_000, 5)).toEqual({ items: [5, 6], total: 10_000 });
  expect(await listed(10_001, 5)).toEqual({ items: [5, 6], total: null, totalAtLeast: 10_000 });
});

const workspace = () => control().logs.named("law-operations");
/** From now on rotations hear of the log. */
function withLogs(): void {
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
/** Another application reads a version of the vault's secret, at the cloud's time. */
const readBy = (caller: string, place: string, version: string) =>
  control().logs.plant("law-operations", {
    table: "AZKVAuditLogs",
    at: Date.parse(control().now()),
    operation: "SecretGet",
    vaultId: control().vaultId(VAULT)!,
    id: `${world.uriOf(VAULT)}/secrets/${place}/${version}`,
    requestUri: `${world.uriOf(VAULT)}/secrets/${place}`,
    status: 200,
    objectId: caller,
    appId: caller,
  });
const versionOf = (place: string) =>
  control()
    .items(VAULT, "secrets")
    .find((item) => item.name === place)!.version;
const held = async (rotationId: string, until: (row: RotationRecord) => boolean = (row) => row.needsConfirmation) =>
  (await world.run(rotationId, { until })).row;

test("a reader of the old version delays the end and is named; missing reads end nothing early", async () => {
  withLogs();
  const app = world.application(name());
  const [place] = app.places as [string];
  const old = versionOf(place);
  const row = await overlapping(app);
  const { rotationId } = row;
  const began = world.clock.now().getTime();
  const [stays, moves] = ["33333333-3333-4333-8333-333333333333", "44444444-4444-4444-8444-444444444444"];
  readBy(stays, place, old);
  readBy(moves, place, old);
  world.pass(HOUR_MS);
  readBy(moves, place, versionOf(place));
  // As the hourly reading of dependencies does.
  await world.usage.unreadSignIns();

  const waits = await held(rotationId);
  expect(world.clock.now().getTime() - began).toBeGreaterThan(7 * DAY_MS - HOUR_MS);
  expect(waits).toMatchObject({
    status: "overlapping",
    reasons: [expect.stringContaining(`${stays} read the old version ${old} of ${VAULT}/${place}`)],
  });
  // Missing reads do not prove that the reader has the new version.
  const now = () => world.clock.now().getTime();
  for (let day = 0; day < 2; day++) {
    world.pass(DAY_MS + HOUR_MS);
    const { status, reasons } = await held(rotationId, ({ dueAt }) => Date.parse(dueAt) > now());
    expect([status, reasons.length]).toEqual(["overlapping", 1]);
  }
  expect(now() - began).toBeGreaterThan(9 * DAY_MS);
  expect(live(app)).toContain(app.keyId);
  await expect(world.start().finish(rotationId, false, BOSS)).rejects.toEqual(
    refused("notFinishable", new RegExp(stays)),
  );

  readBy(stays, place, versionOf(place));
  world.pass(HOUR_MS);
  expect((await world.run(rotationId)).row).toMatchObject({ status: "completed", reasons: [] });
  expect(live(app)).toEqual([row.newKeyId]);
});

test("a sign-in with the old key holds the end back for 24 hours, and so does a log of sign-ins that can't be read", async () => {
  withLogs();
  const app = world.application(name());
  const value = control().secretValue(VAULT, app.places[0]!)!;
  const { rotationId } = await overlapping(app);
  world.pass(7 * DAY_MS - 2 * HOUR_MS);
  const { kind } = await createSignInProof(world.config)(app.appId, value, world.cloud.app.tenantId);
  expect(kind).toBe("accepted");
  const signedInAt = world.clock.now().getTime();
  const signedIn = await held(rotationId);
  const toTheSecond = "[\\d-]{10}T\\d\\d:\\d\\d:\\d\\dZ";
  expect(signedIn.reasons).toEqual([
    expect.stringMatching(`^The old secret ${app.keyId} signed in at ${toTheSecond}, less than 24 hours ago\\.$`),
  ]);

  const fault = control().addFault({ match: { operation: "loganalytics.query" }, action: { kind: "deny" } });
  const unread = await held(rotationId, ({ reasons }) => !reasons.some((one) => one.includes("signed in")));
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
