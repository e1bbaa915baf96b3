import { expect, test } from "vitest";
import { itemsIn } from "../../shared/alerts/delivery.ts";
import type { AssetItem } from "../../shared/alerts/items.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { openStorage } from "../support/storage.ts";
import { DAY_MS, namedIn, openFixture, START, type TestAsset } from "./alerts-setup.ts";

const [ASSETS, DAYS] = IS_CAMPAIGN ? [1000, 60] : [450, 20];
const THRESHOLDS = [30, 7, 1];

test(`${ASSETS} assets over ${DAYS} days, three rules, a process that crashes repeatedly: each notification is sent once`, async () => {
  const azurite = await openStorage(["sixty"]);
  const { cloud } = await liveIn({ company: { subscriptions: [] } });
  const fixture = openFixture({ connectionString: azurite.connectionString("sixty"), cloud });
  const assets = Array.from({ length: ASSETS }, (_, index) => ({
    name: `asset-${index}`,
    type: (["secret", "key", "certificate"] as const)[index % 3],
    expiresInDays: 0.51 + ((index * 97.3) % 80),
  }));
  for (let vault = 0; vault < 10; vault++) {
    const part: TestAsset[] = assets.slice((vault * ASSETS) / 10, ((vault + 1) * ASSETS) / 10);
    await fixture.scanned(`kv-${vault}`, part);
  }
  const immediate = await fixture.mailRule();
  const digest = await fixture.mailRule({ deliveryMode: "digest", thresholds: [14] });
  const webhook = await fixture.webhookRule();

  // The step after which the process is killed, by day and run.
  const deaths = new Map([
    [0, 9],
    [7, 5],
    [11, 13],
    [14, 20],
    [18, 3],
  ]);
  for (let day = 0; day < DAYS; day++) {
    fixture.clock.set(new Date(Date.parse(START) + day * DAY_MS));
    const steps: Steps = { taken: 0, when: "after", crashAt: deaths.get(day) ?? -1 };
    const first = fixture.instance(steps);
    await first
      .evaluate()
      .then(() => fixture.drainAll(first))
      .catch((error: unknown) => {
        if (!steps.dead) throw error;
      });
    expect(steps.dead ?? false, `day ${day}`).toBe(deaths.has(day));
    if (steps.dead) fixture.clock.add(15 * 60_000);
    const second = fixture.instance();
    await second.evaluate();
    await fixture.drainAll(second);
  }

  const deliveriesOf = async (ruleId: string) => {
    const { items } = await fixture.instance().history.list({ ruleId }, { limit: 1000, offset: 0, cursor: undefined });
    return items.map(({ deliveryId }) => deliveryId);
  };
  const notified = (mails: readonly { plainText?: string }[]) =>
    mails.flatMap(({ plainText = "" }) => {
      const thresholds = [...plainText.matchAll(/Threshold: (\d+)/g)].map((match) => match[1]);
      return namedIn(plainText).map((name, index) => `${name.split("/")[1]} ${thresholds[index]}`);
    });
  const expectedOf = (thresholds: readonly number[]) =>
    assets.flatMap(({ name, expiresInDays }) => {
      // The first run reports the lowest reached threshold, later runs each lower one on its day.
      const initial = thresholds.filter((days) => expiresInDays <= days).sort((a, b) => a - b)[0];
      const later = thresholds.filter((days) => expiresInDays > days && expiresInDays - days <= DAYS - 1);
      return [...(initial === undefined ? [] : [initial]), ...later].map((days) => `${name} ${days}`);
    });
  // Items that don't fit into a mail are in the history.
  const ids = await deliveriesOf(immediate.rule.ruleId);
  const delivered = await Promise.all(ids.map((id) => fixture.instance().history.get(id)));
  const recorded = delivered.flatMap((row) =>
    itemsIn(row!).map((item) => `${(item as AssetItem).name} ${(item as AssetItem).threshold}`),
  );
  expect(recorded.sort()).toEqual(expectedOf(THRESHOLDS).sort());
  const named = notified(immediate.mails());
  const counted = immediate
    .mails()
    .reduce(
      (sum, { plainText = "" }) => sum + Number(/^(\d+) more items? (?:is|are) not shown/m.exec(plainText)?.[1] ?? 0),
      0,
    );
  expect(new Set(named).size).toBe(named.length);
  expect(named.filter((one) => !recorded.includes(one))).toEqual([]);
  expect(named.length + counted).toBe(recorded.length);
  expect(counted).toBeGreaterThan(0);
  expect(named.length).toBeGreaterThan(recorded.length / 2);
  const events = new Map(webhook.received().map(({ headers, body }) => [headers["webhook-id"], JSON.parse(body)]));
  const posted = [...events.values()].flatMap(({ data }) =>
    data.items.map((item: { name: string; thresholdDays: number }) => `${item.name} ${item.thresholdDays}`),
  );
  expect(posted.sort()).toEqual(expectedOf(THRESHOLDS).sort());
  expect(notified(digest.mails()).length).toBe(new Set(notified(digest.mails())).size);
  const { history } = fixture.instance();
  for (const { rule } of [immediate, digest, webhook]) {
    const { items } = await history.list({ ruleId: rule.ruleId }, { limit: 1000, offset: 0, cursor: undefined });
    expect(new Set(items.map(({ status }) => status))).toEqual(new Set(["delivered"]));
  }
  const mails = await history.list({ ruleId: immediate.rule.ruleId }, { limit: 1000, offset: 0, cursor: undefined });
  expect(mails.items.reduce((sum, { newsTotal }) => sum + newsTotal, 0)).toBe(expectedOf(THRESHOLDS).length);
  expect(mails.total).toBe(immediate.mails().length);
  await cloud.stop();
  await azurite.stop();
});
