import pLimit from "p-limit";
import type { Access } from "../shared/access/access.ts";
import type { Audit } from "../shared/audit/audit.ts";
import type { Licensing } from "../shared/licensing/licensing.ts";
import { CloudFailure } from "../shared/platform/azure/failure.ts";
import { addressOfCaller, type Gate } from "../shared/platform/http/admission.ts";
import { createPace } from "../shared/platform/http/pace.ts";
import { Problem, retryLater } from "../shared/platform/http/problem.ts";
import type { RateLimiter } from "../shared/platform/http/rate-limit.ts";
import { isUnclear, RowChanged } from "../shared/platform/storage/tables.ts";

/** 100 a second of an instance. A refused sign-in has cost it up to 3 ms of its processor, so the rest is everybody else's. */
const PACE = { everyMs: 10, maxWaiting: 100 };

/** So that a crowd of sign-ins leaves room for everybody's requests to storage, theirs that are being checked too. */
const SIGN_INS_COUNTED_AT_ONCE = 4;

/** Seconds a caller is asked to wait when a service this one needs gave no time of its own. */
const RETRY_SECONDS = 10;

/** What stands before every endpoint, from the rooms that know of it. */
export function createGate(deps: {
  access: Access;
  licensing: Licensing;
  audit: Audit;
  limiter: RateLimiter;
  signInLimiter: RateLimiter;
}): Gate {
  const { access, licensing, audit, limiter, signInLimiter } = deps;
  const countedAtOnce = pLimit(SIGN_INS_COUNTED_AT_ONCE);
  return {
    authenticate: (credential) => access.authenticate(credential),
    tier: async () => licensing.tier(),
    recordRejection: (caller, endpoint, code) =>
      audit.refused({
        type: "access.refused",
        caller,
        outcome: "refused",
        target: { type: "endpoint", id: `${endpoint.method} /${endpoint.route}` },
        details: { code },
      }),
    limiter,
    signInLimiter: {
      ...signInLimiter,
      take(caller) {
        const count = () => signInLimiter.take(caller);
        return access.recentAddresses.has(addressOfCaller(caller)) ? count() : countedAtOnce(count);
      },
    },
    pace: createPace(PACE),
    translate,
  };
}

/** What a caller is told of errors that are nobody's bug: a cloud service that does not answer, a lost race. */
function translate(error: unknown): Problem | undefined {
  if (error instanceof CloudFailure) {
    return retryLater("unavailable", `${error.message} ${error.remedy}`, error.retryAfterSeconds ?? RETRY_SECONDS);
  }
  if (error instanceof RowChanged)
    return new Problem(
      "conflict",
      "Another request changed this resource at the same time. Read it again and repeat the request.",
    );
  if (isUnclear(error)) {
    return retryLater(
      "unavailable",
      "The storage account does not answer clearly. If this request was to change something, that may have been done: read it again, or repeat the request.",
      RETRY_SECONDS,
    );
  }
  return undefined;
}
