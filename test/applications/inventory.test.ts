import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf } from "simulated-cloud/company/applications.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { expiringItems } from "../../shared/alerts/expiring-assets.ts";
import { messageOf } from "../../shared/alerts/message.ts";
import { createNotificationLog } from "../../shared/alerts/notification-log.ts";
import type { RuleRecord } from "../../shared/alerts/rule.ts";
import { readVaultSnapshot } from "../../shared/alerts/vault-changes.ts";
import { assetsOfApplication } from "../../shared/applications/credentials.ts";
import type { ReadApplication } from "../../shared/applications/read-graph.ts";
import { assetView } from "../../shared/inventory/api.ts";
import { assetId, locationsOf } from "../../shared/inventory/asset.ts";
import { partitions } from "../../shared/inventory/asset-keys.ts";
import { assetsCsv } from "../../shared/inventory/csv.ts";
import { bucketOf, holderName } from "../../shared/inventory/holder.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { DAY_SECONDS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { assetRecord, vaultRecord, writeVault } from "../inventory/write-assets.ts";
import { openReconciliation } from "../reconciliation/reconciliation-fixture.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { ALL_ITEMS, applications, caller, Deployment, type Process } from "./applications-fixture.ts";

// Tests of credentials in the inventory, next to a vault's assets: alert rules, reconciliation, compliance and exports. A holder
// is a record like that of a vault, which the inventory has for a part of a tenant's applications. Its assets are their
// credentials.

let azurite: TestStorage;
let live: { cloud: Cloud; config: Config };
let deployment: Deployment;
let process: Process;

beforeAll(async () => {
  [azurite, live] = await Promise.all([
    openStorage(),
    startTestCloud({ company: { subscriptions: [], applications: applications(20) } }),
  ]);
  deployment = new Deployment(azurite.connectionString(), live);
  process = deployment.start();
  await process.applications.discover(caller);
  const vault = vaultRecord("kv-beside");
  const expiresOn = Math.floor(Date.now() / 1000) + 3 * DAY_SECONDS;
  await writeVault(process.writer, vault, [assetRecord(vault, "secret", "db", { expiresOn, tags: { owner: "web" } })]);
});
afterAll(async () => {
  await live?.cloud.stop();
  await azurite?.stop();
});

const rule = (change: Partial<RuleRecord>): RuleRecord => ({
  ruleId: `rule-${JSON.stringify(change).length}`,
  name: "rule",
  alertType: "expiration",
  thresholds: [30, 7],
  filters: {},
  deliveryMethod: "email",
  deliveryMode: "immediate",
  digestFrequency: "daily",
  recipients: ["a@acme.example"],
  enabled: true,
  generation: 1,
  activeSince: new Date(0).toISOString(),
  createdAt: "",
  createdBy: "",
  updatedAt: "",
  updatedBy: "",
  ...change,
});

/** Returns the notifications of a rule's first evaluation. */
async function alertItems(change: Partial<RuleRecord>, licensed = true) {
  const { tables } = process;
  const snapshot = await readVaultSnapshot(tables, licensed);
  const evaluatedAt = new Date();
  const { items } = await expiringItems(
    rule(change),
    { from: evaluatedAt, to: evaluatedAt, revision: 0 },
    snapshot,
    {
      tables,
      notifications: createNotificationLog(tables),
      ownerTag: "owner",
      snoozed: new Set(),
      filters: [],
      recentlyEnded: [],
      suppressedSince: undefined,
    },
    1000,
  );
  return items;
}

/** Returns the number of credentials that expire between two days, counted from now. */
async function countExpiring(from: number, to: number): Promise<number> {
  const { items } = await process.inventory.assets.list(
    { source: "entra" },
    ALL_ITEMS,
    await process.inventory.moment(),
  );
  const nowSeconds = Date.now() / 1000;
  return items.filter(({ asset: { expiresOn } }) => {
    return (
      expiresOn !== undefined &&
      expiresOn > nowSeconds + from * DAY_SECONDS &&
      expiresOn <= nowSeconds + to * DAY_SECONDS
    );
  }).length;
}

