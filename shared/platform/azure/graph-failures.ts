import { type CallTarget, type CloudFailure, type FailedAnswer, failure, retryAfter, shortCode } from "./failure.ts";

/**
 * Returns the failure that an answer means in Microsoft Graph only, or undefined. Codes are from
 * https://learn.microsoft.com/graph/errors and from observed answers. Texts decide only if the code does not.
 */
export function graphFailure(answer: FailedAnswer, target: CallTarget): CloudFailure | undefined {
  const { status, body } = answer;
  const cloudCode = shortCode(body);
  if (status === 429) {
    return failure("throttled", target, "the service answered 429, too many requests", {
      remedy: "No action needed: the service retries later.",
      retryAfterSeconds: retryAfter(answer),
      cloudCode,
    });
  }
  // The change may have been applied, also if the answer has a Retry-After.
  if (status >= 500) {
    return failure("unreachable", target, `the service answered ${status}`, {
      remedy: "Look for an outage at https://status.azure.com; it is tried again later.",
      cloudCode,
    });
  }
  if (cloudCode === "Directory_ConcurrencyViolation" || /concurrent requests being made/i.test(body)) {
    return failure("concurrency", target, "another write to the tenant was in progress", {
      remedy: "No action needed: nothing was changed, and the service retries later.",
      cloudCode,
    });
  }
  if (cloudCode === "resyncRequired" || cloudCode === "syncStateNotFound" || status === 410) {
    return failure("resyncRequired", target, "what changed since then is not known any more", {
      remedy: "No action needed: the service lists everything again.",
      cloudCode,
    });
  }
  return status === 400 ? refusedWrite(body, cloudCode, target) : undefined;
}

function refusedWrite(body: string, cloudCode: string | undefined, target: CallTarget): CloudFailure | undefined {
  if (cloudCode === "CredentialInvalidLifetimeAsPerAppPolicy") {
    return failure("lifetimePolicy", target, "a policy allows new secrets for a shorter time only", {
      remedy:
        "Choose a shorter validity, or grant the service's identity the Microsoft Graph application permission Policy.Read.ApplicationConfiguration, so that the service can follow the policy.",
      cloudCode,
    });
  }
  if (cloudCode === "CredentialTypeNotAllowedAsPerAppPolicy") {
    return failure("typePolicy", target, "a policy allows this application no new secrets", {
      remedy: "Let the application sign in with a certificate or a federated credential, or exempt it from the policy.",
      cloudCode,
    });
  }
  // Applications with personal accounts may have two secrets. The texts of that answer differ, and its code is not documented.
  if (cloudCode === "Directory_ResourceSizeExceeded" || /maximum of \d+|credential limit/i.test(body)) {
    return failure("noRoomForSecret", target, "the application holds as many credentials as it may", {
      remedy: "Remove an unused secret from the application.",
      cloudCode,
    });
  }
  if (/No password credential found/i.test(body)) {
    return failure("notFound", target, "the application has no such secret", {
      remedy: "It may have been removed already.",
      cloudCode,
    });
  }
  return undefined;
}
