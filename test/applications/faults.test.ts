import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf } from "simulated-cloud/company/applications.ts";
import { Dice } from "simulated-cloud/company/dice.ts";
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, test } from "vitest";
import {
  AppFences,
  Applications,
  byNameRange,
  fenceKey,
  nameKey,
  ObjectIds,
  APPS as PARTITION,
} from "../../shared/applications/application.ts";
import { Assets } from "../../shared/inventory/asset.ts";
import { partitions } from "../../shared/inventory/asset-keys.ts";
import { BUCKETS, bucketOf, holderName } from "../../shared/inventory/holder.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import type { Tables } from "../../shared/platform/storage/tables.ts";
import { configIn, liveIn } from "../azure/live-cloud.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import { applications, caller, Deployment, everything, mayCrash } from "./applications-fixture.ts";

/** Longer than a crashed worker's lease on a run and on a holder. */
const LEASES_ENDED_MS = 61_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

let storage: MovedStorage;
let live: { cloud: Cloud; config: Config };
let account = 0;
let deployment: Deployment;

beforeAll(async () => {
  const accounts = Array.from({ length: 21 }, (_, index) => `faults${index}`);
  [storage, live] = await Promise.all([
    startMovedStorage(accounts),
    liveIn({ company: { subscriptions: [], applications: applications(40) } }),
  ]);
});
beforeEach(() => {
  deployment = new Deployment(storage.azurite.connectionString(`faults${account++}`), live, storage.move);
  live.cloud.control.resetCounts();
});
afterEach(() => live.cloud.control.clearFaults());
afterAll(async () => {
  await live?.cloud.stop();
  await storage?.stop();
});

const truth = () => {
  const all = live.cloud.control.directory.applications();
  return { apps: all.length, credentials: all.reduce((sum, one) => sum + one.secrets + one.certificates, 0) };
};

/** Expects exactly the rows of the directory, each once and in every place where it belongs. */
async function expectWhole(tables: Tables): Promise<void> {
  const rows = async <T>(range: Parameters<Tables["pages"]>[1], entity: Parameters<Tables["pages"]>[0]) => {
    const found = new Map<string, T>();
    for await (const page of tables.pages(entity, range)) for (const row of page) found.set(row.rowKey, row as T);
    return found;
  };
  const directory = live.cloud.control.directory.applications();
  const byId = await rows<never>({ partitionKey: PARTITION, from: "a!", before: 'a"' }, Applications as never);
  const byName = await rows<never>(byNameRange, Applications as never);
  const objects = await rows<{ appId: string }>(
    { partitionKey: PARTITION, from: "o!", before: 'o"' },
    ObjectIds as never,
  );
  expect([...byId.keys()].sort()).toEqual(directory.map(({ appId }) => `a!${appId}`).sort());
  expect([...objects].map(([key, { appId }]) => `${key} ${appId}`).sort()).toEqual(
    directory.map(({ appId, objectId }) => `o!${objectId} ${appId}`).sort(),
  );
  const values = (found: Map<string, never>) =>
    [...found.values()].map((row) => JSON.stringify(withoutKeys(row))).sort();
  expect(values(byName)).toEqual(values(byId));
  expect([...byName.keys()].sort()).toEqual([...byId.values()].map((row) => nameKey(row)).sort());
  const everywhere = BUCKETS.map((bucket) => partitions.vault(holderName(live.cloud.app.tenantId, bucket)));
  const assets = async (partitionKey: string) =>
    [
      ...(await rows<never>({ partitionKey, from: "e!", before: 'e"' }, Assets as never)),
      ...(await rows<never>({ partitionKey, from: "n!", before: 'n"' }, Assets as never)),
    ]
      .map(([key, row]) => `${key} ${JSON.stringify(withoutKeys(row))}`)
      .sort();
  const inHolders = (await Promise.all(everywhere.map(assets))).flat().sort();
  expect(inHolders.length).toBe(2 * truth().credentials);
  expect(await assets(partitions.all)).toEqual(inHolders);
  expect(await assets(partitions.subscription("entra"))).toEqual(inHolders);
}

