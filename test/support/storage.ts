import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";

/** Storage accounts that no other test uses. */
export type TestStorage = Pick<Azurite, "connectionString" | "stop">;

/** An Azurite that many test files share. Each account is used once. */
interface Shared {
  readonly azurite: Promise<Azurite>;
  given: number;
  /** Number of openings that are not stopped yet. */
  open: number;
}

/**
 * Accounts of one Azurite. In-memory Azurite keeps all rows until it ends, so another Azurite replaces it when all accounts are
 * used: before it needs more than some hundred megabytes, and before its list of queue messages becomes slow.
 */
const ACCOUNTS = Array.from({ length: 128 }, (_, index) => `account${index}`);

/** State of this process, which runs many files. */
const kept = globalThis as { sharedStorage?: Shared };

/**
 * Opens storage accounts in an Azurite that the files of this process share. A test that moves its clock or stops it starts its
 * own with `startAzurite`.
 *
 * @param names - The file's names for the accounts. `connectionString()` without a name returns the first account.
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
