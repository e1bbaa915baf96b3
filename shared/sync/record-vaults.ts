import { VAULTS, type VaultRecord, Vaults, vaultKey } from "../inventory/vault.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { ResourceManager, VaultResource } from "../platform/azure/resource-manager.ts";
import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { VaultSecrets, VaultSecretsClients } from "../platform/azure/vault-secrets.ts";
import type { Config } from "../platform/config/config.ts";
import type { Clock } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import { SyncFailure } from "./providers/provider.ts";
import type { SyncRecord, VaultIdentity } from "./record.ts";

/** Time for which a vault description is reused for metadata reads, so that runs of many records share one request. */
const CACHE_MS = 10 * SECOND_MS;
/** Timeout for reading a vault's description. With this timeout, the read and the calls after it end within the run's lease. */
const DESCRIBE_MS = 20 * SECOND_MS;

/** The side of a record: the vault of its source, or the vault of its target. */
export type Side = "source" | "target";

/** The vault of one side of a record. */
export interface RecordVault {
  secrets: VaultSecrets;
  identity: VaultIdentity;
}

/** Opens the key vaults of sources and targets. */
export interface SyncVaults {
  /** Returns undefined if the inventory has no vault of that name. */
  find(name: string): Promise<Pick<VaultRecord, "name" | "id"> | undefined>;
  /**
   * Opens a record's vault if it is still the vault that the record used before. A vault of the same name with another resource
   * ID, or one that was deleted and created again, is another vault: it is neither read nor written.
   *
   * @param readsValue - True before a value is read or written: queries Azure Resource Manager now. False: accepts a
   * description that is up to 10 seconds old.
   * @throws {SyncFailure} notFound, serviceVault, otherPlace; {CloudFailure} if the vault can't be described, or foreignHost
   */
  open(record: SyncRecord, side: Side, readsValue: boolean): Promise<RecordVault>;
}

export function createSyncVaults(deps: {
  tables: Tables;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
  resourceManager: Pick<ResourceManager, "vault">;
  clients: VaultSecretsClients;
  clock: Clock;
}): SyncVaults {
  const { clock } = deps;
  const cache = new Map<string, { at: number; vault: Promise<VaultResource> }>();

  const find = (name: string) => deps.tables.get(Vaults, VAULTS, vaultKey(name));

  function describeVault(id: string, readsValue: boolean): Promise<VaultResource> {
    const key = id.toLowerCase();
    const at = clock.now().getTime();
    const cached = cache.get(key);
    // `abs`, because the clock follows the store and can be set back.
    if (cached && !readsValue && Math.abs(at - cached.at) < CACHE_MS) return cached.vault;
    const request = { at, vault: deps.resourceManager.vault(id, AbortSignal.timeout(DESCRIBE_MS)) };
    cache.set(key, request);
    request.vault.catch(() => {
      if (cache.get(key) === request) cache.delete(key);
    });
    return request.vault;
  }

  return {
    find,

    async open(record, side, readsValue) {
      // Records of the provider `azure` have the name of the target vault in `targetRegion`.
      const name = side === "source" ? record.sourceVault : (record.targetRegion ?? "");
      if (isServiceVault(deps.config, name)) {
        throw new SyncFailure("serviceVault", `${name} is the service's own key vault, which is never synced.`, {
          remedy: "Delete this record.",
        });
      }
      const inventoryVault = await find(name);
      if (!inventoryVault) {
        throw new SyncFailure("notFound", `The key vault ${name} is not in the inventory.`, {
          remedy: "Run a scan of its subscription, or delete this record.",
        });
      }
      const vault = await describeVault(inventoryVault.id, readsValue).catch((error: unknown) => {
        throw error instanceof CloudFailure && error.code === "notFound" ? vaultGone(name, inventoryVault.id) : error;
      });
      // Inventory rows are not signed. A tampered row could name any vault that the service can read.
      if (vault.name.toLowerCase() !== name.toLowerCase()) throw vaultGone(name, inventoryVault.id);
      const identity = { id: vault.id.toLowerCase(), ...(vault.createdOn && { createdOn: vault.createdOn }) };
      requireSameVault(record, side, name, identity);
      return { secrets: deps.clients.open(vault), identity };
    },
  };
}

/**
 * Throws if the vault is not the vault that the record used before.
 * - If the record stores an identity with a creation date, resource ID and creation date must match.
 * - If the record stores an identity without a date, the resource ID must match, and the vault must be old enough.
 * - If the record stores no identity, the vault must be old enough.
 *
 * A vault is old enough if Azure reports no creation date, or if the vault existed when the record last used or confirmed the
 * name. Two vaults never share a name at the same time, including deleted vaults that can be recovered.
 *
 * @throws {SyncFailure} otherPlace
 */
function requireSameVault(record: SyncRecord, side: Side, name: string, current: VaultIdentity): void {
  const before = side === "source" ? record.sourceIdentity : record.targetIdentity;
  if (before && before.id === current.id && before.createdOn === current.createdOn) return;
  const { createdAt, lastCheckedAt = "", vaultsConfirmedAt = "" } = record;
  const usedAt = [createdAt, lastCheckedAt, vaultsConfirmedAt].sort().at(-1)!;
  // Without a stored creation date, only the time when the record last used the name shows whether it is the same vault.
  const isUndated = before === undefined || (before.id === current.id && before.createdOn === undefined);
  if (isUndated && (current.createdOn === undefined || current.createdOn <= usedAt)) return;
  const previousUse = before
    ? `The record used ${formatVault(before)}.`
    : `The record last used a vault of this name at ${usedAt}.`;
  throw new SyncFailure(
    "otherPlace",
    `${name} is not the key vault that this record used: ${formatVault(current)}. ${previousUse}`,
    {
      remedy:
        "Find out who created it. If it is the right one, change the record with confirmVaults set to true; otherwise delete the record.",
    },
  );
}

const formatVault = ({ id, createdOn }: VaultIdentity): string => (createdOn ? `${id}, created ${createdOn}` : id);

const vaultGone = (name: string, id: string) =>
  new SyncFailure("notFound", `The key vault ${name} is no longer at ${id}.`, {
    remedy:
      "Recover it if it was deleted. If it was moved, run a scan of its subscription. Otherwise delete this record.",
  });

/**
 * Names of vaults: https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules#microsoftkeyvault
 */
const VAULT_NAME = /^[a-z][a-z0-9-]{1,22}[a-z0-9]$/i;

/**
 * Returns the name of a vault from its name or its address, such as `https://kv-payments.vault.azure.net`; undefined for other
 * texts.
 *
 * @param suffix - The domain of all vault addresses.
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

/** Wraps vault clients so that each written version immediately starts the sync records of that secret. */
export const startingSyncOnWrite = (
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
