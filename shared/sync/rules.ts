import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { Config } from "../platform/config/config.ts";
import { invalidBody, Problem } from "../platform/http/problem.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { NewSyncRecord, SyncRecordChange } from "./api.ts";
import type { ProviderConfigurations } from "./configurations.ts";
import { type AnyProvider, providerOf } from "./providers/providers.ts";
import { References, SYNC, type SyncRecord, sourcePrefix, targetKey } from "./record.ts";
import { type SyncVaults, vaultNameOf } from "./record-vaults.ts";

/** Source and target of a record, in the form that is stored. */
export type SourceAndTarget = Pick<
  SyncRecord,
  "sourceVault" | "sourceSecret" | "targetProvider" | "targetService" | "targetName" | "targetRegion"
>;

/** Validates the source and target of records. */
export interface RecordRules {
  /** Checks a new record and returns its source and target. @throws {Problem} invalidRequest, serviceVault, syncLoop */
  check(given: NewSyncRecord): Promise<SourceAndTarget>;
  /** Rejects a change of source or target. @throws {Problem} invalidRequest */
  checkUnchanged(record: SyncRecord, given: SyncRecordChange): Promise<void>;
}

export function createRules(deps: {
  tables: Tables;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL" | "cloud">;
  vaults: SyncVaults;
  configurations: Pick<ProviderConfigurations, "find">;
  /** Whether the service has its own key vault, which contains the key for signing records. */
  canSign: boolean;
}): RecordRules {
  const { tables, config, vaults, configurations } = deps;

  /** Returns the name of a vault as the inventory spells it. */
  async function requireVault(member: "sourceVault" | "targetRegion", given: string): Promise<string> {
    const name = vaultNameOf(given, config.cloud.keyVaultSuffix);
    if (name === undefined) throw invalidBody(member, "must be a key vault's name or its https address");
    if (isServiceVault(config, name)) {
      throw new Problem("serviceVault", `${name} is the service's own key vault: it is neither source nor target.`);
    }
    const inventoryVault = await vaults.find(name);
    if (!inventoryVault) {
      throw invalidBody(member, "names a key vault that is not in the inventory. Run a scan of its subscription first");
    }
    return inventoryVault.name;
  }

  /** Returns the region of a target: its own, or that of the provider's configuration. */
  async function targetRegionOf(provider: AnyProvider, given: string | undefined): Promise<string | undefined> {
    if (provider.id === "azure") {
      if (given === undefined) throw invalidBody("targetRegion", "is needed: the name of the key vault to write to");
      return await requireVault("targetRegion", given);
    }
    const settings = (await configurations.find(provider.id))?.settings;
    const problem = provider.regionProblem(given, settings ?? {});
    if (problem) throw invalidBody("targetRegion", problem);
    if (given !== undefined) return given;
    if (!settings && "region" in provider.configuration.shape) {
      throw invalidBody("targetRegion", "is needed while the provider is not configured");
    }
    return typeof settings?.region === "string" ? settings.region : undefined;
  }

  /** Returns the record of the first reference with a key prefix. */
  async function firstRecord(prefix: string): Promise<string | undefined> {
    const range = {
      partitionKey: SYNC,
      from: prefix,
      before: keyEnd(prefix),
      pageSize: 1,
      // A reference that can't be read may be the one that makes a loop.
      onCorrupt: "throw" as const,
    };
    for await (const rows of tables.pages(References, range)) return rows[0]!.recordId;
    return undefined;
  }

  /** Rejects loops: no target may be a source. Otherwise copies would be copied, and in the end over their own source. */
  async function rejectLoops(sourceAndTarget: SourceAndTarget): Promise<void> {
    const loopProblem = (detail: string, recordId?: string) =>
      new Problem("syncLoop", detail, recordId === undefined ? {} : { members: { recordId } });
    // The reference of a record whose target is this record's source. Its key has the name in lower case (`comparableName`).
    const source = await tables.get(
      References,
      SYNC,
      targetKey("azure", "keyvault", sourceAndTarget.sourceVault, sourceAndTarget.sourceSecret.toLowerCase()),
    );
    if (source) {
      throw loopProblem(
        "The source is the target of another sync record. Copy from that record's source instead.",
        source.recordId,
      );
    }
    // For `azure`, the region of a target is the name of its key vault.
    if (sourceAndTarget.targetProvider !== "azure" || sourceAndTarget.targetRegion === undefined) return;
    if (
      sourceAndTarget.targetRegion === sourceAndTarget.sourceVault &&
      sourceAndTarget.targetName.toLowerCase() === sourceAndTarget.sourceSecret.toLowerCase()
    ) {
      throw loopProblem("Source and target are the same secret.");
    }
    const target = await firstRecord(sourcePrefix(sourceAndTarget.targetRegion, sourceAndTarget.targetName));
    if (target)
      throw loopProblem("The target is the source of another sync record. Let that one copy from this source.", target);
  }

  return {
    async check(given) {
      if (!deps.canSign) {
        const detail =
          "Sync records are signed with a key in the service's own key vault, which is not configured. Set SERVICE_KEY_VAULT_URL.";
        throw new Problem("conflict", detail);
      }
      const provider = providerOf(given.targetProvider);
      if (!provider) throw invalidBody("targetProvider", "names no provider");
      const service = Object.hasOwn(provider.services, given.targetService) && provider.services[given.targetService];
      if (!service) {
        throw invalidBody("targetService", `must be one of ${Object.keys(provider.services).join(", ")}`);
      }
      const problem = service.nameProblem(given.targetName);
      if (problem) throw invalidBody("targetName", problem);
      const sourceVault = await requireVault("sourceVault", given.sourceVault);
      const targetRegion = await targetRegionOf(provider, given.targetRegion ?? undefined);
      const { sourceSecret, targetProvider, targetService, targetName } = given;
      const sourceAndTarget = { sourceVault, sourceSecret, targetProvider, targetService, targetName };
      const complete = { ...sourceAndTarget, ...(targetRegion !== undefined && { targetRegion }) };
      await rejectLoops(complete);
      return complete;
    },

    async checkUnchanged(record, given) {
      const nameOf = (text: string) => (vaultNameOf(text, config.cloud.keyVaultSuffix) ?? text).toLowerCase();
      for (const member of SOURCE_AND_TARGET_MEMBERS) {
        const value = given[member];
        if (value === undefined || value === record[member] || (value === null && record[member] === undefined))
          continue;
        const isVault = member === "sourceVault" || (member === "targetRegion" && record.targetProvider === "azure");
        if (isVault && value !== null && nameOf(value) === nameOf(record[member] ?? "")) continue;
        throw invalidBody(member, "can't be changed. Create another record and delete this one");
      }
    },
  };
}

const SOURCE_AND_TARGET_MEMBERS = [
  "sourceVault",
  "sourceSecret",
  "targetProvider",
  "targetService",
  "targetName",
  "targetRegion",
] as const;
