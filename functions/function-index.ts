/**
 * Generates the index of all functions from their declarations. The build writes the index into the bundle, so that a process
 * can start without loading the declarations.
 */
import type { HttpMethod } from "@azure/functions";
import { methodsOf } from "../shared/platform/http/endpoint.ts";
import type { FunctionIndex } from "./built-index.ts";
import { CATCH_ALL } from "./catch-all.ts";
import { AREAS } from "./functions.ts";

/** Methods of the catch-all function, which rejects those that a path does not support. */
const EVERY_METHOD: HttpMethod[] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];

/** Returns the index of all functions. */
export async function functionIndex(): Promise<FunctionIndex> {
  const index: FunctionIndex = { endpoints: [], timers: [], queues: [] };
  for (const [area, load] of Object.entries(AREAS)) {
    const { endpoints = [], timers = [], queues = [] } = await load();
    for (const { name, route, method } of endpoints) {
      const methods = route === CATCH_ALL ? EVERY_METHOD : methodsOf({ method });
      index.endpoints.push({ area, name, route, methods });
    }
    for (const { name, schedule } of timers) index.timers.push({ area, name, schedule });
    for (const { name, queue } of queues) index.queues.push({ area, name, queue });
  }
  return index;
}
