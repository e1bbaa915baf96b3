import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf } from "simulated-cloud/company/applications.ts";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { assetId } from "../../shared/inventory/asset.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { caller, company, openTestRegistry, type TestRegistry } from "./support.ts";

// Tests of a tenant's discovery when its process crashes, messages are duplicated, or responses are slow.

/** Approximate number of crashes to test. A campaign (a long test run) crashes at every write. */
const CRASH_SAMPLES = IS_CAMPAIGN ? Number.POSITIVE_INFINITY : 6;

let storage: MovedStorage;
let live: { cloud: Cloud; config: Config };
let nextAccount = 0;

const ACCOUNTS = Array.from({ length: 12 }, (_, index) => `tenantfaults${index}`);
beforeAll(async () => {
  [storage, live] = await Promise.all([startMovedStorage(ACCOUNTS), startTestCloud({ company })]);
});
let fixture: TestRegistry;
beforeEach(() => {
  fixture = openTestRegistry(
    live.cloud,
    live.config,
    storage.azurite.connectionString(ACCOUNTS[nextAccount++]!),
    storage,
  );
});
afterEach(() => live.cloud.control.clearFaults());
afterAll(async () => {
  await live?.cloud.stop();
  await storage?.stop();
});

/** The tenant that all tests of this file use: the second one of the simulated company, of type External ID. */
const partners = () => live.cloud.control.tenants.list()[1]!;
const directory = () => live.cloud.control.tenants.directory(partners().id);

/**
 * Expects the inventory to contain each credential of the tenant's applications once, and the tenant's status to be up to date.
 */
async function expectInventoryEqualsTenant(): Promise<void> {
  const keyIds = directory()
    .applications()
    .flatMap(({ appId }) =>
      directory()
        .secrets(appId)
        .filter(({ removedAt }) => removedAt === undefined),
    )
    .map(({ keyId }) => keyId);
  const assets = await fixture.assets(partners().id);
  // Only credentials of applications have `of`: policy keys and secrets of identity providers do not.
  const keyIdsInInventory = assets.flatMap(({ credential }) => (credential?.of ? credential.keyId! : []));
  expect(keyIdsInInventory.sort()).toEqual(keyIds.sort());
  expect(new Set(assets.map(assetId)).size).toBe(assets.length);
  const { status } = await fixture.b2c.get(partners().id);
  expect(status).toMatchObject({ ended: "completed", counts: { applications: keyIds.length, identityProviders: 1 } });
  expect(status.runId).toBeUndefined();
}

test("a discovery that crashes at a write is resumed and reads the whole tenant", async () => {
  const { row } = await fixture.register("partners");
  await fixture.b2c.discover(row.tenantId, caller);
  await fixture.drain();
  let change = 0;
  /** Changes the tenant, so that the next discovery has rows to write: adds one secret and removes an older one. */
  const replaceOneSecret = () => {
    const app = appIdOf(`Partner Portal ${["EU", "UK", "US"][change++ % 3]}`);
    const { keyId } = directory().addSecret(app, { name: `new ${change}`, expiresInDays: 90 });
    const old = directory()
      .secrets(app)
      .find((secret) => secret.removedAt === undefined && secret.keyId !== keyId);
    if (old) directory().removeSecret(app, old.keyId);
  };
  replaceOneSecret();
  // A discovery without a crash counts the writes.
  const stepsOfWholeRun: Steps = { taken: 0 };
  await fixture.instance(stepsOfWholeRun).b2c.discover(row.tenantId, caller);
  await fixture.drain();
  expect(stepsOfWholeRun.taken).toBeGreaterThan(20);

  const step = Math.max(1, Math.floor(stepsOfWholeRun.taken / CRASH_SAMPLES));
  let crashes = 0;
  for (let crashAt = 1; crashAt <= stepsOfWholeRun.taken; crashAt += step) {
    replaceOneSecret();
    fixture.events.splice(0);
    const steps: Steps = { taken: 0, crashAt, when: crashAt % 2 === 0 ? "before" : "after" };
    const outcome = await fixture
      .instance(steps)
      .b2c.discover(row.tenantId, caller)
      .then(({ run }) => run.status)
      .catch(() => "crashed");
    if (steps.dead) crashes++;
    await fixture.drain();
    // After a crash before the first write there is no run to resume.
    if (outcome === "crashed" && !fixture.events.some(({ type }) => type === "b2cTenant.discovered")) {
      await fixture.b2c.discover(row.tenantId, caller);
      await fixture.drain();
    }
    const discoveredEvents = fixture.events.filter(({ type }) => type === "b2cTenant.discovered");
    expect([crashAt, new Set(discoveredEvents.map(({ id }) => id)).size]).toEqual([crashAt, 1]);
    await expectInventoryEqualsTenant();
  }
  expect(crashes).toBeGreaterThan(3);
});

