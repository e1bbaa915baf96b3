import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readHistory, recordDayScore } from "../../shared/compliance/history.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { openFixture } from "./compliance-fixture.ts";

/*
 * The score of each past day, stored for the trend in the UI and in reports (shared/compliance/history.ts). The scores 71.5 and
 * 80 are made up, so that they differ from the computed score.
 */

let storage: TestStorage;
beforeAll(async () => {
  storage = await openStorage();
});
afterAll(() => storage.stop());

test("a day's score is stored under its date, and the history ends with today's current score", async () => {
  const connectionString = storage.connectionString();
  const tables = createTables({ connectionString });
  const { compliance } = openFixture(connectionString);
  const [score, framework] = await Promise.all([compliance.score(), compliance.framework("cis-azure-6.0.0")]);
  await recordDayScore(tables, new Date("2026-11-20T23:00:00Z"), { ...score, score: 71.5 }, [framework]);
  const stored = TableClient.fromConnectionString(connectionString, "Compliance", { allowInsecureConnection: true });
  // Partition and row key. They must not change, because rows of earlier versions have them.
  expect(await stored.getEntity("history", "2026-11-20")).toMatchObject({ date: "2026-11-20", score: 71.5 });

  const history = await readHistory(tables, 2, new Date("2026-11-21T10:00:00Z"), { ...score, score: 80 });
  expect(history.map((day) => [day.date, day.score])).toEqual([
    ["2026-11-20", 71.5],
    ["2026-11-21", 80],
  ]);
  // The framework was stored above with its computed score.
  const frameworkHistory = await readHistory(
    tables,
    2,
    new Date("2026-11-21T10:00:00Z"),
    { ...framework, score: 80 },
    "cis-azure-6.0.0",
  );
  expect(frameworkHistory.map((day) => day.score)).toEqual([framework.score, 80]);
});
