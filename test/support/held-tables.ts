import type { Tables } from "../../shared/storage/tables.ts";

/**
 * Work on tables that waits before its n-th request until it is let go, and may die there.
 *
 * @returns Lets it go, and waits until it is over.
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
  let calls = 0;
  const passed = async () => {
    if (calls++ !== at) return;
    await gate;
    if (dies) throw new Error("died");
  };
  const slow = {
    ...tables,
    get: async (...given: Parameters<Tables["get"]>) => {
      await passed();
      return await tables.get(...given);
    },
    transaction: async (...given: Parameters<Tables["transaction"]>) => {
      await passed();
      return await tables.transaction(...given);
    },
    pages: async function* (...given: Parameters<Tables["pages"]>) {
      await passed();
      yield* tables.pages(...given);
    },
  } as unknown as Tables;
  const ended = work(slow).catch((error: Error) => {
    if (error.message !== "died") throw error;
  });
  return async () => {
    letGo();
    await ended;
  };
}
