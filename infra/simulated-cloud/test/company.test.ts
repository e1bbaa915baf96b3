import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import type { AssetKind } from "../company/company.ts";
import { companyFromArgument } from "../company/load-company.ts";

// Tests the companies of the simulated cloud: the declared subscriptions, vaults, applications and resources, and that their
// state is stored in the data folder.

const KINDS: AssetKind[] = ["secrets", "keys", "certificates"];
const DAY_MS = 86_400_000;

let data: string;
beforeEach(async () => {
  data = await mkdtemp(join(tmpdir(), "cloud-test-"));
});
afterEach(() => rm(data, { recursive: true }));

/**
 * Starts a cloud with the data folder, calls `use`, and stops the cloud.
 *
 * @param company - The name of a company, or numbers from which a company is generated, such as `vaults=1,secrets=10`.
 */
async function withCloud<T>(use: (cloud: Cloud) => T | Promise<T>, company?: string): Promise<T> {
  const cloud = await startCloud({ data, ...(company !== undefined && { company }) });
  try {
    return await use(cloud);
  } finally {
    await cloud.stop();
  }
}

const allVaultsWithItems = ({ control }: Cloud) =>
  control.vaults().map((vault) => [vault, ...KINDS.map((kind) => control.items(vault.name, kind))]);

describe("the company acme", () => {
  test("has vaults with assets in every state of health", async () => {
    await withCloud(({ control }) => {
      // Whether the service may read each subscription (`denied`), and the number of its vaults.
      expect(control.subscriptions().map(({ denied, vaults }) => [denied, vaults])).toEqual([
        [false, 12],
        [false, 10],
        [false, 10],
        [true, 4],
      ]);
      const reaches = control.vaults().map(({ reach }) => reach);
      expect(reaches.filter((reach) => reach === "denied")).toHaveLength(1);
      expect(reaches.filter((reach) => reach === "firewalled")).toHaveLength(1);
      for (const { name } of control.vaults()) expect(name).toMatch(/^[a-z][a-z0-9-]{2,23}$/);

      const items = control.vaults().flatMap(({ name }) => KINDS.flatMap((kind) => control.items(name, kind)));
      const days = items.map(({ expires }) =>
        expires === undefined ? null : (Date.parse(expires) - Date.now()) / DAY_MS,
      );
      const daysByState = {
        expired: days.filter((left) => left !== null && left < 0),
        critical: days.filter((left) => left !== null && left >= 0 && left <= 7),
        warning: days.filter((left) => left !== null && left > 7 && left <= 30),
        healthy: days.filter((left) => left !== null && left > 30),
        unlimited: days.filter((left) => left === null),
        disabled: items.filter(({ enabled }) => !enabled),
        notYet: items.filter(({ notBefore }) => notBefore !== undefined && Date.parse(notBefore) > Date.now()),
      };
      for (const [state, found] of Object.entries(daysByState)) expect.soft(found.length, state).toBeGreaterThan(5);
      expect(items.length).toBeGreaterThan(400);
    });
  });

  test("has applications whose client secrets are stored in its vaults", async () => {
    await withCloud(({ control }) => {
      const applications = control.directory.applications();
      expect(applications).toHaveLength(40);
      const values = control
        .vaults()
        .flatMap(({ name }) => control.items(name, "secrets").map((item) => control.secretValue(name, item.name)));
      const storedInVaults = applications.filter(({ appId }) =>
        control.directory
          .secrets(appId)
          .some(({ keyId }) => values.includes(control.directory.secretValue(appId, keyId))),
      );
      expect(storedInVaults.length).toBeGreaterThan(15);
      expect(applications.filter(({ secrets }) => secrets > 1).length).toBeGreaterThan(5);
      expect(applications.filter(({ certificates }) => certificates > 0).length).toBeGreaterThan(5);
    });
  });

  test("has resources of many types that use the secrets of its vaults", async () => {
    await withCloud(({ control }) => {
      const types = new Map<string, number>();
      for (const { type } of control.consumers.resources()) types.set(type, (types.get(type) ?? 0) + 1);
      for (const [type, count] of types) {
        // One resource of these types is enough. Of each other type there are at least two.
        const oneIsEnough = /slots|\/service$|managedEnvironments$|profiles\/secrets|afd|scaleSets/i.test(type);
        expect.soft(count, type).toBeGreaterThan(oneIsEnough ? 0 : 1);
      }
      const usedValues = control.consumers.values();
      expect(new Set(usedValues.map(({ resource }) => resource)).size).toBeGreaterThan(50);
      const payments = control.consumers.values({ vault: "kv-payments-prod", secret: "payments-api-client-secret" });
      expect(payments.length).toBeGreaterThan(8);
      const value = control.secretValue("kv-payments-prod", "payments-api-client-secret");
      expect(payments.every(({ values }) => values.at(-1)!.value === value)).toBe(true);
      const withoutValue = usedValues.filter(({ values }) => values.at(-1)!.value === undefined);
      expect(withoutValue.map(({ resource }) => resource.split("/").at(-1)).sort()).toEqual([
        "app-crm-classic",
        "app-crm-import",
        "app-crm-kiosk",
        "app-crm-reports",
        "app-dmz-status",
        "app-intranet",
        "func-lifecycle",
      ]);
    });
  });

  test("stays the same after a restart, with the same addresses and identities", async () => {
    const readState = (cloud: Cloud) => ({
      all: allVaultsWithItems(cloud),
      environment: cloud.environment,
      app: cloud.app,
    });
    const firstState = await withCloud(readState);
    expect(await withCloud(readState)).toEqual(firstState);
  });
});

