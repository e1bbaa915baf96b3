import { once } from "node:events";
import { request } from "node:http";
import { text } from "node:stream/consumers";
import { TableClient } from "@azure/data-tables";
import type { RunningHost } from "functions-host/test/run-host.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createRateLimiter } from "../../shared/platform/http/rate-limit.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { ADMIN, Service } from "../support/service.ts";
import { createUsers, makeToken } from "../support/users.ts";

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
  const names = ["alternating", "forging", "parallel", "hourly", "one", "other", "counted", "unlimited"];
  await createUsers(
    service,
    names.map((username) => ({ username, password: "a password of their own", role: "user" })),
  );
});
afterAll(() => service.stop());

const ME = "/auth/me";
const me = (token: string, call: number, headers: Record<string, string> = {}) =>
  service.call("GET", hosts[call % hosts.length]!.url + ME, { token, headers });

/** Sends this number of calls, one after the other, from one loopback address, and returns the statuses. */
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
const times = (count: number, status: number): number[] => Array.from({ length: count }, () => status);

describe("sixty calls a minute", () => {
  test("are allowed over two hosts in turn, then Retry-After follows", async () => {
    const token = await makeToken(service, "alternating");
    for (let call = 0; call < 60; call++) {
      const { status, headers } = await me(token, call);
      expect([status, headers.get("ratelimit-limit")]).toEqual([200, "60"]);
      expect(headers.get("ratelimit-remaining")).toBe(String(59 - call));
      expect(Number(headers.get("ratelimit-reset"))).toBeLessThanOrEqual(60);
    }
    for (let call = 60; call < 64; call++) {
      const { status, headers, body } = await me(token, call);
      expect([status, body.code, headers.get("ratelimit-remaining")]).toEqual([429, "rateLimited", "0"]);
      expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
      expect(Number(headers.get("retry-after"))).toBeLessThanOrEqual(60);
    }
  });

  test("are counted per user, whatever addresses and tokens the calls send", async () => {
    const statuses = [];
    for (let call = 0; call < 62; call++) {
      const forged = { "X-Forwarded-For": `198.51.100.${call}`, "X-Client-IP": `203.0.113.${call}` };
      statuses.push((await me(await makeToken(service, "forging"), call, forged)).status);
    }
    expect(statuses).toEqual([...times(60, 200), ...times(2, 429)]);
  });

  test("are counted per address without a token, whatever addresses the calls send", async () => {
    expect(await callsFrom("127.0.0.2", 62)).toEqual([...times(60, 404), ...times(2, 429)]);
    expect(await callsFrom("127.0.0.3", 1)).toEqual([404]);
    // Monitors call health without a limit.
    expect(await callsFrom("127.0.0.2", 1, "/health")).toEqual([200]);
  });

  test("are counted per address with invalid tokens", async () => {
    const statuses = await Promise.all(
      Array.from({ length: 70 }, async (_, call) => (await me(`made.up.${call}`, call)).status),
    );
    // The test's own address has further calls.
    const refused = statuses.filter((status) => status === 429).length;
    expect(refused).toBeGreaterThanOrEqual(10);
    expect(statuses.filter((status) => status === 401).length).toBe(70 - refused);
  });

  test("are exact among 100 concurrent calls over two hosts", async () => {
    const token = await makeToken(service, "parallel");
    const answers = await Promise.all(Array.from({ length: 100 }, (_, call) => me(token, call)));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(60);
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(40);
  });

  test("of one user don't count for another user", async () => {
    const [one, other] = [await makeToken(service, "one"), await makeToken(service, "other")];
    for (let call = 0; call < 60; call++) await me(one, call);
    expect((await me(one, 0)).status).toBe(429);
    expect((await me(other, 0)).headers.get("ratelimit-remaining")).toBe("59");
  });
});

test("authentication and rate limit together need at most three table requests per call, on hosts that share a caller", async () => {
  const token = await makeToken(service, "counted");
  // Reads no table itself. The first calls fetch the identity's token and show the hosts that they share the caller.
  const call = (index: number) => service.call("GET", `${hosts[index % 2]!.url}/identity`, { token });
  for (let index = 0; index < 4; index++) await call(index);
  const costs = [];
  for (let index = 0; index < 10; index++) {
    const { status, tableRequests } = await call(index);
    expect(status).toBe(200);
    costs.push(tableRequests().length);
  }
  expect(Math.min(...costs)).toBeGreaterThan(0);
  expect(Math.max(...costs)).toBeLessThanOrEqual(3);
});

