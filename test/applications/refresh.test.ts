import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf, keyIdOf } from "simulated-cloud/company/applications.ts";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { APPS, AppFences, fenceKey } from "../../shared/applications/application.ts";
import { DiscoverMessage } from "../../shared/applications/applications.ts";
import { bucketOf } from "../../shared/inventory/holder.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { ALL_ITEMS, applications, caller, Deployment, type Process, planCrash } from "./applications-fixture.ts";

// Tests that the inventory follows a change that this service made itself: one application is read again, without a run.

/** Longer than the minute for which a crashed worker still has its lease. */
const AFTER_LEASES_MS = 61_000;
const [APP, OTHER_APP] = ["App 003", "App 004"];
const appId = appIdOf(APP);

let storage: MovedStorage;
let live: { cloud: Cloud; config: Config };
let accountIndex = 0;
let deployment: Deployment;
let process: Process;

beforeAll(async () => {
  [storage, live] = await Promise.all([
    startMovedStorage(Array.from({ length: 20 }, (_, index) => `refresh${index}`)),
    startTestCloud({ company: { subscriptions: [], applications: applications(8) } }),
  ]);
});
beforeEach(async () => {
  deployment = new Deployment(storage.azurite.connectionString(`refresh${accountIndex++}`), live, storage.move);
  process = deployment.start();
  await process.applications.discover(caller);
  deployment.messages.length = 0;
  deployment.evaluations = 0;
  live.cloud.control.resetCounts();
});
afterEach(() => live.cloud.control.clearFaults());
afterAll(async () => {
  await live?.cloud.stop();
  await storage?.stop();
});

const directory = () => live.cloud.control.directory;
const objectId = () =>
  directory()
    .applications()
    .find((one) => one.appId === appId)!.objectId;
const liveKeyIds = (id = appId) =>
  directory()
    .secrets(id)
    .flatMap(({ keyId, removedAt }) => (removedAt === undefined ? [keyId] : []))
    .sort();

/** Returns the stored key IDs of an application's secrets: in the list of applications, and in the assets of the inventory. */
async function storedKeyIds(from = process, id = appId): Promise<[listed: string[], assets: string[]]> {
  const { app } = await from.applications.get(id);
  const assets = await from.inventory.assets.list({ source: "entra" }, ALL_ITEMS, await from.inventory.moment());
  return [
    app.credentials
      .filter(({ kind }) => kind === "secret")
      .map(({ keyId }) => keyId)
      .sort(),
    assets.items
      .flatMap(({ asset }) =>
        asset.type === "secret" && asset.credential?.appId === id ? [asset.credential.keyId ?? ""] : [],
      )
      .sort(),
  ];
}

/** Adds a secret to the application, and removes another one, as a rotation does. Returns the request to read it again. */
function rotateInDirectory(name: string) {
  const [removed] = liveKeyIds();
  const { keyId: added } = directory().addSecret(appId, { name, expiresInDays: 3 });
  directory().removeSecret(appId, removed!);
  return { appId, objectId: objectId(), added, removed };
}

const nextMessage = () => deployment.messages.shift()!;

test("a changed application is read again alone, with its credentials, and alerts are evaluated", async () => {
  directory().addSecret(appIdOf(OTHER_APP), { name: "of another change", expiresInDays: 90 });
  const otherKeyIds = await storedKeyIds(process, appIdOf(OTHER_APP));
  await process.applications.requestRefresh(rotateInDirectory("first"));
  // A worker of an earlier version knows only the mode, and then reads changes instead of all applications.
  expect(deployment.messages).toMatchObject([{ message: { mode: "changes", application: { attempts: 0 } } }]);
  live.cloud.control.resetCounts();
  await deployment.drain(process);
  const counts = live.cloud.control.counts();
  expect(Object.keys(counts).filter((name) => name.startsWith("graph."))).toEqual(["graph.getApplication"]);
  expect(counts["graph.getApplication"]).toBe(1);
  expect(await storedKeyIds()).toEqual([liveKeyIds(), liveKeyIds()]);
  expect(deployment.evaluations).toBe(1);
  expect(await storedKeyIds(process, appIdOf(OTHER_APP))).toEqual(otherKeyIds);
  // The same message again changes nothing.
  await process.applications.requestRefresh({ appId, objectId: objectId() });
  await deployment.drain(process);
  expect(deployment.evaluations).toBe(1);
  // The next discovery of changes still finds the other application's change, and nothing new of this one.
  const run = await deployment.runScheduled("changes", process);
  const [entry] = (await process.audit.list({ eventType: "applications.discovered" }, ALL_ITEMS)).items;
  expect([run?.status, entry!.details]).toMatchObject(["completed", { updated: 1 }]);
});

