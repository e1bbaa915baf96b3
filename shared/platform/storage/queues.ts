import { setTimeout as delay } from "node:timers/promises";
import type { QueueClient } from "@azure/storage-queue";
import type { Logger } from "../runtime.ts";
import { traceContext } from "../telemetry.ts";
import type { StorageConnection } from "./connection.ts";
import { errorCode, isUnclear } from "./errors.ts";
import {
  ANSWER_TIMEOUT_MS,
  FIRST_RETRY_MS,
  MAX_ATTEMPTS,
  MAX_DELETION_WAIT_MS,
  MAX_MESSAGE_BYTES,
  MAX_MESSAGE_DELAY_SECONDS,
  MAX_RETRY_MS,
} from "./limits.ts";

export interface Queues {
  /**
   * Sends a message as base64-encoded JSON, as the platform's queue trigger expects. Creates a missing queue. If no clear
   * answer arrives, the message is sent again, so it can be delivered twice. The message expires after seven days. While
   * tracing is on, two members with the trace context are added to an object.
   *
   * @param options.delaySeconds - Visibility timeout: 0 to just under seven days.
   * @throws RangeError for a message of more than 48 KiB.
   */
  send(queue: string, message: unknown, options?: { readonly delaySeconds?: number }): Promise<void>;
  /**
   * Checks that the service answers for this queue, whether or not the queue exists.
   *
   * @throws the service's error otherwise.
   */
  checkReachable(queue: string): Promise<void>;
}

/** Creates the sender of queue messages. */
export function createQueues(connection: StorageConnection, { log }: { log?: Logger } = {}): Queues {
  const clients = new Map<string, Promise<QueueClient>>();
  const connectOnce = (queue: string): Promise<QueueClient> => {
    let client = clients.get(queue);
    if (client === undefined) {
      client = connect(connection, queue);
      clients.set(queue, client);
      // The next call connects again, because acquiring a credential can fail temporarily.
      client.catch(() => clients.delete(queue));
    }
    return client;
  };

  /** Runs `action` on a queue and retries it if its outcome is unclear. */
  async function use(
    queue: string,
    { create }: { create: boolean },
    action: (client: QueueClient, options: { abortSignal: AbortSignal }) => Promise<unknown>,
  ): Promise<void> {
    const client = await connectOnce(queue);
    const options = () => ({ abortSignal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) });
    let missing = false;
    let waitedMs = 0;
    let attempts = 1;
    for (;;) {
      try {
        if (missing) await client.createIfNotExists(options());
        await action(client, options());
        return;
      } catch (error) {
        const code = errorCode(error);
        if (code === "QueueNotFound" && create && !missing) {
          missing = true;
          log?.info("Creating a queue", { queue });
          continue;
        }
        const isBeingDeleted = code === "QueueBeingDeleted" || (code === "QueueNotFound" && missing);
        if (isBeingDeleted ? waitedMs >= MAX_DELETION_WAIT_MS : !isUnclear(error) || attempts >= MAX_ATTEMPTS)
          throw error;
        const pause = Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** (attempts++ - 1)) * (0.5 + Math.random() / 2);
        log?.warn("Trying a queue again", { queue, code, pauseMs: Math.round(pause) });
        await delay(pause);
        waitedMs += pause;
      }
    }
  }

  return {
    checkReachable: (queue) => use(queue, { create: false }, (client, options) => client.exists(options)),

    async send(queue, message, { delaySeconds = 0 } = {}) {
      if (!Number.isInteger(delaySeconds) || delaySeconds < 0 || delaySeconds >= MAX_MESSAGE_DELAY_SECONDS)
        throw new RangeError(`A message can't be delayed by ${delaySeconds} seconds.`);
      const text = messageText(queue, withTraceContext(message));
      await use(queue, { create: true }, (client, options) =>
        client.sendMessage(text, { ...options, visibilityTimeout: delaySeconds }),
      );
    },
  };
}

const withTraceContext = (message: unknown): unknown =>
  typeof message === "object" && message !== null && !Array.isArray(message)
    ? { ...message, ...traceContext() }
    : message;

function messageText(queue: string, message: unknown): string {
  const json: string | undefined = JSON.stringify(message);
  if (json === undefined) throw new TypeError(`A message to ${queue} must be a JSON value.`);
  const bytes = Buffer.from(json);
  if (bytes.length > MAX_MESSAGE_BYTES)
    throw new RangeError(`A message of ${bytes.length} bytes to ${queue} is larger than ${MAX_MESSAGE_BYTES}.`);
  return bytes.toString("base64");
}

async function connect(connection: StorageConnection, queue: string): Promise<QueueClient> {
  const { QueueClient } = await import("@azure/storage-queue");
  // `use` retries instead: the SDK's policy neither limits the time of an answer nor recognizes a truncated answer.
  const options = { retryOptions: { maxTries: 1 } };
  if ("connectionString" in connection) return new QueueClient(connection.connectionString, queue, options);
  const address = `${connection.queueServiceUri.replace(/\/$/, "")}/${queue}`;
  return new QueueClient(address, await connection.credential(), options);
}
