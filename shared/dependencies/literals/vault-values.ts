import { createHmac } from "node:crypto";
import pMap from "p-map";
import { Assets, sourceOf } from "../../inventory/asset.ts";
import { namePrefix, nameRange, partitions } from "../../inventory/asset-keys.ts";
import { VAULTS, type VaultRecord, Vaults } from "../../inventory/vault.ts";
import { CloudFailure, isTransient } from "../../platform/azure/failure.ts";
import { isServiceVault } from "../../platform/azure/service-key-vault.ts";
import type { VaultSecrets, VaultSecretsClients } from "../../platform/azure/vault-secrets.ts";
import type { Config } from "../../platform/config/config.ts";
import type { Randomness } from "../../platform/runtime.ts";
import { keyEnd } from "../../platform/storage/keys.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import type { NotSeen } from "../edge-source.ts";
import { candidatesIn, isComparable } from "./comparable-values.ts";

/** Names a secret of a key vault. */
interface VaultSecretName {
  vaultName: string;
  name: string;
  /**
   * Set if the value is a key of an Azure resource, and the secret stores, or stored, a key of that resource: the name of the key,
   * such as `key2`. It is not necessarily the key that the secret stores.
   */
  keyName?: string;
}

/** A secret of which a setting contains a value. */
interface ContainedSecret {
  vaultName: string;
  name: string;
  /** Names of all keys of the Azure resource that the setting contains. */
  keyNames: string[];
}

/** The keys of an Azure resource, and the vault secrets that store, or stored, one of them. */
export interface LinkedKeys {
  places: readonly { vaultName: string; secretName: string }[];
  keys: readonly { name: string; value: string }[];
}

/** Counts of the values that were read. */
interface ValueCounts {
  vaults: number;
  /** Values that were read. */
  values: number;
  /** Values among them that are too short or too regular to compare. */
  leftOut: number;
  /** Vaults that were not read completely. */
  vaultsNotRead: number;
}

/**
 * The secret values of vaults, stored as HMACs under a key in memory. A text can be compared with them, but no value can be
 * read back.
 */
export interface VaultValues {
  readonly counts: ValueCounts;
  /** Whether a read failed that may succeed in the next run. */
  readonly incomplete: boolean;
  /** Returns the secrets whose value occurs in a setting, each once. */
  secretsIn(setting: string): ContainedSecret[];
  /** Returns the vaults of a subscription whose values could not all be read. */
  notSeenIn(subscriptionId: string): NotSeen[];
}

type Vault = Pick<VaultRecord, "id" | "name" | "source" | "vaultUri" | "subscriptionId">;

const VAULTS_AT_ONCE = 4;
/**
 * Number of concurrent reads of one vault. Key Vault allows 4,000 in 10 seconds for a vault and region:
 * https://learn.microsoft.com/azure/key-vault/general/service-limits
 */
const SECRETS_AT_ONCE = 4;
/** Maximum number of values in memory. Each takes about 200 bytes. */
const MAX_VALUES = 200_000;
/** Skip the rest of a vault after this many denials if no secret could be read. Roles may be assigned for single secrets. */
const MAX_DENIALS = 10;
/** Characters of a hash: 132 bits. */
const HASH_LENGTH = 22;

/**
 * Reads the current values of all enabled secrets that the identity may read in these subscriptions' vaults, except the
 * service's own vault. Makes one request per 1,000 vaults, one per 1,000 secrets of a vault, and one for each secret. Also lists
 * the keys of resources of which a secret stores one: a setting can contain the other key, or one that a rotation replaced.
 */
