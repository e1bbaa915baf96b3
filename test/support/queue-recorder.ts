import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";

/**
 * A proxy in front of Azurite's queue service that records every message that is sent to a queue. Azurite deletes handled
 * messages, so tests could not read them later.
 */
export interface QueueRecorder {
  /** The given connection string with the recorder as the queue endpoint. */
  readonly connectionString: string;
  /** For each recorded message, the path of the request and the decoded text: `/account/queue/messages {"scanId":…}`. */
  readonly messages: string[];
  stop(): Promise<void>;
}

/** Starts the proxy. Processes that use its connection string send their messages through it. */
export async function startQueueRecorder(connectionString: string): Promise<QueueRecorder> {
  const endpoint = new URL(/QueueEndpoint=([^;]+)/.exec(connectionString)?.[1] ?? "");
  const messages: string[] = [];
  const handle = async (incoming: IncomingMessage, answer: ServerResponse): Promise<void> => {
    const body = await buffer(incoming);
    const encoded = /<MessageText>([^<]*)<\/MessageText>/.exec(body.toString())?.[1];
    if (encoded !== undefined) messages.push(`${incoming.url} ${Buffer.from(encoded, "base64")}`);
    const { method, headers } = incoming;
    const forwarded = request(new URL(incoming.url ?? "/", endpoint), { method, headers }, (response) => {
      answer.writeHead(response.statusCode ?? 500, response.headers);
      response.pipe(answer);
    });
    forwarded.once("error", () => answer.destroy());
    forwarded.end(body);
  };
  const server = createServer((incoming, answer) => {
    // A request that breaks off on one side, for example when a host is killed, breaks off on the other side too.
    handle(incoming, answer).catch(() => answer.destroy());
  });
  // Longer than any pause between two requests, so that no idle connection closes while a client reuses it.
  server.keepAliveTimeout = 120_000;
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    connectionString: connectionString.replace(
      `QueueEndpoint=${endpoint.origin}`,
      `QueueEndpoint=http://127.0.0.1:${port}`,
    ),
    messages,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
