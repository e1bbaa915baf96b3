import type { Config } from "../platform/config/config.ts";
import { DAY_MS } from "../platform/time.ts";
import { keyedHash } from "./tokens.ts";
import { type UserRecord, userKey } from "./user.ts";

/** Addresses remembered of one user; the one longest unused is forgotten first. */
const MAX_ADDRESSES = 10;
/** Milliseconds without a sign-in after which an address is a stranger's again. */
const REMEMBERED_MS = 30 * DAY_MS;

type Known = NonNullable<UserRecord["knownAddresses"]>;

/**
 * The addresses a user signed in from lately. They are kept in the user's own row, so every instance knows them and a
 * sign-in reads and writes nothing more for them; only keyed hashes are kept, so nobody who reads the row learns them.
 * The same idea as OWASP's device cookies, for clients that keep none:
 * https://owasp.org/www-community/Slow_Down_Online_Guessing_Attacks_with_Device_Cookies
 */
export interface KnownAddresses {
  /** Whether the user signed in from there lately. Never for an address that could not be told. */
  has(user: UserRecord, address: string): boolean;
  /** With the address as the one used last. */
  with(user: UserRecord, address: string, now: Date): Known;
  /** Without the address: too many wrong passwords came from there. */
  without(user: UserRecord, address: string): Known;
}

/** @param keys - A new first key hashes from then on; hashes under an older one hold as long as it stays in the list. */
export function createKnownAddresses(keys: Config["JWT_SIGNING_KEYS"]): KnownAddresses {
  const hashOf = (user: UserRecord, address: string, { key }: (typeof keys)[number]) =>
    keyedHash(key, "address", `${userKey(user.username)}\0${address}`).slice(0, 32);
  const hashesOf = (user: UserRecord, address: string) => keys.map((key) => hashOf(user, address, key));

  function without(user: UserRecord, address: string): Known {
    const hashes = hashesOf(user, address);
    return (user.knownAddresses ?? []).filter(({ hash }) => !hashes.includes(hash));
  }

  return {
    has: (user, address) =>
      address !== UNKNOWN_ADDRESS && without(user, address).length < (user.knownAddresses ?? []).length,

    with(user, address, now) {
      const forgotten = now.getTime() - REMEMBERED_MS;
      const others = without(user, address).filter(({ lastAt }) => Date.parse(lastAt) > forgotten);
      if (address === UNKNOWN_ADDRESS) return others;
      const newest = { hash: hashOf(user, address, keys[0]!), lastAt: now.toISOString() };
      return [newest, ...others].slice(0, MAX_ADDRESSES);
    },

    without,
  };
}

/** What `clientAddress` answers when it can't tell. */
export const UNKNOWN_ADDRESS = "unknown";
