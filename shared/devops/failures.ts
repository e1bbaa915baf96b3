import {
  type CallTarget,
  type CloudFailure,
  type FailedAnswer,
  failure,
  retryAfter,
} from "../platform/azure/failure.ts";

/**
 * Returns the failure of an error response of Azure DevOps. Undefined if its status means the same as in other services of
 * Azure. A client that is not a user of the organization gets status 401, a redirect to the sign-in page, or this page with
 * status 200 or 203. All of them become the failure `unauthorized`.
 */
export function devopsFailure(answer: FailedAnswer, target: CallTarget): CloudFailure | undefined {
  const { status } = answer;
  const cloudCode = errorCodeIn(answer.body);
  if (requiresSignIn(answer)) {
    return failure("unauthorized", target, "Azure DevOps requires a sign-in", {
      remedy:
        "Add the service's identity (GET /identity shows it) as a user of the organization, with the access level Basic, and connect the organization to the identity's tenant.",
      cloudCode,
    });
  }
  if (status === 429 || cloudCode === "TF400733") {
    return failure("throttled", target, "Azure DevOps blocks the identity for too many requests", {
      remedy: "No action needed: the service retries later.",
      retryAfterSeconds: retryAfter(answer),
      cloudCode,
    });
  }
  if (status === 403) {
    return failure("accessDenied", target, "the service's identity does not have permission", {
      remedy: `Give the service's identity ${target.grant ?? "the permission for it"}.`,
      cloudCode,
    });
  }
  if (status === 404) {
    return failure("notFound", target, "it does not exist, or the service's identity has no access to it", {
      remedy:
        "Check the organization URL (orgUrl), and whether the service's identity is a user of the organization and of the project.",
      cloudCode,
    });
  }
  // A write may have succeeded, even if the response has a Retry-After header, so this is not reported as throttling.
  if (status >= 500) {
    return failure("unreachable", target, `the service returned status ${status}`, {
      remedy: "Check https://status.dev.azure.com for an outage. The service retries later.",
      cloudCode,
    });
  }
  if (status === 400) {
    return failure("refused", target, "Azure DevOps rejected the request", {
      remedy: "Check the resource in Azure DevOps. It may have to be completed manually before it can be changed.",
      cloudCode,
    });
  }
  return undefined;
}

const requiresSignIn = ({ status, body, header }: FailedAnswer): boolean =>
  status === 401 ||
  status === 203 ||
  (status >= 300 && status < 400) ||
  (status === 200 && (/\bhtml\b/i.test(header("content-type") ?? "") || /^\s*</.test(body)));

/** Returns the error code at the start of a message, such as `TF400813`. */
const errorCodeIn = (body: string): string | undefined => /"message"\s*:\s*"((?:TF|VS)\d{5,7})\b/.exec(body)?.[1];
