import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf } from "simulated-cloud/company/applications.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  APPS,
  type ApplicationCredential,
  type ApplicationRecord,
  Applications,
  Buckets,
  bucketKey,
  idKey,
  joinSigningCertificates,
  nameKey,
} from "../../shared/applications/application.ts";
import { writeCredentials } from "../../shared/applications/credentials.ts";
import { contentsOf } from "../../shared/applications/write-bucket.ts";
import { bucketOf } from "../../shared/inventory/holder.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { openFixture } from "../alerts/alerts-setup.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { ALL_ITEMS, caller, Deployment, type Process } from "./applications-fixture.ts";

// Entra keeps a token-signing certificate, for example of SAML, as two key credentials: one to sign, one to verify. Tests that
// it is one asset, also in a store in which an earlier version wrote an asset for each entry.

const NAME = "Travel Expenses";
const SAML = { name: NAME, owners: [], samlSigning: { expiresInDays: 5 } };
const APP_ID = appIdOf(NAME);

let azurite: TestStorage;
let live: { cloud: Cloud; config: Config };
let deployment: Deployment;
let service: Process;

beforeAll(async () => {
  [azurite, live] = await Promise.all([
    openStorage(["joined", "earlier"]),
    startTestCloud({ company: { subscriptions: [], applications: [SAML] } }),
  ]);
});
afterAll(async () => {
  await live?.cloud.stop();
  await azurite?.stop();
});

async function startService(account: string): Promise<void> {
  deployment = new Deployment(azurite.connectionString(account), live);
  service = deployment.start();
  expect(await deployment.runScheduled("full", service)).toMatchObject({ status: "completed", credentials: 1 });
}

const assets = async () => {
  const { items } = await service.inventory.assets.list(
    { source: "entra" },
    ALL_ITEMS,
    await service.inventory.moment(),
  );
  return items.map(({ asset }) => asset);
};
const violations = async () => (await service.compliance.violations({}, ALL_ITEMS)).items;

test("the two entries of a token-signing certificate are one asset, which fails each check once", async () => {
  await startService("joined");
  const [asset, ...more] = await assets();
  expect([asset?.type, asset?.credential?.otherKeyIds?.length, more]).toEqual(["certificate", 1, []]);
  const checks = (await violations()).map(({ checkId }) => checkId);
  expect(checks).toContain("application-certificate-near-expiry-critical");
  expect(new Set(checks).size).toBe(checks.length);
  // The next discovery changes nothing.
  expect(await deployment.runScheduled("full", service)).toMatchObject({ credentials: 1 });
  expect(await assets()).toEqual([asset]);
});

const entry = (change: Partial<ApplicationCredential>): ApplicationCredential => ({
  keyId: "a",
  kind: "certificate",
  of: "servicePrincipal",
  thumbprint: "AB",
  usage: "Verify",
  ...change,
});

test.each<[string, ApplicationCredential[], (string | string[])[]]>([
  ["sign and verify", [entry({ keyId: "a", usage: "Sign" }), entry({ keyId: "b" })], ["b", ["a"]]],
  ["two entries to verify", [entry({ keyId: "a" }), entry({ keyId: "b" })], ["a", "b"]],
  ["one entry to sign", [entry({ usage: "Sign" })], ["a"]],
  ["two expiry dates", [entry({ usage: "Sign", expiresOn: 1 }), entry({ keyId: "b", expiresOn: 2 })], ["a", "b"]],
  ["two thumbprints", [entry({ usage: "Sign" }), entry({ keyId: "b", thumbprint: "CD" })], ["a", "b"]],
  [
    "an application's and a principal's",
    [entry({ usage: "Sign" }), entry({ keyId: "b", of: "application" })],
    ["a", "b"],
  ],
  ["entries that are joined already", [entry({ keyId: "b", otherKeyIds: ["a"] })], ["b", ["a"]]],
  [
    "a joined entry beside the entry to sign, which an earlier version stored",
    [entry({ keyId: "b", otherKeyIds: ["a"] }), entry({ keyId: "a", usage: "Sign" })],
    ["b", ["a"]],
  ],
])("credentials with %s are joined by thumbprint, dates and owner object", (_name, credentials, expected) => {
  const joined = joinSigningCertificates(credentials);
  expect(joined.flatMap(({ keyId, otherKeyIds }) => (otherKeyIds ? [keyId, otherKeyIds] : [keyId]))).toEqual(expected);
  expect(joinSigningCertificates(joined)).toEqual(joined);
});

/**
 * Writes the rows of the application as the earlier version wrote them: an asset with results for each entry. Returns the IDs
 * of the asset that stays and of the one that the next discovery removes.
 */
