import { afterAll, beforeAll, expect, test } from "vitest";
import * as z from "zod";
import { leaseRow } from "../../shared/platform/runs/leased-row.ts";
import { isConflict } from "../../shared/platform/storage/conflict.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

const Work = entity("Works", z.object({ done: z.number() }));

let azurite: TestStorage;
let tables: Tables;
beforeAll(async () => {
  azurite = await openStorage(["runs"]);
  tables = createTables({ connectionString: azurite.connectionString() });
});
afterAll(() => azurite.stop());

test("a worker changes its leased row until another worker takes it over, and is then told to stop", async () => {
  const held = leaseRow(tables, Work, await tables.insert(Work, "works", "one", { done: 0 }));
  await Promise.all([held.change({ done: 1 }), held.change({ done: 2 })]);
  expect([held.row.done, held.signal.aborted]).toEqual([2, false]);
  await tables.replace(Work, { ...(await tables.get(Work, "works", "one"))!, done: 10 });
  await expect(held.change({ done: 3 })).rejects.toSatisfy(isConflict);
  expect(held.signal.aborted).toBe(true);
  await expect(held.end((row) => tables.replace(Work, { ...row, done: 4 }))).rejects.toSatisfy(isConflict);
  expect((await tables.get(Work, "works", "one"))?.done).toBe(10);
});
