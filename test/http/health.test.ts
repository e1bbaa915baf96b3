import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { createHealth } from "../../functions/health.ts";
import { SECOND_MS } from "../../shared/platform/time.ts";
import { ADMIN, Service } from "../support/service.ts";
import { makeToken } from "../support/users.ts";

/*
 * `GET /health` only says that the process answers. `GET /health?deep=true`, here "deep health", also checks each service that
 * the process depends on.
 */

let service: Service;
beforeAll(async () => {
  // The harness may use one of these six calls to read the OpenAPI document.
  service = await Service.start({ env: { RATE_LIMIT_PER_MINUTE: "6" } });
  await service.signIn(ADMIN);
});
afterAll(() => service.stop());

const getDeepHealth = (headers: Record<string, string> = {}) => service.call("GET", "/health?deep=true", { headers });

describe("deep health", () => {
  test("needs a token, and calls without a valid token are limited and recorded in the audit log", async () => {
    const withoutToken = await getDeepHealth();
    expect([withoutToken.status, withoutToken.body.code, withoutToken.headers.get("www-authenticate")]).toEqual([
      401,
      "unauthorized",
      "Bearer",
    ]);
    const remainingCalls = Number(withoutToken.headers.get("ratelimit-remaining"));
    expect(remainingCalls).toBeGreaterThanOrEqual(4);
    // Uses up the remaining calls of the minute.
    const invalidHeaders = ["Bearer nonsense", "Bearer", "Basic YTpi", "nonsense", "Bearer a.b.c"].slice(
      0,
      remainingCalls,
    );
    for (const Authorization of invalidHeaders) {
      const rejected = await getDeepHealth({ Authorization });
      expect([rejected.status, rejected.body.code]).toEqual([401, "unauthorized"]);
      expect(rejected.headers.get("www-authenticate")).toBe('Bearer error="invalid_token"');
      expect(rejected.headers.get("ratelimit-limit")).toBe("6");
    }
    const overLimit = await getDeepHealth();
    expect([overLimit.status, overLimit.body.code]).toEqual([429, "rateLimited"]);
    // Monitors call plain health without a limit.
    expect((await service.call("GET", "/health")).status).toBe(200);
    const token = await makeToken(service, "admin");
    const { body } = await service.call("GET", "/audit/entries?event_type=access.refused", { token });
    expect(body.items).toMatchObject([
      { actor: "anonymous", target: { id: "GET /health" }, details: { code: "unauthorized" }, count: remainingCalls },
    ]);
  });

  test("returns the status of each dependency", async () => {
    const { body } = await getDeepHealth({ Authorization: `Bearer ${await makeToken(service, "admin")}` });
    expect(body.status).toBe("healthy");
    const names = body.dependencies.map(({ name }: { name: string }) => name);
    expect(names).toEqual([
      "tables",
      "queues",
      "identity",
      "resourceManager",
      "serviceKeyVault",
      "appConfiguration",
      "mail",
    ]);
  });
});

test("the checks are repeated after ten seconds, and report response times, errors and timeouts", async () => {
  vi.useFakeTimers({ toFake: ["performance", "setTimeout", "clearTimeout"] });
  let nowMs = Date.parse("2026-11-21T10:00:00Z");
  let checkCount = 0;
  /** Simulates a dependency that responds after this time. */
  const respondAfter = async (milliseconds: number) => {
    checkCount++;
    await new Promise((resolve) => setTimeout(resolve, milliseconds));
  };
  try {
    // The fake clock starts at 0, and a response time must not be the time since then.
    await vi.advanceTimersByTimeAsync(5_000);
    const { check } = createHealth({
      tables: () => respondAfter(1_234),
      queues: async () => {
        await respondAfter(20);
        throw new Error("no".repeat(300));
      },
      identity: { describe: () => respondAfter(9_999) } as never,
      resourceManager: { subscriptions: () => respondAfter(10_001) } as never,
      mail: { outcome: async () => ({ reason: "The service refuses it." }) } as never,
      clock: { now: () => new Date(nowMs) },
    });
    const firstResults = check();
    await vi.advanceTimersByTimeAsync(10_000);
    // Error texts are cut to 500 characters.
    expect(await firstResults).toEqual([
      { name: "tables", status: "healthy", milliseconds: 1_234 },
      { name: "queues", status: "unhealthy", detail: "no".repeat(250), milliseconds: 20 },
      { name: "identity", status: "healthy", milliseconds: 9_999 },
      { name: "resourceManager", status: "unhealthy", detail: "no response within 10 seconds", milliseconds: 10_000 },
      { name: "mail", status: "unhealthy", detail: "The service refuses it.", milliseconds: 0 },
    ]);
    // After exactly ten seconds, the results are still returned from memory.
    nowMs += 10 * SECOND_MS;
    void check();
    // The mail is not counted.
    expect(checkCount).toBe(4);
    nowMs += 1;
    const newResults = check();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await newResults).toHaveLength(5);
    expect(checkCount).toBe(8);
  } finally {
    vi.useRealTimers();
  }
});
