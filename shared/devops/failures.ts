import {
  type CallTarget,
  type CloudFailure,
  type FailedAnswer,
  failure,
  retryAfter,
} from "../platform/azure/failure.ts";

/**
 * Interprets responses that only Azure DevOps gives. Undefined for others. A client that is not a user of the organization gets
 * the sign-in page with 203, 200 or a redirect, or 401 as JSON: all become one failure.
 */
export function devopsFailure(answer: FailedAnswer, target: CallTarget): CloudFailure | undefined {
  const { status } = answer;
  const cloudCode = codeIn(answer.body);
  if (asksToSignIn(answer)) {
    return failure("unauthorized", target, "Azure DevOps asks to sign in", {
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
    return failure("accessDenied", target, "the identity may not do that", {
      remedy: `Give the service's identity ${target.grant ?? "the permission for it"}.`,
      cloudCode,
    });
  }
  if (status === 404) {
    return failure("notFound", target, "it does not exist, or the identity may not see it", {
      remedy: "Check orgUrl, and whether the service's identity is a user of the organization and of the project.",
      cloudCode,
    });
  }
  // The write may have succeeded, even if the response has a Retry-After.
  if (status >= 500) {
    return failure("unreachable", target, `the service answered ${status}`, {
      remedy: "Check https://status.dev.azure.com for an outage. The service retries later.",
      cloudCode,
    });
  }
  if (status === 400) {
    return failure("refused", target, "Azure DevOps does not take it", {
      remedy: "Check it in Azure DevOps. It may have to be completed manually before it can be changed.",
      cloudCode,
    });
  }
  return undefined;
}

const asksToSignIn = ({ status, body, header }: FailedAnswer): boolean =>
  status === 401 ||
  status === 203 ||
  (status >= 300 && status < 400) ||
  (status === 200 && (/\bhtml\b/i.test(header("content-type") ?? "") || /^\s*</.test(body)));

/** Returns the error code at the start of a message, such as `TF400813`. */
const codeIn = (body: string): string | undefined => /"message"\s*:\s*"((?:TF|VS)\d{5,7})\b/.exec(body)?.[1];
