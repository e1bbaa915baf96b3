import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { startHeartbeat } from "../../shared/platform/runs/heartbeat.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

// A heartbeat renews a lease at an interval. A renewal that takes longer than the interval delays the next one.
test("a heartbeat runs one renewal at a time, also after a failure, until it is stopped", async () => {
  const endRenewals: (() => void)[] = [];
  let [running, maxRunning, calls] = [0, 0, 0];
  const heartbeat = startHeartbeat(1000, async () => {
    calls++;
    maxRunning = Math.max(maxRunning, ++running);
    await new Promise<void>((resolve) => endRenewals.push(resolve));
    running--;
    if (calls === 1) throw new Error("refused");
  });
  await vi.advanceTimersByTimeAsync(3500);
  // The renewal that started after 1 s has not ended, so no other one has started.
  expect([calls, maxRunning]).toEqual([1, 1]);
  for (const expected of [2, 3]) {
    endRenewals.shift()!();
    await vi.advanceTimersByTimeAsync(0);
    expect([calls, maxRunning]).toEqual([expected, 1]);
  }
  let stopped = false;
  const stop = heartbeat.stop().then(() => {
    stopped = true;
  });
  await vi.advanceTimersByTimeAsync(5000);
  expect([calls, stopped]).toEqual([3, false]);
  endRenewals.shift()!();
  await stop;
  await vi.advanceTimersByTimeAsync(5000);
  expect(calls).toBe(3);
});
