import { hash } from "node:crypto";
import { TableClient } from "@azure/data-tables";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { PARTNER_REGISTRATION } from "simulated-cloud/company/acme-tenants.ts";
import { secretValueOf } from "simulated-cloud/company/applications.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { nextDiscoveryAt, Statuses, statusKey, TENANTS } from "../../shared/b2c/tenant.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { configFor, startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, company, openTestRegistry, registrationOf, type TestRegistry } from "./support.ts";

// Tests of the registry of B2C tenants: registering, changing and removing a tenant, and testing the connection to it.

let storage: TestStorage;
let live: { cloud: Cloud; config: Config };
let accountCount = 0;
let fixture: TestRegistry;

beforeAll(async () => {
  const accounts = Array.from({ length: 44 }, (_, index) => `registry${index}`);
  [storage, live] = await Promise.all([openStorage(accounts), startTestCloud({ company })]);
});
beforeEach(() => {
  fixture = openTestRegistry(live.cloud, live.config, connectionString());
});
/** Returns the connection string of an account, by default of one that no test has used. */
const connectionString = (index = accountCount++) => storage.connectionString(`registry${index}`);
/** Returns a copy of the settings of the simulated outlet tenant, such as the application's permissions. */
const settings = () => structuredClone(directory().settings());
const directory = () => live.cloud.control.tenants.directory("acmeoutlet.onmicrosoft.com");
let initialSettings: ReturnType<typeof settings>;
beforeEach(() => {
  initialSettings = settings();
});
afterEach(() => {
  live.cloud.control.clearFaults();
  directory().set(initialSettings);
});
afterAll(async () => {
  await live?.cloud.stop();
  await storage?.stop();
});

const ALL_CHECKS = ["signIn", "consent", "tenant", "domain", "applications", "policyKeys", "identityProviders"];
/** Positions in the list of the simulated company's tenants. */
const PARTNERS = 1;
const OUTLET = 2;
/** Returns a tenant of the simulated company by its position in the list. */
const tenant = (index: typeof PARTNERS | typeof OUTLET) => live.cloud.control.tenants.list()[index]!;

