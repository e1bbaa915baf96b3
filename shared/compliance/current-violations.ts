import pMap from "p-map";
import { Assets, placesOf, sourceOf } from "../inventory/asset.ts";
import { nameKey, partitions } from "../inventory/asset-keys.ts";
import { VAULTS, Vaults, vaultKey } from "../inventory/vault.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { withCorruptRowErrors } from "../platform/storage/packed-members.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { ResourceType } from "./check.ts";
import { checkOfId, successorsOf } from "./checks/all.ts";
import { Findings, findingsPrefix, STATE } from "./compliance-rows.ts";
import type { NewViolation } from "./new-violations.ts";
import { isActive, type Overview, type VaultOverview } from "./overview.ts";
import { assetKey, unpackFindings } from "./packed-results.ts";
import { listViolations, type Violation } from "./violations.ts";

/** Rows read at once. */
const PARALLEL = 16;

/**
 * Returns a page of the current violations, the most severe first, without exempted ones, with the tags of their resources.
 *
 * @param cursor - Cursor of the previous page. Undefined for the first.
 * @returns no cursor after the last page.
 */
export async function currentViolations(
  tables: Tables,
  overview: Overview,
  cursor: string | undefined,
  limit: number,
): Promise<{ violations: NewViolation[]; cursor?: string }> {
  const page = await listViolations(tables, overview, {}, { limit, offset: 0, cursor });
  const vaults = new Map<string, ReturnType<typeof vaultOf>>();
  const vaultOf = async (name: string) => await tables.get(Vaults, VAULTS, vaultKey(name));
  const found = await pMap(
    page.items.filter(({ exempted }) => !exempted),
    async (one): Promise<NewViolation[]> => {
      const { id, checkId, title, severity, resourceId, resourceType, firstSeenAt } = one;
      const same = { id, checkId, title, severity, resourceId, resourceType, firstSeenAt };
      if (resourceType === "vault") {
        const reading = vaults.get(resourceId) ?? vaultOf(resourceId);
        vaults.set(resourceId, reading);
        const vault = await reading;
        if (!vault) return [];
        const { name, subscriptionId, tags = {} } = vault;
        return [{ ...same, vaultName: name, vaultId: vault.id, subscriptionId, tags }];
      }
      const place = placesOf(resourceId).find(({ type }) => type === resourceType);
      const asset = place && (await tables.get(Assets, partitions.vault(place.vaultName), nameKeyOf(place)));
      if (!asset) return [];
      const { vaultName, vaultId, subscriptionId, tags = {} } = asset;
      return [{ ...same, vaultName, vaultId, subscriptionId, tags }];
    },
    { concurrency: PARALLEL },
  );
  return { violations: found.flat(), ...(page.nextCursor === null ? {} : { cursor: page.nextCursor }) };
}

const nameKeyOf = ({ type, name, vaultName }: ReturnType<typeof placesOf>[number]) => nameKey(type, name, vaultName);

/** A violation of which an alert has notified. */
export type AlertedViolation = Pick<Violation, "id" | "checkId" | "resourceId"> & {
  resourceType: string;
  vaultName: string;
};

/** One reading of the current results. */
export interface ViolationReading {
  /** Number of vaults with results. */
  vaults: number;
  /** When a result of any vault last changed, ISO 8601. Empty if there is none. */
  changedAt: string;
  /** Returns whether a vault has results. */
  has(vaultName: string): boolean;
  /** Returns whether a vault's results changed since, or no longer exist. */
  changedSince(vaultName: string, at: string): boolean;
  /**
   * Returns the violations that still exist, by ID, and whether they are exempted. A request for each check, its successors,
   * and vault.
   */
  standing(violations: readonly AlertedViolation[]): Promise<Map<string, { exempted: boolean }>>;
}

export function readingOf(tables: Tables, overview: Overview): ViolationReading {
  const vaults = new Map(overview.vaults.map((vault) => [vault.name.toLowerCase(), vault]));

  async function failingOf(checkId: string, vault: VaultOverview): Promise<string[]> {
    const check = checkOfId.get(checkId);
    if (!check) return [];
    if (check.resourceType === "vault")
      return vault.failures.some(({ code }) => code === check.code) ? [vault.name.toLowerCase()] : [];
    if ((vault.tallies.get(check.code)?.failed ?? 0) === 0) return [];
    const names: string[] = [];
    const prefix = findingsPrefix(check, vault.name);
    for await (const rows of tables.pages(Findings, { partitionKey: STATE, from: prefix, before: keyEnd(prefix) }))
      for (const row of rows)
        for (const [name] of withCorruptRowErrors(Findings, row, "items", () => unpackFindings(row.items)))
          names.push(name.toLowerCase());
    return names;
  }

  /** A violation that got worse continues under the other check's ID. */
  async function failingNames({ checkId }: AlertedViolation, vault: VaultOverview): Promise<Set<string>> {
    const checks = [checkId, ...successorsOf(checkId)];
    return new Set((await Promise.all(checks.map((one) => failingOf(one, vault)))).flat());
  }

  return {
    vaults: vaults.size,
    changedAt: overview.vaults.reduce((newest, { evaluatedAt }) => (evaluatedAt > newest ? evaluatedAt : newest), ""),

    has: (vaultName) => vaults.has(vaultName.toLowerCase()),

    changedSince(vaultName, at) {
      const vault = vaults.get(vaultName.toLowerCase());
      return vault === undefined || vault.evaluatedAt > at;
    },

    async standing(violations) {
      const groups = Map.groupBy(violations, ({ checkId, vaultName }) => `${checkId}!${vaultName.toLowerCase()}`);
      const found = new Map<string, { exempted: boolean }>();
      await pMap(
        groups.values(),
        async (group) => {
          const [first] = group as [AlertedViolation];
          const vault = vaults.get(first.vaultName.toLowerCase());
          const check = checkOfId.get(first.checkId);
          // Excluded holders of credentials are ignored.
          const isHolder = check && check.resourceType !== "vault" && sourceOf(check) !== "keyVault";
          if (!vault) {
            if (isHolder) for (const { id } of group) found.set(id, { exempted: true });
            return;
          }
          const names = await failingNames(first, vault);
          const broad = overview.exemptionOf(first.checkId, vault) !== undefined;
          for (const { id, checkId, resourceType, resourceId } of group) {
            const place = placesOf(resourceId).find(({ type }) => type === (resourceType as ResourceType));
            const asset = place && assetKey(place.type, place.name);
            if (!names.has(place?.name ?? resourceId)) continue;
            const own = vault.exemptions.some(
              (one) => one.checkId === checkId && one.asset === asset && isActive(one, overview.now),
            );
            found.set(id, { exempted: broad || own });
          }
        },
        { concurrency: PARALLEL },
      );
      return found;
    },
  };
}
