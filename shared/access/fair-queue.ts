import { retryLater } from "../platform/http/problem.ts";

/** The position of a request in the sign-in queue. All requests from known addresses come before those from unknown ones. */
export interface QueuePosition {
  queue: "known" | "unknown";
  /** The source of the request, for example an IP address. The queue serves owners in turn, even if one has many requests. */
  owner: string;
}

/**
 * Executes one piece of work at a time within this instance. Sign-ins use it, because verifying a password costs much memory.
 */
export interface FairQueue {
  /**
   * Executes the work when its turn comes.
   *
   * @throws {Problem} rateLimited, without executing the work, if the queue is full. If another owner has at least two requests
   * more, that owner's newest request is rejected instead.
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
  const queues = { known: createOwnerQueue(maxWaiting.known), unknown: createOwnerQueue(maxWaiting.unknown) };
  let isBusy = false;
  return {
    async run({ queue, owner }, work) {
      if (isBusy) {
        await new Promise<void>((start, reject) => {
          queues[queue].add(owner, { start, reject });
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

/** The waiting requests by owner. The first owner is the one who was served least recently. */
function createOwnerQueue(maxWaiting: number) {
  const owners = new Map<string, Waiting[]>();
  let size = 0;

  /** Removes the newest request of the owner with the most requests, if that owner has more than `count`. */
  function evictNewest(count: number): Waiting | undefined {
    const most = [...owners.values()].reduce(
      (longest, requests) => (requests.length > longest.length ? requests : longest),
      [],
    );
    return most.length > count ? most.pop() : undefined;
  }

  return {
    add(owner: string, waiting: Waiting): void {
      const ownersRequests = owners.get(owner) ?? [];
      if (size === maxWaiting) {
        const evicted = evictNewest(ownersRequests.length + 1);
        (evicted ?? waiting).reject(queueFull());
        if (!evicted) return;
        size -= 1;
      }
      ownersRequests.push(waiting);
      owners.set(owner, ownersRequests);
      size += 1;
    },

    next(): Waiting | undefined {
      const [first] = owners;
      if (!first) return undefined;
      const [owner, ownersRequests] = first;
      const waiting = ownersRequests.shift();
      owners.delete(owner);
      if (ownersRequests.length > 0) owners.set(owner, ownersRequests);
      size -= 1;
      return waiting;
    },
  };
}
