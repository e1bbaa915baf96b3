import { retryLater } from "../platform/http/problem.ts";

/** The position of a request in the sign-in queue. All requests from known addresses come before those from unknown ones. */
export interface QueuePosition {
  queue: "known" | "unknown";
  /** The source of the request, for example an IP address. The queue serves sources in turn, even if one has many requests. */
  source: string;
}

/**
 * Executes one piece of work at a time within this instance. Sign-ins use it, because verifying a password costs much memory.
 */
export interface FairQueue {
  /**
   * Executes the work when its turn comes.
   *
   * @throws {Problem} rateLimited, without executing the work, if the queue is full. If another source has at least two requests
   * more, that source's newest request is rejected instead.
   */
  run<T>(position: QueuePosition, work: () => Promise<T>): Promise<T>;
}

interface Waiting {
  start: () => void;
  reject: (problem: unknown) => void;
}

/** Seconds of `Retry-After` for a full queue: about the time to process it. */
const RETRY_AFTER_SECONDS = 5;

const queueFull = () =>
  retryLater("rateLimited", "Too many sign-ins are in progress. Wait a moment.", RETRY_AFTER_SECONDS);

/**
 * Creates an empty queue.
 *
 * @param maxWaiting - Maximum length of each queue, without the request in progress.
 */
export function createFairQueue(maxWaiting: Record<QueuePosition["queue"], number>): FairQueue {
  const queues = { known: createSourceQueue(maxWaiting.known), unknown: createSourceQueue(maxWaiting.unknown) };
  let isBusy = false;
  return {
    async run({ queue, source }, work) {
      if (isBusy) {
        await new Promise<void>((start, reject) => {
          queues[queue].add(source, { start, reject });
        });
      }
      isBusy = true;
      try {
        return await work();
      } finally {
        // The next request takes over; `isBusy` stays true in between.
        const next = queues.known.next() ?? queues.unknown.next();
        if (next) next.start();
        else isBusy = false;
      }
    },
  };
}

/** The waiting requests by source. The first source is the one that was served least recently. */
function createSourceQueue(maxWaiting: number) {
  const sources = new Map<string, Waiting[]>();
  let size = 0;

  /** Removes the newest request of the source with the most requests, if that source has more than `count`. */
  function evictNewest(count: number): Waiting | undefined {
    const most = [...sources.values()].reduce(
      (longest, candidate) => (candidate.length > longest.length ? candidate : longest),
      [],
    );
    return most.length > count ? most.pop() : undefined;
  }

  return {
    add(source: string, waiting: Waiting): void {
      const requests = sources.get(source) ?? [];
      if (size === maxWaiting) {
        const evicted = evictNewest(requests.length + 1);
        (evicted ?? waiting).reject(queueFull());
        if (!evicted) return;
        size -= 1;
      }
      requests.push(waiting);
      sources.set(source, requests);
      size += 1;
    },

    next(): Waiting | undefined {
      const [first] = sources;
      if (!first) return undefined;
      const [source, requests] = first;
      const waiting = requests.shift();
      sources.delete(source);
      if (requests.length > 0) sources.set(source, requests);
      size -= 1;
      return waiting;
    },
  };
}
