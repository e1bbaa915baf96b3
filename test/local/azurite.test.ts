import { afterAll, beforeAll, expect, test } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

let azurite: Azurite;
let opened: TestStorage;

beforeAll(async () => {
  [azurite, opened] = await Promise.all([startAzurite({ accounts: ["one", "two"] }), openStorage(["one", "two"])]);
});
afterAll(() => Promise.all([azurite?.stop(), opened?.stop()]));

test("no name means the first account, and a name that is none, such as one past the end of a list, is refused", () => {
  const none = [][0] as unknown as string;
  for (const storage of [azurite, opened]) {
    expect(storage.connectionString()).toBe(storage.connectionString("one"));
    expect(storage.connectionString("two")).not.toBe(storage.connectionString("one"));
    for (const name of ["three", none]) expect(() => storage.connectionString(name)).toThrow(`no account ${name}`);
  }
});
