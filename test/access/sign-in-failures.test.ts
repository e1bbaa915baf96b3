import { afterAll, beforeAll, expect, test } from "vitest";
import { createSignInFailures } from "../../shared/access/sign-in-failures.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

let azurite: TestStorage;
beforeAll(async () => {
  azurite = await openStorage();
});
afterAll(() => azurite?.stop());

test("reading and clearing the failures of one username does not affect others with neighboring rows", async () => {
  const clock = { now: () => new Date("2026-11-21T10:00:00.000Z") };
  const tables = createTables({ connectionString: azurite.connectionString() });
  const failures = createSignInFailures({ tables, clock, hash: (text) => text });
  const [before, user, after] = ["a1", "a2", "a3"] as const;
  for (const username of [before, user, after])
    for (let waits = false; !waits; )
      waits = "waitSeconds" in (await failures.begin({ username, address: "203.0.113.9", known: false }));
  const locked = async () =>
    await Promise.all([before, user, after].map(async (one) => (await failures.lockedUntil(one)) !== undefined));
  expect(await locked()).toEqual([true, true, true]);
  await failures.clear(user);
  expect(await locked()).toEqual([true, false, true]);
});
