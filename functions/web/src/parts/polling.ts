const FIRST_INTERVAL_MS = 2_000;
const MAX_INTERVAL_MS = 60_000;
/** Factor by which the interval grows with each response. */
const GROWTH = 1.3;

/**
 * Returns query options that poll until the data is final. The interval grows from 2 seconds to a minute with each response or
 * error, so a failing request is retried less and less often too. A hidden page does not poll.
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
      : Math.min(MAX_INTERVAL_MS, FIRST_INTERVAL_MS * GROWTH ** (dataUpdateCount + errorUpdateCount)),
});
