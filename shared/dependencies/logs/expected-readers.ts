import type { AssetLocation } from "../../inventory/asset.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { readUnits } from "../coverage.ts";
import { principalId } from "../edge.ts";
import { assetOfEdge, Edges, NOT_SEEN, NotSeenRows, rangeOf, vaultPrefix } from "../rows.ts";
import type { Reader } from "./rows.ts";

/**
 * Decides whether a reader of an asset was expected: a role or an access policy grants access, or the resource whose identity
 * it is references the asset or its vault. The members of groups are unknown, so any user is expected if a group has access.
 */
export interface ExpectedReaders {
  /**
   * Creates a lookup for one run, which reads the access to a vault once, with one request per 1,000 of its dependencies. The
   * lookup returns undefined while access is unknown: no subscription was read completely yet, or access could not be read.
   */
  createLookup(): (asset: AssetLocation) => Promise<((reader: Reader) => boolean) | undefined>;
}

/** Scope of coverage items about access. */
const PRINCIPALS = "entra";

export function createExpectedReaders(tables: Tables): ExpectedReaders {
  /**
   * Returns whether the access to vaults is known completely: each subscription was read completely once, and no coverage item
   * (a scope that could not be read) concerns a whole subscription or its principals.
   */
  async function isAccessKnown(): Promise<boolean> {
    const units = [...(await readUnits(tables)).values()].filter(({ source }) => source === "azure");
    if (units.length === 0 || units.some(({ lastFullAt }) => lastFullAt === undefined)) return false;
    if (units.every(({ notSeen }) => notSeen === 0)) return true;
    let isReadable = true;
    const onCorrupt = () => {
      isReadable = false;
    };
    for await (const rows of tables.pages(NotSeenRows, { ...rangeOf(NOT_SEEN), onCorrupt }))
      if (
        !isReadable ||
        rows.some(({ source, scope, unit }) => source === "azure" && (scope === PRINCIPALS || scope === unit))
      )
        return false;
    return true;
  }

  /**
   * Returns the resources and principals that have access to a vault or reference it, by asset name in lower case. The key is
   * `*` for the whole vault, and `*<type>` if only assets of one type can be read. `groups`: a group has access.
   */
  async function usersOf(vaultName: string): Promise<Map<string, { ids: Set<string>; groups: boolean }>> {
    const users = new Map<string, { ids: Set<string>; groups: boolean }>();
    const select = ["resource", "strength", "type"] as const;
    for await (const rows of tables.pages(Edges, { ...rangeOf(vaultPrefix(vaultName)), select }))
      for (const { rowKey, resource, strength, type } of rows) {
        if (strength === "observed") continue;
        const name = assetOfEdge(rowKey)
          .asset?.replace(/^\w+\./, "")
          .toLowerCase();
        const key = name ?? WHOLE_VAULT + (type ?? "");
        const usersOfKey = users.get(key) ?? { ids: new Set<string>(), groups: false };
        usersOfKey.ids.add(resource.id.toLowerCase());
        // The Azure source names principals `<type> <object ID>`.
        if (/^Group /.test(resource.name) && resource.kind === "principal") usersOfKey.groups = true;
        users.set(key, usersOfKey);
      }
    return users;
  }

  return {
    createLookup() {
      let known: Promise<boolean> | undefined;
      let last: { vaultName: string; users: Awaited<ReturnType<typeof usersOf>> } | undefined;
      return async ({ vaultName, type, name }) => {
        known ??= isAccessKnown();
        if (!(await known)) return undefined;
        // Callers ask vault by vault, because the rows of assets are sorted by vault. So one vault is cached.
        if (last?.vaultName !== vaultName) last = { vaultName, users: await usersOf(vaultName) };
        const { users } = last;
        // Permissions on keys do not allow reading secrets. A certificate can be read as a secret.
        const types = type === "key" ? ["", "key"] : ["", "secret", "certificate"];
        const keys = [...types.map((one) => WHOLE_VAULT + one), name.toLowerCase()];
        const found = keys.flatMap((key) => users.get(key) ?? []);
        return ({ id, userName, identityOf }) =>
          found.some(
            ({ ids }) => ids.has(principalId(id)) || (identityOf !== undefined && ids.has(identityOf.toLowerCase())),
          ) ||
          (userName !== undefined && found.some(({ groups }) => groups));
      };
    },
  };
}

/** Used instead of an asset name for whole vaults. If a reader may read only one type, the type follows. */
const WHOLE_VAULT = "*";
