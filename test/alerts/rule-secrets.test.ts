import type { Cloud } from "simulated-cloud/cloud.ts";
import type { FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RULES, RuleSecretRows, ruleSecretKey, secretName } from "../../shared/alerts/rule.ts";
import { merge, RowMissing } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS } from "../../shared/platform/time.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { caller, DAY_MS, openRoom, type Room, START } from "./alerts-setup.ts";

const VAULT = "kv-lifecycle-service";
const system = { actor: "system", requestId: "timer" };

let azurite: TestStorage;
let cloud: Cloud;
let rooms = 0;
beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 20 }, (_, at) => `secrets${at}`));
  ({ cloud } = await liveIn({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await Promise.all([cloud.stop(), azurite.stop()]);
});

async function withRoom(work: (room: Room, proxy: TableProxy) => Promise<void>): Promise<void> {
  const proxy = await startTableProxy(azurite.connectionString(`secrets${rooms++}`));
  const room = openRoom({ connectionString: proxy.connectionString, cloud });
  // Ids depend on the clock, and the cloud keeps deleted secrets.
  room.clock.set(new Date(Date.parse(START) + rooms * HOUR_MS));
  try {
    await work(room, proxy);
  } finally {
    cloud.control.clearFaults();
    await proxy.stop();
  }
}

const kept = (ruleId: string) => cloud.control.secretValue(VAULT, secretName(ruleId));
const entered = (room: Room) => room.events.map(({ type, outcome }) => `${type} ${outcome}`);
const noted = (room: Room, ruleId: string) => room.tables.get(RuleSecretRows, RULES, ruleSecretKey(ruleId));
const WEBHOOK = { alertType: "expired", deliveryMethod: "webhook", webhookUrl: "https://hooks.example/a" } as const;

describe("the secret of a deleted rule", () => {
  test("is removed completely", () =>
    withRoom(async (room) => {
      const { rule } = await room.webhookRule();
      expect(await noted(room, rule.ruleId)).toBeDefined();
      await room.instance().rules.remove(rule.ruleId, caller, undefined);
      expect(kept(rule.ruleId)).toBeUndefined();
      expect(await noted(room, rule.ruleId)).toBeUndefined();
      expect(entered(room).slice(-4)).toEqual([
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
    withRoom(async (room) => {
      const { rule } = await room.webhookRule();
      const fault = { match: { operation: "keyvault.deleteSecret" }, action };
      cloud.control.addFault({ match: { operation: "keyvault.getDeletedSecret" }, action });
      cloud.control.addFault(fault);
      await room.instance().rules.remove(rule.ruleId, caller, undefined);
      expect(entered(room).slice(-entries.length - 1)).toEqual(["alertRule.deleted success", ...entries]);
      cloud.control.clearFaults();
      const before = room.events.length;
      room.clock.add(DAY_MS - 1);
      await room.instance().cleanUp(system);
      expect(room.events).toHaveLength(before);
      room.clock.add(2);
      await room.instance().cleanUp(system);
      expect(kept(rule.ruleId)).toBeUndefined();
      expect(await noted(room, rule.ruleId)).toBeUndefined();
      expect(room.events.slice(before)).toMatchObject([
        { type: "alertRule.secretRemoved", outcome: "intent", caller: system, target: { id: rule.ruleId } },
        { type: "alertRule.secretRemoved", outcome: "success" },
      ]);
    }),
  );

  test("is removed even if it was written during the deletion of the rule", () =>
    withRoom(async (room) => {
      const { rule } = await room.mailRule();
      const { transaction } = room.tables;
      room.tables.transaction = async (...args) => {
        room.tables.transaction = transaction;
        const { deliveryMethod, webhookUrl } = WEBHOOK;
        await room.instance().rules.change(rule.ruleId, { deliveryMethod, webhookUrl }, caller, undefined);
        expect(kept(rule.ruleId)).toBeDefined();
        return await transaction(...args);
      };
      await room.instance().rules.remove(rule.ruleId, caller, undefined);
      expect(await room.instance().rules.find(rule.ruleId)).toBeUndefined();
      expect(kept(rule.ruleId)).toBeUndefined();
      expect(await noted(room, rule.ruleId)).toBeUndefined();
      expect(entered(room).at(-1)).toBe("alertRule.secretRemoved success");
      const deleted = room.events.filter(({ type }) => type === "alertRule.deleted");
      expect(deleted).toMatchObject([
        { outcome: "intent", before: { deliveryMethod: "email" } },
        { outcome: "success", before: { deliveryMethod: "webhook" } },
      ]);
    }));

  test("is removed even if the response to the rule's deletion was lost", () =>
    withRoom(async (room, proxy) => {
      const { rule } = await room.webhookRule();
      proxy.fail(["LostAnswer"], ({ path }) => path === "$batch");
      await room.instance().rules.remove(rule.ruleId, caller, rule.etag);
      expect(await room.instance().rules.find(rule.ruleId)).toBeUndefined();
      expect(kept(rule.ruleId)).toBeUndefined();
      expect(entered(room)).toContain("alertRule.deleted success");
      expect(entered(room)).not.toContain("alertRule.deleted failure");
    }));
});

describe("a secret without a rule", () => {
  test("is removed a day later, and a late writer can't create the rule without its secret", () =>
    withRoom(async (room, proxy) => {
      await room.webhookRule({ name: "taken" });
      // Another rule takes the name between the check and the write.
      proxy.fail(["UpdateConditionNotSatisfied"], ({ path }) => path === "$batch");
      await expect(room.webhookRule()).rejects.toThrow();
      const ruleId = room.events.at(-1)!.target!.id;
      expect(kept(ruleId)).toBeDefined();
      expect(entered(room).at(-1)).toMatch(/^alertRule.created (refused|failure)$/);
      room.clock.add(DAY_MS + 1);
      await room.instance().cleanUp(system);
      expect(kept(ruleId)).toBeUndefined();
      const late = room.tables.transaction("AlertRules", RULES, [merge(RuleSecretRows, ruleSecretKey(ruleId), {})]);
      await expect(late).rejects.toThrow(RowMissing);
    }));

  test("that is cleaned up while its rule is being written prevents the rule", () =>
    withRoom(async (room) => {
      const { transaction } = room.tables;
      room.tables.transaction = async (...args) => {
        room.tables.transaction = transaction;
        room.clock.add(DAY_MS + 1);
        await room.instance().cleanUp(system);
        return await transaction(...args);
      };
      await expect(room.webhookRule()).rejects.toThrow(RowMissing);
      expect(await room.instance().rules.all()).toEqual([]);
      expect(entered(room).at(-1)).toBe("alertRule.created refused");
    }));

  test("of another service in the same key vault is not removed", () =>
    withRoom(async (theirs) => {
      const { rule } = await theirs.webhookRule();
      await withRoom(async (ours) => {
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
    withRoom(async (room) => {
      cloud.control.addFault({ match: { operation: "keyvault.setSecret" }, action, times: 1 });
      const { rule } = await room.webhookRule();
      expect(await room.instance().rules.readSecret(rule)).toMatchObject({ keys: [{ key: expect.any(String) }] });
    }),
  );

  test("permanently prevents the rule, which the caller and the audit log see", () =>
    withRoom(async (room) => {
      cloud.control.addFault({ match: { operation: "keyvault.setSecret" }, action: { kind: "deny" } });
      const refused = room.instance().rules.create({ name: "never", ...WEBHOOK }, caller);
      await expect(refused).rejects.toMatchObject({
        code: "unavailable",
        message: expect.stringMatching(/^The rule was not/),
      });
      expect(await room.instance().rules.all()).toEqual([]);
      expect(room.events.at(-1)).toMatchObject({ type: "alertRule.created", outcome: "failure" });
    }));
});

describe("a new signing key", () => {
  test("is added to all keys that are still valid, even if an earlier one was never returned", () =>
    withRoom(async (room) => {
      const { rule, webhookSecret } = await room.webhookRule();
      const { rules } = room.instance();
      await rules.rotateSecret(rule.ruleId, caller, undefined); // as if the response was lost
      room.clock.add(HOUR_MS);
      const { rule: last, webhookSecret: shown } = await rules.rotateSecret(rule.ruleId, caller, undefined);
      const keys = async () => (await rules.readSecret((await rules.get(rule.ruleId))!))!.keys.map(({ key }) => key);
      expect(await keys()).toHaveLength(3);
      expect((await keys())[0]).toBe(shown);
      expect(await keys()).toContain(webhookSecret);
      room.clock.add(DAY_MS - HOUR_MS + 1);
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
    withRoom(async (room) => {
      cloud.control.addFault({ match: { operation: "keyvault.setSecret" }, action });
      const refused = await room.webhookRule().catch((error: unknown) => error);
      expect(refused).toMatchObject({
        code: "unavailable",
        headers: { "Retry-After": wait },
        message: expect.stringContaining("The rule was not written."),
      });
      expect((await room.instance().rules.list({ limit: 10, offset: 0, cursor: undefined })).items).toEqual([]);
    }),
);
