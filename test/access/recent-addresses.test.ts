import { expect, test } from "vitest";
import { createRecentAddresses } from "../../shared/access/recent-addresses.ts";

// Tests of the IP addresses from which users recently signed in on one instance.

test("the least recently added address is removed when there are more than 1,000", () => {
  const recentAddresses = createRecentAddresses();
  // The second addition of "address 0" makes "address 1" the oldest.
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
