import type { Cloud } from "simulated-cloud/cloud.ts";
import type { FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RULES, RuleSecretRows, ruleSecretKey, secretName } from "../../shared/alerts/rule.ts";
import { merge, RowMissing } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { caller, DAY_MS, type Fixture, openFixture, START } from "./alerts-setup.ts";

/**
 * Tests of the secrets of alert rules: the URL, signing keys and credentials of a webhook. The service's own key vault stores
 * them, so that they are not in the tables. A row beside each rule notes that its secret exists, so that a daily clean-up finds
 * secrets whose rule was deleted or never written.
 */

const VAULT = "kv-lifecycle-service";
/** Caller of the daily clean-up. */
const system = { actor: "system", requestId: "timer" };

let azurite: TestStorage;
let cloud: Cloud;
let fixtures = 0;
beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 20 }, (_, index) => `secrets${index}`));
  ({ cloud } = await startTestCloud({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await Promise.all([cloud.stop(), azurite.stop()]);
});

/** Runs a test with a fixture on a storage account of its own, behind a proxy that can fail requests. */
async function withFixture(work: (fixture: Fixture, proxy: TableProxy) => Promise<void>): Promise<void> {
  const proxy = await startTableProxy(azurite.connectionString(`secrets${fixtures++}`));
  const fixture = openFixture({ connectionString: proxy.connectionString, cloud });
  // Ids depend on the clock, and the cloud keeps deleted secrets.
  fixture.clock.set(new Date(Date.parse(START) + fixtures * HOUR_MS));
  try {
    await work(fixture, proxy);
  } finally {
    cloud.control.clearFaults();
    await proxy.stop();
  }
}

/** Returns the secret of a rule in the key vault. */
const storedSecret = (ruleId: string) => cloud.control.secretValue(VAULT, secretName(ruleId));
/** Returns the audit entries as `<type> <outcome>`. */
const auditEntries = (fixture: Fixture) => fixture.events.map(({ type, outcome }) => `${type} ${outcome}`);
/** Returns the row that notes that a rule's secret exists. */
const secretRow = (fixture: Fixture, ruleId: string) =>
  fixture.tables.get(RuleSecretRows, RULES, ruleSecretKey(ruleId));
const WEBHOOK = { alertType: "expired", deliveryMethod: "webhook", webhookUrl: "https://hooks.example/a" } as const;

describe("the secret of a deleted rule", () => {
  test("is removed together with its row", () =>
    withFixture(async (fixture) => {
      const { rule } = await fixture.webhookRule();
      expect(await secretRow(fixture, rule.ruleId)).toBeDefined();
      await fixture.instance().rules.remove(rule.ruleId, caller, undefined);
      expect(storedSecret(rule.ruleId)).toBeUndefined();
      expect(await secretRow(fixture, rule.ruleId)).toBeUndefined();
      expect(auditEntries(fixture).slice(-4)).toEqual([
        "alertRule.deleted intent",
        "alertRule.deleted success",
        "alertRule.secretRemoved intent",
        "alertRule.secretRemoved success",
      ]);
    }));

  test.each<[FaultAction, string[]]>([
    [{ kind: "deny" }, ["alertRule.secretRemoved intent", "alertRule.secretRemoved failure"]],
    // It is unknown whether the secret was removed, so no outcome is recorded.
    [{ kind: "fail", status: 500 }, ["alertRule.secretRemoved intent"]],
    [{ kind: "failAfter", status: 500 }, ["alertRule.secretRemoved intent"]],
  ])("is removed a day later by the clean-up if the key vault failed to remove it (%j)", (action, entries) =>
    withFixture(async (fixture) => {
      const { rule } = await fixture.webhookRule();
      const fault = { match: { operation: "keyvault.deleteSecret" }, action };
      cloud.control.addFault({ match: { operation: "keyvault.getDeletedSecret" }, action });
      cloud.control.addFault(fault);
      await fixture.instance().rules.remove(rule.ruleId, caller, undefined);
      expect(auditEntries(fixture).slice(-entries.length - 1)).toEqual(["alertRule.deleted success", ...entries]);
      cloud.control.clearFaults();
      const eventsBefore = fixture.events.length;
      fixture.clock.add(DAY_MS - 1);
      await fixture.instance().cleanUp(system);
      expect(fixture.events).toHaveLength(eventsBefore);
      fixture.clock.add(2);
      await fixture.instance().cleanUp(system);
      expect(storedSecret(rule.ruleId)).toBeUndefined();
      expect(await secretRow(fixture, rule.ruleId)).toBeUndefined();
      expect(fixture.events.slice(eventsBefore)).toMatchObject([
        { type: "alertRule.secretRemoved", outcome: "intent", caller: system, target: { id: rule.ruleId } },
        { type: "alertRule.secretRemoved", outcome: "success" },
      ]);
    }),
  );

  test("is removed even if another request adds it during the deletion of the rule", () =>
    withFixture(async (fixture) => {
      const { rule } = await fixture.mailRule();
      const { transaction } = fixture.tables;
      // The deletion's transaction waits for a change that turns the mail rule into a webhook rule.
      fixture.tables.transaction = async (...args) => {
        fixture.tables.transaction = transaction;
        const { deliveryMethod, webhookUrl } = WEBHOOK;
        await fixture.instance().rules.change(rule.ruleId, { deliveryMethod, webhookUrl }, caller, undefined);
        expect(storedSecret(rule.ruleId)).toBeDefined();
        return await transaction(...args);
      };
      await fixture.instance().rules.remove(rule.ruleId, caller, undefined);
      expect(await fixture.instance().rules.find(rule.ruleId)).toBeUndefined();
      expect(storedSecret(rule.ruleId)).toBeUndefined();
      expect(await secretRow(fixture, rule.ruleId)).toBeUndefined();
      expect(auditEntries(fixture).at(-1)).toBe("alertRule.secretRemoved success");
      const deleted = fixture.events.filter(({ type }) => type === "alertRule.deleted");
      expect(deleted).toMatchObject([
        { outcome: "intent", before: { deliveryMethod: "email" } },
        { outcome: "success", before: { deliveryMethod: "webhook" } },
      ]);
    }));

  test("is removed even if the response to the rule's deletion was lost", () =>
    withFixture(async (fixture, proxy) => {
      const { rule } = await fixture.webhookRule();
      proxy.fail(["LostAnswer"], ({ path }) => path === "$batch");
      await fixture.instance().rules.remove(rule.ruleId, caller, rule.etag);
      expect(await fixture.instance().rules.find(rule.ruleId)).toBeUndefined();
      expect(storedSecret(rule.ruleId)).toBeUndefined();
      expect(auditEntries(fixture)).toContain("alertRule.deleted success");
      expect(auditEntries(fixture)).not.toContain("alertRule.deleted failure");
    }));
});

describe("a secret without a rule", () => {
  test("is removed a day later together with its row, so that a late write of the rule fails", () =>
    withFixture(async (fixture, proxy) => {
      await fixture.webhookRule({ name: "taken" });
      // As if another request had changed the rows between the check and the write.
      proxy.fail(["UpdateConditionNotSatisfied"], ({ path }) => path === "$batch");
      await expect(fixture.webhookRule()).rejects.toThrow();
      const ruleId = fixture.events.at(-1)!.target!.id;
      expect(storedSecret(ruleId)).toBeDefined();
      expect(auditEntries(fixture).at(-1)).toMatch(/^alertRule.created (refused|failure)$/);
      fixture.clock.add(DAY_MS + 1);
      await fixture.instance().cleanUp(system);
      expect(storedSecret(ruleId)).toBeUndefined();
      const late = fixture.tables.transaction("AlertRules", RULES, [merge(RuleSecretRows, ruleSecretKey(ruleId), {})]);
      await expect(late).rejects.toThrow(RowMissing);
    }));

  test("that is cleaned up while its rule is being written makes that write fail", () =>
    withFixture(async (fixture) => {
      const { transaction } = fixture.tables;
      fixture.tables.transaction = async (...args) => {
        fixture.tables.transaction = transaction;
        fixture.clock.add(DAY_MS + 1);
        await fixture.instance().cleanUp(system);
        return await transaction(...args);
      };
      await expect(fixture.webhookRule()).rejects.toThrow(RowMissing);
      expect(await fixture.instance().rules.all()).toEqual([]);
      expect(auditEntries(fixture).at(-1)).toBe("alertRule.created refused");
    }));

  test("of another service in the same key vault is not removed", () =>
    withFixture(async (otherService) => {
      const { rule } = await otherService.webhookRule();
      await withFixture(async (service) => {
        service.clock.add(30 * DAY_MS);
        await service.instance().cleanUp(system);
        expect(storedSecret(rule.ruleId)).toBeDefined();
      });
    }));
});

describe("a key vault that fails", () => {
  test.each<FaultAction>([
    { kind: "loseAnswer" },
    { kind: "cutAnswer" },
    { kind: "failAfter", status: 500 },
    { kind: "reset" },
  ])("once is retried, and the rule has a readable secret (%j)", (action) =>
    withFixture(async (fixture) => {
      cloud.control.addFault({ match: { operation: "keyvault.setSecret" }, action, times: 1 });
      const { rule } = await fixture.webhookRule();
      expect(await fixture.instance().rules.readSecret(rule)).toMatchObject({ keys: [{ key: expect.any(String) }] });
    }),
  );

  test("permanently prevents the creation of the rule, and the audit log records the failure", () =>
    withFixture(async (fixture) => {
      cloud.control.addFault({ match: { operation: "keyvault.setSecret" }, action: { kind: "deny" } });
      const rejected = fixture.instance().rules.create({ name: "never", ...WEBHOOK }, caller);
      await expect(rejected).rejects.toMatchObject({
        code: "unavailable",
        message: expect.stringMatching(/^The rule was not/),
      });
      expect(await fixture.instance().rules.all()).toEqual([]);
      expect(fixture.events.at(-1)).toMatchObject({ type: "alertRule.created", outcome: "failure" });
    }));
});

describe("a new signing key", () => {
  test("is added to the keys that are valid for another day, also if the previous rotation's response was lost", () =>
    withFixture(async (fixture) => {
      const { rule, webhookSecret } = await fixture.webhookRule();
      const { rules } = fixture.instance();
      await rules.rotateSecret(rule.ruleId, caller, undefined); // as if the response was lost
      fixture.clock.add(HOUR_MS);
      const { rule: rotatedRule, webhookSecret: newestKey } = await rules.rotateSecret(rule.ruleId, caller, undefined);
      const keys = async () => (await rules.readSecret((await rules.get(rule.ruleId))!))!.keys.map(({ key }) => key);
      expect(await keys()).toHaveLength(3);
      expect((await keys())[0]).toBe(newestKey);
      expect(await keys()).toContain(webhookSecret);
      fixture.clock.add(DAY_MS - HOUR_MS + 1);
      await rules.rotateSecret(rotatedRule.ruleId, caller, undefined);
      expect(await keys()).not.toContain(webhookSecret);
    }));
});

test.each<[FaultAction, string]>([
  [{ kind: "throttle", retryAfterSeconds: 3600 }, "3600"],
  [{ kind: "deny" }, "10"],
])(
  "if the key vault rejects a rule's secret (%j), the rule is not written and the response has Retry-After",
  (action, wait) =>
    withFixture(async (fixture) => {
      cloud.control.addFault({ match: { operation: "keyvault.setSecret" }, action });
      const rejected = await fixture.webhookRule().catch((error: unknown) => error);
      expect(rejected).toMatchObject({
        code: "unavailable",
        headers: { "Retry-After": wait },
        message: expect.stringContaining("The rule was not written."),
      });
      expect((await fixture.instance().rules.list({ limit: 10, offset: 0, cursor: undefined })).items).toEqual([]);
    }),
);
