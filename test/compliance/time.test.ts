import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { EDITION } from "../../shared/compliance/checks/all.ts";
import {
  DayScores,
  type EvaluateMessage,
  HISTORY,
  LINES_KEY,
  Lines,
  STATE,
} from "../../shared/compliance/compliance-rows.ts";
import type { AssetRecord } from "../../shared/inventory/asset.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import {
  asset,
  caller,
  checkIds,
  context,
  DAY,
  type Fixture,
  inDays,
  openFixture,
  pairsOf,
  START,
  vault,
  walk,
} from "./compliance-fixture.ts";

let azurite: TestStorage;
let fixture: Fixture;
const accounts = Array.from({ length: 22 }, (_, at) => `time${at}`);
const free = [...accounts];
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());
beforeEach(() => {
  fixture = openFixture(azurite.connectionString(free.pop()!));
});

const secret = (name: string, change: Partial<AssetRecord>) => asset("kv", "secret", name, change);
const sent = (messages: EvaluateMessage[]) =>
  messages.flatMap((message) => (message.kind === "assets" ? message.assets : message.kind === "due" ? ["due"] : []));
const sets = async () =>
  (await walk(fixture.compliance)).map(({ checkId, resourceName }) => `${resourceName}: ${checkId}`).sort();

test("day by day only assets that passed a threshold are evaluated, and the violations are right every day", async () => {
  const assets = [
    secret("soon", { expiresOn: inDays(32.5) }),
    secret("later", { expiresOn: inDays(200) }),
    secret("never", { expiresOn: undefined }),
    asset("kv", "key", "old", { createdOn: inDays(-728.5), expiresOn: inDays(500), notBefore: inDays(-727.5) }),
    asset("kv", "certificate", "web", { expiresOn: inDays(9.5) }),
  ];
  const estate = [{ vault: vault("kv"), assets }];
  await fixture.scan(vault("kv"), assets);
  const evaluated: Record<number, string[]> = {};
  for (let day = 1; day <= 40; day++) {
    fixture.clock.at = START + day * DAY * 1000;
    await fixture.compliance.runDue();
    const crossed = sent(await fixture.drain());
    if (crossed.length > 0) evaluated[day] = crossed.sort();
    const failing = pairsOf(estate, { ...context, now: fixture.clock.at }).filter(({ result }) => result === "fail");
    expect([day, ...(await walk(fixture.compliance)).map(({ id }) => id).sort()]).toEqual([
      day,
      ...failing.map(({ check, resourceId }) => `${check.id}.${resourceId}`).sort(),
    ]);
  }
  expect(evaluated).toEqual({
    3: ["certificate.web", "due", "secret.soon"],
    10: ["certificate.web"],
    26: ["secret.soon"],
    33: ["secret.soon"],
  });
});

test("a timer that runs twice, or late, evaluates nothing twice and misses nothing", async () => {
  await fixture.scan(vault("kv"), [secret("a", { expiresOn: inDays(10) }), secret("b", { expiresOn: inDays(300) })]);
  fixture.clock.at = START + 20 * DAY * 1000;
  await fixture.compliance.runDue();
  expect(sent(await fixture.drain())).toEqual(["secret.a"]);
  expect(await sets()).toEqual(["a: secret-expired"]);
  await fixture.compliance.runDue();
  expect(sent(await fixture.drain())).toEqual([]);
});

test("a changed policy evaluates the assets between the old and the new threshold, once all instances use it", async () => {
  const days = [3, 6, 9, 20, 40, 60, 100];
  await fixture.scan(
    vault("kv"),
    days.map((day) => secret(`s${day}`, { expiresOn: inDays(day) })),
  );
  const near = async () => checkIds(await walk(fixture.compliance)).length;
  expect(await near()).toBe(2 + 2);
  Object.assign(fixture.settings, { criticalExpiryDays: 10, warningExpiryDays: 50 });
  await fixture.compliance.policyChanged(["criticalExpiryDays", "warningExpiryDays"]);
  expect(fixture.delays.at(-1)).toBeGreaterThanOrEqual(30);
  expect(sent(await fixture.drain()).sort()).toEqual(["secret.s40", "secret.s9"]);
  expect(await near()).toBe(3 + 2);
  Object.assign(fixture.settings, { criticalExpiryDays: 5, warningExpiryDays: 8 });
  await fixture.compliance.policyChanged(["warningExpiryDays"]);
  expect(sent(await fixture.drain()).sort()).toEqual(["secret.s20", "secret.s40", "secret.s6", "secret.s9"]);
  expect(await sets()).toEqual(["s3: secret-near-expiry-critical", "s6: secret-near-expiry-warning"]);
});

test("a policy that is changed and reverted leaves no results of the time in between", async () => {
  await fixture.scan(vault("kv"), [secret("a", { expiresOn: inDays(40) })]);
  fixture.settings.warningExpiryDays = 50;
  await fixture.compliance.policyChanged(["warningExpiryDays"]);
  await fixture.scan(vault("kv"), [secret("a", { expiresOn: inDays(40), contentType: "other" })]);
  expect(await sets()).toEqual(["a: secret-near-expiry-warning"]);
  fixture.settings.warningExpiryDays = 30;
  await fixture.compliance.policyChanged(["warningExpiryDays"]);
  await fixture.drain();
  expect(await sets()).toEqual([]);
});

