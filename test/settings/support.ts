import type { Audit, AuditEvent } from "../../shared/audit/audit.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { loadConfig } from "../../shared/platform/config/config.ts";
import type { Caller } from "../../shared/platform/http/endpoint.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import type { Clock } from "../../shared/platform/runtime.ts";

// Helpers for tests of the settings and of modules that use them.

export const admin: Caller = { actor: "ada", address: "192.0.2.1", requestId: "request-1" };

/** Loads a configuration with the required settings and the given environment variables. */
export function configWith(environment: Record<string, string | undefined> = {}): Config {
  return loadConfig({
    AzureWebJobsStorage: "UseDevelopmentStorage=true",
    JWT_SIGNING_KEYS: `test:${Buffer.alloc(32, 1).toString("base64")}`,
    ...environment,
  });
}

/** A clock that stands still until a test advances it. */
export function stillClock(): Clock & { advance(milliseconds: number): void } {
  let nowMs = Date.parse("2026-11-21T10:00:00Z");
  return {
    now: () => new Date(nowMs),
    advance: (milliseconds) => {
      nowMs += milliseconds;
    },
  };
}

/** Records audit events in order. */
export function recordingAudit(): Audit & { events: AuditEvent[] } {
  const events: AuditEvent[] = [];
  const record = async (event: AuditEvent) => {
    events.push(event);
  };
  return { events, append: record, refused: record } as Audit & { events: AuditEvent[] };
}

/** Returns the problem with which a call is rejected. Any other result fails the test. */
export async function problemOf(call: Promise<unknown>): Promise<Problem> {
  const error = await call.then(
    () => new Error("The call succeeded."),
    (reason: unknown) => reason,
  );
  if (error instanceof Problem) return error;
  throw error;
}
