import { audited } from "../audit/audited.ts";
import type { AuditRecorder } from "../audit/event.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem, retryLater } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import type { Row } from "../platform/storage/entity.ts";
import { RowChanged } from "../platform/storage/tables.ts";
import { nextStep, type RenewalRecord, startRollback } from "./renewal.ts";
import type { RenewalRows } from "./rows.ts";
import type { StepRunner } from "./step-runner.ts";

/** Code of the failure of a renewal that a user cancelled. */
const CANCELLED = "cancelled";
const RETRY_SECONDS = 10;

/**
 * Returns the function that starts the rollback of a running renewal. It does nothing if the renewal was cancelled before. It
 * throws {Problem} conflict once the vault has the new version, and unavailable while a worker has the lease.
 */
export function createCancellation(deps: {
  rows: Pick<RenewalRows, "save">;
  runner: Pick<StepRunner, "scheduleNext">;
  audit: AuditRecorder;
  clock: Clock;
}): (row: Row<RenewalRecord>, caller: Caller) => Promise<Row<RenewalRecord>> {
  const { rows, runner, audit, clock } = deps;
  const busy = () => retryLater("unavailable", "A step of the renewal is running now. Try again.", RETRY_SECONDS);

  return async (row, caller) => {
    if (row.failure?.code === CANCELLED) return row;
    if (row.status !== "running" || row.version !== undefined)
      throw new Problem("conflict", "The renewal has failed, or the vault has the new version. It can't be cancelled.");
    if (row.working !== undefined) throw busy();
    const failure = {
      code: CANCELLED,
      message: `The renewal was cancelled by ${caller.actor}.`,
      remedy: "Renew the certificate again when you want a new version.",
    };
    const now = clock.now();
    const change = { ...startRollback(row, nextStep(row), failure, now), failures: 0, dueAt: now.toISOString() };
    const target = { type: "certificateRenewal", id: row.runId };
    const event = { type: "certificateRenewal.cancelled", caller, target, details: { assetId: row.assetId } };
    const cancelled = await audited(audit, event, () =>
      rows.save(row, { ...row, ...change }).catch((error: unknown) => {
        throw error instanceof RowChanged ? busy() : error;
      }),
    );
    await runner.scheduleNext(cancelled);
    return cancelled;
  };
}
