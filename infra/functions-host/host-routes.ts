// HTTP routes of the host itself: the admin route, which runs a timer or queue function on request, and the diagnostic routes
// for tests and benchmarks.

import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { registerHooks } from "node:module";
import { sep } from "node:path";
import { pathToFileURL } from "node:url";
import type { AppFunction } from "./app-functions.ts";
import { isTrigger } from "./app-functions.ts";
import { type HostRoute, send } from "./http.ts";
import type { QueueListeners } from "./queues.ts";
import type { TimerListeners } from "./timers.ts";

/** The app's functions, and the listeners that can run them. */
export interface Listeners {
  functions: AppFunction[];
  timers: TimerListeners;
  queues: QueueListeners;
}

/**
 * Route `POST /admin/functions/{name}`: runs a function that has no route, with `input` of the JSON body as its message:
 * https://learn.microsoft.com/azure/azure-functions/functions-manually-run-non-http. The platform requires its master key. A
 * local host requires no key, like Core Tools.
 */
export function adminRoute(listeners: Listeners): HostRoute {
  return async (request, response) => {
    const name = routeParameter(request, "/admin/functions/");
    if (request.method !== "POST" || name === undefined) return false;
    const target = listeners.functions.find((each) => each.name.toLowerCase() === name.toLowerCase());
    const run = target && runnerFor(target, listeners);
    if (run === undefined) {
      send(response, 404);
      return true;
    }
    const input = await readInput(request);
    if (input === undefined) {
      send(response, 400);
      return true;
    }
    // Not awaited: the response only says that the function was started. The log contains the outcome.
    void run(input);
    send(response, 202);
    return true;
  };
}

/** Returns how to run a timer or queue function. Undefined for an HTTP function, which callers run through its own route. */
function runnerFor(target: AppFunction, { timers, queues }: Listeners) {
  if (isTrigger(target.trigger, "timer")) return () => timers.fire(target.name);
  if (isTrigger(target.trigger, "queue")) return (input: string) => queues.run(target.name, input);
  return undefined;
}

/**
 * Reads `input` from the JSON body: the message for the function. An empty body is an empty message.
 * @returns undefined if the body is not a JSON object
 */
async function readInput(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks).toString("utf8");
  if (body === "") return "";
  try {
    const { input } = JSON.parse(body) as { input?: unknown };
    return typeof input === "string" ? input : JSON.stringify(input ?? "");
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof TypeError) return undefined;
    throw error;
  }
}

/**
 * Diagnostic routes, which the platform does not have. `GET /__host/modules` returns the loaded files of the app, the memory of
 * the process (app and host together) in bytes, and its processor time. `peak` is the highest resident size. `POST
 * /__host/timers/{name}` runs a timer and responds when it has finished.
 * @param loadedModules Result of `recordModules`.
 */
export function diagnosticsRoute(listeners: Listeners, loadedModules: Set<string>): HostRoute {
  return async (request, response) => {
    if (request.method === "GET" && request.url === "/__host/modules") {
      const { user, system } = process.cpuUsage();
      sendJson(response, 200, {
        modules: [...loadedModules].sort(),
        memory: { ...process.memoryUsage(), peak: peakMemory() },
        processorMs: (user + system) / 1000,
      });
      return true;
    }
    const name = routeParameter(request, "/__host/timers/");
    if (request.method !== "POST" || name === undefined) return false;
    const target = listeners.functions.find((each) => each.name === name && isTrigger(each.trigger, "timer"));
    if (target === undefined) {
      send(response, 404);
      return true;
    }
    const { succeeded } = await listeners.timers.fire(name);
    sendJson(response, 200, { succeeded });
    return true;
  };
}

/**
 * Returns the highest resident memory of the process in bytes. On Linux it reads the kernel's value, because `resourceUsage`
 * starts with the value of the parent process (`exec` keeps it).
 */
function peakMemory(): number {
  if (process.platform !== "linux") return process.resourceUsage().maxRSS * 1024;
  const kilobytes = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1];
  return Number(kilobytes) * 1024;
}

/**
 * Starts to record the files that the app loads by import or require, without node_modules.
 * @returns their URLs; the set grows while the app runs
 */
export function recordModules(appFolder: string): Set<string> {
  const loadedModules = new Set<string>();
  const prefix = pathToFileURL(appFolder + sep).href;
  // This registers only a `resolve` hook: a `load` hook would bypass Module.prototype.require, through which the core
  // module is provided.
  registerHooks({
    resolve: (specifier, context, next) => {
      const result = next(specifier, context);
      if (result.url.startsWith(prefix) && !result.url.includes("/node_modules/")) loadedModules.add(result.url);
      return result;
    },
  });
  return loadedModules;
}

/** Returns the path segment after the prefix. Undefined if the path does not consist of the prefix and one segment. */
function routeParameter({ url = "" }: IncomingMessage, prefix: string): string | undefined {
  const path = url.split("?", 1)[0]!;
  const name = path.toLowerCase().startsWith(prefix) ? path.slice(prefix.length) : "";
  return name === "" || name.includes("/") ? undefined : name;
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  response.setHeader("content-type", "application/json");
  send(response, status, JSON.stringify(body));
}
