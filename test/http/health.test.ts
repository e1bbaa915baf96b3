import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { createHealth } from "../../functions/health.ts";
import { ADMIN, Service } from "../support/service.ts";
import { makeToken } from "../support/users.ts";

let service: Service;
beforeAll(async () => {
  // Reading the OpenAPI description may be one of these six calls from this address, if no other file has read it.
  service = await Service.start({ env: { RATE_LIMIT_PER_MINUTE: "6" } });
  await service.signIn(ADMIN);
});
afterAll(() => service.stop());

const deep = (headers: Record<string, string> = {}) => service.call("GET", "/health?deep=true", { headers });
const bearer = async () => ({ Authorization: `Bearer ${await makeToken(service, "admin")}` });

describe("deep health", () => {
  test("needs a token, counts each call, and records an invalid token in the audit log", async () => {
    const none = await deep();
    expect([none.status, none.body.code, none.headers.get("www-authenticate")]).toEqual([
      401,
      "unauthorized",
      "Bearer",
    ]);
    const left = Number(none.headers.get("ratelimit-remaining"));
    expect(left).toBeGreaterThanOrEqual(4);
    const wrong = ["Bearer nonsense", "Bearer", "Basic YTpi", "nonsense", "Bearer a.b.c"].slice(0, left);
    for (const Authorization of wrong) {
      const bad = await deep({ Authorization });
      expect([bad.status, bad.body.code]).toEqual([401, "unauthorized"]);
      expect(bad.headers.get("www-authenticate")).toBe('Bearer error="invalid_token"');
      expect(bad.headers.get("ratelimit-limit")).toBe("6");
    }
    const over = await deep();
    expect([over.status, over.body.code]).toEqual([429, "rateLimited"]);
    // Monitors call plain health without a limit.
    expect((await service.call("GET", "/health")).status).toBe(200);
    const token = await makeToken(service, "admin");
    const { body } = await service.call("GET", "/audit/entries?event_type=access.refused", { token });
    expect(body.items).toMatchObject([
      { actor: "anonymous", target: { id: "GET /health" }, details: { code: "unauthorized" }, count: left },
    ]);
  });

  test("returns the status of each dependency to any role", async () => {
    const whole = await deep(await bearer());
    expect(whole.body.status).toBe("healthy");
    const names = whole.body.dependencies.map(({ name }: { name: string }) => name);
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

test("each dependency is checked once in ten seconds, with its response time and the error or timeout", async () => {
  vi.useFakeTimers({ toFake: ["performance", "setTimeout", "clearTimeout"] });
  const at = { now: Date.parse("2026-11-21T10:00:00Z") };
  let asked = 0;
  const within = async (milliseconds: number) => {
    asked++;
    await new Promise((resolve) => setTimeout(resolve, milliseconds));
  };
  try {
    await vi.advanceTimersByTimeAsync(5_000);
    const { check } = createHealth({
      tables: () => within(1_234),
      queues: async () => {
        await within(20);
        throw new Error("no".repeat(300));
      },
      identity: { describe: () => within(9_999) } as never,
      resourceManager: { subscriptions: () => within(10_001) } as never,
      mail: { outcome: async () => ({ reason: "The service refuses it." }) } as never,
      clock: { now: () => new Date(at.now) },
    });
    const first = check();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await first).toEqual([
      { name: "tables", status: "healthy", milliseconds: 1_234 },
      { name: "queues", status: "unhealthy", detail: "no".repeat(250), milliseconds: 20 },
      { name: "identity", status: "healthy", milliseconds: 9_999 },
      { name: "resourceManager", status: "unhealthy", detail: "no response within 10 seconds", milliseconds: 10_000 },
      { name: "mail", status: "unhealthy", detail: "The service refuses it.", milliseconds: 0 },
    ]);
    at.now += 10_000;
    void check();
    expect(asked).toBe(4);
    at.now += 1;
    const again = check();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await again).toHaveLength(5);
    expect(asked).toBe(8);
  } finally {
    vi.useRealTimers();
  }
});
