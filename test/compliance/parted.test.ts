import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { createNotificationLog } from "../../shared/alerts/notification-log.ts";
import { fenceKey, ResultFences, STATE } from "../../shared/compliance/layout.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { asset, DAY, openRoom, type Room, START, vault } from "./support.ts";

// Results of a vault that take several transactions: with the store's own limit that takes tens of thousands of assets.

const limit = vi.hoisted(() => ({ operations: 100 }));
vi.mock("../../shared/storage/limits.ts", async (original) => ({
  ...(await original<object>()),
  get MAX_TRANSACTION_OPERATIONS() {
    return limit.operations;
  },
}));

let azurite: TestStorage;
let proxy: TableProxy;
let room: Room;
beforeAll(async () => {
  azurite = await openStorage();
});
afterAll(() => azurite?.stop());
beforeEach(async () => {
  proxy = await startTableProxy(azurite.connectionString());
  room = openRoom(azurite.connectionString(), proxy.connectionString);
});
afterEach(() => proxy.stop());

test("a taking that comes late between two rows of details: each violation that arose is told, and none as two", async () => {
  // More than one row of details holds.
  const names = Array.from({ length: 4100 }, (_, at) => `s-${String(at).padStart(4, "0")}`);
  await room.scan(
    vault("kv"),
    names.map((name) => asset("kv", "secret", name)),
  );
  const { cursor } = await room.compliance.newViolations(undefined, 1);
  room.clock.at = START + 100 * DAY * 1000;
  limit.operations = 4;
  const late = { owner: "late", etag: undefined };
  proxy.before(
    () => room.tables.fence(ResultFences, STATE, fenceKey("kv"), late).take(),
    ({ path, body }) => path === "$batch" && /6(!|%21)kv(!|%21)00001/.test(body),
  );
  await room.compliance.handle({ kind: "vault", vault: "kv" });
  const { violations } = await room.compliance.newViolations(cursor, 50_000);
  const items = violations.map((one) => ({ kind: "violation" as const, ...one }));
  const told = await createNotificationLog(room.tables).unnotified("rule", items);
  // Those in the second row of details were found to have arisen twice.
  expect(items.length).toBeGreaterThan(told.length);
  expect(new Set(told.map(({ id }) => id)).size).toBe(told.length);
  const byCheck = Map.groupBy(told, ({ checkId }) => checkId);
  expect([...byCheck.values()].map((all) => all.length)).toEqual([...byCheck].map(() => names.length));
});
