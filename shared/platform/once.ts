/** What is loaded when it is first needed, and kept. What could not be loaded is tried again by the next who needs it. */
export function once<T, A extends unknown[]>(load: (...given: A) => Promise<T>): (...given: A) => Promise<T> {
  let loaded: Promise<T> | undefined;
  return (...given) => {
    loaded ??= load(...given).catch((error: unknown) => {
      loaded = undefined;
      throw error;
    });
    return loaded;
  };
}
