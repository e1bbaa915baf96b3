import type { Tables } from "../../shared/platform/storage/tables.ts";

/**
 * Starts work on tables that waits before its n-th request until the returned function is called. With `dies`, the work fails
 * there.
 *
 * @returns A function that lets the work continue and waits for its end.
 */
export function held(
  tables: Tables,
  { at, dies }: { at: number; dies: boolean },
  work: (slow: Tables) => Promise<unknown>,
): () => Promise<void> {
  let letGo: () => void = () => {};
  const gate = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const slow = interrupted(tables, at, async () => {
    await gate;
    if (dies) throw new Error("died");
  });
  const ended = work(slow).catch((error: Error) => {
    if (error.message !== "died") throw error;
  });
  return async () => {
    letGo();
    await ended;
  };
}

/** Returns tables that wait for `meanwhile` before the request number `at`, counted from 0. */
export function interrupted(tables: Tables, at: number, meanwhile: () => Promise<void>): Tables {
  let requests = 0;
  const passed = async () => {
    if (requests++ === at) await meanwhile();
  };
  return {
    ...tables,
    get: async (...given: Parameters<Tables["get"]>) => {
      await passed();
      return await tables.get(...given);
    },
    transaction: async (...given: Parameters<Tables["transaction"]>) => {
      await passed();
      return await tables.transaction(...given);
    },
    write: async (...given: Parameters<Tables["write"]>) => {
      await passed();
      return await tables.write(...given);
    },
    pages: async function* (...given: Parameters<Tables["pages"]>) {
      await passed();
      yield* tables.pages(...given);
    },
  } as Tables;
}
