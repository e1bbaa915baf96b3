import { audited } from "../audit/audited.ts";
import type { AuditRecorder } from "../audit/event.ts";
import { CloudFailure, isTransient } from "../platform/azure/failure.ts";
import type { KeyVersion, VaultKeys } from "../platform/azure/vault-keys.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { LeasedRow } from "../platform/runs/leased-row.ts";
import type { Clock } from "../platform/runtime.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import { RunFailed, RunLater } from "./errors.ts";
import type { RunRecord } from "./run.ts";

/**
 * Time after which a request for a new version without a response has no further effect. Longer than the time limit of the request
 * (`REQUEST_MS`), so that no request of an earlier worker is still on its way.
 */
const LATE_WRITE_MS = 2 * MINUTE_MS;
/** Time limit of the request for a new version, with its retries after a 429. */
const REQUEST_MS = MINUTE_MS;
/** Wait before the versions are compared again. */
const COMPARE_SECONDS = 15;

/** The new version of a key, or the one that exists already. */
export interface CreatedVersion {
  version: string;
  /** True if the service sent no request for it: the vault's own policy or another client added it. */
  createdElsewhere: boolean;
}

/**
 * Makes sure that the key has a version after `oldVersion`, and returns it. A run sends a request only if the current version is
 * still `oldVersion`, and at least two minutes after an earlier request whose outcome is unknown. So one run never adds two versions.
 *
 * @throws {RunLater} if the outcome is unknown, or Key Vault is not available.
 * @throws {RunFailed} if Key Vault rejects the request or the key can't be rotated. No version was added then.
 * @throws a conflict if another worker has taken over the run.
 */
export async function createVersion(
  leased: LeasedRow<RunRecord>,
  { vault, audit, caller, clock }: { vault: VaultKeys; audit: AuditRecorder; caller: Caller; clock: Clock },
): Promise<CreatedVersion> {
  const { runId, vaultName, name, oldVersion, requestedAt } = leased.row;
  const current = await vault.current(name, leased.signal).catch(throwAsStepError);
  if (current === undefined) throw new RunFailed(keyMissing(leased.row));
  if (current.version !== oldVersion) return { version: current.version, createdElsewhere: requestedAt === undefined };
  if (requestedAt !== undefined) {
    const wait = Date.parse(requestedAt) + LATE_WRITE_MS - clock.now().getTime();
    if (wait > 0) throw new RunLater(Math.min(COMPARE_SECONDS, Math.ceil(wait / SECOND_MS)), { isFailure: false });
  }
  // Stored before the request, so that after a crash another worker knows that the request may have been sent.
  await leased.change({ requestedAt: clock.now().toISOString() });
  const signal = AbortSignal.any([leased.signal, AbortSignal.timeout(REQUEST_MS)]);
  const details = { vaultName, key: name, oldVersion };
  const event = { type: "keyRotation.versionCreated", caller, target: { type: "keyRotation", id: runId }, details };
  let created: KeyVersion;
  try {
    created = await audited(
      audit,
      event,
      () => vault.rotate(name, signal),
      ({ version }) => ({
        details: { ...details, newVersion: version },
      }),
    );
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    if (mayHaveRotated(error)) throw new RunLater(COMPARE_SECONDS, { isFailure: true });
    // Key Vault said that it did nothing, so the next attempt needs no wait.
    await leased.change({ requestedAt: undefined });
    return throwAsStepError(error);
  }
  // Key Vault returns the newest version. Another one can only be the old version if the response is wrong.
  if (created.version === oldVersion) throw new RunLater(COMPARE_SECONDS, { isFailure: true });
  return { version: created.version, createdElsewhere: false };
}

/**
 * Returns whether the request may have been carried out although it failed: there was no complete response, a successful response
 * can't be read, or the status is 408 or 5xx. Any other error status says that nothing was done.
 */
const mayHaveRotated = ({ code, status }: CloudFailure): boolean =>
  code === "unreachable" || code === "timedOut" || (code === "badResponse" && status === undefined);

/** Codes of failures that can pass: Key Vault is busy or changes the key, or the service's sign-in failed. */
const PASSING_CODES: ReadonlySet<string> = new Set(["conflict", "concurrency", "unauthenticated"]);

/** @throws {RunLater | RunFailed} instead of a `CloudFailure`, and any other error unchanged. */
function throwAsStepError(error: unknown): never {
  if (!(error instanceof CloudFailure)) throw error;
  const { code, message, remedy, retryAfterSeconds, status } = error;
  const isWrongAnswer = code === "badResponse" && status === undefined;
  if (isTransient(error) || isWrongAnswer || PASSING_CODES.has(code))
    throw new RunLater(retryAfterSeconds ?? 0, { isFailure: true, failure: { code, message, remedy } });
  throw new RunFailed({ code, message, remedy });
}

const keyMissing = ({ vaultName, name }: RunRecord) => ({
  code: "notFound",
  message: `The key ${name} no longer exists in ${vaultName}.`,
  remedy: "Recover the key if it was deleted by mistake. Data that was encrypted with it can't be read without it.",
});
