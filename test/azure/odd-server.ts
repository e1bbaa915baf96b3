import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { serverCertificate } from "simulated-cloud/tls.ts";
import { CLOUD_KEYS } from "../support/test-app.ts";

/** HTTPS server whose response a test sets. */
export interface FakeServer {
  port: number;
  /** Requests since the last `setResponse`, oldest first. */
  requests: { host: string; url: string; authorization: string | undefined }[];
  /** Sets the function that responds to each request, and clears `requests`. `count` is the number of the request, from 1. */
  setResponse(handler: (request: IncomingMessage, response: ServerResponse, count: number) => void): void;
  stop(): Promise<void>;
}

/** Starts an HTTPS server for responses that the simulated cloud does not give, such as invalid ones. */
export async function startFakeServer(): Promise<FakeServer> {
  const { key, certificate } = serverCertificate(CLOUD_KEYS);
  const requests: FakeServer["requests"] = [];
  let respond: Parameters<FakeServer["setResponse"]>[0] = (_, response) => response.writeHead(500).end();
  const server = createServer({ key, cert: certificate }, (request, response) => {
    const { host = "", authorization } = request.headers;
    requests.push({ host, url: request.url ?? "", authorization });
    respond(request, response, requests.length);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    requests,
    setResponse(handler) {
      requests.length = 0;
      respond = handler;
    },
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
