import pLimit from "p-limit";
import { loadOnce } from "../load-once.ts";
import { type ConnectionLimits, createTransport, type Transport } from "../transport.ts";

/** Most connections to one host. To open a connection costs more processor time than three requests. */
const MAX_PER_HOST = 8;

export const CONNECTION_LIMITS: ConnectionLimits = { perHost: MAX_PER_HOST, idleMs: 4_000 };

/** Number of requests that share a connection while a vault seems small. */
const REQUESTS_PER_CONNECTION = 8;

/**
 * The connections to one vault. The three lists and few details of a small vault use one connection after each other: a second
 * connection would cost two round trips, and more processor time than all requests. A large vault uses all connections.
 *
 * A scan reads thousands of vaults, each a host of its own. A connection takes 75 KB with its TLS state, so connections are
 * closed when the vault is read, and do not wait for their idle time.
 */
export interface VaultConnections {
  transport(): Promise<Transport>;
  /** Runs a request when a connection is free. */
  run<T>(request: () => Promise<T>): Promise<T>;
  /** Allows all connections, because the vault is large or slow. */
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
