import { once } from "node:events";
import { request } from "node:http";
import { text } from "node:stream/consumers";
import { TableClient } from "@azure/data-tables";
import type { RunningHost } from "functions-host/test/run-host.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createRateLimiter } from "../../shared/platform/http/rate-limit.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { ADMIN, Service } from "../support/service.ts";
import { createUsers, makeToken } from "../support/users.ts";

/*
 * Tests of the rate limit. The limits hold across all instances of the service, so the calls go to two hosts that share one
 * storage account. Each test has a user of its own, named after the test, so that tests don't use up each other's calls.
 */

let service: Service;
let hosts: RunningHost[];
beforeAll(async () => {
  // The limits are the service's defaults: 60 a minute, 1000 an hour.
  service = await Service.start({
    tableProxy: true,
    hosts: 2,
    env: { RATE_LIMIT_PER_MINUTE: "", RATE_LIMIT_PER_HOUR: "" },
  });
  hosts = [...service.hosts];
  await service.signIn(ADMIN);
  const usernames = ["alternating", "forging", "parallel", "hourly", "one", "other", "counted", "unlimited"];
  await createUsers(
    service,
    usernames.map((username) => ({ username, password: "a password of their own", role: "user" })),
  );
});
afterAll(() => service.stop());

const ME = "/auth/me";
/** Sends `GET /auth/me`. The number of the call selects the host, so that consecutive calls alternate between the hosts. */
const getMe = (token: string, callNumber: number, headers: Record<string, string> = {}) =>
  service.call("GET", hosts[callNumber % hosts.length]!.url + ME, { token, headers });

/**
 * Sends this number of calls without a token, one after the other, from one loopback address. Every call claims another
 * client address in its headers. Returns the statuses.
 */
async function callsFrom(localAddress: string, count: number, path = "/nothing"): Promise<number[]> {
  const statuses = [];
  for (let call = 0; call < count; call++) {
    const outgoing = request(hosts[call % hosts.length]!.url + path, {
      localAddress,
      headers: {
        "X-Forwarded-For": `198.51.100.${call}`,
        "X-Real-IP": `203.0.113.${call}`,
        Forwarded: `for=10.0.0.${call}`,
      },
    }).end();
    const [answer] = await once(outgoing, "response");
    await text(answer);
    statuses.push(answer.statusCode);
  }
  return statuses;
}
const repeated = (count: number, status: number): number[] => Array.from({ length: count }, () => status);

describe("sixty calls a minute", () => {
  test("are allowed for a user over two hosts, then calls are rejected with Retry-After", async () => {
    const token = await makeToken(service, "alternating");
    for (let call = 0; call < 60; call++) {
      const { status, headers } = await getMe(token, call);
      expect([status, headers.get("ratelimit-limit")]).toEqual([200, "60"]);
      expect(headers.get("ratelimit-remaining")).toBe(String(59 - call));
      expect(Number(headers.get("ratelimit-reset"))).toBeLessThanOrEqual(60);
    }
    for (let call = 60; call < 64; call++) {
      const { status, headers, body } = await getMe(token, call);
      expect([status, body.code, headers.get("ratelimit-remaining")]).toEqual([429, "rateLimited", "0"]);
      expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
      expect(Number(headers.get("retry-after"))).toBeLessThanOrEqual(60);
    }
  });

  test("are counted per user, whatever addresses and tokens the calls send", async () => {
    const statuses = [];
    for (let call = 0; call < 62; call++) {
      const forged = { "X-Forwarded-For": `198.51.100.${call}`, "X-Client-IP": `203.0.113.${call}` };
      statuses.push((await getMe(await makeToken(service, "forging"), call, forged)).status);
    }
    expect(statuses).toEqual([...repeated(60, 200), ...repeated(2, 429)]);
  });

  test("are counted per address without a token, whatever addresses the calls send", async () => {
    expect(await callsFrom("127.0.0.2", 62)).toEqual([...repeated(60, 404), ...repeated(2, 429)]);
    expect(await callsFrom("127.0.0.3", 1)).toEqual([404]);
    // Monitors call health without a limit.
    expect(await callsFrom("127.0.0.2", 1, "/health")).toEqual([200]);
  });

  test("are counted per address with invalid tokens", async () => {
    const statuses = await Promise.all(
      Array.from({ length: 70 }, async (_, call) => (await getMe(`made.up.${call}`, call)).status),
    );
    // Other calls of this file come from the same address and count too, so fewer than 60 of these calls may be allowed.
    const rejectedCalls = statuses.filter((status) => status === 429).length;
    expect(rejectedCalls).toBeGreaterThanOrEqual(10);
    expect(statuses.filter((status) => status === 401).length).toBe(70 - rejectedCalls);
  });

  test("are exact among 100 concurrent calls over two hosts", async () => {
    const token = await makeToken(service, "parallel");
    const answers = await Promise.all(Array.from({ length: 100 }, (_, call) => getMe(token, call)));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(60);
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(40);
  });

  test("of one user don't count for another user", async () => {
    const [tokenOfOne, tokenOfOther] = [await makeToken(service, "one"), await makeToken(service, "other")];
    for (let call = 0; call < 60; call++) await getMe(tokenOfOne, call);
    expect((await getMe(tokenOfOne, 0)).status).toBe(429);
    expect((await getMe(tokenOfOther, 0)).headers.get("ratelimit-remaining")).toBe("59");
  });
});

