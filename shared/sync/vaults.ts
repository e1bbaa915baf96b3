import { isServiceVault } from "../azure/service-key-vault.ts";
import type { VaultSecrets, VaultSecretsClients } from "../azure/vault-secrets.ts";
import type { Config } from "../config/config.ts";
import { VAULTS, type VaultRecord, Vaults, vaultKey } from "../inventory/vault.ts";
import type { Tables } from "../storage/tables.ts";
import { SyncFailure } from "./providers/provider.ts";

/** The key vaults of the inventory, as sources and targets. */
export interface SyncVaults {
  /** Undefined when the inventory has none of that name. */
  find(name: string): Promise<Pick<VaultRecord, "name" | "vaultUri"> | undefined>;
  /** @throws {SyncFailure} notFound, serviceVault; {CloudFailure} foreignHost */
  secretsOf(name: string): Promise<VaultSecrets>;
}

export function createSyncVaults(deps: {
  tables: Tables;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
  clients: VaultSecretsClients;
}): SyncVaults {
  const find = (name: string) => deps.tables.get(Vaults, VAULTS, vaultKey(name));
  return {
    find,
    async secretsOf(name) {
      if (isServiceVault(deps.config, name)) {
        throw new SyncFailure("serviceVault", `${name} is the service's own key vault, which is never synced.`, {
          remedy: "Delete this record.",
        });
      }
      const vault = await find(name);
      if (!vault) {
        throw new SyncFailure("notFound", `The key vault ${name} is not in the inventory.`, {
          remedy: "Run a scan of its subscription, or delete this record.",
        });
      }
      return deps.clients.open({ name: vault.name, vaultUri: vault.vaultUri });
    },
  };
}

/** https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules#microsoftkeyvault */
const VAULT_NAME = /^[a-z][a-z0-9-]{1,22}[a-z0-9]$/i;

/**
 * The name of a vault that is given by its name or by its address, such as `https://kv-payments.vault.azure.net`; undefined
 * for anything else.
 *
 * @param suffix - The domain that every vault's address lies under.
 */
export function vaultNameOf(given: string, suffix: string): string | undefined {
  const text = given.trim();
  if (VAULT_NAME.test(text)) return text;
  if (!/^https:\/\//i.test(text) || !URL.canParse(text)) return undefined;
  const { hostname } = new URL(text);
  const host = hostname.replace(/\.$/, "");
  const name = host.slice(0, -suffix.length - 1);
  return host === `${name}.${suffix}` && VAULT_NAME.test(name) ? name : undefined;
}

/** Vault clients by which a new version is written: the records of that secret are run at once. */
export const copiedOn = (
  clients: VaultSecretsClients,
  runFor: (vault: string, secret: string) => Promise<void>,
): VaultSecretsClients => ({
  open(vault) {
    const secrets = clients.open(vault);
    return {
      ...secrets,
      async write(name, version) {
        const written = await secrets.write(name, version);
        await runFor(vault.name, name);
        return written;
      },
    };
  },
});
