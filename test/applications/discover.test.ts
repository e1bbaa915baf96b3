import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf, keyIdOf } from "simulated-cloud/company/applications.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import type { ReadApplication } from "../../shared/applications/read-graph.ts";
import { contentsOf } from "../../shared/applications/write-bucket.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import { applications, caller, Deployment, everything } from "./applications-fixture.ts";

const APPS = 40;
let storage: MovedStorage;
let live: { cloud: Cloud; config: Config };
let account = 0;
let deployment: Deployment;

beforeAll(async () => {
  const accounts = Array.from({ length: 24 }, (_, index) => `apps${index}`);
  [storage, live] = await Promise.all([
    startMovedStorage(accounts),
    liveIn({ company: { subscriptions: [], applications: applications(APPS) } }),
  ]);
});
beforeEach(() => {
  deployment = new Deployment(storage.azurite.connectionString(`apps${account++}`), live);
  live.cloud.control.resetCounts();
});
afterEach(() => live.cloud.control.clearFaults());
afterAll(async () => {
  await live?.cloud.stop();
  await storage?.stop();
});

const graphCalls = () =>
  Object.entries(live.cloud.control.counts())
    .filter(([name]) => name.startsWith("graph."))
    .reduce((sum, [, count]) => sum + count, 0);

const truth = () => {
  const all = live.cloud.control.directory.applications();
  return { apps: all.length, credentials: all.reduce((sum, one) => sum + one.secrets + one.certificates, 0) };
};

