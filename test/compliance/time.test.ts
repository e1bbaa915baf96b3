// Evaluations that time causes: assets pass thresholds, the policy or the checks change, evaluation is turned off and on.
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { EDITION } from "../../shared/compliance/checks/all.ts";
import {
  DayScores,
  type EvaluateMessage,
  HISTORY,
  STATE,
  THRESHOLDS_KEY,
  ThresholdsRows,
} from "../../shared/compliance/compliance-rows.ts";
import type { AssetRecord } from "../../shared/inventory/asset.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import {
  asset,
  caller,
  checkIds,
  context,
  DAY_SECONDS,
  expectedResults,
  type Fixture,
  inDays,
  openFixture,
  readAllViolations,
  START,
  vault,
} from "./compliance-fixture.ts";

let azurite: TestStorage;
let fixture: Fixture;
/** Names of storage accounts in the emulator. Each test uses one of its own, so that it starts empty. */
const accounts = Array.from({ length: 22 }, (_, index) => `time${index}`);
const unusedAccounts = [...accounts];
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());
beforeEach(() => {
  fixture = openFixture(azurite.connectionString(unusedAccounts.pop()!));
});

const renewalUntil = (days: number): NonNullable<AssetRecord["renewal"]> => ({
  renewedBy: "acmebot",
  source: "tags",
  windowStart: inDays(days - 1),
  windowEnd: inDays(days),
  attentionAt: inDays(days) + 1,
});
const secret = (name: string, change: Partial<AssetRecord>) => asset("kv", "secret", name, change);
/** Returns the assets that messages name for evaluation, and "due" for each message that evaluates a vault's due assets. */
const assetsToEvaluate = (messages: EvaluateMessage[]) =>
  messages.flatMap((message) => (message.kind === "assets" ? message.assets : message.kind === "due" ? ["due"] : []));
/** Returns all violations as "asset: check", sorted. */
const listViolations = async () =>
  (await readAllViolations(fixture.compliance))
    .map(({ checkId, resourceName }) => `${resourceName}: ${checkId}`)
    .sort();

test("each day only assets that passed a threshold are evaluated, and all violations are up to date", async () => {
  const assets = [
    secret("soon", { expiresOn: inDays(32.5) }),
    secret("later", { expiresOn: inDays(200) }),
    secret("never", { expiresOn: undefined }),
    asset("kv", "key", "old", { createdOn: inDays(-728.5), expiresOn: inDays(500), notBefore: inDays(-727.5) }),
    asset("kv", "certificate", "web", { expiresOn: inDays(9.5) }),
    // Acmebot has until day 11.5 to renew it.
    asset("kv", "certificate", "short", { expiresOn: inDays(13.5), issuer: "CN=R11", renewal: renewalUntil(11.5) }),
    // Acmebot has until day 15.5, long before its expiry. Half of the time between the two is over on day 30.5.
    asset("kv", "certificate", "long", { expiresOn: inDays(45.5), issuer: "CN=R11", renewal: renewalUntil(15.5) }),
  ];
  const inventory = [{ vault: vault("kv"), assets }];
  await fixture.scan(vault("kv"), assets);
  const evaluatedByDay: Record<number, string[]> = {};
  for (let day = 1; day <= 40; day++) {
    fixture.clock.nowMs = START + day * DAY_SECONDS * 1000;
    await fixture.compliance.runDue();
    const evaluatedToday = assetsToEvaluate(await fixture.drain());
    if (evaluatedToday.length > 0) evaluatedByDay[day] = evaluatedToday.sort();
    const failures = expectedResults(inventory, { ...context, now: fixture.clock.nowMs }).filter(
      ({ result }) => result === "fail",
    );
    expect([day, ...(await readAllViolations(fixture.compliance)).map(({ id }) => id).sort()]).toEqual([
      day,
      ...failures.map(({ check, resourceId }) => `${check.id}.${resourceId}`).sort(),
    ]);
  }
  // `web` expires in 9.5 days and `soon` in 32.5. Each becomes a warning 30 days before, critical 7 days before, and then
  // expires. Certificates of Acmebot fail only once their renewal is late. Then `short`, which expires within 7 days, is critical
  // at once, and `long` is critical when half of the time until its expiry is over. `due`: on the third day, the key `old` has been
  // active for more than its maximum of 730 days.
  expect(evaluatedByDay).toEqual({
    3: ["certificate.web", "due", "secret.soon"],
    10: ["certificate.web"],
    12: ["certificate.short"],
    14: ["certificate.short"],
    16: ["certificate.long"],
    26: ["secret.soon"],
    31: ["certificate.long"],
    33: ["secret.soon"],
  });
});

