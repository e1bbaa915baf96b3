import { setTimeout as delay } from "node:timers/promises";
import type { Randomness } from "../runtime.ts";
import { RowChanged, RowExists, RowMissing } from "../storage/tables.ts";

/** How often a change is tried that other writers keep coming before. */
const MAX_TRIES = 20;
const PAUSE_MS = 25;

/** True for what a transaction throws when another writer came first. */
const cameSecond = (error: unknown): boolean =>
  error instanceof RowChanged || error instanceof RowExists || error instanceof RowMissing;

/** Does `work`, which reads and then writes with ETags, again from the start when another writer came between. */
export async function untilWritten<T>(randomness: Randomness, work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (!cameSecond(error) || tries === MAX_TRIES) throw error;
      await delay(randomness.number() * PAUSE_MS * Math.min(tries, 8));
    }
  }
}