test("other settings evaluate nothing", async () => {
  await fixture.compliance.policyChanged(["logLevel", "discoveryMaxWorkers"]);
  expect(await fixture.drain()).toEqual([]);
});

test("while evaluation is off, scans and timers evaluate nothing and requests are a conflict; once on, everything is evaluated", async () => {
  await fixture.scan(vault("kv"), [secret("a", {})]);
  fixture.settings.enableComplianceScanning = false;
  await fixture.scan(vault("kv"), [secret("a", { expiresOn: undefined })]);
  await fixture.scan(vault("kv-2"), [asset("kv-2", "secret", "b", { contentType: undefined })]);
  await fixture.compliance.runDue();
  await fixture.drain();
  expect(await sets()).toEqual([]);
  await expect(fixture.compliance.evaluate(caller)).rejects.toMatchObject({ code: "conflict" });
  fixture.settings.enableComplianceScanning = true;
  await fixture.compliance.runDue();
  await fixture.drain();
  expect(await sets()).toEqual(["a: secret-expiry-set-rbac", "b: secret-content-type"]);
});

test("turning evaluation on in the settings evaluates everything too", async () => {
  fixture.settings.enableComplianceScanning = false;
  await fixture.scan(vault("kv"), [secret("a", { expiresOn: undefined })]);
  fixture.settings.enableComplianceScanning = true;
  await fixture.compliance.policyChanged(["enableComplianceScanning"]);
  await fixture.drain();
  expect(await sets()).toEqual(["a: secret-expiry-set-rbac"]);
});

test("a vault that is removed while evaluation is off is removed from the results too", async () => {
  await fixture.scan(vault("kv", { privateEndpoints: 0 }), []);
  fixture.settings.enableComplianceScanning = false;
  await fixture.leave("kv");
  expect(await fixture.compliance.score()).toMatchObject({ total: 0 });
});

test("the score of each day is stored, and today's is current", async () => {
  await fixture.scan(vault("kv"), [secret("a", { contentType: undefined })]);
  await fixture.compliance.recordScore();
  fixture.clock.at = START + 2 * DAY * 1000;
  await fixture.scan(vault("kv"), [secret("a", {})]);
  const { score, passed, failed, total, history } = await fixture.compliance.score(30);
  expect(history).toEqual([
    { date: "2026-11-21", score: expect.any(Number), passed: passed - 1, failed: 1, total, edition: EDITION },
    { date: "2026-11-23", score, passed, failed, total, edition: EDITION },
  ]);
  // The score of a framework without failures, because it requires none of the failing checks.
  const pci = await fixture.compliance.framework("pci-dss-4.0.1", 30);
  expect(pci.history?.map(({ date, failed }) => [date, failed])).toEqual([
    ["2026-11-21", 0],
    ["2026-11-23", 0],
  ]);
  expect((await fixture.compliance.score(2)).history).toHaveLength(1);
  expect((await fixture.compliance.score()).history).toBeUndefined();
});

test("days before scores of frameworks were stored have none, and no edition", async () => {
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

test("if the checks changed, everything is evaluated again, once", async () => {
  await fixture.scan(vault("kv"), [secret("a", { contentType: undefined })]);
  const row = (await fixture.tables.get(Lines, STATE, LINES_KEY))!;
  const { edition: _, ...before } = row;
  await fixture.tables.replace(Lines, before as typeof row);
  await fixture.compliance.runDue();
  expect((await fixture.drain()).map(({ kind }) => kind)).toEqual(["crossed", "vault"]);
  expect(await sets()).toEqual(["a: secret-content-type"]);
  await fixture.compliance.runDue();
  expect((await fixture.drain()).map(({ kind }) => kind)).toEqual(["crossed"]);
});

test("a violation that gets worse continues under another check, until the asset is renewed", async () => {
  const reported = async (days: number, checkId: string) => {
    await fixture.scan(vault("kv", { softDelete: false, purgeProtection: false }), [
      secret("a", { expiresOn: inDays(days) }),
    ]);
    const violation = { checkId, resourceId: "kv.secret.a", resourceType: "secret", vaultName: "kv" };
    const retired = { ...violation, checkId: "vault-recoverable", resourceId: "kv", resourceType: "vault" };
    const reading = await fixture.compliance.readViolations();
    return [
      ...(await reading.standing([violation, retired].map((one) => ({ ...one, id: one.checkId })))).keys(),
    ].sort();
  };
  const [warning, critical] = ["secret-near-expiry-warning", "secret-near-expiry-critical"];
  expect(await reported(20, warning)).toEqual([warning, "vault-recoverable"]);
  expect(await reported(3, warning)).toEqual([warning, "vault-recoverable"]);
  expect(await reported(-1, warning)).toEqual([warning, "vault-recoverable"]);
  expect(await reported(-1, critical)).toEqual([critical, "vault-recoverable"]);
  expect(await reported(90, critical)).toEqual(["vault-recoverable"]);
  // The worse violation ends once its asset only expires soon.
  expect(await reported(20, critical)).toEqual(["vault-recoverable"]);
});
