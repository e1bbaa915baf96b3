import type { CloudClock } from "../clock.ts";
import { current } from "../vaults/items.ts";
import type { VaultStore } from "../vaults/vault-store.ts";
import type { ArmResource, ArmStore, Properties } from "./resource-store.ts";

// Simulates resources that encrypt their data with a key of a vault: some use a new version of the key after a delay.

const HOUR_MS = 3_600_000;

/** A key in the configuration of a resource. */
interface KeyUse {
  /** Address of the key, without its version. */
  keyUrl: string;
  /** The version in use. */
  version: string | undefined;
  /** Properties of the resource after it uses another version. */
  withVersion(version: string, at: Date): Properties;
}

/** How the resources of a type use keys. */
interface KeyUserType {
  /** Time after which a resource uses a new version. Each is shorter than the documented time. */
  delayMs: number;
  /** Returns the key that the resource follows. Undefined if it uses no key of a vault, or is pinned to a version. */
  followed(properties: Properties): KeyUse | undefined;
}

/**
 * Types of resources that use a new version of their key by themselves. Documented times: Storage checks daily
 * (https://learn.microsoft.com/azure/storage/common/customer-managed-keys-overview), SQL within 24 hours
 * (https://learn.microsoft.com/azure/azure-sql/database/transparent-data-encryption-byok-key-rotation), disk encryption sets
 * within an hour (https://learn.microsoft.com/azure/virtual-machines/disk-encryption).
 */
const KEY_USER_TYPES: Record<string, KeyUserType | undefined> = {
  StorageAccount: { delayMs: 12 * HOUR_MS, followed: storageKey },
  EncryptionProtector: { delayMs: 12 * HOUR_MS, followed: protectorKey },
  DiskEncryptionSet: { delayMs: HOUR_MS / 2, followed: diskKey },
};

/** Simulates when resources use a new version of their encryption key. */
export class EncryptionKeys {
  readonly #parts: { resources: VaultStore; store: ArmStore; clock: CloudClock };
  /** Delays that a test set, by ID in lower case. */
  readonly #delays = new Map<string, number>();

  constructor(parts: { resources: VaultStore; store: ArmStore; clock: CloudClock }) {
    this.#parts = parts;
  }

  /** Sets the delay of a resource in milliseconds. Infinity: the resource keeps its version. Undefined: the default. */
  setDelay(id: string, milliseconds: number | undefined): void {
    if (milliseconds === undefined) this.#delays.delete(id.toLowerCase());
    else this.#delays.set(id.toLowerCase(), milliseconds);
  }

  /** Makes each resource use the newest version of its key, if its delay is over. */
  runDueWork(): void {
    const { store, clock } = this.#parts;
    for (const resource of store.all()) {
      const type = KEY_USER_TYPES[resource.type.noun];
      const use = type?.followed(resource.properties);
      if (type === undefined || use === undefined) continue;
      const newest = this.#newestVersion(use.keyUrl);
      if (newest === undefined || newest.id === use.version) continue;
      const delayMs = this.#delays.get(resource.id.toLowerCase()) ?? type.delayMs;
      const dueAt = newest.created * 1000 + delayMs;
      if (dueAt <= clock.now()) this.#setVersion(resource, use, newest.id, dueAt);
    }
  }

  #setVersion(resource: ArmResource, use: KeyUse, version: string, at: number): void {
    this.#parts.store.change(resource, (one) => {
      one.properties = use.withVersion(version, new Date(at));
    });
  }

  /** Returns the newest enabled version of a key. */
  #newestVersion(keyUrl: string): { id: string; created: number } | undefined {
    const [, vaultName = "", keyName = ""] = /^https:\/\/([^./]+)\.[^/]+\/keys\/([^/]+)$/.exec(keyUrl) ?? [];
    const key = this.#parts.resources.vault(vaultName)?.collections.keys.get(keyName);
    const newest = key && current(key);
    return newest?.enabled ? newest : undefined;
  }
}

/** Splits the address of a version of a key. */
function keyAddress(text: string | undefined): { keyUrl: string; version: string | undefined } | undefined {
  const [, keyUrl, version] = /^(https:\/\/[^/]+\/keys\/[^/]+)(?:\/([^/]+))?\/?$/.exec(text ?? "") ?? [];
  return keyUrl === undefined ? undefined : { keyUrl, version };
}

function storageKey(properties: Properties): KeyUse | undefined {
  const { encryption = {} } = properties as {
    encryption?: { keySource?: string; keyvaultproperties?: Record<string, string | undefined> };
  };
  const { keyname, keyversion, keyvaulturi, currentVersionedKeyIdentifier } = encryption.keyvaultproperties ?? {};
  if (!/^microsoft\.keyvault$/i.test(encryption.keySource ?? "") || keyversion || !keyname || !keyvaulturi)
    return undefined;
  const keyUrl = `${keyvaulturi.replace(/\/$/, "")}/keys/${keyname}`;
  const withVersion = (version: string, at: Date) => ({
    ...properties,
    encryption: {
      ...encryption,
      keyvaultproperties: {
        ...encryption.keyvaultproperties,
        currentVersionedKeyIdentifier: `${keyUrl}/${version}`,
        lastKeyRotationTimestamp: at.toISOString(),
      },
    },
  });
  return { keyUrl, version: keyAddress(currentVersionedKeyIdentifier)?.version, withVersion };
}

function protectorKey(properties: Properties): KeyUse | undefined {
  const { serverKeyType, uri, autoRotationEnabled } = properties as {
    serverKeyType?: string;
    uri?: string;
    autoRotationEnabled?: boolean;
  };
  const address = keyAddress(uri);
  if (serverKeyType !== "AzureKeyVault" || !autoRotationEnabled || address === undefined) return undefined;
  const [, vault = "", key = ""] = /^https:\/\/([^./]+)\.[^/]+\/keys\/([^/]+)$/.exec(address.keyUrl) ?? [];
  const withVersion = (version: string) => ({
    ...properties,
    serverKeyName: `${vault}_${key}_${version}`,
    uri: `${address.keyUrl}/${version}`,
  });
  return { ...address, withVersion };
}

function diskKey(properties: Properties): KeyUse | undefined {
  const { activeKey, rotationToLatestKeyVersionEnabled } = properties as {
    activeKey?: { keyUrl?: string };
    rotationToLatestKeyVersionEnabled?: boolean;
  };
  const address = keyAddress(activeKey?.keyUrl);
  if (!rotationToLatestKeyVersionEnabled || address === undefined) return undefined;
  const withVersion = (version: string, at: Date) => ({
    ...properties,
    activeKey: { ...activeKey, keyUrl: `${address.keyUrl}/${version}` },
    lastKeyRotationTimestamp: at.toISOString(),
  });
  return { ...address, withVersion };
}
