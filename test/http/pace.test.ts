import { expect, test } from "vitest";
import { createPace } from "../../shared/platform/http/pace.ts";

test("slots are evenly spaced, unused slots are not saved, and callers don't wait if too many wait already", async () => {
  let now = 1000;
  const waits: number[] = [];
  const pace = createPace({
    everyMs: 5,
    maxWaiting: 3,
    now: () => now,
    wait: async (milliseconds) => void waits.push(milliseconds),
  });
  const come = async (count: number) => {
    waits.length = 0;
    await Promise.all(Array.from({ length: count }, () => pace.waitForSlot()));
    return [...waits];
  };
  expect(await come(1)).toEqual([]);
  now += 2;
  expect(await come(2)).toEqual([3, 8]);
  now += 100;
  expect(await come(6)).toEqual([5, 10, 15]);
  now += 10;
  expect(await come(1)).toEqual([10]);
  now += 100;
  await pace.waitForSlot(2);
  expect(await come(1)).toEqual([10]);
});
