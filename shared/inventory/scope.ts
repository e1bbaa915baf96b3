import * as z from "zod";
import { entity, type Row } from "../platform/storage/entity.ts";
import { undefinedIfLeftOut } from "../platform/storage/left-out-rows.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { VAULTS } from "./vault.ts";

/**
 * The scope: which subscriptions are monitored, computed from settings, API entries and configuration. It is one row, so that
 * all counts and notifications use the same scope. Rows of vaults and assets don't contain it. The module subscriptions writes
 * it.
 */
export const ScopeRecord = z.object({
  /** True: every subscription that the identity can read. False: only the named ones. */
  watchAll: z.boolean(),
  /** IDs of subscriptions added through the API or in AZURE_SUBSCRIPTION_IDS. Lower case, sorted. */
  named: z.array(z.string()),
  /** Since when only the named subscriptions are in scope, ISO 8601. Absent while all are. */
  namedOnlySince: z.string().optional(),
  /** When formerly named subscriptions left the scope, ISO 8601, by ID. All others left at `namedOnlySince`. */
  left: z.record(z.string(), z.string()),
  /** Names given by users, by ID. */
  names: z.record(z.string(), z.string()),
  /** Display names in Azure of all subscriptions that the identity could ever read, by ID. */
  discovered: z.record(z.string(), z.string()),
  /** Since when the identity can no longer read a subscription, ISO 8601, by ID. */
  unseenSince: z.record(z.string(), z.string()),
});
export type ScopeRecord = z.infer<typeof ScopeRecord>;

export const ScopeRows = entity("Vaults", ScopeRecord);
/** Sorts right before the vaults, so that one range contains both. */
export const SCOPE_KEY = "m!scope";

/** Looks up subscriptions in the scope. IDs can be in upper or lower case. */
export interface Scope {
  /** Returns when a subscription left the scope, ISO 8601. Undefined if it is in scope. */
  leftAt(subscriptionId: string): string | undefined;
  /** Returns a subscription's name: as given by a user, or else its display name in Azure. Undefined if neither is known. */
  nameOf(subscriptionId: string): string | undefined;
}

/** Returns the scope of its stored row. Without a row, before the first scope was computed, every subscription is in scope. */
export function scopeOf(record: ScopeRecord | undefined): Scope {
  const named = new Set(record?.named);
  return {
    leftAt(subscriptionId) {
      const id = subscriptionId.toLowerCase();
      if (!record || record.watchAll || named.has(id)) return undefined;
      return record.left[id] ?? record.namedOnlySince;
    },
    nameOf(subscriptionId) {
      const id = subscriptionId.toLowerCase();
      return record?.names[id] ?? record?.discovered[id];
    },
  };
}

export const readScopeRow = (tables: Tables): Promise<Row<ScopeRecord> | undefined> =>
  tables.get(ScopeRows, VAULTS, SCOPE_KEY);

/**
 * Reads the scope. One request. For the answer to a GET request, a scope that can't be read is ignored: every subscription is
 * then in scope, and the answer says that a row could not be read.
 */
export const readScope = async (tables: Tables): Promise<Scope> =>
  scopeOf(await undefinedIfLeftOut(readScopeRow(tables)));
