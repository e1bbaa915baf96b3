import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { NotificationRows } from "../../shared/alerts/notification-log.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { assetNamesIn, caller, DAY_MS, openFixture, START } from "./alerts-setup.ts";

/**
 * Tests of the daily clean-up of the alerts' tables. A notification row records that a rule has notified of an asset, so that
 * the rule does not notify again.
 */

let azurite: TestStorage;
let cloud: Cloud;
beforeAll(async () => {
  azurite = await openStorage(["clean", "gone", "snoozes"]);
  ({ cloud } = await startTestCloud({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await cloud.stop();
  await azurite.stop();
});

test("the clean-up removes notification rows of assets that expired over 30 days ago and no longer exist", async () => {
  const fixture = openFixture({ connectionString: azurite.connectionString("clean"), cloud });
  const { rule, mails } = await fixture.mailRule({ alertType: "expired", thresholds: undefined });
  const existing = { name: "existing", expiresInDays: -300 };
  await fixture.writeAssets("kv-a", [
    existing,
    { name: "long-expired", expiresInDays: -200 },
    { name: "just-expired", expiresInDays: -2 },
  ]);
  const alerts = fixture.instance();
  const evaluate = async () => {
    await alerts.evaluate();
    await fixture.handleVisibleMessages(alerts);
  };
  /** Returns the names of the assets with a notification row. Row keys: `e!<type>!<expiry>!<name>!<vault>!…`. */
  const notifiedAssets = async () => {
    const keys: string[] = [];
    const ofAssets = { partitionKey: rule.ruleId, from: "e!", before: "f!" };
    for await (const rows of fixture.tables.pages(NotificationRows, { ...ofAssets, select: [] }))
      keys.push(...rows.map(({ rowKey }) => rowKey.split("!")[3]!));
    return keys;
  };
  await evaluate();
  await fixture.writeAssets("kv-a", [existing]);
  await alerts.cleanUp(caller);
  expect(await notifiedAssets()).toEqual(["existing", "just-expired"]);
  await fixture.writeAssets("kv-a", [{ ...existing, tags: { changed: "yes" } }]);
  fixture.clock.add(MINUTE_MS);
  await evaluate();
  // The second mail reports that the two deleted assets no longer exist. It does not repeat the existing asset.
  const counts = mails().map(({ plainText }) => [
    assetNamesIn(plainText!).length,
    [...plainText!.matchAll(/^RESOLVED: /gm)].length,
  ]);
  expect(counts).toEqual([
    [3, 0],
    [0, 2],
  ]);
  fixture.clock.set(new Date(Date.parse(START) + 40 * DAY_MS));
  await alerts.cleanUp(caller);
  expect(await notifiedAssets()).toEqual(["existing"]);
});

test("the clean-up removes a snooze 30 days after its end; a snooze can last up to 366 days", async () => {
  const fixture = openFixture({ connectionString: azurite.connectionString("snoozes"), cloud });
  const { snoozes, cleanUp } = fixture.instance();
  const afterStart = (milliseconds: number) => new Date(Date.parse(START) + milliseconds);
  const create = (until: Date) => snoozes.create({ filters: { vault: "kv-a" }, reason: "Planned", until }, caller);
  for (const until of [afterStart(0), afterStart(366 * DAY_MS + 1)])
    await expect(create(until)).rejects.toMatchObject({ code: "invalidRequest", errors: [{ path: "body.until" }] });
  const created = [await create(afterStart(1)), await create(afterStart(366 * DAY_MS))];
  const listedEnds = async (ended: boolean) =>
    (await snoozes.list({ ended }, { limit: 10, offset: 0, cursor: undefined })).items.map(({ until }) => until);
  const [short, long] = created.map(({ until }) => until);
  expect(await listedEnds(false)).toEqual(expect.arrayContaining([short, long]));
  fixture.clock.set(afterStart(1));
  expect(await listedEnds(false)).toEqual([long]);
  fixture.clock.set(afterStart(30 * DAY_MS + 1));
  await cleanUp(caller);
  expect((await listedEnds(true)).sort()).toEqual([short, long].sort());
  fixture.clock.add(1);
  await cleanUp(caller);
  expect(await listedEnds(true)).toEqual([long]);
});

test("the clean-up removes the notification rows of a deleted rule and keeps its history", async () => {
  const fixture = openFixture({ connectionString: azurite.connectionString("gone"), cloud });
  const { rule } = await fixture.mailRule();
  await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 5 }]);
  const alerts = fixture.instance();
  await alerts.evaluate();
  await fixture.handleVisibleMessages(alerts);
  await alerts.rules.remove(rule.ruleId, caller, undefined);
  await alerts.cleanUp(caller);
  expect((await fixture.tables.pages(NotificationRows, { partitionKey: rule.ruleId }).next()).done).toBe(true);
  const page = await alerts.history.list({ ruleId: rule.ruleId }, { limit: 10, offset: 0, cursor: undefined });
  expect(page.total).toBe(1);
});
