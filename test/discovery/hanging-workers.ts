import { afterEach, beforeEach } from "vitest";

let ended = Promise.withResolvers<never>();
const workers: Promise<unknown>[] = [];

/** Waits until the test ends, then throws. */
export const untilTestEnds = (): Promise<never> => ended.promise;

/** Starts a worker that may hang in `untilTestEnds`. */
export function startHanging(work: Promise<unknown>): void {
  workers.push(work.catch(() => {}));
}

/** Ends the hanging workers after each test. Otherwise they renew their leases, over the network, while the process runs later files. */
export function endHangingWorkers(): void {
  beforeEach(() => {
    ended = Promise.withResolvers();
    ended.promise.catch(() => {});
  });
  afterEach(async () => {
    ended.reject(new Error("The test has ended."));
    await Promise.all(workers.splice(0));
  });
}
