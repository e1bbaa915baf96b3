import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { parseCrontab } from "../ncrontab.ts";
import { parseSchedule, parseTimeSpan } from "../schedule.ts";

interface Vector {
  expression: string;
  from: string;
  next?: string[];
  error?: true;
}

const vectors: Vector[] = JSON.parse(
  readFileSync(new URL("../../../test/vectors/ncrontab.json", import.meta.url), "utf8"),
);

describe("NCRONTAB results match the timer trigger's parser", () => {
  it.each(vectors.map((vector) => [`"${vector.expression}" from ${vector.from}`, vector] as const))(
    "%s",
    (_, vector) => {
      if (vector.error) {
        expect(() => parseCrontab(vector.expression)).toThrow();
        return;
      }
      const crontab = parseCrontab(vector.expression);
      const found: string[] = [];
      let base = new Date(vector.from);
      for (let i = 0; i < 5; i += 1) {
        const next = crontab.next(base);
        if (next === undefined) break;
        found.push(next.toISOString().replace(".000Z", "Z"));
        base = next;
      }
      expect(found).toEqual(vector.next);
    },
  );
});

describe("a schedule that is not NCRONTAB", () => {
  const now = new Date("2026-01-01T00:00:00Z");

  it("is read as a TimeSpan, counted from the base", () => {
    expect(parseSchedule("00:05:00", now).next(now)).toEqual(new Date("2026-01-01T00:05:00Z"));
    expect(parseSchedule("1.00:00:00", now).next(now)).toEqual(new Date("2026-01-02T00:00:00Z"));
  });

  it.each(["", "25:00:00", "00:00:00", "tomorrow"])("is rejected when it is not a TimeSpan either: %j", (text) => {
    expect(() => parseSchedule(text, now)).toThrow();
  });

  it("has no stored status when it fires more than once a minute", () => {
    expect(parseSchedule("*/10 * * * * *", now).frequent).toBe(true);
    expect(parseSchedule("0 * * * * *", now).frequent).toBe(false);
    expect(parseSchedule("00:00:30", now).frequent).toBe(true);
  });

  it("can be a TimeSpan with fractions and a sign", () => {
    expect(parseTimeSpan("00:00:01.5")).toBe(1500);
    expect(parseTimeSpan("-00:00:01")).toBe(-1000);
  });
});
