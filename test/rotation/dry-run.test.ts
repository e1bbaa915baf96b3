import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { confirmationsFor } from "../../functions/rotation-confirmations.ts";
import type { Problem } from "../../shared/platform/http/problem.ts";
import { dryRun } from "../../shared/rotation/dry-run.ts";
import type { RotationRequest } from "../../shared/rotation/request.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { BOSS, VAULT, World } from "./world.ts";

// Tests of dry runs: they return the plan, and everything that the rotation needs before it can start.

const NO_CONFIRMATIONS = { stepUp: false, approval: false };
let world: World;
let azurite: TestStorage;
let nameCount = 0;

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
afterEach(() => {
  world.targets = [];
  world.messages.length = 0;
  world.cloud.control.clearFaults();
});

const addApplication = (options?: Parameters<World["addApplication"]>[1]) =>
  world.addApplication(`dry-${++nameCount}`, options);

const plan = (request: RotationRequest, confirmations = NO_CONFIRMATIONS) => {
  const subject = "appId" in request ? { appId: request.appId, oldKeyId: request.secretId } : { assetId: "an-asset" };
  return dryRun(subject, async () => request, confirmations, { rotations: world.start(), now: world.clock.now() });
};

test("a rotation that can start needs nothing", async () => {
  const { record, needs } = await plan(addApplication().request);
  expect(needs).toEqual([]);
  expect(record.steps.length).toBeGreaterThan(0);
});

test("all that is missing is listed at once, with the plan", async () => {
  const secrets = [
    { name: "old", expiresInDays: 20 },
    { name: "expired", expiresInDays: -20 },
  ];
  const app = addApplication({ secrets, audience: "AzureADandPersonalMicrosoftAccount" });
  const [place] = app.places;
  // Key Vault allows 15 tags for each secret, so the tags of a rotation have no room.
  const tags = Object.fromEntries(Array.from({ length: 15 }, (_, index) => [`tag-${index}`, "x"]));
  world.cloud.control.putSecret(VAULT, { name: place!, value: app.oldValue, tags });
  const { record, needs } = await plan({ ...app.request, reason: "compromised" });
  expect(needs.map(({ code, send }) => [code, send])).toEqual([
    ["invalidRequest", [{ targets: null }]],
    ["noRoomForSecret", [{ removeExpired: true }]],
    ["notRotatable", []],
  ]);
  expect(record.publications.map(({ secretName }) => secretName)).toEqual([place]);
  // The same request without dryRun is rejected, and its problem names the members to send.
  const refused = await world
    .start()
    .begin({ ...app.request, reason: "compromised" }, BOSS)
    .catch((error: Problem) => error);
  expect(refused).toMatchObject({ code: "invalidRequest", members: { send: [{ targets: null }] } });
});

test("a plan beside an unfinished rotation names that rotation", async () => {
  const app = addApplication();
  const { rotationId } = await world.start().begin(app.request, BOSS);
  const { record, needs } = await plan(app.request);
  expect(needs).toMatchObject([{ code: "rotationUnfinished", message: expect.stringContaining(rotationId) }]);
  expect(record.publications).toHaveLength(1);
});

test("a plan without a handover vault asks to write key vaults", async () => {
  const { record, needs } = await plan({ ...addApplication().request, updateKeyVaults: false });
  expect(needs).toMatchObject([{ code: "invalidRequest", send: [{ updateKeyVaults: true }] }]);
  expect(record.publications).toEqual([]);
});

test("a match that is only likely is listed as a place that is not written", async () => {
  const app = addApplication();
  world.targets = [world.target(app.places[0]!, { confidence: "likely" })];
  const { record, needs } = await plan(app.request);
  expect(needs).toMatchObject([{ code: "notRotatable", message: expect.stringContaining("Test or confirm a match") }]);
  expect(record.notUpdated).toMatchObject([{ secretName: app.places[0], confidence: "likely", reason: "uncertain" }]);
});

test("a place that can't be read asks for the places to write, and proposes none that no user has confirmed", async () => {
  const app = addApplication({ places: 2 });
  const [proved, unreadable] = app.places;
  world.targets = [
    world.target(proved!, { knownAs: "new", heldSince: 1 }),
    world.target(unreadable!, { knownAs: "new", confidence: "likely", unreadable: true }),
  ];
  const { needs } = await plan(app.request);
  expect(needs).toEqual([{ code: "notRotatable", message: expect.any(String), send: [{ targets: null }] }]);
});

test("confirmations that the rotation would need are listed", async () => {
  const { needs } = await plan(addApplication().request, { stepUp: true, approval: true });
  expect(needs.map(({ code }) => code)).toEqual(["stepUpRequired", "approvalRequired"]);
});

test.each([
  ["no places are named", undefined, false, { stepUp: false, approval: false }],
  ["the caller has confirmed the sign-in just now", [`${VAULT}.secret.a`], true, { stepUp: false, approval: true }],
  ["the caller has not confirmed the sign-in", [`${VAULT}.secret.a`], false, { stepUp: true, approval: true }],
])("if %s, a dry run asks only for the confirmations that are missing", async (_case, targets, isFresh, expected) => {
  const gate = { confirmations: async () => ({ stepUp: true, approval: true }) };
  const services = { gate, access: { stepUp: { isFresh: () => isFresh } } };
  expect(await confirmationsFor(targets, {} as never, services as never)).toEqual(expected);
});

test("a dry run is rejected while the directory does not respond clearly, and without a license", async () => {
  const { request } = addApplication();
  world.cloud.control.addFault({ match: { operation: "graph.*" }, action: { kind: "deny" } });
  await expect(plan(request)).rejects.toMatchObject({ code: "unavailable" });
  world.tier = "core";
  await expect(plan(request)).rejects.toMatchObject({ code: "licenseRequired" });
  world.tier = "pro";
});
