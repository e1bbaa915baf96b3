// Opens the storage queues of queue functions, with one client per storage account.

import type { QueueClient, QueueServiceClient } from "@azure/storage-queue";
import type { AppFunction } from "./app-functions.ts";
import { resolveSettings } from "./settings.ts";

/**
 * Lifetime of a list of queues. The platform checks the existence of each queue. Most queues never exist, in particular poison
 * queues, and checking each every few seconds would be most of an idle host's work.
 */
export const LISTED_MS = 1000;
const POISON_SUFFIX = "-poison";
/** The client's own retries stay short, since the listener polls again anyway. */
const CLIENT_RETRIES = { maxTries: 3, retryDelayInMs: 200, maxRetryDelayInMs: 1000 };

export interface Queues {
  queue: QueueClient;
  /** Returns whether the queue existed when the queues were last listed. */
  isListed(): Promise<boolean>;
  /** The poison queue. Undefined for a poison queue itself. */
  poison: QueueClient | undefined;
}

export async function openQueues({ trigger }: AppFunction, accounts: Accounts): Promise<Queues> {
  const setting = (trigger.connection as string | undefined) || "AzureWebJobsStorage";
  const connection = process.env[`AzureWebJobs${setting}`] ?? process.env[setting];
  if (connection === undefined) throw new Error(`the setting '${setting}' with a connection string is missing`);
  const account = accounts.get(connection) ?? openAccount(connection);
  accounts.set(connection, account);
  const { service, names } = await account;
  const name = resolveSettings(trigger.queueName as string).toLowerCase();
  const poison = name.endsWith(POISON_SUFFIX) ? undefined : service.getQueueClient(name + POISON_SUFFIX);
  return { queue: service.getQueueClient(name), isListed: async () => (await names()).has(name), poison };
}

interface Account {
  service: QueueServiceClient;
  /** Names of the account's queues, at most LISTED_MS old. */
  names(): Promise<ReadonlySet<string>>;
}
/** Accounts by connection string. */
export type Accounts = Map<string, Promise<Account>>;

async function openAccount(connection: string): Promise<Account> {
  const { QueueServiceClient } = await import("@azure/storage-queue");
  const service = QueueServiceClient.fromConnectionString(connection, { retryOptions: CLIENT_RETRIES });
  const list = async () => {
    const names = new Set<string>();
    for await (const { name } of service.listQueues()) names.add(name);
    return names;
  };
  let listed: Promise<ReadonlySet<string>> | undefined;
  let listedAt = 0;
  return {
    service,
    names: () => {
      if (listed === undefined || performance.now() - listedAt >= LISTED_MS) {
        listedAt = performance.now();
        listed = list();
      }
      return listed;
    },
  };
}
