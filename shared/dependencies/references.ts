import { encodeTime } from "ulid";
import type { Clock } from "../platform/runtime.ts";
import { undefinedIfChanged } from "../platform/storage/conflict.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import {
  DEPENDENCIES,
  type EdgeRecord,
  Edges,
  OUTDATED,
  Outdated,
  placeOfEdge,
  rangeOf,
  TABLE,
  UNRESOLVED,
  type UnresolvedRecord,
  UnresolvedRows,
  vaultPrefix,
} from "./rows.ts";

/** How long it is kept that a reference could not be followed any more: far longer than anybody takes to tell of it. */
const KEEP_UNRESOLVED_MS = 30 * DAY_MS;
/** Assets that compliance is asked to look at in one call. */
const ASSETS_AT_ONCE = 300;

/** A reference of which the platform says whether it can follow it. */
export interface Reference {
  /** `<type>.<name>`; undefined where the whole vault is named. */
  asset: string | undefined;
  resolved: boolean;
  /** Who names it, where, and what the platform says: names only. */
  evidence: string;
}

/** Which references platforms can follow and which they can't. */
export interface References {
  /** Of one vault. A request per 1,000 of its edges. */
  of(vaultName: string): Promise<Reference[]>;
  /** Has compliance look again at the assets whose references changed. May be done again at any time. */
  tell(): Promise<void>;
  /** Since an instant, the oldest first: what began, and the edge where that is still so. */
  unresolved(from: Date): AsyncGenerator<{ unresolved: UnresolvedRecord; still(): Promise<EdgeRecord | undefined> }[]>;
  removeOld(): Promise<void>;
}

export function createReferences(deps: {
  tables: Tables;
  /** Has compliance look at a vault again, and at these of its assets (`<type>.<name>`). */
  changed: (vaultName: string, assets: string[]) => Promise<void>;
  clock: Clock;
}): References {
  const { tables, clock } = deps;

  return {
    async of(vaultName) {
      const prefix = vaultPrefix(vaultName);
      const found: Reference[] = [];
      const select = ["resource", "evidence", "state"] as const;
      for await (const rows of tables.pages(Edges, { ...rangeOf(prefix), select })) {
        for (const { rowKey, resource, evidence, state } of rows) {
          if (!state) continue;
          const { asset } = placeOfEdge(rowKey);
          const text = `${resource.name} (${resource.kind}), ${evidence}: ${state.status}`;
          found.push({ asset, resolved: state.resolved, evidence: text });
        }
      }
      return found;
    },

    async tell() {
      for await (const rows of tables.pages(Outdated, rangeOf(OUTDATED))) {
        const vaults = Map.groupBy(rows, ({ vaultName }) => vaultName);
        for (const [vaultName, places] of vaults) {
          const assets = places.flatMap(({ asset }) => (asset === undefined ? [] : [asset]));
          for (let at = 0; at === 0 || at < assets.length; at += ASSETS_AT_ONCE)
            await deps.changed(vaultName, assets.slice(at, at + ASSETS_AT_ONCE));
        }
        // Those that were marked anew since stay for the next time.
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
          still: async () => {
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
