// Polls the storage queues of an app's queue functions and runs a function for each message. A failed message is delivered
// again, and finally moved to the poison queue.

import type { DequeuedMessageItem, QueueClient } from "@azure/storage-queue";
import type { AppFunction } from "./app-functions.ts";
import type { Executor, Outcome } from "./executor.ts";
import { describeError } from "./load-app.ts";
import type { Log } from "./log.ts";
import { pause } from "./pause.ts";
import { type Accounts, openQueues, QUEUE_LIST_LIFETIME_MS, type Queues } from "./queue-clients.ts";
import type { QueueSettings } from "./settings.ts";
import type { TypedData } from "./worker-protocol.ts";

/** Seconds for which a received message stays invisible. The platform's `QueueListener` uses 10 minutes. */
export const RECEIVE_LEASE_SECONDS = 600;
/** The platform's `QueuePollingIntervals.Minimum`. */
const MIN_POLLING_MS = 100;
/** Time to live of a message that never expires. */
const NEVER_EXPIRES = -1;

export interface QueueOptions {
  /** Resolves when the listeners start. */
  startDelay: Promise<void>;
  settings: QueueSettings;
  /** Seconds for which a received message stays invisible. */
  leaseSeconds: number;
  executor: Executor;
  log: Log;
}

export interface QueueListeners {
  /** Runs a queue function with this text as its message. */
  run(name: string, text: string): Promise<Outcome>;
  /** Receives no more messages. Resolves when the received messages are processed. */
  stop(): Promise<void>;
}

