import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { startHeartbeat } from "../../shared/platform/runs/heartbeat.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test("a lease is renewed one call after the other, also after a failed renewal, until it is stopped", async () => {
  const ends: (() => void)[] = [];
  let [under, most, calls] = [0, 0, 0];
  const renewals = startHeartbeat(1000, async () => {
    calls++;
    most = Math.max(most, ++under);
    await new Promise<void>((resolve) => ends.push(resolve));
    under--;
    if (calls === 1) throw new Error("refused");
  });
  await vi.advanceTimersByTimeAsync(3500);
  expect([calls, most]).toEqual([1, 1]);
  for (const expected of [2, 3]) {
    ends.shift()!();
    await vi.advanceTimersByTimeAsync(0);
    expect([calls, most]).toEqual([expected, 1]);
  }
  let stopped = false;
  const stop = renewals.stop().then(() => {
    stopped = true;
  });
  await vi.advanceTimersByTimeAsync(5000);
  expect([calls, stopped]).toEqual([3, false]);
  ends.shift()!();
  await stop;
  await vi.advanceTimersByTimeAsync(5000);
  expect(calls).toBe(3);
});
