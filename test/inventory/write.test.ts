import { randomBytes, randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { type AssetRecord, assetId } from "../../shared/inventory/asset.ts";
import {
  type ChangeFilter,
  changeOperations,
  countChanges,
  listChanges,
  removeOldChanges,
} from "../../shared/inventory/change-log.ts";
import type { PendingEntry } from "../../shared/inventory/changes.ts";
import { claimVault, knownVault } from "../../shared/inventory/claim.ts";
import { createInventory } from "../../shared/inventory/inventory.ts";
import { createAssetQueries } from "../../shared/inventory/query.ts";
import { createInventoryWriter, VaultBusy } from "../../shared/inventory/write.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { IS_CAMPAIGN, SEED } from "../support/cases.ts";
import { type MovedClock, movedClock } from "../support/moved-clock.ts";
import { assetRecord, START, SUBSCRIPTIONS, vaultRecord, writeVault } from "./records.ts";

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

/** A vault of its own for each test, with assets of every type, and with what every list says of it. */
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
  // The first two are of this vault alone.
  const totals = lists.slice(0, 2).map(({ total }) => total);
  return lists.map(({ items }) => {
    const ids = items.map(({ asset }) => assetId(asset)).filter((id) => id.startsWith(`${name}.`));
    return { ids: ids.sort(), totals };
  });
}

const whole = (assets: AssetRecord[]) =>
  Array.from({ length: 6 }, () => ({ ids: assets.map(assetId).sort(), totals: [assets.length, assets.length] }));

/** The same tables, to a process that dies before its write number `last`. */
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

/** Processes die at every third write, which are one after the claim, one amid the rows and the last; in a campaign at each. */
const STRIDE = IS_CAMPAIGN ? 1 : 3;

/**
 * Does the work in processes that die some writes later each time, until one gets through; calls `next` after each death.
 * @returns how many died.
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
    // The dead one's lease runs out.
    await clock.add(20_000);
    if (!died) return deaths;
    await next();
  }
}

test("a removal that dies at any write, and the vault found again: all of it stands again, in every list", async () => {
  const { vault, assets } = example("kv-again");
  await writeVault(writerOn(tables), vault, assets);
  const deaths = await dieEverywhere(
    async (on) => {
      const writer = writerOn(on);
      await writer.forget(await writer.known(vault.name), randomUUID(), nothing);
    },
    async () => {
      const row = await writerOn(tables).find(vault.name);
      // What a scan compares: nothing may look unchanged of which rows are missing.
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

test("a removal waits for whoever writes the vault, and does not take away what was written since it looked", async () => {
  const { vault, assets } = example("kv-both");
  await writeVault(writerOn(tables), vault, assets);
  const writer = writerOn(tables);
  const seen = await writer.known(vault.name);
  await writeVault(writerOn(tables), vault, assets);
  await expect(writer.forget(seen, randomUUID(), nothing)).rejects.toThrow(VaultBusy);
  expect(await standing(vault.name)).toEqual(whole(assets));

  await expect(
    writer.forget(await writer.known(vault.name), randomUUID(), async () => async () => {
      await expect(writeVault(writerOn(tables), vault, assets)).rejects.toThrow(VaultBusy);
    }),
  ).resolves.toHaveLength(assets.length);
  expect((await writer.known(vault.name)).row).toBeUndefined();
});

test("what a dead worker wrote of a vault is finished or taken back by the next, wherever it died", async () => {
  const { vault, assets } = example("kv-killed");
  const other = assets
    .slice(2)
    .map((asset) => assetRecord(vault, asset.type, asset.name, { expiresOn: START / 1000 + 5 }));
  await writeVault(writerOn(tables), vault, assets);
  const deaths = await dieEverywhere(
    (on) => writeVault(writerOn(on), vault, other),
    async () => {
      // The cloud went on in the meantime: what the dead worker meant to write is no longer true.
      await writeVault(writerOn(tables), vault, assets);
      expect(await standing(vault.name)).toEqual(whole(assets));
    },
  );
  expect(deaths).toBeGreaterThan(IS_CAMPAIGN ? 6 : 1);
  expect(await standing(vault.name)).toEqual(whole(other));
});

/** Every change that fits, as its kind, its asset and what differs. */
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

