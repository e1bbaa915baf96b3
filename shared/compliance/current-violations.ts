/** Reads of current violations for alerts: a page of all violations, and whether violations of earlier alerts still exist. */
import pMap from "p-map";
import { Assets, locationsOf, sourceOf } from "../inventory/asset.ts";
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

/** Maximum number of concurrent reads of rows. */
const MAX_CONCURRENT_READS = 16;

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
  /** The reads of vaults by name, so that each vault is read once. */
  const vaults = new Map<string, ReturnType<typeof readVault>>();
  const readVault = async (name: string) => await tables.get(Vaults, VAULTS, vaultKey(name));
  const violations = await pMap(
    page.items.filter(({ exempted }) => !exempted),
    async ({ id, checkId, title, severity, resourceId, resourceType, firstSeenAt }): Promise<NewViolation[]> => {
      const commonFields = { id, checkId, title, severity, resourceId, resourceType, firstSeenAt };
      if (resourceType === "vault") {
        const vaultRead = vaults.get(resourceId) ?? readVault(resourceId);
        vaults.set(resourceId, vaultRead);
        const vault = await vaultRead;
        if (!vault) return [];
        const { name, subscriptionId, tags = {} } = vault;
        return [{ ...commonFields, vaultName: name, vaultId: vault.id, subscriptionId, tags }];
      }
      const location = locationsOf(resourceId).find(({ type }) => type === resourceType);
      const asset = location && (await tables.get(Assets, partitions.vault(location.vaultName), assetRowKey(location)));
      if (!asset) return [];
      const { vaultName, vaultId, subscriptionId, tags = {} } = asset;
      return [{ ...commonFields, vaultName, vaultId, subscriptionId, tags }];
    },
    { concurrency: MAX_CONCURRENT_READS },
  );
  return { violations: violations.flat(), ...(page.nextCursor === null ? {} : { cursor: page.nextCursor }) };
}

const assetRowKey = ({ type, name, vaultName }: ReturnType<typeof locationsOf>[number]) =>
  nameKey(type, name, vaultName);

/** A violation for which an alert was sent. */
export type AlertedViolation = Pick<Violation, "id" | "checkId" | "resourceId"> & {
  resourceType: string;
  vaultName: string;
};

/** The current results, read once. */
export interface ViolationReading {
  /** Number of vaults with results. */
  vaults: number;
  /** When a result of any vault last changed, ISO 8601. Empty if there is none. */
  changedAt: string;
  /** Returns whether a vault has results. */
  has(vaultName: string): boolean;
  /** Returns whether a vault's results changed after this time (ISO 8601), or no longer exist. */
  changedSince(vaultName: string, instant: string): boolean;
  /**
   * Returns those violations that still exist, by ID, and whether they are exempted. A violation also exists while its resource
   * fails a successor of the check: a worse check, such as expired after near expiry. Sends a request for each vault and check.
   */
  findExisting(violations: readonly AlertedViolation[]): Promise<Map<string, { exempted: boolean }>>;
}

/** Creates the reader of the current results from an overview. */
export function createViolationReading(tables: Tables, overview: Overview): ViolationReading {
  const vaults = new Map(overview.vaults.map((vault) => [vault.name.toLowerCase(), vault]));

  async function readFailingNames(checkId: string, vault: VaultOverview): Promise<string[]> {
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

  /** Returns the lower-case names of resources that fail the check, or a worse one that continues its alerts. */
  async function readNamesFailingCheckOrSuccessor(
    { checkId }: AlertedViolation,
    vault: VaultOverview,
  ): Promise<Set<string>> {
    const checks = [checkId, ...successorsOf(checkId)];
    return new Set((await Promise.all(checks.map((id) => readFailingNames(id, vault)))).flat());
  }

  return {
    vaults: vaults.size,
    changedAt: overview.vaults.reduce((newest, { evaluatedAt }) => (evaluatedAt > newest ? evaluatedAt : newest), ""),

    has: (vaultName) => vaults.has(vaultName.toLowerCase()),

    changedSince(vaultName, instant) {
      const vault = vaults.get(vaultName.toLowerCase());
      return vault === undefined || vault.evaluatedAt > instant;
    },

    async findExisting(violations) {
      const groups = Map.groupBy(violations, ({ checkId, vaultName }) => `${checkId}!${vaultName.toLowerCase()}`);
      const existing = new Map<string, { exempted: boolean }>();
      await pMap(
        groups.values(),
        async (group) => {
          const [first] = group as [AlertedViolation];
          const vault = vaults.get(first.vaultName.toLowerCase());
          const check = checkOfId.get(first.checkId);
          // Directory credentials are stored under a holder, which takes the place of a vault. If the holder is excluded from
          // counts, its violations are not resolved, but must not cause alerts.
          const isHolder = check && check.resourceType !== "vault" && sourceOf(check) !== "keyVault";
          if (!vault) {
            if (isHolder) for (const { id } of group) existing.set(id, { exempted: true });
            return;
          }
          const names = await readNamesFailingCheckOrSuccessor(first, vault);
          const isBroadlyExempted = overview.exemptionFor(first.checkId, vault) !== undefined;
          for (const { id, checkId, resourceType, resourceId } of group) {
            // An asset's ID can be ambiguous without its type. Undefined for a vault, whose `resourceId` is its name.
            const location = locationsOf(resourceId).find(({ type }) => type === (resourceType as ResourceType));
            const asset = location && assetKey(location.type, location.name);
            if (!names.has(location?.name ?? resourceId)) continue;
            const ownExemption = vault.exemptions.some(
              (exemption) =>
                exemption.checkId === checkId && exemption.asset === asset && isActive(exemption, overview.now),
            );
            existing.set(id, { exempted: isBroadlyExempted || ownExemption });
          }
        },
        { concurrency: MAX_CONCURRENT_READS },
      );
      return existing;
    },
  };
}
