import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { RULES, Rules, ruleKey } from "../../shared/alerts/rule.ts";
import { RuleStates, STATES } from "../../shared/alerts/rule-state.ts";
import { TrackedRows } from "../../shared/alerts/tracked-alerts.ts";
import {
  DONE,
  emptyTally,
  SCAN_LIST,
  type ScanRecord,
  Scans,
  scanPartition,
  type VaultOutcome,
  VaultOutcomes,
} from "../../shared/discovery/scan.ts";
import { SCOPE_KEY, ScopeRows } from "../../shared/inventory/scope.ts";
import { VAULTS } from "../../shared/inventory/vault.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { newestFirst } from "../../shared/platform/ulid.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { asset, openFixture as openCompliance, vault } from "../compliance/compliance-fixture.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { assetNamesIn, caller, DAY_MS, type Fixture, openFixture, START, SUBSCRIPTION } from "./alerts-setup.ts";

/**
 * Tests of alerts that stay open after their notification: their resolution, their reminders, their acknowledgment and their
 * escalation. A tracked alert is the row of an open alert of a rule. An escalation is the message to other recipients about an
 * alert that nobody acknowledged in time.
 */

let azurite: TestStorage;
let cloud: Cloud;
/** Storage accounts: each test takes the next unused one. */
const ACCOUNTS = Array.from({ length: 34 }, (_, index) => `follow${String(index).padStart(2, "0")}`);
let usedAccounts = 0;
let fixture: Fixture;

/** Creates a fixture on the storage account of the current test. */
const open = (options: Partial<Parameters<typeof openFixture>[0]> = {}) =>
  openFixture({ connectionString: azurite.connectionString(ACCOUNTS[usedAccounts]!), cloud, ...options });

