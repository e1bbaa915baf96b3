import { randomBytes, randomUUID } from "node:crypto";
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
import { claimVault, readStoredVault } from "../../shared/inventory/vault-claim.ts";
import { createInventoryWriter, VaultBusy } from "../../shared/inventory/write.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
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

const nothing = async () => async () => {};
const writerOn = (on: Tables) => createInventoryWriter({ tables: on });

/** A separate vault for each test, with assets of every type and with every field. */
function example(name: string) {
  const vault = vaultRecord(name);
  const assets = (["certificate", "key", "secret"] as const).flatMap((type) =>
    Array.from({ length: 20 }, (_, at) =>
      assetRecord(vault, type, `name-${at}`, { expiresOn: START / 1000 + at * 86_400 }),
    ),
  );
  return { vault, assets };
}

async function standing(name: string): Promise<{ ids: string[]; totals: (number | null)[] }[]> {
  const queries = createAssetQueries({ tables, ownerTag: "owner", licensed: async () => true });
  const everything = { limit: 1000, offset: 0, cursor: undefined };
  const filters = [
    { vault: name },
    { vault: name, sort: "expiresOn" as const },
    { subscription: SUBSCRIPTIONS[0] },
    { subscription: SUBSCRIPTIONS[0], sort: "expiresOn" as const },
    {},
    { sort: "expiresOn" as const },
  ];
  const lists = await Promise.all(filters.map((filter) => queries.list(filter, everything, moment)));
  // The first two tags are unique to this vault.
  const totals = lists.slice(0, 2).map(({ total }) => total);
  return lists.map(({ items }) => {
    const ids = items.map(({ asset }) => assetId(asset)).filter((id) => id.startsWith(`${name}.`));
    return { ids: ids.sort(), totals };
  });
}

const whole = (assets: AssetRecord[]) =>
  Array.from({ length: 6 }, () => ({ ids: assets.map(assetId).sort(), totals: [assets.length, assets.length] }));

/** The same tables for a process that crashes before its write number `last`. */
function dyingAfter(last: number): Tables {
  let writes = 0;
  const live = () => {
    if (writes++ >= last) throw new Error("killed");
  };
  return {
    ...tables,
    async transaction(table, partitionKey, operations) {
      live();
      return await tables.transaction(table, partitionKey, operations);
    },
    fence(...of) {
      const fence = tables.fence(...of);
      return {
        get etag() {
          return fence.etag;
        },
        async take() {
          live();
          await fence.take();
        },
        async advance() {
          live();
          await fence.advance();
        },
        write: (operations, options) =>
          fence.write(operations, {
            async beforeEach() {
              await options?.beforeEach?.();
              live();
            },
          }),
      };
    },
  };
}

/**
 * Processes crash at every third write: one after the claim, one among the rows and the last one. In a campaign at each write.
 */
const STRIDE = IS_CAMPAIGN ? 1 : 3;

/**
 * Runs the work in processes that crash some writes later each time, until one succeeds. Calls `next` after each crash.
 *
 * @returns the number of crashes.
 */
async function dieEverywhere(work: (on: Tables) => Promise<unknown>, next: () => Promise<void>): Promise<number> {
  for (let deaths = 0; ; deaths++) {
    const died = await work(dyingAfter(((SEED + 2) % STRIDE) + deaths * STRIDE)).then(
      () => false,
      (error: Error) => {
        expect(error.message).toBe("killed");
        return true;
      },
    );
    // The crashed worker's lease expires.
    await clock.add(20_000);
    if (!died) return deaths;
    await next();
  }
}

test("a removal that crashes at any write, after which the vault is found again: all of it is stored again, in every list", async () => {
  const { vault, assets } = example("kv-again");
  await writeVault(writerOn(tables), vault, assets);
  const deaths = await dieEverywhere(
    async (on) => {
      const writer = writerOn(on);
      await writer.forget(await writer.readForUpdate(vault.name), randomUUID(), nothing);
    },
    async () => {
      const row = await writerOn(tables).find(vault.name);
      // The fields that a scan compares: a vault with missing rows must not look unchanged.
      if ((await standing(vault.name)).some(({ ids }) => ids.length < assets.length)) {
        expect(row).toMatchObject({ pending: true, listings: {}, contents: {} });
      }
      await writeVault(writerOn(tables), vault, assets);
      expect(await standing(vault.name)).toEqual(whole(assets));
    },
  );
  expect(deaths).toBeGreaterThan(IS_CAMPAIGN ? 6 : 1);
  expect((await standing(vault.name)).every(({ ids }) => ids.length === 0)).toBe(true);
});

