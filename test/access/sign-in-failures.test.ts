import { afterAll, beforeAll, expect, test } from "vitest";
import { createSignInFailures } from "../../shared/access/sign-in-failures.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

// Tests of the stored counts of failed sign-ins.

let azurite: TestStorage;
beforeAll(async () => {
  azurite = await openStorage();
});
afterAll(() => azurite?.stop());

// A row's key starts with the username's hash and `|`. Here the hash is the username itself, so the rows are in a known order.
test("clearing the failures of one username does not affect usernames whose rows are next to it", async () => {
  const clock = { now: () => new Date("2026-11-21T10:00:00.000Z") };
  const tables = createTables({ connectionString: azurite.connectionString() });
  const failures = createSignInFailures({ tables, clock, hash: (text) => text });
  const [previousUser, user, nextUser] = ["a1", "a2", "a3"] as const;
  // Counts failed attempts until the username is locked.
  for (const username of [previousUser, user, nextUser])
    for (let isLocked = false; !isLocked; )
      isLocked = "waitSeconds" in (await failures.begin({ username, address: "203.0.113.9", isKnownAddress: false }));
  const lockedStates = async () =>
    await Promise.all(
      [previousUser, user, nextUser].map(async (username) => (await failures.lockedUntil(username)) !== undefined),
    );
  expect(await lockedStates()).toEqual([true, true, true]);
  await failures.clear(user);
  expect(await lockedStates()).toEqual([true, false, true]);
});
