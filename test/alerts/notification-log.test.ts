import { afterAll, beforeAll, expect, test } from "vitest";
import type { ViolationItem } from "../../shared/alerts/items.ts";
import { createNotificationLog } from "../../shared/alerts/notification-log.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

let azurite: TestStorage;
beforeAll(async () => {
  azurite = await openStorage();
});
afterAll(() => azurite?.stop());

const violation = (name: string): ViolationItem => ({
  kind: "violation",
  id: `secret-content-type|kv.secret.${name}`,
  checkId: "secret-content-type",
  title: "Secrets have a content type",
  severity: "low",
  resourceId: `kv.secret.${name}`,
  resourceType: "secret",
  vaultName: "kv",
  subscriptionId: "00000000-0000-4000-8000-000000000001",
  firstSeenAt: "2026-11-21T00:00:00.000Z",
});

// The log reads few items one by one, and many by a range.
test("`unnotified` returns each of several equal items once, for few and for many items", async () => {
  const log = createNotificationLog(createTables({ connectionString: azurite.connectionString() }));
  const few = ["a", "b", "a"].map(violation);
  const many = Array.from({ length: 24 }, (_, index) => violation(`s-${index % 12}`));
  const ids = async (items: ViolationItem[]) => (await log.unnotified("rule", items)).map(({ id }) => id);
  expect(await ids(few)).toEqual([few[0]!.id, few[1]!.id]);
  expect(await ids(many)).toEqual(many.slice(0, 12).map(({ id }) => id));
});
