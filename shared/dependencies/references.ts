import { encodeTime } from "ulid";
import type { Clock } from "../platform/runtime.ts";
import { undefinedIfChanged } from "../platform/storage/conflict.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import {
  assetOfEdge,
  assetOfOutdated,
  DEPENDENCIES,
  type EdgeRecord,
  Edges,
  OUTDATED,
  Outdated,
  rangeOf,
  TABLE,
  UNRESOLVED,
  type UnresolvedRecord,
  UnresolvedRows,
  vaultPrefix,
} from "./rows.ts";

/** Retention of events about unresolved references, much longer than alerts need. */
const KEEP_UNRESOLVED_MS = 30 * DAY_MS;
/** Number of assets in one request to compliance. */
const ASSETS_AT_ONCE = 300;

/**
 * A reference to a vault in the configuration of an Azure resource, such as `@Microsoft.KeyVault(…)`. Azure reports whether it
 * could resolve the reference. References are read from the dependencies (`Edges`) that discovery stored.
 */
export interface Reference {
  /** `<type>.<name>`. Undefined for a whole vault. */
  asset: string | undefined;
  resolved: boolean;
  /** The resource, its setting and the platform's status. Names only. */
  evidence: string;
}

/** Reports the state of references to compliance and alerts. Discovery writes the rows that this module reads and deletes. */
export interface References {
  /** Returns the references to one vault. Makes one request per 1,000 dependencies. */
  ofVault(vaultName: string): Promise<Reference[]>;
  /**
   * Requests a compliance evaluation of each asset whose references changed: discovery wrote a row of `Outdated` for it. Then
   * removes these rows. Safe to repeat.
   */
  requestEvaluations(): Promise<void>;
  /** Lists references that became unresolved since a time, oldest first, with the dependency if it is still unresolved. */
  unresolved(
    from: Date,
  ): AsyncGenerator<{ unresolved: UnresolvedRecord; currentEdge(): Promise<EdgeRecord | undefined> }[]>;
  /** Deletes events of unresolved references that are older than 30 days. */
  removeOld(): Promise<void>;
}

export function createReferences(deps: {
  tables: Tables;
  /** Requests a compliance evaluation of these assets of a vault (`<type>.<name>`). */
  changed: (vaultName: string, assets: string[]) => Promise<void>;
  clock: Clock;
}): References {
  const { tables, clock } = deps;

  return {
    async ofVault(vaultName) {
      const prefix = vaultPrefix(vaultName);
      const found: Reference[] = [];
      const select = ["resource", "evidence", "state"] as const;
      for await (const rows of tables.pages(Edges, { ...rangeOf(prefix), select, onCorrupt: "leaveOut" })) {
        for (const { rowKey, resource, evidence, state } of rows) {
          if (!state) continue;
          const { asset } = assetOfEdge(rowKey);
          const text = `${resource.name} (${resource.kind}), ${evidence}: ${state.status}`;
          found.push({ asset, resolved: state.resolved, evidence: text });
        }
      }
      return found;
    },

    async requestEvaluations() {
      for await (const rows of tables.pages(Outdated, { ...rangeOf(OUTDATED), select: [] })) {
        const outdated = rows.map(({ rowKey }) => assetOfOutdated(rowKey));
        const vaults = Map.groupBy(outdated, ({ vaultName }) => vaultName);
        for (const [vaultName, ofVault] of vaults) {
          const assets = ofVault.flatMap(({ asset }) => (asset === undefined ? [] : [asset]));
          // If only the vault itself is outdated, makes one call with an empty list: the vault is always evaluated.
          for (let start = 0; start === 0 || start < assets.length; start += ASSETS_AT_ONCE)
            await deps.changed(vaultName, assets.slice(start, start + ASSETS_AT_ONCE));
        }
        // If discovery wrote a row again in the meantime, the row has another ETag and stays for the next call.
        for (const { rowKey, etag } of rows)
          await undefinedIfChanged(tables.remove(Outdated, DEPENDENCIES, rowKey, etag));
      }
    },

    async *unresolved(from) {
      const range = {
        ...rangeOf(UNRESOLVED),
        from: UNRESOLVED + encodeTime(Math.max(0, from.getTime())),
        before: keyEnd(UNRESOLVED),
      };
      for await (const rows of tables.pages(UnresolvedRows, range))
        yield rows.map((unresolved) => ({
          unresolved,
          currentEdge: async () => {
            const edge = await tables.get(Edges, DEPENDENCIES, unresolved.edge);
            return edge?.state?.resolved === false ? edge : undefined;
          },
        }));
    },

    async removeOld() {
      const before = UNRESOLVED + encodeTime(Math.max(0, clock.now().getTime() - KEEP_UNRESOLVED_MS));
      for await (const rows of tables.pages(UnresolvedRows, { ...rangeOf(UNRESOLVED), before, select: [] }))
        await tables.write(
          TABLE,
          DEPENDENCIES,
          rows.map(({ rowKey }) => remove(UnresolvedRows, rowKey)),
        );
    },
  };
}
