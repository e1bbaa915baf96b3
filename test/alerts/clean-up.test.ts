import { afterAll, beforeAll, expect, test } from "vitest";
import type { Cloud } from "../../infra/local/cloud/cloud.ts";
import { NotificationRows } from "../../shared/alerts/notification-log.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, DAY_MS, namedIn, openRoom, START } from "./room.ts";

let azurite: TestStorage;
let cloud: Cloud;
beforeAll(async () => {
  azurite = await openStorage(["clean", "gone"]);
  ({ cloud } = await liveIn({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await cloud.stop();
  await azurite.stop();
});

test("marks of assets that still stand are kept, so that nothing is told twice; the others go", async () => {
  const room = openRoom({ connectionString: azurite.connectionString("clean"), cloud });
  const { rule, mails } = await room.mailRule({ alertType: "expired", thresholds: undefined });
  const stays = { name: "stays", expiresInDays: -300 };
  await room.scanned("kv-a", [stays, { name: "goes", expiresInDays: -200 }, { name: "fresh", expiresInDays: -2 }]);
  const alerts = room.instance();
  const evaluate = async () => {
    await alerts.evaluate();
    await room.drain(alerts);
  };
  const marks = async () => {
    const keys: string[] = [];
    const ofAssets = { partitionKey: rule.ruleId, from: "e!", before: "f!" };
    for await (const rows of room.tables.pages(NotificationRows, { ...ofAssets, select: [] }))
      keys.push(...rows.map(({ rowKey }) => rowKey.split("!")[3]!));
    return keys;
  };
  await evaluate();
  await room.scanned("kv-a", [stays]);
  await alerts.cleanUp(caller);
  expect(await marks()).toEqual(["stays", "fresh"]);
  await room.scanned("kv-a", [{ ...stays, tags: { changed: "yes" } }]);
  room.clock.add(60_000);
  await evaluate();
  // The second says that the others are gone.
  expect(mails().map(({ plainText }) => namedIn(plainText!).length)).toEqual([3, 2]);
  room.clock.set(new Date(Date.parse(START) + 40 * DAY_MS));
  await alerts.cleanUp(caller);
  expect(await marks()).toEqual(["stays"]);
});

test("of a deleted rule nothing is left but its history", async () => {
  const room = openRoom({ connectionString: azurite.connectionString("gone"), cloud });
  const { rule } = await room.mailRule();
  await room.scanned("kv-a", [{ name: "one", expiresInDays: 5 }]);
  const alerts = room.instance();
  await alerts.evaluate();
  await room.drain(alerts);
  await alerts.rules.remove(rule.ruleId, caller, undefined);
  await alerts.cleanUp(caller);
  expect((await room.tables.pages(NotificationRows, { partitionKey: rule.ruleId }).next()).done).toBe(true);
  const page = await alerts.history.list({ ruleId: rule.ruleId }, { limit: 10, offset: 0, cursor: undefined });
  expect(page.total).toBe(1);
});
