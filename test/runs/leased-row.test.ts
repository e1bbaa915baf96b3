import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import * as z from "zod";
import { leaseRow, takeLease } from "../../shared/platform/runs/leased-row.ts";
import { isConflict } from "../../shared/platform/storage/conflict.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

const Work = entity("Works", z.object({ done: z.number() }));

let azurite: TestStorage;
let tables: Tables;
beforeAll(async () => {
  azurite = await openStorage(["runs"]);
  tables = createTables({ connectionString: azurite.connectionString() });
});
afterAll(() => azurite.stop());
afterEach(() => {
  vi.useRealTimers();
});

// A worker that leases a row includes the ETag of its last write in each change, so it notices a change by another worker.
test("after another worker has changed a leased row, changes by the first worker are rejected and its signal is aborted", async () => {
  const leased = leaseRow(tables, Work, await tables.insert(Work, "works", "one", { done: 0 }), undefined);
  await Promise.all([leased.change({ done: 1 }), leased.change({ done: 2 })]);
  expect([leased.row.done, leased.signal.aborted]).toEqual([2, false]);
  await tables.replace(Work, { ...(await tables.get(Work, "works", "one"))!, done: 10 });
  await expect(leased.change({ done: 3 })).rejects.toSatisfy(isConflict);
  expect(leased.signal.aborted).toBe(true);
  await expect(leased.end((row) => tables.replace(Work, { ...row, done: 4 }))).rejects.toSatisfy(isConflict);
  expect((await tables.get(Work, "works", "one"))?.done).toBe(10);
});

test("the lease of a kind of work without a heartbeat is not written automatically", async () => {
  const kind = {
    entity: Work,
    leaseMs: MINUTE_MS,
    heartbeatMs: undefined,
    isLeased: () => true,
    take: () => ({ done: 0 }),
  };
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  const leased = await takeLease(tables, kind, { partitionKey: "works", rowKey: "quiet" }, "worker");
  if (!leased || "waitMs" in leased) throw new Error("The row is not leased.");
  const { etag } = leased.row;
  vi.advanceTimersByTime(10 * MINUTE_MS);
  // `end` waits for a renewal in progress, and passes the row as last written.
  await leased.end(async (row) => expect(row.etag).toBe(etag));
});
