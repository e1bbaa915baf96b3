import { createServer, type Server } from "node:http";
import { type AddressInfo, createServer as createTcpServer, type Socket } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { type AllowedNetwork, blockedReason } from "../../shared/platform/outgoing/allowed-addresses.ts";
import { guardedFetch } from "../../shared/platform/outgoing/guarded-fetch.ts";
import {
  createOutgoing,
  hostAndPort,
  type OutgoingOptions,
  type Unreachable,
} from "../../shared/platform/outgoing/outgoing.ts";

/**
 * Tests of outgoing HTTP requests to addresses that users configure, such as webhooks. The service must not be usable to reach
 * its own network or the cloud's metadata endpoints (server-side request forgery).
 */

describe("an address that a user entered", () => {
  test.each([
    "127.0.0.1",
    "127.255.0.9",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "169.254.1.1",
    "168.63.129.16",
    "100.64.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "240.0.0.1",
    "::1",
    "::",
    "::ffff:8.8.8.8",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "64:ff9b::a00:1",
    "2002:7f00:1::",
    "2001:0:a00:1::",
    "fe80::1",
    "fec0::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "2001:db8::1",
    "100::1",
    "nonsense",
  ])("%s is blocked", (address) => {
    expect(blockedReason(address, "public")).toBeTypeOf("string");
  });

  test.each(["8.8.8.8", "20.50.2.1", "2620:1ec:c11::200", "2a00:1450:4001:831::200e"])("%s is allowed", (address) => {
    expect(blockedReason(address, "public")).toBeUndefined();
  });

  test.each(["127.0.0.1", "10.1.2.3", "::1", "fc00::1", "100.64.0.1", "::ffff:10.0.0.1"])(
    "%s is allowed if the configuration permits private addresses",
    (address) => {
      expect(blockedReason(address, "ownNetwork")).toBeUndefined();
    },
  );

  test.each(["169.254.169.254", "168.63.129.16", "::ffff:169.254.169.254", "fd00:ec2::254", "0.0.0.0", "224.0.0.1"])(
    "%s is blocked even if the configuration permits private addresses",
    (address) => {
      expect(blockedReason(address, "ownNetwork")).toBeTypeOf("string");
    },
  );

  test("is blocked in all of 169.254.128.0/17, which the platform uses, and allowed in the other link-local addresses", () => {
    const platform = "it is an address of the platform";
    for (const address of ["128.0", "129.3", "130.1", "131.2", "169.254", "255.255"]) {
      expect(blockedReason(`169.254.${address}`, "ownNetwork")).toBe(platform);
      expect(blockedReason(`::ffff:169.254.${address}`, "named")).toBe(platform);
    }
    for (const address of ["1.1", "127.255"]) expect(blockedReason(`169.254.${address}`, "ownNetwork")).toBeUndefined();
  });
});

describe("an address that the operator named in the configuration", () => {
  test.each(["127.0.0.1", "10.1.2.3", "::1", "fc00::1", "100.64.0.1", "8.8.8.8"])("%s is allowed", (address) => {
    expect(blockedReason(address, "named")).toBeUndefined();
  });

  test.each(["169.254.1.1", "fe80::1", "169.254.169.254", "168.63.129.16", "fd00:ec2::254", "0.0.0.0"])(
    "%s is blocked",
    (address) => {
      expect(blockedReason(address, "named")).toBeTypeOf("string");
    },
  );
});

/**
 * Returns options that permit requests to a network and read at most 4 KiB of each response. `public`: only public addresses.
 * `ownNetwork`: also addresses of the service's own network. `named`: the same without link-local addresses.
 */
const optionsFor = (network: AllowedNetwork, change: Partial<OutgoingOptions> = {}): OutgoingOptions => ({
  allowedNetwork: () => network,
  plainHttp: () => network === "ownNetwork",
  remedy: "",
  timeoutMs: 15_000,
  maxAnswerBytes: 4096,
  ...change,
});
const post = { method: "POST", headers: {}, body: "{}" } as const;

