import { randomUUID } from "node:crypto";
import { type Answer, type Incoming, type Refusals, retryAfter } from "../http.ts";

/** Error responses of Microsoft Graph: https://learn.microsoft.com/graph/errors */
export function failure(status: number, code: string, message: string): Answer {
  return { status, body: { error: { code, message } } };
}

export const badRequest = (message: string): Answer => failure(400, "Request_BadRequest", message);

export function notFound(id: string): Answer {
  return failure(
    404,
    "Request_ResourceNotFound",
    `Resource '${id}' does not exist or one of its queried reference-property objects are not present.`,
  );
}

export function denied(): Answer {
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

export const tooLarge = (): Answer =>
  failure(
    400,
    "Directory_ResourceSizeExceeded",
    "The size of the object has exceeded its limit. Please reduce the number of values and retry your request.",
  );

export const resyncRequired = (): Answer =>
  failure(410, "resyncRequired", "Resync required. Any differences between versions must be handled.");

export const unauthorized = (message: string): Answer => ({
  ...failure(401, "InvalidAuthenticationToken", message),
  headers: {
    "www-authenticate":
      'Bearer realm="", authorization_uri="https://login.localhost/common/oauth2/authorize", client_id="00000003-0000-0000-c000-000000000000"',
  },
});

/** Errors that every operation can return. */
export function refusalsOf(request: Incoming): Refusals {
  const say = (refusal: Answer) => withHeaders(request, refusal);
  return {
    throttled: (seconds) => say(refusals.throttled(seconds)),
    denied: () => say(denied()),
    firewalled: () => say(refusals.firewalled()),
    failed: (status) => say(refusals.failed(status)),
    named: Object.fromEntries(Object.entries(refusals.named).map(([name, answer]) => [name, () => say(answer())])),
  };
}

const refusals = {
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

/** Adds the headers of every response and the request IDs of an error body. */
export function withHeaders(request: Incoming, answer: Answer): Answer {
  const id = randomUUID();
  const theirs = request.headers["client-request-id"];
  const clientId = typeof theirs === "string" ? theirs : id;
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
