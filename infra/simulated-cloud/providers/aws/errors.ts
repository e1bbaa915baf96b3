// Responses and errors of AWS.

import { randomUUID } from "node:crypto";
import type { ErrorResponses, ServiceResponse } from "../../http.ts";

/** An error of AWS. The simulated services throw it, and the response reports it. */
export class AwsError extends Error {
  readonly code: string;
  readonly status: number;
  constructor(code: string, message: string, status = 400) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

export const awsAnswer = (body: object): ServiceResponse => ({ status: 200, headers: responseHeaders(), body });

export const awsFailure = ({
  code,
  message,
  status,
}: {
  code: string;
  message: string;
  status?: number;
}): ServiceResponse => ({
  status: status ?? 400,
  headers: responseHeaders(),
  body: { __type: code, Message: message },
});

const responseHeaders = () => ({ "content-type": "application/x-amz-json-1.1", "x-amzn-requestid": randomUUID() });

/** Error responses that a fault can cause. `permission` is the permission that the operation needs. */
export const awsErrorResponses = (permission: string): ErrorResponses => ({
  // AWS sends no Retry-After. Clients choose the delay.
  throttled: () => awsFailure({ code: "ThrottlingException", message: "Rate exceeded" }),
  denied: () =>
    awsFailure({
      code: "AccessDeniedException",
      message: `User: arn:aws:iam::123456789012:user/sync is not authorized to perform: ${permission} because no identity-based policy allows it`,
    }),
  firewalled: () => awsFailure({ code: "AccessDeniedException", message: "An explicit deny of a network policy." }),
  // A load balancer in front of the services returns an HTML page.
  failed: (status) => {
    if (status === 401)
      return awsFailure({
        code: "UnrecognizedClientException",
        message: "The security token included in the request is invalid.",
      });
    return status === 500
      ? awsFailure({ code: "InternalServiceError", message: "An error occurred on the server side.", status })
      : {
          status,
          text: {
            type: "text/html",
            content: `<html><body><b>Http/1.1 ${status} Service Unavailable</b></body></html>`,
          },
        };
  },
});
