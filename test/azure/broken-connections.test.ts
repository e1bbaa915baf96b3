import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { createHttpHeaders, createPipelineRequest, type PipelineRequestOptions } from "@azure/core-rest-pipeline";
import { serverCertificate } from "simulated-cloud/tls.ts";
import { afterEach, expect, test } from "vitest";
import { createVaultConnections } from "../../shared/platform/azure/connections.ts";
import { createTransport, MAX_ANSWER_BYTES } from "../../shared/platform/transport.ts";
import { CLOUD_KEYS } from "../support/test-app.ts";

/** Tests of the HTTP transport with connections that break, hang or are refused. */

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const stop of cleanups.splice(0)) stop();
});

const OK_RESPONSE = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/** Starts a TCP server that calls `onRequest` with the first line of each request. Returns its address and connections. */
async function startTcpServer(
  onRequest: (socket: Socket, line: string) => void,
  onConnection: (socket: Socket) => void = () => {},
) {
  const open = new Set<Socket>();
  const info = { address: "", connections: 0, open };
  const server = createServer((socket) => {
    info.connections++;
    open.add(socket);
    socket.on("close", () => open.delete(socket)).on("error", () => {});
    socket.on("data", (data) => onRequest(socket, data.toString("latin1").split("\r\n")[0]!));
    onConnection(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  info.address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  cleanups.push(() => {
    for (const socket of open) socket.destroy();
    server.close();
  });
  return info;
}

/** Returns a function that sends a request and returns the response's text, or the code or name of the error. */
async function createSender() {
  const { client } = await createTransport({ perHost: 8, idleMs: 4_000 });
  return (url: string, options: Partial<PipelineRequestOptions> = {}) =>
    client.sendRequest(createPipelineRequest({ url, timeout: 20_000, ...options })).then(
      ({ bodyAsText }) => bodyAsText,
      (error: Error & { code?: string | number }) => (typeof error.code === "string" ? error.code : error.name),
    );
}

const repeat = <T>(count: number, work: () => Promise<T>) => Promise.all(Array.from({ length: count }, work));

test("a request that times out closes its connection and opens no other", async () => {
  const server = await startTcpServer(() => {});
  const send = await createSender();
  expect(await send(`http://${server.address}/`, { timeout: 100 })).toBe("AnswerTimeout");
  await delay(100);
  expect([server.connections, server.open.size]).toEqual([1, 0]);
});

test("requests that are aborted while waiting for a connection open none", async () => {
  const server = await startTcpServer((socket) => setTimeout(() => socket.write(OK_RESPONSE), 300));
  const connections = createVaultConnections();
  connections.useAll();
  const { client } = await connections.transport();
  const send = (abortSignal?: AbortSignal) =>
    connections
      .run(() =>
        client.sendRequest(
          createPipelineRequest({ url: `http://${server.address}/`, ...(abortSignal && { abortSignal }) }),
        ),
      )
      .then(
        ({ bodyAsText }) => bodyAsText,
        (error: Error) => error.name,
      );
  const first = repeat(8, () => send());
  const stop = new AbortController();
  const waiting = repeat(20, () => send(stop.signal));
  stop.abort();
  const lastRequest = send();
  expect([...(await first), await lastRequest]).toEqual(Array(9).fill("ok"));
  expect(new Set(await waiting)).toEqual(new Set(["AbortError"]));
  expect(server.connections).toBe(8);
  await connections.close();
  await expect.poll(() => server.open.size, { timeout: 10_000 }).toBe(0);
});

test("connections that are never established don't delay later requests", async () => {
  let silent = true;
  const { key, certificate } = serverCertificate(CLOUD_KEYS);
  const working = createHttpsServer({ key, cert: certificate }, (_, response) => response.end("ok"));
  const server = await startTcpServer(
    () => {},
    (socket) => {
      socket.removeAllListeners("data");
      if (!silent) working.emit("connection", socket);
    },
  );
  const address = `https://kv-silent.vault.localhost:${server.address.split(":")[1]}/`;
  const send = await createSender();
  expect(new Set(await repeat(20, () => send(address, { timeout: 300 })))).toEqual(new Set(["AnswerTimeout"]));
  silent = false;
  expect(await send(address, { timeout: 10_000 })).toBe("ok");
});

test("all requests to a host with the certificate of another host fail at once", async () => {
  const { key, certificate } = serverCertificate(CLOUD_KEYS);
  const server = createHttpsServer({ key, cert: certificate });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  cleanups.push(() => server.close());
  const send = await createSender();
  const address = `https://kv-other.localhost:${(server.address() as AddressInfo).port}/`;
  expect(new Set(await repeat(20, () => send(address, { timeout: 5_000 })))).toEqual(
    new Set(["ERR_TLS_CERT_ALTNAME_INVALID"]),
  );
});

test("requests that can't be sent don't delay other requests to the same host", async () => {
  const server = await startTcpServer((socket) => socket.write(OK_RESPONSE));
  const send = await createSender();
  const wrong = await repeat(20, () =>
    send(`http://${server.address}/`, { headers: createHttpHeaders({ "x wrong": "a" }) }),
  );
  expect(new Set(wrong)).toEqual(new Set(["ERR_INVALID_HTTP_TOKEN"]));
  expect(await send(`http://${server.address}/`, { timeout: 5_000 })).toBe("ok");
});

test.each([
  ["ends in the middle of its chunks", "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", false],
  ["is shorter than its Content-Length", "Connection: close\r\nContent-Length: 9\r\n\r\nhel", false],
  ["has no length and whose connection is reset", "\r\nhel", true],
])("a response that %s fails as a broken connection", async (_, rest, reset) => {
  const server = await startTcpServer((socket) => {
    socket.write(`HTTP/1.1 200 OK\r\n${rest}`);
    if (reset) setTimeout(() => socket.resetAndDestroy(), 50);
    else socket.end();
  });
  const send = await createSender();
  expect(await send(`http://${server.address}/`)).toBe("ECONNRESET");
});

test("the first value of a repeated header is used", async () => {
  const server = await startTcpServer((socket) =>
    socket.write("HTTP/1.1 429 Slow down\r\nRetry-After: 5\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"),
  );
  const { client } = await createTransport({ idleMs: 4_000 });
  const { headers } = await client.sendRequest(createPipelineRequest({ url: `http://${server.address}/` }));
  expect(headers.get("retry-after")).toBe("5");
});

test("a response that is too large fails only its own request", async () => {
  const body = Buffer.alloc(MAX_ANSWER_BYTES + 1, "a");
  const server = await startTcpServer((socket, line) => {
    if (line.includes("/small")) return void socket.write(OK_RESPONSE);
    socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n`);
    socket.write(body);
  });
  const send = await createSender();
  expect(await send(`http://${server.address}/`, { timeout: 60_000 })).toBe("AnswerTooLarge");
  expect(await send(`http://${server.address}/small`)).toBe("ok");
});

test("an idle connection is closed, and a busy one is not", async () => {
  const server = await startTcpServer((socket, line) => {
    setTimeout(() => socket.write(OK_RESPONSE), line.includes("/slow") ? 600 : 0);
  });
  const { client } = await createTransport({ idleMs: 200 });
  const send = (path: string) =>
    client.sendRequest(createPipelineRequest({ url: `http://${server.address}${path}`, timeout: 5_000 }));
  expect(await send("/slow")).toMatchObject({ bodyAsText: "ok" });
  expect(server.connections).toBe(1);
  await send("/");
  expect([server.connections, server.open.size]).toEqual([1, 1]);
  await expect.poll(() => server.open.size, { timeout: 10_000 }).toBe(0);
});
