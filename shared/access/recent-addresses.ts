import { UNKNOWN_ADDRESS } from "./known-addresses.ts";

/** Maximum number of addresses per instance. The least recently used one is removed first. */
const MAX_ADDRESSES = 1_000;

/**
 * The IP addresses from which any user recently signed in on this instance. Sign-ins from other addresses wait if too many of
 * them count for the rate limit or read their user's row at once. Sign-ins from recent addresses don't wait there. The list has
 * no other effect: the user's row says whether the address is known for this user (`KnownAddresses`).
 */
export interface RecentAddresses {
  has(address: string): boolean;
  /** Records a successful sign-in. An unknown address is ignored. */
  add(address: string): void;
}

export function createRecentAddresses(): RecentAddresses {
  const addresses = new Set<string>();
  return {
    has: (address) => addresses.has(address),
    add(address) {
      if (address === UNKNOWN_ADDRESS) return;
      addresses.delete(address);
      addresses.add(address);
      if (addresses.size > MAX_ADDRESSES) addresses.delete(addresses.values().next().value!);
    },
  };
}
