import { expect, test } from "vitest";
import { createPace } from "../../shared/platform/http/pace.ts";

/*
 * A pace spaces out requests: each request takes a slot, and slots start at an even rate. Here a slot starts every 5 ms, and at
 * most 3 requests wait.
 */
test("each caller waits for the next free slot, and a caller that finds three waiting callers does not wait", async () => {
  let clockMs = 1000;
  const waitsMs: number[] = [];
  const pace = createPace({
    everyMs: 5,
    maxWaiting: 3,
    now: () => clockMs,
    wait: async (milliseconds) => void waitsMs.push(milliseconds),
  });
  /** Sends this number of concurrent callers, and returns the milliseconds of each caller that had to wait. */
  const waitsOfCallers = async (count: number) => {
    waitsMs.length = 0;
    await Promise.all(Array.from({ length: count }, () => pace.waitForSlot()));
    return [...waitsMs];
  };
  // The first slot is free.
  expect(await waitsOfCallers(1)).toEqual([]);
  // The next slots start 3 ms and 8 ms from here.
  clockMs += 2;
  expect(await waitsOfCallers(2)).toEqual([3, 8]);
  // Slots that passed unused are not saved up: one caller is served at once, three wait, and two find three waiting callers.
  clockMs += 100;
  expect(await waitsOfCallers(6)).toEqual([5, 10, 15]);
  // After 10 ms, the last of the three callers still waits for 5 ms.
  clockMs += 10;
  expect(await waitsOfCallers(1)).toEqual([10]);
  // A caller can take two slots.
  clockMs += 100;
  await pace.waitForSlot(2);
  expect(await waitsOfCallers(1)).toEqual([10]);
});