describe("a discovery", () => {
  test("reads every application with its credentials, and the inventory has each once", async () => {
    const { applications: fixture, inventory } = deployment.start();
    const { run } = await fixture.discover(caller);
    expect(run).toMatchObject({ status: "completed", mode: "full", ...truth(), failures: [] });
    const page = await fixture.list({}, everything);
    expect(page.total).toBe(truth().apps);
    expect(page.items.map(({ app }) => app.displayName)).toEqual(page.items.map(({ app }) => app.displayName).sort());
    const moment = await inventory.moment();
    const assets = await inventory.assets.list({ source: "entra" }, everything, moment);
    expect(assets.total).toBe(truth().credentials);
    expect(new Set(assets.items.map(({ asset }) => asset.credential?.keyId)).size).toBe(truth().credentials);
    const { assets: health } = await inventory.assets.figures(moment);
    expect(run.expiring).toBe(
      health.secret.warning + health.secret.critical + health.certificate.warning + health.certificate.critical,
    );
    const one = await fixture.get(appIdOf("App 003").toUpperCase());
    expect(one).toMatchObject({ app: { displayName: "App 003" }, reasons: [], policy: null });
    const id = `entra.${one.tenantId}.${one.app.appId}.${keyIdOf("App 003", "secret-1")}`;
    expect(await inventory.assets.get(id, moment)).toMatchObject({
      asset: {
        type: "secret",
        credential: { applicationName: "App 003", displayName: "secret-1", owners: ["owner0@acme.example"] },
      },
      notCounted: undefined,
    });
    expect((await inventory.vaults({}, everything)).total).toBe(0);
    expect(deployment.evaluations).toBe(1);
  });

  test("without changes reads each Graph list once in a full run, and neither reads nor writes an application's row", async () => {
    const proxy = await startTableProxy(deployment.connectionString);
    onTestFinished(() => proxy.stop());
    deployment = new Deployment(proxy.connectionString, live);
    const process = deployment.start();
    await process.applications.discover(caller);
    deployment.messages.length = 0;
    live.cloud.control.resetCounts();
    proxy.requests.length = 0;
    expect(await deployment.scheduled("full", process)).toMatchObject({ status: "completed", ...truth() });
    expect(graphCalls()).toBe(3);
    const rows = proxy.requests.filter(({ path, filter }) => path.startsWith("Applications") && filter !== undefined);
    expect(rows.length).toBeGreaterThan(0);
    expect(rows.filter(({ filter }) => /RowKey (?:ge|eq) 'a!/.test(filter!))).toEqual([]);
    live.cloud.control.resetCounts();
    expect(await deployment.scheduled("changes", process)).toMatchObject({ mode: "changes", ...truth() });
    expect(graphCalls()).toBe(1);
  });

  test("of changes adds new applications, updates changed ones, removes deleted ones, and reads owners only of new ones", async () => {
    const process = deployment.start();
    await process.applications.discover(caller);
    deployment.messages.length = 0;
    const { directory } = live.cloud.control;
    const before = truth();
    const renamed = await process.applications.get(appIdOf("App 005"));
    directory.putApplication({
      name: "New one",
      owners: ["new@acme.example"],
      secrets: [{ name: "s", expiresInDays: 5 }],
    });
    directory.addSecret(appIdOf("App 001"), { name: "second", expiresInDays: 90 });
    directory.removeApplication(appIdOf("App 002"));
    directory.changeApplication(appIdOf("App 005"), { displayName: "Renamed" });
    live.cloud.control.resetCounts();
    const run = await deployment.scheduled("changes", process);
    expect(run).toMatchObject({ status: "completed", mode: "changes", ...truth() });
    expect(truth().credentials).toBe(before.credentials + 2 - 1);
    expect(graphCalls()).toBe(2);
    const fresh = await process.applications.get(appIdOf("New one"));
    expect(fresh.app.owners?.map(({ userPrincipalName }) => userPrincipalName)).toContain("new@acme.example");
    await expect(process.applications.get(appIdOf("App 002"))).rejects.toMatchObject({ code: "notFound" });
    const moment = await process.inventory.moment();
    const list = await process.inventory.assets.list({ source: "entra" }, everything, moment);
    expect(list.total).toBe(truth().credentials);
    expect(list.items.filter(({ asset }) => asset.credential?.appId === appIdOf("App 002"))).toEqual([]);
    const all = await process.applications.list({}, everything);
    expect([all.items.length, all.total]).toEqual([truth().apps, truth().apps]);
    expect(all.items.find(({ app }) => app.displayName === "Renamed")?.app.owners).toEqual(renamed.app.owners);
    expect(renamed.app.owners?.map(({ userPrincipalName }) => userPrincipalName)).toContain("owner2@acme.example");
    const again = await deployment.scheduled("full", process);
    expect(again).toMatchObject({ status: "completed", ...truth() });
  });

  test("of changes notifies other modules after any change", async () => {
    const process = deployment.start();
    await process.applications.discover(caller);
    deployment.messages.length = 0;
    const { directory } = live.cloud.control;
    const name = "Comes and goes";
    for (const [change, counts] of [
      [() => directory.putApplication({ name, secrets: [] }), { added: 1 }],
      [() => directory.changeApplication(appIdOf(name), { displayName: "Goes" }), { updated: 1 }],
      [() => directory.removeApplication(appIdOf(name)), { removed: 1 }],
      [() => {}, {}],
    ] as const) {
      change();
      const before = deployment.evaluations;
      const run = await deployment.scheduled("changes", process);
      expect(run).toMatchObject({ mode: "changes", status: "completed" });
      const [entry] = (await process.audit.list({ eventType: "applications.discovered" }, everything)).items;
      expect(entry!.details).toMatchObject({ added: 0, updated: 0, removed: 0, ...counts });
      expect(deployment.evaluations - before).toBe(Object.keys(counts).length);
    }
  });

  test("after a full listing because of a lost delta link, requests only changes again", async () => {
    const process = deployment.start();
    await process.applications.discover(caller);
    deployment.messages.length = 0;
    live.cloud.control.directory.forgetDeltaLinks();
    expect(await deployment.scheduled("changes", process)).toMatchObject({ mode: "full", status: "completed" });
    live.cloud.control.resetCounts();
    expect(await deployment.scheduled("changes", process)).toMatchObject({ mode: "changes", status: "completed" });
    expect(graphCalls()).toBe(1);
  });

  test("of changes fails with the reason if Graph throttles the request, and the next discovery requests the same changes", async () => {
    const process = deployment.start();
    await process.applications.discover(caller);
    deployment.messages.length = 0;
    live.cloud.control.directory.changeApplication(appIdOf("App 008"), { displayName: "Told of later" });
    const known = { apps: truth().apps, credentials: truth().credentials };
    live.cloud.control.addFault({
      match: { operation: "graph.applicationsDelta" },
      action: { kind: "throttle", retryAfterSeconds: 600 },
    });
    const failed = await deployment.scheduled("changes", process);
    expect(failed).toMatchObject({
      mode: "changes",
      status: "failed",
      ...known,
      failures: [{ list: "changes", code: "throttled", remedy: expect.stringMatching(/./) }],
    });
    live.cloud.control.clearFaults();
    live.cloud.control.resetCounts();
    const next = await deployment.scheduled("changes", process);
    expect(next).toMatchObject({ mode: "changes", status: "completed", ...known, failures: [] });
    expect(graphCalls()).toBe(1);
    expect((await process.applications.get(appIdOf("App 008"))).app.displayName).toBe("Told of later");
  });

  test("requested while another discovery is in progress returns the run in progress", async () => {
    const process = deployment.start();
    await process.applications.handle({ mode: "full" }, caller);
    const { runId } = deployment.messages[0]!.message;
    const { run, isNew } = await process.applications.discover(caller);
    expect({ runId: run.runId, isNew }).toEqual({ runId, isNew: false });
    expect(deployment.messages).toHaveLength(1);
  });

  test("lists everything if Graph denies the use of the delta link", async () => {
    const process = deployment.start();
    await process.applications.discover(caller);
    deployment.messages.length = 0;
    live.cloud.control.addFault({ match: { operation: "graph.applicationsDelta" }, action: { kind: "deny" } });
    expect(await deployment.scheduled("changes", process)).toMatchObject({ mode: "full", status: "completed" });
  });
});

test("does not count a different order of applications as a change", () => {
  const some = ["b", "c", "a"].map((appId): [string, ReadApplication] => [
    appId,
    { appId, objectId: appId, kind: "application", displayName: "App", credentials: [] },
  ]);
  expect(contentsOf(new Map(some.toReversed()))).toBe(contentsOf(new Map(some)));
  expect(contentsOf(new Map(some.slice(1)))).not.toBe(contentsOf(new Map(some)));
});
