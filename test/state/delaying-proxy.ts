import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

/**
 * Proxy between one worker and the table service. It delays, drops or cuts off single writes, so that a test can let them
 * arrive late, for example after another worker has taken over.
 */

/** What happens to one write on its way to the table service. */
export type Fate =
  | "pass"
  /** Arrives when it is released. The client waits for the response. */
  | "hold"
  /** Arrives when it is released. The client's connection is closed at once. */
  | "cut"
  /** Never arrives, and the client's connection is closed. */
  | "drop"
  /** Arrives, and the client's connection is closed before the response. */
  | "lose";

export interface Write {
  readonly method: string;
  /** Decoded: `$batch`, `Assets(PartitionKey='all',RowKey='f!kv')`. */
  readonly path: string;
  readonly body: string;
}

/** A write to which the table service has responded. */
export interface CompletedWrite extends Write {
  readonly fate: Fate;
  readonly applied: boolean;
  /**
   * True if the first or only row of the transaction was rejected because of another writer. The first row of a worker's
   * transaction is the fence: a row that the worker must replace, and that another worker has replaced if it took over.
   */
  readonly rejectedByFence: boolean;
}

export interface DelayingProxy {
  /** The given connection string, with the proxy as the table endpoint. */
  readonly connectionString: string;
  /** Every write to which the table service responded, oldest first. */
  readonly writes: CompletedWrite[];
  /** Writes that are held and not released yet. `release` resolves when the table service has responded. */
  readonly heldWrites: { readonly clientWaits: boolean; release(): Promise<void> }[];
  /** Simulates the worker's crash: stops new requests and responses. Held writes can still be released. */
  kill(): void;
  stop(): Promise<void>;
}

/** Starts the proxy. It calls `fateOf` for each write, but not for reads and the creation of tables, which pass. */
export async function startDelayingProxy(
  connectionString: string,
  fateOf: (write: Write) => Fate,
): Promise<DelayingProxy> {
  const endpoint = new URL(/TableEndpoint=([^;]+)/.exec(connectionString)?.[1] ?? "");
  const writes: CompletedWrite[] = [];
  const heldWrites: { clientWaits: boolean; release(): Promise<void> }[] = [];
  let isKilled = false;

  const handle = async (incoming: IncomingMessage, outgoing: ServerResponse) => {
    const url = new URL(incoming.url ?? "/", endpoint);
    const body = await text(incoming);
    if (isKilled) return;
    const method = incoming.method ?? "GET";
    const path = decodeURIComponent(url.pathname).replace(/^\/[^/]+\//, "");
    const write = { method, path, body };
    const fate = method === "GET" || path === "Tables" ? "pass" : fateOf(write);
    if (fate === "cut" || fate === "drop") incoming.socket.destroy();
    if (fate === "drop") return;
    const onArrival = fate === "hold" || fate === "cut" ? await waitForRelease(fate === "hold") : undefined;
    try {
      const response = await forward(incoming, url, body);
      if (method !== "GET") writes.push({ ...write, fate, ...outcomeOf(response) });
      if (fate === "lose") incoming.socket.destroy();
      if (fate === "lose" || fate === "cut" || isKilled) return;
      outgoing.writeHead(response.status, response.headers);
      outgoing.end(response.body);
    } finally {
      onArrival?.();
    }
  };

  /**
   * Resolves when the test releases the write. The result is a function to call when the table service has responded, because
   * `release` waits for the response.
   */
  const waitForRelease = (clientWaits: boolean) =>
    new Promise<() => void>((resolve) => {
      const heldWrite = {
        clientWaits,
        async release() {
          heldWrites.splice(heldWrites.indexOf(heldWrite), 1);
          await new Promise<void>((onArrival) => resolve(onArrival));
        },
      };
      heldWrites.push(heldWrite);
    });

  const server = createServer((incoming, answer) => void handle(incoming, answer).catch(() => answer.destroy()));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    connectionString: connectionString.replace(endpoint.origin, `http://127.0.0.1:${port}`),
    writes,
    heldWrites,
    kill: () => {
      isKilled = true;
    },
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** Response of the table service. */
interface TableResponse {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: string;
}

/**
 * Returns whether a write was applied, and whether it was rejected by its first row. A transaction has the status 202 also if
 * it fails. Its body then contains the status of the failed operation (`HTTP/1.1 412 …`) and a message that starts with the
 * operation's index (`"value":"0:The update condition …"`).
 */
function outcomeOf({ status, body }: TableResponse): { applied: boolean; rejectedByFence: boolean } {
  const innerStatus = /HTTP\/1\.1 (4\d\d)/.exec(body)?.[1];
  const code = status === 202 && innerStatus ? Number(innerStatus) : status;
  const isFirstRow = /"value"\s*:\s*"0:/.test(body) || !/"value"\s*:\s*"\d+:/.test(body);
  return { applied: code < 300, rejectedByFence: isFirstRow && (code === 412 || code === 409 || code === 404) };
}

function forward(incoming: IncomingMessage, url: URL, body: string) {
  return new Promise<TableResponse>((resolve, reject) => {
    const { method, headers } = incoming;
    const forwarded = request(url, { method, headers }, (response) => {
      const { "transfer-encoding": _, ...otherHeaders } = response.headers;
      const { statusCode: status = 500 } = response;
      text(response).then((responseBody) => resolve({ status, headers: otherHeaders, body: responseBody }), reject);
    });
    forwarded.once("error", reject);
    forwarded.end(body);
  });
}
