import { type CallTarget, type CloudFailure, type FailedAnswer, failure, retryAfter, shortCode } from "./failure.ts";

/**
 * Returns the failure of an unsuccessful response whose meaning is specific to Microsoft Graph, or undefined for other
 * responses. Codes are from https://learn.microsoft.com/graph/errors and from observed responses. Texts of the response decide
 * only if the code does not.
 */
export function graphFailure(answer: FailedAnswer, target: CallTarget): CloudFailure | undefined {
  const { status, body } = answer;
  const cloudCode = shortCode(body);
  if (status === 429) {
    return failure("throttled", target, "the service returned status 429 (too many requests)", {
      remedy: "No action needed: the service retries later.",
      retryAfterSeconds: retryAfter(answer),
      cloudCode,
    });
  }
  // Not `throttled`, even with a Retry-After: a change may have been applied, so the caller must not repeat it.
  if (status >= 500) {
    return failure("unreachable", target, `the service returned status ${status}`, {
      remedy: "Check https://status.azure.com for an outage. The service retries later.",
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
    return failure("resyncRequired", target, "Microsoft Graph no longer has the changes since the last listing", {
      remedy: "No action needed: the service lists everything again.",
      cloudCode,
    });
  }
  return status === 400 ? rejectedWriteFailure(body, cloudCode, target) : undefined;
}

function rejectedWriteFailure(
  body: string,
  cloudCode: string | undefined,
  target: CallTarget,
): CloudFailure | undefined {
  if (cloudCode === "CredentialInvalidLifetimeAsPerAppPolicy") {
    return failure("lifetimePolicy", target, "a policy limits new secrets to a shorter lifetime", {
      remedy:
        "Choose a shorter validity, or grant the service's identity the Microsoft Graph application permission Policy.Read.ApplicationConfiguration, so that the service can follow the policy.",
      cloudCode,
    });
  }
  if (cloudCode === "CredentialTypeNotAllowedAsPerAppPolicy") {
    return failure("typePolicy", target, "a policy forbids new secrets for this application", {
      remedy: "Let the application sign in with a certificate or a federated credential, or exempt it from the policy.",
      cloudCode,
    });
  }
  // Applications for personal accounts may have only two secrets. The code of that response is not documented, and its text
  // varies.
  if (cloudCode === "Directory_ResourceSizeExceeded" || /maximum of \d+|credential limit/i.test(body)) {
    return failure("noRoomForSecret", target, "the application has the maximum number of credentials", {
      remedy: "Remove an unused secret from the application.",
      cloudCode,
    });
  }
  if (/No password credential found/i.test(body)) {
    return failure("notFound", target, "the application has no such secret", {
      remedy: "No action needed if the secret was removed.",
      cloudCode,
    });
  }
  return undefined;
}
