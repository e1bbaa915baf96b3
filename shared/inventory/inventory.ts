import * as z from "zod";
import type { KeyVaults } from "../platform/azure/key-vault.ts";
import { decodeCursor, encodeCursor, type Page, type PageRequest } from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { Settings } from "../settings/settings.ts";
import { ASSET_TYPES, type AssetRecord, sourceOf } from "./asset.ts";
import { NAME_PREFIX } from "./asset-keys.ts";
import type { Moment } from "./asset-status.ts";
import { type ChangeFilter, type LoggedChange, listChanges } from "./change-log.ts";
import { countExpiries } from "./expiries.ts";
import { type AssetQueries, createAssetQueries } from "./query.ts";
import { renewTotals } from "./renew-totals.ts";
import { readScope } from "./scope.ts";
import { expiriesOf, VAULTS, type VaultRecord, Vaults, vaultInSubscriptionKey, vaultKey } from "./vault.ts";
import { readVaultRows } from "./vault-counts.ts";
import { type AssetVersions, readVersions } from "./versions.ts";
import { type InventoryWriter, VaultBusy, type WriteDerivedData } from "./write.ts";

/**
 * Queries of vaults, assets and changes, and the removal of a subscription's inventory.
 */

/** A vault with the scope data of its subscription. */
export interface FoundVault {
  vault: Row<VaultRecord>;
  /** When the vault's subscription left the scope, ISO 8601. Undefined if it is in scope. */
  outOfScopeSince: string | undefined;
  subscriptionName: string | undefined;
}

/** Numbers of a subscription's vaults, whether it is in scope or not. */
export interface SubscriptionCounts {
  vaults: number;
  /** Vaults none of whose lists the last scan could read. */
  unreadable: number;
  /** Vaults of which the last scan could not read everything. */
  failing: number;
  assets: number;
  /** Vaults that have sent an event. */
  withEvents: number;
}

/**
 * Queries of the inventory, and the removal of a subscription. Scans and discoveries write with `InventoryWriter` (write.ts).
 */
export interface Inventory {
  assets: AssetQueries;
  /** Returns the current time and thresholds. */
  moment(): Promise<Moment>;
  /**
   * Recomputes the stored totals, which make later queries cheaper: one request per 1,000 vaults and three more. See
   * `renewTotals`.
   */
  renewTotals(): Promise<void>;
  /** Lists vaults by name. One request per 1,000 vaults, which are all counted, one for the scope and one for the page. */
  vaults(
    filter: {
      subscription?: string | undefined;
      outOfScope?: boolean | undefined;
      failing?: boolean | undefined;
      search?: string | undefined;
    },
    request: PageRequest,
  ): Promise<Page<FoundVault>>;
  /** Returns counts by lower-case subscription ID, for subscriptions with vaults. One request per 1,000 vaults. */
  bySubscription(): Promise<Map<string, SubscriptionCounts>>;
  /** Returns the packed `RenewalChecks` of a vault's certificates. Undefined if no authority was asked. */
  renewalChecks(vaultName: string): Promise<Uint8Array | undefined>;
  /** Reads the versions of an asset from its vault. See `readVersions`. */
  versions(id: string): Promise<AssetVersions>;
  /**
   * Lists added, updated and removed assets, newest first.
   *
   * @throws {Problem} invalidCursor
   */
  changes(filter: ChangeFilter, request: PageRequest): Promise<Page<LoggedChange>>;
  /**
   * Removes a subscription's vaults and assets from the inventory and returns their numbers. Can be repeated after a failure.
   *
   * @throws {Problem} conflict while another worker writes one of the vaults.
   */
  forgetSubscription(subscriptionId: string): Promise<{ vaults: number; assets: number }>;
}

