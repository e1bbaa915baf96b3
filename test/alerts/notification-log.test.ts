// Tests of the log of what each rule has notified of, and of the reads that the notifications about one asset need.

import { afterAll, beforeAll, expect, test, vi } from "vitest";
import * as z from "zod";
import { createAssetNotifications } from "../../shared/alerts/asset-notifications.ts";
import { createHistory } from "../../shared/alerts/history.ts";
import { notificationKey, type ViolationItem } from "../../shared/alerts/items.ts";
import { createNotificationLog } from "../../shared/alerts/notification-log.ts";
import type { AlertRules } from "../../shared/alerts/rules.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
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

test("an asset reaches a lower threshold although the row of the higher one can't be read: the time of the first notification is then unknown", async () => {
  const tables = createTables({ connectionString: azurite.connectionString() });
  const asset = {
    kind: "asset",
    id: "kv.secret.one",
    type: "secret",
    name: "one",
    vaultName: "kv",
    vaultId: "/subscriptions/s/resourceGroups/rg/providers/Microsoft.KeyVault/vaults/kv",
    subscriptionId: "s",
    expiresOn: Date.parse("2026-12-01T00:00:00Z") / 1000,
  } as const;
  const WithoutDelivery = entity("AlertTold", z.object({}));
  await tables.put(WithoutDelivery, "rule-unreadable", notificationKey({ ...asset, threshold: 30 }), {});
  const unnotified = async (threshold: number) =>
    await createNotificationLog(tables).unnotifiedAssets("rule-unreadable", [{ ...asset, threshold }]);
  expect(await unnotified(30)).toEqual([]);
  expect(await unnotified(7)).toEqual([{ ...asset, threshold: 7 }]);
});

test("the notifications about an asset need three reads per rule; with a rule's ID, of that rule and of those that escalate to it", async () => {
  const tables = createTables({ connectionString: azurite.connectionString() });
  const [gets, pages] = [vi.spyOn(tables, "get"), vi.spyOn(tables, "pages")];
  type Rule = Awaited<ReturnType<AlertRules["all"]>>[number];
  const rule = (index: number, change: object = {}) =>
    ({ ruleId: `rule-${index}`, alertType: "expiration", ...change }) as Rule;
  let rules: Rule[] = [];
  const notifications = createAssetNotifications({
    tables,
    rules: { all: async () => rules },
    history: createHistory(tables),
  });
  /** Returns the number of reads in the partitions of the rules. */
  const reads = async (filter: { ruleId?: string }) => {
    vi.clearAllMocks();
    const page = await notifications.list("kv.secret.one", filter, { limit: 10, offset: 0, cursor: undefined });
    expect(page).toMatchObject({ items: [], total: 0 });
    const partitions = [
      ...gets.mock.calls.map(([, partitionKey]) => partitionKey),
      ...pages.mock.calls.map(([, { partitionKey }]) => partitionKey),
    ];
    return partitions.filter((partition) => partition.startsWith("rule-")).length;
  };
  rules = [
    ...Array.from({ length: 20 }, (_, index) => rule(index)),
    rule(20, { alertType: "scanFailure" }),
    rule(21, { escalation: { afterDays: 1, ruleId: "rule-3" } }),
  ];
  // Three reads of each rule: open alerts, resolutions and escalations. The rule about scan failures is not about assets. Rule 21
  // escalates to rule 3.
  expect([await reads({}), await reads({ ruleId: "rule-3" }), await reads({ ruleId: "rule-4" })]).toEqual([
    3 * 21,
    3 * 2,
    3,
  ]);
  rules = Array.from({ length: 1001 }, (_, index) => rule(index));
  await expect(reads({})).rejects.toThrow("Add rule_id");
  expect(await reads({ ruleId: "rule-1000" })).toBe(3);
});
