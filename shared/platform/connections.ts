import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import { createSecureContext } from "node:tls";
import type { Dispatcher } from "undici";
import buildConnector from "undici/lib/core/connect.js";
import Client from "undici/lib/dispatcher/client.js";

export interface ConnectionLimits {
  /** To one host at a time; further requests queue. Absent: one for each request that is under way. */
  perHost?: number;
  /** Over all hosts: beyond it those that nothing is asked over are closed, from the one that has waited longest on. */
  open?: number;
  /** Milliseconds that a connection waits for its next request. */
  idleMs: number;
}

/** Who gets an answer. After its end, or an error, nothing more comes. */
export interface Receiver {
  /** Once more after an interim answer. */
  head(status: number, headers: Record<string, string | string[] | undefined>): void;
  data(part: Buffer): void;
  end(): void;
  failed(error: Error): void;
}

/**
 * Sends a request to an origin, such as `https://kv-payments.vault.azure.net`.
 * @returns what gives it up: then nothing more is sent or received, and its connection is closed.
 */
export type Connections = (origin: string, request: Dispatcher.DispatchOptions, receiver: Receiver) => () => void;

/** Milliseconds until a connection stands, its TLS included. */
const CONNECT_MS = 30_000;

/** TLS sessions that later connections go on with, as many as Node's own agents keep. */
const KEPT_SESSIONS = 100;

/** What an answer may have, more than any that is asked for; an instance has some 500 MB. */
export const MOST_ANSWER_BYTES = 128 * 1024 * 1024;

interface Host {
  idle: Set<Connection>;
  /** Of requests for which all connections are in use. */
  waiting: Set<(connection: Connection) => void>;
  connections: number;
}

interface Connection {
  client: Client;
  /** Closes it, also before it stands. */
  close(): void;
  /** Why it broke, if it did. */
  broken(): Error | null | undefined;
}

/**
 * Connections that are kept for further requests, each an `undici` client: a request costs a third less processor time than
 * by `node:https`. Where the environment names a proxy, they go through it.
 *
 * They are not `undici`'s own pool: there a request that is given up takes its turn all the same and costs a connection, one
 * that can't be sent takes a connection out of use, and a connection that does not come about holds up the next requests.
 */
export function openConnections({ perHost = Infinity, open = Infinity, idleMs }: ConnectionLimits): Connections {
  const hosts = new Map<string, Host>();
  /** In the order in which they became idle. */
  const idle = new Map<Connection, Host>();
  const connect = connector();
  let opened = 0;

  function openOne(origin: string, host: Host): Connection {
    let connecting: Closing | undefined;
    let closed = false;
    const connection: Connection = {
      client: new Client(origin, {
        ...NO_TIMES,
        maxResponseSize: MOST_ANSWER_BYTES,
        // A server's own word on how long it keeps a connection may make that shorter, never longer.
        keepAliveTimeout: idleMs,
        keepAliveMaxTimeout: idleMs,
        connect: (options, callback) => {
          connecting = connect(options, callback);
        },
      }),
      close() {
        if (closed) return;
        closed = true;
        opened--;
        host.connections--;
        idle.delete(connection);
        host.idle.delete(connection);
        if (host.connections === 0 && host.waiting.size === 0) hosts.delete(origin);
        void connection.client.destroy();
        connecting?.destroy();
      },
      broken: () => connecting?.errored,
    };
    connection.client.on("disconnect", () => {
      if (idle.has(connection)) connection.close();
    });
    host.connections++;
    opened++;
    for (const [longest] of idle) {
      if (opened <= open) break;
      longest.close();
    }
    return connection;
  }

  return (origin, request, receiver) => {
    const host: Host = hosts.get(origin) ?? { idle: new Set(), waiting: new Set(), connections: 0 };
    hosts.set(origin, host);
    const { waiting } = host;
    let used: Connection | undefined;
    let done = false;

    /** The next request's turn: over the same connection, unless that is closed. */
    const leave = (connection: Connection, keep: boolean) => {
      done = true;
      const [next] = waiting;
      waiting.delete(next!);
      if (!keep) connection.close();
      if (next) {
        hosts.set(origin, host);
        next(keep ? connection : openOne(origin, host));
      } else if (keep) {
        idle.set(connection, host);
        host.idle.add(connection);
      }
    };

    const send = (connection: Connection) => {
      used = connection;
      connection.client.dispatch(request, {
        onRequestStart() {},
        onResponseStart(_, status, headers) {
          if (!done) receiver.head(status, headers);
        },
        onResponseData(_, part) {
          if (!done) receiver.data(part);
        },
        onResponseEnd() {
          if (done) return;
          // The end of an answer without a length is that of its connection, which must be no accident.
          const broken = connection.broken();
          leave(connection, !broken);
          if (broken) receiver.failed(broken);
          else receiver.end();
        },
        onResponseError(_, error) {
          if (done) return;
          leave(connection, false);
          receiver.failed(error);
        },
      });
    };

    const [free] = host.idle;
    if (free) {
      host.idle.delete(free);
      idle.delete(free);
      send(free);
    } else if (host.connections < perHost) send(openOne(origin, host));
    else waiting.add(send);

    return () => {
      if (done) return;
      if (used) leave(used, false);
      else waiting.delete(send);
      done = true;
    };
  };
}

