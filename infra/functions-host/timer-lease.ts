import { randomUUID } from "node:crypto";
import type { TableClient } from "@azure/data-tables";

/**
 * Ensures that only one of several hosts on a storage account runs a timer. The platform leases a blob (`locks/<host
 * id>/...Listener`). This host uses a table row, because a local storage may have no blobs.
 */
export interface TimerLease {
  /** Acquires or renews the lease. False if another host holds it. */
  acquire(timer: string): Promise<boolean>;
  /** Releases the lease, if this host still holds it. */
  release(timer: string): Promise<void>;
}

const TABLE = "LocalHostLeases";

interface LeaseRow {
  owner: string;
  until: string;
}

/**
 * Creates the leases.
 * @param connection Undefined without a storage account. The host is then alone.
 * @param seconds Lifetime of a lease that is not renewed, for example after its host was killed.
 */
export function createTimerLease(connection: string | undefined, hostId: string, seconds: number): TimerLease {
  if (connection === undefined) return { acquire: async () => true, release: async () => {} };
  const owner = randomUUID();
  /** ETags of the rows as this host wrote them last, so that it can renew a lease without reading it. */
  const etags = new Map<string, string>();
  let client: TableClient | undefined;
  const table = async () => {
    client ??= await openTable(connection);
    return client;
  };

  const acquire = async (timer: string): Promise<boolean> => {
    const leases = await table();
    const row = {
      partitionKey: hostId,
      rowKey: timer,
      owner,
      until: new Date(Date.now() + seconds * 1000).toISOString(),
    };
    const write = async (answer: Promise<{ etag?: string }>, ...refusals: number[]): Promise<boolean> => {
      const { etag } = (await undefinedOnStatus(answer, ...refusals)) ?? {};
      if (etag === undefined) etags.delete(timer);
      else etags.set(timer, etag);
      return etag !== undefined;
    };
    const replace = (etag: string) => write(leases.updateEntity(row, "Replace", { etag }), 412, 404);

    const known = etags.get(timer);
    if (known !== undefined && (await replace(known))) return true;
    const held = await undefinedOnStatus(leases.getEntity<LeaseRow>(hostId, timer), 404);
    if (held === undefined) return await write(leases.createEntity(row), 409);
    if (held.owner !== owner && held.until > new Date().toISOString()) return false;
    return await replace(held.etag);
  };

  const release = async (timer: string): Promise<void> => {
    const leases = await table();
    etags.delete(timer);
    const held = await undefinedOnStatus(leases.getEntity<LeaseRow>(hostId, timer), 404);
    if (held?.owner === owner)
      await undefinedOnStatus(leases.deleteEntity(hostId, timer, { etag: held.etag }), 412, 404);
  };
  return { acquire, release };
}

async function openTable(connection: string): Promise<TableClient> {
  const { TableClient: Client } = await import("@azure/data-tables");
  const client = Client.fromConnectionString(connection, TABLE, {
    allowInsecureConnection: /http:/i.test(connection),
    retryOptions: { maxRetries: 2, retryDelayInMs: 200 },
  });
  await client.createTable();
  return client;
}

/** Returns the response. Undefined if the service returned one of these error statuses. */
async function undefinedOnStatus<T>(answer: Promise<T>, ...statuses: number[]): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (statuses.includes((error as { statusCode?: number }).statusCode ?? 0)) return undefined;
    throw error;
  }
}
