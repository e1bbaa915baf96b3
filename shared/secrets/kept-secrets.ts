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

/** An instance keeps what it read for so long. */
const KEPT_MS = 5 * MINUTE_MS;
/** A secret that nothing names is left alone for so long: one may be about to be written. */
const UNUSED_MS = DAY_MS;
/** Seconds a caller is asked to wait when the key vault gave no time of its own. */
const RETRY_SECONDS = 10;

const PREFIX = "secret|";
const secretRow = z.object({ since: z.string() });

/** A secret in the service's own key vault. The id is a ULID, a hyphen, and a hash of what the secret is for. */
export const secretReference = z.object({ id: z.string(), version: z.string() });
export type SecretReference = z.infer<typeof secretReference>;

/** Whose secrets they are, and where a room keeps its rows of them. */
export interface SecretsOwner {
  /** What they are, to begin a sentence: "Secrets of single sign-on". */
  what: string;
  table: string;
  partitionKey: string;
  /** The first part of their names in the key vault. */
  namePrefix: string;
  contentType: string;
  /** The type of audit entry for one that was cleaned up, and its target. */
  removed: { type: string; target: { type: string; id: string } };
}

/**
 * Secrets in the service's own key vault, each under a name of its own. A row says of each that it may be there: it is
 * written before the secret and removed after it, so that none is left behind unknown.
 */
export interface KeptSecrets {
  /**
   * @param use - What the secret is for: whom it is sent to, or a word. It is read for nothing else.
   * @throws {Problem} conflict without a key vault; unavailable when it fails: nothing is configured then.
   */
  write(value: string, use: string): Promise<SecretReference>;
  /** For the transaction of the row that names it: it fails when the secret was cleaned up meanwhile. */
  stillKept(secret: SecretReference): Operation;
  /**
   * Asks the key vault at most once in five minutes, for what it could read.
   *
   * @returns Undefined when it is not there any more, or is not for this use.
   * @throws {CloudFailure}; {Problem} conflict without a key vault
   */
  read(secret: SecretReference, use: string): Promise<string | undefined>;
  /** Removes one that nothing names any more; nothing happens when it is not there. @throws {CloudFailure} */
  remove(secret: SecretReference): Promise<void>;
  /** Removes those that have been unused for a day. @throws the first failure, after all were tried. */
  cleanUp(used: readonly SecretReference[], caller: Caller): Promise<void>;
}

export function createKeptSecrets(
  owner: SecretsOwner,
  deps: {
    tables: Tables;
    audit: Pick<Audit, "append">;
    vault: ServiceKeyVault | undefined;
    clock: Clock;
    randomness: Randomness;
  },
): KeptSecrets {
  const { tables, audit, clock, randomness } = deps;
  const { partitionKey, contentType } = owner;
  const rows: Entity<z.infer<typeof secretRow>> = entity(owner.table, secretRow);
  const nameOf = (id: string): string => `${owner.namePrefix}-${id}`;
  const read = new Map<string, { at: number; value: Promise<string | undefined> }>();

  function vault(): ServiceKeyVault {
    if (deps.vault) return deps.vault;
    throw new Problem(
      "conflict",
      `${owner.what} are kept in the service's own key vault, which is not configured. Set SERVICE_KEY_VAULT_URL.`,
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
      // Whoever can write our tables can have the row name another address, but not the key vault another secret.
      if (!id.endsWith(`-${hashOf(use)}`)) return undefined;
      const now = clock.now().getTime();
      const known = read.get(id);
      if (known && now - known.at < KEPT_MS) return await known.value;
      const value = vault().readSecret(nameOf(id), version);
      for (const [other, { at }] of read) if (now - at >= KEPT_MS) read.delete(other);
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

/** Part of the secret's name: characters that a name may have, and too many to find another use with the same ones. */
const hashOf = (use: string): string => createHash("sha256").update(use).digest("hex").slice(0, 32);
