import { expect, test } from "vitest";
import { createHealth } from "../../functions/health.ts";

test("deep health checks each dependency at most once in ten seconds and names each error", async () => {
  const asked: string[] = [];
  let now = Date.parse("2026-11-21T10:00:00Z");
  let broken = false;
  const ask = (name: string) => async () => {
    asked.push(name);
    if (broken && name === "queues") throw new Error("connection refused");
    return undefined;
  };
  const health = createHealth({
    tables: ask("tables"),
    queues: ask("queues"),
    identity: { describe: ask("identity") } as never,
    resourceManager: { subscriptions: ask("resourceManager") } as never,
    clock: { now: () => new Date(now) },
  });
  const four = ["tables", "queues", "identity", "resourceManager"];
  expect((await health.check()).map(({ name, status }) => `${name} ${status}`)).toEqual(
    four.map((name) => `${name} healthy`),
  );
  now += 10_000;
  broken = true;
  await health.check();
  expect(asked).toEqual(four);
  now += 1;
  expect(await health.check()).toEqual(
    four.map((name) => ({
      name,
      status: name === "queues" ? "unhealthy" : "healthy",
      ...(name === "queues" && { detail: "connection refused" }),
      milliseconds: expect.any(Number),
    })),
  );
  expect(asked).toEqual([...four, ...four]);
});
