import { expect, test } from "vitest";
import { itemsIn } from "../../shared/alerts/delivery.ts";
import type { AssetItem } from "../../shared/alerts/items.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { NOTIFIED_THRESHOLD } from "../support/alert-days.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { openStorage } from "../support/storage.ts";
import { assetNamesIn, DAY_MS, openFixture, START, type TestAsset } from "./alerts-setup.ts";

/** Simulates weeks of daily evaluations. The long version, with 1,000 assets over 60 days, runs with `CAMPAIGN=all`. */

const [ASSETS, DAYS] = IS_CAMPAIGN ? [1000, 60] : [450, 20];
const THRESHOLDS = [30, 7, 1];

test(`three rules send each notification for ${ASSETS} assets over ${DAYS} days once although the process crashes`, async () => {
  const azurite = await openStorage(["sixty"]);
  const { cloud } = await startTestCloud({ company: { subscriptions: [] } });
  const fixture = openFixture({ connectionString: azurite.connectionString("sixty"), cloud });
  const assets = Array.from({ length: ASSETS }, (_, index) => ({
    name: `asset-${index}`,
    type: (["secret", "key", "certificate"] as const)[index % 3],
    // Spread over 80 days. No asset reaches a threshold at the very time of an evaluation.
    expiresInDays: 0.51 + ((index * 97.3) % 80),
  }));
  for (let vault = 0; vault < 10; vault++) {
    const part: TestAsset[] = assets.slice((vault * ASSETS) / 10, ((vault + 1) * ASSETS) / 10);
    await fixture.writeAssets(`kv-${vault}`, part);
  }
  const immediate = await fixture.mailRule();
  const digest = await fixture.mailRule({ deliveryMode: "digest", thresholds: [14] });
  const webhook = await fixture.webhookRule();

  // The step after which the process crashes, by day.
  const crashSteps = new Map([
    [0, 9],
    [7, 5],
    [11, 13],
    [14, 20],
    [18, 3],
  ]);
  for (let day = 0; day < DAYS; day++) {
    fixture.clock.set(new Date(Date.parse(START) + day * DAY_MS));
    const steps: Steps = { taken: 0, when: "after", crashAt: crashSteps.get(day) ?? -1 };
    const first = fixture.instance(steps);
    await first
      .evaluate()
      .then(() => fixture.handleAllMessages(first))
      .catch((error: unknown) => {
        if (!steps.dead) throw error;
      });
    expect(steps.dead ?? false, `day ${day}`).toBe(crashSteps.has(day));
    if (steps.dead) fixture.clock.add(15 * MINUTE_MS);
    const second = fixture.instance();
    await second.evaluate();
    await fixture.handleAllMessages(second);
  }

  const deliveriesOf = async (ruleId: string) => {
    const { items } = await fixture.instance().history.list({ ruleId }, { limit: 1000, offset: 0, cursor: undefined });
    return items.map(({ deliveryId }) => deliveryId);
  };
  /** Returns the notifications in mails, as `<name> <threshold>`. */
  const notificationsIn = (mails: readonly { plainText?: string }[]) =>
    mails.flatMap(({ plainText = "" }) => {
      const thresholds = [...plainText.matchAll(new RegExp(NOTIFIED_THRESHOLD, "g"))].map((match) => match[1]);
      return assetNamesIn(plainText).map((name, index) => `${name.split("/")[1]} ${thresholds[index]}`);
    });
  const expectedNotifications = (thresholds: readonly number[]) =>
    assets.flatMap(({ name, expiresInDays }) => {
      // The first run reports the lowest reached threshold, later runs each lower one on its day.
      const initial = thresholds.filter((days) => expiresInDays <= days).sort((a, b) => a - b)[0];
      const later = thresholds.filter((days) => expiresInDays > days && expiresInDays - days <= DAYS - 1);
      return [...(initial === undefined ? [] : [initial]), ...later].map((days) => `${name} ${days}`);
    });
  // A mail lists the items that fit and counts the others. The history lists all.
  const ids = await deliveriesOf(immediate.rule.ruleId);
  const delivered = await Promise.all(ids.map((id) => fixture.instance().history.get(id)));
  const recorded = delivered.flatMap((row) =>
    itemsIn(row!).map((item) => `${(item as AssetItem).name} ${(item as AssetItem).threshold}`),
  );
  expect(recorded.sort()).toEqual(expectedNotifications(THRESHOLDS).sort());
  const listedInMails = notificationsIn(immediate.mails());
  const countedInMails = immediate
    .mails()
    .reduce(
      (sum, { plainText = "" }) => sum + Number(/^(\d+) more items? (?:is|are) not shown/m.exec(plainText)?.[1] ?? 0),
      0,
    );
  expect(new Set(listedInMails).size).toBe(listedInMails.length);
  expect(listedInMails.filter((text) => !recorded.includes(text))).toEqual([]);
  expect(listedInMails.length + countedInMails).toBe(recorded.length);
  expect(countedInMails).toBeGreaterThan(0);
  expect(listedInMails.length).toBeGreaterThan(recorded.length / 2);
  const events = new Map(webhook.received().map(({ headers, body }) => [headers["webhook-id"], JSON.parse(body)]));
  const posted = [...events.values()].flatMap(({ data }) =>
    data.items.map((item: { name: string; thresholdDays: number }) => `${item.name} ${item.thresholdDays}`),
  );
  expect(posted.sort()).toEqual(expectedNotifications(THRESHOLDS).sort());
  expect(notificationsIn(digest.mails()).length).toBe(new Set(notificationsIn(digest.mails())).size);
  const { history } = fixture.instance();
  for (const { rule } of [immediate, digest, webhook]) {
    const { items } = await history.list({ ruleId: rule.ruleId }, { limit: 1000, offset: 0, cursor: undefined });
    expect(new Set(items.map(({ status }) => status))).toEqual(new Set(["delivered"]));
  }
  const mails = await history.list({ ruleId: immediate.rule.ruleId }, { limit: 1000, offset: 0, cursor: undefined });
  expect(mails.items.reduce((sum, { newsTotal }) => sum + newsTotal, 0)).toBe(expectedNotifications(THRESHOLDS).length);
  expect(mails.total).toBe(immediate.mails().length);
  await cloud.stop();
  await azurite.stop();
});