export function createInventory(deps: {
  tables: Tables;
  settings: Settings;
  clock: Clock;
  randomness: Randomness;
  ownerTag: string;
  writer: InventoryWriter;
  keyVaults: Pick<KeyVaults, "open">;
  /** Returns whether a PRO license is present. Without one, credentials that are in no vault don't count. */
  licensed: () => Promise<boolean>;
  /** Called for each vault that `forgetSubscription` removes. Returns the function that writes derived data. */
  prepareVaultRemoval: (vault: VaultRecord) => Promise<WriteDerivedData>;
}): Inventory {
  const { tables, clock, writer } = deps;
  const assets = createAssetQueries({ tables, ownerTag: deps.ownerTag, licensed: deps.licensed });

  async function moment(): Promise<Moment> {
    const { criticalExpiryDays, warningExpiryDays } = await deps.settings.values();
    return { now: clock.now().getTime(), criticalDays: criticalExpiryDays, warningDays: warningExpiryDays };
  }

  return {
    assets,
    moment,

    async renewTotals() {
      await renewTotals(tables, await moment());
    },

    async vaults(filter, request) {
      const prefix = filter.subscription ? vaultInSubscriptionKey(filter.subscription, "") : NAME_PREFIX;
      const cursor =
        request.cursor === undefined
          ? undefined
          : decodeCursor(z.object({ after: z.string().max(512) }), request.cursor);
      const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
      const scope = await readScope(tables);
      const search = filter.search?.toLowerCase();
      const matches = (row: Pick<VaultRecord, "name" | "source" | "subscriptionId" | "failures">) =>
        sourceOf(row) === "keyVault" &&
        (search === undefined || row.name.toLowerCase().includes(search)) &&
        (filter.failing === undefined || Object.keys(row.failures).length > 0 === filter.failing) &&
        (filter.outOfScope === undefined || (scope.leftAt(row.subscriptionId) !== undefined) === filter.outOfScope);
      let total = 0;
      const keys: string[] = [];
      for await (const rows of tables.pages(Vaults, {
        ...range,
        select: ["name", "source", "subscriptionId", "failures"],
      })) {
        const matchingRows = rows.filter(matches);
        total += matchingRows.length;
        for (const row of matchingRows) if (!cursor || row.rowKey > prefix + cursor.after) keys.push(row.rowKey);
      }
      const pageKeys = keys.slice(request.offset, request.offset + request.limit);
      const items: FoundVault[] = [];
      const [first, last] = [pageKeys[0], pageKeys.at(-1)];
      if (first !== undefined && last !== undefined) {
        // `${last}!` is the next possible key after `last`, so that the range includes `last`.
        for await (const rows of tables.pages(Vaults, { partitionKey: VAULTS, from: first, before: `${last}!` }))
          for (const vault of rows.filter(matches)) {
            const { subscriptionId } = vault;
            items.push({
              vault,
              outOfScopeSince: scope.leftAt(subscriptionId),
              subscriptionName: scope.nameOf(subscriptionId),
            });
          }
      }
      return {
        items,
        total,
        limit: request.limit,
        offset: request.offset,
        nextCursor:
          last !== undefined && last !== keys.at(-1) ? encodeCursor({ after: last.slice(prefix.length) }) : null,
      };
    },

    async bySubscription() {
      const counts = new Map<string, SubscriptionCounts>();
      const { vaults } = await readVaultRows(tables, {}, ["failures"]);
      for (const vault of vaults) {
        if (sourceOf(vault) !== "keyVault") continue;
        const id = vault.subscriptionId.toLowerCase();
        const subscriptionCounts = counts.get(id) ?? noVaults();
        subscriptionCounts.vaults++;
        if ((vault.failedScans ?? 0) > 0) subscriptionCounts.unreadable++;
        if (Object.keys(vault.failures ?? {}).length > 0) subscriptionCounts.failing++;
        if (vault.lastEventAt !== undefined) subscriptionCounts.withEvents++;
        for (const type of ASSET_TYPES) subscriptionCounts.assets += countExpiries(expiriesOf(vault, type));
        counts.set(id, subscriptionCounts);
      }
      return counts;
    },

    async renewalChecks(vaultName) {
      return (await tables.get(Vaults, VAULTS, vaultKey(vaultName)))?.renewalChecks;
    },

    versions: (id) => readVersions(id, deps),

    changes: (filter, request) => listChanges(tables, filter, request),

    async forgetSubscription(subscriptionId) {
      const prefix = vaultInSubscriptionKey(subscriptionId, "");
      const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
      const workerId = `removal/${deps.randomness.ulid(clock.now())}`;
      const removed = { vaults: 0, assets: 0 };
      // The name is taken from the key, so that a copy that can't be read does not hide its vault.
      for await (const rows of tables.pages(Vaults, { ...range, select: [] })) {
        for (const { rowKey } of rows) {
          const name = rowKey.slice(prefix.length);
          const assets = await forgetVault(name, subscriptionId, workerId).catch(rethrowBusyAsConflict);
          if (!assets) continue;
          removed.assets += assets.length;
          removed.vaults++;
        }
      }
      return removed;
    },
  };

  /** Removes a vault. Returns undefined if the vault was removed or found in another subscription meanwhile. */
  async function forgetVault(
    name: string,
    subscriptionId: string,
    workerId: string,
  ): Promise<AssetRecord[] | undefined> {
    const storedVault = await writer.readForUpdate(name);
    if (storedVault.row?.subscriptionId.toLowerCase() !== subscriptionId.toLowerCase()) return undefined;
    const vault = withoutKeys(storedVault.row);
    return await writer.forget(storedVault, workerId, () => deps.prepareVaultRemoval(vault));
  }
}

const noVaults = (): SubscriptionCounts => ({ vaults: 0, unreadable: 0, failing: 0, assets: 0, withEvents: 0 });

function rethrowBusyAsConflict(error: unknown): never {
  if (!(error instanceof VaultBusy)) throw error;
  throw new Problem("conflict", `${error.message}. Repeat the request then.`);
}
