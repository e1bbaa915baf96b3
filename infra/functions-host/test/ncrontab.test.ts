import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { parseCrontab } from "../ncrontab.ts";
import { parseSchedule, parseTimeSpan } from "../schedule.ts";

/**
 * A recorded result of the platform's timer library for one schedule in NCRONTAB, a cron format with a leading field for
 * seconds.
 */
interface Vector {
  expression: string;
  /** Time from which the occurrences were computed. */
  from: string;
  /** The first occurrences after `from`: five, or fewer if the schedule has no more. */
  next?: string[];
  /** Set if the library rejects the expression. */
  error?: true;
}

const RECORDED_OCCURRENCES = 5;

const vectors: Vector[] = JSON.parse(
  readFileSync(new URL("../../../test/vectors/ncrontab.json", import.meta.url), "utf8"),
);

describe("the occurrences of an NCRONTAB schedule match the recorded results of the platform's library", () => {
  it.each(vectors.map((vector) => [`"${vector.expression}" from ${vector.from}`, vector] as const))(
    "%s",
    (_, vector) => {
      if (vector.error) {
        expect(() => parseCrontab(vector.expression)).toThrow();
        return;
      }
      const crontab = parseCrontab(vector.expression);
      const occurrences: string[] = [];
      let base = new Date(vector.from);
      for (let i = 0; i < RECORDED_OCCURRENCES; i += 1) {
        const next = crontab.next(base);
        if (next === undefined) break;
        occurrences.push(next.toISOString().replace(".000Z", "Z"));
        base = next;
      }
      expect(occurrences).toEqual(vector.next);
    },
  );
});

describe("a timer schedule", () => {
  const startOfYear = new Date("2026-01-01T00:00:00Z");

  it("can be a TimeSpan, which is the interval from one occurrence to the next", () => {
    expect(parseSchedule("00:05:00", startOfYear).next(startOfYear)).toEqual(new Date("2026-01-01T00:05:00Z"));
    expect(parseSchedule("1.00:00:00", startOfYear).next(startOfYear)).toEqual(new Date("2026-01-02T00:00:00Z"));
  });

  it.each(["", "25:00:00", "00:00:00", "tomorrow"])(
    "is rejected if it is neither NCRONTAB nor a TimeSpan above zero: %j",
    (text) => {
      expect(() => parseSchedule(text, startOfYear)).toThrow();
    },
  );

  it("is frequent if it fires more than once a minute", () => {
    expect(parseSchedule("*/10 * * * * *", startOfYear).frequent).toBe(true);
    expect(parseSchedule("0 * * * * *", startOfYear).frequent).toBe(false);
    expect(parseSchedule("00:00:30", startOfYear).frequent).toBe(true);
  });

  it("can be a TimeSpan with fractions of a second or a sign", () => {
    expect(parseTimeSpan("00:00:01.5")).toBe(1500);
    expect(parseTimeSpan("-00:00:01")).toBe(-1000);
  });
});
