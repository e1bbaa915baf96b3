// HTTP server of the host, and the request handler that routes requests to the app's HTTP functions.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { AppFunction } from "./app-functions.ts";
import type { Executor } from "./executor.ts";
import { BodyTooLarge, sendResponse, toHttpData } from "./http-message.ts";
import { describeError } from "./load-app.ts";
import type { Log } from "./log.ts";
import { createRouter, type HttpRoute } from "./router.ts";
import type { HostJson } from "./settings.ts";

/**
 * Idle timeout of the platform's load balancer. It limits HTTP responses even if functionTimeout is longer:
 * learn.microsoft.com/azure/azure-functions/functions-scale#timeout
 */
export const HTTP_RESPONSE_TIMEOUT_MS = 230_000;
/**
 * Kestrel's default limits, MaxRequestHeadersTotalSize and KeepAliveTimeout:
 * learn.microsoft.com/dotnet/api/microsoft.aspnetcore.server.kestrel.core.kestrelserverlimits
 */
const MAX_HEADERS_BYTES = 32_768;
const KEEP_ALIVE_MS = 130_000;

type Handler = (request: IncomingMessage, response: ServerResponse) => Promise<void>;

/**
 * Handler of a route of the host itself. The host calls it before the app's routes. It returns false if the request does not
 * match.
 */
export type HostRoute = (request: IncomingMessage, response: ServerResponse) => Promise<boolean>;

export interface HttpServer {
  port: number;
  /** Starts to serve requests. Before this call and after `drain`, every request gets a 503. */
  serve(handler: Handler): void;
  /** Accepts no new connection and no new request. Resolves when the running requests have responses. */
  drain(): Promise<void>;
  /** Closes the connections that are still open. */
  close(): void;
}

/**
 * Starts the HTTP server on 127.0.0.1.
 * @param port 0 for any free port.
 */
export async function listen(port: number, log: Log): Promise<HttpServer> {
  let handler: Handler | undefined;
  const openResponses = new Set<ServerResponse>();
  const server = createServer({ maxHeaderSize: MAX_HEADERS_BYTES }, (request, response) => {
    openResponses.add(response);
    response.once("close", () => openResponses.delete(response));
    if (handler === undefined) {
      send(response, 503, "Function host is not running.");
      return;
    }
    handler(request, response).catch((error: unknown) => {
      log("error", "Host.Http", `${request.method} ${request.url?.split("?", 1)[0]}: ${describeError(error)}`);
      if (response.headersSent) response.destroy();
      else send(response, 500);
    });
  });
  // Node would limit the time to receive a request. A request can wait here for a free slot before its body is read.
  server.requestTimeout = 0;
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  await startListening(server, port);
  return {
    port: (server.address() as AddressInfo).port,
    serve: (appHandler) => {
      handler = appHandler;
    },
    drain: () => {
      handler = undefined;
      // Keep-alive connections would keep the server open.
      for (const response of openResponses) if (!response.headersSent) response.setHeader("connection", "close");
      return new Promise<void>((resolve) => server.close(() => resolve()));
    },
    close: () => server.closeAllConnections(),
  };
}

function startListening(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", () => {
      server.off("error", reject);
      resolve();
    });
  });
}

export interface HttpOptions {
  hostJson: HostJson;
  executor: Executor;
  log: Log;
  /** Routes of the host itself, which take precedence over the app's routes. */
  hostRoutes: HostRoute[];
  /**
   * Milliseconds from the start of the function until the client gets a 504. The function continues to run, and its result is
   * discarded.
   */
  responseTimeoutMs: number;
}

type HttpFunction = AppFunction & HttpRoute;

/**
 * Creates the handler of the app's routes.
 * @returns the handler, and the functions that have a route
 */
