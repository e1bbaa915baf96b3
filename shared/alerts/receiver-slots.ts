import { SECOND_MS } from "../platform/time.ts";

// The host handles 16 to 24 messages of a queue at once (host.json: batchSize, newBatchThreshold). The limits below reserve most
// of these messages for receivers that respond, even if many other receivers answer no request before its timeout.

/** Maximum number of deliveries in progress to one receiver that responds, on an instance. */
const PER_RECEIVER = 4;
/** A receiver gets more than one slot only while fewer slots than this are in use. */
const SHARED_SLOTS = 8;
/** Maximum number of deliveries in progress to all receivers that are slow or that have not responded yet. */
const UNPROVEN_SLOTS = 8;
/** Maximum number of deliveries in progress to all slow receivers. */
const SLOW_SLOTS = 4;
/** A delivery that takes this long makes its receiver slow, until a later delivery is faster. */
const SLOW_MS = 2 * SECOND_MS;

/** Limits how many deliveries an instance has in progress: to the same receiver, and to all receivers that do not respond. */
export interface ReceiverSlots {
  /**
   * Takes a slot of a receiver.
   *
   * @param receiver - Host and port of its address.
   * @returns A function that releases the slot. Undefined while the receiver gets no further slot.
   */
  take(receiver: string): (() => void) | undefined;
}

/** Slots of a receiver. A slow receiver and one that has not responded yet (`unknown`) get one slot. */
interface Receiver {
  /** Speed of the last finished delivery. */
  lastSpeed: "unknown" | "fast" | "slow";
  /** Start times of the deliveries in progress. */
  startedAt: Set<{ at: number }>;
}

/**
 * Creates the limit of concurrent deliveries.
 *
 * @param now - Returns a time in milliseconds that only grows.
 */
export function createReceiverSlots(now = () => performance.now()): ReceiverSlots {
  const receivers = new Map<string, Receiver>();
  const speedOf = ({ lastSpeed, startedAt }: Receiver) =>
    [...startedAt].some(({ at }) => now() - at >= SLOW_MS) ? "slow" : lastSpeed;

  function countInUse(): { all: number; unproven: number; slow: number } {
    const counts = { all: 0, unproven: 0, slow: 0 };
    for (const receiver of receivers.values()) {
      const { size } = receiver.startedAt;
      const speed = size === 0 ? "fast" : speedOf(receiver);
      counts.all += size;
      if (speed !== "fast") counts.unproven += size;
      if (speed === "slow") counts.slow += size;
    }
    return counts;
  }

  function hasFreeSlot(receiver: Receiver): boolean {
    const { size } = receiver.startedAt;
    const speed = speedOf(receiver);
    const inUse = countInUse();
    if (speed === "fast") return size === 0 || (size < PER_RECEIVER && inUse.all < SHARED_SLOTS);
    return size === 0 && inUse.unproven < UNPROVEN_SLOTS && (speed === "unknown" || inUse.slow < SLOW_SLOTS);
  }

  return {
    take(name) {
      const receiver = receivers.get(name) ?? { lastSpeed: "unknown", startedAt: new Set() };
      if (!hasFreeSlot(receiver)) return undefined;
      receivers.set(name, receiver);
      const started = { at: now() };
      receiver.startedAt.add(started);
      return () => {
        receiver.lastSpeed = now() - started.at >= SLOW_MS ? "slow" : "fast";
        receiver.startedAt.delete(started);
      };
    },
  };
}
