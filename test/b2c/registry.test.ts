import { hash } from "node:crypto";
import { TableClient } from "@azure/data-tables";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { PARTNER_REGISTRATION } from "simulated-cloud/company/acme-tenants.ts";
import { secretValueOf } from "simulated-cloud/company/applications.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { nextDiscoveryAt, Statuses, statusKey, TENANTS } from "../../shared/b2c/tenant.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { configIn, liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, company, openTestRegistry, registrationOf, type TestRegistry } from "./support.ts";

let storage: TestStorage;
let live: { cloud: Cloud; config: Config };
let account = 0;
let fixture: TestRegistry;

beforeAll(async () => {
  const accounts = Array.from({ length: 44 }, (_, index) => `registry${index}`);
  [storage, live] = await Promise.all([openStorage(accounts), liveIn({ company })]);
});
beforeEach(() => {
  fixture = openTestRegistry(live.cloud, live.config, connectionString());
});
const connectionString = (at = account++) => storage.connectionString(`registry${at}`);
const settings = () => structuredClone(directory().settings());
const directory = () => live.cloud.control.tenants.directory("acmeoutlet.onmicrosoft.com");
let before: ReturnType<typeof settings>;
beforeEach(() => {
  before = settings();
});
afterEach(() => {
  live.cloud.control.clearFaults();
  directory().set(before);
});
afterAll(async () => {
  await live?.cloud.stop();
  await storage?.stop();
});

const ALL = ["signIn", "consent", "tenant", "domain", "applications", "policyKeys", "identityProviders"];
const tenant = (at: 1 | 2) => live.cloud.control.tenants.list()[at]!;

