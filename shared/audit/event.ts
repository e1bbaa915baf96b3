import type { Caller } from "../platform/http/endpoint.ts";

/** An event to record in the audit log. */
export interface AuditEvent {
  /**
   * Idempotency key for an event that the caller may record again after a crash: a ULID that the caller stores. The event is
   * recorded once under this ID, at the ULID's time.
   */
  id?: string;
  /** The event type, as `thing.happened` in camelCase: `user.signedIn`, `settings.changed`. */
  type: string;
  caller: Caller;
  /** `intent` is recorded before an action that changes storage or a cloud service. The other outcomes are recorded after it. */
  outcome: "success" | "failure" | "refused" | "intent";
  target?: { type: string; id: string };
  before?: unknown;
  after?: unknown;
  details?: Record<string, unknown>;
}

/** Records events in the audit log. */
export interface AuditRecorder {
  /**
   * Records the event. If recording an intent fails, don't perform the action.
   *
   * @throws {IntervalSealed} if an event with an `id` was not recorded, and the interval of its time is sealed.
   */
  append(event: AuditEvent): Promise<void>;
}
