import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readHistory, recordDay } from "../../shared/compliance/history.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { openFixture } from "./compliance-fixture.ts";

let storage: TestStorage;
beforeAll(async () => {
  storage = await openStorage();
});
afterAll(() => storage.stop());

test("a day's score is stored where every version stored it, so that an upgrade loses none", async () => {
  const connectionString = storage.connectionString();
  const tables = createTables({ connectionString });
  const { compliance } = openFixture(connectionString);
  const [score, framework] = await Promise.all([compliance.score(), compliance.framework("cis-azure-6.0.0")]);
  await recordDay(tables, new Date("2026-11-20T23:00:00Z"), { ...score, score: 71.5 }, [framework]);
  const stored = TableClient.fromConnectionString(connectionString, "Compliance", { allowInsecureConnection: true });
  expect(await stored.getEntity("history", "2026-11-20")).toMatchObject({ date: "2026-11-20", score: 71.5 });

  const history = await readHistory(tables, 2, new Date("2026-11-21T10:00:00Z"), { ...score, score: 80 });
  expect(history.map((day) => [day.date, day.score])).toEqual([
    ["2026-11-20", 71.5],
    ["2026-11-21", 80],
  ]);
  const ofFramework = await readHistory(
    tables,
    2,
    new Date("2026-11-21T10:00:00Z"),
    { ...framework, score: 80 },
    "cis-azure-6.0.0",
  );
  expect(ofFramework.map((day) => day.score)).toEqual([framework.score, 80]);
});
