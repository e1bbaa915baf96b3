import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { serverCertificate } from "simulated-cloud/tls.ts";
import { CLOUD_KEYS } from "../support/test-app.ts";

export interface OddServer {
  port: number;
  /** Every request, oldest first. */
  requests: { host: string; url: string; authorization: string | undefined }[];
  /** Sets the answer, and forgets earlier requests. */
  answer(handler: (request: IncomingMessage, response: ServerResponse, count: number) => void): void;
  stop(): Promise<void>;
}

/** Starts a TLS server with any answer that a test needs, for answers that the simulated cloud never gives. */
export async function startOddServer(): Promise<OddServer> {
  const { key, certificate } = serverCertificate(CLOUD_KEYS);
  const requests: OddServer["requests"] = [];
  let current: Parameters<OddServer["answer"]>[0] = (_, response) => response.writeHead(500).end();
  const server = createServer({ key, cert: certificate }, (request, response) => {
    const { host = "", authorization } = request.headers;
    requests.push({ host, url: request.url ?? "", authorization });
    current(request, response, requests.length);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    requests,
    answer(handler) {
      requests.length = 0;
      current = handler;
    },
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