/** A request's time is limited by who sends it, and as a whole. */
const NO_TIMES = { headersTimeout: 0, bodyTimeout: 0 };

/** What closes a connection that comes about, or did; `errored` once it broke. */
interface Closing {
  destroy(error?: Error): unknown;
  errored?: Error | null;
}

/** Connections with what is costly shared by all: the trusted authorities, and the sessions that TLS goes on with. */
function connector() {
  // Its type says nothing of the socket that it returns.
  let connect: ((...given: Parameters<buildConnector.connector>) => Closing) | undefined;
  /** `undici` itself keeps them only until the next collection of garbage. */
  const sessions = new Map<string, Buffer>();
  return (options: buildConnector.Options, callback: buildConnector.Callback): Closing => {
    // Made late, for it reads the trusted authorities at once.
    connect ??= buildConnector({
      timeout: CONNECT_MS,
      maxCachedSessions: KEPT_SESSIONS,
      secureContext: createSecureContext(),
    }) as unknown as NonNullable<typeof connect>;
    const connected: buildConnector.Callback = (...[error, socket]: Parameters<buildConnector.Callback>) => {
      socket?.on("session", (session: Buffer) => {
        sessions.delete(options.hostname);
        sessions.set(options.hostname, session);
        const [oldest] = sessions.keys();
        if (sessions.size > KEPT_SESSIONS) sessions.delete(oldest!);
      });
      if (error) callback(error, null);
      else callback(null, socket);
    };
    const direct = connect;
    const proxy = proxyOf(process.env);
    if (!proxy || isDirect(options, process.env)) return direct(options, connected);
    return openTunnel(proxy, options, callback, (httpSocket) =>
      options.protocol === "https:" ? direct({ ...options, httpSocket }, connected) : undefined,
    );
  };
}

/** As Azure's clients look for it. */
function proxyOf(environment: NodeJS.ProcessEnv): URL | undefined {
  const names = ["HTTPS_PROXY", "ALL_PROXY", "HTTP_PROXY"].flatMap((name) => [name, name.toLowerCase()]);
  const address = names.map((name) => environment[name]).find(Boolean);
  return address === undefined ? undefined : new URL(address);
}

/** Whether `NO_PROXY` names the host, or a domain above it. */
function isDirect({ hostname, port, protocol }: buildConnector.Options, environment: NodeJS.ProcessEnv): boolean {
  const named = (environment.NO_PROXY || environment.no_proxy || "").toLowerCase().split(/[,\s]+/);
  const number = port || (protocol === "https:" ? "443" : "80");
  return named.filter(Boolean).some((entry) => {
    if (entry === "*") return true;
    const [, name = entry, only] = /^([^:]+):(\d+)$/.exec(entry) ?? [];
    const domain = name.replace(/^\*?\./, "");
    return (only ?? number) === number && (hostname === domain || hostname.endsWith(`.${domain}`));
  });
}

/** Asks the proxy for a connection, and goes on over it by `over`. */
function openTunnel(
  proxy: URL,
  { hostname, port, protocol }: buildConnector.Options,
  callback: buildConnector.Callback,
  over: (socket: buildConnector.Options["httpSocket"]) => Closing | undefined,
): Closing {
  const target = `${hostname.includes(":") ? `[${hostname}]` : hostname}:${port || (protocol === "https:" ? 443 : 80)}`;
  const [user, password] = [proxy.username, proxy.password].map(decodeURIComponent);
  const credentials = Buffer.from(`${user}:${password}`).toString("base64");
  const asking = (proxy.protocol === "https:" ? httpsRequest : httpRequest)({
    host: proxy.hostname.replace(/^\[|\]$/g, ""),
    port: proxy.port || undefined,
    method: "CONNECT",
    path: target,
    headers: { host: target, ...(proxy.username !== "" && { "proxy-authorization": `Basic ${credentials}` }) },
    agent: false,
  });
  asking.end();
  let tunnel: Closing = asking;
  const failed = (message: string, code: string) => Object.assign(new Error(message), { code });
  const timer = setTimeout(() => asking.destroy(failed("The proxy does not answer.", "ETIMEDOUT")), CONNECT_MS);
  asking.on("close", () => clearTimeout(timer));
  asking.on("error", (error) => callback(error, null));
  asking.on("connect", ({ statusCode }, socket) => {
    clearTimeout(timer);
    if (statusCode !== 200) {
      socket.on("error", () => {}).destroy();
      return callback(failed(`The proxy answered ${statusCode}.`, "ECONNREFUSED"), null);
    }
    const secure = over(socket as NonNullable<buildConnector.Options["httpSocket"]>);
    tunnel = secure ?? socket;
    if (!secure) callback(null, socket as Parameters<typeof callback>[1] & object);
  });
  return {
    destroy: (error) => tunnel.destroy(error),
    get errored() {
      return tunnel.errored ?? null;
    },
  };
}