test("authentication and rate limit together need at most three table requests per call", async () => {
  const token = await makeToken(service, "counted");
  // The handler of `/identity` reads no table, so the counted requests belong to authentication and rate limit.
  const getIdentity = (callNumber: number) => service.call("GET", `${hosts[callNumber % 2]!.url}/identity`, { token });
  // After these calls, each host has the service identity's access token in its cache, and has noticed that the other host
  // counts calls of the same user.
  for (let call = 0; call < 4; call++) await getIdentity(call);
  const tableRequestCounts = [];
  for (let call = 0; call < 10; call++) {
    const { status, tableRequests } = await getIdentity(call);
    expect(status).toBe(200);
    tableRequestCounts.push(tableRequests().length);
  }
  expect(Math.min(...tableRequestCounts)).toBeGreaterThan(0);
  expect(Math.max(...tableRequestCounts)).toBeLessThanOrEqual(3);
});

describe("a limit of 0 is off", () => {
  /** Sends concurrent calls, and returns the status and the announced limit of each. */
  const callConcurrently = async (host: RunningHost, token: string, count: number) =>
    (await Promise.all(Array.from({ length: count }, () => service.call("GET", host.url + ME, { token })))).map(
      ({ status, headers }) => ({ status, limit: headers.get("ratelimit-limit") }),
    );

  test("the hourly limit applies without a limit per minute", async () => {
    const host = await service.addHost({ RATE_LIMIT_PER_MINUTE: "0", RATE_LIMIT_PER_HOUR: "5" });
    const answers = await callConcurrently(host, await makeToken(service, "hourly"), 6);
    const allowedAnswers = answers.filter(({ status }) => status === 200);
    expect(allowedAnswers).toEqual(Array.from({ length: 5 }, () => ({ status: 200, limit: "5" })));
    const rejected = await service.call("GET", host.url + ME, { token: await makeToken(service, "hourly") });
    expect(rejected.status).toBe(429);
    expect(Number(rejected.headers.get("retry-after"))).toBeGreaterThan(3500);
  });

  test("all calls are allowed with both limits off", async () => {
    const host = await service.addHost({ RATE_LIMIT_PER_MINUTE: "0", RATE_LIMIT_PER_HOUR: "0" });
    const answers = await callConcurrently(host, await makeToken(service, "unlimited"), 70);
    expect(answers).toEqual(Array.from({ length: 70 }, () => ({ status: 200, limit: null })));
  });
});

