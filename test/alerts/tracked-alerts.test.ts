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
import { newestFirst } from "../../shared/platform/ulid.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { asset, openFixture as openCompliance, vault } from "../compliance/compliance-fixture.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, DAY_MS, type Fixture, namedIn, openFixture, START, SUBSCRIPTION } from "./alerts-setup.ts";

let azurite: TestStorage;
let cloud: Cloud;
const ACCOUNTS = Array.from({ length: 34 }, (_, index) => `follow${String(index).padStart(2, "0")}`);
let next = 0;
let fixture: Fixture;

const open = (options: Partial<Parameters<typeof openFixture>[0]> = {}) =>
  openFixture({ connectionString: azurite.connectionString(ACCOUNTS[next]!), cloud, ...options });

beforeAll(async () => {
  azurite = await openStorage(ACCOUNTS);
  ({ cloud } = await liveIn({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await cloud.stop();
  await azurite.stop();
});
beforeEach(() => {
  next++;
  fixture = open();
});

const at = (days: number) => new Date(Date.parse(START) + days * DAY_MS);
const page = { limit: 100, offset: 0, cursor: undefined };

/** Evaluates the rules and sends the deliveries. */
async function run(days: number) {
  fixture.clock.set(at(days));
  const alerts = fixture.instance();
  await alerts.evaluate();
  await fixture.drain(alerts);
}

/** The items of the webhooks without duplicates, as `<state> <id>`. */
function notified(received: readonly { headers: Record<string, unknown>; body: string }[]): string[][] {
  const events = new Map(received.map(({ headers, body }) => [headers["webhook-id"], JSON.parse(body).data.items]));
  return [...events.values()].map((items) =>
    items.map((item: { id: string; state?: string }) => `${item.state ?? "begun"} ${item.id}`),
  );
}

const secret = (name: string, expiresInDays?: number, enabled = true) => ({
  name,
  enabled,
  ...(expiresInDays === undefined ? {} : { expiresInDays }),
});

describe("the resolution of an alert about an asset", () => {
  test("a renewal, a deletion and a deactivation are sent once each, only for assets with an earlier notification", async () => {
    const { rule, received } = await fixture.webhookRule();
    await fixture.scanned("kv-a", [secret("gone", 5), secret("off", 6), secret("one", 7), secret("far", 200)]);
    await run(0);
    await fixture.scanned("kv-a", [secret("off", 6, false), secret("one", 400), secret("far", 300)]);
    await run(0.1);
    await run(0.2);
    expect(notified(received())).toEqual([
      ["begun kv-a.secret.gone", "begun kv-a.secret.off", "begun kv-a.secret.one"],
      ["recovered kv-a.secret.gone", "recovered kv-a.secret.off", "renewed kv-a.secret.one"],
    ]);
    const [, ended] = received().map(({ body }) => JSON.parse(body).data.items);
    expect(ended).toMatchObject([
      { reason: "removed", since: START },
      { reason: "disabled" },
      { renewedUntil: at(400).toISOString(), since: START, expiresOn: at(7).toISOString() },
    ]);
    expect((await fixture.instance().acknowledgements.open(rule.ruleId, {}, page)).total).toBe(0);
  });

  test("a new expiry within a threshold opens another alert, and the resolution is of that alert", async () => {
    const { received } = await fixture.webhookRule();
    await fixture.scanned("kv-a", [secret("one", 5)]);
    await run(0);
    await fixture.scanned("kv-a", [secret("one", 20)]);
    await run(0.1);
    await fixture.scanned("kv-a", [secret("one")]);
    await run(0.2);
    expect(notified(received())).toEqual([
      ["begun kv-a.secret.one"],
      ["begun kv-a.secret.one"],
      ["renewed kv-a.secret.one"],
    ]);
    expect(JSON.parse(received().at(-1)!.body).data.items).toMatchObject([
      { renewedUntil: null, expiresOn: at(20).toISOString(), since: at(0.1).toISOString() },
    ]);
  });

  test("an alert about an asset out of scope is resolved and not escalated", async () => {
    const { rule, received } = await fixture.webhookRule();
    await fixture.scanned("kv-a", [secret("one", 5)]);
    await run(0);
    const names = { names: {}, discovered: {}, unseenSince: {} };
    const left = { watchAll: false, named: [], namedOnlySince: at(0.05).toISOString(), left: {}, ...names };
    await fixture.tables.put(ScopeRows, VAULTS, SCOPE_KEY, left);
    const escalation = { afterDays: 1, recipients: ["boss@acme.example"] };
    await fixture.instance().rules.change(rule.ruleId, { escalation }, caller, undefined);
    await run(0.1);
    await run(4);
    expect(notified(received())).toEqual([["begun kv-a.secret.one"], ["recovered kv-a.secret.one"]]);
    expect(JSON.parse(received()[1]!.body).data.items).toMatchObject([{ reason: "outOfScope" }]);
    expect((await fixture.instance().history.list({ ruleId: rule.ruleId }, page)).total).toBe(2);
  });

  test("a rule without resolution notifications closes the alert silently", async () => {
    const { rule, received } = await fixture.webhookRule({ tellRecovery: false });
    await fixture.scanned("kv-a", [secret("one", 5)]);
    await run(0);
    await fixture.scanned("kv-a", [secret("one", 100)]);
    await run(0.1);
    expect(notified(received())).toEqual([["begun kv-a.secret.one"]]);
    expect((await fixture.instance().acknowledgements.open(rule.ruleId, {}, page)).total).toBe(0);
  });

  test("a resolution is sent once, even if a late write restores the alert's row", async () => {
    const { rule, received } = await fixture.webhookRule();
    await fixture.scanned("kv-a", [secret("one", 5)]);
    await run(0);
    const key = "o!a!kv-a!secret!one";
    const late = (await fixture.tables.get(TrackedRows, rule.ruleId, key))!;
    await fixture.scanned("kv-a", [secret("one", 100)]);
    await run(0.1);
    await fixture.tables.put(TrackedRows, rule.ruleId, key, withoutKeys(late));
    await fixture.scanned("kv-a", [secret("one", 101)]);
    await run(0.2);
    expect(notified(received())).toEqual([["begun kv-a.secret.one"], ["renewed kv-a.secret.one"]]);
    expect(await fixture.tables.get(TrackedRows, rule.ruleId, key)).toBeUndefined();
  });

  test("an alert of an earlier version causes no resolution and no second notification", async () => {
    const { rule, received } = await fixture.webhookRule();
    await fixture.scanned("kv-a", [secret("one", 5), secret("two", 6)]);
    await run(0);
    // As an earlier version wrote it: no row of the tracked alert, and no member in the state.
    for await (const rows of fixture.tables.pages(TrackedRows, { partitionKey: rule.ruleId, from: "o!", before: "o~" }))
      for (const { rowKey } of rows) await fixture.tables.remove(TrackedRows, rule.ruleId, rowKey);
    const state = (await fixture.tables.get(RuleStates, STATES, rule.ruleId))!;
    await fixture.tables.replace(RuleStates, { ...state, followed: undefined });
    await fixture.scanned("kv-a", [secret("one", 100), secret("two", 6)]);
    await run(0.1);
    expect(notified(received())).toHaveLength(1);
  });

  test("each resolution is sent exactly once, at whichever step the process crashes", async () => {
    const begin = [secret("a", 5), secret("b", 6)];
    let repeats = 0;
    const live = async (steps: Steps): Promise<string[]> => {
      fixture.messages.length = 0;
      for (const { ruleId } of await fixture.instance().rules.all())
        await fixture.instance().rules.remove(ruleId, caller, undefined);
      fixture.clock.set(at(0));
      await fixture.scanned("kv-a", begin);
      const { received } = await fixture.webhookRule({ thresholds: [7] });
      await run(0);
      await fixture.scanned("kv-a", [secret("a", 300)]);
      fixture.clock.set(at(0.5));
      let alerts = fixture.instance(steps);
      for (const work of [() => alerts.evaluate(), () => alerts.evaluate(), () => fixture.drainAll(alerts)]) {
        await work().catch(async (error: unknown) => {
          if (!steps.dead) throw error;
          steps.dead = false;
          steps.crashAt = -1;
          fixture.clock.add(15 * 60_000);
          alerts = fixture.instance();
          await alerts.evaluate();
        });
      }
      await fixture.drainAll(alerts);
      const events = notified(received());
      repeats += received().length - events.length;
      return events.flat().sort();
    };
    const whole: Steps = { taken: 0 };
    const expected = ["begun kv-a.secret.a", "begun kv-a.secret.b", "recovered kv-a.secret.b", "renewed kv-a.secret.a"];
    expect(await live(whole)).toEqual(expected);
    expect(whole.taken).toBeGreaterThan(8);
    for (let crashAt = IS_CAMPAIGN ? 1 : 1 + (SEED % 2); crashAt <= whole.taken; crashAt += IS_CAMPAIGN ? 1 : 2) {
      for (const when of IS_CAMPAIGN ? (["before", "after"] as const) : (["after"] as const)) {
        const place = `dying ${when} step ${crashAt}`;
        expect({ place, told: await live({ taken: 0, crashAt, when }) }).toEqual({ place, told: expected });
      }
    }
    expect(repeats).toBeGreaterThanOrEqual(0);
  });
});

describe("violations", () => {
  test("a new rule sends the current violations in one message, then each new and each resolved one", async () => {
    const compliance = openCompliance(azurite.connectionString(ACCOUNTS[next]!));
    fixture = open({ violations: compliance.compliance });
    const move = (days: number) => {
      compliance.clock.at = at(days).getTime();
    };
    move(-3);
    const bad = (name: string) => asset("kv", "secret", name, { expiresOn: undefined, tags: { owner: "ann" } });
    const good = (name: string) => asset("kv", "secret", name);
    await compliance.scan(vault("kv", { purgeProtection: false }), [bad("old"), bad("other"), good("fine")]);
    const standing = (await compliance.compliance.violations({}, page)).items.map(({ id }) => id);
    expect(standing.length).toBeGreaterThan(2);
    const { received } = await fixture.webhookRule({ alertType: "complianceViolation", thresholds: undefined });
    const ann = await fixture.webhookRule({
      alertType: "complianceViolation",
      thresholds: undefined,
      filters: { owner: "ann", severity: "low" },
    });
    move(0);
    await run(0);
    expect(notified(received())).toEqual([standing.map((id) => `begun ${id}`)]);
    const ofAssets = standing.filter((id) => id.includes(".secret."));
    expect(notified(ann.received()).flat()).toEqual(ofAssets.map((id) => `begun ${id}`));
    await run(0.1);
    expect(received()).toHaveLength(1);

    move(0.2);
    await compliance.scan(vault("kv", { purgeProtection: false }), [good("old"), bad("fine")]);
    await run(0.2);
    await run(0.3);
    const later = notified(received()).slice(1).flat().sort();
    const now = (await compliance.compliance.violations({}, page)).items.map(({ id }) => id);
    expect(later).toEqual(
      [
        ...now.filter((id) => !standing.includes(id)).map((id) => `begun ${id}`),
        ...standing.filter((id) => !now.includes(id)).map((id) => `recovered ${id}`),
      ].sort(),
    );
    const reasons = JSON.parse(received().at(-1)!.body).data.items as { resourceId: string; reason?: string }[];
    expect(Object.fromEntries(reasons.flatMap((one) => (one.reason ? [[one.resourceId, one.reason]] : [])))).toEqual({
      "kv.secret.old": "mended",
      "kv.secret.other": "removed",
    });
  });
});

describe("scan failures", () => {
  const { ulid } = systemRandomness();
  const denied = { code: "accessDenied", message: "The service may not list it.", remedy: "Grant Reader.", at: START };

  /** A finished scan with results for the subscription and its vaults. */
  async function scan(
    days: number,
    change: Partial<ScanRecord> & { vaults?: Record<string, VaultOutcome["failures"] | "removed"> } = {},
  ) {
    const { vaults = {}, ...rest } = change;
    const scanId = ulid(at(days));
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
        finishedAt: at(days).toISOString(),
      });
    }
    await fixture.tables.put(Scans, SCAN_LIST, newestFirst(scanId), {
      scanId,
      mode: "full",
      status: "partial",
      trigger: "schedule",
      requestedBy: "system",
      requestId: "r",
      createdAt: at(days).toISOString(),
      finishedAt: at(days).toISOString(),
      vaultsTotal: outcomes.length,
      subscriptionOutcomes: [{ subscriptionId: SUBSCRIPTION, vaults: outcomes.length }],
      ...rest,
    });
  }
  const firewall = [{ ...denied, code: "firewall", message: "Its firewall refuses.", list: "secrets" }];
  const scanRule = () => fixture.webhookRule({ alertType: "scanFailure", thresholds: undefined });
  const subscription = `subscription:${SUBSCRIPTION}`;

  test("a failure is sent with location, reason and remedy when it starts, once a week, and when it is resolved", async () => {
    await scan(-0.5, { vaults: { "kv-a": firewall, "kv-b": [] } });
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
      await scan(day, { vaults: { "kv-a": firewall, "kv-b": [] } });
      await run(day + 0.01);
    }
    const still = ["stillFailing vault:kv-a"];
    expect(notified(received())).toEqual([["begun vault:kv-a"], still, still]);
    await scan(15, { status: "completed", vaults: { "kv-a": [], "kv-b": [] } });
    await run(15.01);
    await run(30);
    expect(notified(received()).slice(3)).toEqual([["recovered vault:kv-a"]]);
  });

  test("a denied subscription and timed-out scans are failures", async () => {
    const { received } = await scanRule();
    await run(0);
    await scan(0.1, {
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
    await scan(0.2, { status: "timedOut", vaultsDone: 3, vaultsTotal: 9, subscriptionOutcomes: [] });
    await run(0.21);
    expect(notified(received()).slice(1)).toEqual([["begun scan"]]);
    expect(received()[1]!.body).toContain("3 of 9 vaults");
    await scan(0.3, { status: "completed" });
    await run(0.31);
    expect(notified(received())[2]!.sort()).toEqual(["recovered scan", `recovered ${subscription}`]);
  });

  test("a delta scan ignores lists that it does not read, and deleted resources are reported as such", async () => {
    const settings = [{ ...denied, list: "diagnosticSettings" }];
    await scan(-0.1, { vaults: { "kv-a": settings, "kv-b": firewall } });
    const { received } = await scanRule();
    await run(0);
    await scan(0.1, { mode: "delta", status: "completed", vaults: { "kv-a": [], "kv-b": "removed" } });
    await run(0.11);
    expect(notified(received())).toEqual([["begun vault:kv-a", "begun vault:kv-b"], ["recovered vault:kv-b"]]);
    await scan(0.2, { status: "completed", subscriptionOutcomes: [] });
    await run(0.21);
    expect(JSON.parse(received()[2]!.body).data.items).toMatchObject([{ id: "vault:kv-a", reason: "outOfScope" }]);
  });

  test("a rule of an earlier version continues silently, and sends a reminder after a week", async () => {
    const { rule, received } = await scanRule();
    await run(0);
    const state = (await fixture.tables.get(RuleStates, STATES, rule.ruleId))!;
    await fixture.tables.replace(RuleStates, { ...state, scansSeen: undefined });
    await scan(0.1, { vaults: { "kv-a": firewall } });
    await run(0.2);
    await run(7);
    expect(received()).toHaveLength(0);
    await run(7.3);
    expect(notified(received())).toEqual([["stillFailing vault:kv-a"]]);
  });
});

describe("escalation and acknowledgment", () => {
  const boss = "boss@acme.example";
  const bossMails = () => cloud.control.mails().filter(({ to }) => to.includes(boss));

  test("an alert without acknowledgment is escalated once, by mail, whatever the rule's own channel", async () => {
    cloud.control.clearMails();
    const { rule, received } = await fixture.webhookRule({ escalation: { afterDays: 3, recipients: [boss] } });
    await fixture.scanned("kv-a", [secret("renewed", 6), secret("seen", 5), secret("unseen", 4.5)]);
    await run(0);
    const { acknowledgements } = fixture.instance();
    const request = { ruleId: rule.ruleId, itemId: "kv-a.secret.seen", note: "A change is planned" };
    expect(await acknowledgements.create(request, caller)).toMatchObject([{ acknowledgedBy: "admin", since: START }]);
    await expect(acknowledgements.create(request, caller)).rejects.toMatchObject({ code: "alreadyExists" });
    await fixture.scanned("kv-a", [secret("renewed", 600), secret("seen", 5), secret("unseen", 4.5)]);
    await run(1);
    await run(2.9);
    expect(bossMails()).toHaveLength(0);
    await run(3.1);
    await run(3.2);
    await run(30);
    expect(bossMails()).toHaveLength(1);
    expect(bossMails()[0]!.plainText).toContain("kv-a/unseen");
    expect(bossMails()[0]!.plainText).not.toMatch(/kv-a\/(seen|renewed)/);
    const { items } = await fixture.instance().history.list({ ruleId: rule.ruleId }, page);
    expect(items.find(({ escalatedFrom }) => escalatedFrom)).toMatchObject({
      escalatedFrom: rule.ruleId,
      deliveryMethod: "email",
      status: "delivered",
    });
    // Lower thresholds cause notifications although the alert is acknowledged.
    expect(notified(received()).flat()).toContain("begun kv-a.secret.seen");
    const types = fixture.events.map(({ type, outcome }) => `${type} ${outcome}`);
    expect(types).toEqual(expect.arrayContaining(["alert.acknowledged intent", "alert.acknowledged success"]));
  });

  test("all alerts of a message can be acknowledged together, and an acknowledgment ends with its alert", async () => {
    const { rule } = await fixture.webhookRule({ escalation: { afterDays: 1, recipients: [boss] } });
    cloud.control.clearMails();
    await fixture.scanned("kv-a", [secret("one", 5), secret("two", 6)]);
    await run(0);
    const { history, acknowledgements, cleanUp } = fixture.instance();
    const { items } = await history.list({ ruleId: rule.ruleId }, page);
    const made = await acknowledgements.create({ ruleId: rule.ruleId, historyId: items[0]!.deliveryId }, caller);
    expect(made.map(({ itemId }) => itemId).sort()).toEqual(["kv-a.secret.one", "kv-a.secret.two"]);
    expect((await acknowledgements.open(rule.ruleId, { acknowledged: true }, page)).total).toBe(2);
    await run(2);
    expect(bossMails()).toHaveLength(0);
    // One asset is renewed for a short time. That opens another alert without acknowledgment.
    await fixture.scanned("kv-a", [secret("one", 25), secret("two", 400)]);
    await run(2.1);
    expect((await acknowledgements.open(rule.ruleId, {}, page)).items).toMatchObject([
      { item: { id: "kv-a.secret.one" }, acknowledgement: undefined },
    ]);
    await run(3.2);
    expect(bossMails()).toHaveLength(1);
    await acknowledgements.create({ ruleId: rule.ruleId, itemId: "kv-a.secret.one" }, caller);
    expect((await acknowledgements.list({}, page)).items.map(({ itemId }) => itemId)).toEqual(["kv-a.secret.one"]);
    await acknowledgements.remove(`${rule.ruleId}.kv-a.secret.one`, caller);
    await cleanUp(caller);
    expect((await acknowledgements.list({}, page)).total).toBe(0);
    await expect(
      acknowledgements.create({ ruleId: rule.ruleId, itemId: "kv-a.secret.two" }, caller),
    ).rejects.toMatchObject({ code: "notFound" });
  });

  test("another rule's webhook can be the escalation channel, and snoozed or exempt alerts wait", async () => {
    const second = await fixture.webhookRule({ alertType: "breakGlass", thresholds: undefined });
    const { rule } = await fixture.webhookRule({ escalation: { afterDays: 1, ruleId: second.rule.ruleId } });
    await fixture.scanned("kv-a", [secret("one", 5), secret("quiet", 6)]);
    await run(0);
    const filters = { vault: "kv-b" };
    const until = at(20);
    await fixture.instance().snoozes.create({ filters, reason: "Another vault", until }, caller);
    const assetId = "kv-a.secret.quiet";
    await fixture.instance().snoozes.create({ ruleId: rule.ruleId, assetId, reason: "Quiet", until: at(3) }, caller);
    await run(1.1);
    expect(notified(second.received())).toEqual([["escalated kv-a.secret.one"]]);
    expect(JSON.parse(second.received()[0]!.body)).toMatchObject({ type: "lifecycle.alert.expiration" });
    await run(3.2);
    expect(notified(second.received())[1]).toEqual(["escalated kv-a.secret.quiet"]);
    const unknown = { escalation: { afterDays: 1, ruleId: "0".repeat(26) } };
    await expect(fixture.webhookRule(unknown)).rejects.toMatchObject({ errors: [{ path: "body.escalation.ruleId" }] });
  });

  test("the days of an escalation count from the first notification", async () => {
    cloud.control.clearMails();
    await fixture.webhookRule({ thresholds: [30, 7], escalation: { afterDays: 15, recipients: [boss] } });
    await fixture.scanned("kv-a", [secret("one", 20)]);
    for (const day of [0, 13.5, 14.9]) await run(day);
    expect(bossMails()).toHaveLength(0);
    await run(15.1);
    expect(bossMails()).toHaveLength(1);
  });

  test("an escalation that is added later includes alerts that are old enough", async () => {
    cloud.control.clearMails();
    const { rule } = await fixture.webhookRule();
    await fixture.scanned("kv-a", [secret("one", 20)]);
    await run(0);
    await fixture.scanned("kv-a", [secret("one", 20), secret("young", 25)]);
    await run(4);
    const escalation = { afterDays: 2, recipients: [boss] };
    await fixture.instance().rules.change(rule.ruleId, { escalation }, caller, undefined);
    const escalated = () => bossMails().map(({ plainText }) => namedIn(plainText!));
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
  test("also apply to later assets, and all notifications are sent when the snooze ends", async () => {
    const { rule, received } = await fixture.webhookRule();
    const other = await fixture.webhookRule();
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 31, tags: { env: "test" } }]);
    await run(0);
    const { snoozes } = fixture.instance();
    const filters = { vault: "KV-A", tag: "env=test" };
    const request = { ruleId: rule.ruleId, filters, reason: "Maintenance", until: at(35) };
    const made = await snoozes.create(request, caller);
    expect(made).toMatchObject({ filters, ruleId: rule.ruleId });
    await fixture.scanned("kv-a", [
      { name: "later", expiresInDays: 33, tags: { env: "test" } },
      { name: "loud", expiresInDays: 20, tags: { env: "prod" } },
      { name: "one", expiresInDays: 31, tags: { env: "test" } },
    ]);
    await run(5);
    await run(34.9);
    expect(
      notified(received())
        .flat()
        .filter((one) => !one.endsWith("loud")),
    ).toEqual([]);
    expect(notified(other.received()).flat()).toContain("begun kv-a.secret.later");
    await run(35.1);
    await run(36);
    // Both assets have expired meanwhile and are reported anyway.
    expect(notified(received()).at(-1)).toEqual(["begun kv-a.secret.one", "begun kv-a.secret.later"]);
    expect((await snoozes.list({}, page)).total).toBe(0);
    expect((await snoozes.list({ ended: true }, page)).items).toMatchObject([{ snoozeId: made.snoozeId }]);
  });

  test("for all rules are ended by their id", async () => {
    const { received } = await fixture.webhookRule();
    const { snoozes } = fixture.instance();
    const made = await snoozes.create({ filters: { type: "secret" }, reason: "All", until: at(10) }, caller);
    await fixture.scanned("kv-a", [secret("one", 5)]);
    await run(0.1);
    expect(received()).toHaveLength(0);
    await snoozes.end(made.snoozeId!, caller);
    await run(0.2);
    expect(notified(received())).toEqual([["begun kv-a.secret.one"]]);
    const both = { assetId: "kv-a.secret.one", filters: { type: "secret" as const }, reason: "x", until: at(5) };
    await expect(snoozes.create(both, caller)).rejects.toMatchObject({ errors: [{ path: "body.assetId" }] });
  });
});

