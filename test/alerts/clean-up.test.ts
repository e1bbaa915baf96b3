import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { NotificationRows } from "../../shared/alerts/notification-log.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, DAY_MS, namedIn, openFixture, START } from "./alerts-setup.ts";

let azurite: TestStorage;
let cloud: Cloud;
beforeAll(async () => {
  azurite = await openStorage(["clean", "gone", "snoozes"]);
  ({ cloud } = await liveIn({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await cloud.stop();
  await azurite.stop();
});

test("notification rows of existing assets are kept, so that none is sent twice, and the others are removed", async () => {
  const fixture = openFixture({ connectionString: azurite.connectionString("clean"), cloud });
  const { rule, mails } = await fixture.mailRule({ alertType: "expired", thresholds: undefined });
  const stays = { name: "stays", expiresInDays: -300 };
  await fixture.scanned("kv-a", [stays, { name: "goes", expiresInDays: -200 }, { name: "fresh", expiresInDays: -2 }]);
  const alerts = fixture.instance();
  const evaluate = async () => {
    await alerts.evaluate();
    await fixture.drain(alerts);
  };
  const marks = async () => {
    const keys: string[] = [];
    const ofAssets = { partitionKey: rule.ruleId, from: "e!", before: "f!" };
    for await (const rows of fixture.tables.pages(NotificationRows, { ...ofAssets, select: [] }))
      keys.push(...rows.map(({ rowKey }) => rowKey.split("!")[3]!));
    return keys;
  };
  await evaluate();
  await fixture.scanned("kv-a", [stays]);
  await alerts.cleanUp(caller);
  expect(await marks()).toEqual(["stays", "fresh"]);
  await fixture.scanned("kv-a", [{ ...stays, tags: { changed: "yes" } }]);
  fixture.clock.add(60_000);
  await evaluate();
  // The second run notifies again, because the other rows were removed.
  expect(mails().map(({ plainText }) => namedIn(plainText!).length)).toEqual([3, 2]);
  fixture.clock.set(new Date(Date.parse(START) + 40 * DAY_MS));
  await alerts.cleanUp(caller);
  expect(await marks()).toEqual(["stays"]);
});

test("a snooze can last up to 366 days and stays listed for 30 days after its end", async () => {
  const fixture = openFixture({ connectionString: azurite.connectionString("snoozes"), cloud });
  const { snoozes, cleanUp } = fixture.instance();
  const at = (milliseconds: number) => new Date(Date.parse(START) + milliseconds);
  const create = (until: Date) => snoozes.create({ filters: { vault: "kv-a" }, reason: "Planned", until }, caller);
  for (const until of [at(0), at(366 * DAY_MS + 1)])
    await expect(create(until)).rejects.toMatchObject({ code: "invalidRequest", errors: [{ path: "body.until" }] });
  const made = [await create(at(1)), await create(at(366 * DAY_MS))];
  const shown = async (ended: boolean) =>
    (await snoozes.list({ ended }, { limit: 10, offset: 0, cursor: undefined })).items.map(({ until }) => until);
  const [short, long] = made.map(({ until }) => until);
  expect(await shown(false)).toEqual(expect.arrayContaining([short, long]));
  fixture.clock.set(at(1));
  expect(await shown(false)).toEqual([long]);
  fixture.clock.set(at(30 * DAY_MS + 1));
  await cleanUp(caller);
  expect((await shown(true)).sort()).toEqual([short, long].sort());
  fixture.clock.add(1);
  await cleanUp(caller);
  expect(await shown(true)).toEqual([long]);
});

test("only the history of a deleted rule remains", async () => {
  const fixture = openFixture({ connectionString: azurite.connectionString("gone"), cloud });
  const { rule } = await fixture.mailRule();
  await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 5 }]);
  const alerts = fixture.instance();
  await alerts.evaluate();
  await fixture.drain(alerts);
  await alerts.rules.remove(rule.ruleId, caller, undefined);
  await alerts.cleanUp(caller);
  expect((await fixture.tables.pages(NotificationRows, { partitionKey: rule.ruleId }).next()).done).toBe(true);
  const page = await alerts.history.list({ ruleId: rule.ruleId }, { limit: 10, offset: 0, cursor: undefined });
  expect(page.total).toBe(1);
});
