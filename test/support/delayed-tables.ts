import type { Tables } from "../../shared/platform/storage/tables.ts";

/**
 * Starts work on tables, and delays one of its requests until the returned function is called. Tests of concurrent writers use
 * this to delay one writer's request until after the writes of another. `withInterruption` says which calls count as requests.
 *
 * @param options.requestNumber - Number of the delayed request, counted from 0.
 * @param options.crashes - True if the work fails instead of sending the delayed request, like a process that crashes there.
 * @returns A function that lets the work continue and waits for its end.
 */
export function startDelayedWork(
  tables: Tables,
  { requestNumber, crashes }: { requestNumber: number; crashes: boolean },
  work: (delayedTables: Tables) => Promise<unknown>,
): () => Promise<void> {
  let release: () => void = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  // The message "died" tells the simulated crash apart from a real failure of the work.
  const delayedTables = withInterruption(tables, requestNumber, async () => {
    await released;
    if (crashes) throw new Error("died");
  });
  const finished = work(delayedTables).catch((error: Error) => {
    if (error.message !== "died") throw error;
  });
  return async () => {
    release();
    await finished;
  };
}

/**
 * Returns tables that wait for `meanwhile` before the request with this number, counted from 0. Each call of `get`, `transaction`,
 * `write` and `pages` counts as one request, even if the call sends several. Calls of all other methods don't count.
 */
export function withInterruption(tables: Tables, requestNumber: number, meanwhile: () => Promise<void>): Tables {
  let requestCount = 0;
  const beforeRequest = async () => {
    if (requestCount++ === requestNumber) await meanwhile();
  };
  return {
    ...tables,
    get: async (...given: Parameters<Tables["get"]>) => {
      await beforeRequest();
      return await tables.get(...given);
    },
    transaction: async (...given: Parameters<Tables["transaction"]>) => {
      await beforeRequest();
      return await tables.transaction(...given);
    },
    write: async (...given: Parameters<Tables["write"]>) => {
      await beforeRequest();
      return await tables.write(...given);
    },
    pages: async function* (...given: Parameters<Tables["pages"]>) {
      await beforeRequest();
      yield* tables.pages(...given);
    },
  } as Tables;
}