describe("the connection test", () => {
  /** Returns the failed checks with their codes, and the names of all checks in order. */
  async function failing(change: object = {}) {
    const { row } = await fixture.register("outlet", change);
    const result = await fixture.b2c.test(row.tenantId, caller);
    expect(result.checks.map(({ name }) => name)).toEqual(ALL);
    return result.checks.flatMap(({ name, outcome, finding }) =>
      outcome === "failed" ? [[name, finding!.code, `${finding!.message} ${finding!.remedy}`]] : [],
    );
  }

  test("of a valid registration finds no problem, with one small request each", async () => {
    const { row } = await fixture.register("outlet");
    live.cloud.control.resetCounts();
    const result = await fixture.b2c.test(row.tenantId, caller);
    expect(result.checks.map(({ outcome }) => outcome)).toEqual(ALL.map(() => "ok"));
    expect(result).toMatchObject({ tenantType: "b2c", organization: { displayName: "Acme Outlet" } });
    expect(live.cloud.control.counts()).toMatchObject({
      "entra.token": 1,
      "graph.getOrganization": 1,
      "graph.listApplications": 1,
      "graph.listKeySets": 1,
      "graph.listIdentityProviders": 1,
    });
    expect(fixture.events.at(-1)).toMatchObject({ type: "b2cTenant.tested", outcome: "success" });
  });

  test("of a tenant of External ID says that policy keys don't apply", async () => {
    const { row } = await fixture.register("partners");
    const { checks, tenantType } = await fixture.b2c.test(row.tenantId, caller);
    expect(tenantType).toBe("external");
    expect(checks.filter(({ outcome }) => outcome !== "ok")).toMatchObject([
      { name: "policyKeys", outcome: "notApplicable" },
    ]);
  });

  test("treats missing policy keys as none only if the tenant's type is unknown", async () => {
    const { row } = await fixture.register("outlet");
    const outcomes = async (refused: Record<string, number>) => {
      for (const [operation, status] of Object.entries(refused))
        live.cloud.control.addFault({ match: { operation }, action: { kind: "fail", status } });
      const { checks } = await fixture.b2c.test(row.tenantId, caller);
      live.cloud.control.clearFaults();
      return checks.map(({ outcome, finding }) => finding?.code ?? outcome).join(" ");
    };
    const unknown = { "graph.getOrganization": 403 };
    const missing = { "graph.listKeySets": 404, "graph.listIdentityProviders": 404 };
    expect(await outcomes({ ...unknown, ...missing })).toBe("ok ok accessDenied notTried ok notApplicable notFound");
    expect(await outcomes({ ...unknown, "graph.listKeySets": 403 })).toBe(
      "ok ok accessDenied notTried ok accessDenied ok",
    );
    expect(await outcomes(missing)).toBe("ok ok ok ok ok notFound notFound");
  });

  test.each([
    ["applications", "Application.Read.All"],
    ["policyKeys", "TrustFrameworkKeySet.Read.All"],
    ["identityProviders", "IdentityProvider.Read.All"],
    ["tenant", "Organization.Read.All"],
  ])("names the permission that %s lacks, and no other", async (name, permission) => {
    directory().set({ permissions: before.permissions.filter((one) => one !== permission) });
    // The error names the tenant's application, not the service's own identity.
    const words = new RegExp(`^The application ${tenant(2).clientId} may not .*${permission.replaceAll(".", "\\.")}`);
    expect(await failing()).toEqual([[name, "accessDenied", expect.stringMatching(words)]]);
  });

  test.each<[string, object | (() => object), string, string, string]>([
    ["another tenant's application", () => ({ clientId: tenant(1).clientId }), "signIn", "unauthenticated", "700016"],
    [
      "a tenant that is none",
      { tenantId: "00000000-1111-4222-8333-444444444444" },
      "signIn",
      "unauthenticated",
      "90002",
    ],
    ["a wrong secret", { clientSecret: "wrong~+&secret" }, "signIn", "unauthenticated", "secret is wrong"],
    [
      "another tenant's domain",
      { tenantDomain: "acmepartners.onmicrosoft.com" },
      "domain",
      "wrongDomain",
      "acmeoutlet",
    ],
  ])("names %s", async (_what, change, name, code, text) => {
    const found = await failing(typeof change === "function" ? change() : change);
    expect(found).toEqual([[name, code, expect.stringContaining(text)]]);
  });

  test("explains other errors of Entra and Graph: no consent, an expired secret, throttling", async () => {
    directory().set({ permissions: [] });
    const { row } = await fixture.register("outlet");
    const found = await fixture.b2c.test(row.tenantId, caller);
    expect(found.checks.find(({ name }) => name === "consent")?.finding?.code).toBe("noConsent");
    directory().set(before);
    const app = tenant(2).clientId;
    const { keyId } = directory().secrets(app)[0]!;
    directory().expireSecret(app, keyId, -1);
    const expired = await fixture.b2c.test(row.tenantId, caller);
    directory().expireSecret(app, keyId, 120);
    expect(expired.checks[0]).toMatchObject({ name: "signIn", finding: { code: "unauthenticated" } });
    expect(expired.checks[0]!.finding!.message).toContain("AADSTS7000222");
    const operation = "graph.listIdentityProviders";
    live.cloud.control.addFault({ match: { operation, item: row.tenantId }, action: { kind: "throttle" } });
    const throttled = await fixture.b2c.test(row.tenantId, caller);
    expect(throttled.checks.filter(({ outcome }) => outcome === "failed")).toMatchObject([
      { name: "identityProviders", finding: { code: "throttled" } },
    ]);
  });
});