test("changes survive a restart with the same company, but not a start with another company", async () => {
  const first = await withCloud(({ control }) => {
    control.putSecret("kv-shop-prod", { name: "new", value: "v", expiresInDays: 1 });
    control.putSecret("kv-shop-prod", { name: "Session-Salt", value: "second version" });
    control.change("kv-shop-prod", "secrets", "db-password", { expiresInDays: null, tags: { owner: "new" } });
    control.remove("kv-shop-prod", "keys", "ledger");
    control.removeVault("kv-shop-empty");
    control.putVault(control.subscriptions()[0]!.id, { name: "kv-added", generate: { secrets: 3 } });
    control.setConfiguration("a", "b");
    return {
      vaults: allVaultsWithItems({ control } as Cloud),
      value: control.secretValue("kv-shop-prod", "session-salt"),
    };
  }, "small");
  expect(first.value).toBe("second version");
  await withCloud((cloud) => {
    expect(allVaultsWithItems(cloud)).toEqual(first.vaults);
    expect(
      cloud.control.items("kv-shop-prod", "secrets").find(({ name }) => name === "db-password"),
    ).not.toHaveProperty("expires");
    expect(cloud.control.items("kv-shop-prod", "keys").map(({ name }) => name)).toEqual(["orders"]);
  });
  await withCloud((cloud) => {
    expect(cloud.control.vaults().map(({ name }) => name)).toEqual(["kv-bench-00000", "kv-lifecycle-service"]);
  }, "vaults=1");
});

test("an item that is removed and added again keeps its position in the list", async () => {
  await withCloud(({ control }) => {
    const names = () => control.items("kv-bench-00000", "secrets").map(({ name }) => name);
    const originalNames = names();
    control.remove("kv-bench-00000", "secrets", "secret-000003");
    expect(names()).toEqual(originalNames.filter((name) => name !== "secret-000003"));
    control.putSecret("kv-bench-00000", { name: "secret-000003" });
    control.putSecret("kv-bench-00000", { name: "another" });
    expect(names()).toEqual([...originalNames, "another"]);
  }, "vaults=1,secrets=10");
});

test("an unknown company name is rejected with the list of valid names", () => {
  expect(() => companyFromArgument("nobody")).toThrow("acme, small");
  expect(() => companyFromArgument("vaults=1,cars=2")).toThrow('"cars"');
});
