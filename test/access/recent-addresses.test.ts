import { expect, test } from "vitest";
import { createRecentAddresses } from "../../shared/access/recent-addresses.ts";

test("the least recently used address is removed when there are too many", () => {
  const recentAddresses = createRecentAddresses();
  for (let index = 0; index < 1_000; index++) recentAddresses.add(`address ${index}`);
  recentAddresses.add("address 0");
  recentAddresses.add("another");
  expect(["address 0", "address 1", "address 2", "another"].map(recentAddresses.has)).toEqual([
    true,
    false,
    true,
    true,
  ]);
});
