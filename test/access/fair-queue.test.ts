import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createFairQueue, type QueuePosition } from "../../shared/access/fair-queue.ts";
import { Problem } from "../../shared/platform/http/problem.ts";

const unknown = (owner: string): QueuePosition => ({ queue: "unknown", owner });
const known = (owner: string): QueuePosition => ({ queue: "known", owner });

/** Starts work that ends on demand, and records the order of execution. */
function openQueue(maxWaiting: number) {
  const queue = createFairQueue({ known: maxWaiting, unknown: maxWaiting });
  const served: string[] = [];
  const refused: { name: string; problem: Problem }[] = [];
  let end: (() => void) | undefined;
  return {
    served,
    refused,
    enqueue: (place: QueuePosition, name: string) => {
      const work = async () => {
        served.push(name);
        await new Promise<void>((resolve) => {
          end = resolve;
        });
      };
      queue.run(place, work).catch((problem: Problem) => refused.push({ name, problem }));
    },
    /** Ends the work in progress, until the queue is empty. */
    async drain() {
      for (let before = -1; before < served.length; ) {
        before = served.length;
        end?.();
        for (let tick = 0; tick < 10; tick++) await Promise.resolve();
      }
    },
  };
}

describe("the sign-in queue", () => {
  test("serves a known address right after the work in progress, however many unknown ones wait", async () => {
    const { enqueue: come, served, drain } = openQueue(32);
    for (let address = 0; address < 30; address++) come(unknown(`a${address}`), `unknown ${address}`);
    come(known("home"), "maria");
    come(known("office"), "bob");
    await drain();
    expect(served.slice(0, 4)).toEqual(["unknown 0", "maria", "bob", "unknown 1"]);
    expect(served).toHaveLength(32);
  });

  test("alternates between addresses, so that one with many requests is served no more often", async () => {
    const { enqueue: come, served, drain } = openQueue(32);
    come(unknown("busy"), "busy 0");
    for (let time = 1; time <= 4; time++) come(unknown("busy"), `busy ${time}`);
    come(unknown("b"), "b 1");
    come(unknown("c"), "c 1");
    come(unknown("c"), "c 2");
    await drain();
    expect(served).toEqual(["busy 0", "busy 1", "b 1", "c 1", "busy 2", "c 2", "busy 3", "busy 4"]);
  });

  test("rejects requests beyond a full queue with Retry-After, and makes room for the owner with fewer requests", async () => {
    const { enqueue: come, served, refused, drain } = openQueue(3);
    come(unknown("busy"), "busy 0");
    for (let time = 1; time <= 4; time++) come(unknown("busy"), `busy ${time}`);
    come(unknown("b"), "b 1");
    come(unknown("c"), "c 1");
    // Each owner has one request, the minimum.
    come(unknown("d"), "d 1");
    // Known addresses have their own queue.
    come(known("home"), "maria");
    await drain();
    expect(refused.map(({ name }) => name)).toEqual(["busy 4", "busy 3", "busy 2", "d 1"]);
    for (const { problem } of refused) {
      expect(problem).toBeInstanceOf(Problem);
      expect([problem.status, problem.headers["Retry-After"]]).toEqual([429, "5"]);
    }
    expect(served).toEqual(["busy 0", "maria", "busy 1", "b 1", "c 1"]);
  });

  test("accepts as many again once a full queue is processed", async () => {
    const { enqueue: come, served, refused, drain } = openQueue(3);
    for (let round = 0; round < 3; round++) {
      for (let place = 0; place < 4; place++) come(unknown("a"), `${round}.${place}`);
      await drain();
    }
    expect(refused).toEqual([]);
    expect(served).toHaveLength(12);
  });

  test("executes or rejects every request exactly once, in any order of arrival", async () => {
    let refusals = 0;
    const arrivals = fc.array(fc.tuple(fc.constantFrom("known", "unknown"), fc.constantFrom("a", "b", "c", "d")), {
      minLength: 8,
      maxLength: 40,
    });
    await fc.assert(
      fc.asyncProperty(arrivals, async (places) => {
        const { enqueue: come, served, refused, drain } = openQueue(5);
        places.forEach(([queue, owner], index) => {
          come({ queue: queue as QueuePosition["queue"], owner }, String(index));
        });
        await drain();
        refusals += refused.length;
        const seen = [...served, ...refused.map(({ name }) => name)];
        expect(seen.sort()).toEqual(places.map((_, index) => String(index)).sort());
      }),
      { numRuns: 200 },
    );
    expect(refusals).toBeGreaterThan(100);
  });

  test("continues when one request's work fails", async () => {
    const queue = createFairQueue({ known: 2, unknown: 2 });
    const failing = queue.run(unknown("a"), () => Promise.reject(new Error("out of memory")));
    const next = queue.run(unknown("b"), async () => "done");
    await expect(failing).rejects.toThrow("out of memory");
    expect(await next).toBe("done");
  });
});
