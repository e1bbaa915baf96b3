import { createHash } from "node:crypto";
import * as z from "zod";
import type { Clock } from "../platform/runtime.ts";
import { entity } from "../platform/storage/entity.ts";
import { RowExists, type Tables } from "../platform/storage/tables.ts";

/**
 * A row for each used message until it expires. Partition: the kind of message, `assertions` or `logouts`. Row key: SHA-256 of
 * the issuer and the message's ID, in hexadecimal digits.
 */
export const UsedMessage = entity("Sso", z.object({ endsAt: z.string() }));

/** Records the messages of a provider that were used, across all instances, so that none is used twice. */
export interface UsedMessages {
  /** Returns true if the message was recorded as used. */
  isUsed(issuer: string, id: string): Promise<boolean>;
  /**
   * Records a message as used. If two calls run concurrently, storage accepts one.
   *
   * @param endsAt - Time from which the message is rejected as expired. `cleanUp` then deletes the record.
   * @returns False if the message was used before.
   */
  use(issuer: string, id: string, endsAt: Date): Promise<boolean>;
  /** Deletes the records of expired messages. */
  cleanUp(): Promise<void>;
}

/** @param partition - Partition of one kind of message: `assertions` (sign-ins with SAML) or `logouts`. */
export function createUsedMessages(partition: string, deps: { tables: Tables; clock: Clock }): UsedMessages {
  const { tables, clock } = deps;
  const keyOf = (issuer: string, id: string) => createHash("sha256").update(`${issuer}\0${id}`).digest("hex");
  return {
    isUsed: async (issuer, id) => (await tables.get(UsedMessage, partition, keyOf(issuer, id))) !== undefined,

    async use(issuer, id, endsAt) {
      try {
        await tables.insert(UsedMessage, partition, keyOf(issuer, id), { endsAt: endsAt.toISOString() });
        return true;
      } catch (error) {
        if (error instanceof RowExists) return false;
        throw error;
      }
    },

    async cleanUp() {
      const now = clock.now().getTime();
      for await (const rows of tables.pages(UsedMessage, {
        partitionKey: partition,
        select: ["endsAt"],
        onCorrupt: "leaveOut",
      })) {
        for (const { rowKey, endsAt } of rows) {
          if (Date.parse(endsAt) <= now) await tables.remove(UsedMessage, partition, rowKey);
        }
      }
    },
  };
}
