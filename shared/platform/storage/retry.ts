import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "../runtime.ts";
import { errorCode } from "./errors.ts";
import { FIRST_RETRY_MS, MAX_ATTEMPTS, MAX_DELETION_WAIT_MS, MAX_RETRY_MS } from "./limits.ts";

/**
 * Calls `attempt` until it succeeds, with exponential backoff. If the table or queue is missing and `createMissing` is true,
 * all further attempts are called with `create: true`. While storage deletes the table or queue, retries for up to
 * `MAX_DELETION_WAIT_MS`.
 *
 * @param options.isTransient - Returns whether a retry can succeed. Up to `MAX_ATTEMPTS` attempts are made.
 */
export async function withRetries<R>(
  options: {
    kind: "table" | "queue";
    name: string;
    createMissing: boolean;
    isTransient: (error: unknown) => boolean;
    log: Logger | undefined;
  },
  attempt: (options: { create: boolean }) => Promise<R>,
): Promise<R> {
  const { kind, name, createMissing, isTransient, log } = options;
  const prefix = kind === "queue" ? "Queue" : "Table";
  const isNotFound = (code: string | undefined) => code === `${prefix}NotFound`;
  let create = false;
  let waited = 0;
  let attempts = 1;
  for (;;) {
    try {
      return await attempt({ create });
    } catch (error) {
      const code = errorCode(error);
      if (isNotFound(code) && createMissing && !create) {
        create = true;
        log?.info(`Creating a ${kind}`, { [kind]: name });
        continue;
      }
      const isBeingDeleted = code === `${prefix}BeingDeleted` || (isNotFound(code) && create);
      if (isBeingDeleted ? waited >= MAX_DELETION_WAIT_MS : !isTransient(error) || attempts >= MAX_ATTEMPTS)
        throw error;
      const pause = Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** (attempts++ - 1)) * (0.5 + Math.random() / 2);
      log?.warn(`Retrying a request to a ${kind}`, { [kind]: name, code, pauseMs: Math.round(pause) });
      await delay(pause);
      waited += pause;
    }
  }
}
