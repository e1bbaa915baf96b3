// Polls the storage queues of an app's queue functions and runs the messages.

import type { DequeuedMessageItem, QueueClient } from "@azure/storage-queue";
import type { AppFunction } from "./app-functions.ts";
import type { Executor, Outcome } from "./executor.ts";
import { describeError } from "./load-app.ts";
import type { Log } from "./log.ts";
import { pause } from "./pause.ts";
import { type Accounts, LISTED_MS, openQueues, type Queues } from "./queue-clients.ts";
import type { QueueSettings } from "./settings.ts";
import type { TypedData } from "./worker-protocol.ts";

/** Seconds for which a received message stays invisible. The platform's `QueueListener` uses 10 minutes. */
export const RECEIVE_LEASE_SECONDS = 600;
/** `QueuePollingIntervals.Minimum`. */
const MIN_POLLING_MS = 100;
const NEVER_EXPIRES = -1;

export interface QueueOptions {
  /** Resolves when the listeners start. */
  begin: Promise<void>;
  settings: QueueSettings;
  /** Seconds for which a received message stays invisible. */
  lease: number;
  executor: Executor;
  log: Log;
}

export interface QueueListeners {
  /** Runs a queue function with this text as its message. */
  run(name: string, text: string): Promise<Outcome>;
  /** Receives no more messages. Resolves when the received messages are processed. */
  stop(): Promise<void>;
}

export function startQueues(functions: AppFunction[], options: QueueOptions): QueueListeners {
  const stop = new AbortController();
  const listeners: Promise<void>[] = [];
  const accounts: Accounts = new Map();
  const listen = async (each: AppFunction) => {
    await options.begin;
    if (stop.signal.aborted) return;
    try {
      await listenTo(each, await openQueues(each, accounts), options, stop.signal);
    } catch (error) {
      const reason = (error as Error).message;
      options.log("error", "Host.Startup", `The listener for function '${each.name}' was unable to start: ${reason}`);
    }
  };
  for (const each of functions) if (!each.disabled) listeners.push(listen(each));
  return {
    run: (name, text) => {
      const target = functions.find((each) => each.name === name)!;
      return options.executor.run({
        name,
        reason: "This function was programmatically called via the host APIs.",
        input: { name: target.trigger.name, data: { string: text } },
      });
    },
    stop: async () => {
      stop.abort();
      await Promise.all(listeners);
    },
  };
}

/** Polls until stopped. A missing queue or an unreachable storage account is retried and never fatal. */
async function listenTo(target: AppFunction, queues: Queues, options: QueueOptions, stop: AbortSignal): Promise<void> {
  const { settings, log } = options;
  const source = `Function.${target.name}`;
  const processing = new Set<Promise<void>>();
  let emptyPolls = 0;
  let failing = false;
  let isThere = false;

  while (!stop.aborted) {
    // The next batch is fetched when at most newBatchThreshold messages are left, so at most batchSize + newBatchThreshold run
    // at once.
    if (processing.size > settings.newBatchThreshold) {
      await Promise.race(processing);
      continue;
    }
    let messages: DequeuedMessageItem[] = [];
    try {
      isThere ||= await queues.isListed();
      if (isThere) {
        const received = await receive(queues.queue, settings.batchSize, options.lease);
        isThere = received !== undefined;
        messages = received ?? [];
      }
      if (failing) log("information", source, `The queue '${queues.queue.name}' can be read again`);
      failing = false;
    } catch (error) {
      if (!failing) {
        log("warning", source, `Cannot read the queue '${queues.queue.name}', retrying: ${(error as Error).message}`);
      }
      failing = true;
    }
    for (const message of messages) {
      const work = handle(message, target, queues, options)
        .catch((error: unknown) => log("warning", source, `Message ${message.messageId}: ${describeError(error)}`))
        .finally(() => processing.delete(work));
      processing.add(work);
    }
    emptyPolls = messages.length === 0 ? emptyPolls + 1 : 0;
    if (!isThere && !failing) await pause(LISTED_MS, stop);
    else if (emptyPolls > 0) await pause(pollingDelay(emptyPolls, settings.maxPollingInterval), stop);
  }
  await Promise.all(processing);
}

/**
 * Receives a batch.
 * @returns undefined if the queue does not exist
 */
async function receive(queue: QueueClient, count: number, lease: number): Promise<DequeuedMessageItem[] | undefined> {
  try {
    const answer = await queue.receiveMessages({ numberOfMessages: count, visibilityTimeout: lease });
    return answer.receivedMessageItems;
  } catch (error) {
    // As on the platform, a listener waits for its queue and does not create it.
    if ((error as { code?: string }).code === "QueueNotFound") return undefined;
    throw error;
  }
}