export function createHttpHandler(
  functions: AppFunction[],
  { hostJson, executor, log, hostRoutes, responseTimeoutMs }: HttpOptions,
): { handler: Handler; served: HttpFunction[] } {
  const httpFunctions: HttpFunction[] = functions.map((each) => ({
    ...each,
    route: each.trigger.route as string | undefined,
    methods: each.trigger.methods as string[] | undefined,
  }));
  const router = createRouter(httpFunctions, hostJson.routePrefix);
  for (const { name, reason } of router.rejected) {
    log("error", "Host.Startup", `The '${name}' function is in error: ${reason}`);
  }
  const limiter = createConcurrencyLimiter(hostJson.maxConcurrentRequests);

  const callFunction = async (
    { name, trigger }: HttpFunction,
    path: string,
    params: Record<string, string>,
    request: IncomingMessage,
    response: ServerResponse,
  ) => {
    // The app's library builds the request's URL from the Host header, and would throw.
    if (!URL.canParse(`http://${request.headers.host ?? "localhost"}/`)) return send(response, 400);
    const http = await toHttpData(request, path, params);
    const responseTimer = setTimeout(() => {
      log("warning", `Function.${name}`, `No response within ${responseTimeoutMs / 1000} s: 504`);
      send(response, 504);
    }, responseTimeoutMs);
    const outcome = await executor.run({
      name,
      reason: "This function was programmatically called via the host APIs.",
      input: { name: trigger.name, data: { http } },
      traceParent: http.nullableHeaders?.traceparent?.value ?? undefined,
      traceState: http.nullableHeaders?.tracestate?.value ?? undefined,
    });
    clearTimeout(responseTimer);
    // The client already has its 504.
    if (response.writableEnded) return;
    if (outcome.succeeded) sendResponse(response, outcome.response);
    else send(response, 500);
  };

  const handler: Handler = async (request, response) => {
    for (const route of hostRoutes) if (await route(request, response)) return;
    const match = router.match(request.method ?? "", request.url ?? "");
    if (match.status === 404 && request.method === "GET" && /^\/?(\?|$)/.test(request.url ?? "")) {
      homePage(response);
    } else if (match.status !== 200) {
      send(response, match.status);
    } else if (match.function.disabled) {
      send(response, 404);
    } else if ((match.function.trigger.authLevel ?? "function") !== "anonymous") {
      // This host has no function keys, so no caller can present one.
      send(response, 401);
    } else if (limiter.outstanding() >= hostJson.maxOutstandingRequests) {
      send(response, 429);
    } else {
      await limiter
        .run(() => callFunction(match.function, match.path, match.params, request, response))
        .catch((error) => {
          if (!(error instanceof BodyTooLarge)) throw error;
          // The body was not read, so the connection can't be used again.
          response.setHeader("connection", "close");
          send(response, 413);
        });
    }
  };
  const rejected = new Set(router.rejected.map(({ name }) => name));
  return { handler, served: httpFunctions.filter(({ name }) => !rejected.has(name)) };
}

/** Creates a limiter that runs at most `limit` tasks at once. The others wait in FIFO order. */
function createConcurrencyLimiter(limit: number): {
  outstanding(): number;
  run(task: () => Promise<void>): Promise<void>;
} {
  const waiting: (() => void)[] = [];
  let running = 0;
  return {
    outstanding: () => running + waiting.length,
    run: async (task) => {
      if (running >= limit) await new Promise<void>((resolve) => waiting.push(resolve));
      else running += 1;
      try {
        await task();
      } finally {
        // The next waiting task takes the slot, so the count stays the same.
        const nextTask = waiting.shift();
        if (nextTask === undefined) running -= 1;
        else nextTask();
      }
    },
  };
}

function homePage(response: ServerResponse): void {
  if (/^true$/i.test(process.env.AzureWebJobsDisableHomepage ?? "")) {
    send(response, 204);
    return;
  }
  response.setHeader("content-type", "text/html");
  send(response, 200, "<!DOCTYPE html><title>Functions</title><p>Your function app is up and running.</p>\n");
}

/** Sends a response that is not from the app. */
export function send(response: ServerResponse, status: number, text = ""): void {
  response.statusCode = status;
  response.end(text);
}
