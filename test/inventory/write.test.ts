/*
 * Writes of vaults and assets: workers crash at any write, other workers interfere, and the log of changes must show each
 * change once. A worker claims a vault in the vault's row before it writes the assets. Another worker continues after the
 * claim's lease has expired.
 */
import { randomBytes, randomUUID } from "node:crypto";
import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { type AssetRecord, assetId } from "../../shared/inventory/asset.ts";
import type { PendingEntry } from "../../shared/inventory/asset-row-changes.ts";
import {
  type ChangeFilter,
  changeOperations,
  countChanges,
  listChanges,
  removeOldChanges,
} from "../../shared/inventory/change-log.ts";
import { createInventory } from "../../shared/inventory/inventory.ts";
import { createAssetQueries } from "../../shared/inventory/query.ts";
import { VAULTS, vaultInSubscriptionKey } from "../../shared/inventory/vault.ts";
import { claimVault, readStoredVault } from "../../shared/inventory/vault-claim.ts";
import { createInventoryWriter, VaultBusy } from "../../shared/inventory/write.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { SECOND_MS } from "../../shared/platform/time.ts";
import { type MovedClock, movedClock } from "../support/moved-clock.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { assetRecord, START, SUBSCRIPTIONS, vaultRecord, writeVault } from "./write-assets.ts";

let azurite: Azurite;
let clock: MovedClock;
let tables: Tables;
const moment = { now: START, criticalDays: 7, warningDays: 30 };
beforeAll(async () => {
  clock = movedClock();
  azurite = await startAzurite({ environment: clock.environment });
  tables = createTables({ connectionString: azurite.connectionString() });
});
afterAll(async () => {
  await azurite?.stop();
  clock?.remove();
});

const writeNoDerivedData = async () => async () => {};
const writerOn = (wrappedTables: Tables) => createInventoryWriter({ tables: wrappedTables });

/** Builds a vault for one test with 20 assets of each type. */
function createVaultWithAssets(name: string) {
  const vault = vaultRecord(name);
  const assets = (["certificate", "key", "secret"] as const).flatMap((type) =>
    Array.from({ length: 20 }, (_, index) =>
      assetRecord(vault, type, `name-${index}`, { expiresOn: START / 1000 + index * 86_400 }),
    ),
  );
  return { vault, assets };
}

/**
 * Lists the vault's assets from all six copies of their rows: of the vault, of the subscription and of all assets, each by name
 * and by expiry. `totals` are the counts of the two lists of the vault.
 */
async function readAllRows(name: string): Promise<{ ids: string[]; totals: (number | null)[] }[]> {
  const queries = createAssetQueries({ tables, ownerTag: "owner", licensed: async () => true });
  const firstThousand = { limit: 1000, offset: 0, cursor: undefined };
  const filters = [
    { vault: name },
    { vault: name, sort: "expiresOn" as const },
    { subscription: SUBSCRIPTIONS[0] },
    { subscription: SUBSCRIPTIONS[0], sort: "expiresOn" as const },
    {},
    { sort: "expiresOn" as const },
  ];
  const lists = await Promise.all(filters.map((filter) => queries.list(filter, firstThousand, moment)));
  const totals = lists.slice(0, 2).map(({ total }) => total);
  return lists.map(({ items }) => {
    const ids = items.map(({ asset }) => assetId(asset)).filter((id) => id.startsWith(`${name}.`));
    return { ids: ids.sort(), totals };
  });
}

/** Returns what `readAllRows` must return if exactly these assets are stored. */
const allRowsOf = (assets: AssetRecord[]) =>
  Array.from({ length: 6 }, () => ({ ids: assets.map(assetId).sort(), totals: [assets.length, assets.length] }));

/** Returns tables for a process that crashes after this number of writes. */
function tablesThatCrashAfter(allowedWrites: number): Tables {
  let writes = 0;
  const countWrite = () => {
    if (writes++ >= allowedWrites) throw new Error("killed");
  };
  return {
    ...tables,
    async transaction(table, partitionKey, operations) {
      countWrite();
      return await tables.transaction(table, partitionKey, operations);
    },
    fence(...args) {
      const fence = tables.fence(...args);
      return {
        get etag() {
          return fence.etag;
        },
        async take() {
          countWrite();
          await fence.take();
        },
        async advance() {
          countWrite();
          await fence.advance();
        },
        write: (operations, options) =>
          fence.write(operations, {
            async beforeEach() {
              await options?.beforeEach?.();
              countWrite();
            },
          }),
      };
    },
  };
}

