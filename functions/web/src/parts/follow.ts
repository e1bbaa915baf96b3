/**
 * Options of a query that is asked again, less and less often, until it is over. A page that nobody looks at asks nothing.
 *
 * @param isOver - Whether nothing more will happen.
 */
export const untilOver = <T>(isOver: (data: T) => boolean) => ({
  staleTime: 0,
  refetchInterval: ({
    state: { data, dataUpdateCount, errorUpdateCount },
  }: {
    state: { data: T | undefined; dataUpdateCount: number; errorUpdateCount: number };
  }) =>
    data !== undefined && isOver(data)
      ? (false as const)
      : Math.min(60_000, 2_000 * 1.3 ** (dataUpdateCount + errorUpdateCount)),
});
