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
  /** Only for a directory's credential. Null if an earlier version wrote its findings. */
  credentialTitle: string | null;
  /** Null, like the subscription, for resources outside of key vaults. */
  vaultName: string | null;
  subscriptionId: string | null;
  /** The first named owner. Null if there is none. */
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

type Seen = ReadonlyMap<string, Partial<Record<ResourceType, string>>>;

/**
 * Returns when the lists of these vaults were last read completely: unchanged assets are seen again without a new evaluation.
 */
export async function lastSeen(tables: Tables, vaults: readonly VaultOverview[]): Promise<Seen> {
  const names = vaults.map(({ name }) => vaultKey(name)).sort();
  const [first, last] = [names[0], names.at(-1)];
  const seen = new Map<string, Partial<Record<ResourceType, string>>>();
  if (first === undefined || last === undefined) return seen;
  const select = ["name", "listedAt"] as const;
  for await (const rows of tables.pages(Vaults, { partitionKey: VAULTS, from: first, before: `${last}!`, select })) {
    for (const { name, listedAt } of rows) {
      const newest = Object.values(listedAt).sort().at(-1);
      seen.set(name.toLowerCase(), newest === undefined ? listedAt : { ...listedAt, vault: newest });
    }
  }
  return seen;
}

/** Returns the active exemption of one failing resource. */
export function exemptionIdOf({ check, vault }: Slice, [name]: Finding, overview: Overview): string | null {
  const { id, resourceType } = check;
  const ofAsset =
    resourceType === "vault" ? undefined : assetExemption(vault, id, assetKey(resourceType, name), overview.now);
  return ofAsset?.id ?? overview.exemptionOf(id, vault)?.id ?? null;
}

const assetExemption = (vault: VaultOverview, checkId: string, asset: string, now: number) =>
  vault.exemptions.find((one) => one.checkId === checkId && one.asset === asset && isActive(one, now));

/** Returns an asset's ID, or a vault's name in lower case. */
export const resourceIdOf = (
  { check: { resourceType }, vault: { name: vaultName } }: Slice,
  [name]: Finding,
): string => (resourceType === "vault" ? vaultName.toLowerCase() : assetId({ vaultName, type: resourceType, name }));

/** Matches commands for vaults themselves. Commands for vault objects use another API. */
const VAULT_COMMAND = /\baz keyvault (show|update)\b/;

/**
 * Adds the required version of the Azure CLI to commands: earlier versions use an API that Azure retires on 2027-02-27
 * (https://github.com/Azure/azure-cli/issues/34020).
 */
const withCliVersion = (remedy: Remediation): Remediation =>
  VAULT_COMMAND.test(remedy.cli) ? { ...remedy, cli: `# Needs Azure CLI 2.90 or later.\n${remedy.cli}` } : remedy;

/** Returns the violation in the form of the API. */
export function violationOf(slice: Slice, item: Finding, overview: Overview, seen: Seen): Violation {
  const { check, vault } = slice;
  const [name, since, evidence, facts = {}] = item;
  const { resourceType } = check;
  const resourceId = resourceIdOf(slice, item);
  const isHolder = check.resourceType !== "vault" && sourceOf(check) !== "keyVault";
  const firstSeenAt = new Date(since * SECOND_MS).toISOString();
  const listedAt = seen.get(vault.name.toLowerCase())?.[resourceType] ?? firstSeenAt;
  const controls = controlsOfCheck(check.id);
  const exemptionId = exemptionIdOf(slice, item, overview);
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
