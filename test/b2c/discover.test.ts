import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { assetId, placesOf } from "../../shared/inventory/asset.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { caller, company, openTestRegistry, PAGE, type TestRegistry } from "./support.ts";

let storage: MovedStorage;
let live: { cloud: Cloud; config: Config };
let account = 0;
let fixture: TestRegistry;

beforeAll(async () => {
  const accounts = Array.from({ length: 24 }, (_, index) => `tenants${index}`);
  [storage, live] = await Promise.all([startMovedStorage(accounts), liveIn({ company })]);
});
beforeEach(() => {
  fixture = openTestRegistry(live.cloud, live.config, storage.azurite.connectionString(`tenants${account++}`), storage);
  live.cloud.control.resetCounts();
});
afterEach(() => live.cloud.control.clearFaults());
afterAll(async () => {
  await live?.cloud.stop();
  await storage?.stop();
});

const tenants = () => live.cloud.control.tenants;

describe("a discovery", () => {
  test("writes each credential to the inventory once, under its own id", async () => {
    const { row } = await fixture.register("outlet");
    const { run, isNew } = await fixture.b2c.discover(row.tenantId, caller);
    expect([isNew, run]).toMatchObject([true, { status: "completed", failures: [] }]);
    expect(run.counts).toMatchObject({ applications: 2, policyKeys: 2, identityProviders: 1, expiring: 2 });
    const assets = await fixture.assets();
    expect(assets.every(({ enabled }) => enabled)).toBe(true);
    const ids = assets.map(assetId);
    expect([new Set(ids).size, assets.length]).toEqual([5, 5]);
    for (const [at, id] of ids.entries()) {
      const { type, name, vaultName } = assets[at]!;
      expect(placesOf(id)).toContainEqual({ type, name, vaultName });
    }
    const moment = await fixture.inventory.moment();
    const keyId = keyIdOf("Outlet Web", "web");
    const own = `b2c.${row.tenantId}.application.${appIdOf("Outlet Web")}.${keyId}`;
    expect(await fixture.inventory.assets.get(own, moment)).toMatchObject({
      asset: { type: "secret", credential: { applicationName: "Outlet Web", keyId, owners: ["outlet@acme.example"] } },
      notCounted: undefined,
    });
    const signing = assets.filter(({ credential }) => credential?.applicationName === "B2C_1A_TokenSigning");
    expect(assetId(signing[0]!)).toMatch(/^b2c\.[0-9a-f-]+\.policykey\.b2c_1a_tokensigning\.[0-9a-f]{16}$/);
    const ends = signing.map(({ type, keyType, expiresOn, notBefore }) => [type, keyType, !!expiresOn, !!notBefore]);
    expect(ends.sort()).toEqual([
      ["key", "RSA", false, false],
      ["key", "RSA", true, true],
    ]);
    const google = await fixture.inventory.assets.get(`b2c.${row.tenantId}.identityProvider.google-oauth`, moment);
    expect(google?.asset).toMatchObject({ type: "secret", credential: { applicationName: "Google" } });
    expect(google?.asset.expiresOn).toBeUndefined();
    expect((await fixture.b2c.get(row.tenantId)).status).toMatchObject({ tenantType: "b2c", counts: run.counts });

    // Unchanged credentials are not written, and changed ones are.
    fixture.messages.splice(0);
    const directory = tenants().directory(row.tenantId);
    directory.addSecret(appIdOf("Outlet Web"), { name: "third", expiresInDays: 3 });
    directory.removeSecret(appIdOf("Outlet Web"), keyId);
    const again = await fixture.b2c.discover(row.tenantId, caller);
    const now = await fixture.assets();
    expect(again.run.counts?.applications).toBe(2);
    expect(now.filter(({ credential }) => credential?.keyId === keyId)).toEqual([]);
    const kept = new Map(assets.map((asset) => [assetId(asset), asset.firstSeenAt]));
    expect(now.filter((asset) => kept.get(assetId(asset)) !== asset.firstSeenAt)).toHaveLength(1);
    expect(fixture.state.evaluations).toBe(2);
    const entries = fixture.events.filter(({ type }) => type === "b2cTenant.discovered");
    expect(entries.map(({ outcome }) => outcome)).toEqual(["success", "success"]);
  });

  test("a kind with access denied hides no other kind, keeps known credentials, and names the missing permission", async () => {
    const { row } = await fixture.register("outlet");
    const before = (await fixture.b2c.discover(row.tenantId, caller)).run;
    const operation = "graph.listKeySets";
    live.cloud.control.addFault({ match: { operation, item: row.tenantId }, action: { kind: "deny" } });
    tenants().directory(row.tenantId).addSecret(appIdOf("Outlet Web"), { name: "fourth", expiresInDays: 3 });
    const { run } = await fixture.b2c.discover(row.tenantId, caller);
    expect(run).toMatchObject({ status: "partial", failures: [{ list: "policyKeys", code: "accessDenied" }] });
    expect(run.failures[0]!.remedy).toContain("TrustFrameworkKeySet.Read.All");
    expect(run.counts).toMatchObject({ policyKeys: 2, applications: before.counts!.applications + 1 });
    expect((await fixture.b2c.get(row.tenantId)).status.failures).toEqual(run.failures);
    // A week later, credentials that were not seen are not counted, and only those.
    await fixture.pass(8 * 86_400_000);
    await fixture.b2c.discover(row.tenantId, caller);
    const moment = await fixture.inventory.moment();
    const uncounted = await fixture.inventory.assets.list({ source: "b2c", counted: false }, PAGE, moment);
    expect([uncounted.total, uncounted.items[0]?.notCounted]).toEqual([2, "notSeen"]);
    expect(uncounted.items.every(({ asset }) => asset.credential?.kind === "policyKey")).toBe(true);
  });

  test("a tenant of External ID has no policy keys, and they are not requested", async () => {
    const { row } = await fixture.register("partners");
    const { run } = await fixture.b2c.discover(row.tenantId, caller);
    expect(run).toMatchObject({
      status: "completed",
      counts: { applications: 7, policyKeys: 0, identityProviders: 1 },
      failures: [],
    });
    expect((await fixture.b2c.get(row.tenantId)).status.tenantType).toBe("external");
    expect(live.cloud.control.counts()["graph.listKeySets"]).toBeUndefined();
  });

  test.each([
    ["a wrong domain", { tenantDomain: "other.onmicrosoft.com" }, "organization", "wrongDomain"],
    ["a wrong secret", { clientSecret: "wrong~secret" }, "signIn", "unauthenticated"],
  ])("with %s reads nothing, and names the problem", async (_what, change, list, code) => {
    const { row } = await fixture.register("outlet", change);
    const { run } = await fixture.b2c.discover(row.tenantId, caller);
    expect(run).toMatchObject({ status: "failed", failures: [{ list, code }] });
    expect(await fixture.assets()).toEqual([]);
    expect((await fixture.b2c.get(row.tenantId)).status).toMatchObject({ ended: "failed" });
  });

  test("no secret value is in a row, a message, an audit entry or a log line", async () => {
    const { row } = await fixture.register("outlet");
    await fixture.b2c.discover(row.tenantId, caller);
    await fixture.b2c.test(row.tenantId, caller);
    const everything = [
      await fixture.rows(),
      ...fixture.sent,
      JSON.stringify(fixture.events),
      ...fixture.log.lines,
    ].join("\n");
    expect(everything).not.toContain(secretValueOf("Outlet Credential Lifecycle", "lifecycle"));
    expect(everything).not.toMatch(/eyJ[\w-]+\.eyJ/); // contains no token
    expect(everything).toContain(row.clientId);
  });
});

