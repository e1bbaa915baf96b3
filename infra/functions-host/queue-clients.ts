import type { QueueClient, QueueServiceClient } from "@azure/storage-queue";
import type { AppFunction } from "./functions.ts";
import { resolveSettings } from "./settings.ts";

/**
 * How long a list of the queues serves. The platform asks each queue whether it is there; most of an app's never are, the
 * poison queues above all, and asking for all of them every few seconds is most of what an idle host does.
 */
export const LISTED_MS = 1000;
const POISON_SUFFIX = "-poison";
/** The client's own retries stay short, since the listener polls again anyway. */
const CLIENT_RETRIES = { maxTries: 3, retryDelayInMs: 200, maxRetryDelayInMs: 1000 };

export interface Queues {
  queue: QueueClient;
  /** Whether it was there when they were last listed. */
  isListed(): Promise<boolean>;
  /** A poison queue has none of its own. */
  poison: QueueClient | undefined;
}

export async function openQueues({ trigger }: AppFunction, accounts: Accounts): Promise<Queues> {
  const setting = (trigger.connection as string | undefined) || "AzureWebJobsStorage";
  const connection = process.env[`AzureWebJobs${setting}`] ?? process.env[setting];
  if (connection === undefined) throw new Error(`the setting '${setting}' with a connection string is not there`);
  const account = accounts.get(connection) ?? openAccount(connection);
  accounts.set(connection, account);
  const { service, names } = await account;
  const name = resolveSettings(trigger.queueName as string).toLowerCase();
  const poison = name.endsWith(POISON_SUFFIX) ? undefined : service.getQueueClient(name + POISON_SUFFIX);
  return { queue: service.getQueueClient(name), isListed: async () => (await names()).has(name), poison };
}

interface Account {
  service: QueueServiceClient;
  /** The names of its queues, at most LISTED_MS old. */
  names(): Promise<ReadonlySet<string>>;
}
/** By connection string. */
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
