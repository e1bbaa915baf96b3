import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createFairQueue, type QueuePosition } from "../../shared/access/fair-queue.ts";
import { Problem } from "../../shared/platform/http/problem.ts";

// Tests of the queue of sign-ins, which verifies one password at a time. A position in the queue names a source (usually an IP
// address), and whether the user has recently signed in from there ("known"). Known addresses are served before unknown ones.

const unknownAddress = (source: string): QueuePosition => ({ queue: "unknown", source });
const knownAddress = (source: string): QueuePosition => ({ queue: "known", source });

/** Creates a queue whose work ends when the test says so, and records which work was executed and which was rejected. */
function openQueue(maxWaiting: number) {
  const queue = createFairQueue({ known: maxWaiting, unknown: maxWaiting });
  const served: string[] = [];
  const rejected: { name: string; problem: Problem }[] = [];
  let endCurrentWork: (() => void) | undefined;
  return {
    served,
    rejected,
    /** Adds work with a name to the queue. */
    enqueue: (position: QueuePosition, name: string) => {
      const work = async () => {
        served.push(name);
        await new Promise<void>((resolve) => {
          endCurrentWork = resolve;
        });
      };
      queue.run(position, work).catch((problem: Problem) => rejected.push({ name, problem }));
    },
    /** Ends one piece of work after the other, until the queue starts no more. */
    async drain() {
      for (let servedBefore = -1; servedBefore < served.length; ) {
        servedBefore = served.length;
        endCurrentWork?.();
        for (let tick = 0; tick < 10; tick++) await Promise.resolve();
      }
    },
  };
}

describe("the sign-in queue", () => {
  test("serves known addresses before 29 waiting unknown addresses", async () => {
    const { enqueue, served, drain } = openQueue(32);
    for (let address = 0; address < 30; address++) enqueue(unknownAddress(`a${address}`), `unknown ${address}`);
    enqueue(knownAddress("home"), "maria");
    enqueue(knownAddress("office"), "bob");
    await drain();
    expect(served.slice(0, 4)).toEqual(["unknown 0", "maria", "bob", "unknown 1"]);
    expect(served).toHaveLength(32);
  });

  test("alternates between addresses", async () => {
    const { enqueue, served, drain } = openQueue(32);
    enqueue(unknownAddress("busy"), "busy 0");
    for (let time = 1; time <= 4; time++) enqueue(unknownAddress("busy"), `busy ${time}`);
    enqueue(unknownAddress("b"), "b 1");
    enqueue(unknownAddress("c"), "c 1");
    enqueue(unknownAddress("c"), "c 2");
    await drain();
    expect(served).toEqual(["busy 0", "busy 1", "b 1", "c 1", "busy 2", "c 2", "busy 3", "busy 4"]);
  });

  test("rejects the source with the most requests when it is full", async () => {
    const { enqueue, served, rejected, drain } = openQueue(3);
    enqueue(unknownAddress("busy"), "busy 0");
    for (let time = 1; time <= 4; time++) enqueue(unknownAddress("busy"), `busy ${time}`);
    enqueue(unknownAddress("b"), "b 1");
    enqueue(unknownAddress("c"), "c 1");
    // All sources in the queue now have one request each, so this request of another source is rejected.
    enqueue(unknownAddress("d"), "d 1");
    // Known addresses have a queue of their own, which is not full.
    enqueue(knownAddress("home"), "maria");
    await drain();
    expect(rejected.map(({ name }) => name)).toEqual(["busy 4", "busy 3", "busy 2", "d 1"]);
    for (const { problem } of rejected) {
      expect(problem).toBeInstanceOf(Problem);
      expect([problem.status, problem.headers["Retry-After"]]).toEqual([429, "5"]);
    }
    expect(served).toEqual(["busy 0", "maria", "busy 1", "b 1", "c 1"]);
  });

  test("accepts as many requests again once a full queue is processed", async () => {
    const { enqueue, served, rejected, drain } = openQueue(3);
    for (let round = 0; round < 3; round++) {
      for (let request = 0; request < 4; request++) enqueue(unknownAddress("a"), `${round}.${request}`);
      await drain();
    }
    expect(rejected).toEqual([]);
    expect(served).toHaveLength(12);
  });

  test("executes or rejects each request exactly once, for random orders of arrival", async () => {
    let rejections = 0;
    const arrivals = fc.array(fc.tuple(fc.constantFrom("known", "unknown"), fc.constantFrom("a", "b", "c", "d")), {
      minLength: 8,
      maxLength: 40,
    });
    await fc.assert(
      fc.asyncProperty(arrivals, async (places) => {
        const { enqueue, served, rejected, drain } = openQueue(5);
        places.forEach(([queue, source], index) => {
          enqueue({ queue: queue as QueuePosition["queue"], source }, String(index));
        });
        await drain();
        rejections += rejected.length;
        const handled = [...served, ...rejected.map(({ name }) => name)];
        expect(handled.sort()).toEqual(places.map((_, index) => String(index)).sort());
      }),
      { numRuns: 200 },
    );
    expect(rejections).toBeGreaterThan(100);
  });

  test("continues when one request's work fails", async () => {
    const queue = createFairQueue({ known: 2, unknown: 2 });
    const failing = queue.run(unknownAddress("a"), () => Promise.reject(new Error("out of memory")));
    const next = queue.run(unknownAddress("b"), async () => "done");
    await expect(failing).rejects.toThrow("out of memory");
    expect(await next).toBe("done");
  });
});
