/**
 * Converts a stored failure to a violation as the API returns it. Failures are stored by check and vault. A `Slice` names the
 * check and the vault. A `Finding` is one failing resource of them, as the tuple `[name, since, evidence, facts]`: `since` in
 * Unix seconds, `facts` such as owners.
 */
import { assetId, sourceOf } from "../inventory/asset.ts";
import { VAULTS, Vaults, vaultKey } from "../inventory/vault.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import type { ResourceType, Severity } from "./check.ts";
import { controlsOfCheck, type FrameworkId } from "./controls.ts";
import { isActive, type Overview, type VaultOverview } from "./overview.ts";
import { assetKey, type Finding } from "./packed-results.ts";
import type { Remediation } from "./remedies/remediation.ts";
import type { Slice } from "./violation-rows.ts";

/** A resource that fails a check. */
export interface Violation {
  id: string;
  resourceId: string;
  resourceType: ResourceType;
  resourceName: string;
  /**
   * Readable title of a directory credential, such as `Payments API/2026`, because its name consists of IDs. Null for other
   * resources, and for results of earlier versions.
   */
  credentialTitle: string | null;
  /** Null for resources outside of key vaults, like the subscription. */
  vaultName: string | null;
  subscriptionId: string | null;
  /** The first owner. Null if there is none. */
  owner: string | null;
  checkId: string;
  title: string;
  severity: Severity;
  rationale: string;
  frameworks: FrameworkId[];
  controls: { framework: FrameworkId; control: string }[];
  evidence: string;
  remediation: Remediation;
  firstSeenAt: string;
  lastSeenAt: string;
  exempted: boolean;
  exemptionId: string | null;
}

/** For each vault (lower-case name) and type of asset, when the list was last read completely, ISO 8601. */
type ListingTimes = ReadonlyMap<string, Partial<Record<ResourceType, string>>>;

/**
 * Returns when the lists of these vaults were last read completely. A violation of an unchanged asset was last seen then,
 * although the asset was not evaluated again.
 */
export async function readListingTimes(tables: Tables, vaults: readonly VaultOverview[]): Promise<ListingTimes> {
  const names = vaults.map(({ name }) => vaultKey(name)).sort();
  const [first, last] = [names[0], names.at(-1)];
  const listingTimes = new Map<string, Partial<Record<ResourceType, string>>>();
  if (first === undefined || last === undefined) return listingTimes;
  const select = ["name", "listedAt"] as const;
  // `${last}!` is the next possible key after `last`, so that the range includes `last`.
  for await (const rows of tables.pages(Vaults, { partitionKey: VAULTS, from: first, before: `${last}!`, select })) {
    for (const { name, listedAt } of rows) {
      // The vault itself has no list, so the time of its newest list counts.
      const newest = Object.values(listedAt).sort().at(-1);
      listingTimes.set(name.toLowerCase(), newest === undefined ? listedAt : { ...listedAt, vault: newest });
    }
  }
  return listingTimes;
}

/** Returns the ID of the active exemption of one failing resource: its own, else one of its vault or a larger scope. */
export function exemptionIdOf({ check, vault }: Slice, [name]: Finding, overview: Overview): string | null {
  const { id, resourceType } = check;
  const assetExemption =
    resourceType === "vault" ? undefined : findAssetExemption(vault, id, assetKey(resourceType, name), overview.now);
  return assetExemption?.id ?? overview.exemptionFor(id, vault)?.id ?? null;
}

const findAssetExemption = (vault: VaultOverview, checkId: string, asset: string, now: number) =>
  vault.exemptions.find(
    (exemption) => exemption.checkId === checkId && exemption.asset === asset && isActive(exemption, now),
  );

/** Returns the ID of the failing resource: an asset's ID, or a vault's name in lower case. */
export const resourceIdOf = (
  { check: { resourceType }, vault: { name: vaultName } }: Slice,
  [name]: Finding,
): string => (resourceType === "vault" ? vaultName.toLowerCase() : assetId({ vaultName, type: resourceType, name }));

/** Matches commands for a vault itself, such as `az keyvault update`. Commands for its secrets and keys use another API. */
const VAULT_COMMAND = /\baz keyvault (show|update)\b/;

/**
 * Adds the required version of the Azure CLI to commands: earlier versions use an API that Azure retires on 2027-02-27
 * (https://github.com/Azure/azure-cli/issues/34020).
 */
const withCliVersion = (remedy: Remediation): Remediation =>
  VAULT_COMMAND.test(remedy.cli) ? { ...remedy, cli: `# Needs Azure CLI 2.90 or later.\n${remedy.cli}` } : remedy;

/** Returns the violation in the form of the API. */
export function violationOf(slice: Slice, finding: Finding, overview: Overview, listingTimes: ListingTimes): Violation {
  const { check, vault } = slice;
  const [name, since, evidence, facts = {}] = finding;
  const { resourceType } = check;
  const resourceId = resourceIdOf(slice, finding);
  // Credentials of directories are stored under a holder, which takes the place of the vault. Callers don't see it as a vault.
  const isHolder = check.resourceType !== "vault" && sourceOf(check) !== "keyVault";
  const firstSeenAt = new Date(since * SECOND_MS).toISOString();
  const listedAt = listingTimes.get(vault.name.toLowerCase())?.[resourceType] ?? firstSeenAt;
  const controls = controlsOfCheck(check.id);
  const exemptionId = exemptionIdOf(slice, finding, overview);
  return {
    id: `${check.id}.${resourceId}`,
    resourceId,
    resourceType,
    resourceName: name,
    credentialTitle: facts.credentialTitle || null,
    vaultName: isHolder ? null : vault.name,
    subscriptionId: isHolder ? null : vault.subscriptionId,
    owner: facts.owners?.[0] ?? null,
    checkId: check.id,
    title: typeof check.failureTitle === "string" ? check.failureTitle : check.failureTitle(evidence),
    severity: check.severity,
    rationale: check.rationale,
    frameworks: [...new Set(controls.map(({ framework }) => framework))],
    controls: controls.map(({ framework, control }) => ({ framework, control })),
    evidence,
    remediation: withCliVersion(check.remedy({ vault: vault.name, name, facts, now: overview.now })),
    firstSeenAt,
    lastSeenAt: [firstSeenAt, listedAt].sort()[1]!,
    exempted: exemptionId !== null,
    exemptionId,
  };
}