test("a timer that runs late evaluates each asset that passed a threshold, once", async () => {
  await fixture.scan(vault("kv"), [secret("a", { expiresOn: inDays(10) }), secret("b", { expiresOn: inDays(300) })]);
  fixture.clock.nowMs = START + 20 * DAY_SECONDS * 1000;
  await fixture.compliance.runDue();
  expect(assetsToEvaluate(await fixture.drain())).toEqual(["secret.a"]);
  expect(await listViolations()).toEqual(["a: secret-expired"]);
  await fixture.compliance.runDue();
  expect(assetsToEvaluate(await fixture.drain())).toEqual([]);
});

test("a changed policy evaluates only assets that expire between the old and the new threshold", async () => {
  const days = [3, 6, 9, 20, 40, 60, 100];
  await fixture.scan(
    vault("kv"),
    days.map((day) => secret(`s${day}`, { expiresOn: inDays(day) })),
  );
  const countViolations = async () => checkIds(await readAllViolations(fixture.compliance)).length;
  expect(await countViolations(), "critical and warning").toBe(2 + 2);
  Object.assign(fixture.settings, { criticalExpiryDays: 10, warningExpiryDays: 50 });
  await fixture.compliance.policyChanged(["criticalExpiryDays", "warningExpiryDays"]);
  // After 30 seconds every instance uses the new policy.
  expect(fixture.delays.at(-1)).toBeGreaterThanOrEqual(30);
  expect(assetsToEvaluate(await fixture.drain()).sort()).toEqual(["secret.s40", "secret.s9"]);
  expect(await countViolations()).toBe(3 + 2);
  Object.assign(fixture.settings, { criticalExpiryDays: 5, warningExpiryDays: 8 });
  await fixture.compliance.policyChanged(["warningExpiryDays"]);
  expect(assetsToEvaluate(await fixture.drain()).sort()).toEqual([
    "secret.s20",
    "secret.s40",
    "secret.s6",
    "secret.s9",
  ]);
  expect(await listViolations()).toEqual(["s3: secret-near-expiry-critical", "s6: secret-near-expiry-warning"]);
});

test("results of a policy that was reverted are evaluated again", async () => {
  await fixture.scan(vault("kv"), [secret("a", { expiresOn: inDays(40) })]);
  fixture.settings.warningExpiryDays = 50;
  await fixture.compliance.policyChanged(["warningExpiryDays"]);
  await fixture.scan(vault("kv"), [secret("a", { expiresOn: inDays(40), contentType: "other" })]);
  expect(await listViolations()).toEqual(["a: secret-near-expiry-warning"]);
  fixture.settings.warningExpiryDays = 30;
  await fixture.compliance.policyChanged(["warningExpiryDays"]);
  await fixture.drain();
  expect(await listViolations()).toEqual([]);
});

test("a change of the critical expiry range alone is evaluated", async () => {
  await fixture.scan(vault("kv"), [secret("a", { expiresOn: inDays(9) })]);
  expect(await listViolations()).toEqual(["a: secret-near-expiry-warning"]);
  fixture.settings.criticalExpiryDays = 10;
  await fixture.compliance.policyChanged(["criticalExpiryDays"]);
  await fixture.drain();
  expect(await listViolations()).toEqual(["a: secret-near-expiry-critical"]);
});

test("a change of settings that checks don't use evaluates nothing", async () => {
  await fixture.compliance.policyChanged(["logLevel", "discoveryMaxWorkers"]);
  expect(await fixture.drain()).toEqual([]);
});

test("changes made while evaluation is off are evaluated after it is turned on", async () => {
  await fixture.scan(vault("kv"), [secret("a", {})]);
  fixture.settings.enableComplianceScanning = false;
  await fixture.scan(vault("kv"), [secret("a", { expiresOn: undefined })]);
  await fixture.scan(vault("kv-2"), [asset("kv-2", "secret", "b", { contentType: undefined })]);
  await fixture.compliance.runDue();
  await fixture.drain();
  expect(await listViolations()).toEqual([]);
  await expect(fixture.compliance.evaluate(caller)).rejects.toMatchObject({ code: "conflict" });
  fixture.settings.enableComplianceScanning = true;
  await fixture.compliance.runDue();
  await fixture.drain();
  expect(await listViolations()).toEqual(["a: secret-expiry-set-rbac", "b: secret-content-type"]);
});

test("the change of the setting that turns evaluation on evaluates everything", async () => {
  fixture.settings.enableComplianceScanning = false;
  await fixture.scan(vault("kv"), [secret("a", { expiresOn: undefined })]);
  fixture.settings.enableComplianceScanning = true;
  await fixture.compliance.policyChanged(["enableComplianceScanning"]);
  await fixture.drain();
  expect(await listViolations()).toEqual(["a: secret-expiry-set-rbac"]);
});

