import type { Caller } from "../platform/http/endpoint.ts";

/** An event to record in the audit log. */
export interface AuditEvent {
  /**
   * A ULID that the caller stores, for an event that may be recorded again after a crash. It is recorded once under this id, at
   * the ULID's time.
   */
  id?: string;
  /** The event type, as `thing.happened` in camelCase: `user.signedIn`, `settings.changed`. */
  type: string;
  caller: Caller;
  /** `intent` is recorded before an outside effect, the others after it. */
  outcome: "success" | "failure" | "refused" | "intent";
  target?: { type: string; id: string };
  before?: unknown;
  after?: unknown;
  details?: Record<string, unknown>;
}

/** Records events in the audit log. */
export interface Appender {
  /**
   * Records the event. If this fails, the effect must not happen.
   * @throws {IntervalSealed} for an event with an `id` that was not recorded, and whose interval is sealed.
   */
  append(event: AuditEvent): Promise<void>;
}
