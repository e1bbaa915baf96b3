import pLimit from "p-limit";
import type { ConnectionLimits } from "../connections.ts";

/** Connections to one host at a time; further requests queue. Opening one costs more processor time than three requests. */
export const MOST_PER_HOST = 8;

/**
 * A scan goes from vault to vault and each is a host of its own, so most connections are soon done with for good. At some 75
 * KB each with its TLS state, those of some thousand vaults would fill the memory: there are no more than those of as many
 * vaults as are read at once.
 */
export const CONNECTIONS: ConnectionLimits = { perHost: MOST_PER_HOST, open: 80, idleMs: 4_000 };

/** As long as a vault seems small, so many requests share a connection. */
const REQUESTS_A_CONNECTION = 8;

/**
 * How many requests to one host are under way. A small vault's three lists and few details go one after the other over one
 * connection: a second one would cost two round trips and more processor time than all of them. A host with much to read
 * gets as many as there may be.
 */
export interface HostLimit {
  run<T>(request: () => Promise<T>): Promise<T>;
  /** There is much to read. */
  widen(): void;
}

export function createHostLimit(): HostLimit {
  const limit = pLimit(1);
  let most = 1;
  const set = (concurrency: number) => {
    most = Math.min(MOST_PER_HOST, Math.max(most, concurrency));
    if (limit.concurrency !== most) limit.concurrency = most;
  };
  return {
    run(request) {
      const wanted = limit(request);
      set(Math.ceil((limit.activeCount + limit.pendingCount) / REQUESTS_A_CONNECTION));
      return wanted;
    },
    widen: () => set(MOST_PER_HOST),
  };
}
