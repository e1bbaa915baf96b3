import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { serverCertificate } from "simulated-cloud/tls.ts";
import { afterEach, expect, test } from "vitest";
import { MOST_ANSWER_BYTES } from "../../shared/platform/connections.ts";
import { createTransport, type OutgoingRequest } from "../../shared/platform/transport.ts";
import { CLOUD_KEYS } from "../support/test-app.ts";

const stops: (() => void)[] = [];
afterEach(() => {
  for (const stop of stops.splice(0)) stop();
});

const OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/** A server of bare connections; `answer` gets each request's first line. */
async function serve(answer: (socket: Socket, line: string) => void, opened: (socket: Socket) => void = () => {}) {
  const open = new Set<Socket>();
  const seen = { address: "", connections: 0, open };
  const server = createServer((socket) => {
    seen.connections++;
    open.add(socket);
    socket.on("close", () => open.delete(socket)).on("error", () => {});
    socket.on("data", (data) => answer(socket, data.toString("latin1").split("\r\n")[0]!));
    opened(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  seen.address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  stops.push(() => {
    for (const socket of open) socket.destroy();
    server.close();
  });
  return seen;
}

async function asking() {
  const { exchange } = await createTransport({ perHost: 8, open: 80, idleMs: 4_000 });
  return (url: string, more: Partial<OutgoingRequest> = {}) =>
    exchange({ url, method: "GET", headers: {}, timeout: 20_000, ...more }).then(
      ({ text }) => text,
      (error: Error & { code?: string }) => error.code ?? error.name,
    );
}

const times = <T>(count: number, work: () => Promise<T>) => Promise.all(Array.from({ length: count }, work));

test("a request that is given up costs no further connection", async () => {
  const server = await serve(() => {});
  const ask = await asking();
  expect(await ask(`http://${server.address}/`, { timeout: 100 })).toBe("AnswerTimeout");
  await delay(100);
  expect([server.connections, server.open.size]).toEqual([1, 0]);
});

test("requests that are given up while they wait for their turn cost no connections", async () => {
  const server = await serve((socket) => setTimeout(() => socket.write(OK), 300));
  const ask = await asking();
  const first = times(8, () => ask(`http://${server.address}/`));
  const stop = new AbortController();
  const waiting = times(20, () => ask(`http://${server.address}/`, { signal: stop.signal }));
  stop.abort();
  expect(new Set(await waiting)).toEqual(new Set([20]));
  const last = ask(`http://${server.address}/`);
  expect([...(await first), await last]).toEqual(Array(9).fill("ok"));
  expect(server.connections).toBe(8);
});

test("connections that don't come about don't hold up the requests after those that waited for them", async () => {
  let silent = true;
  const { key, certificate } = serverCertificate(CLOUD_KEYS);
  const well = createHttpsServer({ key, cert: certificate }, (_, response) => response.end("ok"));
  const server = await serve(
    () => {},
    (socket) => {
      socket.removeAllListeners("data");
      if (!silent) well.emit("connection", socket);
    },
  );
  const address = `https://kv-silent.vault.localhost:${server.address.split(":")[1]}/`;
  const ask = await asking();
  expect(new Set(await times(20, () => ask(address, { timeout: 300 })))).toEqual(new Set(["AnswerTimeout"]));
  silent = false;
  expect(await ask(address, { timeout: 10_000 })).toBe("ok");
});

test("all requests to a host with another's certificate are refused at once, however many", async () => {
  const { key, certificate } = serverCertificate(CLOUD_KEYS);
  const server = createHttpsServer({ key, cert: certificate });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  stops.push(() => server.close());
  const ask = await asking();
  const address = `https://kv-other.localhost:${(server.address() as AddressInfo).port}/`;
  expect(new Set(await times(20, () => ask(address, { timeout: 5_000 })))).toEqual(
    new Set(["ERR_TLS_CERT_ALTNAME_INVALID"]),
  );
});

test("requests that can't be sent don't hold up others to the same host", async () => {
  const server = await serve((socket) => socket.write(OK));
  const ask = await asking();
  const wrong = await times(20, () => ask(`http://${server.address}/`, { headers: { "x-wrong": "a\nb" } }));
  expect(new Set(wrong)).toEqual(new Set(["UND_ERR_INVALID_ARG"]));
  expect(await ask(`http://${server.address}/`, { timeout: 5_000 })).toBe("ok");
});

test.each([
  ["in chunks that ends amid them", "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", false],
  ["shorter than it says", "Connection: close\r\nContent-Length: 9\r\n\r\nhel", false],
  ["without a length whose connection broke", "\r\nhel", true],
])("an answer %s is a broken connection", async (_, rest, broken) => {
  const server = await serve((socket) => {
    socket.write(`HTTP/1.1 200 OK\r\n${rest}`);
    if (broken) setTimeout(() => socket.resetAndDestroy(), 50);
    else socket.end();
  });
  const ask = await asking();
  expect(await ask(`http://${server.address}/`)).toBe("ECONNRESET");
});

test("of a header that came twice the first counts", async () => {
  const server = await serve((socket) =>
    socket.write("HTTP/1.1 429 Slow down\r\nRetry-After: 5\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"),
  );
  const { exchange } = await createTransport({ idleMs: 4_000 });
  const { headers } = await exchange({ url: `http://${server.address}/`, method: "GET", headers: {}, timeout: 5_000 });
  expect(headers["retry-after"]).toBe("5");
});

test.each([
  ["as it is", "", "UND_ERR_RES_EXCEEDED_MAX_SIZE"],
  ["once it is unpacked", "Content-Encoding: gzip\r\n", "ERR_BUFFER_TOO_LARGE"],
])("an answer that is too large %s fails its own request and nothing else", async (_, header, code) => {
  const plain = Buffer.alloc(MOST_ANSWER_BYTES + 1, "a");
  const body = header === "" ? plain : gzipSync(plain, { level: 1 });
  const server = await serve((socket, line) => {
    if (line.includes("/small")) return void socket.write(OK);
    socket.write(`HTTP/1.1 200 OK\r\n${header}Content-Length: ${body.length}\r\n\r\n`);
    socket.write(body);
  });
  const ask = await asking();
  expect(await ask(`http://${server.address}/`, { timeout: 60_000 })).toBe(code);
  expect(await ask(`http://${server.address}/small`)).toBe("ok");
});