async function writeAsEarlierVersion(): Promise<{ kept: string; dropped: string }> {
  const { tables } = service;
  const row = (await tables.get(Applications, APPS, idKey(APP_ID)))!;
  const [joined] = row.credentials;
  const { otherKeyIds, ...verify } = joined!;
  const sign = { ...verify, keyId: otherKeyIds![0]!, usage: "Sign" };
  const app: ApplicationRecord = { ...withoutKeys(row), credentials: [sign, verify] };
  for (const key of [idKey(APP_ID), nameKey(app)]) await tables.put(Applications, APPS, key, app);
  const { firstSeenAt: _, details: __, ...read } = app;
  const bucket = bucketOf(APP_ID);
  const contents = contentsOf(new Map([[APP_ID, read]]));
  await tables.put(Buckets, APPS, bucketKey(bucket), { contents, apps: 1, credentials: 2 });
  const now = new Date().toISOString();
  const { tenantId } = (await assets())[0]!.credential!;
  await writeCredentials(
    { tenantId, bucket, apps: [read], now, seenAt: now, workerId: "earlier version" },
    { writer: service.writer, prepareChange: service.compliance.prepareChange, confirm: async () => {} },
  );
  const idOf = (keyId: string) => `entra.${tenantId}.${APP_ID}.${keyId}`.toLowerCase();
  return { kept: idOf(verify.keyId), dropped: idOf(sign.keyId) };
}

test("two assets of an earlier version become one; exemption, snooze and acknowledgment follow, and no alert says removed or new", async () => {
  await startService("earlier");
  const { kept, dropped } = await writeAsEarlierVersion();
  expect(await assets()).toHaveLength(2);
  const exempted = "application-certificate-owner";
  const until = new Date(Date.now() + 30 * 86_400_000);
  // Both assets have an exemption until the same time.
  for (const id of [kept, dropped])
    await service.compliance.exemptions.create(
      { checkId: exempted, scope: { type: "asset", id }, category: "waiver", reason: "old", until },
      caller,
    );
  const before = await violations();
  const alerts = openFixture({
    connectionString: deployment.connectionString,
    cloud: live.cloud,
    violations: service.compliance,
  });
  const run = async () => {
    alerts.clock.set(new Date());
    const instance = alerts.instance();
    await instance.evaluate();
    await alerts.handleAllMessages(instance);
  };
  alerts.clock.set(new Date());
  const expiring = await alerts.webhookRule({ alertType: "credentialExpiry" });
  const violated = await alerts.webhookRule({ alertType: "complianceViolation" });
  // A snooze of the entry that goes: a later threshold must not notify of the asset that stays.
  const snoozed = await alerts.webhookRule({ alertType: "credentialExpiry", thresholds: [5] });
  for (const assetId of [kept, dropped])
    await alerts.instance().snoozes.create({ ruleId: snoozed.rule.ruleId, assetId, reason: "moved", until }, caller);
  await run();
  const itemsOf = ({ received }: typeof expiring) =>
    received().flatMap(({ body }) =>
      JSON.parse(body).data.items.map((item: { id: string; state?: string }) => [item.id, item.state]),
    );
  expect(itemsOf(expiring).sort()).toEqual([kept, dropped].sort().map((id) => [id, undefined]));
  const notified = [itemsOf(expiring), itemsOf(violated), itemsOf(snoozed)];
  // The snoozed rule notifies of nothing.
  expect(notified[2]).toEqual([]);
  await alerts.instance().snoozes.end(`${snoozed.rule.ruleId}.${kept}`, caller);
  // A user acknowledged the alerts about the entry that goes.
  const acknowledge = (ruleId: string, itemId: string) =>
    alerts.instance().acknowledgements.create({ ruleId, itemId, note: "Maria renews it." }, caller);
  await acknowledge(expiring.rule.ruleId, dropped);
  const violation = before.find(({ resourceId, exemptionId }) => resourceId === dropped && exemptionId === null)!;
  await acknowledge(violated.rule.ruleId, violation.id);

  expect(await deployment.runScheduled("full", service)).toMatchObject({ status: "completed", credentials: 1 });
  expect((await assets()).map(({ credential }) => credential?.keyId)).toEqual([kept.split(".").at(-1)]);
  const after = await violations();
  expect(after.map(({ checkId, resourceId, firstSeenAt }) => [checkId, resourceId, firstSeenAt])).toEqual(
    before.filter(({ resourceId }) => resourceId === kept).map((one) => [one.checkId, one.resourceId, one.firstSeenAt]),
  );
  expect(after.filter(({ exemptionId }) => exemptionId !== null).map(({ checkId }) => checkId)).toEqual([exempted]);
  expect(await service.compliance.score()).toMatchObject({ failed: after.length - 1, exempted: 1 });

  await run();
  expect([itemsOf(expiring), itemsOf(violated), itemsOf(snoozed)]).toEqual(notified);
  for (const { rule } of [expiring, violated]) {
    const { items } = await alerts.instance().acknowledgements.listOpen(rule.ruleId, {}, ALL_ITEMS);
    expect(items.filter(({ item }) => JSON.stringify(item).includes(dropped))).toEqual([]);
    expect(items.length).toBeGreaterThan(0);
    // The acknowledgment follows to the alert about the asset that stays.
    const acknowledged = items.filter(({ acknowledgement }) => acknowledgement !== undefined);
    expect(acknowledged.map(({ item, acknowledgement }) => [item.id, acknowledgement?.note])).toEqual([
      [rule === expiring.rule ? kept : violation.id.replace(dropped, kept), "Maria renews it."],
    ]);
  }
});
