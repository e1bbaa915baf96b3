import type { RotationFailure } from "./rotation.ts";

/** Nothing can be done now, and nothing is wrong: the turn ends and another one comes. */
export class Later extends Error {
  override readonly name = "Later";
  readonly seconds: number;

  constructor(seconds: number) {
    super(`Again in ${seconds} s.`);
    this.seconds = seconds;
  }
}

/** The rotation can't succeed: what was done is undone. */
export class GoBack extends Error {
  override readonly name = "GoBack";
  readonly failure: RotationFailure;

  constructor(code: string, message: string, remedy: string) {
    super(message);
    this.failure = { code, message, remedy };
  }
}

/** Neither forwards nor back: a person must look. */
export class NeedsPerson extends Error {
  override readonly name = "NeedsPerson";
  readonly failure: RotationFailure;

  constructor(code: string, message: string, remedy: string) {
    super(message);
    this.failure = { code, message, remedy };
  }
}

/** Another worker has taken the rotation over: this one must do nothing more. */
export class TakenOver extends Error {
  override readonly name = "TakenOver";
}
