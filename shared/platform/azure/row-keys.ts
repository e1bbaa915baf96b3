import type { Randomness } from "../runtime.ts";
import type { RowKeys } from "../storage/signing.ts";
import { MINUTE_MS } from "../time.ts";
import { CloudFailure } from "./failure.ts";
import type { ServiceKeyVault } from "./service-key-vault.ts";

/**
 * Number of missing keys after which a process requests no further keys from the vault in the same minute. Another program could
 * write rows that name many keys. The requests for these keys would reach the vault's limit, which all instances share.
 */
const MAX_ABSENT = 20;
/** Name of the secret whose versions are the keys that sign rows. */
export const ROW_SIGNING = "row-signing";
/** Bytes of a key for HMAC with SHA-256 (RFC 7518 §3.2), and for AES-256. */
const KEY_BYTES = 32;

/**
 * Returns the keys that sign table rows with HMAC, so that rows which another program wrote are detected. The keys are versions
 * of one secret in the service's own key vault: the newest version signs, and every version verifies. The first signed row
 * creates the secret. To change the key, an administrator adds a version of 32 random bytes in base64. A process caches the
 * versions.
 *
 * @returns Keys whose methods throw `CloudFailure` while the vault can't be read.
 */
export const keyVaultRowKeys = (vault: ServiceKeyVault, randomness: Randomness): RowKeys =>
  keyVaultKeys(ROW_SIGNING, vault, randomness);

/**
 * Returns the keys that encrypt the TOTP secrets of users (AES-256), stored like those of `keyVaultRowKeys`: the newest version
 * encrypts, and every version decrypts.
 *
 * @returns Keys whose methods throw `CloudFailure` while the vault can't be read.
 */
export const keyVaultSecondFactorKeys = (vault: ServiceKeyVault, randomness: Randomness): RowKeys =>
  keyVaultKeys("second-factor-key", vault, randomness);

function keyVaultKeys(secret: string, vault: ServiceKeyVault, randomness: Randomness): RowKeys {
  const contentType = `application/vnd.credential-lifecycle.${secret}`;
  const keysByVersion = new Map<string, Promise<Uint8Array | undefined>>();
  const absent = new Set<string>();
  let absentUntil = 0;
  let newest: Promise<{ name: string; key: Uint8Array }> | undefined;

  const decodeKey = (value: string | undefined): Uint8Array | undefined => {
    const key = value === undefined ? undefined : Buffer.from(value, "base64");
    return key?.length === KEY_BYTES ? key : undefined;
  };

  async function named(name: string): Promise<Uint8Array | undefined> {
    if (!/^[0-9a-f]{32}$/.test(name)) return undefined;
    if (performance.now() >= absentUntil) {
      for (const other of absent) keysByVersion.delete(other);
      absent.clear();
      absentUntil = performance.now() + MINUTE_MS;
    }
    if (!keysByVersion.has(name) && absent.size >= MAX_ABSENT) return undefined;
    const keyPromise = keysByVersion.get(name) ?? vault.readSecret(secret, name).then(decodeKey);
    keysByVersion.set(name, keyPromise);
    try {
      const key = await keyPromise;
      if (!key) absent.add(name);
      return key;
    } catch (error) {
      keysByVersion.delete(name);
      throw error;
    }
  }

  async function readOrCreateKey(): Promise<{ name: string; key: Uint8Array }> {
    const newestVersion = await vault.readNewest(secret);
    const value = newestVersion?.value ?? Buffer.from(randomness.bytes(KEY_BYTES)).toString("base64");
    const key = decodeKey(value);
    if (key) return { name: newestVersion?.version ?? (await vault.writeSecret(secret, value, contentType)), key };
    throw new CloudFailure("badResponse", `The secret ${secret} of the service's own key vault is not a valid key.`, {
      remedy: `Add a version of ${KEY_BYTES} random bytes in base64 to the secret.`,
    });
  }

  return {
    named,

    async current() {
      newest ??= readOrCreateKey();
      return await newest.catch((error: unknown) => {
        newest = undefined;
        throw error;
      });
    },
  };
}
