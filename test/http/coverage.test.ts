import { TableClient } from "@azure/data-tables";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Statuses, statusKey, TENANTS, TenantRows, tenantKey } from "../../shared/b2c/tenant.ts";
import { createTables, put } from "../../shared/platform/storage/tables.ts";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";
import { rowKeysOf } from "../support/users.ts";

// Tests of the coverage: how much of the company the last scans and discoveries read, and the fix for the rest.

const FINANCE = "c1111111-1111-4111-8111-111111111111";
const secrets = [{ name: "db", expiresInDays: 200 }];

let service: Service;
beforeAll(async () => {
  service = await Service.start({
    company: {
      subscriptions: [
        {
          name: "Acme Production",
          vaults: [
            { name: "kv-shop", secrets },
            { name: "kv-sealed", secrets },
          ],
        },
        { name: "Acme Finance", id: FINANCE, vaults: [{ name: "kv-ledger", secrets }] },
      ],
      applications: [{ name: "Shop", secrets: [{ name: "current", expiresInDays: 20 }] }],
    },
    env: { LICENSE_KEY: await licence() },
    shortWaits: true,
  });
});
afterAll(() => service?.stop());
afterEach(() => service.cloud.control.clearFaults());

const readCoverage = async () => (await service.admin("GET", "/api/coverage")).body;
const deny = (match: object) => service.cloud.control.addFault({ match, action: { kind: "deny" } });
const scan = () => service.scan({ mode: "force" });

test("before the first scan and discovery, the coverage is not complete", async () => {
  const coverage = await readCoverage();
  expect(coverage).toMatchObject({
    complete: false,
    summary: "0 of 0 subscriptions, 0 of 0 vaults, 0 of 0 applications",
  });
  expect(coverage.gaps).toMatchObject([
    { kind: "scan", message: "No scan of all subscriptions has finished yet.", at: null },
    { kind: "applications", message: "No discovery of applications has ended in the last 30 days.", at: null },
  ]);
});

test("a denied subscription and a denied vault are counted, with the roles that fix them, and never as complete", async () => {
  deny({ operation: "arm.listVaults", subscription: FINANCE });
  deny({ vault: "kv-sealed" });
  await scan();
  await service.admin("POST", "/api/automation/rotation/discover");
  const coverage = await readCoverage();
  expect(coverage).toMatchObject({
    complete: false,
    summary: "1 of 2 subscriptions, 1 of 2 known vaults, 1 of 1 application",
    subscriptions: { total: 2, read: 1 },
    vaults: { total: 2, read: 1 },
    gapsTotal: 2,
  });
  const [subscription, vault] = coverage.gaps;
  expect(subscription).toMatchObject({ kind: "subscription", name: "Acme Finance" });
  expect(subscription.remedy).toContain("the custom role Credential Lifecycle Inventory Reader on the subscription");
  expect(vault).toMatchObject({ kind: "vault", name: "kv-sealed" });
  expect(vault.remedy).toMatch(/Key Vault (Reader|Secrets)|role/);
});

test("the coverage is complete after everything was read", async () => {
  expect((await scan()).status).toBe("completed");
  expect(await readCoverage()).toMatchObject({
    complete: true,
    summary: "2 of 2 subscriptions, 3 of 3 vaults, 1 of 1 application",
    gaps: [],
    gapsTotal: 0,
  });
});

test("a stored row that can't be read is a gap, because what it describes is in no number", async () => {
  const rows = TableClient.fromConnectionString(service.azurite.connectionString(), "Subscriptions", {
    allowInsecureConnection: true,
  });
  const key = { partitionKey: "subscription", rowKey: "d1111111-1111-4111-8111-111111111111" };
  await rows.createEntity({ ...key, subscriptionId: 1 });
  const coverage = await readCoverage();
  await rows.deleteEntity(key.partitionKey, key.rowKey);
  expect(coverage).toMatchObject({ complete: false, gapsTotal: 1, gaps: [{ kind: "storedRows" }] });
  expect(coverage.gaps[0].message).toBe("1 stored row can't be read.");
  expect((await readCoverage()).complete).toBe(true);
});

test("known vaults of a subscription that can't be read any more count as unread", async () => {
  deny({ operation: "arm.listVaults", subscription: FINANCE });
  await scan();
  expect(await readCoverage()).toMatchObject({
    complete: false,
    summary: "1 of 2 subscriptions, 2 of 3 known vaults, 1 of 1 application",
  });
  service.cloud.control.clearFaults();
  await scan();
});

test("a scan that left out other data is a gap of its own", async () => {
  deny({ operation: "arm.diagnosticSettings" });
  expect((await scan()).status).toBe("partial");
  const coverage = await readCoverage();
  expect(coverage.complete).toBe(false);
  expect(coverage.gaps[0].message).toMatch(/was only partially completed/);
  service.cloud.control.clearFaults();
  await scan();
});

test("applications that the last discovery could not list count as unread", async () => {
  deny({ operation: "graph.listApplications" });
  await service.admin("POST", "/api/automation/rotation/discover");
  const { complete, summary, gaps } = await readCoverage();
  expect([complete, summary]).toEqual([false, "2 of 2 subscriptions, 3 of 3 vaults, 0 of 1 application"]);
  expect(gaps).toMatchObject([{ kind: "applications" }]);
  expect(gaps[0].remedy).toContain("Application.Read.All");
});

test("every registered B2C tenant is examined, and up to ten gaps of tenants are named", async () => {
  const tables = createTables(
    { connectionString: service.azurite.connectionString() },
    { keys: await rowKeysOf(service) },
  );
  const registeredAt = new Date().toISOString();
  const registered = { createdAt: registeredAt, createdBy: "admin", updatedAt: registeredAt, updatedBy: "admin" };
  const tenants = Array.from({ length: 1020 }, (_, index) => ({
    tenantId: `e1111111-1111-4111-8111-${String(index).padStart(12, "0")}`,
    tenantDomain: `tenant${index}.onmicrosoft.com`,
    displayName: `Tenant ${String(index).padStart(4, "0")}`,
    clientId: "f1111111-1111-4111-8111-111111111111",
    clientSecret: { id: "none", version: "1" },
    autoDiscover: false,
    discoveryIntervalHours: 24,
    ...registered,
  }));
  for (let from = 0; from < tenants.length; from += 100) {
    const rows = tenants.slice(from, from + 100).map((row) => put(TenantRows, tenantKey(row.tenantId), row));
    await tables.transaction(TenantRows.table, TENANTS, rows);
  }
  // The last 15 tenants were never read.
  const discovered = tenants
    .slice(0, -15)
    .map(({ tenantId }) => put(Statuses, statusKey(tenantId), { ended: "completed" }));
  await tables.write(Statuses.table, TENANTS, discovered);
  const coverage = await readCoverage();
  expect(coverage.b2cTenants).toEqual({ total: 1020, read: 1005 });
  const gaps = coverage.gaps.filter(({ kind }: { kind: string }) => kind === "b2cTenant");
  expect(gaps.map(({ name }: { name: string }) => name).sort()[0]).toBe("Tenant 1005");
  // One more gap: the applications that could not be listed.
  expect([gaps.length, coverage.gapsTotal, coverage.complete]).toEqual([10, 16, false]);
});