/**
 * Processes crash at every third write: among them are one after the claim, one among the rows and the last one. A campaign
 * uses each write. `SEED + 2` makes the first crash of the default seed the third write.
 */
const STRIDE = IS_CAMPAIGN ? 1 : 3;

/**
 * Runs the work in processes that crash `STRIDE` writes later each time, until one succeeds. Calls `afterCrash` after each
 * crash.
 *
 * @returns the number of crashes.
 */
async function crashAtEachWrite(
  work: (processTables: Tables) => Promise<unknown>,
  afterCrash: () => Promise<void>,
): Promise<number> {
  for (let crashes = 0; ; crashes++) {
    const hasCrashed = await work(tablesThatCrashAfter(((SEED + 2) % STRIDE) + crashes * STRIDE)).then(
      () => false,
      (error: Error) => {
        expect(error.message).toBe("killed");
        return true;
      },
    );
    // The crashed worker's lease expires.
    await clock.add(20 * SECOND_MS);
    if (!hasCrashed) return crashes;
    await afterCrash();
  }
}

test("all assets are stored again if a removal crashes at any write and the vault is found again", async () => {
  const { vault, assets } = createVaultWithAssets("kv-again");
  await writeVault(writerOn(tables), vault, assets);
  const crashes = await crashAtEachWrite(
    async (processTables) => {
      const writer = writerOn(processTables);
      await writer.forget(await writer.readForUpdate(vault.name), randomUUID(), writeNoDerivedData);
    },
    async () => {
      const row = await writerOn(tables).find(vault.name);
      // If rows are missing, the fingerprints that a scan compares must be empty, so that the vault does not look unchanged.
      if ((await readAllRows(vault.name)).some(({ ids }) => ids.length < assets.length)) {
        expect(row).toMatchObject({ pending: true, listings: {}, contents: {} });
      }
      await writeVault(writerOn(tables), vault, assets);
      expect(await readAllRows(vault.name)).toEqual(allRowsOf(assets));
    },
  );
  expect(crashes).toBeGreaterThan(IS_CAMPAIGN ? 6 : 1);
  expect((await readAllRows(vault.name)).every(({ ids }) => ids.length === 0)).toBe(true);
});

test("a removal is rejected if the vault was written since its read, and blocks other writers", async () => {
  const { vault, assets } = createVaultWithAssets("kv-both");
  await writeVault(writerOn(tables), vault, assets);
  const writer = writerOn(tables);
  const staleRead = await writer.readForUpdate(vault.name);
  await writeVault(writerOn(tables), vault, assets);
  await expect(writer.forget(staleRead, randomUUID(), writeNoDerivedData)).rejects.toThrow(VaultBusy);
  expect(await readAllRows(vault.name)).toEqual(allRowsOf(assets));

  await expect(
    writer.forget(await writer.readForUpdate(vault.name), randomUUID(), async () => async () => {
      await expect(writeVault(writerOn(tables), vault, assets)).rejects.toThrow(VaultBusy);
    }),
  ).resolves.toHaveLength(assets.length);
  expect((await writer.readForUpdate(vault.name)).row).toBeUndefined();
});

test("the next worker replaces the partial writes of a worker that crashed at any write", async () => {
  const { vault, assets } = createVaultWithAssets("kv-killed");
  const otherAssets = assets
    .slice(2)
    .map((asset) => assetRecord(vault, asset.type, asset.name, { expiresOn: START / 1000 + 5 }));
  await writeVault(writerOn(tables), vault, assets);
  const crashes = await crashAtEachWrite(
    (processTables) => writeVault(writerOn(processTables), vault, otherAssets),
    async () => {
      // The next worker finds the original assets, so it must revert the crashed worker's writes.
      await writeVault(writerOn(tables), vault, assets);
      expect(await readAllRows(vault.name)).toEqual(allRowsOf(assets));
    },
  );
  expect(crashes).toBeGreaterThan(IS_CAMPAIGN ? 6 : 1);
  expect(await readAllRows(vault.name)).toEqual(allRowsOf(otherAssets));
});

/** Returns every matching change as a line of kind, asset and changed members, and checks the total. */
async function listAllChanges(filter: ChangeFilter, limit = 1000): Promise<string[]> {
  const lines: string[] = [];
  for (let cursor: string | undefined, total: number | null | undefined; ; ) {
    const page = await listChanges(tables, filter, { limit, offset: 0, cursor });
    total ??= page.total;
    lines.push(...page.items.map((one) => `${one.kind} ${assetId(one)} ${one.members}`.trim()));
    if (page.nextCursor === null) {
      expect(lines).toHaveLength(total!);
      return lines;
    }
    cursor = page.nextCursor;
  }
}

