// Error responses of Azure DevOps.

import { type Answer, type Refusals, retryAfter } from "../http.ts";

/**
 * Ways in which Azure DevOps rejects a token. `anonymous`: only the connection data endpoint responds, with the anonymous
 * identity.
 */
export const TOKEN_MODES = ["page203", "page200", "redirect", "message401", "anonymous"] as const;
export type TokenMode = (typeof TOKEN_MODES)[number];

export const ANONYMOUS = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";

const SIGN_IN_PAGE = `<!DOCTYPE html>
<html lang="en-US"><head><title>Azure DevOps Services | Sign In</title></head>
<body><form method="post" action="https://login.localhost/"><input name="value" value="[1]"></form></body></html>`;

/**
 * Returns the rejection of a token.
 * @param elsewhere target of a redirect
 */
export function notSignedIn(mode: TokenMode, elsewhere: string): Answer {
  const page = (status: number): Answer => ({
    status,
    text: { type: "text/html; charset=utf-8", content: SIGN_IN_PAGE },
  });
  switch (mode) {
    case "page203":
      return page(203);
    case "page200":
      return page(200);
    case "redirect":
      return { status: 302, headers: { location: `${elsewhere}/_signin?realm=dev.azure.com` } };
    default:
      return message(
        401,
        "TF400813",
        `The user '${ANONYMOUS}' is not authorized to access this resource.`,
        "UnauthorizedRequestException",
      );
  }
}

export function message(status: number, code: string, text: string, typeKey: string): Answer {
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

export const missing = (what: string): Answer =>
  message(404, "VS800075", `${what} does not exist.`, "NotFoundException");
export const denied = (): Answer =>
  message(403, "VS402904", "Access denied: you do not have the permission that this needs.", "AccessDeniedException");
export const invalid = (text: string): Answer => message(400, "VS402986", text, "ArgumentException");

/** Rate-limit headers: https://learn.microsoft.com/azure/devops/integrate/concepts/rate-limits */
export const rateHeaders = (delaySeconds: number): Record<string, string> => ({
  "retry-after": String(delaySeconds),
  "x-ratelimit-resource": "TSTU",
  "x-ratelimit-delay": String(delaySeconds),
  "x-ratelimit-limit": "200",
  "x-ratelimit-remaining": "0",
  "x-ratelimit-reset": String(Math.floor(Date.now() / 1000) + delaySeconds),
});

export const refusals: Refusals = {
  throttled: (seconds) => ({
    ...message(429, "TF400733", "The request has been canceled: Request was blocked.", "RequestBlockedException"),
    headers: retryAfter(seconds),
  }),
  denied,
  firewalled: () =>
    message(403, "VS403463", "The conditional access policy does not let you in.", "AccessCheckException"),
  failed: (status) => message(status, "TF400898", "An internal error occurred.", "UnexpectedException"),
};
