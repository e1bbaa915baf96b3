// Opens the storage queues of queue functions, with one client per storage account.

import type { QueueClient, QueueServiceClient } from "@azure/storage-queue";
import type { AppFunction } from "./app-functions.ts";
import { resolveSettings } from "./settings.ts";

/**
 * Time for which a list of the account's queues is reused. The platform checks the existence of each queue separately. Many
 * queues of an app don't exist, and checking each of them every few seconds would be most of an idle host's work.
 */
export const QUEUE_LIST_LIFETIME_MS = 1000;
const POISON_SUFFIX = "-poison";
/** Retries of the storage client. They are short, because the listener polls again anyway. */
const CLIENT_RETRIES = { maxTries: 3, retryDelayInMs: 200, maxRetryDelayInMs: 1000 };

/** The queue of one queue function. */
export interface Queues {
  queue: QueueClient;
  /** Returns whether the queue existed when the queues were last listed. */
  isListed(): Promise<boolean>;
  /** Queue for messages that failed too often. Undefined if `queue` itself is a poison queue. */
  poison: QueueClient | undefined;
}

/**
 * Returns the queue of a queue function.
 * @param accounts Open storage accounts. The account of the function is added.
 * @throws Error if a setting is missing
 */
export async function openQueues({ trigger }: AppFunction, accounts: Accounts): Promise<Queues> {
  const setting = (trigger.connection as string | undefined) || "AzureWebJobsStorage";
  // The platform looks for the setting with the prefix "AzureWebJobs" first.
  const connection = process.env[`AzureWebJobs${setting}`] ?? process.env[setting];
  if (connection === undefined) throw new Error(`the setting '${setting}' with a connection string is missing`);
  const account = accounts.get(connection) ?? openAccount(connection);
  accounts.set(connection, account);
  const { service, names: queueNames } = await account;
  const name = resolveSettings(trigger.queueName as string).toLowerCase();
  const poison = name.endsWith(POISON_SUFFIX) ? undefined : service.getQueueClient(name + POISON_SUFFIX);
  return { queue: service.getQueueClient(name), isListed: async () => (await queueNames()).has(name), poison };
}

interface Account {
  service: QueueServiceClient;
  /** Names of the account's queues, at most QUEUE_LIST_LIFETIME_MS old. */
  names(): Promise<ReadonlySet<string>>;
}
/** Accounts by connection string. */
export type Accounts = Map<string, Promise<Account>>;

async function openAccount(connection: string): Promise<Account> {
  const { QueueServiceClient } = await import("@azure/storage-queue");
  const service = QueueServiceClient.fromConnectionString(connection, { retryOptions: CLIENT_RETRIES });
  const list = async () => {
    const queueNames = new Set<string>();
    for await (const { name } of service.listQueues()) queueNames.add(name);
    return queueNames;
  };
  let listing: Promise<ReadonlySet<string>> | undefined;
  let listedAt = 0;
  return {
    service,
    names: () => {
      if (listing === undefined || performance.now() - listedAt >= QUEUE_LIST_LIFETIME_MS) {
        listedAt = performance.now();
        listing = list();
      }
      return listing;
    },
  };
}