/** Starts one listener per enabled queue function. Logs an error for a function whose listener can't start. */
export function startQueues(functions: AppFunction[], options: QueueOptions): QueueListeners {
  const stop = new AbortController();
  const listeners: Promise<void>[] = [];
  const accounts: Accounts = new Map();
  const listen = async (each: AppFunction) => {
    await options.startDelay;
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

/** Polls the queue until stopped. A missing queue or an unreachable storage account is retried. */
async function listenTo(target: AppFunction, queues: Queues, options: QueueOptions, stop: AbortSignal): Promise<void> {
  const { settings, log } = options;
  const source = `Function.${target.name}`;
  const processing = new Set<Promise<void>>();
  let emptyPolls = 0;
  let isFailing = false;
  // Whether the last list or receive found the queue. While false, the queue is only looked up in the list.
  let queueExists = false;

  while (!stop.aborted) {
    // The next batch is fetched when at most newBatchThreshold messages are running, so at most batchSize + newBatchThreshold
    // messages run at once.
    if (processing.size > settings.newBatchThreshold) {
      await Promise.race(processing);
      continue;
    }
    let messages: DequeuedMessageItem[] = [];
    try {
      queueExists ||= await queues.isListed();
      if (queueExists) {
        const received = await receive(queues.queue, settings.batchSize, options.leaseSeconds);
        queueExists = received !== undefined;
        messages = received ?? [];
      }
      if (isFailing) log("information", source, `The queue '${queues.queue.name}' can be read again`);
      isFailing = false;
    } catch (error) {
      if (!isFailing) {
        log("warning", source, `Cannot read the queue '${queues.queue.name}', retrying: ${(error as Error).message}`);
      }
      isFailing = true;
    }
    for (const message of messages) {
      const work = processMessage(message, target, queues, options)
        .catch((error: unknown) => log("warning", source, `Message ${message.messageId}: ${describeError(error)}`))
        .finally(() => processing.delete(work));
      processing.add(work);
    }
    emptyPolls = messages.length === 0 ? emptyPolls + 1 : 0;
    if (!queueExists && !isFailing) await pause(QUEUE_LIST_LIFETIME_MS, stop);
    else if (emptyPolls > 0) await pause(pollingDelay(emptyPolls, settings.maxPollingInterval), stop);
  }
  await Promise.all(processing);
}

/**
 * Receives a batch.
 * @returns undefined if the queue does not exist
 */
async function receive(
  queue: QueueClient,
  count: number,
  leaseSeconds: number,
): Promise<DequeuedMessageItem[] | undefined> {
  try {
    const response = await queue.receiveMessages({ numberOfMessages: count, visibilityTimeout: leaseSeconds });
    return response.receivedMessageItems;
  } catch (error) {
    // As on the platform, a listener waits for its queue and does not create it.
    if ((error as { code?: string }).code === "QueueNotFound") return undefined;
    throw error;
  }
}

/**
 * Returns the delay before the next poll in milliseconds, as the platform's `RandomizedExponentialBackoffStrategy`: the delay
 * about doubles with each empty poll, with 20 % jitter.
 */
function pollingDelay(emptyPolls: number, max: number): number {
  const jitter = 0.8 + Math.random() * 0.4;
  // The exponent is limited because larger results exceed the maximum anyway.
  return Math.min(max, MIN_POLLING_MS * (1 + 2 ** Math.min(emptyPolls - 1, 20) * jitter));
}

/**
 * Runs the function with a message. Deletes the message on success. Otherwise makes it visible again or moves it to the poison
 * queue.
 * @throws RestError if storage fails. The message is then delivered again when its lease expires.
 */
async function processMessage(
  message: DequeuedMessageItem,
  target: AppFunction,
  { queue, poison }: Queues,
  { settings, leaseSeconds, executor, log }: QueueOptions,
): Promise<void> {
  const source = `Function.${target.name}`;
  const messageLease = renewMessageLease(queue, message, leaseSeconds, (error) =>
    log("warning", source, `Message ${message.messageId} could not be renewed: ${error.message}`),
  );
  const moveToPoison = async (reason: string) => {
    const receipt = await messageLease.release();
    // A message of a poison queue stays there, invisible until its lease expires.
    if (poison === undefined) return;
    log("warning", source, `Message ${message.messageId} goes to the queue '${poison.name}': ${reason}`);
    await sendAndCreate(poison, message.messageText);
    await queue.deleteMessage(message.messageId, receipt);
  };

  if (message.dequeueCount > settings.maxDequeueCount) return moveToPoison("it was received too often");
  const bytes = decodeMessage(message.messageText, settings.messageEncoding);
  if (bytes === undefined) return moveToPoison("it is not base64");

  const text = bytes.toString("utf8");
  const outcome = await executor.run({
    name: target.name,
    reason: `New queue message detected on '${queue.name}'.`,
    input: { name: target.trigger.name, data: target.trigger.dataType === "binary" ? { bytes } : { string: text } },
    triggerMetadata: triggerMetadata(message, text),
  });
  if (outcome.succeeded) {
    await queue.deleteMessage(message.messageId, await messageLease.release());
  } else if (message.dequeueCount >= settings.maxDequeueCount) {
    await moveToPoison(`it failed ${message.dequeueCount} times`);
  } else if (poison === undefined) {
    // Without a poison queue the platform leaves the message invisible, because it would otherwise fail in a tight loop.
    await messageLease.release();
  } else {
    await queue.updateMessage(message.messageId, await messageLease.release(), undefined, settings.visibilityTimeout);
  }
}

/**
 * Renews the lease of a message whenever half of its time has passed, until `release` is called.
 * @returns `release`, which returns the current pop receipt. Deleting or updating the message needs it.
 */
function renewMessageLease(
  queue: QueueClient,
  message: DequeuedMessageItem,
  leaseSeconds: number,
  onError: (error: Error) => void,
): { release(): Promise<string> } {
  let receipt = message.popReceipt;
  let renewal = Promise.resolve();
  const renew = async () => {
    try {
      const response = await queue.updateMessage(message.messageId, receipt, undefined, leaseSeconds);
      receipt = response.popReceipt ?? receipt;
    } catch (error) {
      onError(error as Error);
    }
  };
  const timer = setInterval(
    () => {
      renewal = renewal.then(renew);
    },
    (leaseSeconds * 1000) / 2,
  );
  return {
    release: async () => {
      clearInterval(timer);
      await renewal;
      return receipt;
    },
  };
}

/** Sends a message, and creates the queue if it does not exist. */
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

/** Decodes the text of a message. Undefined if it should be base64 and .NET would not accept it. */
function decodeMessage(text: string, encoding: QueueSettings["messageEncoding"]): Buffer | undefined {
  if (encoding === "none") return Buffer.from(text, "utf8");
  const base64 = text.replaceAll(/[ \t\r\n]/g, "");
  // Groups of four characters. The last group can be padded with "=" or "==".
  return /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(base64)
    ? Buffer.from(base64, "base64")
    : undefined;
}

/**
 * Metadata of a queue trigger:
 * https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-queue-trigger#message-metadata
 */
function triggerMetadata(message: DequeuedMessageItem, text: string): Record<string, TypedData> {
  const toTypedTime = (date: Date) => ({ json: JSON.stringify(`${date.toISOString().slice(0, 19)}+00:00`) });
  return {
    QueueTrigger: { string: text },
    DequeueCount: { json: String(message.dequeueCount) },
    ExpirationTime: toTypedTime(message.expiresOn),
    Id: { string: message.messageId },
    InsertionTime: toTypedTime(message.insertedOn),
    NextVisibleTime: toTypedTime(message.nextVisibleOn),
    PopReceipt: { string: message.popReceipt },
  };
}
