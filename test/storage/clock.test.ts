import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { createStoreClock } from "../../shared/platform/storage/clock.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS } from "../../shared/platform/time.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

const Things = entity("Things", z.object({ name: z.string() }));

// The store's clock estimates the time of the storage service from the `Date` headers of its responses, because the clock of
// this process can be wrong.

describe("the store's clock", () => {
  let azurite: TestStorage;
  beforeAll(async () => {
    azurite = await openStorage();
  });
  afterAll(() => azurite.stop());

  test("returns the service's time although this process's own clock is an hour behind", async () => {
    const clock = createStoreClock();
    clock.adjust(Date.now() - HOUR_MS, performance.now(), performance.now());
    expect(Date.now() - clock.now().getTime()).toBeGreaterThan(HOUR_MS - 2000);
    const tables = createTables({ connectionString: azurite.connectionString() }, { clock });
    const started = performance.now();
    await tables.put(Things, "p", "r", { name: "x" });
    // A response's Date has whole seconds, and is as old as the request's duration at most.
    const toleranceMs = 2000 + performance.now() - started;
    expect(Math.abs(Date.now() - clock.now().getTime())).toBeLessThan(toleranceMs);
  });

  test("stays within the bounds that each response implies", () => {
    let monotonicMs = 0;
    const clock = createStoreClock(() => monotonicMs);
    // Arguments: the response's date, and the monotonic times of the request and the response.
    clock.adjust(1_000_000, 0, 100);
    expect(clock.now().getTime()).toBeGreaterThanOrEqual(1_000_000 - 100);
    expect(clock.now().getTime()).toBeLessThanOrEqual(1_000_000 + 1000);
    monotonicMs = 5000;
    const before = clock.now().getTime();
    clock.adjust(1_005_000, 4990, 5000);
    expect(Math.abs(clock.now().getTime() - before)).toBeLessThanOrEqual(1000);
    clock.adjust(Number.NaN, 5000, 5000);
    expect(Number.isFinite(clock.now().getTime())).toBe(true);
  });

  test("the age of a row is based on the service's time", async () => {
    const tables = createTables({ connectionString: azurite.connectionString() });
    await tables.put(Things, "p", "aged", { name: "x" });
    const aged = await tables.getWithAge(Things, "p", "aged");
    expect(aged?.row.name).toBe("x");
    expect(aged?.ageMs).toBeGreaterThan(-1000);
    expect(aged?.ageMs).toBeLessThan(60_000);
    expect(await tables.getWithAge(Things, "p", "missing")).toBeUndefined();
  });
});
