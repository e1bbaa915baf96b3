import { AsyncLocalStorage } from "node:async_hooks";

/** Whether the current work has sent a request that can change something. */
const current = new AsyncLocalStorage<{ sent: boolean }>();

/** Methods of requests that change nothing (RFC 9110, 9.2.1). */
const SAFE_METHODS = new Set(["GET", "HEAD", "OPTIONS"]);

/**
 * Notes that a request is about to be sent to storage, a cloud service or another receiver. Every client that work under
 * `watchChanges` can use calls this function. Outside of `watchChanges` the call has no effect.
 */
export function noteRequest(method: string): void {
  const work = current.getStore();
  if (work !== undefined && !SAFE_METHODS.has(method.toUpperCase())) work.sent = true;
}

/**
 * Runs `work`. `sentChange` then says whether it sent a request that can change something. Such a request may have taken effect
 * even if it failed. Without one, the work certainly had no effect.
 */
export function watchChanges<T>(work: () => Promise<T>): { result: Promise<T>; sentChange: () => boolean } {
  const state = { sent: false };
  return { result: current.run(state, work), sentChange: () => state.sent };
}