test("duplicate messages on two hosts cause one run", async () => {
  const { row } = await fixture.register("partners");
  await fixture.b2c.enqueueDue();
  const [tenantMessage] = fixture.messages.splice(0);
  const [first, second] = [fixture.instance().b2c, fixture.instance().b2c];
  live.cloud.control.resetCounts();
  await Promise.all([first.handle(tenantMessage!.message, caller), second.handle(tenantMessage!.message, caller)]);
  const startMessages = fixture.messages.splice(0);
  await Promise.all(
    [...startMessages, ...startMessages].map((each, index) => [first, second][index % 2]!.handle(each.message, caller)),
  );
  await fixture.drain();
  await first.handle(tenantMessage!.message, caller);
  await fixture.drain();
  expect(live.cloud.control.counts()["graph.getOrganization"]).toBe(1);
  expect(fixture.events.filter(({ type }) => type === "b2cTenant.discovered")).toHaveLength(1);
  expect((await fixture.b2c.get(row.tenantId)).status.runId).toBeUndefined();
  await expectInventoryEqualsTenant();
});

test("no assets remain if a tenant is removed while a slow worker discovers it", async () => {
  const { row } = await fixture.register("partners");
  // The tenant is removed while the discovery waits for this answer.
  live.cloud.control.addFault({
    match: { operation: "graph.listIdentityProviders" },
    action: { kind: "latency", milliseconds: 1500 },
  });
  const slowDiscovery = fixture.instance().b2c.discover(row.tenantId, caller);
  await expect.poll(async () => (await fixture.b2c.get(row.tenantId)).status.runId, { timeout: 150_000 }).toBeDefined();
  await fixture.b2c.remove(row.tenantId, undefined, caller);
  await slowDiscovery.catch(() => {});
  await fixture.drain();
  expect(await fixture.assets()).toEqual([]);
  // Assets without a registration, as a slow worker can leave them after a removal. The clean-up deletes them.
  await fixture.register("partners");
  await fixture.b2c.discover(row.tenantId, caller);
  await fixture.tables.remove({ table: "B2c" } as never, "tenants", `t|${row.tenantId}`);
  await fixture.b2c.cleanUp(caller);
  expect(await fixture.assets()).toEqual([]);
});

test("a request returns the running discovery after its time limit", async () => {
  const { row } = await fixture.register("partners");
  // Much longer than the time limit, so that the second request finds the discovery running, too.
  live.cloud.control.addFault({
    match: { operation: "graph.getOrganization" },
    action: { kind: "latency", milliseconds: 2000 },
    times: 1,
  });
  const WAIT_LIMIT_MS = 50;
  const { run, isNew } = await fixture.instance({ taken: 0 }, WAIT_LIMIT_MS).b2c.discover(row.tenantId, caller);
  expect([isNew, run.status]).toEqual([true, "running"]);
  const second = await fixture.instance({ taken: 0 }, WAIT_LIMIT_MS).b2c.discover(row.tenantId, caller);
  expect([second.isNew, second.run.runId]).toEqual([false, run.runId]);
  // If the message of the run then fails for good, the run ends as failed.
  await fixture.b2c.failed({ tenantId: row.tenantId, runId: run.runId }, caller);
  expect(await fixture.b2c.run(row.tenantId, run.runId)).toMatchObject({
    status: "failed",
    failures: [{ code: "internal" }],
  });
  expect((await fixture.b2c.get(row.tenantId)).status).toMatchObject({
    ended: "failed",
    failures: [{ code: "internal" }],
  });
  await fixture.drain();
  expect((await fixture.b2c.discover(row.tenantId, caller)).run.status).toBe("completed");
  await expectInventoryEqualsTenant();
});