beforeAll(async () => {
  azurite = await openStorage(ACCOUNTS);
  ({ cloud } = await startTestCloud({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await cloud.stop();
  await azurite.stop();
});
beforeEach(() => {
  usedAccounts++;
  fixture = open();
});

const dayAfterStart = (days: number) => new Date(Date.parse(START) + days * DAY_MS);
const FIRST_PAGE = { limit: 100, offset: 0, cursor: undefined };

/** Evaluates the rules and sends the deliveries, at a number of days after START. */
async function run(days: number) {
  fixture.clock.set(dayAfterStart(days));
  const alerts = fixture.instance();
  await alerts.evaluate();
  await fixture.handleVisibleMessages(alerts);
}

/** Returns the items of each different webhook message, as `<state> <id>`. A new alert has no state. */
function notified(received: readonly { headers: Record<string, unknown>; body: string }[]): string[][] {
  const events = new Map(received.map(({ headers, body }) => [headers["webhook-id"], JSON.parse(body).data.items]));
  return [...events.values()].map((items) =>
    items.map((item: { id: string; state?: string }) => `${item.state ?? "new"} ${item.id}`),
  );
}

/** Returns a secret to write to the inventory. */
const secret = (name: string, expiresInDays?: number, enabled = true) => ({
  name,
  enabled,
  ...(expiresInDays === undefined ? {} : { expiresInDays }),
});

describe("the resolution of an alert about an asset", () => {
  test("is sent once after a renewal, a deletion or a deactivation, only for assets with an earlier notification", async () => {
    const { rule, received } = await fixture.webhookRule();
    await fixture.writeAssets("kv-a", [secret("gone", 5), secret("off", 6), secret("one", 7), secret("far", 200)]);
    await run(0);
    await fixture.writeAssets("kv-a", [secret("off", 6, false), secret("one", 400), secret("far", 300)]);
    await run(0.1);
    await run(0.2);
    expect(notified(received())).toEqual([
      ["new kv-a.secret.gone", "new kv-a.secret.off", "new kv-a.secret.one"],
      ["recovered kv-a.secret.gone", "recovered kv-a.secret.off", "renewed kv-a.secret.one"],
    ]);
    // The type is that of the alert. Receivers read from the data that nothing is left to do.
    const events = received().map(({ body }) => JSON.parse(body));
    expect(events.map(({ type, data }) => [type, data.resolved])).toEqual([
      ["lifecycle.alert.expiration", false],
      ["lifecycle.alert.expiration", true],
    ]);
    expect(events[1].data.items).toMatchObject([
      { reason: "removed", since: START },
      { reason: "disabled" },
      { renewedUntil: dayAfterStart(400).toISOString(), since: START, expiresOn: dayAfterStart(7).toISOString() },
    ]);
    expect((await fixture.instance().acknowledgements.listOpen(rule.ruleId, {}, FIRST_PAGE)).total).toBe(0);
  });

  test("describes the latest alert if a new expiry within a threshold opened another one", async () => {
    const { received } = await fixture.webhookRule();
    await fixture.writeAssets("kv-a", [secret("one", 5)]);
    await run(0);
    await fixture.writeAssets("kv-a", [secret("one", 20)]);
    await run(0.1);
    await fixture.writeAssets("kv-a", [secret("one")]);
    await run(0.2);
    expect(notified(received())).toEqual([
      ["new kv-a.secret.one"],
      ["new kv-a.secret.one"],
      ["renewed kv-a.secret.one"],
    ]);
    expect(JSON.parse(received().at(-1)!.body).data.items).toMatchObject([
      { renewedUntil: null, expiresOn: dayAfterStart(20).toISOString(), since: dayAfterStart(0.1).toISOString() },
    ]);
  });

  test("is sent for an asset that is no longer monitored, and the alert is not escalated", async () => {
    const { rule, received } = await fixture.webhookRule();
    await fixture.writeAssets("kv-a", [secret("one", 5)]);
    await run(0);
    // The stored scope of monitoring: only named subscriptions, and none is named.
    const emptyScope = {
      watchAll: false,
      named: [],
      namedOnlySince: dayAfterStart(0.05).toISOString(),
      left: {},
      names: {},
      discovered: {},
      unseenSince: {},
    };
    await fixture.tables.put(ScopeRows, VAULTS, SCOPE_KEY, emptyScope);
    const escalation = { afterDays: 1, recipients: ["boss@acme.example"] };
    await fixture.instance().rules.change(rule.ruleId, { escalation }, caller, undefined);
    await run(0.1);
    await run(4);
    expect(notified(received())).toEqual([["new kv-a.secret.one"], ["recovered kv-a.secret.one"]]);
    expect(JSON.parse(received()[1]!.body).data.items).toMatchObject([{ reason: "outOfScope" }]);
    expect((await fixture.instance().history.list({ ruleId: rule.ruleId }, FIRST_PAGE)).total).toBe(2);
  });

  test("is not sent by a rule that sends none, but closes the alert", async () => {
    const { rule, received } = await fixture.webhookRule({ tellRecovery: false });
    await fixture.writeAssets("kv-a", [secret("one", 5)]);
    await run(0);
    await fixture.writeAssets("kv-a", [secret("one", 100)]);
    await run(0.1);
    expect(notified(received())).toEqual([["new kv-a.secret.one"]]);
    expect((await fixture.instance().acknowledgements.listOpen(rule.ruleId, {}, FIRST_PAGE)).total).toBe(0);
  });

  test("is sent once even if a late write restores the alert's row", async () => {
    const { rule, received } = await fixture.webhookRule();
    await fixture.writeAssets("kv-a", [secret("one", 5)]);
    await run(0);
    // An open alert (`o`) about an asset (`a`).
    const key = "o!a!kv-a!secret!one";
    const openAlertRow = (await fixture.tables.get(TrackedRows, rule.ruleId, key))!;
    await fixture.writeAssets("kv-a", [secret("one", 100)]);
    await run(0.1);
    await fixture.tables.put(TrackedRows, rule.ruleId, key, withoutKeys(openAlertRow));
    await fixture.writeAssets("kv-a", [secret("one", 101)]);
    await run(0.2);
    expect(notified(received())).toEqual([["new kv-a.secret.one"], ["renewed kv-a.secret.one"]]);
    expect(await fixture.tables.get(TrackedRows, rule.ruleId, key)).toBeUndefined();
  });

  test("is not sent for an alert of an earlier version, which causes no second notification either", async () => {
    const { rule, received } = await fixture.webhookRule();
    await fixture.writeAssets("kv-a", [secret("one", 5), secret("two", 6)]);
    await run(0);
    // Restores what an earlier version wrote: no rows of tracked alerts, and no member `followed` in the rule's state.
    for await (const rows of fixture.tables.pages(TrackedRows, { partitionKey: rule.ruleId, from: "o!", before: "o~" }))
      for (const { rowKey } of rows) await fixture.tables.remove(TrackedRows, rule.ruleId, rowKey);
    const state = (await fixture.tables.get(RuleStates, STATES, rule.ruleId))!;
    await fixture.tables.replace(RuleStates, { ...state, followed: undefined });
    await fixture.writeAssets("kv-a", [secret("one", 100), secret("two", 6)]);
    await run(0.1);
    expect(notified(received())).toHaveLength(1);
  });

  test("is sent exactly once, at whichever step the process crashes", async () => {
    const expiringAssets = [secret("a", 5), secret("b", 6)];
    let repeatedPosts = 0;
    /** Sends two alerts and their resolutions. The process crashes at the selected step. Returns the different items. */
    const runWithCrash = async (steps: Steps): Promise<string[]> => {
      fixture.messages.length = 0;
      for (const { ruleId } of await fixture.instance().rules.all())
        await fixture.instance().rules.remove(ruleId, caller, undefined);
      fixture.clock.set(dayAfterStart(0));
      await fixture.writeAssets("kv-a", expiringAssets);
      const { received } = await fixture.webhookRule({ thresholds: [7] });
      await run(0);
      await fixture.writeAssets("kv-a", [secret("a", 300)]);
      fixture.clock.set(dayAfterStart(0.5));
      let alerts = fixture.instance(steps);
      // After a crash in the first evaluation, the second one is that of the next process.
      for (const work of [() => alerts.evaluate(), () => alerts.evaluate(), () => fixture.handleAllMessages(alerts)]) {
        await work().catch(async (error: unknown) => {
          if (!steps.dead) throw error;
          steps.dead = false;
          steps.crashAt = -1;
          fixture.clock.add(15 * MINUTE_MS);
          alerts = fixture.instance();
          await alerts.evaluate();
        });
      }
      await fixture.handleAllMessages(alerts);
      const events = notified(received());
      repeatedPosts += received().length - events.length;
      return events.flat().sort();
    };
    const allSteps: Steps = { taken: 0 };
    const expected = ["new kv-a.secret.a", "new kv-a.secret.b", "recovered kv-a.secret.b", "renewed kv-a.secret.a"];
    expect(await runWithCrash(allSteps)).toEqual(expected);
    expect(allSteps.taken).toBeGreaterThan(8);
    for (let crashAt = IS_CAMPAIGN ? 1 : 1 + (SEED % 2); crashAt <= allSteps.taken; crashAt += IS_CAMPAIGN ? 1 : 2) {
      for (const when of IS_CAMPAIGN ? (["before", "after"] as const) : (["after"] as const)) {
        const crashPoint = `crash ${when} step ${crashAt}`;
        const items = await runWithCrash({ taken: 0, crashAt, when });
        expect({ crashPoint, items }).toEqual({ crashPoint, items: expected });
      }
    }
    // A crash after a post, before its result is recorded, repeats the post with the same id, by which `notified` ignores it.
    for (let crashAt = allSteps.taken; repeatedPosts === 0 && crashAt > 0; crashAt--)
      expect(await runWithCrash({ taken: 0, crashAt, when: "before" })).toEqual(expected);
    expect(repeatedPosts).toBeGreaterThan(0);
  });
});

describe("violations", () => {
  test("that exist are sent in the first message of a new rule, then each new and each resolved one", async () => {
    const compliance = openCompliance(azurite.connectionString(ACCOUNTS[usedAccounts]!));
    fixture = open({ violations: compliance.compliance });
    const setComplianceClock = (days: number) => {
      compliance.clock.nowMs = dayAfterStart(days).getTime();
    };
    setComplianceClock(-3);
    const failing = (name: string) => asset("kv", "secret", name, { expiresOn: undefined, tags: { owner: "ann" } });
    const passing = (name: string) => asset("kv", "secret", name);
    await compliance.scan(vault("kv", { purgeProtection: false }), [
      ...["off", "old", "other"].map(failing),
      passing("fine"),
    ]);
    const initialIds = (await compliance.compliance.violations({}, FIRST_PAGE)).items.map(({ id }) => id);
    expect(initialIds.length).toBeGreaterThan(2);
    const { received } = await fixture.webhookRule({ alertType: "complianceViolation", thresholds: undefined });
    const ann = await fixture.webhookRule({
      alertType: "complianceViolation",
      thresholds: undefined,
      filters: { owner: "ann", severity: "low" },
    });
    setComplianceClock(0);
    await run(0);
    expect(notified(received())).toEqual([initialIds.map((id) => `new ${id}`)]);
    const ofAssets = initialIds.filter((id) => id.includes(".secret."));
    expect(notified(ann.received()).flat()).toEqual(ofAssets.map((id) => `new ${id}`));
    await run(0.1);
    expect(received()).toHaveLength(1);

    setComplianceClock(0.2);
    await compliance.scan(vault("kv", { purgeProtection: false }), [
      asset("kv", "secret", "off", { enabled: false, expiresOn: undefined, tags: { owner: "ann" } }),
      passing("old"),
      failing("fine"),
    ]);
    await run(0.2);
    await run(0.3);
    const later = notified(received()).slice(1).flat().sort();
    const currentIds = (await compliance.compliance.violations({}, FIRST_PAGE)).items.map(({ id }) => id);
    expect(later).toEqual(
      [
        ...currentIds.filter((id) => !initialIds.includes(id)).map((id) => `new ${id}`),
        ...initialIds.filter((id) => !currentIds.includes(id)).map((id) => `recovered ${id}`),
      ].sort(),
    );
    const items = JSON.parse(received().at(-1)!.body).data.items as { resourceId: string; reason?: string }[];
    expect(
      Object.fromEntries(items.flatMap(({ resourceId, reason }) => (reason ? [[resourceId, reason]] : []))),
    ).toEqual({
      "kv.secret.off": "disabled",
      "kv.secret.old": "mended",
      "kv.secret.other": "removed",
    });
  });
});

describe("scan failures", () => {
  const { ulid } = systemRandomness();
  const denied = {
    code: "accessDenied",
    message: "The service may not list it.",
    remedy: "Grant Reader.",
    at: START,
  };

  /** Writes the rows of a finished scan: its record, and the result of each given vault. */
  async function writeScan(
    days: number,
    change: Partial<ScanRecord> & { vaults?: Record<string, VaultOutcome["failures"] | "removed"> } = {},
  ) {
    const { vaults = {}, ...recordChange } = change;
    const scanId = ulid(dayAfterStart(days));
    const outcomes = Object.entries(vaults);
    for (const [index, [vaultName, failures]] of outcomes.entries()) {
      const isRemoved = failures === "removed";
      await fixture.tables.put(VaultOutcomes, scanPartition(scanId), `${DONE}${index}`, {
        vaultName,
        subscriptionId: SUBSCRIPTION,
        outcome: isRemoved ? "removed" : failures.length > 0 ? "failed" : "succeeded",
        failures: isRemoved ? [] : failures,
        tally: emptyTally(),
        added: [],
        updated: [],
        removed: [],
        finishedAt: dayAfterStart(days).toISOString(),
      });
    }
    await fixture.tables.put(Scans, SCAN_LIST, newestFirst(scanId), {
      scanId,
      mode: "full",
      status: "partial",
      trigger: "schedule",
      requestedBy: "system",
      requestId: "r",
      createdAt: dayAfterStart(days).toISOString(),
      finishedAt: dayAfterStart(days).toISOString(),
      vaultsTotal: outcomes.length,
      subscriptionOutcomes: [{ subscriptionId: SUBSCRIPTION, vaults: outcomes.length }],
      ...recordChange,
    });
  }
  const firewall = [{ ...denied, code: "firewall", message: "Its firewall refuses.", list: "secrets" }];
  const scanRule = () => fixture.webhookRule({ alertType: "scanFailure", thresholds: undefined });
  const subscription = `subscription:${SUBSCRIPTION}`;

  test("a failure is sent when it starts, once a week while it lasts, and when it is resolved", async () => {
    await writeScan(-0.5, { vaults: { "kv-a": firewall, "kv-b": [] } });
    const { received } = await scanRule();
    await run(0);
    expect(JSON.parse(received()[0]!.body).data.items).toEqual([
      expect.objectContaining({
        id: "vault:kv-a",
        vaultName: "kv-a",
        subscriptionId: SUBSCRIPTION,
        list: "secrets",
        code: "firewall",
        message: "Its firewall refuses.",
        remedy: "Grant Reader.",
      }),
    ]);
    // A scan every half day finds the failure again.
    for (let day = 0.5; day < 15; day += 0.5) {
      await writeScan(day, { vaults: { "kv-a": firewall, "kv-b": [] } });
      await run(day + 0.01);
    }
    const reminder = ["stillFailing vault:kv-a"];
    expect(notified(received())).toEqual([["new vault:kv-a"], reminder, reminder]);
    await writeScan(15, { status: "completed", vaults: { "kv-a": [], "kv-b": [] } });
    await run(15.01);
    await run(30);
    expect(notified(received()).slice(3)).toEqual([["recovered vault:kv-a"]]);
  });

  test("a denied subscription and a scan that timed out are failures", async () => {
    const { received } = await scanRule();
    await run(0);
    await writeScan(0.1, {
      status: "failed",
      subscriptionOutcomes: [{ subscriptionId: SUBSCRIPTION, vaults: 0, failure: denied }],
    });
    await run(0.11);
    expect(JSON.parse(received()[0]!.body).data.items).toMatchObject([
      {
        id: subscription,
        subscriptionId: SUBSCRIPTION,
        code: "accessDenied",
        message: denied.message,
        remedy: denied.remedy,
      },
    ]);
    await writeScan(0.2, { status: "timedOut", vaultsDone: 3, vaultsTotal: 9, subscriptionOutcomes: [] });
    await run(0.21);
    expect(notified(received()).slice(1)).toEqual([["new scan"]]);
    expect(received()[1]!.body).toContain("3 of 9 vaults");
    await writeScan(0.3, { status: "completed" });
    await run(0.31);
    expect(notified(received())[2]!.sort()).toEqual(["recovered scan", `recovered ${subscription}`]);
  });

  test("a delta scan resolves no failure of a list that it does not read", async () => {
    // Only full scans read diagnostic settings.
    const settings = [{ ...denied, list: "diagnosticSettings" }];
    await writeScan(-0.1, { vaults: { "kv-a": settings, "kv-b": firewall } });
    const { received } = await scanRule();
    await run(0);
    await writeScan(0.1, { mode: "delta", status: "completed", vaults: { "kv-a": [], "kv-b": "removed" } });
    await run(0.11);
    expect(notified(received())).toEqual([["new vault:kv-a", "new vault:kv-b"], ["recovered vault:kv-b"]]);
    await writeScan(0.2, { status: "completed", subscriptionOutcomes: [] });
    await run(0.21);
    expect(JSON.parse(received()[2]!.body).data.items).toMatchObject([{ id: "vault:kv-a", reason: "outOfScope" }]);
  });

  test("a rule of an earlier version sends a failure that already existed only as a reminder after a week", async () => {
    const { rule, received } = await scanRule();
    await run(0);
    const state = (await fixture.tables.get(RuleStates, STATES, rule.ruleId))!;
    await fixture.tables.replace(RuleStates, { ...state, scansSeen: undefined });
    await writeScan(0.1, { vaults: { "kv-a": firewall } });
    await run(0.2);
    await run(7);
    expect(received()).toHaveLength(0);
    // More than a week after the evaluation on day 0.2, which found the failure.
    await run(7.3);
    expect(notified(received())).toEqual([["stillFailing vault:kv-a"]]);
  });
});

describe("escalation and acknowledgment", () => {
  const boss = "boss@acme.example";
  const bossMails = () => cloud.control.mails().filter(({ to }) => to.includes(boss));

  test("an unacknowledged alert of a webhook rule is escalated once by mail", async () => {
    cloud.control.clearMails();
    const { rule, received } = await fixture.webhookRule({ escalation: { afterDays: 3, recipients: [boss] } });
    await fixture.writeAssets("kv-a", [secret("renewed", 6), secret("acknowledged", 5), secret("unnoticed", 4.5)]);
    await run(0);
    const { acknowledgements } = fixture.instance();
    const request = { ruleId: rule.ruleId, itemId: "kv-a.secret.acknowledged", note: "A change is planned" };
    expect(await acknowledgements.create(request, caller)).toMatchObject([{ acknowledgedBy: "admin", since: START }]);
    await expect(acknowledgements.create(request, caller)).rejects.toMatchObject({ code: "alreadyExists" });
    await fixture.writeAssets("kv-a", [secret("renewed", 600), secret("acknowledged", 5), secret("unnoticed", 4.5)]);
    await run(1);
    await run(2.9);
    expect(bossMails()).toHaveLength(0);
    await run(3.1);
    await run(3.2);
    await run(30);
    expect(bossMails()).toHaveLength(1);
    expect(bossMails()[0]!.plainText).toContain("kv-a/unnoticed");
    expect(bossMails()[0]!.plainText).not.toMatch(/kv-a\/(acknowledged|renewed)/);
    const { items } = await fixture.instance().history.list({ ruleId: rule.ruleId }, FIRST_PAGE);
    expect(items.find(({ escalatedFrom }) => escalatedFrom)).toMatchObject({
      escalatedFrom: rule.ruleId,
      deliveryMethod: "email",
      status: "delivered",
    });
    // Lower thresholds cause notifications although the alert is acknowledged.
    expect(notified(received()).flat()).toContain("new kv-a.secret.acknowledged");
    const types = fixture.events.map(({ type, outcome }) => `${type} ${outcome}`);
    expect(types).toEqual(expect.arrayContaining(["alert.acknowledged intent", "alert.acknowledged success"]));
  });

  test("all alerts of a message can be acknowledged together, and the next alert of an asset is unacknowledged", async () => {
    const { rule } = await fixture.webhookRule({ escalation: { afterDays: 1, recipients: [boss] } });
    cloud.control.clearMails();
    await fixture.writeAssets("kv-a", [secret("one", 6), secret("two", 5)]);
    await run(0);
    const { history, acknowledgements, cleanUp } = fixture.instance();
    const { items } = await history.list({ ruleId: rule.ruleId }, FIRST_PAGE);
    const created = await acknowledgements.create({ ruleId: rule.ruleId, historyId: items[0]!.deliveryId }, caller);
    expect(created.map(({ itemId }) => itemId).sort()).toEqual(["kv-a.secret.one", "kv-a.secret.two"]);
    // The earliest expiry is first.
    expect((await acknowledgements.listOpen(rule.ruleId, { acknowledged: true }, FIRST_PAGE)).items).toMatchObject([
      { item: { id: "kv-a.secret.two" } },
      { item: { id: "kv-a.secret.one" } },
    ]);
    await run(2);
    expect(bossMails()).toHaveLength(0);
    // The new expiry of the first asset is still within a threshold. That opens another alert.
    await fixture.writeAssets("kv-a", [secret("one", 25), secret("two", 400)]);
    await run(2.1);
    expect((await acknowledgements.listOpen(rule.ruleId, {}, FIRST_PAGE)).items).toMatchObject([
      { item: { id: "kv-a.secret.one" }, acknowledgement: undefined },
    ]);
    await run(3.2);
    expect(bossMails()).toHaveLength(1);
    await acknowledgements.create({ ruleId: rule.ruleId, itemId: "kv-a.secret.one" }, caller);
    expect((await acknowledgements.list({}, FIRST_PAGE)).items.map(({ itemId }) => itemId)).toEqual([
      "kv-a.secret.one",
    ]);
    await acknowledgements.remove(`${rule.ruleId}.kv-a.secret.one`, caller);
    await cleanUp(caller);
    expect((await acknowledgements.list({}, FIRST_PAGE)).total).toBe(0);
    await expect(
      acknowledgements.create({ ruleId: rule.ruleId, itemId: "kv-a.secret.two" }, caller),
    ).rejects.toMatchObject({ code: "notFound" });
  });

  test("a snoozed alert is escalated through another rule's webhook only after the snooze ends", async () => {
    const escalationRule = await fixture.webhookRule({ alertType: "breakGlass", thresholds: undefined });
    const { rule } = await fixture.webhookRule({ escalation: { afterDays: 1, ruleId: escalationRule.rule.ruleId } });
    await fixture.writeAssets("kv-a", [secret("one", 5), secret("quiet", 6)]);
    await run(0);
    const filters = { vault: "kv-b" };
    const until = dayAfterStart(20);
    await fixture.instance().snoozes.create({ filters, reason: "Another vault", until }, caller);
    const assetId = "kv-a.secret.quiet";
    await fixture
      .instance()
      .snoozes.create({ ruleId: rule.ruleId, assetId, reason: "Quiet", until: dayAfterStart(3) }, caller);
    await run(1.1);
    expect(notified(escalationRule.received())).toEqual([["escalated kv-a.secret.one"]]);
    expect(JSON.parse(escalationRule.received()[0]!.body)).toMatchObject({ type: "lifecycle.alert.expiration" });
    await run(3.2);
    expect(notified(escalationRule.received())[1]).toEqual(["escalated kv-a.secret.quiet"]);
    const unknownRule = { escalation: { afterDays: 1, ruleId: "0".repeat(26) } };
    await expect(fixture.webhookRule(unknownRule)).rejects.toMatchObject({
      errors: [{ path: "body.escalation.ruleId" }],
    });
  });

  test("the days of an escalation count from the first notification, not from that of a lower threshold", async () => {
    cloud.control.clearMails();
    await fixture.webhookRule({ thresholds: [30, 7], escalation: { afterDays: 15, recipients: [boss] } });
    await fixture.writeAssets("kv-a", [secret("one", 20)]);
    // The threshold 7 is reached on day 13.
    for (const day of [0, 13.5, 14.9]) await run(day);
    expect(bossMails()).toHaveLength(0);
    await run(15.1);
    expect(bossMails()).toHaveLength(1);
  });

  test("an escalation that is added to a rule also applies to its open alerts", async () => {
    cloud.control.clearMails();
    const { rule } = await fixture.webhookRule();
    await fixture.writeAssets("kv-a", [secret("one", 20)]);
    await run(0);
    await fixture.writeAssets("kv-a", [secret("one", 20), secret("young", 25)]);
    await run(4);
    const escalation = { afterDays: 2, recipients: [boss] };
    await fixture.instance().rules.change(rule.ruleId, { escalation }, caller, undefined);
    const escalated = () => bossMails().map(({ plainText }) => assetNamesIn(plainText!));
    for (const days of [4.1, 5.9]) {
      await run(days);
      expect(escalated()).toEqual([["kv-a/one"]]);
    }
    await run(6.1);
    expect(escalated()).toEqual([["kv-a/one"], ["kv-a/young"]]);
    await fixture.instance().rules.change(rule.ruleId, { escalation: null }, caller, undefined);
    expect((await fixture.tables.get(Rules, RULES, ruleKey(rule.ruleId)))!.escalation).toBeUndefined();
  });
});

describe("snoozes with filters", () => {
  test("apply to assets that are added later, whose notifications are sent when the snooze ends", async () => {
    const { rule, received } = await fixture.webhookRule();
    const ruleWithoutSnooze = await fixture.webhookRule();
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 31, tags: { env: "test" } }]);
    await run(0);
    const { snoozes } = fixture.instance();
    const filters = { vault: "KV-A", tag: "env=test" };
    const request = { ruleId: rule.ruleId, filters, reason: "Maintenance", until: dayAfterStart(35) };
    const snooze = await snoozes.create(request, caller);
    expect(snooze).toMatchObject({ filters, ruleId: rule.ruleId });
    await fixture.writeAssets("kv-a", [
      { name: "later", expiresInDays: 33, tags: { env: "test" } },
      { name: "unsnoozed", expiresInDays: 20, tags: { env: "prod" } },
      { name: "one", expiresInDays: 31, tags: { env: "test" } },
    ]);
    await run(5);
    await run(34.9);
    expect(
      notified(received())
        .flat()
        .filter((item) => !item.endsWith("unsnoozed")),
    ).toEqual([]);
    expect(notified(ruleWithoutSnooze.received()).flat()).toContain("new kv-a.secret.later");
    await run(35.1);
    await run(36);
    // Both assets have expired during the snooze. They are reported nevertheless.
    expect(notified(received()).at(-1)).toEqual(["new kv-a.secret.one", "new kv-a.secret.later"]);
    expect((await snoozes.list({}, FIRST_PAGE)).total).toBe(0);
    expect((await snoozes.list({ ended: true }, FIRST_PAGE)).items).toMatchObject([{ snoozeId: snooze.snoozeId }]);
  });

  test("for all rules can be ended by their id", async () => {
    const { received } = await fixture.webhookRule();
    const { snoozes } = fixture.instance();
    const snooze = await snoozes.create(
      { filters: { type: "secret" }, reason: "All", until: dayAfterStart(10) },
      caller,
    );
    await fixture.writeAssets("kv-a", [secret("one", 5)]);
    await run(0.1);
    expect(received()).toHaveLength(0);
    await snoozes.end(snooze.snoozeId!, caller);
    await run(0.2);
    expect(notified(received())).toEqual([["new kv-a.secret.one"]]);
    const assetAndFilters = {
      assetId: "kv-a.secret.one",
      filters: { type: "secret" as const },
      reason: "x",
      until: dayAfterStart(5),
    };
    await expect(snoozes.create(assetAndFilters, caller)).rejects.toMatchObject({ errors: [{ path: "body.assetId" }] });
  });
});