/** Delay before the next poll, as in `RandomizedExponentialBackoffStrategy`: it doubles from the minimum, with 20 % jitter. */
function pollingDelay(emptyPolls: number, max: number): number {
  const spread = 0.8 + Math.random() * 0.4;
  return Math.min(max, MIN_POLLING_MS * (1 + 2 ** Math.min(emptyPolls - 1, 20) * spread));
}

/**
 * Runs a message.
 * @throws RestError if storage fails. The message is then delivered again when its lease expires.
 */
async function handle(
  message: DequeuedMessageItem,
  target: AppFunction,
  { queue, poison }: Queues,
  { settings, lease, executor, log }: QueueOptions,
): Promise<void> {
  const source = `Function.${target.name}`;
  const held = renewMessageLease(queue, message, lease, (error) =>
    log("warning", source, `Message ${message.messageId} could not be renewed: ${error.message}`),
  );
  const moveToPoison = async (why: string) => {
    const receipt = await held.release();
    if (poison === undefined) return;
    log("warning", source, `Message ${message.messageId} goes to the queue '${poison.name}': ${why}`);
    await sendAndCreate(poison, message.messageText);
    await queue.deleteMessage(message.messageId, receipt);
  };

  if (message.dequeueCount > settings.maxDequeueCount) return moveToPoison("it was received too often");
  const bytes = decode(message.messageText, settings.messageEncoding);
  if (bytes === undefined) return moveToPoison("it is not base64");

  const text = bytes.toString("utf8");
  const outcome = await executor.run({
    name: target.name,
    reason: `New queue message detected on '${queue.name}'.`,
    input: { name: target.trigger.name, data: target.trigger.dataType === "binary" ? { bytes } : { string: text } },
    triggerMetadata: triggerMetadata(message, text),
  });
  if (outcome.succeeded) {
    await queue.deleteMessage(message.messageId, await held.release());
  } else if (message.dequeueCount >= settings.maxDequeueCount) {
    await moveToPoison(`it failed ${message.dequeueCount} times`);
  } else if (poison === undefined) {
    // Without a poison queue the platform leaves the message invisible, because it would otherwise fail in a tight loop.
    await held.release();
  } else {
    await queue.updateMessage(message.messageId, await held.release(), undefined, settings.visibilityTimeout);
  }
}

/**
 * Renews the lease after half its time until released.
 * @returns the pop receipt that deletes the message
 */
function renewMessageLease(
  queue: QueueClient,
  message: DequeuedMessageItem,
  lease: number,
  onError: (error: Error) => void,
): { release(): Promise<string> } {
  let receipt = message.popReceipt;
  let renewal = Promise.resolve();
  const renew = async () => {
    try {
      const answer = await queue.updateMessage(message.messageId, receipt, undefined, lease);
      receipt = answer.popReceipt ?? receipt;
    } catch (error) {
      onError(error as Error);
    }
  };
  const timer = setInterval(
    () => {
      renewal = renewal.then(renew);
    },
    (lease * 1000) / 2,
  );
  return {
    release: async () => {
      clearInterval(timer);
      await renewal;
      return receipt;
    },
  };
}

async function sendAndCreate(queue: QueueClient, text: string): Promise<void> {
  const options = { messageTimeToLive: NEVER_EXPIRES };
  try {
    await queue.sendMessage(text, options);
  } catch (error) {
    if ((error as { code?: string }).code !== "QueueNotFound") throw error;
    await queue.createIfNotExists();
    await queue.sendMessage(text, options);
  }
}

/** Decodes base64. Undefined if .NET would not accept the text. */
function decode(text: string, encoding: QueueSettings["messageEncoding"]): Buffer | undefined {
  if (encoding === "none") return Buffer.from(text, "utf8");
  const packed = text.replaceAll(/[ \t\r\n]/g, "");
  return /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(packed)
    ? Buffer.from(packed, "base64")
    : undefined;
}

/**
 * Metadata of a queue trigger:
 * https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-queue-trigger#message-metadata
 */
function triggerMetadata(message: DequeuedMessageItem, text: string): Record<string, TypedData> {
  const instant = (date: Date) => ({ json: JSON.stringify(`${date.toISOString().slice(0, 19)}+00:00`) });
  return {
    QueueTrigger: { string: text },
    DequeueCount: { json: String(message.dequeueCount) },
    ExpirationTime: instant(message.expiresOn),
    Id: { string: message.messageId },
    InsertionTime: instant(message.insertedOn),
    NextVisibleTime: instant(message.nextVisibleOn),
    PopReceipt: { string: message.popReceipt },
  };
}
