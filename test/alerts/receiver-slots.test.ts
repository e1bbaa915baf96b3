import { beforeEach, describe, expect, test } from "vitest";
import { createReceiverSlots, type ReceiverSlots } from "../../shared/alerts/receiver-slots.ts";

// Tests how many deliveries to one webhook receiver run at once, so that slow receivers leave slots of the host to others.

/** Number of messages that the host handles at once, at least (host.json: batchSize). */
const HOST_SLOTS = 16;
/** Time limit of a request to a receiver. */
const LIMIT_MS = 15_000;

let now: number;
let slots: ReceiverSlots;
beforeEach(() => {
  now = 0;
  slots = createReceiverSlots(() => now);
});

/** Takes a slot for each receiver and releases it at once: the receiver responds fast. Fails if one gets no slot. */
const respond = (...names: string[]) => {
  for (const name of names) slots.take(name)!();
};
/** Takes all slots that each receiver gets. Returns a release function for each. */
const takeAll = (names: readonly string[]) =>
  names.flatMap((name) => {
    const taken: (() => void)[] = [];
    for (let release = slots.take(name); release !== undefined; release = slots.take(name)) taken.push(release);
    return taken;
  });
const namesOf = (count: number) => Array.from({ length: count }, (_, index) => `receiver-${index}`);

describe("the slots of receivers", () => {
  test("are four for a receiver that responds, and one for a receiver that has not responded yet", () => {
    expect(takeAll(["new"])).toHaveLength(1);
    respond("known");
    expect(takeAll(["known"])).toHaveLength(4);
  });

  test("leave slots to others when four known receivers stop responding at the same time", () => {
    const names = namesOf(4);
    respond(...names, "good");
    expect(takeAll(names).length).toBeLessThanOrEqual(HOST_SLOTS - 4);
    respond("good");
    // Slots that are held for the whole time limit make their receivers slow.
    now += LIMIT_MS;
    expect(takeAll(names)).toEqual([]);
    respond("good");
  });

  test.each([
    ["known", 4],
    ["known", 12],
    ["new", 4],
    ["new", 40],
  ])("leave slots to others while %s receivers do not respond (%d of them)", (kind, count) => {
    const names = namesOf(count);
    respond("good", ...(kind === "known" ? names : []));
    // Each round, all requests reach their time limit.
    for (let round = 0; round < 20; round++) {
      const taken = takeAll(names);
      // Known receivers can stop responding all at once. From then on they are slow.
      if (kind === "new" || round > 0) expect(taken.length).toBeLessThanOrEqual(8);
      if (round > 15) expect(taken.length).toBeLessThanOrEqual(4);
      respond("good");
      now += LIMIT_MS;
      for (const release of taken) release();
      respond("good");
    }
    expect(slots.take("first delivery to another receiver")).toBeDefined();
  });

  test("are four again after a slow receiver has responded fast", () => {
    respond("receiver");
    const release = slots.take("receiver")!;
    now += LIMIT_MS;
    expect(slots.take("receiver")).toBeUndefined();
    release();
    expect(takeAll(["receiver"]).map((release) => release())).toHaveLength(1);
    expect(takeAll(["receiver"])).toHaveLength(4);
  });
});
