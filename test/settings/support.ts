import type { Audit, AuditEvent } from "../../shared/audit/audit.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { loadConfig } from "../../shared/platform/config/config.ts";
import type { Caller } from "../../shared/platform/http/endpoint.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import type { Clock } from "../../shared/platform/runtime.ts";

export const admin: Caller = { actor: "ada", address: "192.0.2.1", requestId: "request-1" };

export function configWith(environment: Record<string, string | undefined> = {}): Config {
  return loadConfig({
    AzureWebJobsStorage: "UseDevelopmentStorage=true",
    JWT_SIGNING_KEYS: `test:${Buffer.alloc(32, 1).toString("base64")}`,
    ...environment,
  });
}

/** A clock that stands still until a test advances it. */
export function stillClock(): Clock & { forward(milliseconds: number): void } {
  let now = Date.parse("2026-11-21T10:00:00Z");
  return {
    now: () => new Date(now),
    forward: (milliseconds) => {
      now += milliseconds;
    },
  };
}

/** Records log lines in order. */
export function recordingAudit(): Audit & { events: AuditEvent[] } {
  const events: AuditEvent[] = [];
  const keep = async (event: AuditEvent) => {
    events.push(event);
  };
  return { events, append: keep, refused: keep } as Audit & { events: AuditEvent[] };
}

/** Returns the problem that the work throws. Any other result fails the test. */
export async function problemOf(work: Promise<unknown>): Promise<Problem> {
  const error = await work.then(
    () => new Error("It succeeded."),
    (reason: unknown) => reason,
  );
  if (error instanceof Problem) return error;
  throw error;
}
