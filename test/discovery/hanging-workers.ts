/** Simulates crashed workers: they hang in a call until their test ends. */
import { afterEach, beforeEach } from "vitest";

let testEnd = Promise.withResolvers<never>();
const workers: Promise<unknown>[] = [];

/** Waits until the test ends, then throws. */
export const untilTestEnds = (): Promise<never> => testEnd.promise;

/** Starts a worker that may hang in `untilTestEnds`. */
export function startHanging(work: Promise<unknown>): void {
  workers.push(work.catch(() => {}));
}

/** Ends the hanging workers after each test. Otherwise they would renew their leases while later test files run. */
export function endHangingWorkers(): void {
  beforeEach(() => {
    testEnd = Promise.withResolvers();
    testEnd.promise.catch(() => {});
  });
  afterEach(async () => {
    testEnd.reject(new Error("The test has ended."));
    await Promise.all(workers.splice(0));
  });
}
