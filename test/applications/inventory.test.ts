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
import { assetId, placesOf } from "../../shared/inventory/asset.ts";
import { partitions } from "../../shared/inventory/asset-keys.ts";
import { assetsCsv } from "../../shared/inventory/csv.ts";
import { bucketOf, holderName } from "../../shared/inventory/holder.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { assetRecord, vaultRecord, writeVault } from "../inventory/write-assets.ts";
import { openReconciliation } from "../reconciliation/reconciliation-fixture.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { applications, caller, Deployment, everything, type Process } from "./applications-fixture.ts";

const DAY = 86_400;
let azurite: TestStorage;
let live: { cloud: Cloud; config: Config };
let deployment: Deployment;
let process: Process;

beforeAll(async () => {
  [azurite, live] = await Promise.all([
    openStorage(),
    liveIn({ company: { subscriptions: [], applications: applications(20) } }),
  ]);
  deployment = new Deployment(azurite.connectionString(), live);
  process = deployment.start();
  await process.applications.discover(caller);
  const vault = vaultRecord("kv-beside");
  const soon = Math.floor(Date.now() / 1000) + 3 * DAY;
  await writeVault(process.writer, vault, [
    assetRecord(vault, "secret", "db", { expiresOn: soon, tags: { owner: "web" } }),
  ]);
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
  const to = new Date();
  const { items } = await expiringItems(
    rule(change),
    { from: to, to, revision: 0 },
    snapshot,
    {
      tables,
      notifications: createNotificationLog(tables),
      ownerTag: "owner",
      snoozed: new Set(),
      filters: [],
      awake: [],
      suppressedSince: undefined,
    },
    1000,
  );
  return items;
}

/** Returns how many credentials of the directory expire in a range of days from now. */
async function credentials(from: number, to: number): Promise<number> {
  const { items } = await process.inventory.assets.list(
    { source: "entra" },
    everything,
    await process.inventory.moment(),
  );
  const at = Date.now() / 1000;
  return items.filter(({ asset: { expiresOn } }) => {
    return expiresOn !== undefined && expiresOn > at + from * DAY && expiresOn <= at + to * DAY;
  }).length;
}

test("rules about expiry include credentials and vault secrets, and rules about credentials nothing else", async () => {
  const soon = await credentials(0, 30);
  const past = await credentials(-1000, 0);
  expect([soon, past].every((count) => count > 0)).toBe(true);
  expect(await alertItems({})).toHaveLength(soon + 1);
  expect(await alertItems({ alertType: "expired", thresholds: [] })).toHaveLength(past);
  const items = await alertItems({ alertType: "credentialExpiry" });
  expect(items).toHaveLength(soon + past);
  expect(items.every(({ credential }) => credential !== undefined)).toBe(true);
  expect((await alertItems({ filters: { source: "keyVault" } })).map(({ id }) => id)).toEqual(["kv-beside.secret.db"]);
  expect(await alertItems({ filters: { source: "entra" } })).toHaveLength(soon);
  const mine = await alertItems({ alertType: "credentialExpiry", filters: { owner: "owner1@acme.example" } });
  expect(mine.length).toBeGreaterThan(0);
  expect(new Set(mine.map(({ owner }) => owner))).toEqual(new Set(["owner1@acme.example"]));
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
  expect(lines[0]!.link!.url).toContain(items[0]!.credential!.appId);
});

test("without a license rules include only vault assets", async () => {
  expect((await alertItems({}, false)).map(({ id }) => id)).toEqual(["kv-beside.secret.db"]);
  expect(await alertItems({ alertType: "credentialExpiry" }, false)).toEqual([]);
});

test("the reconciliation finds nothing to repair, repairs planted faults, and a discovery reads again what it must", async () => {
  const fixture = openReconciliation(deployment.connectionString);
  await fixture.walk();
  expect(fixture.events.filter(({ type }) => type === "inventory.mended")).toEqual([]);
  const holder = holderName(live.cloud.app.tenantId, bucketOf(appIdOf("App 003")));
  const own = fixture.raw("Assets");
  const rows = [];
  for await (const row of own.listEntities({
    queryOptions: { filter: `PartitionKey eq '${partitions.vault(holder)}'` },
  }))
    if (row.rowKey!.startsWith("n!")) rows.push(row);
  const [one] = rows;
  await own.deleteEntity(partitions.all, one!.rowKey!);
  await own.updateEntity(
    { ...one, partitionKey: partitions.subscription("entra"), rowKey: one!.rowKey!, name: "x" } as never,
    "Replace",
  );
  await fixture.walk();
  expect(fixture.events.filter(({ type }) => type === "inventory.mended").length).toBeGreaterThan(0);
  fixture.events.length = 0;
  // The holder's own row by name is lost. Only Graph has the right data.
  await own.deleteEntity(partitions.vault(holder), one!.rowKey!);
  await fixture.walk();
  expect(fixture.events.some(({ details }) => "listedAgain" in (details ?? {}))).toBe(true);
  await process.applications.discover(caller);
  fixture.events.length = 0;
  await fixture.walk();
  expect(fixture.events).toEqual([]);
  const { credentials: count } = (await process.applications.discover(caller)).run;
  const moment = await process.inventory.moment();
  expect((await process.inventory.assets.list({ source: "entra" }, everything, moment)).total).toBe(count);
});

test("an evaluation of everything does not evaluate a holder as a vault", async () => {
  const { score } = await process.compliance.evaluate(caller);
  const { items } = await process.compliance.violations({}, everything);
  expect(items.filter(({ resourceType, vaultName }) => resourceType === "vault" && vaultName !== "kv-beside")).toEqual(
    [],
  );
  expect(score!.failed).toBe(items.length);
});

test("a credential has one ID that leads only to it", async () => {
  const moment = await process.inventory.moment();
  const { items } = await process.inventory.assets.list({ source: "entra" }, everything, moment);
  for (const { asset } of items.slice(0, 5)) {
    const id = assetId(asset);
    expect(placesOf(id).map(({ type }) => type)).toEqual(["secret", "certificate"]);
    expect(placesOf(id)).toContainEqual({ vaultName: asset.vaultName, type: asset.type, name: asset.name });
    expect((await process.inventory.assets.get(id.toUpperCase(), moment))?.asset.name).toBe(asset.name);
    const asVaults = `${asset.vaultName}.${asset.type}.${asset.name}`;
    expect(await process.inventory.assets.get(asVaults, moment)).toBeUndefined();
    expect(await process.inventory.assets.list({ vault: asset.vaultName }, everything, moment)).toMatchObject({
      total: 0,
    });
  }
  const views = items.map((found) => assetView(found, moment, "owner"));
  expect(views[0]).toMatchObject({ source: "entra", vaultName: null, vaultId: null, subscriptionId: null });
  const [header, first] = assetsCsv(views).split("\r\n");
  expect(header!.replaceAll('"', "").split(",").slice(-7, -5)).toEqual(["source", "notCounted"]);
  expect(first).toContain(views[0]!.credential!.appId);
});

/** Returns the inventory's record of one secret of an application. */
function assetOf(given: Partial<ReadApplication["credentials"][number]>, holder: { tenantDomain?: string } = {}) {
  const credential = {
    keyId: "k-1",
    kind: "secret",
    of: "application",
    displayName: undefined,
    hint: undefined,
    thumbprint: undefined,
    startsOn: undefined,
    expiresOn: undefined,
    ...given,
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
  "a credential has the domain of its tenant: %j",
  (given) => {
    expect(assetOf({}, given).credential!.tenantDomain).toBe(given.tenantDomain);
  },
);

test("a credential has its name, the hint of its value and its thumbprint, if known", () => {
  const credential = { displayName: "current", hint: "Ab1" };
  expect(assetOf({ ...credential, thumbprint: "00AB" })).toMatchObject({ thumbprint: "00AB", credential });
  const unknown = assetOf({});
  expect(unknown).not.toHaveProperty("thumbprint");
  expect(unknown.credential).not.toHaveProperty("hint");
});

test("the creation time of a credential is the start of its validity, if known", () => {
  expect(assetOf({ startsOn: 1_700_000_000 })).toMatchObject({ createdOn: 1_700_000_000, notBefore: 1_700_000_000 });
  expect(assetOf({}).createdOn).toBeUndefined();
});
