import { retryLater } from "../platform/http/problem.ts";

/** The position of a request in the sign-in queue. All requests from known addresses come before those from unknown ones. */
export interface QueuePosition {
  queue: "known" | "unknown";
  /** Owners in a queue take turns, no matter how many requests each of them has. */
  owner: string;
}

/** Executes work one at a time within this instance, with two fair queues. */
export interface FairQueue {
  /**
   * Executes the work when its turn comes.
   *
   * @throws {Problem} rateLimited, without executing the work, if the queue is full. A full queue accepts an owner with fewer
   * requests by rejecting the newest request of the owner with the most.
   */
  run<T>(place: QueuePosition, work: () => Promise<T>): Promise<T>;
}

interface Waiting {
  start: () => void;
  refuse: (problem: unknown) => void;
}

/** Seconds of `Retry-After` for a full queue: about the time to process it. */
const RETRY_AFTER_SECONDS = 5;

const queueFull = () =>
  retryLater("rateLimited", "Too many sign-ins are in progress. Wait a moment.", RETRY_AFTER_SECONDS);

/** @param maxWaiting - Maximum length of each queue, without the request in progress. */
export function createFairQueue(maxWaiting: Record<QueuePosition["queue"], number>): FairQueue {
  const queues = { known: createOwnerQueue(maxWaiting.known), unknown: createOwnerQueue(maxWaiting.unknown) };
  let busy = false;
  return {
    async run({ queue, owner }, work) {
      if (busy) {
        await new Promise<void>((start, refuse) => {
          queues[queue].add(owner, { start, refuse });
        });
      }
      busy = true;
      try {
        return await work();
      } finally {
        // The next request takes over; `busy` stays true in between.
        const next = queues.known.next() ?? queues.unknown.next();
        if (next) next.start();
        else busy = false;
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
    const most = [...owners.values()].reduce((longest, one) => (one.length > longest.length ? one : longest), []);
    return most.length > count ? most.pop() : undefined;
  }

  return {
    add(owner: string, waiting: Waiting): void {
      const own = owners.get(owner) ?? [];
      if (size === maxWaiting) {
        const refused = evictNewest(own.length + 1);
        (refused ?? waiting).refuse(queueFull());
        if (!refused) return;
        size -= 1;
      }
      own.push(waiting);
      owners.set(owner, own);
      size += 1;
    },

    next(): Waiting | undefined {
      const [first] = owners;
      if (!first) return undefined;
      const [owner, own] = first;
      const waiting = own.shift();
      owners.delete(owner);
      if (own.length > 0) owners.set(owner, own);
      size -= 1;
      return waiting;
    },
  };
}
