/** Returns query options that poll until the data is final. The interval grows from 2 seconds to a minute; a hidden page does not
 * poll.
 *
 * @param isOver - Returns whether the data can no longer change.
 */
export const pollUntil = <T>(isOver: (data: T) => boolean) => ({
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
