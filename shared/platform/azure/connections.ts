import pLimit from "p-limit";
import { loadOnce } from "../load-once.ts";
import { type ConnectionLimits, createTransport, type Transport } from "../transport.ts";

/** Maximum number of connections to one host. Opening a connection takes more processor time than three requests. */
const MAX_PER_HOST = 8;

/** Limits of the connections to cloud services. */
export const CONNECTION_LIMITS: ConnectionLimits = { perHost: MAX_PER_HOST, idleMs: 4_000 };

/** Running and waiting requests per allowed connection. More requests allow more connections. The number never decreases. */
const REQUESTS_PER_CONNECTION = 8;

/**
 * The connections to one vault. The requests for a small vault share one connection, one after the other: a second connection
 * would cost two round trips, and more processor time than all requests. A large vault uses up to `MAX_PER_HOST` connections.
 *
 * A scan reads thousands of vaults, and each vault is a separate host. A connection takes 75 KB with its TLS state, so the scan
 * closes the connections as soon as a vault is read.
 */
export interface VaultConnections {
  transport(): Promise<Transport>;
  /** Runs a request when a connection is free. */
  run<T>(request: () => Promise<T>): Promise<T>;
  /** Allows `MAX_PER_HOST` connections. Called when the vault proves to be large or slow. */
  useAll(): void;
  /** Closes the connections. */
  close(): Promise<void>;
}

export function createVaultConnections(): VaultConnections {
  const limit = pLimit(1);
  let isOpen = false;
  const transport = loadOnce(() => {
    isOpen = true;
    return createTransport(CONNECTION_LIMITS);
  });
  const allow = (connections: number) => {
    const allowed = Math.min(MAX_PER_HOST, Math.max(limit.concurrency, connections));
    if (limit.concurrency !== allowed) limit.concurrency = allowed;
  };
  return {
    transport,
    run(request) {
      const answer = limit(request);
      allow(Math.ceil((limit.activeCount + limit.pendingCount) / REQUESTS_PER_CONNECTION));
      return answer;
    },
    useAll: () => allow(MAX_PER_HOST),
    async close() {
      if (isOpen) (await transport()).close();
    },
  };
}