describe("a registration", () => {
  test("is unique, and its secret is sent to no other tenant", async () => {
    const { row } = await fixture.register("outlet");
    await expect(fixture.register("outlet")).rejects.toMatchObject({ code: "alreadyExists" });
    await expect(fixture.register("outlet", { tenantId: live.cloud.app.tenantId })).rejects.toMatchObject({
      code: "conflict",
    });
    const change = (given: object, ifMatch?: string) => fixture.b2c.change(row.tenantId, given, ifMatch, caller);
    const other = tenant(1);
    await expect(change({ clientId: other.clientId })).rejects.toMatchObject({ code: "invalidRequest" });
    await expect(change({ tenantId: other.id })).rejects.toMatchObject({ code: "invalidRequest" });
    await expect(change({ displayName: "x" }, '"stale"')).rejects.toMatchObject({ code: "preconditionFailed" });
    const changed = await change({ displayName: "Shop of Acme", autoDiscover: false }, row.etag);
    expect(changed.row).toMatchObject({ displayName: "Shop of Acme", clientSecret: row.clientSecret });
    expect(nextDiscoveryAt(changed)).toBeUndefined();
    const both = await change({ clientId: other.clientId, clientSecret: "another" });
    expect(both.row.clientSecret.id).not.toBe(row.clientSecret.id);
    // A row that names another tenant or application than the secret is bound to reads no secret.
    await fixture.b2c.change(row.tenantId, { clientId: tenant(2).clientId, clientSecret: "again" }, undefined, caller);
    const entries = JSON.stringify(fixture.events);
    for (const secret of ["another", "again", secretValueOf("Outlet Credential Lifecycle", "lifecycle")])
      expect(entries).not.toContain(`"${secret}"`);
  });

  test("that two requests create at once is created once, and the other request gets the existing one", async () => {
    const both = await Promise.allSettled([fixture.register("outlet"), fixture.register("outlet")]);
    expect(both.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
    expect(both.find(({ status }) => status === "rejected")).toMatchObject({ reason: { code: "alreadyExists" } });
  });

  test("whose row someone else wrote is not used, and can be deleted", async () => {
    const [shop, partners] = [await fixture.register("outlet"), await fixture.register("partners")];
    const client = TableClient.fromConnectionString(connectionString(account - 1), "B2c", {
      allowInsecureConnection: true,
    });
    await fixture.b2c.discover(shop.row.tenantId, caller);
    const key = ["tenants", `t|${shop.row.tenantId}`] as const;
    await client.updateEntity(
      { ...(await client.getEntity(...key)), partitionKey: key[0], rowKey: key[1], displayName: "Other" },
      "Replace",
    );
    live.cloud.control.resetCounts();
    const { tenantId } = shop.row;
    for (const call of [
      fixture.b2c.get(tenantId),
      fixture.b2c.test(tenantId, caller),
      fixture.b2c.discover(tenantId, caller),
    ])
      await expect(call).rejects.toMatchObject({ code: "conflict" });
    expect(live.cloud.control.counts()["entra.token"]).toBeUndefined();
    const page = await fixture.b2c.list({ limit: 10, offset: 0, cursor: undefined });
    expect(page.items.map(({ row }) => row.tenantId)).toEqual([partners.row.tenantId]);
    // It is still registered: only its deletion deletes its credentials.
    const assets = await fixture.assets(tenantId);
    expect(assets.length).toBeGreaterThan(0);
    await fixture.b2c.cleanUp(caller);
    expect(await fixture.assets(tenantId)).toEqual(assets);
    await fixture.b2c.remove(tenantId, undefined, caller);
    await expect(fixture.b2c.get(tenantId)).rejects.toMatchObject({ code: "notFound" });
    expect(await fixture.assets(tenantId)).toEqual([]);
    await fixture.register("outlet");
  });

  test("stores its secret under a name that every version of the service finds", async () => {
    const { row } = await fixture.register("outlet");
    const use = hash("sha256", JSON.stringify(["b2c", row.tenantId, row.clientId]));
    expect(row.clientSecret.id).toMatch(new RegExp(`-${use.slice(0, 32)}$`));
  });

  test("takes the expiry date of its secret from the tenant, or as entered", async () => {
    const { row } = await fixture.register("partners");
    const inDays = (days: number) => new Date(Date.now() + days * 86_400_000);
    const ends = async (days = 400) => {
      const found = [];
      for await (const one of fixture.b2c.expiring(inDays(days))) found.push(one);
      return found;
    };
    expect(await ends()).toEqual([]);
    await fixture.b2c.discover(row.tenantId, caller);
    const secret = live.cloud.control.tenants.directory(row.tenantId).secrets(tenant(1).clientId)[0]!;
    expect(await ends()).toMatchObject([{ name: "Acme Partners", expiresAt: secret.expiresOn }]);
    const report = async (clientSecretExpiresOn: string) =>
      await fixture.b2c.change(row.tenantId, { clientSecretExpiresOn }, undefined, caller);
    const reported = inDays(20).toISOString();
    await report(reported);
    expect(await ends()).toMatchObject([{ expiresAt: reported }]);
    expect(await ends(19)).toEqual([]);
    await report(inDays(-1).toISOString());
    expect(await ends()).toEqual([]);
  });

  test("that is removed loses its assets, runs and secret, and can be registered again", async () => {
    const [shop, partners] = [await fixture.register("outlet"), await fixture.register("partners")];
    await fixture.b2c.discover(partners.row.tenantId, caller);
    const { run } = await fixture.b2c.discover(shop.row.tenantId, caller);
    expect(await fixture.assets()).toHaveLength(13);
    await expect(fixture.b2c.remove(shop.row.tenantId, '"stale"', caller)).rejects.toMatchObject({ status: 412 });
    await fixture.b2c.remove(shop.row.tenantId, undefined, caller);
    await expect(fixture.b2c.get(shop.row.tenantId)).rejects.toMatchObject({ code: "notFound" });
    await expect(fixture.b2c.run(shop.row.tenantId, run.runId)).rejects.toMatchObject({ code: "notFound" });
    expect(await fixture.assets()).toHaveLength(8);
    const rows = await fixture.rows();
    expect(rows).not.toContain(`runs:${shop.row.tenantId}`);
    expect(rows).not.toContain(`secret|${shop.row.clientSecret.id}`);
    expect(rows).toContain(`secret|${partners.row.clientSecret.id}`);
    const held = `b2c-${shop.row.clientSecret.id}`;
    expect(live.cloud.control.items("kv-lifecycle-service", "secrets").map(({ name }) => name)).not.toContain(held);
    // A slow worker may write the status once more after the removal.
    await fixture.tables.put(Statuses, TENANTS, statusKey(shop.row.tenantId), { runId: run.runId, ended: "completed" });
    // The message for a crash finds nothing to do, and does not remove the new registration.
    await fixture.register("outlet", { autoDiscover: false });
    await fixture.drain();
    expect((await fixture.b2c.get(shop.row.tenantId)).status).toEqual({});
  });

  test("a lost response after the start of a removal leaves nothing behind", async () => {
    const { row } = await fixture.register("partners");
    await fixture.b2c.discover(row.tenantId, caller);
    fixture.messages.splice(0);
    for (let crashAt = 1; crashAt < 60; crashAt += 4) {
      const steps = { taken: 0, crashAt, when: "after" as const };
      const outcome = await fixture
        .instance(steps)
        .b2c.remove(row.tenantId, undefined, caller)
        .catch(() => "died");
      if (outcome !== "died") break;
      if (
        await fixture.b2c.get(row.tenantId).then(
          () => true,
          () => false,
        )
      )
        continue;
      break;
    }
    await expect(fixture.register("partners")).rejects.toMatchObject({ code: "conflict" });
    await fixture.b2c.tick();
    await fixture.drain();
    await expect(fixture.b2c.get(row.tenantId)).rejects.toMatchObject({ code: "notFound" });
    expect(await fixture.assets()).toEqual([]);
    const again = await fixture.register("partners");
    expect(again.row.clientId).toBe(tenant(1).clientId);
  });
});

test("without its own key vault the service rejects registrations", async () => {
  const { SERVICE_KEY_VAULT_URL: _, ...without } = configIn(live.cloud);
  const bare = openTestRegistry(live.cloud, without as Config, connectionString());
  const given = registrationOf(live.cloud, "partners", {
    clientSecret: secretValueOf(PARTNER_REGISTRATION, "lifecycle"),
  });
  await expect(bare.b2c.register(given, caller)).rejects.toMatchObject({ code: "conflict" });
});
