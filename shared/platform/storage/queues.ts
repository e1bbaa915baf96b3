import type { QueueClient } from "@azure/storage-queue";
import type { Logger } from "../runtime.ts";
import { noteRequest } from "../sent-changes.ts";
import { traceContext } from "../telemetry.ts";
import type { StorageConnection } from "./connection.ts";
import { isUnclear } from "./errors.ts";
import { ANSWER_TIMEOUT_MS, MAX_MESSAGE_BYTES, MAX_MESSAGE_DELAY_SECONDS } from "./limits.ts";
import { withRetries } from "./retry.ts";

/** Sends messages to the queues of the storage account. */
export interface Queues {
  /**
   * Sends a message as base64-encoded JSON, as the queue trigger of Azure Functions expects. Creates a missing queue. If the
   * response is lost, the message is sent again, so it can be delivered twice. The message expires after seven days. While
   * tracing is on, a message that is an object gets two members with the trace context.
   *
   * @param options.delaySeconds - Visibility timeout: 0 to just under seven days.
   * @throws RangeError for a message of more than 48 KiB.
   */
  send(queue: string, message: unknown, options?: { readonly delaySeconds?: number }): Promise<void>;
  /**
   * Checks that the queue service responds to a request for this queue. The queue need not exist.
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
    { create: createMissing }: { create: boolean },
    action: (client: QueueClient, options: { abortSignal: AbortSignal }) => Promise<unknown>,
  ): Promise<void> {
    const client = await connectOnce(queue);
    const limit = () => ({ abortSignal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) });
    const options = { kind: "queue", name: queue, createMissing, isTransient: isUnclear, log } as const;
    await withRetries(options, async ({ create }) => {
      if (create) await client.createIfNotExists(limit());
      await action(client, limit());
    });
  }

  return {
    checkReachable: (queue) => use(queue, { create: false }, (client, options) => client.exists(options)),

    async send(queue, message, { delaySeconds = 0 } = {}) {
      if (!Number.isInteger(delaySeconds) || delaySeconds < 0 || delaySeconds >= MAX_MESSAGE_DELAY_SECONDS)
        throw new RangeError(`A message can't be delayed by ${delaySeconds} seconds.`);
      const text = messageText(queue, withTraceContext(message));
      noteRequest("POST");
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