test("each change is logged once if a worker crashes at any write", async () => {
  const { vault, assets } = createVaultWithAssets("kv-logged");
  const otherAssets = assets
    .slice(2)
    .map((asset) => assetRecord(vault, asset.type, asset.name, { contentType: "text" }));
  /** Returns the numbers of logged changes and empties the log. */
  const takeLoggedCounts = async () => {
    const allLines = await listAllChanges({ vault: "KV-logged" });
    await removeOldChanges(tables, new Date(Date.now() + 60_000));
    const count = (kind: string) => allLines.filter((one) => one.startsWith(kind)).length;
    return { added: count("added"), updated: count("updated"), removed: count("removed") };
  };
  await writeVault(writerOn(tables), vault, assets);
  expect(await takeLoggedCounts()).toEqual({ added: 60, updated: 0, removed: 0 });
  /** The logged changes from `assets` to `otherAssets`. */
  const changeToOther = { added: 0, updated: 58, removed: 2 };
  let reverts = 0;
  const crashes = await crashAtEachWrite(
    (processTables) => writeVault(writerOn(processTables), vault, otherAssets),
    async () => {
      // Every second time, the next worker finds the original assets again. Then nothing has changed.
      const isReverted = reverts++ % 2 === 1;
      await writeVault(writerOn(tables), vault, isReverted ? assets : otherAssets);
      expect(await takeLoggedCounts()).toEqual(isReverted ? { added: 0, updated: 0, removed: 0 } : changeToOther);
      await writeVault(writerOn(tables), vault, assets);
      expect(await takeLoggedCounts()).toEqual(
        isReverted ? { added: 0, updated: 0, removed: 0 } : { ...changeToOther, added: 2, removed: 0 },
      );
    },
  );
  expect(crashes).toBeGreaterThan(IS_CAMPAIGN ? 6 : 1);
  expect(await takeLoggedCounts()).toEqual(changeToOther);
});

test("100,000 assets added by one write, which crashes once, are logged once each", async () => {
  const vault = vaultRecord("kv-many");
  const names = Array.from({ length: 100_000 }, () => randomBytes(30).toString("base64url"));
  /**
   * Writes the vault's own rows as a write of these assets does, without the assets. Returns how many announced entries it
   * found.
   */
  const writeAdditions = async (processTables: Tables, added: string[], now: Date) => {
    const stored = await readStoredVault(processTables, vault.name);
    const current = stored.row ? withoutKeys(stored.row) : vault;
    // The entries that a worker announces before it writes: type, name, expiry, and the state before (null: did not exist).
    const entries = added.map((name): PendingEntry => ["secret", name.toLowerCase(), null, null]);
    const claim = await claimVault(processTables, stored, current, [...stored.pending, ...entries], "test");
    const additions = added.map((name) => ({ kind: "added" as const, type: "secret" as const, name }));
    const netChanges = additions.map((one) => ({ ...one, before: undefined, after: undefined }));
    await claim.end(vault, { changes: changeOperations(current, netChanges, now) });
    return stored.pending.length;
  };
  const countAdded = async (since?: Date) => (await countChanges(tables, { vault: vault.name, since })).added;
  // These times are before those of the other tests.
  const [first, second, third] = [72, 48, 24].map((hours) => new Date(START - hours * 3_600_000)) as [Date, Date, Date];
  let transactions = 0;
  // The last transaction removes the announced entries. The process crashes before it.
  const crashingTables = {
    ...tables,
    transaction: async (...args: Parameters<Tables["transaction"]>) => {
      transactions++;
      if (args[2].some(({ kind }) => kind === "remove")) throw new Error("killed");
      return await tables.transaction(...args);
    },
  };
  await expect(writeAdditions(crashingTables, names, first)).rejects.toThrow("killed");
  expect(transactions).toBeGreaterThan(3);
  expect(await countAdded()).toBeGreaterThan(0);
  await clock.add(20 * SECOND_MS);
  // The next worker finds only 7,000 of the assets.
  expect(await writeAdditions(tables, names.slice(0, 7_000), second)).toBe(100_000);
  // Changes have the time of the completion, not of the crash.
  expect([await countAdded(), await countAdded(second)]).toEqual([7_000, 7_000]);
  const { row } = await readStoredVault(tables, vault.name);
  expect([row!.pending, row!.changesKey]).toEqual([false, undefined]);
  await clock.add(20 * SECOND_MS);
  await writeAdditions(tables, names.slice(0, 10), third);
  expect(await countAdded()).toBe(7_010);
});

