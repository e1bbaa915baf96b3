import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import tls from "node:tls";
import { serverCertificate } from "../../infra/local/cloud/tls.ts";
import "../../infra/local/loopback-names.mjs";

/** Makes this process trust a certificate authority, as `NODE_EXTRA_CA_CERTS` does for one that starts. */
export function trust(authorityPath: string): void {
  const [trusted, authority] = [tls.getCACertificates("default"), readFileSync(authorityPath, "utf8").trim()];
  if (!trusted.some((known) => known.trim() === authority)) tls.setDefaultCACertificates([...trusted, authority]);
}

export interface OddServer {
  port: number;
  /** Every request, oldest first. */
  requests: { host: string; url: string; authorization: string | undefined }[];
  /** Answers from now on; forgets the requests before. */
  answer(handler: (request: IncomingMessage, response: ServerResponse, count: number) => void): void;
  stop(): Promise<void>;
}

/** A TLS server that says whatever a test wants, for answers the stand-in cloud is too well-behaved to give. */
export async function startOddServer(): Promise<OddServer> {
  const folder = mkdtempSync(join(tmpdir(), "odd-server-"));
  const { key, certificate, authorityPath } = serverCertificate(folder);
  trust(authorityPath);
  rmSync(folder, { recursive: true });
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