describe("with the timer", () => {
  test("a due tenant is discovered once, and again after its interval", async () => {
    const { row } = await fixture.register("partners", { discoveryIntervalHours: 2 });
    await fixture.register("outlet", { autoDiscover: false });
    const ended = () => fixture.events.filter(({ type }) => type === "b2cTenant.discovered").length;
    await fixture.b2c.tick();
    await fixture.b2c.tick();
    await fixture.drain();
    expect(ended()).toBe(1);
    await fixture.pass(3_600_000);
    await fixture.b2c.tick();
    expect(fixture.messages).toEqual([]);
    await fixture.pass(3_700_000);
    await fixture.b2c.tick();
    await fixture.drain();
    expect(ended()).toBe(2);
    expect((await fixture.b2c.get(row.tenantId)).status.counts?.applications).toBe(7);
  });

  test("a discovery whose message failed for good ends as failed, and the next one starts", async () => {
    const { row } = await fixture.register("partners");
    await fixture.b2c.tick();
    await fixture.b2c.handle(fixture.messages.shift()!.message, caller);
    const { message } = fixture.messages.shift()!;
    await fixture.b2c.failed(message, caller);
    const run = await fixture.b2c.run(row.tenantId, message.runId!);
    expect(run).toMatchObject({ status: "failed", failures: [{ list: "signIn", code: "internal" }] });
    expect(Date.parse(run.finishedAt!)).toBeGreaterThanOrEqual(Date.parse(run.failures[0]!.at));
    expect((await fixture.b2c.get(row.tenantId)).status).toMatchObject({ ended: "failed", failures: run.failures });
    expect(fixture.events.at(-1)).toMatchObject({ type: "b2cTenant.discovered", outcome: "failure" });
    // A late duplicate of the message finds the run completed.
    await fixture.b2c.handle(message, caller);
    expect(await fixture.assets()).toEqual([]);
    expect((await fixture.b2c.discover(row.tenantId, caller)).run.status).toBe("completed");
  });

  test("without a license nothing starts, which is logged once a day; started runs end, and tenants are not counted", async () => {
    const { row } = await fixture.register("partners");
    await fixture.b2c.tick();
    await fixture.b2c.handle(fixture.messages.shift()!.message, caller);
    fixture.state.licensed = false;
    await fixture.drain();
    expect(await fixture.assets()).toHaveLength(0);
    const moment = await fixture.inventory.moment();
    const left = await fixture.inventory.assets.list({ source: "b2c", counted: false }, PAGE, moment);
    expect([left.total, left.items[0]?.notCounted]).toEqual([8, "noLicense"]);
    await fixture.pass(25 * 3_600_000);
    for (let times = 0; times < 3; times++) await fixture.b2c.tick();
    expect(fixture.messages).toEqual([]);
    expect(fixture.events.filter(({ type }) => type === "b2cTenant.unlicensed")).toHaveLength(1);
    expect((await fixture.b2c.get(row.tenantId)).row.tenantId).toBe(row.tenantId);
  });
});
