import { createHash } from "node:crypto";
import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { decodeCursor, encodeCursor, MAX_COUNTED, type Page, type PageRequest } from "../platform/http/paging.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { entity, withoutKeys } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";

/** Retention of failed messages. */
const RETENTION_MS = 30 * DAY_MS;
/** `maxDequeueCount` of host.json: the maximum number of deliveries of a queue message. */
const MAX_DELIVERIES = 5;
/** Delay of a poison message that is sent again because it could not be recorded. */
const RESEND_DELAY_SECONDS = 600;
/** Maximum number of messages that `countSince` counts: one page. */
const MAX_COUNTED_SINCE = 1000;
/** Maximum length of a message's JSON that is stored. No message of this service contains a secret. */
const MAX_STORED_CHARACTERS = 1000;

const FailedMessageRecord = z.object({
  /** The queue, without `-poison`. */
  queue: z.string(),
  /** The id of the message in the poison queue. */
  messageId: z.string(),
  failedAt: z.string(),
  /** Whether the message matches the schema of its queue. */
  readable: z.boolean(),
  /** JSON of the message. Undefined if it is not readable or too long. */
  message: z.string().optional(),
});
/** A message that failed five times, as stored. */
export type FailedMessage = z.infer<typeof FailedMessageRecord>;

/** Row key: the time of the failure counted down (`countdown`), so that the newest is first, `|`, and the message's ID. */
export const FailedMessageRows = entity("FailedMessages", FailedMessageRecord);
/** Partition of the failed messages. */
const FAILED = "failed";

/**
 * The service's own record that the last delivery of a message started and did not succeed. Anyone who can write to the queues
 * can put a message into a poison queue, so a poison message is passed to its module only with this row.
 */
export const LastDeliveries = entity("FailedMessages", z.object({ queue: z.string(), startedAt: z.string() }));
/** Partition of the last deliveries. Row key: a hash of the queue and the body. */
const LAST_DELIVERIES = "lastDeliveries";
/** Retention of a last delivery whose poison message never arrived. */
const LAST_DELIVERY_RETENTION_MS = 7 * DAY_MS;

/** Returns the key of a message's last delivery. The platform copies the body, but not the ID, to the poison queue. */
const lastDeliveryKey = (queue: string, body: unknown): string =>
  createHash("sha256")
    .update(`${queue}\n${JSON.stringify(body ?? null)}`)
    .digest("hex");

/** Returns a key that sorts newest first: milliseconds counted down from the largest number with 13 digits. */
const countdown = (instant: number): string => String(9_999_999_999_999 - instant).padStart(13, "0");

/** A message from a poison queue: the queue to which the platform moves a message that failed five times. */
export interface PoisonMessage {
  readonly queue: string;
  readonly messageId: string;
  /** Time at which the message entered the poison queue. */
  readonly insertedAt: Date;
  /** 1 for the first delivery from the poison queue. */
  readonly delivery: number;
  readonly body: unknown;
  readonly requestId: string;
}

/**
 * Messages that failed five times. A function for each poison queue calls `receive`, which stores the message for GET
 * /system/failed-messages and passes it to the module that it belongs to.
 */
export interface FailedMessages {
  /**
   * Runs the handler of a queue message. Stores that the last delivery started, and removes that row when the handler succeeds.
   * Earlier deliveries make no request.
   *
   * @param run - The handler. Its errors escape, so that the platform counts them.
   */
  handleDelivery(message: Pick<PoisonMessage, "queue" | "body" | "delivery">, run: () => Promise<void>): Promise<void>;
  /**
   * Stores the message, records it in the audit log, and passes it to `handle` if it is readable and `handleDelivery` saw its
   * last delivery fail. A planted message (one that did not fail in its own queue) and a duplicate delivery have no further
   * effect. After a failure, the queue redelivers the message. After the last delivery the message is sent again as a new
   * message, because a poison queue has no poison queue of its own.
   *
   * @param handle - The handler of the module that the message belongs to.
   */
  receive<S extends z.ZodType>(
    message: PoisonMessage,
    schema: S,
    handle: ((message: z.output<S>) => Promise<void>) | undefined,
  ): Promise<void>;
  /** Returns a page of failed messages, newest first. @throws {Problem} invalidCursor */
  list(request: PageRequest): Promise<Page<FailedMessage>>;
  /** Returns the number of messages that failed since a time, at most 1,000. Costs one request. */
  countSince(since: Date): Promise<number>;
  /** Removes messages that are older than 30 days. */
  cleanUp(): Promise<void>;
}

