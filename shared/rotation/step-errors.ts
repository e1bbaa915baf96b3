import type { RotationFailure } from "./rotation.ts";

/** Thrown by a step that must wait, although nothing failed. The step runner runs it again after `seconds`. */
export class ContinueLater extends Error {
  override readonly name = "ContinueLater";
  readonly seconds: number;

  constructor(seconds: number) {
    super(`Continues in ${seconds} s.`);
    this.seconds = seconds;
  }
}

/** Thrown by a step if the rotation can't succeed. The rotation then rolls back. */
export class RollBack extends Error {
  override readonly name = "RollBack";
  readonly failure: RotationFailure;

  constructor(code: string, message: string, remedy: string) {
    super(message);
    this.failure = { code, message, remedy };
  }
}

/** Thrown by a step if the rotation can neither continue nor roll back. A user must then act. */
export class NeedsAttention extends Error {
  override readonly name = "NeedsAttention";
  readonly failure: RotationFailure;

  constructor(code: string, message: string, remedy: string) {
    super(message);
    this.failure = { code, message, remedy };
  }
}

/** Thrown if another worker took over the rotation. The current worker must then stop. */
export class LeaseLost extends Error {
  override readonly name = "LeaseLost";
}
