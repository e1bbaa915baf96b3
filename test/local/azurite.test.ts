import { afterAll, beforeAll, expect, test } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

let azurite: Azurite;
let opened: TestStorage;

beforeAll(async () => {
  [azurite, opened] = await Promise.all([startAzurite({ accounts: ["one", "two"] }), openStorage(["one", "two"])]);
});
afterAll(() => Promise.all([azurite?.stop(), opened?.stop()]));

test("connectionString returns the first account by default, and rejects unknown names and undefined", () => {
  const none = [][0] as unknown as string;
  for (const storage of [azurite, opened]) {
    expect(storage.connectionString()).toBe(storage.connectionString("one"));
    expect(storage.connectionString("two")).not.toBe(storage.connectionString("one"));
    for (const name of ["three", none]) expect(() => storage.connectionString(name)).toThrow(`no account ${name}`);
  }
});
