/** Addresses of an instance that are remembered; the one longest unused is forgotten first. */
const REMEMBERED = 1_000;

/**
 * The addresses that this instance let somebody in from. Before a user's row is read nobody can tell whether a sign-in comes
 * from a known address (`KnownAddresses`), and a crowd stands in line for that reading. Who comes from one of these need
 * not: it only saves the wait, and decides nothing.
 */
export interface LetIn {
  has(address: string): boolean;
  /** Somebody's password was right there. */
  add(address: string): void;
}

export function createLetIn(): LetIn {
  const addresses = new Set<string>();
  return {
    has: (address) => addresses.has(address),
    add(address) {
      addresses.delete(address);
      addresses.add(address);
      if (addresses.size > REMEMBERED) addresses.delete(addresses.values().next().value!);
    },
  };
}
