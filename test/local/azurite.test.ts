import { afterAll, beforeAll, expect, test } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

/** An Azurite of its own, and accounts in the Azurite that test files share. Both implement `connectionString`. */
let azurite: Azurite;
let sharedStorage: TestStorage;

beforeAll(async () => {
  [azurite, sharedStorage] = await Promise.all([
    startAzurite({ accounts: ["one", "two"] }),
    openStorage(["one", "two"]),
  ]);
});
afterAll(() => Promise.all([azurite?.stop(), sharedStorage?.stop()]));

test("connectionString returns the first account by default, and rejects unknown names and undefined", () => {
  const undefinedName = [][0] as unknown as string;
  for (const storage of [azurite, sharedStorage]) {
    expect(storage.connectionString()).toBe(storage.connectionString("one"));
    expect(storage.connectionString("two")).not.toBe(storage.connectionString("one"));
    for (const name of ["three", undefinedName])
      expect(() => storage.connectionString(name)).toThrow(`no account ${name}`);
  }
});
