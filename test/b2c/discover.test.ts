import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { assetId, locationsOf } from "../../shared/inventory/asset.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { caller, company, openTestRegistry, PAGE, type TestRegistry } from "./support.ts";

// Tests of the discovery that lists a tenant's credentials through Microsoft Graph and writes them to the inventory. Each test
// uses a storage account of its own, because registrations and assets are stored there.

let storage: MovedStorage;
let live: { cloud: Cloud; config: Config };
let nextAccount = 0;
let fixture: TestRegistry;

beforeAll(async () => {
  const accounts = Array.from({ length: 24 }, (_, index) => `tenants${index}`);
  [storage, live] = await Promise.all([startMovedStorage(accounts), startTestCloud({ company })]);
});
beforeEach(() => {
  fixture = openTestRegistry(
    live.cloud,
    live.config,
    storage.azurite.connectionString(`tenants${nextAccount++}`),
    storage,
  );
  live.cloud.control.resetCounts();
});
afterEach(() => live.cloud.control.clearFaults());
afterAll(async () => {
  await live?.cloud.stop();
  await storage?.stop();
});

/** The simulated Azure AD B2C and External ID tenants. */
const tenants = () => live.cloud.control.tenants;

describe("discovery of a tenant", () => {
  test("writes each credential to the inventory once, with a unique id", async () => {
    const { row } = await fixture.register("outlet");
    const { run, isNew } = await fixture.b2c.discover(row.tenantId, caller);
    expect([isNew, run]).toMatchObject([true, { status: "completed", failures: [] }]);
    expect(run.counts).toMatchObject({ applications: 2, policyKeys: 2, identityProviders: 1, expiring: 2 });
    const assets = await fixture.assets();
    expect(assets.every(({ enabled }) => enabled)).toBe(true);
    const ids = assets.map(assetId);
    expect([new Set(ids).size, assets.length]).toEqual([5, 5]);
    for (const [index, id] of ids.entries()) {
      const { type, name, vaultName } = assets[index]!;
      expect(locationsOf(id)).toContainEqual({ type, name, vaultName });
    }
    const statusTime = await fixture.inventory.moment();
    const keyId = keyIdOf("Outlet Web", "web");
    const secretAssetId = `b2c.${row.tenantId}.application.${appIdOf("Outlet Web")}.${keyId}`;
    expect(await fixture.inventory.assets.get(secretAssetId, statusTime)).toMatchObject({
      asset: { type: "secret", credential: { applicationName: "Outlet Web", keyId, owners: ["outlet@acme.example"] } },
      notCounted: undefined,
    });
    const signingKeys = assets.filter(({ credential }) => credential?.applicationName === "B2C_1A_TokenSigning");
    expect(assetId(signingKeys[0]!)).toMatch(/^b2c\.[0-9a-f-]+\.policykey\.b2c_1a_tokensigning\.[0-9a-f]{16}$/);
    const signingKeyFacts = signingKeys.map(({ type, keyType, expiresOn, notBefore }) => [
      type,
      keyType,
      !!expiresOn,
      !!notBefore,
    ]);
    expect(signingKeyFacts.sort()).toEqual([
      ["key", "RSA", false, false],
      ["key", "RSA", true, true],
    ]);
    const googleProvider = await fixture.inventory.assets.get(
      `b2c.${row.tenantId}.identityProvider.google-oauth`,
      statusTime,
    );
    expect(googleProvider?.asset).toMatchObject({ type: "secret", credential: { applicationName: "Google" } });
    expect(googleProvider?.asset.expiresOn).toBeUndefined();
    expect((await fixture.b2c.get(row.tenantId)).status).toMatchObject({ tenantType: "b2c", counts: run.counts });

    // After a change of one secret, the second discovery leaves the rows of the other credentials unchanged.
    fixture.messages.splice(0);
    const directory = tenants().directory(row.tenantId);
    directory.addSecret(appIdOf("Outlet Web"), { name: "third", expiresInDays: 3 });
    directory.removeSecret(appIdOf("Outlet Web"), keyId);
    const secondDiscovery = await fixture.b2c.discover(row.tenantId, caller);
    const assetsAfterChange = await fixture.assets();
    expect(secondDiscovery.run.counts?.applications).toBe(2);
    expect(assetsAfterChange.filter(({ credential }) => credential?.keyId === keyId)).toEqual([]);
    const firstSeenTimes = new Map(assets.map((asset) => [assetId(asset), asset.firstSeenAt]));
    expect(assetsAfterChange.filter((asset) => firstSeenTimes.get(assetId(asset)) !== asset.firstSeenAt)).toHaveLength(
      1,
    );
    expect(fixture.state.evaluations).toBe(2);
    const discoveredEvents = fixture.events.filter(({ type }) => type === "b2cTenant.discovered");
    expect(discoveredEvents.map(({ outcome }) => outcome)).toEqual(["success", "success"]);
  });

  test("reads the other kinds of credential when access to one kind is denied", async () => {
    const { row } = await fixture.register("outlet");
    const completeRun = (await fixture.b2c.discover(row.tenantId, caller)).run;
    const operation = "graph.listKeySets";
    live.cloud.control.addFault({ match: { operation, item: row.tenantId }, action: { kind: "deny" } });
    tenants().directory(row.tenantId).addSecret(appIdOf("Outlet Web"), { name: "fourth", expiresInDays: 3 });
    const { run } = await fixture.b2c.discover(row.tenantId, caller);
    expect(run).toMatchObject({ status: "partial", failures: [{ list: "policyKeys", code: "accessDenied" }] });
    expect(run.failures[0]!.remedy).toContain("TrustFrameworkKeySet.Read.All");
    expect(run.counts).toMatchObject({ policyKeys: 2, applications: completeRun.counts!.applications + 1 });
    expect((await fixture.b2c.get(row.tenantId)).status.failures).toEqual(run.failures);
    // Credentials that no discovery has seen for a week are no longer counted. These are only the policy keys.
    await fixture.pass(8 * DAY_MS);
    await fixture.b2c.discover(row.tenantId, caller);
    const moment = await fixture.inventory.moment();
    const uncounted = await fixture.inventory.assets.list({ source: "b2c", counted: false }, PAGE, moment);
    expect([uncounted.total, uncounted.items[0]?.notCounted]).toEqual([2, "notSeen"]);
    expect(uncounted.items.every(({ asset }) => asset.credential?.kind === "policyKey")).toBe(true);
  });

  test("does not request policy keys of an External ID tenant", async () => {
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
  ])("with %s fails, names the problem and writes no assets", async (_description, change, list, code) => {
    const { row } = await fixture.register("outlet", change);
    const { run } = await fixture.b2c.discover(row.tenantId, caller);
    expect(run).toMatchObject({ status: "failed", failures: [{ list, code }] });
    expect(await fixture.assets()).toEqual([]);
    expect((await fixture.b2c.get(row.tenantId)).status).toMatchObject({ ended: "failed" });
  });

  test("writes no secret value to a row, a message, an audit entry or a log line", async () => {
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
    expect(everything).not.toMatch(/eyJ[\w-]+\.eyJ/); // The beginning of a JSON Web Token.
    expect(everything).toContain(row.clientId);
  });
});

