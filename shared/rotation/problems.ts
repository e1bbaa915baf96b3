import { CloudFailure, failure, TRANSIENT_CODES } from "../platform/azure/failure.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import { Problem, retryLater } from "../platform/http/problem.ts";
import type { RotationRecord } from "./rotation.ts";

/** Retry-After in seconds if the cloud service gave none. */
const RETRY_SECONDS = 10;

/** Creates a 409 for a request that the current state does not allow. */
export const conflict = (detail: string): Problem => new Problem("conflict", detail);

/** Creates a 409 with the ID of the unfinished rotation. */
export const rotationUnfinished = (rotationId: string): Problem =>
  new Problem(
    "rotationUnfinished",
    `Rotation ${rotationId} of this secret has not ended. Wait for it, finish it or cancel it.`,
    {
      members: { rotationId },
    },
  );

/** Creates a 409 for a service without its own key vault, which can't store a held copy. */
export const noServiceVault = (): Problem =>
  conflict("New secrets are stored in the service's own key vault until they are in use. Set SERVICE_KEY_VAULT_URL.");

/** Stands for the service's own key vault if none is configured. Rejects each call. */
export const rejectingServiceVault: ServiceKeyVault = {
  readTags: () => Promise.reject(noServiceVault()),
  writeTags: () => Promise.reject(noServiceVault()),
  readSecret: () => Promise.reject(noServiceVault()),
  readNewest: () => Promise.reject(noServiceVault()),
  writeSecret: () => Promise.reject(noServiceVault()),
  removeSecret: () => Promise.reject(noServiceVault()),
};

/** Converts a failure of the cloud into a 503 for a waiting caller. */
export function throwAsProblem(error: unknown): never {
  if (!(error instanceof CloudFailure)) throw error;
  const detail = `Nothing was changed. ${error.message} ${error.remedy}`;
  throw retryLater("unavailable", detail, error.retryAfterSeconds ?? RETRY_SECONDS);
}

/**
 * Codes of failures after which a rotation repeats its step. Besides `TRANSIENT_CODES`, the set contains wrong answers, other
 * changes in progress and rejected sign-ins of this service, because these can pass during a rotation's retries.
 */
export const TRANSIENT_FAILURE_CODES: ReadonlySet<string> = new Set([
  ...TRANSIENT_CODES,
  "badResponse",
  "conflict",
  "concurrency",
  "unauthenticated",
]);
/** Returns whether the failure is transient: the same call may succeed later. */
export const isTransientFailure = ({ code }: CloudFailure): boolean => TRANSIENT_FAILURE_CODES.has(code);

/**
 * Number of consecutive transient failures (about 20 minutes) after which users are notified. Must be less than `MAX_FAILURES`
 * of the step runner, after which the step ends.
 */
const RETRIED_FAILURES = 7;

/**
 * Returns the error if users must be notified of it: a cloud failure that is not transient or occurred too often in a row.
 *
 * @throws any other error unchanged. The step runner retries transient failures within minutes.
 */
export function throwIfTransient(
  { record }: { record: Pick<RotationRecord, "failures"> },
  error: unknown,
): CloudFailure {
  if (!(error instanceof CloudFailure) || (isTransientFailure(error) && record.failures < RETRIED_FAILURES))
    throw error;
  return error;
}

/**
 * Creates the failure of a sign-in whose answer says nothing about the secret. It is transient: a retry may get a clear answer.
 */
export const signInUnclear = (appId: string): CloudFailure =>
  failure(
    "unreachable",
    { operation: "sign in with a client secret", resource: `application ${appId}` },
    "the sign-in service gave no clear answer",
    { remedy: "Check https://status.azure.com for an outage of Microsoft Entra, then try again." },
  );

/** Returns a time to the second, for messages. */
export const instantText = (at: Date): string => `${at.toISOString().slice(0, 19)}Z`;