/** Changes of every kind: new, renamed and deleted applications, and other credentials. */
function change(round: number): void {
  const { directory } = live.cloud.control;
  directory.putApplication({ name: `Round ${round}`, secrets: [{ name: "s", expiresInDays: 50 }] });
  if (round > 0) directory.removeApplication(appIdOf(`Round ${round - 1}`));
  for (let index = 0; index < 20; index++) {
    const id = appIdOf(`App ${String((round * 7 + index) % 40).padStart(3, "0")}`);
    if (index % 2 === 0) directory.changeApplication(id, { displayName: `${round} renamed ${index}` });
    else directory.addSecret(id, { name: `round-${round}`, expiresInDays: 10 + index });
  }
}

const KILLS = IS_CAMPAIGN ? 100 : 2;

test(
  `killed at writes drawn by the seed ${SEED}, a discovery is continued and the rows match the directory`,
  async () => {
    const dice = new Dice(SEED);
    const counted = mayCrash();
    await deployment.start({ crash: counted }).applications.discover(caller);
    deployment.messages.length = 0;
    change(0);
    const changed = mayCrash();
    await deployment.scheduled("full", deployment.start({ crash: changed }));
    const writes = changed.taken;
    expect(writes).toBeGreaterThan(100);
    for (let round = 1; round <= KILLS; round++) {
      change(round);
      const crash = mayCrash(1 + Math.floor(((round - 1 + dice.next()) / KILLS) * writes * 0.95), dice.oneIn(2));
      const mode = dice.oneIn(2) ? "full" : "changes";
      const crashing = deployment.start({ crash });
      await crashing.applications.handle({ mode }, caller).catch(() => {});
      await deployment.drain(crashing).catch(() => {});
      await storage.move(LEASES_ENDED_MS);
      const process = deployment.start();
      // The queue redelivers the message. If it was never sent, the next timer starts a new run or continues.
      const run = await deployment.scheduled(mode, process);
      expect(run, `write ${crash.at} of ${writes}, ${mode}`).toMatchObject({ status: "completed", ...truth() });
      await expectWhole(process.tables);
    }
  },
  300_000 + KILLS * 20_000,
);

test("a duplicate message on two hosts leads to one run that reads Graph once", async () => {
  const [one, two] = [deployment.start(), deployment.start()];
  await one.applications.handle({ mode: "full" }, caller);
  const { message } = deployment.messages.shift()!;
  await Promise.all([one.applications.handle(message, caller), two.applications.handle(message, caller)]);
  expect(live.cloud.control.counts()).toMatchObject({ "graph.listApplications": 1, "graph.listServicePrincipals": 1 });
  // The second delivery is requeued and finds the run ended.
  expect(deployment.messages).toHaveLength(1);
  expect(deployment.messages[0]!.delaySeconds).toBeGreaterThan(30);
  await deployment.drain(two);
  expect(await one.applications.run(message.runId!)).toMatchObject({ status: "completed", ...truth() });
  expect(deployment.evaluations).toBe(1);
});

