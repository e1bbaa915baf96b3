import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Audit, createAudit } from "../../shared/audit/audit.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, type Fixture, openFixture } from "./alerts-setup.ts";

/**
 * Tests of alert rules about break-glass access: a sign-in with a password while passwords are turned off in favor of single
 * sign-on. The audit log records these sign-ins, and the rules read them from it.
 */

let azurite: TestStorage;
let cloud: Cloud;
/** Storage accounts: each test takes the next unused one. */
const ACCOUNTS = Array.from({ length: 10 }, (_, index) => `glass${index}`);
let usedAccounts = 0;
let fixture: Fixture;
let audit: Audit;

beforeAll(async () => {
  azurite = await openStorage(ACCOUNTS);
  ({ cloud } = await startTestCloud({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await cloud.stop();
  await azurite.stop();
});
beforeEach(() => {
  const config = { AUDIT_SIGNING_KEYS: undefined, AUDIT_MINIMUM_RETENTION_DAYS: 90 };
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  fixture = openFixture({
    connectionString: azurite.connectionString(ACCOUNTS[usedAccounts++]!),
    cloud,
    createAuditLog: (tables, clock) => {
      audit = createAudit({ tables, clock, randomness: systemRandomness(), log, config });
      return audit;
    },
  });
  fixture.instance(); // creates `audit`
});

const MINUTE_MS = 60_000;
/** Records a sign-in with a password while passwords are turned off. */
const recordBreakGlass = (username: string) =>
  audit.append({
    type: "access.breakGlass",
    outcome: "success",
    caller: { ...caller, actor: username, address: "192.0.2.7" },
    target: { type: "user", id: username },
  });
/** Moves the clock by the interval of the timer, evaluates the rules and sends the messages. */
async function run(): Promise<void> {
  fixture.clock.add(15 * MINUTE_MS);
  const alerts = fixture.instance();
  await alerts.evaluate();
  await fixture.handleVisibleMessages(alerts);
}
const RULE = { alertType: "breakGlass", thresholds: undefined } as const;

describe("a rule about password sign-ins while passwords are turned off", () => {
  test("sends each sign-in after the rule's creation once", async () => {
    await recordBreakGlass("before-the-rule");
    fixture.clock.add(MINUTE_MS);
    const { mails } = await fixture.mailRule(RULE);
    await run();
    expect(mails()).toEqual([]);
    await recordBreakGlass("admin");
    await audit.append({ type: "user.signedIn", outcome: "success", caller });
    await run();
    await run();
    expect(mails().map(({ subject }) => subject)).toEqual([
      "admin signed in with a password while passwords are turned off",
    ]);
    expect(mails()[0]!.plainText).toContain("192.0.2.7");
    await recordBreakGlass("admin");
    await run();
    expect(mails()).toHaveLength(2);
  });

  test("can be tested with an example, and sends name, address and time to a webhook", async () => {
    const { rule, mails } = await fixture.mailRule(RULE);
    await fixture.instance().test(rule.ruleId, caller);
    expect(mails()[0]!.subject).toContain("[Test] example-administrator signed in");
    const hook = await fixture.webhookRule(RULE);
    await recordBreakGlass("admin");
    await run();
    expect(JSON.parse(hook.received()[0]!.body)).toMatchObject({
      type: "lifecycle.alert.breakGlass",
      data: { items: [{ username: "admin", address: "192.0.2.7", at: expect.any(String) }] },
    });
  });
});
