import { createHash } from "node:crypto";
import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem, retryLater } from "../platform/http/problem.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { type Entity, entity } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { merge, type Operation, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";

/** How long an instance caches a secret. */
const CACHE_MS = 5 * MINUTE_MS;
/** Minimum age of an unused secret before it is deleted, since a reference to it may be about to be written. */
const UNUSED_MS = DAY_MS;
/** Seconds of `Retry-After` if the key vault did not specify a time. */
const RETRY_SECONDS = 10;

const PREFIX = "secret|";
const secretRow = z.object({ since: z.string() });

/** A record of a secret in the service's own key vault. The id is a ULID, a hyphen, and a hash of the secret's use. */
export const secretReference = z.object({ id: z.string(), version: z.string() });
export type SecretReference = z.infer<typeof secretReference>;

/** A group of secrets, and where its module stores their rows. */
export interface SecretsOwner {
  /** Name of the group as the start of a sentence: "Secrets of single sign-on". */
  what: string;
  table: string;
  partitionKey: string;
  /** Prefix of the names in the key vault. */
  namePrefix: string;
  contentType: string;
  /** Event type and target of the audit entry when an unused secret is deleted. */
  removed: { type: string; target: { type: string; id: string } };
}

/**
 * Secrets that users configure, stored in the service's own key vault under unique names. A row records each secret: it is
 * written before the secret and deleted after it, so that no secret can be orphaned.
 */
export interface StoredSecrets {
  /**
   * Stores a new secret. @param use - The secret's use: its recipient, or a word. It can't be read for another use.
   * @throws {Problem} conflict without a key vault; unavailable if it fails; then nothing is configured.
   */
  write(value: string, use: string): Promise<SecretReference>;
  /**
   * Returns an operation for the transaction of the row that references the secret. It fails if the secret was deleted
   * meanwhile.
   */
  stillKept(secret: SecretReference): Operation;
  /**
   * Reads a secret. Caches it for five minutes.
   *
   * @returns Undefined if the secret no longer exists or is for another use.
   * @throws {CloudFailure}; {Problem} conflict without a key vault
   */
  read(secret: SecretReference, use: string): Promise<string | undefined>;
  /** Deletes a secret that is no longer referenced. Does nothing if it does not exist. @throws {CloudFailure} */
  remove(secret: SecretReference): Promise<void>;
  /** Deletes the secrets that have been unused for a day. @throws the first failure, after all were attempted. */
  cleanUp(used: readonly SecretReference[], caller: Caller): Promise<void>;
}

export function createStoredSecrets(
  owner: SecretsOwner,
  deps: {
    tables: Tables;
    audit: Pick<Audit, "append">;
    vault: ServiceKeyVault | undefined;
    clock: Clock;
    randomness: Randomness;
  },
): StoredSecrets {
  const { tables, audit, clock, randomness } = deps;
  const { partitionKey, contentType } = owner;
  const rows: Entity<z.infer<typeof secretRow>> = entity(owner.table, secretRow);
  const nameOf = (id: string): string => `${owner.namePrefix}-${id}`;
  const read = new Map<string, { at: number; value: Promise<string | undefined> }>();

  function vault(): ServiceKeyVault {
    if (deps.vault) return deps.vault;
    throw new Problem(
      "conflict",
      `${owner.what} are stored in the service's own key vault, which is not configured. Set SERVICE_KEY_VAULT_URL.`,
    );
  }

  return {
    async write(value, use) {
      const own = vault();
      const now = clock.now();
      const id = `${randomness.ulid(now)}-${hashOf(use)}`;
      await tables.put(rows, partitionKey, PREFIX + id, { since: now.toISOString() });
      try {
        return { id, version: await own.writeSecret(nameOf(id), value, contentType) };
      } catch (error) {
        if (!(error instanceof CloudFailure)) throw error;
        const detail = `Nothing was changed. ${error.message} ${error.remedy}`;
        throw retryLater("unavailable", detail, error.retryAfterSeconds ?? RETRY_SECONDS);
      }
    },

    stillKept: ({ id }) => merge(rows, PREFIX + id, {}),

    async read({ id, version }, use) {
      // An attacker who can write the tables can change the recipient in a row, but not the use in the secret's name in the key
      // vault.
      if (!id.endsWith(`-${hashOf(use)}`)) return undefined;
      const now = clock.now().getTime();
      const known = read.get(id);
      if (known && now - known.at < CACHE_MS) return await known.value;
      const value = vault().readSecret(nameOf(id), version);
      for (const [other, { at }] of read) if (now - at >= CACHE_MS) read.delete(other);
      read.set(id, { at: now, value });
      try {
        return await value;
      } catch (error) {
        if (read.get(id)?.value === value) read.delete(id);
        throw error;
      }
    },

    async remove({ id }) {
      if (!deps.vault) return;
      read.delete(id);
      await deps.vault.removeSecret(nameOf(id));
      await tables.remove(rows, partitionKey, PREFIX + id);
    },

    async cleanUp(used, caller) {
      if (!deps.vault) return;
      const unusedSince = new Date(clock.now().getTime() - UNUSED_MS).toISOString();
      const failures: unknown[] = [];
      for await (const page of tables.pages(rows, { partitionKey, from: PREFIX, before: keyEnd(PREFIX) })) {
        for (const { rowKey, since } of page) {
          const id = rowKey.slice(PREFIX.length);
          if (since > unusedSince || used.some((secret) => secret.id === id)) continue;
          const name = nameOf(id);
          const removed = audited(audit, { ...owner.removed, caller, details: { name } }, () =>
            vault().removeSecret(name),
          );
          await removed
            .then(() => tables.remove(rows, partitionKey, rowKey))
            .catch((error: unknown) => failures.push(error));
        }
      }
      if (failures.length > 0) throw failures[0];
    },
  };
}

/**
 * Returns the hash of a use as a part of the secret's name: allowed characters, and too long to find another use with the same
 * hash.
 */
const hashOf = (use: string): string => createHash("sha256").update(use).digest("hex").slice(0, 32);
