import { CloudFailure, TRANSIENT_CODES } from "../platform/azure/failure.ts";
import { SyncFailure } from "./providers/provider.ts";
import type { RecordFailure } from "./record.ts";

/** Transient failures, which may be gone within minutes. After other failures the record waits for its schedule or a user. */
const RETRIED_CODES = new Set<string>([...TRANSIENT_CODES, "badResponse", "changedMeanwhile", "conflict"]);

/** Returns whether the record is retried soon, before its schedule. */
export const isRetried = ({ code }: Pick<RecordFailure, "code">): boolean => RETRIED_CODES.has(code);

/** A failure that ends a run, with texts for users. */
export class RunFailed extends Error {
  override readonly name = "RunFailed";
  readonly failure: Omit<RecordFailure, "since">;
  readonly retryAfterSeconds: number | undefined;
  /** Whether the write may have happened although it failed. */
  readonly unclear: boolean;

  constructor(side: RecordFailure["side"], reason: SyncFailure | CloudFailure) {
    super(reason.message);
    const providerCode = reason instanceof SyncFailure ? reason.providerCode : reason.cloudCode;
    const { code, message, remedy } = reason;
    // The target rejects credentials, also when the configuration already records the rejection.
    const where = code === "badCredentials" ? "target" : side;
    this.failure = { code, side: where, message, remedy, ...(providerCode !== undefined && { providerCode }) };
    this.retryAfterSeconds = reason.retryAfterSeconds;
    this.unclear = reason.unclear;
  }

  /** Whether the record is retried soon, before its schedule. */
  get isTransient(): boolean {
    return isRetried(this.failure);
  }
}

/**
 * Returns the result of `work`. Converts provider and cloud failures into a `RunFailed` for the given side. Other errors
 * escape.
 */
export async function failOnSide<T>(side: RecordFailure["side"], work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof SyncFailure || error instanceof CloudFailure) throw new RunFailed(side, error);
    throw error;
  }
}