test("a slow worker can't finish once another one has its run", async () => {
  const [reading, allowed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const slow = deployment.start({
    whileReading: async () => {
      reading.resolve();
      await allowed.promise;
    },
  });
  const quick = deployment.start();
  await slow.applications.handle({ mode: "full" }, caller);
  const { message } = deployment.messages.shift()!;
  const late = slow.applications.handle(message, caller);
  await reading.promise;
  await storage.move(20_000);
  await quick.applications.handle(message, caller);
  const again = deployment.messages.shift();
  expect(again).toMatchObject({ message: { runId: message.runId } });
  // The rest of the slow worker's minute. The store's times have whole seconds.
  expect(again!.delaySeconds).toBeGreaterThan(30);
  expect(again!.delaySeconds).toBeLessThan(45);
  await storage.move(LEASES_ENDED_MS);
  change(1000);
  await quick.applications.handle(message, caller);
  const run = await quick.applications.run(message.runId!);
  expect(run).toMatchObject({ status: "completed", ...truth() });
  allowed.resolve();
  await late.catch(() => {});
  expect(await quick.applications.run(message.runId!)).toEqual(run);
  await expectWhole(quick.tables);
});

test("after a late fence request during the writes, the continued run still requests the alerts' evaluation", async () => {
  const proxy = await startTableProxy(storage.azurite.connectionString(`faults${account++}`));
  deployment = new Deployment(proxy.connectionString, live, storage.move);
  const process = deployment.start();
  await deployment.scheduled("full", process);
  const appId = appIdOf("App 001");
  live.cloud.control.directory.addSecret(appId, { name: "late", expiresInDays: 3 });
  const before = deployment.evaluations;
  const late = { owner: "late", etag: undefined };
  proxy.before(
    () => process.tables.fence(AppFences, PARTITION, fenceKey(bucketOf(appId)), late).take(),
    ({ path, body }) => path === "$batch" && /RowKey='b(!|%21)/.test(body),
  );
  expect(await deployment.scheduled("changes", process)).toMatchObject({
    status: "completed",
    attempts: 2,
    ...truth(),
  });
  await proxy.stop();
  expect(deployment.evaluations).toBe(before + 1);
});

test.each([
  ["deny", { kind: "deny" }, "accessDenied"],
  ["throttle", { kind: "throttle", retryAfterSeconds: 600 }, "throttled"],
  ["another shape", { kind: "garbage", as: "otherShape" }, "badResponse"],
] as const)("if Graph returns %s, stored data stays and the run has a remedy", async (_name, action, code) => {
  const process = deployment.start();
  await process.applications.discover(caller);
  deployment.messages.length = 0;
  const known = truth();
  const shown = async () => (await process.applications.list({}, everything)).items.map(({ app }) => app);
  const before = await shown();
  change(2000 + account);
  live.cloud.control.addFault({ match: { operation: "graph.listApplications" }, action });
  const partial = await deployment.scheduled("full", process);
  expect(partial).toMatchObject({ status: "partial", ...known });
  expect(await shown()).toEqual(before);
  expect(partial!.failures).toMatchObject([{ list: "applications", code, remedy: expect.stringMatching(/./) }]);
  if (code === "accessDenied") expect(partial!.failures[0]!.remedy).toContain("Application.Read.All");
  live.cloud.control.addFault({ match: { operation: "graph.listServicePrincipals" }, action });
  const failed = await deployment.scheduled("full", process);
  expect(failed).toMatchObject({ status: "failed", ...known });
  expect(failed!.failures.map(({ list }) => list)).toEqual(["applications", "servicePrincipals"]);
  live.cloud.control.clearFaults();
  expect(await deployment.scheduled("full", process)).toMatchObject({ status: "completed", ...truth() });
});

test("a discovery that can't sign in reports that, and stored data stays", async () => {
  await deployment.start().applications.discover(caller);
  deployment.messages.length = 0;
  const config = configIn(live.cloud, "another-secret");
  expect(await new Deployment(deployment.connectionString, { ...live, config }).scheduled("full")).toMatchObject({
    status: "failed",
    ...truth(),
    failures: [{ list: "applications", code: "unauthenticated", remedy: expect.stringMatching(/./) }],
  });
});

test("service principals that can't be listed are kept for 7 days", async () => {
  const name = "Signs SAML";
  live.cloud.control.directory.putApplication({ name, samlSigning: { expiresInDays: 90 } });
  onTestFinished(() => void live.cloud.control.directory.removeApplication(appIdOf(name)));
  await deployment.start().applications.discover(caller);
  deployment.messages.length = 0;
  live.cloud.control.addFault({ match: { operation: "graph.listServicePrincipals" }, action: { kind: "deny" } });
  const known = async (ahead: number) => {
    const process = deployment.start({ ahead });
    expect(await deployment.scheduled("full", process)).toMatchObject({ status: "partial" });
    return (await process.applications.get(appIdOf(name))).app.credentials.length;
  };
  expect(await known(7 * DAY_MS - HOUR_MS)).toBeGreaterThan(0);
  expect(await known(7 * DAY_MS + HOUR_MS)).toBe(0);
});

test("without a license no run starts, and credentials leave the counts with a reason; a started run ends", async () => {
  const process = deployment.start();
  await process.applications.handle({ mode: "full" }, caller);
  deployment.licensed = false;
  await deployment.drain(process);
  const moment = await process.inventory.moment();
  const list = (counted: boolean) => process.inventory.assets.list({ source: "entra", counted }, everything, moment);
  expect((await list(true)).total).toBe(0);
  const left = await list(false);
  expect(left.total).toBe(truth().credentials);
  expect(new Set(left.items.map(({ notCounted }) => notCounted))).toEqual(new Set(["noLicense"]));
  const none = { healthy: 0, warning: 0, critical: 0, expired: 0 };
  expect((await process.inventory.assets.figures(moment)).assets).toEqual({
    certificate: none,
    key: none,
    secret: none,
  });
  live.cloud.control.resetCounts();
  await process.applications.handle({ mode: "full" }, caller);
  expect(deployment.messages).toEqual([]);
  expect(live.cloud.control.counts().total).toBe(0);
  deployment.licensed = true;
  expect((await list(true)).total).toBe(truth().credentials);
});

test("credentials that were not seen for 7 days leave the counts, and return when they are seen", async () => {
  await deployment.start().applications.discover(caller);
  deployment.messages.length = 0;
  const count = async (aheadMs: number, counted = true) => {
    const { inventory } = deployment.start({ ahead: aheadMs });
    return await inventory.assets.list({ source: "entra", counted }, everything, await inventory.moment());
  };
  expect((await count(7 * DAY_MS - HOUR_MS)).total).toBe(truth().credentials);
  expect((await count(7 * DAY_MS + HOUR_MS)).total).toBe(0);
  const { items } = await count(7 * DAY_MS + HOUR_MS, false);
  expect(items.every(({ notCounted }) => notCounted === "notSeen")).toBe(true);
  expect(items).toHaveLength(truth().credentials);
  // The timer for changes finds that the last complete listing is too old.
  await deployment.scheduled("changes", deployment.start({ ahead: 8 * DAY_MS }));
  expect((await count(8 * DAY_MS + HOUR_MS)).total).toBe(truth().credentials);
});

test("a request stops waiting after its limit; its run continues, and ends once", async () => {
  live.cloud.control.addFault({
    match: { operation: "graph.listApplications" },
    action: { kind: "latency", milliseconds: 600 },
  });
  const process = deployment.start({ waitMs: 50 });
  const [first, second] = await Promise.all([
    process.applications.discover(caller),
    process.applications.discover(caller),
  ]);
  expect(first.run.status).toBe("running");
  expect(second.run.runId).toBe(first.run.runId);
  while ((await process.applications.run(first.run.runId)).status === "running")
    await new Promise((done) => setTimeout(done, 50));
  expect(await process.applications.run(first.run.runId)).toMatchObject({ status: "completed", ...truth() });
  await deployment.drain(process);
  expect(live.cloud.control.counts()["graph.listApplications"]).toBe(1);
});

test("a message that failed five times ends its run as failed, and the next one starts", async () => {
  const process = deployment.start();
  await process.applications.handle({ mode: "full" }, caller);
  const { message } = deployment.messages.shift()!;
  await process.applications.failed(message, caller);
  expect(await process.applications.run(message.runId!)).toMatchObject({
    status: "failed",
    failures: [{ code: "internal" }],
  });
  expect((await process.applications.discover(caller)).run).toMatchObject({ status: "completed" });
});