export function createFailedMessages(deps: {
  tables: Tables;
  queues: Queues;
  audit: Pick<Audit, "append">;
  clock: Clock;
  log: Logger;
}): FailedMessages {
  const { tables, queues, audit, clock, log } = deps;

  /** Stores a message once. @param body - The parsed message. Undefined if it does not match its schema. */
  async function store(message: PoisonMessage, body: unknown): Promise<void> {
    const readable = body !== undefined;
    const { queue, messageId, insertedAt, requestId } = message;
    const key = `${countdown(insertedAt.getTime())}|${keyText(messageId)}`;
    if (await tables.get(FailedMessageRows, FAILED, key)) return;
    const text = readable ? JSON.stringify(body) : undefined;
    const storedText = text !== undefined && text.length <= MAX_STORED_CHARACTERS ? text : undefined;
    log.error("A message failed for good", { queue, messageId, readable });
    await audit.append({
      type: "queue.messageFailed",
      caller: { actor: "system", requestId },
      outcome: "failure",
      target: { type: "queue", id: queue },
      details: { messageId, readable, ...(storedText === undefined ? {} : { message: storedText }) },
    });
    await tables.put(FailedMessageRows, FAILED, key, {
      queue,
      messageId,
      failedAt: insertedAt.toISOString(),
      readable,
      ...(storedText === undefined ? {} : { message: storedText }),
    });
  }

  /** Passes a message to its module if its last delivery failed. */
  async function passOn({ queue, messageId, body }: PoisonMessage, handle: () => Promise<void>): Promise<void> {
    const key = lastDeliveryKey(queue, body);
    if (!(await tables.get(LastDeliveries, LAST_DELIVERIES, key))) {
      return log.warn("A message in a poison queue did not fail in its own queue and has no effect", {
        queue,
        messageId,
      });
    }
    await handle();
    // After the handler, so that the redelivered message runs it again after a crash.
    await tables.remove(LastDeliveries, LAST_DELIVERIES, key);
  }

  return {
    async handleDelivery({ queue, body, delivery }, run) {
      if (delivery < MAX_DELIVERIES) return await run();
      const key = lastDeliveryKey(queue, body);
      // Stored before the handler runs, so that a crash of the process also counts.
      await tables.put(LastDeliveries, LAST_DELIVERIES, key, { queue, startedAt: clock.now().toISOString() });
      await run();
      await tables.remove(LastDeliveries, LAST_DELIVERIES, key);
    },

    async receive(message, schema, handle) {
      try {
        const parsed = schema.safeParse(message.body);
        await store(message, parsed.data);
        if (parsed.success && handle) await passOn(message, () => handle(parsed.data));
      } catch (error) {
        if (message.delivery < MAX_DELIVERIES) throw error;
        const queue = `${message.queue}-poison`;
        await queues.send(queue, message.body ?? null, { delaySeconds: RESEND_DELAY_SECONDS });
        log.error("A failed message could not be processed and is requeued", { queue, messageId: message.messageId });
      }
    },

    async list(request) {
      const after =
        request.cursor === undefined
          ? undefined
          : decodeCursor(z.object({ after: z.string().max(512) }), request.cursor).after;
      // With `offset`, rows are read from the cursor on, up to one after the page, which shows whether there is a next page.
      const endOfPage = request.offset + request.limit;
      const rows = [];
      const range = { partitionKey: FAILED, ...(after === undefined ? {} : { after }) };
      for await (const page of tables.pages(FailedMessageRows, { ...range, pageSize: Math.min(1000, endOfPage + 1) })) {
        rows.push(...page);
        if (rows.length > endOfPage) break;
      }
      let total = 0;
      for await (const page of tables.pages(FailedMessageRows, { partitionKey: FAILED, select: ["queue"] })) {
        total += page.length;
        if (total > MAX_COUNTED) break;
      }
      const lastRow = rows[endOfPage - 1];
      return {
        items: rows.slice(request.offset, endOfPage).map(withoutKeys),
        ...(total > MAX_COUNTED ? { total: null, totalAtLeast: MAX_COUNTED } : { total }),
        limit: request.limit,
        offset: request.offset,
        nextCursor: rows.length > endOfPage && lastRow ? encodeCursor({ after: lastRow.rowKey }) : null,
      };
    },

    async countSince(since) {
      let count = 0;
      // Keys count down, so later messages sort before this key.
      const range = { partitionKey: FAILED, before: countdown(since.getTime()), pageSize: MAX_COUNTED_SINCE };
      for await (const rows of tables.pages(FailedMessageRows, { ...range, select: [] })) {
        count += rows.length;
        if (count >= MAX_COUNTED_SINCE) break;
      }
      return Math.min(count, MAX_COUNTED_SINCE);
    },

    async cleanUp() {
      // Keys count down, so this key and those after it belong to messages older than the retention.
      const from = countdown(clock.now().getTime() - RETENTION_MS);
      for await (const rows of tables.pages(FailedMessageRows, { partitionKey: FAILED, from, select: [] })) {
        const removals = rows.map(({ rowKey }) => remove(FailedMessageRows, rowKey));
        await tables.write(FailedMessageRows.table, FAILED, removals);
      }
      const startedBefore = new Date(clock.now().getTime() - LAST_DELIVERY_RETENTION_MS).toISOString();
      for await (const rows of tables.pages(LastDeliveries, { partitionKey: LAST_DELIVERIES, onCorrupt: "leaveOut" })) {
        const old = rows.filter(({ startedAt }) => startedAt < startedBefore);
        const removals = old.map(({ rowKey }) => remove(LastDeliveries, rowKey));
        await tables.write(LastDeliveries.table, LAST_DELIVERIES, removals);
      }
    },
  };
}
