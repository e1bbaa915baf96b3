/** The results of `work` in the order of `items`, of which up to `parallel` are begun before they are asked for. */
export async function* ahead<T, R>(
  items: Iterable<T> | AsyncIterable<T>,
  parallel: number,
  work: (item: T) => Promise<R>,
): AsyncGenerator<R, void> {
  const begun: Promise<R>[] = [];
  for await (const item of items) {
    const result = work(item);
    result.catch(() => undefined); // heard of when its turn comes
    begun.push(result);
    if (begun.length >= parallel) yield await begun.shift()!;
  }
  for (const result of begun) yield await result;
}
