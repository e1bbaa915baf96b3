import type { Inventory } from "../../inventory/inventory.ts";
import type { AssetQueries } from "../../inventory/query.ts";
import type { LogAnalytics } from "../../platform/azure/log-analytics.ts";
import { isServiceVault } from "../../platform/azure/service-key-vault.ts";
import type { Config } from "../../platform/config/config.ts";
import type { Clock, Randomness } from "../../platform/runtime.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import type { SettingValues } from "../../settings/settings.ts";
import { keyVaultNames } from "../azure/key-vault-names.ts";
import type { EdgeSource } from "../edge-source.ts";
import { createExpectedReaders } from "./expected-readers.ts";
import { createWorkspaceReader } from "./read-workspace.ts";
import { createLogSource } from "./source.ts";
import { createUnusedSecrets, type KnownSecret, type UnusedSecrets } from "./unused-secrets.ts";
import { createUsage, type Usage } from "./usage.ts";

/** Results of the vault and sign-in logs. */
export interface Logs {
  /** Source of dependencies: readers as consumers. */
  source: EdgeSource;
  /** Last reads of assets. */
  usage: Usage;
  /** Secrets without reads for a long time. */
  unused: Pick<UnusedSecrets, "usesOf" | "readsOf">;
}

/**
 * Reads use of vault assets and of application credentials from logs. Each configured Log Analytics workspace is queried at
 * most once an hour, and the results are stored.
 */
export function createLogs(deps: {
  tables: Tables;
  config: Config;
  logAnalytics: LogAnalytics;
  /** Returns the object ID of the service's identity. @throws {CloudFailure} */
  ownObjectId(): Promise<string | undefined>;
  settings: { values(): Promise<Pick<SettingValues, "unusedSecretDays">> };
  inventory: Pick<Inventory, "moment"> & { assets: Pick<AssetQueries, "list"> };
  /** Requests a compliance evaluation of these assets of a vault (`<type>.<name>`). */
  unusedChanged: (vaultName: string, assets: string[]) => Promise<void>;
  clock: Clock;
  randomness: Randomness;
}): Logs {
  const { tables, config, clock } = deps;
  const workspaceIds = config.LOG_ANALYTICS_WORKSPACE_IDS;
  const reader = createWorkspaceReader({
    ...deps,
    names: keyVaultNames(config.cloud.keyVaultSuffix),
    isServiceVault: (vaultName) => isServiceVault(config, vaultName),
    expected: createExpectedReaders(tables),
  });
  const unused = createUnusedSecrets({
    tables,
    workspaceIds,
    days: async () => (await deps.settings.values()).unusedSecretDays,
    secretsOf,
    changed: deps.unusedChanged,
    clock,
  });

  async function* secretsOf(vault: string): AsyncGenerator<KnownSecret[]> {
    const moment = await deps.inventory.moment();
    let cursor: string | undefined;
    do {
      const request = { limit: PAGE_SIZE, offset: 0, cursor };
      const page = await deps.inventory.assets.list({ vault, type: "secret" }, request, moment);
      yield page.items.map(({ asset: { name, enabled, createdOn } }) => ({ name, enabled, createdOn }));
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }

  return {
    source: createLogSource({ tables, workspaceIds, reader, unused, now: () => clock.now() }),
    usage: createUsage({ tables, workspaceIds, reader, clock }),
    unused,
  };
}

const PAGE_SIZE = 1000;
