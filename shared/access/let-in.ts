import { UNKNOWN_ADDRESS } from "./known-addresses.ts";

/** Addresses of an instance that are remembered; the one longest unused is forgotten first. */
const REMEMBERED = 1_000;

/**
 * The addresses that this instance let somebody in from. Before a user's row is read nobody can tell whether a sign-in comes
 * from a known address (`KnownAddresses`), and a crowd stands in line for that reading. Who comes from one of these need
 * not: it only saves the wait, and decides nothing.
 */
export interface LetIn {
  has(address: string): boolean;
  /** Someone signed in from there. An address that could not be told is not remembered. */
  add(address: string): void;
}

export function createLetIn(): LetIn {
  const addresses = new Set<string>();
  return {
    has: (address) => addresses.has(address),
    add(address) {
      if (address === UNKNOWN_ADDRESS) return;
      addresses.delete(address);
      addresses.add(address);
      if (addresses.size > REMEMBERED) addresses.delete(addresses.values().next().value!);
    },
  };
}
