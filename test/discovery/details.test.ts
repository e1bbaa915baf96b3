import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ALL_SEVENTHS, dueSevenths } from "../../shared/inventory/details.ts";
import type { ReadSevenths } from "../../shared/inventory/vault.ts";
import { DAY_MS, HOUR_MS } from "../../shared/platform/time.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { runWeek, UNTOLD, WHOLE_WEEK } from "../support/scan-week.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

/** Details that no list shows a change of: which of them scheduled full scans read, and when changes are found. */

let storage: TestStorage;
beforeAll(async () => {
  storage = await openStorage(["week", "services"]);
});
afterAll(() => storage?.stop());

describe("the sevenths that a scheduled full scan reads", () => {
  const SUNDAY = Date.parse("2026-11-22T01:30:00Z");
  /**
   * Returns how often each seventh is read in a number of days with a daily full scan, and the longest time between two
   * readings.
   */
  function readings(refreshDays: number, days: number, skip: (day: number) => boolean = () => false, first = SUNDAY) {
    let read: ReadSevenths = [...ALL_SEVENTHS].map(() => [first / 1000, ""]);
    const times = new Array<number>(7).fill(0);
    let longest = 0;
    for (let day = 1; day <= days; day++) {
      if (skip(day)) continue;
      // Scans start with a delay of up to five minutes.
      const now = SUNDAY + day * DAY_MS + ((day * 7919) % 300) * 1000;
      const due = dueSevenths(read, now, refreshDays);
      read = read.map(([at], seventh) => {
        if (!due.has(seventh)) return [at, ""];
        times[seventh]!++;
        longest = Math.max(longest, (now - at * 1000) / DAY_MS);
        return [now / 1000, ""];
      });
    }
    return { times, longest: Math.round(longest * 100) / 100 };
  }

  test.each([
    [1, 28, 28, 28],
    [3, 28, 9, 14],
    [7, 28, 4, 4],
    [30, 280, 9, 10],
  ])("with details of up to %i days: in %i days each between %i and %i times", (refreshDays, days, least, most) => {
    const { times, longest } = readings(refreshDays, days);
    expect(Math.min(...times)).toBeGreaterThanOrEqual(least);
    expect(Math.max(...times)).toBeLessThanOrEqual(most);
    expect(longest).toBeLessThanOrEqual(refreshDays + 0.01);
  });

  test("of days without a scan are read by the next scan", () => {
    expect(readings(7, 28, (day) => day === 9 || day === 10).longest).toBeCloseTo(9, 1);
    expect(readings(7, 28, (day) => day % 7 !== 0)).toMatchObject({ times: [4, 4, 4, 4, 4, 4, 4] });
  });

  test("keep the promised interval after a scan that a user started at any hour", () => {
    for (let hour = 0; hour < 24; hour++) {
      const { longest } = readings(7, 28, undefined, SUNDAY + hour * HOUR_MS);
      // Allows for the hour within which a scan may reach a vault.
      expect(longest, `${hour} h`).toBeLessThanOrEqual(7 + 1 / 24);
    }
  });

  test("are all sevenths if the last reading is unknown", () => {
    expect(dueSevenths(undefined, SUNDAY, 7)).toBe(ALL_SEVENTHS);
  });
});

/** A campaign runs a week with 500 changes. */
const WEEK = IS_CAMPAIGN ? WHOLE_WEEK : { vaults: 2, secrets: 16, keys: 10, certificates: 10, changes: 45 };
const PROMISED_DAYS = 7;

test(`in a week of ${WEEK.changes} changes each is found in the promised time, with little more than half of the operations`, async () => {
  const { seen, unseen, operations, whole } = await runWeek({
    connectionString: storage.connectionString("week"),
    ...WEEK,
  });
  console.log(`${operations} operations of Key Vault, ${whole} read whole: ${(operations / whole).toFixed(3)}`, seen);
  expect(unseen).toEqual([]);
  for (const [kind, { made, longestHours }] of Object.entries(seen)) {
    expect(made, kind).toBeGreaterThanOrEqual(Math.floor(WEEK.changes / 9));
    expect(longestHours, kind).toBeLessThanOrEqual(UNTOLD.includes(kind) ? PROMISED_DAYS * 24 : 6);
  }
  expect(operations / whole).toBeLessThanOrEqual(0.55);
}, 900_000);
