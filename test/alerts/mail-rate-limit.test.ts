import { expect, test } from "vitest";
import { rateLimitText, withSent } from "../../shared/alerts/mail-rate-limit.ts";
import { HOUR_MS } from "../../shared/platform/time.ts";

// `withSent` adds a mail to the times of sent mails (milliseconds).
test("times of sent mails are kept for an hour and in order, even if the clock is set back", () => {
  expect(withSent([], 7_000)).toEqual([7_000]);
  expect(withSent([1_000, 5_000], 4_000)).toEqual([1_000, 5_000, 5_000]);
  expect(withSent([1_000, 5_000], 1_000 + HOUR_MS)).toEqual([5_000, 1_000 + HOUR_MS]);
});

test.each([
  [{ perMinute: 5, perHour: 10 }, "5 mails per minute and 10 per hour"],
  [{ perMinute: 5, perHour: 0 }, "5 mails per minute"],
  [{ perMinute: 0, perHour: 10 }, "10 mails per hour"],
])("the limits %j are shown as %s", (limits, text) => {
  expect(rateLimitText(limits)).toBe(text);
});
