import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf, keyIdOf } from "simulated-cloud/company/applications.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { applicationView, runView } from "../../shared/applications/api.ts";
import { APPS, STATE_KEY, States } from "../../shared/applications/application.ts";
import type { ReadApplication } from "../../shared/applications/read-graph.ts";
import { contentsOf } from "../../shared/applications/write-bucket.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { configFor, startTestCloud } from "../azure/live-cloud.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import { ALL_ITEMS, applications, caller, Deployment } from "./applications-fixture.ts";

// Tests of the discovery that lists an Entra tenant's applications through Microsoft Graph. A run of mode "full" lists all
// applications; a run of mode "changes" requests only what changed since the last run (a delta query).

const APPLICATION_COUNT = 40;
/** The permissions that docs/permissions-options.md names. */
const GRAPH_PERMISSIONS = [
  "Application.Read.All",
  "Application.ReadWrite.OwnedBy",
  "Policy.Read.ApplicationConfiguration",
  "Organization.Read.All",
  "User.ReadBasic.All",
];
let storage: MovedStorage;
let live: { cloud: Cloud; config: Config };
let nextAccount = 0;
let deployment: Deployment;

beforeAll(async () => {
  const accounts = Array.from({ length: 24 }, (_, index) => `apps${index}`);
  [storage, live] = await Promise.all([
    startMovedStorage(accounts),
    startTestCloud({ company: { subscriptions: [], applications: applications(APPLICATION_COUNT) } }),
  ]);
});
beforeEach(() => {
  deployment = new Deployment(storage.azurite.connectionString(`apps${nextAccount++}`), live);
  live.cloud.control.resetCounts();
});
afterEach(() => live.cloud.control.clearFaults());
afterAll(async () => {
  await live?.cloud.stop();
  await storage?.stop();
});

const graphRequestCount = () =>
  Object.entries(live.cloud.control.counts())
    .filter(([name]) => name.startsWith("graph."))
    .reduce((sum, [, count]) => sum + count, 0);

/** Numbers of applications and credentials in the simulated directory. */
const directoryCounts = () => {
  const applications = live.cloud.control.directory.applications();
  return {
    apps: applications.length,
    credentials: applications.reduce((sum, app) => sum + app.secrets + app.certificates, 0),
  };
};