test("an answer of the directory that is older than the change is not stored, and the application is read again", async () => {
  const [keyId] = liveKeyIds();
  await process.applications.requestRefresh({ appId, objectId: objectId(), removed: keyId });
  await process.applications.handle(nextMessage().message, caller);
  expect(deployment.messages).toMatchObject([{ message: { application: { removed: keyId, attempts: 1 } } }]);
  directory().removeSecret(appId, keyId!);
  await deployment.drain(process);
  expect(await storedKeyIds()).toEqual([liveKeyIds(), liveKeyIds()]);
  // Another person can revert a change. The messages end after a maximum number of attempts.
  await process.applications.requestRefresh({ appId, objectId: objectId(), added: keyIdOf("Nobody", "none") });
  await deployment.drain(process);
  expect(deployment.messages).toEqual([]);
  // A message that somebody else wrote can't be repeated for longer.
  const { success } = DiscoverMessage.safeParse({ application: { appId, objectId: objectId(), attempts: -1000 } });
  expect(success).toBe(false);
});

test("a run in progress may have read the application before the change, so the application is read again after the run", async () => {
  await process.applications.handle({ mode: "full" }, caller);
  const run = nextMessage().message;
  await process.applications.requestRefresh(rotateInDirectory("beside a run"));
  live.cloud.control.resetCounts();
  await process.applications.handle(nextMessage().message, caller);
  expect(live.cloud.control.counts()).toMatchObject({ total: 0 });
  expect(deployment.messages).toMatchObject([{ message: { application: { attempts: 0 } }, delaySeconds: 15 }]);
  await process.applications.handle(run, caller);
  await deployment.drain(process);
  expect(await storedKeyIds()).toEqual([liveKeyIds(), liveKeyIds()]);
});

test("a failure of the directory is retried, and after many failures the message fails", async () => {
  const fault = live.cloud.control.addFault({ match: { operation: "graph.*" }, action: { kind: "deny" } });
  await process.applications.requestRefresh(rotateInDirectory("while denied"));
  const { message } = nextMessage();
  await process.applications.handle(message, caller);
  expect(deployment.messages).toMatchObject([{ message: { application: { attempts: 1 } } }]);
  // The maximum number of attempts (`MAX_REFRESHES`).
  const lastAttempt: DiscoverMessage = { application: { ...message.application!, attempts: 20 } };
  await expect(process.applications.handle(lastAttempt, caller)).rejects.toMatchObject({ code: "accessDenied" });
  await process.applications.failed(lastAttempt, caller);
  live.cloud.control.removeFault(fault);
  await deployment.drain(process);
  expect(await storedKeyIds()).toEqual([liveKeyIds(), liveKeyIds()]);
});

test("writes fail if another worker took the applications over meanwhile, and the application is read again", async () => {
  await process.applications.requestRefresh(rotateInDirectory("contended"));
  const { message } = nextMessage();
  const other = process.tables.fence(AppFences, APPS, fenceKey(bucketOf(appId)), { owner: "other", etag: undefined });
  // The other worker takes the applications over while the first one waits for the answer of Graph.
  const slowGraph = live.cloud.control.addFault({
    match: { operation: "graph.*" },
    action: { kind: "latency", milliseconds: 1500 },
  });
  const handled = process.applications.handle(message, caller);
  await expect.poll(() => live.cloud.control.counts().total).toBe(1);
  await other.take();
  await handled;
  live.cloud.control.removeFault(slowGraph);
  expect(deployment.messages).toMatchObject([{ message: { application: { attempts: 0 } }, delaySeconds: 1 }]);
  await deployment.drain(process);
  expect(await storedKeyIds()).toEqual([liveKeyIds(), liveKeyIds()]);
});

test("a crash at any write is completed by the next delivery of the message", async () => {
  let crashes = 0;
  for (let atWrite = 1, hasCrashed = true; hasCrashed; atWrite++) {
    hasCrashed = false;
    for (const isApplied of [false, true]) {
      await process.applications.requestRefresh(rotateInDirectory(`crash-${atWrite}-${isApplied}`));
      const { message } = nextMessage();
      const crash = planCrash(atWrite, isApplied);
      await deployment
        .start({ crash })
        .applications.handle(message, caller)
        .catch(() => {});
      hasCrashed ||= crash.hasCrashed;
      if (crash.hasCrashed) crashes++;
      deployment.messages.length = 0;
      await storage.move(AFTER_LEASES_MS);
      const next = deployment.start();
      await next.applications.handle(message, caller);
      await deployment.drain(next);
      expect(await storedKeyIds(next), `write ${atWrite}, ${isApplied}`).toEqual([liveKeyIds(), liveKeyIds()]);
    }
  }
  expect(crashes).toBeGreaterThan(6);
});

test("before the first discovery nothing is written", async () => {
  // The last account, which no other test uses.
  const empty = new Deployment(storage.azurite.connectionString("refresh19"), live).start();
  await empty.applications.handle({ application: { appId, objectId: objectId(), attempts: 0 } }, caller);
  await expect(empty.applications.get(appId)).rejects.toMatchObject({ code: "notFound" });
});
