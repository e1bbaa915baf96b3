import { CloudFailure, TRANSIENT_CODES } from "../platform/azure/failure.ts";
import { SyncFailure } from "./providers/provider.ts";
import type { RecordFailure } from "./record.ts";

/** What may pass by itself within minutes; everything else waits for the schedule, or for somebody. */
const PASSING = new Set<string>([...TRANSIENT_CODES, "badResponse", "changedMeanwhile", "conflict"]);

/** A run that can't go on, for a reason that people are shown. */
export class RunFailed extends Error {
  override readonly name = "RunFailed";
  readonly failure: Omit<RecordFailure, "since">;
  readonly retryAfterSeconds: number | undefined;
  /** Whether a write may have been done all the same. */
  readonly unclear: boolean;

  constructor(side: RecordFailure["side"], reason: SyncFailure | CloudFailure) {
    super(reason.message);
    const providerCode = reason instanceof SyncFailure ? reason.providerCode : reason.cloudCode;
    const { code, message, remedy } = reason;
    // Whoever refuses credentials is the target, also where that is known from the last time.
    const where = code === "badCredentials" ? "target" : side;
    this.failure = { code, side: where, message, remedy, ...(providerCode !== undefined && { providerCode }) };
    this.retryAfterSeconds = reason.retryAfterSeconds;
    this.unclear = reason.unclear;
  }

  get passing(): boolean {
    return PASSING.has(this.failure.code);
  }
}

/** What the work answers. A failure of its is thrown as that side's; anything else escapes as it is. */
export async function on<T>(side: RecordFailure["side"], work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof SyncFailure || error instanceof CloudFailure) throw new RunFailed(side, error);
    throw error;
  }
}
