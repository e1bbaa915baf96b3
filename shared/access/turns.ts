import { retryLater } from "../platform/http/problem.ts";

/** The position of a request in the sign-in queue. All requests from known addresses come before those from unknown ones. */
export interface Place {
  line: "known" | "stranger";
  /** Owners in a queue take turns, no matter how many requests each of them has. */
  owner: string;
}

/** Executes work one at a time within this instance, with two fair queues. */
export interface Turns {
  /**
   * Executes the work when its turn comes.
   *
   * @throws {Problem} rateLimited, without executing the work, if the queue is full. A full queue accepts an owner with fewer
   * requests by rejecting the newest request of the owner with the most.
   */
  take<T>(place: Place, work: () => Promise<T>): Promise<T>;
}

interface Waiting {
  start: () => void;
  refuse: (problem: unknown) => void;
}

/** Seconds of `Retry-After` for a full queue: about the time to process it. */
const RETRY_AFTER_SECONDS = 5;

const full = () =>
  retryLater("rateLimited", "Too many sign-ins are being checked. Wait a moment.", RETRY_AFTER_SECONDS);

/** @param maxWaiting - Maximum length of each queue, without the request in progress. */
export function createTurns(maxWaiting: Record<Place["line"], number>): Turns {
  const lines = { known: createLine(maxWaiting.known), stranger: createLine(maxWaiting.stranger) };
  let busy = false;
  return {
    async take({ line, owner }, work) {
      if (busy) {
        await new Promise<void>((start, refuse) => {
          lines[line].add(owner, { start, refuse });
        });
      }
      busy = true;
      try {
        return await work();
      } finally {
        // The next request takes over; `busy` stays true in between.
        const next = lines.known.next() ?? lines.stranger.next();
        if (next) next.start();
        else busy = false;
      }
    },
  };
}

/** The waiting requests by owner. The first owner is the one who was served least recently. */
function createLine(maxWaiting: number) {
  const owners = new Map<string, Waiting[]>();
  let size = 0;

  /** Removes the newest request of the owner with the most requests, if that owner has more than `count`. */
  function givesWay(count: number): Waiting | undefined {
    const most = [...owners.values()].reduce((longest, one) => (one.length > longest.length ? one : longest), []);
    return most.length > count ? most.pop() : undefined;
  }

  return {
    add(owner: string, waiting: Waiting): void {
      const own = owners.get(owner) ?? [];
      if (size === maxWaiting) {
        const refused = givesWay(own.length + 1);
        (refused ?? waiting).refuse(full());
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
