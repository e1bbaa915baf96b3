import pLimit from "p-limit";
import type { Access } from "../shared/access/access.ts";
import type { ApprovalService } from "../shared/approvals/approvals.ts";
import type { Audit } from "../shared/audit/audit.ts";
import type { Licensing } from "../shared/licensing/licensing.ts";
import { CloudFailure } from "../shared/platform/azure/failure.ts";
import { addressOfCaller, type Gate } from "../shared/platform/http/admission.ts";
import { createPace } from "../shared/platform/http/pace.ts";
import { Problem, retryLater } from "../shared/platform/http/problem.ts";
import type { RateLimiter } from "../shared/platform/http/rate-limit.ts";
import { errorCode, statusOf } from "../shared/platform/storage/errors.ts";
import { type StoreFormat, StoreIsNewer } from "../shared/platform/storage/store-format.ts";
import { isUnclear, RowChanged, SigningKeysMissing, StorageCorrupt } from "../shared/platform/storage/tables.ts";
import type { Settings } from "../shared/settings/settings.ts";

/**
 * The pace of 429 responses and static files, which clients could request in a tight loop: one slot every 10 ms, which is 100
 * requests a second for each instance. A rejected sign-in takes up to 3 ms of processor time, so 70 % of the processor remain
 * for other requests. At most 100 requests wait for a slot. Further requests don't wait.
 */
const PACE = { everyMs: 10, maxWaiting: 100 };

/**
 * Limits concurrent checks of sign-ins from unknown addresses, so that many sign-ins don't delay the storage requests of other
 * callers.
 */
const CONCURRENT_UNKNOWN_SIGN_INS = 4;

/** Retry-After in seconds, if the failed service returned none. */
const RETRY_SECONDS = 10;
/** Retry-After in seconds, if a stored row can't be read. A person or the reconciliation has to repair it first. */
const UNREADABLE_RETRY_SECONDS = 600;
/** Retry-After in seconds, if a newer version has used the store. A person has to deploy it again, or to prepare the store. */
const NEWER_RETRY_SECONDS = 60;

/** Creates the checks that the pipeline runs before every endpoint: authentication, license, rate limits. */
export function createGate(deps: {
  access: Access;
  licensing: Licensing;
  audit: Audit;
  limiter: RateLimiter;
  signInLimiter: RateLimiter;
  storeFormat: StoreFormat;
  settings: Pick<Settings, "freshOrLastKnown">;
  approvals: Pick<ApprovalService, "require">;
}): Gate {
  const { access, licensing, audit, limiter, signInLimiter, storeFormat, settings, approvals } = deps;
  const limitConcurrency = pLimit(CONCURRENT_UNKNOWN_SIGN_INS);
  const recordRejection: Gate["recordRejection"] = (caller, endpoint, code) =>
    audit.refused({
      type: "access.refused",
      caller,
      outcome: "refused",
      target: { type: "endpoint", id: `${endpoint.method} /${endpoint.route}` },
      details: { code },
    });
  return {
    checkStore: () => storeFormat.check(),
    authenticate: (credential) => access.authenticate(credential),
    tier: async () => licensing.tier(),
    recordRejection,
    async confirmations() {
      const values = await settings.freshOrLastKnown();
      if (!values) {
        throw retryLater(
          "unavailable",
          "App Configuration could not be read since this instance started, so the service does not know whether this request needs a confirmation.",
          RETRY_SECONDS,
        );
      }
      return { stepUp: values.requireStepUp, approval: values.requireApproval };
    },
    async confirm(request, needed) {
      if (needed.stepUp && !access.stepUp.isFresh(request.actor)) {
        await recordRejection(request.caller, request.endpoint, "stepUpRequired");
        throw await access.stepUp.problem(request.actor);
      }
      if (needed.approval) await approvals.require(request);
    },
    limiter,
    signInLimiter: {
      ...signInLimiter,
      take(caller) {
        const count = () => signInLimiter.take(caller);
        return access.recentAddresses.has(addressOfCaller(caller)) ? count() : limitConcurrency(count);
      },
    },
    pace: createPace(PACE),
    translate: problemOf,
  };
}

/**
 * What to do when the storage account denies a request, by its error code:
 * https://learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes
 */
const STORAGE_DENIALS: Record<string, string> = {
  AuthorizationPermissionMismatch:
    "The storage account denies access to the identity of the service. Assign the roles Storage Table Data Contributor and Storage Queue Data Contributor on the account. After a deployment, Azure applies new roles within about ten minutes.",
  AuthorizationFailure:
    "The firewall of the storage account denies the service. Check the account's private endpoints, their DNS records, and the network of the app.",
};

/**
 * Returns the problem document for expected failures: a cloud service that does not respond, a write conflict, or a stored row
 * that can't be read. Returns undefined for bugs.
 */
function problemOf(error: unknown): Problem | undefined {
  if (error instanceof CloudFailure) {
    return retryLater("unavailable", `${error.message} ${error.remedy}`, error.retryAfterSeconds ?? RETRY_SECONDS);
  }
  if (error instanceof RowChanged)
    return new Problem(
      "conflict",
      "Another request changed this resource at the same time. Read it again and repeat the request.",
    );
  if (error instanceof StoreIsNewer) return retryLater("storeIsNewer", error.message, NEWER_RETRY_SECONDS);
  if (error instanceof StorageCorrupt) {
    return retryLater(
      "rowUnreadable",
      `A row of the table ${error.table} can't be read: it was changed outside of this service. An administrator finds it in the audit log (storage.rowUnreadable), and restores it from a backup, deletes it, or accepts it (npm run store -- sign).`,
      UNREADABLE_RETRY_SECONDS,
    );
  }
  if (error instanceof SigningKeysMissing) return retryLater("unavailable", error.message, UNREADABLE_RETRY_SECONDS);
  const denial =
    error instanceof Error && statusOf(error) === 403 ? STORAGE_DENIALS[errorCode(error) ?? ""] : undefined;
  if (denial) return retryLater("unavailable", denial, RETRY_SECONDS);
  if (isUnclear(error)) {
    return retryLater(
      "unavailable",
      "The storage account does not respond reliably. The change of this request may have been saved: read the resource again, or repeat the request.",
      RETRY_SECONDS,
    );
  }
  return undefined;
}