test("a removal waits for the worker of the vault, and does not remove what was written since its read", async () => {
  const { vault, assets } = example("kv-both");
  await writeVault(writerOn(tables), vault, assets);
  const writer = writerOn(tables);
  const seen = await writer.readForUpdate(vault.name);
  await writeVault(writerOn(tables), vault, assets);
  await expect(writer.forget(seen, randomUUID(), nothing)).rejects.toThrow(VaultBusy);
  expect(await standing(vault.name)).toEqual(whole(assets));

  await expect(
    writer.forget(await writer.readForUpdate(vault.name), randomUUID(), async () => async () => {
      await expect(writeVault(writerOn(tables), vault, assets)).rejects.toThrow(VaultBusy);
    }),
  ).resolves.toHaveLength(assets.length);
  expect((await writer.readForUpdate(vault.name)).row).toBeUndefined();
});

test("the next worker completes or reverts the writes of a crashed one, wherever it crashed", async () => {
  const { vault, assets } = example("kv-killed");
  const other = assets
    .slice(2)
    .map((asset) => assetRecord(vault, asset.type, asset.name, { expiresOn: START / 1000 + 5 }));
  await writeVault(writerOn(tables), vault, assets);
  const deaths = await dieEverywhere(
    (on) => writeVault(writerOn(on), vault, other),
    async () => {
      // The cloud changed meanwhile: the crashed worker's data is outdated.
      await writeVault(writerOn(tables), vault, assets);
      expect(await standing(vault.name)).toEqual(whole(assets));
    },
  );
  expect(deaths).toBeGreaterThan(IS_CAMPAIGN ? 6 : 1);
  expect(await standing(vault.name)).toEqual(whole(other));
});

/** Returns every matching change as kind, asset and changed members. */
async function changes(filter: ChangeFilter, limit = 1000): Promise<string[]> {
  const found: string[] = [];
  for (let cursor: string | undefined, total: number | null | undefined; ; ) {
    const page = await listChanges(tables, filter, { limit, offset: 0, cursor });
    total ??= page.total;
    found.push(...page.items.map((one) => `${one.kind} ${assetId(one)} ${one.members}`.trim()));
    if (page.nextCursor === null) {
      expect(found).toHaveLength(total!);
      return found;
    }
    cursor = page.nextCursor;
  }
}

test("each change is logged once, wherever its worker crashed and whatever the next one found", async () => {
  const { vault, assets } = example("kv-logged");
  const other = assets.slice(2).map((asset) => assetRecord(vault, asset.type, asset.name, { contentType: "text" }));
  const logged = async () => {
    const all = await changes({ vault: "KV-logged" });
    await removeOldChanges(tables, new Date(Date.now() + 60_000));
    const count = (kind: string) => all.filter((one) => one.startsWith(kind)).length;
    return { added: count("added"), updated: count("updated"), removed: count("removed") };
  };
  await writeVault(writerOn(tables), vault, assets);
  expect(await logged()).toEqual({ added: 60, updated: 0, removed: 0 });
  const there = { added: 0, updated: 58, removed: 2 };
  let reverts = 0;
  const deaths = await dieEverywhere(
    (on) => writeVault(writerOn(on), vault, other),
    async () => {
      // Every second time the cloud reverts the crashed worker's change: then nothing changed.
      const reverted = reverts++ % 2 === 1;
      await writeVault(writerOn(tables), vault, reverted ? assets : other);
      expect(await logged()).toEqual(reverted ? { added: 0, updated: 0, removed: 0 } : there);
      await writeVault(writerOn(tables), vault, assets);
      expect(await logged()).toEqual(
        reverted ? { added: 0, updated: 0, removed: 0 } : { ...there, added: 2, removed: 0 },
      );
    },
  );
  expect(deaths).toBeGreaterThan(IS_CAMPAIGN ? 6 : 1);
  expect(await logged()).toEqual(there);
});

