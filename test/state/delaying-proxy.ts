import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

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

/** The table service's response to a write. */
export interface Answered extends Write {
  readonly fate: Fate;
  readonly applied: boolean;
  /** True if the first or only row of the transaction was rejected because another writer was faster. */
  readonly overtaken: boolean;
}

export interface HeldProxy {
  /** The given connection string, with the proxy as the table endpoint. */
  readonly connectionString: string;
  /** Every write to which the table service responded, oldest first. */
  readonly answered: Answered[];
  /** Writes that are held and not released yet. */
  readonly held: { readonly clientWaits: boolean; release(): Promise<void> }[];
  /** Stops new requests and responses. Held writes can still be released. */
  kill(): void;
  stop(): Promise<void>;
}

/** Starts a proxy between one worker and a table service that decides for each write when it arrives. */
export async function startHeldProxy(connectionString: string, fateOf: (write: Write) => Fate): Promise<HeldProxy> {
  const endpoint = new URL(/TableEndpoint=([^;]+)/.exec(connectionString)?.[1] ?? "");
  const answered: Answered[] = [];
  const held: { clientWaits: boolean; release(): Promise<void> }[] = [];
  let dead = false;

  const handle = async (incoming: IncomingMessage, answer: ServerResponse) => {
    const url = new URL(incoming.url ?? "/", endpoint);
    const body = await text(incoming);
    if (dead) return;
    const method = incoming.method ?? "GET";
    const path = decodeURIComponent(url.pathname).replace(/^\/[^/]+\//, "");
    const write = { method, path, body };
    const fate = method === "GET" || path === "Tables" ? "pass" : fateOf(write);
    if (fate === "cut" || fate === "drop") incoming.socket.destroy();
    if (fate === "drop") return;
    const arrived = fate === "hold" || fate === "cut" ? await released(fate === "hold") : undefined;
    try {
      const got = await forward(incoming, url, body);
      if (method !== "GET") answered.push({ ...write, fate, ...verdict(got) });
      if (fate === "lose") incoming.socket.destroy();
      if (fate === "lose" || fate === "cut" || dead) return;
      answer.writeHead(got.status, got.headers);
      answer.end(got.body);
    } finally {
      arrived?.();
    }
  };

  /** Resolves when the write is released, with a callback for its arrival, for which the releasing test waits. */
  const released = (clientWaits: boolean) =>
    new Promise<() => void>((resolve) => {
      const one = {
        clientWaits,
        async release() {
          held.splice(held.indexOf(one), 1);
          await new Promise<void>((arrived) => resolve(arrived));
        },
      };
      held.push(one);
    });

  const server = createServer((incoming, answer) => void handle(incoming, answer).catch(() => answer.destroy()));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    connectionString: connectionString.replace(endpoint.origin, `http://127.0.0.1:${port}`),
    answered,
    held,
    kill: () => {
      dead = true;
    },
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

interface Got {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: string;
}

/** In a transaction's response, the first error is inside the body, with the number of its operation. */
function verdict({ status, body }: Got): { applied: boolean; overtaken: boolean } {
  const inside = /HTTP\/1\.1 (4\d\d)/.exec(body)?.[1];
  const code = status === 202 && inside ? Number(inside) : status;
  const leads = /"value"\s*:\s*"0:/.test(body) || !/"value"\s*:\s*"\d+:/.test(body);
  return { applied: code < 300, overtaken: leads && (code === 412 || code === 409 || code === 404) };
}

function forward(incoming: IncomingMessage, url: URL, body: string) {
  return new Promise<Got>((resolve, reject) => {
    const { method, headers } = incoming;
    const forwarded = request(url, { method, headers }, (response) => {
      const { "transfer-encoding": _, ...kept } = response.headers;
      const { statusCode: status = 500 } = response;
      text(response).then((answer) => resolve({ status, headers: kept, body: answer }), reject);
    });
    forwarded.once("error", reject);
    forwarded.end(body);
  });
}
