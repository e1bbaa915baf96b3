import { createHash } from "node:crypto";
import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem, retryLater } from "../platform/http/problem.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { merge, type Operation, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";

/** Time for which an instance caches a secret. */
const CACHE_MS = 5 * MINUTE_MS;
/** Minimum age of an unreferenced secret before it is deleted, because a reference to it may be about to be written. */
const MIN_AGE_MS = DAY_MS;
/** Seconds of `Retry-After` if the key vault did not specify a time. */
const RETRY_SECONDS = 10;

/** Prefix of the tracking rows' keys, which end with the secret's ID. */
const PREFIX = "secret|";
/** Tracking rows of the secrets of a table. `since`: time when the secret was created, ISO 8601. */
export const secretRows = (table: string) => entity(table, z.object({ since: z.string() }));

/** A reference to a secret in the service's own key vault. The id is a ULID, a hyphen, and a hash of the secret's purpose. */
export const secretReference = z.object({ id: z.string(), version: z.string() });
export type SecretReference = z.infer<typeof secretReference>;

/** A group of secrets, and where its module stores their rows. */
export interface SecretsGroup {
  /** Name of the group as the start of a sentence: "Secrets of single sign-on". */
  what: string;
  table: string;
  partitionKey: string;
  /** Prefix of the names in the key vault. */
  namePrefix: string;
  contentType: string;
  /** Event type and target of the audit entry when an unreferenced secret is deleted. */
  removed: { type: string; target: { type: string; id: string } };
}

/**
 * Secrets that users configure, such as client secrets, stored in the service's own key vault under unique names. Modules store
 * only references in their rows. In addition a tracking row exists for each secret. It is written before the secret and deleted
 * after it, so that the clean-up finds each secret, even after a crash.
 */
export interface StoredSecrets {
  /**
   * Stores a new secret.
   *
   * @param purpose - The secret's recipient, or a fixed word. The secret can't be read for another purpose.
   * @throws {Problem} conflict without a key vault. unavailable: Key Vault could not store the secret. The tracking row remains
   * until `cleanUp` removes it.
   */
  write(value: string, purpose: string): Promise<SecretReference>;
  /**
   * Returns an operation for the transaction that writes the row with the reference. The transaction fails if the secret has
   * been deleted in the meantime.
   */
  requireStored(secret: SecretReference): Operation;
  /**
   * Reads a secret. Caches its value for five minutes.
   *
   * @returns Undefined if the secret no longer exists or is for another purpose.
   * @throws {CloudFailure}; {Problem} conflict without a key vault
   */
  read(secret: SecretReference, purpose: string): Promise<string | undefined>;
  /** Deletes a secret that is no longer referenced. Does nothing if it does not exist. @throws {CloudFailure} */
  remove(secret: SecretReference): Promise<void>;
  /**
   * Deletes unreferenced secrets that were created more than a day ago.
   *
   * @throws the first failure, after all were attempted.
   */
  cleanUp(referenced: readonly SecretReference[], caller: Caller): Promise<void>;
}

export function createStoredSecrets(
  group: SecretsGroup,
  deps: {
    tables: Tables;
    audit: Pick<Audit, "append">;
    vault: ServiceKeyVault | undefined;
    clock: Clock;
    randomness: Randomness;
  },
): StoredSecrets {
  const { tables, audit, clock, randomness } = deps;
  const { partitionKey, contentType } = group;
  const rows = secretRows(group.table);
  const nameOf = (id: string): string => `${group.namePrefix}-${id}`;
  const cache = new Map<string, { readAtMs: number; value: Promise<string | undefined> }>();

  function requireVault(): ServiceKeyVault {
    if (deps.vault) return deps.vault;
    throw new Problem(
      "conflict",
      `${group.what} are stored in the service's own key vault, which is not configured. Set SERVICE_KEY_VAULT_URL.`,
    );
  }

  return {
    async write(value, purpose) {
      const keyVault = requireVault();
      const now = clock.now();
      const id = `${randomness.ulid(now)}-${hashOf(purpose)}`;
      await tables.put(rows, partitionKey, PREFIX + id, { since: now.toISOString() });
      try {
        return { id, version: await keyVault.writeSecret(nameOf(id), value, contentType) };
      } catch (error) {
        if (!(error instanceof CloudFailure)) throw error;
        const detail = `Nothing was changed. ${error.message} ${error.remedy}`;
        throw retryLater("unavailable", detail, error.retryAfterSeconds ?? RETRY_SECONDS);
      }
    },

    // Changes nothing, but fails if the row is missing.
    requireStored: ({ id }) => merge(rows, PREFIX + id, {}),

    async read({ id, version }, purpose) {
      // An attacker who can write the tables could change the recipient in a row, so that the secret would be sent there. But
      // the attacker can't change the hash of the purpose, which is in the secret's name in the key vault.
      if (!id.endsWith(`-${hashOf(purpose)}`)) return undefined;
      const nowMs = clock.now().getTime();
      const cached = cache.get(id);
      if (cached && nowMs - cached.readAtMs < CACHE_MS) return await cached.value;
      const value = requireVault().readSecret(nameOf(id), version);
      for (const [cachedId, { readAtMs }] of cache) if (nowMs - readAtMs >= CACHE_MS) cache.delete(cachedId);
      cache.set(id, { readAtMs: nowMs, value });
      try {
        return await value;
      } catch (error) {
        if (cache.get(id)?.value === value) cache.delete(id);
        throw error;
      }
    },

    async remove({ id }) {
      if (!deps.vault) return;
      cache.delete(id);
      await deps.vault.removeSecret(nameOf(id));
      await tables.remove(rows, partitionKey, PREFIX + id);
    },

    async cleanUp(referenced, caller) {
      if (!deps.vault) return;
      const createdBefore = new Date(clock.now().getTime() - MIN_AGE_MS).toISOString();
      const failures: unknown[] = [];
      const range = { partitionKey, from: PREFIX, before: keyEnd(PREFIX), onCorrupt: "leaveOut" as const };
      for await (const page of tables.pages(rows, range)) {
        for (const { rowKey, since: createdAt } of page) {
          const id = rowKey.slice(PREFIX.length);
          if (createdAt > createdBefore || referenced.some((secret) => secret.id === id)) continue;
          const name = nameOf(id);
          const removal = audited(audit, { ...group.removed, caller, details: { name } }, () =>
            requireVault().removeSecret(name),
          );
          await removal
            .then(() => tables.remove(rows, partitionKey, rowKey))
            .catch((error: unknown) => failures.push(error));
        }
      }
      if (failures.length > 0) throw failures[0];
    },
  };
}

/** Returns the hash of a purpose. Hex, so it is valid in a secret's name; 128 bits, so collisions are infeasible. */
const hashOf = (purpose: string): string => createHash("sha256").update(purpose).digest("hex").slice(0, 32);
