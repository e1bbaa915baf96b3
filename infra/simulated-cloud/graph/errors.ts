// Error responses of Microsoft Graph: https://learn.microsoft.com/graph/errors

import { randomUUID } from "node:crypto";
import { type ErrorResponses, type IncomingRequest, retryAfter, type ServiceResponse } from "../http.ts";

/** Returns an error response in the format of Microsoft Graph. */
export function failure(status: number, code: string, message: string): ServiceResponse {
  return { status, body: { error: { code, message } } };
}

export const badRequest = (message: string): ServiceResponse => failure(400, "Request_BadRequest", message);

export function notFound(id: string): ServiceResponse {
  return failure(
    404,
    "Request_ResourceNotFound",
    `Resource '${id}' does not exist or one of its queried reference-property objects are not present.`,
  );
}

export function denied(): ServiceResponse {
  return failure(403, "Authorization_RequestDenied", "Insufficient privileges to complete the operation.");
}

const CONCURRENT =
  "Error due to concurrent requests being made to the tenant. Please wait briefly and retry. This request was not applied.";

/** The three observed error responses to concurrent writes. */
export const concurrent = {
  concurrent400: () => badRequest(CONCURRENT),
  concurrentViolation400: () => failure(400, "Directory_ConcurrencyViolation", CONCURRENT),
  concurrentViolation409: () => failure(409, "Directory_ConcurrencyViolation", CONCURRENT),
};

/** Error responses to a third secret where two are allowed. Azure does not document the text; three texts were observed. */
export const tooManySecrets = {
  twoPasswords: () => badRequest("Not allowed to add 3 passwords. You can only add a maximum of 2 passwords."),
  twoCredentials: () => badRequest("You can only add a maximum of 2 encrypted credentials."),
  credentialLimit: () =>
    badRequest(
      "Unable to save changes because the credential limit has been reached. Please delete a credential and try again.",
    ),
};

/** Error responses to a secret that an app management policy forbids. */
export const policyViolation = {
  lifetimePolicy: () =>
    failure(
      400,
      "CredentialInvalidLifetimeAsPerAppPolicy",
      "Credential lifetime exceeds the max value allowed as per assigned policy.",
    ),
  typePolicy: () =>
    failure(
      400,
      "CredentialTypeNotAllowedAsPerAppPolicy",
      "Credential type not allowed as per assigned policy 'Default app management tenant policy'.",
    ),
};

/** Observed for a federated credential whose issuer and subject, or whose name, the application has already. */
export const duplicateFederated = (what: string): ServiceResponse =>
  failure(409, "Request_MultipleObjectsWithSameKeyValue", `FederatedIdentityCredential with ${what} already exists.`);

export const tooLarge = (): ServiceResponse =>
  failure(
    400,
    "Directory_ResourceSizeExceeded",
    "The size of the object has exceeded its limit. Please reduce the number of values and retry your request.",
  );

export const resyncRequired = (): ServiceResponse =>
  failure(410, "resyncRequired", "Resync required. Any differences between versions must be handled.");

export const unauthorized = (message: string): ServiceResponse => ({
  ...failure(401, "InvalidAuthenticationToken", message),
  headers: {
    "www-authenticate":
      'Bearer realm="", authorization_uri="https://login.localhost/common/oauth2/authorize", client_id="00000003-0000-0000-c000-000000000000"',
  },
});

/** Errors that every operation can return. */
export function errorResponsesOf(request: IncomingRequest): ErrorResponses {
  const withRequestIds = (response: ServiceResponse) => withHeaders(request, response);
  return {
    throttled: (seconds) => withRequestIds(errorResponses.throttled(seconds)),
    denied: () => withRequestIds(denied()),
    firewalled: () => withRequestIds(errorResponses.firewalled()),
    failed: (status) => withRequestIds(errorResponses.failed(status)),
    named: Object.fromEntries(
      Object.entries(errorResponses.named).map(([name, answer]) => [name, () => withRequestIds(answer())]),
    ),
  };
}

const errorResponses = {
  firewalled: () => failure(403, "accessDenied", "Access has been blocked by Conditional Access policies."),
  failed: (status: number) => failure(status, "serviceNotAvailable", "The service is temporarily unavailable."),
  throttled: (seconds?: number) => ({
    ...failure(429, "TooManyRequests", "Too many requests."),
    headers: { ...retryAfter(seconds), "x-ms-throttle-scope": "Tenant_Application/ReadWrite" },
  }),
  named: {
    ...concurrent,
    ...tooManySecrets,
    ...policyViolation,
    tooLarge,
    resyncRequired,
    syncStateNotFound: () => failure(400, "syncStateNotFound", "The sync state generation is not found."),
    throttledTemporarily: () => failure(429, "Request_ThrottledTemporarily", "Your request is throttled temporarily."),
  },
};

/** Adds the headers that every response has, and the request IDs to the body of an error. */
export function withHeaders(request: IncomingRequest, answer: ServiceResponse): ServiceResponse {
  const id = randomUUID();
  const clientRequestId = request.headers["client-request-id"];
  const clientId = typeof clientRequestId === "string" ? clientRequestId : id;
  const { error } = (answer.body ?? {}) as { error?: object };
  const innerError = { date: new Date().toISOString().slice(0, 19), "request-id": id, "client-request-id": clientId };
  return {
    ...answer,
    ...(error !== undefined && { body: { error: { ...error, innerError } } }),
    headers: {
      "request-id": id,
      "client-request-id": clientId,
      "x-ms-ags-diagnostic": '{"ServerInfo":{"DataCenter":"West Europe","Slice":"E","Ring":"5","ScaleUnit":"001"}}',
      "x-ms-resource-unit": "1",
      ...(answer.status === 200 && {
        "content-type":
          "application/json;odata.metadata=minimal;odata.streaming=true;IEEE754Compatible=false;charset=utf-8",
      }),
      ...answer.headers,
    },
  };
}