describe("a preview", () => {
  test("names the next certificate to reach a threshold also if its renewal is late before that", async () => {
    const certificate = (name: string, expiresInDays: number, windowEndsInDays: number) => ({
      name,
      type: "certificate" as const,
      expiresInDays,
      windowEndsInDays,
    });
    // Both reach seven days after their renewal is late. The renewal of `on-time` is late only three days before its expiry.
    const assets = [certificate("late", 12, -1), certificate("later", 13, 2), certificate("on-time", 11, 8)];
    await fixture.writeAssets("kv-a", assets);
    const instance = fixture.instance();
    const body = { name: "Team", alertType: "expiration" as const, thresholds: [7], recipients: ["a@acme.example"] };
    const { next } = await instance.preview(await instance.rules.planned(body, caller));
    expect(next).toMatchObject({
      item: { id: "kv-a.certificate.late", threshold: 7 },
      at: dayAfterStart(5).toISOString(),
    });
    const { received } = await fixture.webhookRule({ thresholds: [7] });
    await run(4.9);
    await run(5.1);
    expect(notified(received())).toEqual([["new kv-a.certificate.late"]]);
  });

  test("returns the items that a rule would send and the next asset to reach a threshold, without writing", async () => {
    await fixture.writeAssets("kv-a", [secret("near", 5), secret("next", 9.5), secret("far", 40)]);
    const alerts = fixture.instance();
    const steps: Steps = { taken: 0 };
    const countingInstance = fixture.instance(steps);
    const body = { name: "Team", alertType: "expiration" as const, thresholds: [7], recipients: ["a@acme.example"] };
    const planned = await countingInstance.rules.planned(body, caller);
    const preview = await countingInstance.preview(planned);
    expect(steps.taken).toBe(0);
    // The timer evaluates the rules every 15 minutes.
    expect(preview).toMatchObject({ more: false, isFirst: true, evaluatedAt: dayAfterStart(0.25 / 24).toISOString() });
    expect(preview.items.map(({ id }) => id)).toEqual(["kv-a.secret.near"]);
    expect(preview.next).toMatchObject({
      item: { id: "kv-a.secret.next", threshold: 7 },
      at: dayAfterStart(2.5).toISOString(),
    });
    expect((await alerts.rules.all()).length).toBe(0);

    const { rule, received } = await fixture.webhookRule({ thresholds: [7] });
    await run(0);
    expect(notified(received())).toEqual([preview.items.map(({ id }) => `new ${id}`)]);
    expect(await countingInstance.preview(withoutKeys(rule))).toMatchObject({ items: [], isFirst: false });
    fixture.clock.set(dayAfterStart(2.6));
    const later = await countingInstance.preview(withoutKeys(rule));
    expect(later.items.map(({ id }) => id)).toEqual(["kv-a.secret.next"]);
    expect(steps.taken).toBe(0);
    await run(2.6);
    expect(notified(received()).at(-1)).toEqual(["new kv-a.secret.next"]);
    const digest = await countingInstance.preview({ ...planned, deliveryMode: "digest", digestFrequency: "weekly" });
    // START is a Saturday.
    expect(digest.evaluatedAt).toBe("2026-11-30T06:00:00.000Z");
    expect((await countingInstance.preview({ ...planned, enabled: false })).evaluatedAt).toBeUndefined();
  });
});
