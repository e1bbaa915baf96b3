import type { RunFailure } from "./run.ts";

/** Thrown by a step that must run again after some time. */
export class RunLater extends Error {
  override readonly name = "RunLater";
  /** Minimum wait in seconds. */
  readonly seconds: number;
  /** Whether the attempt counts as a failure of the step. */
  readonly isFailure: boolean;
  readonly failure: RunFailure | undefined;

  constructor(seconds: number, { isFailure, failure }: { isFailure: boolean; failure?: RunFailure }) {
    super(failure?.message ?? `The step continues in ${seconds} s.`);
    this.seconds = seconds;
    this.isFailure = isFailure;
    this.failure = failure;
  }
}

/** Thrown by a step that ends the run. */
export class RunFailed extends Error {
  override readonly name = "RunFailed";
  readonly failure: RunFailure;

  constructor(failure: RunFailure) {
    super(failure.message);
    this.failure = failure;
  }
}
