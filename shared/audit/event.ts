import type { Caller } from "../platform/http/endpoint.ts";

/** Something that happened, as the rest of the service tells it. */
export interface AuditEvent {
  /**
   * A ULID that the caller keeps, for an event that may be told again after a crash: under one id it is entered once, at
   * the ULID's time.
   */
  id?: string;
  /** What happened, as `thing.happened` in camelCase: `user.signedIn`, `settings.changed`. */
  type: string;
  caller: Caller;
  /** `intent` is entered before an outside effect, one of the others after it. */
  outcome: "success" | "failure" | "refused" | "intent";
  target?: { type: string; id: string };
  before?: unknown;
  after?: unknown;
  details?: Record<string, unknown>;
}

/** What enters events. */
export interface Appender {
  /**
   * Enters the event; when this fails, the effect it stands for must not happen.
   * @throws {IntervalSealed} for an event with an `id` whose time can't be entered any more, and that was not entered.
   */
  append(event: AuditEvent): Promise<void>;
}