/** Number of discoveries that ended, according to the audit log. */
const endedDiscoveries = () => fixture.events.filter(({ type }) => type === "b2cTenant.discovered").length;

describe("the timer (b2c.enqueueDue)", () => {
  test("starts the discovery of a due tenant once, and again after the tenant's interval", async () => {
    const { row } = await fixture.register("partners", { discoveryIntervalHours: 2 });
    await fixture.register("outlet", { autoDiscover: false });
    await fixture.b2c.enqueueDue();
    await fixture.b2c.enqueueDue();
    await fixture.drain();
    expect(endedDiscoveries()).toBe(1);
    await fixture.pass(HOUR_MS);
    await fixture.b2c.enqueueDue();
    expect(fixture.messages).toEqual([]);
    await fixture.pass(HOUR_MS + 2 * MINUTE_MS);
    await fixture.b2c.enqueueDue();
    await fixture.drain();
    expect(endedDiscoveries()).toBe(2);
    expect((await fixture.b2c.get(row.tenantId)).status.counts?.applications).toBe(7);
  });

  test("starts a new discovery after the message of the last discovery failed for good", async () => {
    const { row } = await fixture.register("partners");
    await fixture.b2c.enqueueDue();
    const tenantMessage = fixture.messages.shift()!.message;
    await fixture.b2c.handle(tenantMessage, caller); // Starts a run and sends the message of the run.
    const { message: runMessage } = fixture.messages.shift()!;
    await fixture.b2c.failed(runMessage, caller);
    const run = await fixture.b2c.run(row.tenantId, runMessage.runId!);
    expect(run).toMatchObject({ status: "failed", failures: [{ list: "signIn", code: "internal" }] });
    expect(Date.parse(run.finishedAt!)).toBeGreaterThanOrEqual(Date.parse(run.failures[0]!.at));
    expect((await fixture.b2c.get(row.tenantId)).status).toMatchObject({ ended: "failed", failures: run.failures });
    expect(fixture.events.at(-1)).toMatchObject({ type: "b2cTenant.discovered", outcome: "failure" });
    // A late duplicate of the message does nothing, because the run has ended.
    await fixture.b2c.handle(runMessage, caller);
    expect(await fixture.assets()).toEqual([]);
    expect((await fixture.b2c.discover(row.tenantId, caller)).run.status).toBe("completed");
  });

  test("starts no discovery without a license", async () => {
    const { row } = await fixture.register("partners");
    await fixture.b2c.enqueueDue();
    await fixture.b2c.handle(fixture.messages.shift()!.message, caller); // Starts a run while there is still a license.
    fixture.state.licensed = false;
    // The started run ends and writes 8 assets, but without a license assets of tenants are not counted.
    await fixture.drain();
    expect(endedDiscoveries()).toBe(1);
    expect(await fixture.assets()).toHaveLength(0);
    const moment = await fixture.inventory.moment();
    const uncounted = await fixture.inventory.assets.list({ source: "b2c", counted: false }, PAGE, moment);
    expect([uncounted.total, uncounted.items[0]?.notCounted]).toEqual([8, "noLicense"]);
    await fixture.pass(25 * HOUR_MS); // The tenant is due again: its interval is 24 hours.
    for (let call = 0; call < 3; call++) await fixture.b2c.enqueueDue();
    expect(fixture.messages).toEqual([]);
    // The audit log gets one entry a day.
    expect(fixture.events.filter(({ type }) => type === "b2cTenant.unlicensed")).toHaveLength(1);
    expect((await fixture.b2c.get(row.tenantId)).row.tenantId).toBe(row.tenantId);
  });
});