test("changes are listed newest first, with any filter and page size", async () => {
  const [first, second] = [vaultRecord("kv-one"), vaultRecord("kv-two", SUBSCRIPTIONS[1])];
  const timeAtMinute = (minute: number) => new Date(START + minute * 60_000);
  const write = (minute: number, vault: typeof first, assets: AssetRecord[]) =>
    writeVault(createInventoryWriter({ tables, clock: { now: () => timeAtMinute(minute) } }), vault, assets);
  const assetsOf = (vault: typeof first, secretChanges: Partial<AssetRecord>) => [
    assetRecord(vault, "secret", "Db", secretChanges),
    assetRecord(vault, "key", "sign", {}),
  ];
  await write(0, first, assetsOf(first, {}));
  await write(1, second, assetsOf(second, {}));
  await write(2, first, assetsOf(first, { enabled: false, tags: { b: "1", a: "2" } }));
  // Tags in another order are the same tags.
  await write(3, first, assetsOf(first, { enabled: false, tags: { a: "2", b: "1" } }));
  await write(4, second, []);
  const allLines = [
    "removed kv-two.key.sign",
    "removed kv-two.secret.db",
    "updated kv-one.secret.db enabled,tags",
    "added kv-two.key.sign",
    "added kv-two.secret.db",
    "added kv-one.key.sign",
    "added kv-one.secret.db",
  ];
  const period = { since: timeAtMinute(0), until: timeAtMinute(5) };
  for (const limit of [1, 2, 3, 100]) expect(await listAllChanges(period, limit)).toEqual(allLines);
  const linesAt = (...indexes: number[]) => indexes.map((index) => allLines[index]);
  expect(await listAllChanges({ ...period, since: timeAtMinute(2) })).toEqual(linesAt(0, 1, 2));
  expect(await listAllChanges({ ...period, until: timeAtMinute(2) })).toEqual(linesAt(3, 4, 5, 6));
  expect(await listAllChanges({ ...period, change: "removed", type: "secret" })).toEqual(linesAt(1));
  expect(await listAllChanges({ ...period, subscription: SUBSCRIPTIONS[1].toUpperCase() })).toEqual(
    linesAt(0, 1, 3, 4),
  );
  expect(await listAllChanges({ ...period, vault: "KV-One", source: "keyVault" })).toEqual(linesAt(2, 5, 6));
  expect(await listAllChanges({ ...period, source: "entra" })).toEqual([]);
  const { items } = await listChanges(tables, period, { limit: 2, offset: 4, cursor: undefined });
  expect(items.map(({ name }) => name)).toEqual(["Db", "sign"]);
  expect(await removeOldChanges(tables, timeAtMinute(2))).toBe(false);
  expect(await listAllChanges(period)).toEqual(linesAt(0, 1, 2));
});

test("removing a subscription removes a vault whose copy can't be read, and keeps one that moves to another subscription meanwhile", async () => {
  const { vault, assets } = createVaultWithAssets("kv-moving");
  const movedVault = { ...vault, subscriptionId: SUBSCRIPTIONS[1] };
  const staying = createVaultWithAssets("kv-staying");
  await writeVault(writerOn(tables), vault, assets);
  await writeVault(writerOn(tables), staying.vault, staying.assets);
  const rows = TableClient.fromConnectionString(azurite.connectionString(), "Vaults", {
    allowInsecureConnection: true,
  });
  const copyKey = vaultInSubscriptionKey(SUBSCRIPTIONS[0], staying.vault.name);
  await rows.updateEntity({ partitionKey: VAULTS, rowKey: copyKey, name: 7 }, "Merge");
  const writer = writerOn(tables);
  const moveBeforeRead = async (name: string) => {
    if (name === vault.name) {
      await writer.forget(await writer.readForUpdate(name), randomUUID(), writeNoDerivedData);
      await writeVault(writer, movedVault, assets);
    }
    return await writer.readForUpdate(name);
  };
  const inventory = createInventory({
    tables,
    settings: undefined as never,
    clock: { now: () => new Date(START) },
    randomness: systemRandomness(),
    ownerTag: "owner",
    licensed: async () => true,
    keyVaults: undefined as never,
    writer: { ...writer, readForUpdate: moveBeforeRead },
    prepareVaultRemoval: writeNoDerivedData,
  });
  await inventory.forgetSubscription(SUBSCRIPTIONS[0].toUpperCase());
  expect(await writer.find(vault.name)).toMatchObject({ subscriptionId: SUBSCRIPTIONS[1], pending: false });
  expect(await writer.find(staying.vault.name)).toBeUndefined();
});
