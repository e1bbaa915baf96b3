import type { Cloud } from "simulated-cloud/cloud.ts";
import type { FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RULES, RuleSecretRows, ruleSecretKey, secretName } from "../../shared/alerts/rule.ts";
import { merge, RowMissing } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS } from "../../shared/platform/time.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { caller, DAY_MS, type Fixture, openFixture, START } from "./alerts-setup.ts";

const VAULT = "kv-lifecycle-service";
const system = { actor: "system", requestId: "timer" };

let azurite: TestStorage;
let cloud: Cloud;
let fixtures = 0;
beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 20 }, (_, at) => `secrets${at}`));
  ({ cloud } = await liveIn({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await Promise.all([cloud.stop(), azurite.stop()]);
});

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

const kept = (ruleId: string) => cloud.control.secretValue(VAULT, secretName(ruleId));
const entered = (fixture: Fixture) => fixture.events.map(({ type, outcome }) => `${type} ${outcome}`);
const noted = (fixture: Fixture, ruleId: string) => fixture.tables.get(RuleSecretRows, RULES, ruleSecretKey(ruleId));
const WEBHOOK = { alertType: "expired", deliveryMethod: "webhook", webhookUrl: "https://hooks.example/a" } as const;

describe("the secret of a deleted rule", () => {
  test("is removed completely", () =>
    withFixture(async (fixture) => {
      const { rule } = await fixture.webhookRule();
      expect(await noted(fixture, rule.ruleId)).toBeDefined();
      await fixture.instance().rules.remove(rule.ruleId, caller, undefined);
      expect(kept(rule.ruleId)).toBeUndefined();
      expect(await noted(fixture, rule.ruleId)).toBeUndefined();
      expect(entered(fixture).slice(-4)).toEqual([
        "alertRule.deleted intent",
        "alertRule.deleted success",
        "alertRule.secretRemoved intent",
        "alertRule.secretRemoved success",
      ]);
    }));

  test.each<[FaultAction, string[]]>([
    [{ kind: "deny" }, ["alertRule.secretRemoved intent", "alertRule.secretRemoved failure"]],
    // It is unknown whether the secret was removed, so there is no audit entry.
    [{ kind: "fail", status: 500 }, ["alertRule.secretRemoved intent"]],
    [{ kind: "failAfter", status: 500 }, ["alertRule.secretRemoved intent"]],
  ])("that the key vault fails to remove (%j) is removed a day later, with its own audit entry", (action, entries) =>
    withFixture(async (fixture) => {
      const { rule } = await fixture.webhookRule();
      const fault = { match: { operation: "keyvault.deleteSecret" }, action };
      cloud.control.addFault({ match: { operation: "keyvault.getDeletedSecret" }, action });
      cloud.control.addFault(fault);
      await fixture.instance().rules.remove(rule.ruleId, caller, undefined);
      expect(entered(fixture).slice(-entries.length - 1)).toEqual(["alertRule.deleted success", ...entries]);
      cloud.control.clearFaults();
      const before = fixture.events.length;
      fixture.clock.add(DAY_MS - 1);
      await fixture.instance().cleanUp(system);
      expect(fixture.events).toHaveLength(before);
      fixture.clock.add(2);
      await fixture.instance().cleanUp(system);
      expect(kept(rule.ruleId)).toBeUndefined();
      expect(await noted(fixture, rule.ruleId)).toBeUndefined();
      expect(fixture.events.slice(before)).toMatchObject([
        { type: "alertRule.secretRemoved", outcome: "intent", caller: system, target: { id: rule.ruleId } },
        { type: "alertRule.secretRemoved", outcome: "success" },
      ]);
    }),
  );

  test("is removed even if it was written during the deletion of the rule", () =>
    withFixture(async (fixture) => {
      const { rule } = await fixture.mailRule();
      const { transaction } = fixture.tables;
      fixture.tables.transaction = async (...args) => {
        fixture.tables.transaction = transaction;
        const { deliveryMethod, webhookUrl } = WEBHOOK;
        await fixture.instance().rules.change(rule.ruleId, { deliveryMethod, webhookUrl }, caller, undefined);
        expect(kept(rule.ruleId)).toBeDefined();
        return await transaction(...args);
      };
      await fixture.instance().rules.remove(rule.ruleId, caller, undefined);
      expect(await fixture.instance().rules.find(rule.ruleId)).toBeUndefined();
      expect(kept(rule.ruleId)).toBeUndefined();
      expect(await noted(fixture, rule.ruleId)).toBeUndefined();
      expect(entered(fixture).at(-1)).toBe("alertRule.secretRemoved success");
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
      expect(kept(rule.ruleId)).toBeUndefined();
      expect(entered(fixture)).toContain("alertRule.deleted success");
      expect(entered(fixture)).not.toContain("alertRule.deleted failure");
    }));
});

describe("a secret without a rule", () => {
  test("is removed a day later, and a late writer can't create the rule without its secret", () =>
    withFixture(async (fixture, proxy) => {
      await fixture.webhookRule({ name: "taken" });
      // Another rule takes the name between the check and the write.
      proxy.fail(["UpdateConditionNotSatisfied"], ({ path }) => path === "$batch");
      await expect(fixture.webhookRule()).rejects.toThrow();
      const ruleId = fixture.events.at(-1)!.target!.id;
      expect(kept(ruleId)).toBeDefined();
      expect(entered(fixture).at(-1)).toMatch(/^alertRule.created (refused|failure)$/);
      fixture.clock.add(DAY_MS + 1);
      await fixture.instance().cleanUp(system);
      expect(kept(ruleId)).toBeUndefined();
      const late = fixture.tables.transaction("AlertRules", RULES, [merge(RuleSecretRows, ruleSecretKey(ruleId), {})]);
      await expect(late).rejects.toThrow(RowMissing);
    }));

  test("that is cleaned up while its rule is being written prevents the rule", () =>
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
      expect(entered(fixture).at(-1)).toBe("alertRule.created refused");
    }));

  test("of another service in the same key vault is not removed", () =>
    withFixture(async (theirs) => {
      const { rule } = await theirs.webhookRule();
      await withFixture(async (ours) => {
        ours.clock.add(30 * DAY_MS);
        await ours.instance().cleanUp(system);
        expect(kept(rule.ruleId)).toBeDefined();
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

  test("permanently prevents the rule, which the caller and the audit log see", () =>
    withFixture(async (fixture) => {
      cloud.control.addFault({ match: { operation: "keyvault.setSecret" }, action: { kind: "deny" } });
      const refused = fixture.instance().rules.create({ name: "never", ...WEBHOOK }, caller);
      await expect(refused).rejects.toMatchObject({
        code: "unavailable",
        message: expect.stringMatching(/^The rule was not/),
      });
      expect(await fixture.instance().rules.all()).toEqual([]);
      expect(fixture.events.at(-1)).toMatchObject({ type: "alertRule.created", outcome: "failure" });
    }));
});

describe("a new signing key", () => {
  test("is added to all keys that are still valid, even if an earlier one was never returned", () =>
    withFixture(async (fixture) => {
      const { rule, webhookSecret } = await fixture.webhookRule();
      const { rules } = fixture.instance();
      await rules.rotateSecret(rule.ruleId, caller, undefined); // as if the response was lost
      fixture.clock.add(HOUR_MS);
      const { rule: last, webhookSecret: shown } = await rules.rotateSecret(rule.ruleId, caller, undefined);
      const keys = async () => (await rules.readSecret((await rules.get(rule.ruleId))!))!.keys.map(({ key }) => key);
      expect(await keys()).toHaveLength(3);
      expect((await keys())[0]).toBe(shown);
      expect(await keys()).toContain(webhookSecret);
      fixture.clock.add(DAY_MS - HOUR_MS + 1);
      await rules.rotateSecret(last.ruleId, caller, undefined);
      expect(await keys()).not.toContain(webhookSecret);
    }));
});

test.each<[FaultAction, string]>([
  [{ kind: "throttle", retryAfterSeconds: 3600 }, "3600"],
  [{ kind: "deny" }, "10"],
])(
  "a rule whose secret the key vault rejects (%j) is not written, and the response has a Retry-After",
  (action, wait) =>
    withFixture(async (fixture) => {
      cloud.control.addFault({ match: { operation: "keyvault.setSecret" }, action });
      const refused = await fixture.webhookRule().catch((error: unknown) => error);
      expect(refused).toMatchObject({
        code: "unavailable",
        headers: { "Retry-After": wait },
        message: expect.stringContaining("The rule was not written."),
      });
      expect((await fixture.instance().rules.list({ limit: 10, offset: 0, cursor: undefined })).items).toEqual([]);
    }),
);
