import type { RotationFailure } from "./rotation.ts";

/** The step can't continue now, although nothing failed: it ends and is scheduled again. */
export class ContinueLater extends Error {
  override readonly name = "Later";
  readonly seconds: number;

  constructor(seconds: number) {
    super(`Continues in ${seconds} s.`);
    this.seconds = seconds;
  }
}

/** The rotation can't succeed: it rolls back. */
export class RollBack extends Error {
  override readonly name = "GoBack";
  readonly failure: RotationFailure;

  constructor(code: string, message: string, remedy: string) {
    super(message);
    this.failure = { code, message, remedy };
  }
}

/** The rotation can neither continue nor roll back: a user must act. */
export class NeedsAttention extends Error {
  override readonly name = "NeedsPerson";
  readonly failure: RotationFailure;

  constructor(code: string, message: string, remedy: string) {
    super(message);
    this.failure = { code, message, remedy };
  }
}

/** Another worker took over the rotation: this one must stop. */
export class LeaseLost extends Error {
  override readonly name = "TakenOver";
}
