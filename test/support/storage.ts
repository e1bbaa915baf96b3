import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";

/** Storage accounts that nobody else has. */
export type TestStorage = Pick<Azurite, "connectionString" | "stop">;

/** One Azurite that serves file after file. Its accounts are given out once each. */
interface Shared {
  readonly azurite: Promise<Azurite>;
  given: number;
  /** Openings that are not stopped yet. */
  open: number;
}

/**
 * Accounts of one Azurite. It forgets no row while it runs, so that the next takes over once they are given out: of some
 * hundred megabytes, and in time before its list of queue messages gets slow.
 */
const ACCOUNTS = Array.from({ length: 128 }, (_, index) => `account${index}`);

/** Of this process, which runs many files. */
const kept = globalThis as { sharedStorage?: Shared };

/**
 * Opens storage accounts of an Azurite that is shared with the other files of this process. A test that moves its time, or
 * ends it, starts its own with `startAzurite`.
 *
 * @param names - What this file calls them. `connectionString()` answers the first one's.
 */
export async function openStorage(names: readonly string[] = ["test"]): Promise<TestStorage> {
  const shared = current(names.length);
  const first = shared.given;
  shared.given += names.length;
  shared.open++;
  const azurite = await shared.azurite;
  return {
    connectionString(...named) {
      const at = named.length === 0 ? 0 : names.indexOf(named[0]);
      if (at < 0) throw new Error(`This file has opened no account ${named[0]}.`);
      return azurite.connectionString(ACCOUNTS[first + at]!);
    },
    async stop() {
      shared.open--;
      if (shared.open === 0 && shared !== kept.sharedStorage) await azurite.stop();
    },
  };
}

function current(accounts: number): Shared {
  if (accounts > ACCOUNTS.length) throw new Error(`An Azurite of the tests has ${ACCOUNTS.length} accounts.`);
  const shared = kept.sharedStorage;
  if (shared !== undefined && shared.given + accounts <= ACCOUNTS.length) return shared;
  if (shared?.open === 0) void shared.azurite.then((azurite) => azurite.stop());
  kept.sharedStorage = { azurite: startAzurite({ accounts: ACCOUNTS }), given: 0, open: 0 };
  return kept.sharedStorage;
}
