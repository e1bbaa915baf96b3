import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { NOTIFIED_THRESHOLD } from "../support/alert-days.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { assetNamesIn, caller, DAY_MS, type Fixture, openFixture, START } from "./alerts-setup.ts";

/**
 * Tests that alerts are sent exactly once although the process crashes. The test repeats the same days many times and crashes
 * the process at another step each time. A step is a write to storage, a queue message, a mail or an audit entry.
 */

let azurite: TestStorage;
let cloud: Cloud;
let fixture: Fixture;

beforeAll(async () => {
  azurite = await openStorage(["alerts"]);
  ({ cloud } = await startTestCloud({ company: { subscriptions: [] } }));
  fixture = openFixture({ connectionString: azurite.connectionString("alerts"), cloud });
  await fixture.writeAssets("kv-a", [
    { name: "one", expiresInDays: 2.5 },
    { name: "two", expiresInDays: 8.5 },
    { name: "three", expiresInDays: 12 },
  ]);
});
afterAll(async () => {
  await cloud.stop();
  await azurite.stop();
});

/** Days after START on which the rules are evaluated. */
const EVALUATION_DAYS = [0, 2];
/** The process crashes before or after every third step, alternating. With `CAMPAIGN=all`, both at each step. */
const STRIDE = IS_CAMPAIGN ? 1 : 3;
const WHENS = ["before", "after"] as const;
/** Expected notifications: asset and lowest reached threshold. */
const EXPECTED = ["kv-a/one 1", "kv-a/one 7", "kv-a/three 30", "kv-a/two 30", "kv-a/two 7"];

/**
 * Evaluates a mail rule and a webhook rule over several days. The process crashes at the step that `steps` selects, and a new
 * process continues.
 *
 * @returns The id of the mail rule, the notifications by mail and by webhook as `<vault>/<name> <threshold>`, the number of
 *   different webhook messages, and the number of posts including repeated ones.
 */
async function runWithCrash(
  steps: Steps,
): Promise<{ rule: string; mails: string[]; posts: string[]; messageCount: number; postCount: number }> {
  // The rules are created one second apart, so that they are evaluated in the same order in each repetition.
  fixture.clock.set(new Date(Date.parse(START) - 1000));
  for (const { ruleId } of await fixture.instance().rules.all())
    await fixture.instance().rules.remove(ruleId, caller, undefined);
  fixture.messages.length = 0;
  const mail = await fixture.mailRule();
  fixture.clock.set(START);
  const webhook = await fixture.webhookRule();
  let alerts = fixture.instance(steps);
  /** Repeats the work in a new process if the process crashed. */
  const repeatAfterCrash = async (work: () => Promise<void>) => {
    for (let attempt = 0; attempt < 5; attempt++) {
      try {
        return await work();
      } catch (error) {
        if (!steps.dead) throw error;
        steps.dead = false;
        steps.crashAt = -1; // the process crashes only once; the value also tells the test that it has
        // Longer than a lease, like the platform's detection of a crashed worker.
        fixture.clock.add(15 * MINUTE_MS);
        alerts = fixture.instance();
      }
    }
  };
  for (const day of EVALUATION_DAYS) {
    fixture.clock.set(new Date(Date.parse(START) + day * DAY_MS));
    await repeatAfterCrash(() => alerts.evaluate());
    // A second evaluation of the same day must not notify again.
    await repeatAfterCrash(() => alerts.evaluate());
    await repeatAfterCrash(() => fixture.handleAllMessages(alerts));
  }
  const items = (text: string) =>
    assetNamesIn(text).map(
      (name, index) => `${name} ${[...text.matchAll(new RegExp(NOTIFIED_THRESHOLD, "g"))][index]![1]}`,
    );
  const events = new Map(
    webhook.received().map(({ headers, body }) => [headers["webhook-id"], JSON.parse(body) as { data: Data }]),
  );
  return {
    rule: mail.rule.ruleId,
    mails: mail
      .mails()
      .flatMap(({ plainText }) => items(plainText!))
      .sort(),
    posts: [...events.values()].flatMap(({ data }) => data.items.map(notificationText)).sort(),
    messageCount: events.size,
    postCount: webhook.received().length,
  };
}
interface Data {
  items: { vaultName: string; name: string; thresholdDays: number }[];
}
const notificationText = (item: Data["items"][number]) => `${item.vaultName}/${item.name} ${item.thresholdDays}`;

test("each asset causes exactly one notification per threshold and rule, at whichever step the process crashes", async () => {
  // Without a crash there are two webhook messages, one per evaluation day.
  const allSteps: Steps = { taken: 0 };
  const withoutCrash = await runWithCrash(allSteps);
  expect(withoutCrash).toMatchObject({ mails: EXPECTED, posts: EXPECTED, messageCount: 2, postCount: 2 });
  expect(allSteps.taken).toBeGreaterThan(50);
  let repeatedPosts = 0;
  let crashes = 0;
  for (let crashAt = 1 + (SEED % STRIDE); crashAt <= allSteps.taken; crashAt += STRIDE) {
    for (const when of IS_CAMPAIGN ? WHENS : [WHENS[crashAt % 2]!]) {
      const steps: Steps = { taken: 0, crashAt, when };
      const result = await runWithCrash(steps);
      if (steps.crashAt === -1) crashes++;
      const crashPoint = `crash ${when} step ${crashAt}`;
      expect({ crashPoint, mails: result.mails }).toEqual({ crashPoint, mails: EXPECTED });
      expect({ crashPoint, posts: result.posts, messageCount: result.messageCount }).toEqual({
        crashPoint,
        posts: EXPECTED,
        messageCount: 2,
      });
      repeatedPosts += result.postCount - 2;
      const { items } = await fixture
        .instance()
        .history.list({ ruleId: result.rule }, { limit: 100, offset: 0, cursor: undefined });
      expect({ crashPoint, history: items.map(({ status }) => status) }).toEqual({
        crashPoint,
        history: ["delivered", "delivered"],
      });
    }
  }
  // A webhook is duplicated, with the same id, if the process crashes between the response and its record.
  if (IS_CAMPAIGN) expect(repeatedPosts).toBeGreaterThan(0);
  expect(crashes).toBeGreaterThan(15);
}, 600_000);
