import type { ClientRequest } from "node:http";
import type { Duplex } from "node:stream";
import { createSecureContext, type SecureContext } from "node:tls";
import pLimit from "p-limit";
import { HostConnections } from "../transport.ts";

/** Connections to one host at a time; further requests queue. Opening one costs more processor time than three requests. */
export const MOST_PER_HOST = 8;

/** Connections that wait for a next request, over all hosts: those of as many vaults as are read at once. */
const MOST_IDLE = 80;

/** Milliseconds such a connection waits before it is closed. */
const IDLE_MS = 4_000;

/**
 * A scan goes from vault to vault and each is a host of its own, so most connections are soon done with for good. Node
 * bounds the idle ones by host and time alone; at some 75 KB each with its TLS state, those of some thousand
 * vaults would fill the memory. Here the one that has waited longest makes room.
 */
class Connections extends HostConnections {
  /** In the order in which they became idle. */
  readonly #idle = new Set<Duplex>();

  /** Without one of ours, every connection makes its own. Made late, for it reads the trusted authorities at once. */
  #secureContext: SecureContext | undefined;

  override createConnection(
    ...[options, callback]: Parameters<HostConnections["createConnection"]>
  ): Duplex | null | undefined {
    this.#secureContext ??= createSecureContext();
    return super.createConnection(Object.assign({}, options, { secureContext: this.#secureContext }), callback);
  }

  override keepSocketAlive(socket: Duplex): boolean {
    const keeps: unknown = super.keepSocketAlive(socket);
    if (keeps !== true) return false;
    this.#idle.add(socket);
    if (this.#idle.size > MOST_IDLE) {
      const [oldest] = this.#idle;
      this.#idle.delete(oldest!);
      oldest!.destroy();
    }
    return true;
  }

  override reuseSocket(socket: Duplex, request: ClientRequest): void {
    this.#idle.delete(socket);
    super.reuseSocket(socket, request);
  }
}

/** The process's one pool of connections to the cloud. */
export const connections = new Connections({ keepAlive: true, maxSockets: MOST_PER_HOST, timeout: IDLE_MS });

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