test("what a work changed is written down once, wherever its worker died and whatever the next one found", async () => {
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
      // Every second time the cloud has taken back meanwhile what the dead one saw: then nothing changed.
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

test("of 100,000 assets that one work adds no transaction outgrows the store, and each is told once, though its worker dies", async () => {
  const vault = vaultRecord("kv-many");
  const names = Array.from({ length: 100_000 }, () => randomBytes(30).toString("base64url"));
  /** What a work writes of the vault itself. */
  const work = async (on: Tables, added: string[], now: Date) => {
    const known = await knownVault(on, vault.name);
    const standing = known.row ? withoutKeys(known.row) : vault;
    const entries = added.map((name): PendingEntry => ["secret", name.toLowerCase(), null, null]);
    const claim = await claimVault(on, known, standing, [...known.pending, ...entries], "test");
    const changes = added.map((name) => ({ kind: "added" as const, type: "secret" as const, name }));
    const net = changes.map((one) => ({ ...one, before: undefined, after: undefined }));
    await claim.end(vault, { changes: changeOperations(standing, net, now) });
    return known.pending.length;
  };
  const told = async (since?: Date) => (await countChanges(tables, { vault: vault.name, since })).added;
  // Before what the other tests tell of.
  const [first, second, third] = [72, 48, 24].map((hours) => new Date(START - hours * 3_600_000)) as [Date, Date, Date];
  let begun = 0;
  // All that was announced is cleared with the end.
  const dying = {
    ...tables,
    transaction: async (...of: Parameters<Tables["transaction"]>) => {
      begun++;
      if (of[2].some(({ kind }) => kind === "remove")) throw new Error("killed");
      return await tables.transaction(...of);
    },
  };
  await expect(work(dying, names, first)).rejects.toThrow("killed");
  expect(begun).toBeGreaterThan(3);
  expect(await told()).toBeGreaterThan(0);
  await clock.add(20_000);
  // Most of them are gone again.
  expect(await work(tables, names.slice(0, 7_000), second)).toBe(100_000);
  // As of when they were through, not of the death.
  expect([await told(), await told(second)]).toEqual([7_000, 7_000]);
  const { row } = await knownVault(tables, vault.name);
  expect([row!.pending, row!.changesKey]).toEqual([false, undefined]);
  await clock.add(20_000);
  await work(tables, names.slice(0, 10), third);
  expect(await told()).toBe(7_010);
});

test("changes are told by any filter, the newest first, in pages of any size, and say what differs", async () => {
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

test("a vault that is found in another subscription while its old one leaves stays", async () => {
  const { vault, assets } = example("kv-moving");
  const there = { ...vault, subscriptionId: SUBSCRIPTIONS[1] };
  const staying = example("kv-staying");
  for (const one of [{ vault, assets }, staying]) await writeVault(writerOn(tables), one.vault, one.assets);
  const writer = writerOn(tables);
  const moves = async (name: string) => {
    if (name === vault.name) {
      await writer.forget(await writer.known(name), randomUUID(), nothing);
      await writeVault(writer, there, assets);
    }
    return await writer.known(name);
  };
  const inventory = createInventory({
    tables,
    settings: undefined as never,
    clock: { now: () => new Date(START) },
    randomness: systemRandomness(),
    ownerTag: "owner",
    licensed: async () => true,
    keyVaults: undefined as never,
    writer: { ...writer, known: moves },
    vaultLeaves: nothing,
  });
  await inventory.forgetSubscription(SUBSCRIPTIONS[0].toUpperCase());
  expect(await writer.find(vault.name)).toMatchObject({ subscriptionId: SUBSCRIPTIONS[1], pending: false });
  expect(await writer.find(staying.vault.name)).toBeUndefined();
});
