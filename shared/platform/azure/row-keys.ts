import type { Randomness } from "../runtime.ts";
import type { RowKeys } from "../storage/signing.ts";
import { CloudFailure } from "./failure.ts";
import type { ServiceKeyVault } from "./service-key-vault.ts";

const SECRET = "row-signing";
const CONTENT_TYPE = "application/vnd.credential-lifecycle.row-signing";
/** Bytes of a key for HMAC with SHA-256 (RFC 7518 §3.2). */
const KEY_BYTES = 32;

/**
 * Returns keys for signed rows. The keys are versions of one secret in the service's own key vault: the newest signs, all
 * verify. The first signed row creates the secret. A person can add a version of 32 random bytes in base64. A process reads
 * each version once.
 *
 * @returns Keys whose methods throw `CloudFailure` while the vault can't be read.
 */
export function keyVaultRowKeys(vault: ServiceKeyVault, randomness: Randomness): RowKeys {
  const read = new Map<string, Promise<Uint8Array | undefined>>();
  let newest: Promise<{ name: string; key: Uint8Array }> | undefined;

  const keyOf = (value: string | undefined): Uint8Array | undefined => {
    const key = value === undefined ? undefined : Buffer.from(value, "base64");
    return key?.length === KEY_BYTES ? key : undefined;
  };

  async function named(name: string): Promise<Uint8Array | undefined> {
    if (!/^[0-9a-f]{32}$/.test(name)) return undefined;
    const known = read.get(name) ?? vault.readSecret(SECRET, name).then(keyOf);
    read.set(name, known);
    return await known.catch((error: unknown) => {
      read.delete(name);
      throw error;
    });
  }

  async function findOrMake(): Promise<{ name: string; key: Uint8Array }> {
    const found = await vault.readNewest(SECRET);
    const value = found?.value ?? Buffer.from(randomness.bytes(KEY_BYTES)).toString("base64");
    const key = keyOf(value);
    if (key) return { name: found?.version ?? (await vault.writeSecret(SECRET, value, CONTENT_TYPE)), key };
    throw new CloudFailure("badResponse", `The secret ${SECRET} of the service's own key vault is no key.`, {
      remedy: `Add a version to it that is ${KEY_BYTES} random bytes in base64.`,
    });
  }

  return {
    named,

    async current() {
      newest ??= findOrMake();
      return await newest.catch((error: unknown) => {
        newest = undefined;
        throw error;
      });
    },
  };
}
