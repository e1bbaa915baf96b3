/*
 * A vault's lists don't show every change of keys and certificates. So a scheduled full scan reads the details of a seventh of
 * them each day (the assets are divided into seven parts by a hash of the name). Tests: which sevenths are due, and when
 * changes are found.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ALL_SEVENTHS, dueSevenths } from "../../shared/inventory/details.ts";
import type { ReadSevenths } from "../../shared/inventory/vault.ts";
import { DAY_MS, HOUR_MS } from "../../shared/platform/time.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { runWeek, WHOLE_WEEK } from "../support/scan-week.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { UNLISTED_CHANGES } from "../support/week-changes.ts";

let storage: TestStorage;
beforeAll(async () => {
  storage = await openStorage(["week", "services"]);
});
afterAll(() => storage?.stop());

describe("the sevenths that a scheduled full scan reads", () => {
  const SUNDAY = Date.parse("2026-11-22T01:30:00Z");
  /**
   * Simulates daily full scans. Returns how often each seventh is read, and the longest time in days between two reads.
   *
   * @param skip - Returns whether there is no scan on this day.
   * @param first - Time of an earlier scan that read all sevenths.
   */
  function simulateScans(
    refreshDays: number,
    days: number,
    skip: (day: number) => boolean = () => false,
    first = SUNDAY,
  ) {
    let read: ReadSevenths = [...ALL_SEVENTHS].map(() => [first / 1000, ""]);
    const times = new Array<number>(7).fill(0);
    let longest = 0;
    for (let day = 1; day <= days; day++) {
      if (skip(day)) continue;
      // Scans start with a delay of up to five minutes. A prime number makes it vary from day to day.
      const now = SUNDAY + day * DAY_MS + ((day * 7919) % 300) * 1000;
      const due = dueSevenths(read, now, refreshDays);
      read = read.map(([readAt], seventh) => {
        if (!due.has(seventh)) return [readAt, ""];
        times[seventh]!++;
        longest = Math.max(longest, (now - readAt * 1000) / DAY_MS);
        return [now / 1000, ""];
      });
    }
    return { times, longest: Math.round(longest * 100) / 100 };
  }

  // Refresh period, simulated days, smallest and largest number of reads of each seventh.
  test.each([
    [1, 28, 28, 28],
    [3, 28, 9, 14],
    [7, 28, 4, 4],
    [30, 280, 9, 10],
  ])(
    "for a refresh period of %i days, in %i days, are read between %i and %i times each",
    (refreshDays, days, least, most) => {
      const { times, longest } = simulateScans(refreshDays, days);
      expect(Math.min(...times)).toBeGreaterThanOrEqual(least);
      expect(Math.max(...times)).toBeLessThanOrEqual(most);
      expect(longest).toBeLessThanOrEqual(refreshDays + 0.01);
    },
  );

  test("include those of skipped days", () => {
    expect(simulateScans(7, 28, (day) => day === 9 || day === 10).longest).toBeCloseTo(9, 1);
    expect(simulateScans(7, 28, (day) => day % 7 !== 0)).toMatchObject({ times: [4, 4, 4, 4, 4, 4, 4] });
  });

  test("stay within the refresh period after a requested scan at any hour", () => {
    for (let hour = 0; hour < 24; hour++) {
      const { longest } = simulateScans(7, 28, undefined, SUNDAY + hour * HOUR_MS);
      // Allows for the hour within which a scan may reach a vault.
      expect(longest, `${hour} h`).toBeLessThanOrEqual(7 + 1 / 24);
    }
  });

  test("are all sevenths if the times of the last reads are unknown", () => {
    expect(dueSevenths(undefined, SUNDAY, 7)).toBe(ALL_SEVENTHS);
  });
});

/** The simulated week. A campaign simulates one with 500 changes. */
const WEEK = IS_CAMPAIGN ? WHOLE_WEEK : { vaults: 2, secrets: 16, keys: 10, certificates: 10, changes: 45 };
/** A change that no list shows must be found within this time. */
const MAX_DAYS_TO_FIND = 7;

test(`each of ${WEEK.changes} changes in a week is found in time, with at most 55% of all reads`, async () => {
  const { seen, unseen, operations, whole } = await runWeek({
    connectionString: storage.connectionString("week"),
    ...WEEK,
  });
  console.log(`${operations} operations of Key Vault, ${whole} read whole: ${(operations / whole).toFixed(3)}`, seen);
  expect(unseen).toEqual([]);
  for (const [kind, { made, longestHours }] of Object.entries(seen)) {
    // The nine kinds of changes take turns.
    expect(made, kind).toBeGreaterThanOrEqual(Math.floor(WEEK.changes / 9));
    expect(longestHours, kind).toBeLessThanOrEqual(UNLISTED_CHANGES.includes(kind) ? MAX_DAYS_TO_FIND * 24 : 6);
  }
  expect(operations / whole).toBeLessThanOrEqual(0.55);
}, 900_000);
