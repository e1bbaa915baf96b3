import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";

/** Keeps every message on its way into a queue, which Azurite forgets once it is handled. */
export interface QueueRecorder {
  /** The connection string it was given, with itself as the queue endpoint. */
  readonly connectionString: string;
  /** The texts of all messages so far, decoded, with the path they were sent to. */
  readonly messages: string[];
  stop(): Promise<void>;
}

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
  // A connection that is lost on one side, as when a host is killed, is lost on the other.
  const server = createServer((incoming, answer) => {
    handle(incoming, answer).catch(() => answer.destroy());
  });
  // Longer than any pause between two requests: no connection ends just as it is used again.
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
