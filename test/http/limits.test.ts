import { afterAll, beforeAll, expect, test } from "vitest";
import * as z from "zod";
import { parse } from "../../shared/platform/http/parse-request.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { createRateLimiter } from "../../shared/platform/http/rate-limit.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";

let azurite: TestStorage;
let proxy: TableProxy;
beforeAll(async () => {
  azurite = await openStorage();
  proxy = await startTableProxy(azurite.connectionString());
});
afterAll(async () => {
  await proxy?.stop();
  await azurite?.stop();
});

// Amounts of data that must stay bounded whatever a caller sends: the row of the rate limit, and the errors of a problem.

test("without an hourly limit, a caller's row contains the calls of one minute and does not grow", async () => {
  let nowMs = Date.parse("2026-11-21T10:00:00.000Z");
  const limiter = createRateLimiter({
    tables: createTables({ connectionString: proxy.connectionString }),
    clock: { now: () => new Date(nowMs) },
    limits: { perMinute: 500, perHour: 0 },
    name: "calls",
  });
  /** For each minute, the size of its largest write. */
  const largestWritesBytes: number[] = [];
  for (let minute = 0; minute < 5; minute++) {
    const decisions = await Promise.all(Array.from({ length: 501 }, () => limiter.take("user:busy")));
    expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(500);
    largestWritesBytes.push(Math.max(...proxy.requests.splice(0).map((request) => request.bytes)));
    nowMs += MINUTE_MS;
  }
  expect(Math.max(...largestWritesBytes)).toBe(largestWritesBytes[0]);
});

test("a problem document lists at most 100 errors", () => {
  const body = Object.fromEntries(Array.from({ length: 5000 }, (_, index) => [`member${index}`, 1]));
  try {
    parse(z.strictObject({}), body, "body");
    expect.unreachable();
  } catch (error) {
    expect(error).toBeInstanceOf(Problem);
    expect((error as Problem).errors).toHaveLength(100);
  }
});
