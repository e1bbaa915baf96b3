/**
 * Maximum number of deliveries in progress to one receiver on an instance. The host handles 16 to 24 messages of a queue at
 * once (host.json: batchSize, newBatchThreshold), so a receiver that uses its whole time limit leaves most of them to the
 * others.
 */
const PER_RECEIVER = 4;

/** Limits how many deliveries to the same receiver an instance has in progress. */
export interface ReceiverSlots {
  /**
   * Takes a slot of a receiver.
   *
   * @param receiver - Host and port of its address.
   * @returns A function that releases the slot. Undefined while all slots of the receiver are in use.
   */
  take(receiver: string): (() => void) | undefined;
}

/** Creates the limit of concurrent deliveries to one receiver. */
export function createReceiverSlots(): ReceiverSlots {
  const inUse = new Map<string, number>();
  return {
    take(receiver) {
      const count = inUse.get(receiver) ?? 0;
      if (count >= PER_RECEIVER) return undefined;
      inUse.set(receiver, count + 1);
      return () => {
        const remaining = inUse.get(receiver)! - 1;
        if (remaining === 0) inUse.delete(receiver);
        else inUse.set(receiver, remaining);
      };
    },
  };
}
