import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { liveIn } from "../azure/live-cloud.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, DAY_MS, type Fixture, namedIn, openFixture, START } from "./alerts-setup.ts";

let azurite: TestStorage;
let cloud: Cloud;
let fixture: Fixture;

beforeAll(async () => {
  azurite = await openStorage(["alerts"]);
  ({ cloud } = await liveIn({ company: { subscriptions: [] } }));
  fixture = openFixture({ connectionString: azurite.connectionString("alerts"), cloud });
  await fixture.scanned("kv-a", [
    { name: "one", expiresInDays: 2.5 },
    { name: "two", expiresInDays: 8.5 },
    { name: "three", expiresInDays: 12 },
  ]);
});
afterAll(async () => {
  await cloud.stop();
  await azurite.stop();
});

const DAYS = [0, 2];
/** The process crashes before or after every third step, alternating. A campaign tries both at each step. */
const STRIDE = IS_CAMPAIGN ? 1 : 3;
const WHENS = ["before", "after"] as const;
/** Expected notifications: asset and lowest reached threshold. */
const EXPECTED = ["kv-a/one 1", "kv-a/one 7", "kv-a/three 30", "kv-a/two 30", "kv-a/two 7"];

/** Evaluates a rule over several days. The process crashes at one step and the next process continues. */
async function live(
  steps: Steps,
): Promise<{ rule: string; mails: string[]; posts: string[]; ids: number; posted: number }> {
  // One second before the other rule: rules created in the same millisecond have no order, and steps are counted.
  fixture.clock.set(new Date(Date.parse(START) - 1000));
  for (const { ruleId } of await fixture.instance().rules.all())
    await fixture.instance().rules.remove(ruleId, caller, undefined);
  fixture.messages.length = 0;
  const mail = await fixture.mailRule();
  fixture.clock.set(START);
  const webhook = await fixture.webhookRule();
  let alerts = fixture.instance(steps);
  const survive = async (work: () => Promise<void>) => {
    for (let lives = 0; lives < 5; lives++) {
      try {
        return await work();
      } catch (error) {
        if (!steps.dead) throw error;
        steps.dead = false;
        steps.crashAt = -1;
        // Longer than a lease, like the platform's detection of a crashed worker.
        fixture.clock.add(15 * 60_000);
        alerts = fixture.instance();
      }
    }
  };
  for (const day of DAYS) {
    fixture.clock.set(new Date(Date.parse(START) + day * DAY_MS));
    await survive(() => alerts.evaluate());
    await survive(() => alerts.evaluate());
    await survive(() => fixture.drainAll(alerts));
  }
  const items = (text: string) =>
    namedIn(text).map((name, index) => `${name} ${[...text.matchAll(/Threshold: (\d+)/g)][index]![1]}`);
  const events = new Map(
    webhook.received().map(({ headers, body }) => [headers["webhook-id"], JSON.parse(body) as { data: Data }]),
  );
  return {
    rule: mail.rule.ruleId,
    mails: mail
      .mails()
      .flatMap(({ plainText }) => items(plainText!))
      .sort(),
    posts: [...events.values()].flatMap(({ data }) => data.items.map(tellingOf)).sort(),
    ids: events.size,
    posted: webhook.received().length,
  };
}
interface Data {
  items: { vaultName: string; name: string; thresholdDays: number }[];
}
const tellingOf = (item: Data["items"][number]) => `${item.vaultName}/${item.name} ${item.thresholdDays}`;

test("each asset causes exactly one notification per threshold and rule, at whichever step the process crashes", async () => {
  const whole: Steps = { taken: 0 };
  const undisturbed = await live(whole);
  expect(undisturbed).toMatchObject({ mails: EXPECTED, posts: EXPECTED, ids: 2, posted: 2 });
  expect(whole.taken).toBeGreaterThan(50);
  let repeatedPosts = 0;
  let deaths = 0;
  for (let crashAt = 1 + (SEED % STRIDE); crashAt <= whole.taken; crashAt += STRIDE) {
    for (const when of IS_CAMPAIGN ? WHENS : [WHENS[crashAt % 2]!]) {
      const steps: Steps = { taken: 0, crashAt, when };
      const lived = await live(steps);
      if (steps.crashAt === -1) deaths++;
      const place = `dying ${when} step ${crashAt}`;
      expect({ place, mails: lived.mails }).toEqual({ place, mails: EXPECTED });
      expect({ place, posts: lived.posts, ids: lived.ids }).toEqual({ place, posts: EXPECTED, ids: 2 });
      repeatedPosts += lived.posted - 2;
      const { items } = await fixture
        .instance()
        .history.list({ ruleId: lived.rule }, { limit: 100, offset: 0, cursor: undefined });
      expect({ place, history: items.map(({ status }) => status) }).toEqual({
        place,
        history: ["delivered", "delivered"],
      });
    }
  }
  // A webhook is duplicated, with the same id, if the process crashes between the response and its record.
  if (IS_CAMPAIGN) expect(repeatedPosts).toBeGreaterThan(0);
  expect(deaths).toBeGreaterThan(15);
}, 600_000);
