import type { Config } from "../platform/config/config.ts";
import { DAY_MS } from "../platform/time.ts";
import { keyedHash } from "./tokens.ts";
import { type UserRecord, userKey } from "./user.ts";

/** Maximum number of addresses per user. The least recently used one is removed first. */
const MAX_ADDRESSES = 10;
/** Time without a sign-in after which an address is no longer known. */
const ADDRESS_LIFETIME_MS = 30 * DAY_MS;

type AddressList = NonNullable<UserRecord["knownAddresses"]>;

/**
 * Known addresses: the IP addresses from which a user recently signed in. Sign-ins from a known address have priority and are
 * not blocked by failures from other addresses. They are stored in the user's row, so that every instance knows them and a
 * sign-in needs no extra read or write. Only keyed hashes are stored, so the row does not reveal the addresses. The idea is
 * that of OWASP's device cookies, for clients without cookies:
 * https://owasp.org/www-community/Slow_Down_Online_Guessing_Attacks_with_Device_Cookies
 */
export interface KnownAddresses {
  /** Returns true if the user recently signed in from the address. False for UNKNOWN_ADDRESS. */
  has(user: UserRecord, address: string): boolean;
  /** Returns the addresses with this one as the most recent. */
  with(user: UserRecord, address: string, now: Date): AddressList;
  /** Returns the addresses without this one, after too many wrong passwords from it. */
  without(user: UserRecord, address: string): AddressList;
}

/**
 * Creates the functions that read and change a user's known addresses.
 *
 * @param keys - The first key hashes new addresses. Hashes under an older key stay valid while it is in the list.
 */
export function createKnownAddresses(keys: Config["JWT_SIGNING_KEYS"]): KnownAddresses {
  const hashOf = (user: UserRecord, address: string, { key }: (typeof keys)[number]) =>
    keyedHash(key, "address", `${userKey(user.username)}\0${address}`).slice(0, 32);
  const hashesOf = (user: UserRecord, address: string) => keys.map((key) => hashOf(user, address, key));

  function without(user: UserRecord, address: string): AddressList {
    const hashes = hashesOf(user, address);
    return (user.knownAddresses ?? []).filter(({ hash }) => !hashes.includes(hash));
  }

  return {
    // The address is known if removing its hashes (one per key) makes the list shorter.
    has: (user, address) =>
      address !== UNKNOWN_ADDRESS && without(user, address).length < (user.knownAddresses ?? []).length,

    with(user, address, now) {
      const expiredBefore = now.getTime() - ADDRESS_LIFETIME_MS;
      const otherAddresses = without(user, address).filter(({ lastAt }) => Date.parse(lastAt) > expiredBefore);
      if (address === UNKNOWN_ADDRESS) return otherAddresses;
      const newest = { hash: hashOf(user, address, keys[0]!), lastAt: now.toISOString() };
      return [newest, ...otherAddresses].slice(0, MAX_ADDRESSES);
    },

    without,
  };
}

/** The result of `clientAddress` when the address can't be determined. */
export const UNKNOWN_ADDRESS = "unknown";
