import { task, visit } from "./tasks-fixture.ts";

// Tasks of a person who fixes what an alert names. tasks.test.ts runs them.

task("a person finds an asset's page", async () => {
  const visitor = await visit("user", "/inventory/kv-shop.secret.db");
  await visitor.arrive("db");
  visitor.expectClicks(0);
});