describe("the limiter's window slides", () => {
  /**
   * Creates a limiter of 3 calls a minute and 5 an hour, with a clock that the test moves. The clock starts in 2020, so that
   * `cleanUp`, which deletes older rows, deletes no row of the other tests.
   */
  const createLimiterWithClock = (name: string) => {
    const clock = { milliseconds: Date.parse("2020-11-21T10:00:00Z"), now: () => new Date(clock.milliseconds) };
    const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
    const tables = createTables({ connectionString: service.azurite.connectionString() }, { log });
    return { clock, limiter: createRateLimiter({ tables, clock, name, limits: { perMinute: 3, perHour: 5 } }) };
  };

  test("a call no longer counts after a minute, and rejected calls don't count", async () => {
    const { clock, limiter } = createLimiterWithClock("sliding");
    const isAllowed = async () => (await limiter.take("maria")).allowed;
    // At 0 s and at 20 s, the three calls of the minute are used up.
    expect(await isAllowed()).toBe(true);
    clock.milliseconds += 20_000;
    expect([await isAllowed(), await isAllowed()]).toEqual([true, true]);
    for (let second = 21; second < 60; second++) {
      clock.milliseconds += 1_000;
      expect(await limiter.take("maria")).toMatchObject({ allowed: false, retryAfterSeconds: 60 - second });
    }
    // At 60 s, the first call no longer counts.
    clock.milliseconds += 1_000;
    expect([await isAllowed(), await isAllowed()]).toEqual([true, false]);
    // At 80 s, the two calls of 20 s no longer count for the minute, but the hour has only one call left.
    clock.milliseconds += 20_000;
    expect([await isAllowed(), await isAllowed()]).toEqual([true, false]);
    expect((await limiter.take("maria")).retryAfterSeconds).toBe(3600 - 80);
    clock.milliseconds += (3600 - 80) * 1_000;
    expect([await isAllowed(), await isAllowed()]).toEqual([true, false]);
  });

  test("Retry-After is rounded up to the second in which the next call is allowed", async () => {
    const { clock, limiter } = createLimiterWithClock("exact");
    const startMs = clock.milliseconds;
    const allowedWith = (remaining: number) => ({
      allowed: true,
      limit: 3,
      remaining,
      resetSeconds: 60,
      retryAfterSeconds: 0,
    });
    for (const remaining of [2, 1, 0]) expect(await limiter.take("maria")).toEqual(allowedWith(remaining));
    for (const [milliseconds, seconds] of [
      [0, 60],
      [1, 60],
      [999, 60],
      [1_000, 59],
      [57_999, 3],
      [58_000, 2],
      [58_001, 2],
      [59_000, 1],
      [59_999, 1],
    ] as const) {
      clock.milliseconds = startMs + milliseconds;
      const rejected = { allowed: false, limit: 3, remaining: 0, resetSeconds: seconds, retryAfterSeconds: seconds };
      expect([milliseconds, await limiter.take("maria")]).toEqual([milliseconds, rejected]);
    }
    clock.milliseconds = startMs + 60_000;
    expect(await limiter.take("maria")).toMatchObject({ allowed: true, limit: 5, remaining: 1 });
  });

  test("the row of a caller without a call for an hour is removed", async () => {
    const { clock, limiter } = createLimiterWithClock("clearing");
    const storedCallers = async () => {
      const client = TableClient.fromConnectionString(service.azurite.connectionString(), "RateLimits", {
        allowInsecureConnection: true,
      });
      const keys = [];
      for await (const { rowKey } of client.listEntities()) if (rowKey?.includes("clearing")) keys.push(rowKey);
      return keys.map((key) => key.replace(/.*clearing[^a-z]*/, "")).sort();
    };
    await limiter.take("inactive");
    clock.milliseconds += 30 * MINUTE_MS;
    await limiter.take("recent");
    expect(await storedCallers()).toEqual(["inactive", "recent"]);
    clock.milliseconds += 31 * MINUTE_MS;
    await limiter.cleanUp();
    expect(await storedCallers()).toEqual(["recent"]);
  });
});