describe("the connection test", () => {
  /** Registers the outlet tenant, tests the connection, and returns the failed checks: name, code, and message with remedy. */
  async function failedChecks(change: object = {}) {
    const { row } = await fixture.register("outlet", change);
    const result = await fixture.b2c.test(row.tenantId, caller);
    expect(result.checks.map(({ name }) => name)).toEqual(ALL_CHECKS);
    return result.checks.flatMap(({ name, outcome, finding }) =>
      outcome === "failed" ? [[name, finding!.code, `${finding!.message} ${finding!.remedy}`]] : [],
    );
  }

  test("finds no problem in a valid registration, with one request for each kind of credential", async () => {
    const { row } = await fixture.register("outlet");
    live.cloud.control.resetCounts();
    const result = await fixture.b2c.test(row.tenantId, caller);
    expect(result.checks.map(({ outcome }) => outcome)).toEqual(ALL_CHECKS.map(() => "ok"));
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

  test("reports policy keys as not applicable to an External ID tenant", async () => {
    const { row } = await fixture.register("partners");
    const { checks, tenantType } = await fixture.b2c.test(row.tenantId, caller);
    expect(tenantType).toBe("external");
    expect(checks.filter(({ outcome }) => outcome !== "ok")).toMatchObject([
      { name: "policyKeys", outcome: "notApplicable" },
    ]);
  });

  test("accepts a 404 response for policy keys only if the tenant's type is unknown", async () => {
    const { row } = await fixture.register("outlet");
    /** Returns the outcome or error code of each check while the given Graph operations fail with the given HTTP statuses. */
    const outcomes = async (failingOperations: Record<string, number>) => {
      for (const [operation, status] of Object.entries(failingOperations))
        live.cloud.control.addFault({ match: { operation }, action: { kind: "fail", status } });
      const { checks } = await fixture.b2c.test(row.tenantId, caller);
      live.cloud.control.clearFaults();
      return checks.map(({ outcome, finding }) => finding?.code ?? outcome).join(" ");
    };
    const unknownType = { "graph.getOrganization": 403 };
    const missingKinds = { "graph.listKeySets": 404, "graph.listIdentityProviders": 404 };
    expect(await outcomes({ ...unknownType, ...missingKinds })).toBe(
      "ok ok accessDenied notTried ok notApplicable notFound",
    );
    expect(await outcomes({ ...unknownType, "graph.listKeySets": 403 })).toBe(
      "ok ok accessDenied notTried ok accessDenied ok",
    );
    expect(await outcomes(missingKinds)).toBe("ok ok ok ok ok notFound notFound");
  });

  test.each([
    ["applications", "Application.Read.All"],
    ["policyKeys", "TrustFrameworkKeySet.Read.All"],
    ["identityProviders", "IdentityProvider.Read.All"],
    ["tenant", "Organization.Read.All"],
  ])("names the permission that the check %s lacks", async (name, permission) => {
    directory().set({ permissions: initialSettings.permissions.filter((granted) => granted !== permission) });
    // The error names the tenant's application, not the service's own identity.
    const expectedMessage = new RegExp(
      `^The application ${tenant(OUTLET).clientId} may not .*${permission.replaceAll(".", "\\.")}`,
    );
    expect(await failedChecks()).toEqual([[name, "accessDenied", expect.stringMatching(expectedMessage)]]);
  });

  // The members: description, changed members of the registration, failed check, its code, and a part of its text. The numbers
  // in texts are Entra's error codes (AADSTS).
  test.each<[string, object | (() => object), string, string, string]>([
    [
      "an application of another tenant",
      () => ({ clientId: tenant(PARTNERS).clientId }),
      "signIn",
      "unauthenticated",
      "700016",
    ],
    [
      "a tenant ID that does not exist",
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
  ])("names the problem of a registration with %s", async (_description, change, name, code, text) => {
    const failures = await failedChecks(typeof change === "function" ? change() : change);
    expect(failures).toEqual([[name, code, expect.stringContaining(text)]]);
  });

  test("reports missing consent, an expired secret and throttling", async () => {
    directory().set({ permissions: [] });
    const { row } = await fixture.register("outlet");
    const withoutConsent = await fixture.b2c.test(row.tenantId, caller);
    expect(withoutConsent.checks.find(({ name }) => name === "consent")?.finding?.code).toBe("noConsent");
    directory().set(initialSettings);
    const outletClientId = tenant(OUTLET).clientId;
    const { keyId } = directory().secrets(outletClientId)[0]!;
    directory().expireSecret(outletClientId, keyId, -1);
    const expired = await fixture.b2c.test(row.tenantId, caller);
    directory().expireSecret(outletClientId, keyId, 120);
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
  test("can't be moved to another tenant, and can't reuse its secret for another application", async () => {
    const { row } = await fixture.register("outlet");
    await expect(fixture.register("outlet")).rejects.toMatchObject({ code: "alreadyExists" });
    await expect(fixture.register("outlet", { tenantId: live.cloud.app.tenantId })).rejects.toMatchObject({
      code: "conflict",
    });
    const change = (edit: object, ifMatch?: string) => fixture.b2c.change(row.tenantId, edit, ifMatch, caller);
    const otherTenant = tenant(PARTNERS);
    await expect(change({ clientId: otherTenant.clientId })).rejects.toMatchObject({ code: "invalidRequest" });
    await expect(change({ tenantId: otherTenant.id })).rejects.toMatchObject({ code: "invalidRequest" });
    await expect(change({ displayName: "x" }, '"stale"')).rejects.toMatchObject({ code: "preconditionFailed" });
    const changed = await change({ displayName: "Shop of Acme", autoDiscover: false }, row.etag);
    expect(changed.row).toMatchObject({ displayName: "Shop of Acme", clientSecret: row.clientSecret });
    expect(nextDiscoveryAt(changed)).toBeUndefined();
    const changedClient = await change({ clientId: otherTenant.clientId, clientSecret: "another" });
    expect(changedClient.row.clientSecret.id).not.toBe(row.clientSecret.id);
    // The audit log contains none of the secrets.
    await fixture.b2c.change(
      row.tenantId,
      { clientId: tenant(OUTLET).clientId, clientSecret: "again" },
      undefined,
      caller,
    );
    const entries = JSON.stringify(fixture.events);
    for (const secret of ["another", "again", secretValueOf("Outlet Credential Lifecycle", "lifecycle")])
      expect(entries).not.toContain(`"${secret}"`);
  });

  test("is created once if two requests create it at once", async () => {
    const results = await Promise.allSettled([fixture.register("outlet"), fixture.register("outlet")]);
    expect(results.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
    expect(results.find(({ status }) => status === "rejected")).toMatchObject({ reason: { code: "alreadyExists" } });
  });

  test("is not used if another program wrote its row, but can be deleted", async () => {
    const [outlet, partners] = [await fixture.register("outlet"), await fixture.register("partners")];
    // The account of this test's fixture, the last one that was taken.
    const client = TableClient.fromConnectionString(connectionString(accountCount - 1), "B2c", {
      allowInsecureConnection: true,
    });
    await fixture.b2c.discover(outlet.row.tenantId, caller);
    const registrationKey = ["tenants", `t|${outlet.row.tenantId}`] as const;
    await client.updateEntity(
      {
        ...(await client.getEntity(...registrationKey)),
        partitionKey: registrationKey[0],
        rowKey: registrationKey[1],
        displayName: "Other",
      },
      "Replace",
    );
    live.cloud.control.resetCounts();
    const { tenantId } = outlet.row;
    for (const call of [
      fixture.b2c.get(tenantId),
      fixture.b2c.test(tenantId, caller),
      fixture.b2c.discover(tenantId, caller),
    ])
      await expect(call).rejects.toMatchObject({ code: "conflict" });
    expect(live.cloud.control.counts()["entra.token"]).toBeUndefined();
    const page = await fixture.b2c.list({ limit: 10, offset: 0, cursor: undefined });
    expect(page.items.map(({ row }) => row.tenantId)).toEqual([partners.row.tenantId]);
    // The tenant is still registered: its credentials remain until the registration is deleted.
    const assets = await fixture.assets(tenantId);
    expect(assets.length).toBeGreaterThan(0);
    await fixture.b2c.cleanUp(caller);
    expect(await fixture.assets(tenantId)).toEqual(assets);
    await fixture.b2c.remove(tenantId, undefined, caller);
    await expect(fixture.b2c.get(tenantId)).rejects.toMatchObject({ code: "notFound" });
    expect(await fixture.assets(tenantId)).toEqual([]);
    await fixture.register("outlet");
  });

  test("stores its secret under a name that ends with a hash of the tenant and the application", async () => {
    const { row } = await fixture.register("outlet");
    const use = hash("sha256", JSON.stringify(["b2c", row.tenantId, row.clientId]));
    expect(row.clientSecret.id).toMatch(new RegExp(`-${use.slice(0, 32)}$`));
  });

  test("takes the expiry date of its secret from the administrator's entry, or else from the tenant", async () => {
    const { row } = await fixture.register("partners");
    const inDays = (days: number) => new Date(Date.now() + days * 86_400_000);
    const expiringWithin = async (days = 400) => {
      const credentials = [];
      for await (const credential of fixture.b2c.expiring(inDays(days))) credentials.push(credential);
      return credentials;
    };
    expect(await expiringWithin()).toEqual([]);
    await fixture.b2c.discover(row.tenantId, caller);
    const secret = live.cloud.control.tenants.directory(row.tenantId).secrets(tenant(PARTNERS).clientId)[0]!;
    expect(await expiringWithin()).toMatchObject([{ name: "Acme Partners", expiresAt: secret.expiresOn }]);
    const enterExpiryDate = async (clientSecretExpiresOn: string) =>
      await fixture.b2c.change(row.tenantId, { clientSecretExpiresOn }, undefined, caller);
    const enteredDate = inDays(20).toISOString();
    await enterExpiryDate(enteredDate);
    expect(await expiringWithin()).toMatchObject([{ expiresAt: enteredDate }]);
    expect(await expiringWithin(19)).toEqual([]);
    await enterExpiryDate(inDays(-1).toISOString());
    expect(await expiringWithin()).toEqual([]);
  });

  test("loses its assets, runs and secret when it is removed, and can be registered again", async () => {
    const [outlet, partners] = [await fixture.register("outlet"), await fixture.register("partners")];
    await fixture.b2c.discover(partners.row.tenantId, caller);
    const { run } = await fixture.b2c.discover(outlet.row.tenantId, caller);
    // 5 assets of the outlet and 8 of the partners.
    expect(await fixture.assets()).toHaveLength(13);
    await expect(fixture.b2c.remove(outlet.row.tenantId, '"stale"', caller)).rejects.toMatchObject({ status: 412 });
    await fixture.b2c.remove(outlet.row.tenantId, undefined, caller);
    await expect(fixture.b2c.get(outlet.row.tenantId)).rejects.toMatchObject({ code: "notFound" });
    await expect(fixture.b2c.run(outlet.row.tenantId, run.runId)).rejects.toMatchObject({ code: "notFound" });
    expect(await fixture.assets()).toHaveLength(8);
    const rows = await fixture.rows();
    expect(rows).not.toContain(`runs:${outlet.row.tenantId}`);
    expect(rows).not.toContain(`secret|${outlet.row.clientSecret.id}`);
    expect(rows).toContain(`secret|${partners.row.clientSecret.id}`);
    const secretName = `b2c-${outlet.row.clientSecret.id}`;
    expect(live.cloud.control.items("kv-lifecycle-service", "secrets").map(({ name }) => name)).not.toContain(
      secretName,
    );
    // A slow worker may write the status once more after the removal.
    await fixture.tables.put(Statuses, TENANTS, statusKey(outlet.row.tenantId), {
      runId: run.runId,
      ended: "completed",
    });
    // The message that would finish an interrupted removal does not remove the new registration.
    await fixture.register("outlet", { autoDiscover: false });
    await fixture.drain();
    expect((await fixture.b2c.get(outlet.row.tenantId)).status).toEqual({});
  });

  test("is removed completely if the process crashes during the removal", async () => {
    const { row } = await fixture.register("partners");
    await fixture.b2c.discover(row.tenantId, caller);
    fixture.messages.splice(0);
    // Removes the tenant until a crash leaves the removal unfinished: unregistered, but with assets.
    for (let crashAt = 1; crashAt < 60; crashAt += 4) {
      const steps = { taken: 0, crashAt, when: "after" as const };
      const outcome = await fixture
        .instance(steps)
        .b2c.remove(row.tenantId, undefined, caller)
        .catch(() => "crashed");
      const isRegistered = await fixture.b2c.get(row.tenantId).then(
        () => true,
        () => false,
      );
      if (outcome !== "crashed" || !isRegistered) break;
    }
    await expect(fixture.register("partners")).rejects.toMatchObject({ code: "conflict" });
    await fixture.b2c.enqueueDue();
    await fixture.drain();
    await expect(fixture.b2c.get(row.tenantId)).rejects.toMatchObject({ code: "notFound" });
    expect(await fixture.assets()).toEqual([]);
    const secondRegistration = await fixture.register("partners");
    expect(secondRegistration.row.clientId).toBe(tenant(PARTNERS).clientId);
  });
});

test("a registration is rejected if the service has no key vault", async () => {
  const { SERVICE_KEY_VAULT_URL: _, ...configWithoutVault } = configFor(live.cloud);
  const withoutVault = openTestRegistry(live.cloud, configWithoutVault as Config, connectionString());
  const registration = registrationOf(live.cloud, "partners", {
    clientSecret: secretValueOf(PARTNER_REGISTRATION, "lifecycle"),
  });
  await expect(withoutVault.b2c.register(registration, caller)).rejects.toMatchObject({ code: "conflict" });
});