export async function readVaultValues(
  deps: {
    tables: Tables;
    vaults: VaultSecretsClients;
    config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
    randomness: Pick<Randomness, "bytes">;
    /** @throws {CloudFailure} */
    keysOfLinks(signal: AbortSignal): AsyncIterable<LinkedKeys>;
  },
  subscriptionIds: readonly string[],
  signal: AbortSignal,
): Promise<VaultValues> {
  const { tables, vaults, config, randomness } = deps;
  const watched = new Set(subscriptionIds.map((id) => id.toLowerCase()));
  const key = randomness.bytes(32);
  const hashOf = (value: string) => createHmac("sha256", key).update(value).digest("base64url").slice(0, HASH_LENGTH);
  /** The secrets with each value, by the value's hash. */
  const secretsByHash = new Map<string, VaultSecretName[]>();
  const notSeen = new Map<string, NotSeen[]>();
  const counts: ValueCounts = { vaults: 0, values: 0, leftOut: 0, vaultsNotRead: 0 };
  let incomplete = false;

  function add(secret: VaultSecretName, value: string): void {
    counts.values++;
    if (!isComparable(value)) {
      counts.leftOut++;
      return;
    }
    const hash = hashOf(value);
    const withSameValue = secretsByHash.get(hash);
    if (withSameValue) withSameValue.push(secret);
    else secretsByHash.set(hash, [secret]);
  }

  function recordNotSeen({ id, subscriptionId }: Vault, code: string, message: string, remedy: string): void {
    counts.vaultsNotRead++;
    const subscription = subscriptionId.toLowerCase();
    notSeen.set(subscription, [...(notSeen.get(subscription) ?? []), { scope: id, code, message, remedy }]);
  }

  /** @returns Why the vault was skipped, or why some of its secrets could not be read. */
  async function readVault(vault: Vault, secrets: VaultSecrets): Promise<CloudFailure | "tooMany" | undefined> {
    let [denied, read] = [0, 0];
    let failure: CloudFailure | undefined;
    let isSkipped = false;
    const prefix = namePrefix("secret");
    const range = { partitionKey: partitions.vault(vault.name), from: prefix, before: keyEnd(prefix) };
    for await (const rows of tables.pages(Assets, { ...range, select: ["name", "enabled"] })) {
      await pMap(
        rows.filter(({ enabled }) => enabled),
        async ({ name }) => {
          if (isSkipped || counts.values >= MAX_VALUES) return;
          try {
            const secret = await secrets.read(name, undefined, signal);
            if (secret === undefined) return;
            read++;
            add({ vaultName: vault.name, name }, secret.value.trim());
          } catch (error) {
            if (!(error instanceof CloudFailure)) throw error;
            if (error.code === "disabled") return;
            failure ??= error;
            if (error.code === "accessDenied") denied++;
            // Any failure other than a denial or a disabled secret is taken to concern the whole vault.
            isSkipped ||= error.code !== "accessDenied" || (read === 0 && denied >= MAX_DENIALS);
          }
        },
        { concurrency: SECRETS_AT_ONCE },
      );
      if (counts.values >= MAX_VALUES) return "tooMany";
      if (isSkipped) break;
    }
    return failure;
  }

  async function readIfWatched(vault: Vault): Promise<void> {
    if (sourceOf(vault) !== "keyVault" || isServiceVault(config, vault.name)) return;
    // Vaults that are out of scope stay in the inventory for a while.
    if (!watched.has(vault.subscriptionId.toLowerCase())) return;
    counts.vaults++;
    let failure: CloudFailure | "tooMany" | undefined;
    try {
      failure = await readVault(vault, vaults.open(vault));
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      failure = error;
    }
    if (failure === undefined) return;
    if (failure === "tooMany") {
      const message = `The secrets of key vault ${vault.name} were not all compared: ${MAX_VALUES} values are the most.`;
      return recordNotSeen(vault, failure, message, "Watch fewer subscriptions with one deployment.");
    }
    incomplete ||= isTransient(failure);
    const grant = "Give the service's identity the role Key Vault Secrets User on the vault, or leave it uncompared.";
    recordNotSeen(vault, failure.code, failure.message, failure.code === "accessDenied" ? grant : failure.remedy);
  }

  const select = ["id", "name", "source", "vaultUri", "subscriptionId"] as const;
  const range = nameRange(VAULTS);
  for await (const rows of tables.pages(Vaults, { ...range, select: [...select] }))
    await pMap(rows, readIfWatched, { concurrency: VAULTS_AT_ONCE });

  try {
    for await (const { places: linked, keys } of deps.keysOfLinks(signal))
      for (const { vaultName, secretName: name } of linked)
        for (const { name: keyName, value } of keys)
          if (counts.values < MAX_VALUES) add({ vaultName, name, keyName }, value);
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    // Other failures are not reported here. The discovery of keys lists the resources whose keys it can't read.
    incomplete ||= isTransient(error);
  }

  return {
    counts,
    incomplete,
    secretsIn(setting) {
      const found = new Map<string, ContainedSecret>();
      for (const { vaultName, name, keyName } of candidatesIn(setting).flatMap(
        (text) => secretsByHash.get(hashOf(text)) ?? [],
      )) {
        const id = `${vaultName}/${name}`;
        const keyNames = found.get(id)?.keyNames ?? [];
        const added = keyName === undefined || keyNames.includes(keyName) ? [] : [keyName];
        found.set(id, { vaultName, name, keyNames: [...keyNames, ...added] });
      }
      return [...found.values()];
    },
    notSeenIn: (subscriptionId) => notSeen.get(subscriptionId.toLowerCase()) ?? [],
  };
}
