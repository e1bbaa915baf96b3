/**
 * Returns a function that calls `load` on first use and caches the result, whatever the parameters of later calls are. A failed
 * load is repeated by the next call.
 */
export function loadOnce<T, A extends unknown[]>(load: (...parameters: A) => Promise<T>): (...given: A) => Promise<T> {
  let loaded: Promise<T> | undefined;
  return (...given) => {
    loaded ??= load(...given).catch((error: unknown) => {
      loaded = undefined;
      throw error;
    });
    return loaded;
  };
}
