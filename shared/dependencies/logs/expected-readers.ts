import type { AssetPlace } from "../../inventory/asset.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { allUnits } from "../coverage.ts";
import { principalId } from "../edge.ts";
import { Edges, NOT_SEEN, NotSeenRows, placeOfEdge, rangeOf, vaultPrefix } from "../rows.ts";
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
  reading(): (place: AssetPlace) => Promise<((reader: Reader) => boolean) | undefined>;
}

/** Scope of coverage items about access. */
const PRINCIPALS = "entra";

export function createExpectedReaders(tables: Tables): ExpectedReaders {
  async function isKnown(): Promise<boolean> {
    const units = [...(await allUnits(tables)).values()].filter(({ source }) => source === "azure");
    if (units.length === 0 || units.some(({ lastFullAt }) => lastFullAt === undefined)) return false;
    if (units.every(({ notSeen }) => notSeen === 0)) return true;
    for await (const rows of tables.pages(NotSeenRows, rangeOf(NOT_SEEN)))
      if (rows.some(({ source, scope, unit }) => source === "azure" && (scope === PRINCIPALS || scope === unit)))
        return false;
    return true;
  }

  /** Readers of a vault that have access or reference it, by asset name. */
  async function usersOf(vaultName: string): Promise<Map<string, { ids: Set<string>; groups: boolean }>> {
    const users = new Map<string, { ids: Set<string>; groups: boolean }>();
    const select = ["resource", "strength", "type"] as const;
    for await (const rows of tables.pages(Edges, { ...rangeOf(vaultPrefix(vaultName)), select }))
      for (const { rowKey, resource, strength, type } of rows) {
        if (strength === "observed") continue;
        const name = placeOfEdge(rowKey)
          .asset?.replace(/^\w+\./, "")
          .toLowerCase();
        const key = name ?? WHOLE_VAULT + (type ?? "");
        const one = users.get(key) ?? { ids: new Set<string>(), groups: false };
        one.ids.add(resource.id.toLowerCase());
        if (/^Group /.test(resource.name) && resource.kind === "principal") one.groups = true;
        users.set(key, one);
      }
    return users;
  }

  return {
    reading() {
      let known: Promise<boolean> | undefined;
      let last: { vaultName: string; users: Awaited<ReturnType<typeof usersOf>> } | undefined;
      return async ({ vaultName, type, name }) => {
        known ??= isKnown();
        if (!(await known)) return undefined;
        // Rows are sorted by vault.
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

/** Used instead of an asset name for whole vaults, before the type if only one type is meant. */
const WHOLE_VAULT = "*";
