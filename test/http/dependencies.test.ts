import { expect, test } from "vitest";
import { createHealth } from "../../functions/health.ts";
import { SECOND_MS } from "../../shared/platform/time.ts";

// `GET /health?deep=true` checks the services that the process depends on.
test("deep health checks each dependency at most once in ten seconds and names each error", async () => {
  /** Names of the checked dependencies, in order. */
  const checks: string[] = [];
  let nowMs = Date.parse("2026-11-21T10:00:00Z");
  let queuesFail = false;
  const simulateDependency = (name: string) => async () => {
    checks.push(name);
    if (queuesFail && name === "queues") throw new Error("connection refused");
    return undefined;
  };
  const health = createHealth({
    tables: simulateDependency("tables"),
    queues: simulateDependency("queues"),
    identity: { describe: simulateDependency("identity") } as never,
    resourceManager: { subscriptions: simulateDependency("resourceManager") } as never,
    clock: { now: () => new Date(nowMs) },
  });
  const dependencies = ["tables", "queues", "identity", "resourceManager"];
  expect((await health.check()).map(({ name, status }) => `${name} ${status}`)).toEqual(
    dependencies.map((name) => `${name} healthy`),
  );
  // For ten seconds, the results are returned from memory, so the failing queues are not noticed yet.
  nowMs += 10 * SECOND_MS;
  queuesFail = true;
  await health.check();
  expect(checks).toEqual(dependencies);
  nowMs += 1;
  expect(await health.check()).toEqual(
    dependencies.map((name) => ({
      name,
      status: name === "queues" ? "unhealthy" : "healthy",
      ...(name === "queues" && { detail: "connection refused" }),
      milliseconds: expect.any(Number),
    })),
  );
  expect(checks).toEqual([...dependencies, ...dependencies]);
});
