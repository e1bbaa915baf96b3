import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { openMatchingFixture } from "./matching-world.ts";
import { BOSS, VAULT } from "./world.ts";

// Tests that each rotation requests the inventory to read what it changed, and that a rotation does not fail if it can't.

let azurite: TestStorage;
let live: Awaited<ReturnType<typeof startTestCloud>>;
let fixture: ReturnType<typeof openMatchingFixture>;

beforeAll(async () => {
  azurite = await openStorage();
  const subscriptions = [{ id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }] }];
  live = await startTestCloud({ company: { subscriptions } });
  fixture = openMatchingFixture(live, azurite.connectionString());
});
afterAll(async () => {
  await live.cloud.stop();
  await azurite.stop();
});
afterEach(() => {
  fixture.world.inventoryFails = false;
  fixture.world.inventoryUpdates.length = 0;
  live.cloud.control.clearFaults();
});

async function startRotation(app: { appId: string; keyId: string }): Promise<string> {
  return (await fixture.rotations.begin(fixture.requestFor(app, { overlapDays: 0 }), BOSS)).rotationId;
}

async function addDiscoveredApplication() {
  const app = fixture.addApplication();
  await fixture.discover(app);
  await fixture.confirm(app);
  return app;
}

test("the inventory follows the added secret, the written vault and the removed secret", async () => {
  const app = await addDiscoveredApplication();
  const { row } = await fixture.world.run(await startRotation(app));
  expect(row.status).toBe("completed");
  const { appId, objectId, oldKeyId, newKeyId } = row;
  expect(fixture.world.inventoryUpdates).toEqual([
    { appId, objectId, added: newKeyId },
    VAULT,
    { appId, objectId, removed: oldKeyId },
  ]);
});

test("the inventory follows a rotation that is rolled back", async () => {
  const app = await addDiscoveredApplication();
  const rotationId = await startRotation(app);
  await fixture.world.run(rotationId, { until: ({ status }) => status === "verifying" });
  fixture.world.inventoryUpdates.length = 0;
  await fixture.rotations.cancel(rotationId, BOSS);
  const { row } = await fixture.world.run(rotationId);
  expect(row.status).toBe("cancelled");
  const { appId, objectId } = row;
  expect(fixture.world.inventoryUpdates).toEqual([VAULT, { appId, objectId }]);
});

test("a rotation waits, and does not fail, while the inventory can't be notified", async () => {
  const app = await addDiscoveredApplication();
  fixture.world.inventoryFails = true;
  const rotationId = await startRotation(app);
  // More deliveries than the ten transient failures after which a rotation fails (`MAX_FAILURES`).
  const { row: waiting } = await fixture.world.run(rotationId, {
    until: ({ steps }) => steps.some(({ name, attempts }) => name === "create" && attempts > 12),
  });
  expect([waiting.status, waiting.failures, waiting.failure]).toEqual(["creating", 0, undefined]);
  fixture.world.inventoryFails = false;
  const { row } = await fixture.world.run(rotationId);
  expect(row.status).toBe("completed");
  expect(row.attempts).toHaveLength(1);
  const { appId, objectId, oldKeyId, newKeyId } = row;
  expect(fixture.world.inventoryUpdates).toEqual([
    { appId, objectId, added: newKeyId },
    VAULT,
    { appId, objectId, removed: oldKeyId },
  ]);
});

test("a row of the inventory that can't be read does not hold a rotation up", async () => {
  const app = await addDiscoveredApplication();
  fixture.world.inventoryFails = "rowUnreadable";
  const { row } = await fixture.world.run(await startRotation(app));
  expect([row.status, row.failure]).toEqual(["completed", undefined]);
});

test("rotations of one application in a row need no discovery and no scan in between", async () => {
  const app = await addDiscoveredApplication();
  let { keyId } = app;
  for (let count = 0; count < 4; count++) {
    const { row } = await fixture.world.run(await startRotation({ ...app, keyId }));
    expect(row.status, `rotation ${count}: ${JSON.stringify(row.attention)}`).toBe("completed");
    keyId = row.newKeyId!;
    const { matches } = await fixture.matches.listMatches(app.appId);
    expect(matches).toMatchObject([{ keyId, confidence: "certain", isKnown: true }]);
    expect(await fixture.matches.credentialOf({ vaultName: VAULT, name: app.name })).toEqual({
      appId: app.appId,
      keyId,
    });
  }
});

test("a version that another writer stored after the rotation is not treated as the rotation's version", async () => {
  const app = await addDiscoveredApplication();
  const { row } = await fixture.world.run(await startRotation(app));
  fixture.world.advanceClock(60_000);
  live.cloud.control.putSecret(VAULT, { name: app.name, value: "of somebody else" });
  const next = { ...app, keyId: row.newKeyId! };
  // The inventory does not know that version yet: its value decides.
  await expect(startRotation(next)).rejects.toMatchObject({ code: "notRotatable" });
  const createdOn = Math.ceil(fixture.world.clock.now().getTime() / 1000);
  await fixture.discover({ ...app, contentType: "text/plain", createdOn });
  const { matches } = await fixture.matches.listMatches(app.appId);
  expect(matches.flatMap(({ evidence }) => evidence)).not.toContain("rotated");
});

test("a version that another writer stored before a forced finish is not treated as the rotation's version", async () => {
  const app = await addDiscoveredApplication();
  const { rotations, world } = fixture;
  const { rotationId } = await rotations.begin(fixture.requestFor(app, { overlapDays: 5 }), BOSS);
  await world.run(rotationId, { until: ({ status }) => status === "overlapping" });
  world.advanceClock(60_000);
  live.cloud.control.putSecret(VAULT, { name: app.name, value: "of somebody else" });
  const createdOn = Math.ceil(world.clock.now().getTime() / 1000);
  world.advanceClock(60_000);
  await rotations.finish(rotationId, true, BOSS);
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("completed");
  await fixture.discover({ ...app, contentType: "text/plain", createdOn });
  const { matches } = await fixture.matches.listMatches(app.appId);
  expect(matches.flatMap(({ evidence }) => evidence)).not.toContain("rotated");
});
