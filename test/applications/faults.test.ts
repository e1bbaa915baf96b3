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
import { DAY_MS, HOUR_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { configFor, startTestCloud } from "../azure/live-cloud.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import { ALL_ITEMS, applications, caller, Deployment, planCrash } from "./applications-fixture.ts";

// Tests of the discovery of applications when processes crash, messages are duplicated, and Graph fails. A holder is an entry of
// the inventory with credentials outside of key vaults, here those of one of 16 buckets of applications.

/** Longer than the minute for which a crashed worker still has the lease of a run or of a holder. */
const AFTER_LEASES_MS = 61_000;

let storage: MovedStorage;
let live: { cloud: Cloud; config: Config };
let nextAccount = 0;
let deployment: Deployment;

beforeAll(async () => {
  const accounts = Array.from({ length: 21 }, (_, index) => `faults${index}`);
  [storage, live] = await Promise.all([
    startMovedStorage(accounts),
    startTestCloud({ company: { subscriptions: [], applications: applications(40) } }),
  ]);
});
beforeEach(() => {
  deployment = new Deployment(storage.azurite.connectionString(`faults${nextAccount++}`), live, storage.move);
  live.cloud.control.resetCounts();
});
afterEach(() => live.cloud.control.clearFaults());
afterAll(async () => {
  await live?.cloud.stop();
  await storage?.stop();
});

/** Numbers of applications and credentials in the simulated directory. */
const directoryCounts = () => {
  const applications = live.cloud.control.directory.applications();
  return {
    apps: applications.length,
    credentials: applications.reduce((sum, app) => sum + app.secrets + app.certificates, 0),
  };
};

/** Expects the tables to contain exactly the directory's applications and credentials, and all copies of a row to be equal. */
async function expectTablesEqualDirectory(tables: Tables): Promise<void> {
  // Returns the rows of a range by row key.
  const rows = async <T>(range: Parameters<Tables["pages"]>[1], entity: Parameters<Tables["pages"]>[0]) => {
    const byRowKey = new Map<string, T>();
    for await (const page of tables.pages(entity, range)) for (const row of page) byRowKey.set(row.rowKey, row as T);
    return byRowKey;
  };
  const directory = live.cloud.control.directory.applications();
  // An application has a row by ID (`a!`), a row by name and a row by object ID (`o!`).
  const byId = await rows<never>({ partitionKey: PARTITION, from: "a!", before: 'a"' }, Applications as never);
  const byName = await rows<never>(byNameRange, Applications as never);
  const byObjectId = await rows<{ appId: string }>(
    { partitionKey: PARTITION, from: "o!", before: 'o"' },
    ObjectIds as never,
  );
  expect([...byId.keys()].sort()).toEqual(directory.map(({ appId }) => `a!${appId}`).sort());
  expect([...byObjectId].map(([key, { appId }]) => `${key} ${appId}`).sort()).toEqual(
    directory.map(({ appId, objectId }) => `o!${objectId} ${appId}`).sort(),
  );
  const values = (rowsByKey: Map<string, never>) =>
    [...rowsByKey.values()].map((row) => JSON.stringify(withoutKeys(row))).sort();
  expect(values(byName)).toEqual(values(byId));
  expect([...byName.keys()].sort()).toEqual([...byId.values()].map((row) => nameKey(row)).sort());
  const holderPartitions = BUCKETS.map((bucket) => partitions.vault(holderName(live.cloud.app.tenantId, bucket)));
  // An asset has two rows in each of three partitions: one sorted by expiry (`e!`), one by name (`n!`).
  const assets = async (partitionKey: string) =>
    [
      ...(await rows<never>({ partitionKey, from: "e!", before: 'e"' }, Assets as never)),
      ...(await rows<never>({ partitionKey, from: "n!", before: 'n"' }, Assets as never)),
    ]
      .map(([key, row]) => `${key} ${JSON.stringify(withoutKeys(row))}`)
      .sort();
  const inHolders = (await Promise.all(holderPartitions.map(assets))).flat().sort();
  expect(inHolders.length).toBe(2 * directoryCounts().credentials);
  expect(await assets(partitions.all)).toEqual(inHolders);
  expect(await assets(partitions.subscription("entra"))).toEqual(inHolders);
}

/**
 * Changes the directory: adds, renames and deletes applications, and adds credentials.
 *
 * @param round - A number that no other call uses, so that it has other names.
 */
function changeDirectory(round: number): void {
  const { directory } = live.cloud.control;
  directory.putApplication({ name: `Round ${round}`, secrets: [{ name: "s", expiresInDays: 50 }] });
  if (round > 0) directory.removeApplication(appIdOf(`Round ${round - 1}`));
  for (let index = 0; index < 20; index++) {
    const id = appIdOf(`App ${String((round * 7 + index) % 40).padStart(3, "0")}`);
    if (index % 2 === 0) directory.changeApplication(id, { displayName: `${round} renamed ${index}` });
    else directory.addSecret(id, { name: `round-${round}`, expiresInDays: 10 + index });
  }
}

/** Number of crashes to test: many in a campaign (a long test run). */
const CRASHES = IS_CAMPAIGN ? 100 : 2;

test(
  `a discovery is continued after a crash at a random write (seed ${SEED})`,
  async () => {
    const random = new Dice(SEED);
    const noCrash = planCrash();
    await deployment.start({ crash: noCrash }).applications.discover(caller);
    deployment.messages.length = 0;
    changeDirectory(0);
    const writeCount = planCrash();
    await deployment.runScheduled("full", deployment.start({ crash: writeCount }));
    const { writes } = writeCount;
    expect(writes).toBeGreaterThan(100);
    for (let round = 1; round <= CRASHES; round++) {
      changeDirectory(round);
      // Within 95 % of the counted writes: a run with fewer writes would end before a later crash.
      const crash = planCrash(1 + Math.floor(((round - 1 + random.next()) / CRASHES) * writes * 0.95), random.oneIn(2));
      const mode = random.oneIn(2) ? "full" : "changes";
      const crashing = deployment.start({ crash });
      await crashing.applications.handle({ mode }, caller).catch(() => {});
      await deployment.drain(crashing).catch(() => {});
      await storage.move(AFTER_LEASES_MS);
      const process = deployment.start();
      // The next timer call continues the crashed run, or starts a new one.
      const run = await deployment.runScheduled(mode, process);
      expect(run, `write ${crash.atWrite} of ${writes}, ${mode}`).toMatchObject({
        status: "completed",
        ...directoryCounts(),
      });
      await expectTablesEqualDirectory(process.tables);
    }
  },
  300_000 + CRASHES * 20_000,
);

test("a duplicate message on two hosts causes one run that reads Graph once", async () => {
  const [first, second] = [deployment.start(), deployment.start()];
  await first.applications.handle({ mode: "full" }, caller);
  const { message } = deployment.messages.shift()!;
  await Promise.all([first.applications.handle(message, caller), second.applications.handle(message, caller)]);
  expect(live.cloud.control.counts()).toMatchObject({ "graph.listApplications": 1, "graph.listServicePrincipals": 1 });
  // The second delivery is requeued and finds the run ended.
  expect(deployment.messages).toHaveLength(1);
  expect(deployment.messages[0]!.delaySeconds).toBeGreaterThan(30);
  await deployment.drain(second);
  expect(await first.applications.run(message.runId!)).toMatchObject({ status: "completed", ...directoryCounts() });
  expect(deployment.evaluations).toBe(1);
});

test("a slow worker can't end its run after another worker has taken the run over", async () => {
  const [readingStarted, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const slowProcess = deployment.start({
    whileReading: async () => {
      readingStarted.resolve();
      await released.promise;
    },
  });
  const quickProcess = deployment.start();
  await slowProcess.applications.handle({ mode: "full" }, caller);
  const { message } = deployment.messages.shift()!;
  const slowWork = slowProcess.applications.handle(message, caller);
  await readingStarted.promise;
  await storage.move(20 * SECOND_MS);
  await quickProcess.applications.handle(message, caller);
  const requeued = deployment.messages.shift();
  expect(requeued).toMatchObject({ message: { runId: message.runId } });
  // The rest of the slow worker's lease of one minute. Times in storage have whole seconds.
  expect(requeued!.delaySeconds).toBeGreaterThan(30);
  expect(requeued!.delaySeconds).toBeLessThan(45);
  await storage.move(AFTER_LEASES_MS);
  changeDirectory(1000);
  await quickProcess.applications.handle(message, caller);
  const run = await quickProcess.applications.run(message.runId!);
  expect(run).toMatchObject({ status: "completed", ...directoryCounts() });
  released.resolve();
  await slowWork.catch(() => {});
  expect(await quickProcess.applications.run(message.runId!)).toEqual(run);
  await expectTablesEqualDirectory(quickProcess.tables);
});

test("an evaluation of alerts is requested even if a late request for the fence interrupts the writes", async () => {
  const proxy = await startTableProxy(storage.azurite.connectionString(`faults${nextAccount++}`));
  deployment = new Deployment(proxy.connectionString, live, storage.move);
  const process = deployment.start();
  await deployment.runScheduled("full", process);
  const appId = appIdOf("App 001");
  live.cloud.control.directory.addSecret(appId, { name: "late", expiresInDays: 3 });
  const evaluationsBefore = deployment.evaluations;
  // A fence is a row whose ETag each write requires. A late request of another worker takes it during the writes.
  const lateWorker = { owner: "late", etag: undefined };
  proxy.before(
    () => process.tables.fence(AppFences, PARTITION, fenceKey(bucketOf(appId)), lateWorker).take(),
    // The transaction that writes the bucket's own row (`b!`), the last write of the bucket.
    ({ path, body }) => path === "$batch" && /RowKey='b(!|%21)/.test(body),
  );
  expect(await deployment.runScheduled("changes", process)).toMatchObject({
    status: "completed",
    attempts: 2,
    ...directoryCounts(),
  });
  await proxy.stop();
  expect(deployment.evaluations).toBe(evaluationsBefore + 1);
});

test.each([
  ["deny", { kind: "deny" }, "accessDenied"],
  ["throttle", { kind: "throttle", retryAfterSeconds: 600 }, "throttled"],
  ["another shape", { kind: "garbage", as: "otherShape" }, "badResponse"],
] as const)(
  "stored applications remain if a list of Graph fails (%s), and the run names a remedy",
  async (_name, action, code) => {
    const process = deployment.start();
    await process.applications.discover(caller);
    deployment.messages.length = 0;
    const countsBefore = directoryCounts();
    const listedApplications = async () => (await process.applications.list({}, ALL_ITEMS)).items.map(({ app }) => app);
    const applicationsBefore = await listedApplications();
    changeDirectory(2000 + nextAccount);
    live.cloud.control.addFault({ match: { operation: "graph.listApplications" }, action });
    const partial = await deployment.runScheduled("full", process);
    expect(partial).toMatchObject({ status: "partial", ...countsBefore });
    expect(await listedApplications()).toEqual(applicationsBefore);
    expect(partial!.failures).toMatchObject([{ list: "applications", code, remedy: expect.stringMatching(/./) }]);
    if (code === "accessDenied") expect(partial!.failures[0]!.remedy).toContain("Application.Read.All");
    live.cloud.control.addFault({ match: { operation: "graph.listServicePrincipals" }, action });
    const failed = await deployment.runScheduled("full", process);
    expect(failed).toMatchObject({ status: "failed", ...countsBefore });
    expect(failed!.failures.map(({ list }) => list)).toEqual(["applications", "servicePrincipals"]);
    live.cloud.control.clearFaults();
    expect(await deployment.runScheduled("full", process)).toMatchObject({ status: "completed", ...directoryCounts() });
  },
);

test("a discovery that can't sign in fails, and stored applications remain", async () => {
  await deployment.start().applications.discover(caller);
  deployment.messages.length = 0;
  const config = configFor(live.cloud, "another-secret");
  expect(await new Deployment(deployment.connectionString, { ...live, config }).runScheduled("full")).toMatchObject({
    status: "failed",
    ...directoryCounts(),
    failures: [{ list: "applications", code: "unauthenticated", remedy: expect.stringMatching(/./) }],
  });
});

test("credentials of service principals that can't be listed remain for 7 days", async () => {
  const name = "Signs SAML";
  live.cloud.control.directory.putApplication({ name, samlSigning: { expiresInDays: 90 } });
  onTestFinished(() => void live.cloud.control.directory.removeApplication(appIdOf(name)));
  await deployment.start().applications.discover(caller);
  deployment.messages.length = 0;
  live.cloud.control.addFault({ match: { operation: "graph.listServicePrincipals" }, action: { kind: "deny" } });
  /** Runs a discovery at a later time and returns the number of the application's credentials. */
  const credentialsLater = async (ahead: number) => {
    const process = deployment.start({ ahead });
    expect(await deployment.runScheduled("full", process)).toMatchObject({ status: "partial" });
    return (await process.applications.get(appIdOf(name))).app.credentials.length;
  };
  expect(await credentialsLater(7 * DAY_MS - HOUR_MS)).toBeGreaterThan(0);
  expect(await credentialsLater(7 * DAY_MS + HOUR_MS)).toBe(0);
});

test("without a license no run starts, and credentials are not counted", async () => {
  const process = deployment.start();
  await process.applications.handle({ mode: "full" }, caller);
  deployment.licensed = false;
  // The run that had started ends.
  await deployment.drain(process);
  const moment = await process.inventory.moment();
  const list = (counted: boolean) => process.inventory.assets.list({ source: "entra", counted }, ALL_ITEMS, moment);
  expect((await list(true)).total).toBe(0);
  const uncounted = await list(false);
  expect(uncounted.total).toBe(directoryCounts().credentials);
  expect(new Set(uncounted.items.map(({ notCounted }) => notCounted))).toEqual(new Set(["noLicense"]));
  const noAssets = { healthy: 0, warning: 0, critical: 0, expired: 0 };
  expect((await process.inventory.assets.figures(moment)).assets).toEqual({
    certificate: noAssets,
    key: noAssets,
    secret: noAssets,
  });
  live.cloud.control.resetCounts();
  await process.applications.handle({ mode: "full" }, caller);
  expect(deployment.messages).toEqual([]);
  expect(live.cloud.control.counts().total).toBe(0);
  deployment.licensed = true;
  expect((await list(true)).total).toBe(directoryCounts().credentials);
});

test("credentials that were not seen for 7 days are not counted until they are seen again", async () => {
  await deployment.start().applications.discover(caller);
  deployment.messages.length = 0;
  const listLater = async (aheadMs: number, counted = true) => {
    const { inventory } = deployment.start({ ahead: aheadMs });
    return await inventory.assets.list({ source: "entra", counted }, ALL_ITEMS, await inventory.moment());
  };
  expect((await listLater(7 * DAY_MS - HOUR_MS)).total).toBe(directoryCounts().credentials);
  expect((await listLater(7 * DAY_MS + HOUR_MS)).total).toBe(0);
  const { items } = await listLater(7 * DAY_MS + HOUR_MS, false);
  expect(items.every(({ notCounted }) => notCounted === "notSeen")).toBe(true);
  expect(items).toHaveLength(directoryCounts().credentials);
  // The timer for changes finds that the last complete listing is too old.
  await deployment.runScheduled("changes", deployment.start({ ahead: 8 * DAY_MS }));
  expect((await listLater(8 * DAY_MS + HOUR_MS)).total).toBe(directoryCounts().credentials);
});

test("a request returns the running discovery after its time limit, and the run continues", async () => {
  // Much longer than the time limit of the request below (`waitMs`).
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
  expect(await process.applications.run(first.run.runId)).toMatchObject({ status: "completed", ...directoryCounts() });
  await deployment.drain(process);
  expect(live.cloud.control.counts()["graph.listApplications"]).toBe(1);
});

test("a message that failed five times ends its run as failed, and the next run can start", async () => {
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