let server: Server | undefined;
const stopListeners: (() => void)[] = [];
afterEach(() => {
  for (const stop of stopListeners.splice(0)) stop();
  server?.closeAllConnections();
  server?.close();
});
/** Starts an HTTP server on a free port. Returns the port. */
async function startServer(handler: Parameters<typeof createServer>[1]): Promise<number> {
  server = createServer(handler);
  await new Promise<void>((resolve) => server!.listen(0, "127.0.0.1", resolve));
  return (server.address() as AddressInfo).port;
}
/** Starts a TCP server whose handler can send any bytes, also invalid HTTP. Returns its port and its connections. */
async function startTcpServer(handler: (socket: Socket) => void) {
  const connections = { port: 0, count: 0, open: new Set<Socket>() };
  const listening = createTcpServer((socket) => {
    connections.count++;
    connections.open.add(socket);
    socket.on("error", () => {});
    socket.once("close", () => connections.open.delete(socket));
    handler(socket);
    socket.resume();
  });
  await new Promise<void>((resolve) => listening.listen(0, "127.0.0.1", resolve));
  connections.port = (listening.address() as AddressInfo).port;
  stopListeners.push(() => {
    for (const socket of connections.open) socket.destroy();
    listening.close();
  });
  return connections;
}

/** Returns the error with which a promise is rejected. */
const failureOf = (work: Promise<unknown>) =>
  work.then(
    () => new Error("It succeeded."),
    (error: unknown) => error as Unreachable,
  );

