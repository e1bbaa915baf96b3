import type { Caller } from "../http/endpoint.ts";

/** Something that happened, as the rest of the service tells it. */
export interface AuditEvent {
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
  /** Enters the event; when this fails, the effect it stands for must not happen. */
  append(event: AuditEvent): Promise<void>;
}