test("the hourly limit applies if the minute's limit is off; with both off there is no limit", async () => {
  const [hourly, unlimited] = await Promise.all([
    service.addHost({ RATE_LIMIT_PER_MINUTE: "0", RATE_LIMIT_PER_HOUR: "5" }),
    service.addHost({ RATE_LIMIT_PER_MINUTE: "0", RATE_LIMIT_PER_HOUR: "0" }),
  ]);
  const statuses = async (host: RunningHost, token: string, count: number) =>
    (await Promise.all(Array.from({ length: count }, () => service.call("GET", host.url + ME, { token })))).map(
      ({ status, headers }) => ({ status, limit: headers.get("ratelimit-limit") }),
    );
  const five = (await statuses(hourly, await makeToken(service, "hourly"), 6)).filter(({ status }) => status === 200);
  expect(five).toEqual(Array.from({ length: 5 }, () => ({ status: 200, limit: "5" })));
  const refused = await service.call("GET", hourly.url + ME, { token: await makeToken(service, "hourly") });
  expect(refused.status).toBe(429);
  expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(3500);

  const all = await statuses(unlimited, await makeToken(service, "unlimited"), 70);
  expect(all).toEqual(Array.from({ length: 70 }, () => ({ status: 200, limit: null })));
});

describe("the window slides", () => {
  // Long ago, so that removing older rows leaves the rows of other tests.
  const limiterAt = (name: string) => {
    const clock = { at: Date.parse("2020-11-21T10:00:00Z"), now: () => new Date(clock.at) };
    const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
    const tables = createTables({ connectionString: service.azurite.connectionString() }, { log });
    return { clock, limiter: createRateLimiter({ tables, clock, name, limits: { perMinute: 3, perHour: 5 } }) };
  };

  test("a call is free again after a minute, and rejected calls are not counted", async () => {
    const { clock, limiter } = limiterAt("sliding");
    const allowed = async () => (await limiter.take("somebody")).allowed;
    expect(await allowed()).toBe(true); // at 0 s
    clock.at += 20_000;
    expect([await allowed(), await allowed()]).toEqual([true, true]); // at 20 s
    for (let second = 20; second < 59; second++) {
      clock.at += 1_000;
      expect(await limiter.take("somebody")).toMatchObject({ allowed: false, retryAfterSeconds: 60 - second - 1 });
    }
    clock.at += 1_000; // 60 s: the first call's slot is free
    expect([await allowed(), await allowed()]).toEqual([true, false]);
    clock.at += 20_000; // 80 s: the slots of the next two calls are free, but the hourly limit allows one
    expect([await allowed(), await allowed()]).toEqual([true, false]);
    expect((await limiter.take("somebody")).retryAfterSeconds).toBe(3600 - 80);
    clock.at += (3600 - 80) * 1_000;
    expect([await allowed(), await allowed()]).toEqual([true, false]);
  });

  test("Retry-After is exact to the second and never too early", async () => {
    const { clock, limiter } = limiterAt("exact");
    const begin = clock.at;
    const counted = (remaining: number) => ({
      allowed: true,
      limit: 3,
      remaining,
      resetSeconds: 60,
      retryAfterSeconds: 0,
    });
    for (const remaining of [2, 1, 0]) expect(await limiter.take("somebody")).toEqual(counted(remaining));
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
      clock.at = begin + milliseconds;
      const refused = { allowed: false, limit: 3, remaining: 0, resetSeconds: seconds, retryAfterSeconds: seconds };
      expect([milliseconds, await limiter.take("somebody")]).toEqual([milliseconds, refused]);
    }
    clock.at = begin + 60_000;
    expect(await limiter.take("somebody")).toMatchObject({ allowed: true, limit: 5, remaining: 1 });
  });

  test("the row of a caller without a call for an hour is removed", async () => {
    const { clock, limiter } = limiterAt("clearing");
    const rows = async () => {
      const client = TableClient.fromConnectionString(service.azurite.connectionString(), "RateLimits", {
        allowInsecureConnection: true,
      });
      const keys = [];
      for await (const { rowKey } of client.listEntities()) if (rowKey?.includes("clearing")) keys.push(rowKey);
      return keys.map((key) => key.replace(/.*clearing[^a-z]*/, "")).sort();
    };
    await limiter.take("gone");
    clock.at += 30 * 60_000;
    await limiter.take("here");
    expect(await rows()).toEqual(["gone", "here"]);
    clock.at += 31 * 60_000;
    await limiter.cleanUp();
    expect(await rows()).toEqual(["here"]);
  });
});
