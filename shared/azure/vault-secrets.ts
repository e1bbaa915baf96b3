/**
 * Secrets of key vaults, read with their value and written: for rotation and sync only. Instants are whole unix seconds.
 */

/** One version of a secret without its value. */
export interface SecretVersion {
  name: string;
  /** 32 hexadecimal characters. */
  version: string;
  enabled: boolean;
  contentType?: string;
  tags: Record<string, string>;
  notBefore?: number;
  expiresOn?: number;
  createdOn?: number;
  updatedOn?: number;
  /** It only backs a certificate of the same name and can't be written. */
  managed: boolean;
}

/** What a new version is made of. Nothing is inherited from the version before. */
export interface NewSecretVersion {
  /** At most 25,600 bytes: https://learn.microsoft.com/azure/key-vault/secrets/about-secrets */
  value: string;
  contentType?: string | undefined;
  /** At most 15, names and values of up to 256 characters. */
  tags?: Record<string, string> | undefined;
  notBefore?: number | undefined;
  expiresOn?: number | undefined;
}

/** The secrets of one vault. Every method throws `CloudFailure`. */
export interface VaultSecrets {
  /** All versions, the newest first, without values; empty when there is no such secret. */
  versions(name: string, signal?: AbortSignal): Promise<SecretVersion[]>;
  /** Undefined when there is none. Without `version` the newest. */
  read(name: string, version?: string, signal?: AbortSignal): Promise<(SecretVersion & { value: string }) | undefined>;
  /**
   * Adds a version. Sent once: after an `unclear` failure the caller looks for what it wrote by its tags.
   *
   * @throws {CloudFailure} deleted when a deleted secret holds the name.
   */
  write(name: string, version: NewSecretVersion): Promise<SecretVersion>;
  /** Switches one version off or on. */
  enable(name: string, version: string, enabled: boolean): Promise<void>;
  /** A deleted secret that can be recovered, undefined when there is none. */
  deleted(name: string): Promise<{ tags: Record<string, string> } | undefined>;
  /** Has a deleted secret recovered; it takes seconds until its name works. */
  recover(name: string): Promise<void>;
  /** Deletes all versions, recoverable; nothing happens when it is not there. */
  remove(name: string): Promise<void>;
}

export interface VaultSecretsClients {
  /**
   * @throws {CloudFailure} foreignHost when the address is not https, or not under the cloud's Key Vault domain.
   * @throws {Problem} serviceVault when it is the service's own vault, in any spelling.
   */
  open(vault: { name: string; vaultUri: string }): VaultSecrets;
}
