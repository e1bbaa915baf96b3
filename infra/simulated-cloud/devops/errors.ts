// Error responses of Azure DevOps.

import { type ErrorResponses, retryAfter, type ServiceResponse } from "../http.ts";

/**
 * Ways in which Azure DevOps rejects a token. `page203`, `page200`: the sign-in page with this status. `redirect`: a redirect
 * to the sign-in page. `message401`: a JSON error. `anonymous`: only the connection data endpoint responds, with the anonymous
 * identity, and all others return the error of `message401`.
 */
export const TOKEN_MODES = ["page203", "page200", "redirect", "message401", "anonymous"] as const;
export type TokenMode = (typeof TOKEN_MODES)[number];

/** Object ID of the anonymous identity. */
export const ANONYMOUS = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";

const SIGN_IN_PAGE = `<!DOCTYPE html>
<html lang="en-US"><head><title>Azure DevOps Services | Sign In</title></head>
<body><form method="post" action="https://login.localhost/"><input name="value" value="[1]"></form></body></html>`;

/**
 * Returns the rejection of a token.
 * @param foreignOrigin Target of a redirect.
 */
export function notSignedIn(mode: TokenMode, foreignOrigin: string): ServiceResponse {
  const page = (status: number): ServiceResponse => ({
    status,
    text: { type: "text/html; charset=utf-8", content: SIGN_IN_PAGE },
  });
  switch (mode) {
    case "page203":
      return page(203);
    case "page200":
      return page(200);
    case "redirect":
      return { status: 302, headers: { location: `${foreignOrigin}/_signin?realm=dev.azure.com` } };
    default:
      return message(
        401,
        "TF400813",
        `The user '${ANONYMOUS}' is not authorized to access this resource.`,
        "UnauthorizedRequestException",
      );
  }
}

/** Returns an error response in the format of Azure DevOps. */
export function message(status: number, code: string, text: string, typeKey: string): ServiceResponse {
  return {
    status,
    body: {
      $id: "1",
      innerException: null,
      message: `${code}: ${text}`,
      typeName: `Microsoft.TeamFoundation.Framework.Server.${typeKey}, Microsoft.TeamFoundation.Framework.Server`,
      typeKey,
      errorCode: 0,
      eventId: 3000,
    },
  };
}

export const missing = (what: string): ServiceResponse =>
  message(404, "VS800075", `${what} does not exist.`, "NotFoundException");
export const denied = (): ServiceResponse =>
  message(403, "VS402904", "Access denied: you do not have the permission that this needs.", "AccessDeniedException");
export const invalid = (text: string): ServiceResponse => message(400, "VS402986", text, "ArgumentException");

/** Rate-limit headers: https://learn.microsoft.com/azure/devops/integrate/concepts/rate-limits */
export const rateHeaders = (delaySeconds: number): Record<string, string> => ({
  "retry-after": String(delaySeconds),
  "x-ratelimit-resource": "TSTU",
  "x-ratelimit-delay": String(delaySeconds),
  "x-ratelimit-limit": "200",
  "x-ratelimit-remaining": "0",
  "x-ratelimit-reset": String(Math.floor(Date.now() / 1000) + delaySeconds),
});

export const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({
    ...message(429, "TF400733", "The request has been canceled: Request was blocked.", "RequestBlockedException"),
    headers: retryAfter(seconds),
  }),
  denied,
  firewalled: () =>
    message(403, "VS403463", "The conditional access policy does not let you in.", "AccessCheckException"),
  failed: (status) => message(status, "TF400898", "An internal error occurred.", "UnexpectedException"),
};