test("expiration rules include credentials and vault assets, and rules about credentials only credentials", async () => {
  const expiringCount = await countExpiring(0, 30);
  const expiredCount = await countExpiring(-1000, 0);
  expect([expiringCount, expiredCount].every((count) => count > 0)).toBe(true);
  expect(await alertItems({})).toHaveLength(expiringCount + 1);
  expect(await alertItems({ alertType: "expired", thresholds: [] })).toHaveLength(expiredCount);
  const items = await alertItems({ alertType: "credentialExpiry" });
  expect(items).toHaveLength(expiringCount + expiredCount);
  expect(items.every(({ credential }) => credential !== undefined)).toBe(true);
  expect((await alertItems({ filters: { source: "keyVault" } })).map(({ id }) => id)).toEqual(["kv-beside.secret.db"]);
  expect(await alertItems({ filters: { source: "entra" } })).toHaveLength(expiringCount);
  const itemsOfOwner = await alertItems({ alertType: "credentialExpiry", filters: { owner: "owner1@acme.example" } });
  expect(itemsOfOwner.length).toBeGreaterThan(0);
  expect(new Set(itemsOfOwner.map(({ owner }) => owner))).toEqual(new Set(["owner1@acme.example"]));
  const createdAt = new Date().toISOString();
  const delivery = { deliveryId: "d", createdAt, deliveryMode: "immediate", ruleName: "r", ruleId: "r" } as never;
  const { subject, lines } = messageOf([{ delivery, items: items.slice(0, 1) }], {
    portal: "https://portal.azure.com",
    tenantId: undefined,
    publicBaseUrl: undefined,
    keyVaultSuffix: "vault.azure.net",
    subscriptionName: () => undefined,
  });
  expect(subject).toMatch(/^App \d{3}\/(secret|cert)/);
  expect(lines[0]!.links[0]!.url).toContain(items[0]!.credential!.appId);
});

test("without a license rules include only vault assets", async () => {
  expect((await alertItems({}, false)).map(({ id }) => id)).toEqual(["kv-beside.secret.db"]);
  expect(await alertItems({ alertType: "credentialExpiry" }, false)).toEqual([]);
});

test("the reconciliation repairs damaged rows, and a discovery restores rows that are lost", async () => {
  const reconciliation = openReconciliation(deployment.connectionString);
  // A walk reads all rows of the inventory, compares the copies of each asset, and repairs differences.
  await reconciliation.walk();
  expect(reconciliation.events.filter(({ type }) => type === "inventory.mended")).toEqual([]);
  const holder = holderName(live.cloud.app.tenantId, bucketOf(appIdOf("App 003")));
  const assetsTable = reconciliation.raw("Assets");
  // The rows by name (`n!`) in the holder's partition. Copies are in the partitions of all assets and of the subscription.
  const rows = [];
  for await (const entity of assetsTable.listEntities({
    queryOptions: { filter: `PartitionKey eq '${partitions.vault(holder)}'` },
  }))
    if (entity.rowKey!.startsWith("n!")) rows.push(entity);
  const [row] = rows;
  await assetsTable.deleteEntity(partitions.all, row!.rowKey!);
  await assetsTable.updateEntity(
    { ...row, partitionKey: partitions.subscription("entra"), rowKey: row!.rowKey!, name: "x" } as never,
    "Replace",
  );
  await reconciliation.walk();
  expect(reconciliation.events.filter(({ type }) => type === "inventory.mended").length).toBeGreaterThan(0);
  reconciliation.events.length = 0;
  // The row in the holder's own partition is lost too, so the data must be read from Graph again.
  await assetsTable.deleteEntity(partitions.vault(holder), row!.rowKey!);
  await reconciliation.walk();
  expect(reconciliation.events.some(({ details }) => "listedAgain" in (details ?? {}))).toBe(true);
  await process.applications.discover(caller);
  reconciliation.events.length = 0;
  await reconciliation.walk();
  expect(reconciliation.events).toEqual([]);
  const { credentials: count } = (await process.applications.discover(caller)).run;
  const moment = await process.inventory.moment();
  expect((await process.inventory.assets.list({ source: "entra" }, ALL_ITEMS, moment)).total).toBe(count);
});