test("if one write adds 100,000 assets, no transaction exceeds the store's limit, and each asset is logged once despite a crash", async () => {
  const vault = vaultRecord("kv-many");
  const names = Array.from({ length: 100_000 }, () => randomBytes(30).toString("base64url"));
  /** Writes of the vault's own rows. */
  const work = async (on: Tables, added: string[], now: Date) => {
    const known = await readStoredVault(on, vault.name);
    const standing = known.row ? withoutKeys(known.row) : vault;
    const entries = added.map((name): PendingEntry => ["secret", name.toLowerCase(), null, null]);
    const claim = await claimVault(on, known, standing, [...known.pending, ...entries], "test");
    const changes = added.map((name) => ({ kind: "added" as const, type: "secret" as const, name }));
    const net = changes.map((one) => ({ ...one, before: undefined, after: undefined }));
    await claim.end(vault, { changes: changeOperations(standing, net, now) });
    return known.pending.length;
  };
  const alertItems = async (since?: Date) => (await countChanges(tables, { vault: vault.name, since })).added;
  // Earlier than the changes of the other tests.
  const [first, second, third] = [72, 48, 24].map((hours) => new Date(START - hours * 3_600_000)) as [Date, Date, Date];
  let started = 0;
  // The end removes all announcements.
  const crashing = {
    ...tables,
    transaction: async (...of: Parameters<Tables["transaction"]>) => {
      started++;
      if (of[2].some(({ kind }) => kind === "remove")) throw new Error("killed");
      return await tables.transaction(...of);
    },
  };
  await expect(work(crashing, names, first)).rejects.toThrow("killed");
  expect(started).toBeGreaterThan(3);
  expect(await alertItems()).toBeGreaterThan(0);
  await clock.add(20_000);
  // Most of the assets are removed again.
  expect(await work(tables, names.slice(0, 7_000), second)).toBe(100_000);
  // The time of the completion, not of the crash.
  expect([await alertItems(), await alertItems(second)]).toEqual([7_000, 7_000]);
  const { row } = await readStoredVault(tables, vault.name);
  expect([row!.pending, row!.changesKey]).toEqual([false, undefined]);
  await clock.add(20_000);
  await work(tables, names.slice(0, 10), third);
  expect(await alertItems()).toBe(7_010);
});

test("changes are listed by any filter, newest first, in pages of any size, with the changed members", async () => {
  const [first, second] = [vaultRecord("kv-one"), vaultRecord("kv-two", SUBSCRIPTIONS[1])];
  const at = (minute: number) => new Date(START + minute * 60_000);
  const write = (minute: number, vault: typeof first, assets: AssetRecord[]) =>
    writeVault(createInventoryWriter({ tables, clock: { now: () => at(minute) } }), vault, assets);
  const of = (vault: typeof first, more: Partial<AssetRecord>) => [
    assetRecord(vault, "secret", "Db", more),
    assetRecord(vault, "key", "sign", {}),
  ];
  await write(0, first, of(first, {}));
  await write(1, second, of(second, {}));
  await write(2, first, of(first, { enabled: false, tags: { b: "1", a: "2" } }));
  // Tags in another order are the same tags.
  await write(3, first, of(first, { enabled: false, tags: { a: "2", b: "1" } }));
  await write(4, second, []);
  const all = [
    "removed kv-two.key.sign",
    "removed kv-two.secret.db",
    "updated kv-one.secret.db enabled,tags",
    "added kv-two.key.sign",
    "added kv-two.secret.db",
    "added kv-one.key.sign",
    "added kv-one.secret.db",
  ];
  const between = { since: at(0), until: at(5) };
  for (const limit of [1, 2, 3, 100]) expect(await changes(between, limit)).toEqual(all);
  const pick = (...places: number[]) => places.map((place) => all[place]);
  expect(await changes({ ...between, since: at(2) })).toEqual(pick(0, 1, 2));
  expect(await changes({ ...between, until: at(2) })).toEqual(pick(3, 4, 5, 6));
  expect(await changes({ ...between, change: "removed", type: "secret" })).toEqual(pick(1));
  expect(await changes({ ...between, subscription: SUBSCRIPTIONS[1].toUpperCase() })).toEqual(pick(0, 1, 3, 4));
  expect(await changes({ ...between, vault: "KV-One", source: "keyVault" })).toEqual(pick(2, 5, 6));
  expect(await changes({ ...between, source: "entra" })).toEqual([]);
  const { items } = await listChanges(tables, between, { limit: 2, offset: 4, cursor: undefined });
  expect(items.map(({ name }) => name)).toEqual(["Db", "sign"]);
  expect(await removeOldChanges(tables, at(2))).toBe(false);
  expect(await changes(between)).toEqual(pick(0, 1, 2));
});

test("a vault that is found in another subscription while it is removed from its old one is kept", async () => {
  const { vault, assets } = example("kv-moving");
  const there = { ...vault, subscriptionId: SUBSCRIPTIONS[1] };
  const staying = example("kv-staying");
  for (const one of [{ vault, assets }, staying]) await writeVault(writerOn(tables), one.vault, one.assets);
  const writer = writerOn(tables);
  const moves = async (name: string) => {
    if (name === vault.name) {
      await writer.forget(await writer.readForUpdate(name), randomUUID(), nothing);
      await writeVault(writer, there, assets);
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
    writer: { ...writer, readForUpdate: moves },
    vaultLeaves: nothing,
  });
  await inventory.forgetSubscription(SUBSCRIPTIONS[0].toUpperCase());
  expect(await writer.find(vault.name)).toMatchObject({ subscriptionId: SUBSCRIPTIONS[1], pending: false });
  expect(await writer.find(staying.vault.name)).toBeUndefined();
});