describe("a discovery", () => {
  test("marks all identities with which the service has signed in as its own, so that none of them is shown as an owner", async () => {
    await deployment.runScheduled("full");
    // The app registration with which the service signs in from now on. The managed identity stays an owner.
    const config = configFor(live.cloud, live.cloud.app.clientSecret);
    const changed = new Deployment(deployment.connectionString, { ...live, config });
    await changed.runScheduled("full");
    const { applications } = changed.start();
    const { owners } = applicationView(await applications.get(appIdOf("App 003")), await applications.moment());
    const ofService = owners!.filter(({ isService }) => isService);
    expect(ofService.map(({ id }) => id)).toContain(live.cloud.app.objectId.toLowerCase());
    expect(ofService).toHaveLength(2);
    const people = owners!.filter(({ isService }) => !isService);
    expect(people.map(({ userPrincipalName }) => userPrincipalName)).toEqual(["owner0@acme.example"]);
  });

  test("does not count a user as an earlier identity of the service, although the service signed in as the user", async () => {
    await deployment.runScheduled("full");
    const { applications, tables } = deployment.start();
    const ownersNow = async () =>
      applicationView(await applications.get(appIdOf("App 003")), await applications.moment()).owners!;
    const user = (await ownersNow()).find(({ isService }) => !isService)!;
    // The token of a user has no application permissions.
    const state = withoutKeys((await tables.get(States, APPS, STATE_KEY))!);
    await tables.put(States, APPS, STATE_KEY, { ...state, rights: { objectId: user.id, permissions: [] } });
    expect(await ownersNow()).toContainEqual({ ...user, isService: true });
    await deployment.runScheduled("full");
    expect(await ownersNow()).toContainEqual(user);
  });

  test("counts the owners of whom Microsoft Graph returns no name, because the identity may not read users", async () => {
    const { directory } = live.cloud.control;
    onTestFinished(() => directory.set({ permissions: GRAPH_PERMISSIONS }));
    directory.set({ permissions: GRAPH_PERMISSIONS.filter((permission) => permission !== "User.ReadBasic.All") });
    const { applications: service } = deployment.start();
    const { run } = await service.discover(caller);
    // Three people own the applications. The service itself, which has a name, owns them too.
    expect(run).toMatchObject({ status: "completed", unnamedOwners: 3 });
    directory.set({ permissions: GRAPH_PERMISSIONS });
    const named = await service.discover(caller);
    expect(named.run.unnamedOwners).toBe(0);
    expect(runView(named.run).unnamedOwners).toBe(0);
  });

  test("reads all applications, and the inventory contains each credential once", async () => {
    const { applications: service, inventory } = deployment.start();
    const { run } = await service.discover(caller);
    expect(run).toMatchObject({ status: "completed", mode: "full", ...directoryCounts(), failures: [] });
    const page = await service.list({}, ALL_ITEMS);
    expect(page.total).toBe(directoryCounts().apps);
    expect(page.items.map(({ app }) => app.displayName)).toEqual(page.items.map(({ app }) => app.displayName).sort());
    const moment = await inventory.moment();
    const assets = await inventory.assets.list({ source: "entra" }, ALL_ITEMS, moment);
    expect(assets.total).toBe(directoryCounts().credentials);
    expect(new Set(assets.items.map(({ asset }) => asset.credential?.keyId)).size).toBe(directoryCounts().credentials);
    const { assets: health } = await inventory.assets.figures(moment);
    expect(run.expiring).toBe(
      health.secret.warning + health.secret.critical + health.certificate.warning + health.certificate.critical,
    );
    const application = await service.get(appIdOf("App 003").toUpperCase());
    expect(application).toMatchObject({ app: { displayName: "App 003" }, reasons: [], policy: null });
    const id = `entra.${application.tenantId}.${application.app.appId}.${keyIdOf("App 003", "secret-1")}`;
    expect(await inventory.assets.get(id, moment)).toMatchObject({
      asset: {
        type: "secret",
        credential: { applicationName: "App 003", displayName: "secret-1", owners: ["owner0@acme.example"] },
      },
      notCounted: undefined,
    });
    expect((await inventory.vaults({}, ALL_ITEMS)).total).toBe(0);
    expect(deployment.evaluations).toBe(1);
  });

  test("reads no application's row if nothing changed", async () => {
    const proxy = await startTableProxy(deployment.connectionString);
    onTestFinished(() => proxy.stop());
    deployment = new Deployment(proxy.connectionString, live);
    const process = deployment.start();
    await process.applications.discover(caller);
    deployment.messages.length = 0;
    live.cloud.control.resetCounts();
    proxy.requests.length = 0;
    expect(await deployment.runScheduled("full", process)).toMatchObject({ status: "completed", ...directoryCounts() });
    // The lists of applications, of service principals, and of applications with federated credentials.
    expect(graphRequestCount()).toBe(3);
    const rows = proxy.requests.filter(({ path, filter }) => path.startsWith("Applications") && filter !== undefined);
    expect(rows.length).toBeGreaterThan(0);
    // The keys of applications' rows start with `a!`.
    expect(rows.filter(({ filter }) => /RowKey (?:ge|eq) 'a!/.test(filter!))).toEqual([]);
    live.cloud.control.resetCounts();
    expect(await deployment.runScheduled("changes", process)).toMatchObject({ mode: "changes", ...directoryCounts() });
    expect(graphRequestCount()).toBe(1);
  });

  test("of changes adds, updates and removes applications", async () => {
    const process = deployment.start();
    await process.applications.discover(caller);
    deployment.messages.length = 0;
    const { directory } = live.cloud.control;
    const countsBefore = directoryCounts();
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
    const run = await deployment.runScheduled("changes", process);
    expect(run).toMatchObject({ status: "completed", mode: "changes", ...directoryCounts() });
    // Two secrets were added, and the deleted application had one.
    expect(directoryCounts().credentials).toBe(countsBefore.credentials + 2 - 1);
    // The changes, and the owners of the new application, which the changes do not contain.
    expect(graphRequestCount()).toBe(2);
    const newApplication = await process.applications.get(appIdOf("New one"));
    expect(newApplication.app.owners?.map(({ userPrincipalName }) => userPrincipalName)).toContain("new@acme.example");
    await expect(process.applications.get(appIdOf("App 002"))).rejects.toMatchObject({ code: "notFound" });
    const moment = await process.inventory.moment();
    const list = await process.inventory.assets.list({ source: "entra" }, ALL_ITEMS, moment);
    expect(list.total).toBe(directoryCounts().credentials);
    expect(list.items.filter(({ asset }) => asset.credential?.appId === appIdOf("App 002"))).toEqual([]);
    const applicationList = await process.applications.list({}, ALL_ITEMS);
    expect([applicationList.items.length, applicationList.total]).toEqual([
      directoryCounts().apps,
      directoryCounts().apps,
    ]);
    expect(applicationList.items.find(({ app }) => app.displayName === "Renamed")?.app.owners).toEqual(
      renamed.app.owners,
    );
    expect(renamed.app.owners?.map(({ userPrincipalName }) => userPrincipalName)).toContain("owner2@acme.example");
    const fullRun = await deployment.runScheduled("full", process);
    expect(fullRun).toMatchObject({ status: "completed", ...directoryCounts() });
  });

  test("of changes requests an evaluation of alerts only after a change", async () => {
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
      const evaluationsBefore = deployment.evaluations;
      const run = await deployment.runScheduled("changes", process);
      expect(run).toMatchObject({ mode: "changes", status: "completed" });
      const [entry] = (await process.audit.list({ eventType: "applications.discovered" }, ALL_ITEMS)).items;
      expect(entry!.details).toMatchObject({ added: 0, updated: 0, removed: 0, ...counts });
      expect(deployment.evaluations - evaluationsBefore).toBe(Object.keys(counts).length);
    }
  });

  test("of changes lists all applications after Graph forgot the delta link, and then only changes again", async () => {
    const process = deployment.start();
    await process.applications.discover(caller);
    deployment.messages.length = 0;
    live.cloud.control.directory.forgetDeltaLinks();
    expect(await deployment.runScheduled("changes", process)).toMatchObject({ mode: "full", status: "completed" });
    live.cloud.control.resetCounts();
    expect(await deployment.runScheduled("changes", process)).toMatchObject({ mode: "changes", status: "completed" });
    expect(graphRequestCount()).toBe(1);
  });

  test("of changes fails if Graph throttles the request, and the next run requests the same changes", async () => {
    const process = deployment.start();
    await process.applications.discover(caller);
    deployment.messages.length = 0;
    live.cloud.control.directory.changeApplication(appIdOf("App 008"), { displayName: "Renamed before the failure" });
    const counts = { apps: directoryCounts().apps, credentials: directoryCounts().credentials };
    live.cloud.control.addFault({
      match: { operation: "graph.applicationsDelta" },
      action: { kind: "throttle", retryAfterSeconds: 600 },
    });
    const failed = await deployment.runScheduled("changes", process);
    expect(failed).toMatchObject({
      mode: "changes",
      status: "failed",
      ...counts,
      failures: [{ list: "changes", code: "throttled", remedy: expect.stringMatching(/./) }],
    });
    live.cloud.control.clearFaults();
    live.cloud.control.resetCounts();
    const next = await deployment.runScheduled("changes", process);
    expect(next).toMatchObject({ mode: "changes", status: "completed", ...counts, failures: [] });
    expect(graphRequestCount()).toBe(1);
    expect((await process.applications.get(appIdOf("App 008"))).app.displayName).toBe("Renamed before the failure");
  });

  test("returns the run in progress instead of starting another", async () => {
    const process = deployment.start();
    await process.applications.handle({ mode: "full" }, caller);
    const { runId } = deployment.messages[0]!.message;
    const { run, isNew } = await process.applications.discover(caller);
    expect({ runId: run.runId, isNew }).toEqual({ runId, isNew: false });
    expect(deployment.messages).toHaveLength(1);
  });

  test("of changes lists all applications if Graph denies the use of the delta link", async () => {
    const process = deployment.start();
    await process.applications.discover(caller);
    deployment.messages.length = 0;
    live.cloud.control.addFault({ match: { operation: "graph.applicationsDelta" }, action: { kind: "deny" } });
    expect(await deployment.runScheduled("changes", process)).toMatchObject({ mode: "full", status: "completed" });
  });
});

test("the digest of a bucket (a part of the applications) does not depend on their order", () => {
  const entries = ["b", "c", "a"].map((appId): [string, ReadApplication] => [
    appId,
    { appId, objectId: appId, kind: "application", displayName: "App", credentials: [] },
  ]);
  expect(contentsOf(new Map(entries.toReversed()))).toBe(contentsOf(new Map(entries)));
  expect(contentsOf(new Map(entries.slice(1)))).not.toBe(contentsOf(new Map(entries)));
});