test("the results of a vault that is removed while evaluation is off are removed", async () => {
  await fixture.scan(vault("kv", { privateEndpoints: 0 }), []);
  fixture.settings.enableComplianceScanning = false;
  await fixture.removeVault("kv");
  expect(await fixture.compliance.score()).toMatchObject({ total: 0 });
});

test("the history contains the stored score of each earlier day and the current score of today", async () => {
  await fixture.scan(vault("kv"), [secret("a", { contentType: undefined })]);
  await fixture.compliance.recordScore();
  fixture.clock.nowMs = START + 2 * DAY_SECONDS * 1000;
  await fixture.scan(vault("kv"), [secret("a", {})]);
  const { score, passed, failed, total, history } = await fixture.compliance.score(30);
  expect(history).toEqual([
    { date: "2026-11-21", score: expect.any(Number), passed: passed - 1, failed: 1, total, edition: EDITION },
    { date: "2026-11-23", score, passed, failed, total, edition: EDITION },
  ]);
  // PCI DSS requires none of the failing checks.
  const pci = await fixture.compliance.framework("pci-dss-4.0.1", 30);
  expect(pci.history?.map(({ date, failed }) => [date, failed])).toEqual([
    ["2026-11-21", 0],
    ["2026-11-23", 0],
  ]);
  expect((await fixture.compliance.score(2)).history).toHaveLength(1);
  expect((await fixture.compliance.score()).history).toBeUndefined();
});

test("a day that an earlier version stored has no framework scores and no edition of the checks", async () => {
  await fixture.tables.put(DayScores, HISTORY, "2026-11-20", {
    date: "2026-11-20",
    score: 90,
    passed: 9,
    failed: 1,
    total: 10,
  });
  const { history } = await fixture.compliance.score(30);
  expect(history![0]).toEqual({ date: "2026-11-20", score: 90, passed: 9, failed: 1, total: 10, edition: null });
  expect((await fixture.compliance.framework("soc-2", 30)).history).toHaveLength(1);
});

test("everything is evaluated once after an update that changes the checks", async () => {
  await fixture.scan(vault("kv"), [secret("a", { contentType: undefined })]);
  // The edition numbers the checks' versions. Without it, the stored results are those of an earlier version.
  const row = (await fixture.tables.get(ThresholdsRows, STATE, THRESHOLDS_KEY))!;
  const { edition: _, ...rowWithoutEdition } = row;
  await fixture.tables.replace(ThresholdsRows, rowWithoutEdition as typeof row);
  await fixture.compliance.runDue();
  // Each run of the timer sends a `crossed` message, which looks for assets to evaluate.
  expect((await fixture.drain()).map(({ kind }) => kind)).toEqual(["crossed", "vault"]);
  expect(await listViolations()).toEqual(["a: secret-content-type"]);
  await fixture.compliance.runDue();
  expect((await fixture.drain()).map(({ kind }) => kind)).toEqual(["crossed"]);
});

test("the violation of an earlier alert still exists while the asset fails the same check or a worse one", async () => {
  /** Scans a secret that expires in these days. Returns the checks of the two earlier alerts whose violations still exist. */
  const checksOfExistingViolations = async (days: number, checkId: string) => {
    await fixture.scan(vault("kv", { softDelete: false, purgeProtection: false }), [
      secret("a", { expiresOn: inDays(days) }),
    ]);
    const secretAlert = { checkId, resourceId: "kv.secret.a", resourceType: "secret", vaultName: "kv" };
    // A check of an earlier version, which other checks replace.
    const vaultAlert = { ...secretAlert, checkId: "vault-recoverable", resourceId: "kv", resourceType: "vault" };
    const reading = await fixture.compliance.readViolations();
    return [
      ...(
        await reading.findExisting([secretAlert, vaultAlert].map((alert) => ({ ...alert, id: alert.checkId })))
      ).keys(),
    ].sort();
  };
  const [warning, critical] = ["secret-near-expiry-warning", "secret-near-expiry-critical"];
  expect(await checksOfExistingViolations(20, warning)).toEqual([warning, "vault-recoverable"]);
  expect(await checksOfExistingViolations(3, warning)).toEqual([warning, "vault-recoverable"]);
  expect(await checksOfExistingViolations(-1, warning)).toEqual([warning, "vault-recoverable"]);
  expect(await checksOfExistingViolations(-1, critical)).toEqual([critical, "vault-recoverable"]);
  expect(await checksOfExistingViolations(90, critical)).toEqual(["vault-recoverable"]);
  // The critical violation has ended: the asset now only fails the less severe check.
  expect(await checksOfExistingViolations(20, critical)).toEqual(["vault-recoverable"]);
});