describe("a request", () => {
  test.each([
    ["http://example.com/hook", "The address must begin with https://."],
    ["ftp://example.com/", "The address must begin with https://."],
    ["https://user:pw@example.com/", "The address must not contain a username or password."],
    ["https://user@example.com/", "The address must not contain a username or password."],
    ["https://:pw@example.com/", "The address must not contain a username or password."],
    ["https://example.com/#part", "The address must not contain a fragment."],
    ["https://127.0.0.1/hook", /127\.0\.0\.1/],
    ["https://[::1]/hook", /::1/],
    ["https://2130706433/", /127\.0\.0\.1/],
    ["https://0x7f.1/", /127\.0\.0\.1/],
    ["https://[::ffff:169.254.169.254]/latest", /::ffff/],
    ["https://localhost/", /127\.0\.0\.1/],
  ])("to %s is not sent, and the error names the reason", async (address, reason) => {
    let nameResolutions = 0;
    const outgoing = createOutgoing(
      optionsFor("public", {
        resolve: async (host) => {
          nameResolutions++;
          return [{ address: host === "localhost" ? "127.0.0.1" : host, family: 4 }];
        },
      }),
    );
    const error = await failureOf(outgoing.send(address, post));
    expect(error).toMatchObject({ name: "Unreachable", sent: false, permanent: true });
    // Invalid addresses (a text) are rejected before their name is resolved, blocked ones (a pattern) afterwards.
    if (typeof reason === "string") expect([error.message, nameResolutions]).toEqual([reason, 0]);
    else expect(error.message).toMatch(reason);
    expect(nameResolutions).toBeLessThanOrEqual(1);
  });

  test("connects to the address that was checked, and is blocked if any address of the name is blocked", async () => {
    const hosts: (string | undefined)[] = [];
    const port = await startServer((request, response) => {
      hosts.push(request.headers.host);
      response.end("ok");
    });
    // A name server that returns another address for the second question (DNS rebinding).
    const answers = [[{ address: "127.0.0.1", family: 4 }], [{ address: "10.0.0.1", family: 4 }]];
    let resolutions = 0;
    const rebinding = createOutgoing(optionsFor("ownNetwork", { resolve: async () => answers[resolutions++]! }));
    expect(await rebinding.send(`http://hook.example:${port}/x`, post)).toMatchObject({
      status: 200,
      body: Buffer.from("ok"),
      complete: true,
    });
    expect(resolutions).toBe(1);
    expect(hosts).toEqual([`hook.example:${port}`]);
    const mixed = createOutgoing(
      optionsFor("public", {
        resolve: async () => [
          { address: "8.8.8.8", family: 4 },
          { address: "169.254.169.254", family: 4 },
        ],
      }),
    );
    expect(await failureOf(mixed.send("https://hook.example/secret-path", post))).toMatchObject({ permanent: true });
    expect(String(await failureOf(mixed.send("https://hook.example/secret-path", post)))).not.toContain("secret-path");
  });

  test("does not follow redirects", async () => {
    let requests = 0;
    const port = await startServer((_request, response) => {
      requests++;
      response.writeHead(302, { location: `http://127.0.0.1:${port}/elsewhere` }).end();
    });
    const outgoing = createOutgoing(optionsFor("ownNetwork"));
    expect(await outgoing.send(`http://127.0.0.1:${port}/`, post)).toMatchObject({ status: 302 });
    expect(requests).toBe(1);
  });

  test("reads an endless response up to the limit", async () => {
    const port = await startServer((_request, response) => {
      const writing = setInterval(() => response.write("x".repeat(1024)), 1);
      response.once("close", () => clearInterval(writing));
    });
    const answer = await createOutgoing(optionsFor("ownNetwork")).send(`http://127.0.0.1:${port}/`, post);
    expect(answer.body).toHaveLength(4096);
    expect(answer.complete).toBe(false);
  });

  test("fails with `sent` true if the receiver does not respond, and false if nothing listens", async () => {
    const port = await startServer(() => {});
    const outgoing = createOutgoing(optionsFor("ownNetwork", { timeoutMs: 1_000 }));
    expect(await failureOf(outgoing.send(`http://127.0.0.1:${port}/`, post))).toMatchObject({ sent: true });
    server!.closeAllConnections();
    await new Promise((resolve) => server!.close(resolve));
    expect(await failureOf(outgoing.send(`http://127.0.0.1:${port}/`, post))).toMatchObject({
      sent: false,
      permanent: false,
    });
  });

  /** Responses without a valid status line and headers: the receiver's bytes, and whether it then closes the connection. */
  const INCOMPLETE_RESPONSES: [name: string, bytes: string, closes: boolean][] = [
    ["a switch of protocols", "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n", false],
    ["a switch of protocols and a close", "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", true],
    ["a bare 101", "HTTP/1.1 101 Nothing\r\n\r\n", false],
    ["a bare 101 and a close", "HTTP/1.1 101 Nothing\r\n\r\n", true],
    ["a close before the head", "", true],
    ["a close within the head", "HTTP/1.1 200 OK\r\ncontent-", true],
    ["nothing", "", false],
    ["half of a head", "HTTP/1.1 200 OK\r\ncontent-", false],
    ["interim responses only", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n", false],
    ["interim responses and a close", "HTTP/1.1 103 Early Hints\r\n\r\n", true],
    ["text that is not HTTP", "220 ready\r\n", false],
  ];

  test.each(INCOMPLETE_RESPONSES)(
    "fails within the time limit and closes its connection if the response is %s",
    { timeout: 20_000 },
    async (_name, bytes, closes) => {
      const connections = await startTcpServer((socket) => {
        socket.once("data", () => (closes ? socket.end(bytes) : socket.write(bytes)));
      });
      const outgoing = createOutgoing(optionsFor("ownNetwork", { timeoutMs: 500 }));
      const address = `http://127.0.0.1:${connections.port}/secret-path`;
      const error = await failureOf(outgoing.send(address, post));
      expect(error).toMatchObject({ name: "Unreachable", sent: true, permanent: false });
      expect(error.message).toMatch(/^127\.0\.0\.1 was not reached: /);
      const fetched = await failureOf(guardedFetch(outgoing)(address, { method: "GET", headers: {} }));
      expect(fetched).toMatchObject({ name: "Unreachable", sent: true });
      await expect.poll(() => connections.open.size).toBe(0);
      expect(connections.count).toBe(2);
    },
  );

  test("returns the status and closes its connection if the body does not end or is cut off", async () => {
    let closes = false;
    const connections = await startTcpServer((socket) => {
      const head = "HTTP/1.1 202 Accepted\r\ncontent-length: 10\r\n\r\nhalf";
      socket.once("data", () => (closes ? socket.end(head) : socket.write(head)));
    });
    const outgoing = createOutgoing(optionsFor("ownNetwork", { timeoutMs: 500 }));
    for (closes of [false, true]) {
      const answer = await outgoing.send(`http://127.0.0.1:${connections.port}/`, post);
      expect(answer).toMatchObject({ status: 202, complete: false });
    }
    await expect.poll(() => connections.open.size).toBe(0);
  });

  test("is aborted by the caller's signal, also during name resolution", { timeout: 20_000 }, async () => {
    const connections = await startTcpServer(() => {});
    const address = `http://127.0.0.1:${connections.port}/`;
    const controller = new AbortController();
    const outgoing = createOutgoing(optionsFor("ownNetwork", { timeoutMs: 3_600_000 }));
    const waiting = failureOf(outgoing.send(address, { ...post, signal: controller.signal }));
    await expect.poll(() => connections.open.size).toBe(1);
    controller.abort();
    expect(await waiting).toMatchObject({ name: "Unreachable" });
    await expect.poll(() => connections.open.size).toBe(0);
    const unresolved = createOutgoing(
      optionsFor("ownNetwork", { timeoutMs: 3_600_000, resolve: () => new Promise(() => {}) }),
    );
    expect(await failureOf(unresolved.send(address, { ...post, signal: controller.signal }))).toMatchObject({
      sent: false,
    });
    expect(connections.count).toBe(1);
  });

  test("by `guardedFetch`, which libraries use, has the same limits", async () => {
    const port = await startServer((request, response) => {
      if (request.url === "/large") response.end("x".repeat(5000));
      else if (request.url === "/odd") response.writeHead(999).end();
      else if (request.url === "/moved") response.writeHead(302, { location: "/" }).end();
      else response.writeHead(200, { "content-type": "text/plain" }).end(request.method);
    });
    const fetch = guardedFetch(createOutgoing(optionsFor("ownNetwork")));
    const form = { method: "POST", headers: {}, body: new URLSearchParams({ a: "b" }) };
    const answer = await fetch(`http://127.0.0.1:${port}/`, form);
    expect([await answer.text(), answer.headers.get("content-type")]).toEqual(["POST", "text/plain"]);
    expect((await fetch(`http://127.0.0.1:${port}/moved`, form)).status).toBe(302);
    const large = await failureOf(fetch(`http://127.0.0.1:${port}/large`, { method: "GET", headers: {} }));
    expect(large).toMatchObject({ name: "Unreachable" });
    const unusual = await failureOf(fetch(`http://127.0.0.1:${port}/odd`, { method: "GET", headers: {} }));
    expect(unusual).toMatchObject({ name: "Unreachable", sent: true });
    const guarded = guardedFetch(createOutgoing(optionsFor("public")));
    expect(await failureOf(guarded("https://127.0.0.1/", form))).toMatchObject({ permanent: true, sent: false });
  });

  test("is identified by host and port, with the scheme's default port", () => {
    const addresses = ["https://IdP.example/a", "http://idp.example", "https://[::1]:8443/"].map(
      (text) => new URL(text),
    );
    expect(addresses.map(hostAndPort)).toEqual(["idp.example:443", "idp.example:80", "[::1]:8443"]);
  });
});
