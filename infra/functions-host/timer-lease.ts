import { randomUUID } from "node:crypto";
import type { TableClient } from "@azure/data-tables";

/**
 * Ensures that only one of several hosts on a storage account runs a timer. The platform leases a blob (`locks/<host
 * id>/...Listener`). This host uses a table row, because a local storage emulator may run without blobs.
 */
export interface TimerLease {
  /** Acquires or renews the lease. False if another host holds it. */
  acquire(timer: string): Promise<boolean>;
  /** Releases the lease, if this host still holds it. */
  release(timer: string): Promise<void>;
}

const TABLE = "LocalHostLeases";

/** Row of a timer. `until` is the time when the lease expires, ISO 8601. */
interface LeaseRow {
  owner: string;
  until: string;
}

/**
 * Creates the leases of an app's timers.
 * @param connection Connection string. Undefined without a storage account: every lease is then granted, because there is no
 * other host.
 * @param seconds Lifetime of a lease that is not renewed, for example after its host was killed.
 */
export function createTimerLease(connection: string | undefined, hostId: string, seconds: number): TimerLease {
  if (connection === undefined) return { acquire: async () => true, release: async () => {} };
  const owner = randomUUID();
  /** ETag of each row that this host wrote last, by timer. With it, the host can renew a lease without reading the row. */
  const etags = new Map<string, string>();
  let client: TableClient | undefined;
  const openLeaseTable = async () => {
    client ??= await openTable(connection);
    return client;
  };

  const acquire = async (timer: string): Promise<boolean> => {
    const leases = await openLeaseTable();
    const row = {
      partitionKey: hostId,
      rowKey: timer,
      owner,
      until: new Date(Date.now() + seconds * 1000).toISOString(),
    };
    /**
     * Stores the new ETag. Returns false if another host was faster. `conflicts` are the statuses that mean this: 412 (the row
     * changed), 404 (deleted) or 409 (created).
     */
    const write = async (answer: Promise<{ etag?: string }>, ...conflicts: number[]): Promise<boolean> => {
      const { etag } = (await undefinedOnStatus(answer, ...conflicts)) ?? {};
      if (etag === undefined) etags.delete(timer);
      else etags.set(timer, etag);
      return etag !== undefined;
    };
    const replace = (etag: string) => write(leases.updateEntity(row, "Replace", { etag }), 412, 404);

    const lastEtag = etags.get(timer);
    if (lastEtag !== undefined && (await replace(lastEtag))) return true;
    const current = await undefinedOnStatus(leases.getEntity<LeaseRow>(hostId, timer), 404);
    if (current === undefined) return await write(leases.createEntity(row), 409);
    if (current.owner !== owner && current.until > new Date().toISOString()) return false;
    return await replace(current.etag);
  };

  const release = async (timer: string): Promise<void> => {
    const leases = await openLeaseTable();
    etags.delete(timer);
    const current = await undefinedOnStatus(leases.getEntity<LeaseRow>(hostId, timer), 404);
    if (current?.owner === owner)
      await undefinedOnStatus(leases.deleteEntity(hostId, timer, { etag: current.etag }), 412, 404);
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