test("an evaluation of all vaults does not evaluate a holder as a vault", async () => {
  const { score } = await process.compliance.evaluate(caller);
  const { items } = await process.compliance.violations({}, ALL_ITEMS);
  expect(items.filter(({ resourceType, vaultName }) => resourceType === "vault" && vaultName !== "kv-beside")).toEqual(
    [],
  );
  expect(score!.failed).toBe(items.length);
});

test("a credential is found by its ID, and not by the name of its holder as a vault", async () => {
  const moment = await process.inventory.moment();
  const { items } = await process.inventory.assets.list({ source: "entra" }, ALL_ITEMS, moment);
  for (const { asset } of items.slice(0, 5)) {
    const id = assetId(asset);
    expect(locationsOf(id).map(({ type }) => type)).toEqual(["secret", "certificate"]);
    expect(locationsOf(id)).toContainEqual({ vaultName: asset.vaultName, type: asset.type, name: asset.name });
    expect((await process.inventory.assets.get(id.toUpperCase(), moment))?.asset.name).toBe(asset.name);
    const idAsVaultAsset = `${asset.vaultName}.${asset.type}.${asset.name}`;
    expect(await process.inventory.assets.get(idAsVaultAsset, moment)).toBeUndefined();
    expect(await process.inventory.assets.list({ vault: asset.vaultName }, ALL_ITEMS, moment)).toMatchObject({
      total: 0,
    });
  }
  const views = items.map((found) => assetView(found, moment, "owner"));
  expect(views[0]).toMatchObject({ source: "entra", vaultName: null, vaultId: null, subscriptionId: null });
  const [header, first] = assetsCsv(views).split("\r\n");
  expect(header!.replaceAll('"', "").split(",").slice(30, 32)).toEqual(["source", "notCounted"]);
  expect(first).toContain(views[0]!.credential!.appId);
});

/** Returns the inventory's record of an application's secret. */
function assetOf(change: Partial<ReadApplication["credentials"][number]>, holder: { tenantDomain?: string } = {}) {
  const credential = {
    keyId: "k-1",
    kind: "secret",
    of: "application",
    displayName: undefined,
    hint: undefined,
    thumbprint: undefined,
    startsOn: undefined,
    expiresOn: undefined,
    ...change,
  };
  const app = { appId: "a-1", displayName: "Shop", credentials: [credential] } as unknown as ReadApplication;
  const [asset] = assetsOfApplication(app, {
    name: "h",
    source: "b2c",
    tenantId: "t-1",
    now: "2026-11-21T10:00:00.000Z",
    ...holder,
  });
  return asset!;
}

test.each([{ tenantDomain: "contoso.onmicrosoft.com" }, {}])(
  "a credential has the domain of its tenant, if it is known: %j",
  (holder) => {
    expect(assetOf({}, holder).credential!.tenantDomain).toBe(holder.tenantDomain);
  },
);

test("a credential has its name, the hint of its value and its thumbprint, if known", () => {
  const credential = { displayName: "current", hint: "Ab1" };
  expect(assetOf({ ...credential, thumbprint: "00AB" })).toMatchObject({ thumbprint: "00AB", credential });
  const assetWithoutThem = assetOf({});
  expect(assetWithoutThem).not.toHaveProperty("thumbprint");
  expect(assetWithoutThem.credential).not.toHaveProperty("hint");
});

test("the creation time of a credential is the start of its validity, if known", () => {
  expect(assetOf({ startsOn: 1_700_000_000 })).toMatchObject({ createdOn: 1_700_000_000, notBefore: 1_700_000_000 });
  expect(assetOf({}).createdOn).toBeUndefined();
});
