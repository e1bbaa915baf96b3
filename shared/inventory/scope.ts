import * as z from "zod";
import { entity, type Row } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { VAULTS } from "./vault.ts";

/**
 * Which subscriptions are watched, as settings, entries and configuration last came to. One row, so that everything which
 * counts or tells asks the same; no row of a vault or an asset says whether it is in scope. The room subscriptions writes it.
 */
export const ScopeRecord = z.object({
  /** True: every subscription that the identity may see. False: only the named ones. */
  watchAll: z.boolean(),
  /** Ids in lower case, sorted: those added through the API and those of AZURE_SUBSCRIPTION_IDS. */
  named: z.array(z.string()),
  /** Since when only the named ones are watched, ISO 8601; absent while all are. */
  namedOnlySince: z.string().optional(),
  /** When those left that were named once, ISO 8601, by id. Any other one left when `namedOnlySince` says. */
  left: z.record(z.string(), z.string()),
  /** What people called them, by id. */
  names: z.record(z.string(), z.string()),
  /** What the resource manager calls those that the identity was seen to see, by id. */
  discovered: z.record(z.string(), z.string()),
  /** Since when the identity does not see them any more, ISO 8601, by id. */
  unseenSince: z.record(z.string(), z.string()),
});
export type ScopeRecord = z.infer<typeof ScopeRecord>;

export const ScopeRows = entity("Vaults", ScopeRecord);
/** Sorts right before the vaults, so that one range reads both. */
export const SCOPE_KEY = "m!scope";

/** What the scope says of a subscription. Ids in any case. */
export interface Scope {
  /** When it left the scope, ISO 8601; undefined where it is watched. */
  leftAt(subscriptionId: string): string | undefined;
  /** What people called it, else what the resource manager does; undefined where neither is known. */
  nameOf(subscriptionId: string): string | undefined;
}

/** Without a record, before anything was ever watched, nothing has left. */
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

/** One request. */
export const readScope = async (tables: Tables): Promise<Scope> => scopeOf(await readScopeRow(tables));
