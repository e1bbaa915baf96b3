import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf } from "simulated-cloud/company/applications.ts";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { assetId } from "../../shared/inventory/asset.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { caller, company, openTestRegistry, type TestRegistry } from "./support.ts";

/** Number of crashes to test; a campaign crashes at every write. */
const SAMPLE = IS_CAMPAIGN ? Number.POSITIVE_INFINITY : 6;

let storage: MovedStorage;
let live: { cloud: Cloud; config: Config };
let account = 0;

const ACCOUNTS = Array.from({ length: 12 }, (_, index) => `tenantfaults${index}`);
beforeAll(async () => {
  [storage, live] = await Promise.all([startMovedStorage(ACCOUNTS), liveIn({ company })]);
});
let fixture: TestRegistry;
beforeEach(() => {
  fixture = openTestRegistry(live.cloud, live.config, storage.azurite.connectionString(ACCOUNTS[account++]!), storage);
});
afterEach(() => live.cloud.control.clearFaults());
afterAll(async () => {
  await live?.cloud.stop();
  await storage?.stop();
});

const partners = () => live.cloud.control.tenants.list()[1]!;
const directory = () => live.cloud.control.tenants.directory(partners().id);

/** The inventory equals the tenant, each credential once and in every list. */
async function expectTruth(): Promise<void> {
  const keyIds = directory()
    .applications()
    .flatMap(({ appId }) =>
      directory()
        .secrets(appId)
        .filter(({ removedAt }) => removedAt === undefined),
    )
    .map(({ keyId }) => keyId);
  const assets = await fixture.assets(partners().id);
  const found = assets.flatMap(({ credential }) => (credential?.of ? credential.keyId! : []));
  expect(found.sort()).toEqual(keyIds.sort());
  expect(new Set(assets.map(assetId)).size).toBe(assets.length);
  const { status } = await fixture.b2c.get(partners().id);
  expect(status).toMatchObject({ ended: "completed", counts: { applications: keyIds.length, identityProviders: 1 } });
  expect(status.runId).toBeUndefined();
}

test("a discovery that crashes at any write is resumed, alerts once, and its result equals the tenant", async () => {
  const { row } = await fixture.register("partners");
  await fixture.b2c.discover(row.tenantId, caller);
  await fixture.drain();
  let change = 0;
  /** Creates something to write: one new secret, and one fewer. */
  const another = () => {
    const app = appIdOf(`Partner Portal ${["EU", "UK", "US"][change++ % 3]}`);
    const { keyId } = directory().addSecret(app, { name: `new ${change}`, expiresInDays: 90 });
    const old = directory()
      .secrets(app)
      .find((one) => one.removedAt === undefined && one.keyId !== keyId);
    if (old) directory().removeSecret(app, old.keyId);
  };
  another();
  const whole: Steps = { taken: 0 };
  await fixture.instance(whole).b2c.discover(row.tenantId, caller);
  await fixture.drain();
  expect(whole.taken).toBeGreaterThan(20);

  const step = Math.max(1, Math.floor(whole.taken / SAMPLE));
  let crashes = 0;
  for (let crashAt = 1; crashAt <= whole.taken; crashAt += step) {
    another();
    fixture.events.splice(0);
    const steps: Steps = { taken: 0, crashAt, when: crashAt % 2 === 0 ? "before" : "after" };
    const outcome = await fixture
      .instance(steps)
      .b2c.discover(row.tenantId, caller)
      .then(({ run }) => run.status)
      .catch(() => "died");
    if (steps.dead) crashes++;
    await fixture.drain();
    // A crash before the first write leaves nothing to resume.
    if (outcome === "died" && !fixture.events.some(({ type }) => type === "b2cTenant.discovered")) {
      await fixture.b2c.discover(row.tenantId, caller);
      await fixture.drain();
    }
    const discoveredEvents = fixture.events.filter(({ type }) => type === "b2cTenant.discovered");
    expect([crashAt, new Set(discoveredEvents.map(({ id }) => id)).size]).toEqual([crashAt, 1]);
    await expectTruth();
  }
  expect(crashes).toBeGreaterThan(3);
});

test("duplicate messages on two hosts are one run", async () => {
  const { row } = await fixture.register("partners");
  await fixture.b2c.tick();
  const [message] = fixture.messages.splice(0);
  const [one, other] = [fixture.instance().b2c, fixture.instance().b2c];
  live.cloud.control.resetCounts();
  await Promise.all([one.handle(message!.message, caller), other.handle(message!.message, caller)]);
  const startMessages = fixture.messages.splice(0);
  await Promise.all(
    [...startMessages, ...startMessages].map((each, at) => [one, other][at % 2]!.handle(each.message, caller)),
  );
  await fixture.drain();
  await one.handle(message!.message, caller);
  await fixture.drain();
  expect(live.cloud.control.counts()["graph.getOrganization"]).toBe(1);
  expect(fixture.events.filter(({ type }) => type === "b2cTenant.discovered")).toHaveLength(1);
  expect((await fixture.b2c.get(row.tenantId)).status.runId).toBeUndefined();
  await expectTruth();
});

test("a slow worker writes nothing after a removal, and what it wrote before is deleted", async () => {
  const { row } = await fixture.register("partners");
  live.cloud.control.addFault({
    match: { operation: "graph.listIdentityProviders" },
    action: { kind: "latency", milliseconds: 1500 },
  });
  const slow = fixture.instance().b2c.discover(row.tenantId, caller);
  await expect.poll(async () => (await fixture.b2c.get(row.tenantId)).status.runId, { timeout: 150_000 }).toBeDefined();
  await fixture.b2c.remove(row.tenantId, undefined, caller);
  await slow.catch(() => {});
  await fixture.drain();
  expect(await fixture.assets()).toEqual([]);
  // The state after a write at the very moment of the removal.
  await fixture.register("partners");
  await fixture.b2c.discover(row.tenantId, caller);
  await fixture.tables.remove({ table: "B2c" } as never, "tenants", `t|${row.tenantId}`);
  await fixture.b2c.cleanUp(caller);
  expect(await fixture.assets()).toEqual([]);
});

test("a request waits no longer than its limit; a message that failed for good ends its run as failed", async () => {
  const { row } = await fixture.register("partners");
  live.cloud.control.addFault({
    match: { operation: "graph.getOrganization" },
    action: { kind: "latency", milliseconds: 2000 },
    times: 1,
  });
  const { run, isNew } = await fixture.instance({ taken: 0 }, 50).b2c.discover(row.tenantId, caller);
  expect([isNew, run.status]).toEqual([true, "running"]);
  const second = await fixture.instance({ taken: 0 }, 50).b2c.discover(row.tenantId, caller);
  expect([second.isNew, second.run.runId]).toEqual([false, run.runId]);
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
  await expectTruth();
});
