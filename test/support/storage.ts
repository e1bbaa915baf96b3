import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";

/** Storage accounts that no other test uses. */
export type TestStorage = Pick<Azurite, "connectionString" | "stop">;

/** An Azurite that many test files share. Each of its accounts is used by one test file only. */
interface SharedAzurite {
  readonly azurite: Promise<Azurite>;
  /** Number of accounts that are in use or were used. */
  usedAccounts: number;
  /** Number of `openStorage` calls whose storage is not stopped yet. */
  open: number;
}

/**
 * Accounts of one Azurite. An in-memory Azurite never releases the rows of an account. After 128 accounts, a new Azurite
 * replaces it, before it needs more than some hundred megabytes and before its list of queue messages becomes slow.
 */
const ACCOUNTS = Array.from({ length: 128 }, (_, index) => `account${index}`);

/** State of this process, which runs many files. */
const processState = globalThis as { sharedStorage?: SharedAzurite };

/**
 * Opens storage accounts in an Azurite that the test files of this process share. A test that moves Azurite's clock or stops
 * Azurite starts its own with `startAzurite`.
 *
 * @param names - The file's names for the accounts. `connectionString()` without a name returns the first account.
 */
export async function openStorage(names: readonly string[] = ["test"]): Promise<TestStorage> {
  const shared = azuriteWithFreeAccounts(names.length);
  const firstAccount = shared.usedAccounts;
  shared.usedAccounts += names.length;
  shared.open++;
  const azurite = await shared.azurite;
  return {
    connectionString(...accountNames) {
      const index = accountNames.length === 0 ? 0 : names.indexOf(accountNames[0]);
      if (index < 0) throw new Error(`This file has opened no account ${accountNames[0]}.`);
      return azurite.connectionString(ACCOUNTS[firstAccount + index]!);
    },
    async stop() {
      shared.open--;
      if (shared.open === 0 && shared !== processState.sharedStorage) await azurite.stop();
    },
  };
}

/** Returns the current Azurite, or starts a new one if the current one has too few free accounts. */
function azuriteWithFreeAccounts(count: number): SharedAzurite {
  if (count > ACCOUNTS.length) throw new Error(`An Azurite of the tests has ${ACCOUNTS.length} accounts.`);
  const shared = processState.sharedStorage;
  if (shared !== undefined && shared.usedAccounts + count <= ACCOUNTS.length) return shared;
  if (shared?.open === 0) void shared.azurite.then((azurite) => azurite.stop());
  processState.sharedStorage = { azurite: startAzurite({ accounts: ACCOUNTS }), usedAccounts: 0, open: 0 };
  return processState.sharedStorage;
}
