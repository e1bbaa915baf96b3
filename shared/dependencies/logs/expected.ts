import type { AssetPlace } from "../../inventory/asset.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { allUnits } from "../coverage.ts";
import { principalId } from "../edge.ts";
import { Edges, NOT_SEEN, NotSeenRows, placeOfEdge, rangeOf, vaultPrefix } from "../rows.ts";
import type { Reader } from "./rows.ts";

/**
 * Whether somebody who reads an asset was to be expected to: a role or an access policy lets them, or the resource whose identity
 * it is names the asset or its vault. Of a group its members may, and who they are is not known: a person counts as one where
 * any group may read.
 */
export interface ExpectedReaders {
  /**
   * For one reading: who may read a vault is looked up once, in a request per 1,000 dependencies of it. It answers undefined
   * while it is not known who may: no subscription was read in full yet, or who may read could not be looked into.
   */
  reading(): (place: AssetPlace) => Promise<((reader: Reader) => boolean) | undefined>;
}

/** What a reading of who may read calls what it could not look into. */
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

  /** Who may read what of a vault, or names it, by the asset's name. */
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
        // Rows come vault by vault.
        if (last?.vaultName !== vaultName) last = { vaultName, users: await usersOf(vaultName) };
        const { users } = last;
        // Who may use keys alone is not expected to read secrets; a certificate is read as a secret, too.
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

/** In the place of an asset's name, before the type where only assets of one are meant. */
const WHOLE_VAULT = "*";