describe("a preview", () => {
  test("returns the items of a rule and the next asset to reach a threshold, and writes nothing", async () => {
    await fixture.scanned("kv-a", [secret("near", 5), secret("next", 9.5), secret("far", 40)]);
    const alerts = fixture.instance();
    const steps: Steps = { taken: 0 };
    const watching = fixture.instance(steps);
    const body = { name: "Team", alertType: "expiration" as const, thresholds: [7], recipients: ["a@acme.example"] };
    const planned = await watching.rules.planned(body, caller);
    const before = await watching.preview(planned);
    expect(steps.taken).toBe(0);
    expect(before).toMatchObject({ more: false, isFirst: true, evaluatedAt: at(0.25 / 24).toISOString() });
    expect(before.items.map(({ id }) => id)).toEqual(["kv-a.secret.near"]);
    expect(before.next).toMatchObject({ item: { id: "kv-a.secret.next", threshold: 7 }, at: at(2.5).toISOString() });
    expect((await alerts.rules.all()).length).toBe(0);

    const { rule, received } = await fixture.webhookRule({ thresholds: [7] });
    await run(0);
    expect(notified(received())).toEqual([before.items.map(({ id }) => `begun ${id}`)]);
    expect(await watching.preview(withoutKeys(rule))).toMatchObject({ items: [], isFirst: false });
    fixture.clock.set(at(2.6));
    const later = await watching.preview(withoutKeys(rule));
    expect(later.items.map(({ id }) => id)).toEqual(["kv-a.secret.next"]);
    expect(steps.taken).toBe(0);
    await run(2.6);
    expect(notified(received()).at(-1)).toEqual(["begun kv-a.secret.next"]);
    const digest = await watching.preview({ ...planned, deliveryMode: "digest", digestFrequency: "weekly" });
    // START is a Saturday.
    expect(digest.evaluatedAt).toBe("2026-11-30T06:00:00.000Z");
    expect((await watching.preview({ ...planned, enabled: false })).evaluatedAt).toBeUndefined();
  });
});
