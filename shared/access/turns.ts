import { retryLater } from "../platform/http/problem.ts";

/** Where somebody waits: those who are known are all served before any stranger. */
export interface Place {
  line: "known" | "stranger";
  /** Within a line everybody has one turn after the other, however many each of them waits for. */
  owner: string;
}

/** Work that is done one at a time within this instance. */
export interface Turns {
  /**
   * Does the work when its turn comes.
   *
   * @throws {Problem} rateLimited, with nothing done, when the line is full. A full line makes room for an owner with
   * fewer waiting by refusing the newest of the owner with the most.
   */
  take<T>(place: Place, work: () => Promise<T>): Promise<T>;
}

interface Waiting {
  start: () => void;
  refuse: (problem: unknown) => void;
}

/** Seconds after which a caller who found the line full should come back: about what it takes to work it off. */
const RETRY_AFTER_SECONDS = 5;

const full = () =>
  retryLater("rateLimited", "Too many sign-ins are being checked. Wait a moment.", RETRY_AFTER_SECONDS);

/** @param maxWaiting - How many may wait in each line behind the one who is served. */
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
        // Whoever is next takes the turn over; it stays busy in between.
        const next = lines.known.next() ?? lines.stranger.next();
        if (next) next.start();
        else busy = false;
      }
    },
  };
}

/** Who waits, by owner; the owner at the front is the one who was served least lately. */
function createLine(maxWaiting: number) {
  const owners = new Map<string, Waiting[]>();
  let size = 0;

  /** The newest of the owner with the most waiting, unless `count` would be as many. */
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
