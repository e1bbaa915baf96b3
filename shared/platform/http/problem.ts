/**
 * All problems of the API by their stable code. The code is also the last part of the problem's `type` URI (`/problems/<code>`,
 * RFC 9457) and is listed in the OpenAPI document. `detail` is an example.
 */
export const PROBLEMS = {
  malformedRequest: {
    status: 400,
    title: "The request is malformed",
    detail: "The body is not valid JSON in UTF-8. Check its quotes and commas.",
  },
  invalidRequest: {
    status: 400,
    title: "The request is invalid",
    detail: "Correct this and send the request again: query.limit: must be at most 1000",
  },
  missingBody: {
    status: 400,
    title: "The request has no body",
    detail: "This endpoint needs a JSON body, with a Content-Length header.",
  },
  valueRequired: {
    status: 400,
    title: "A value is required",
    detail: "Send newValue, or generate with issuerAccepts: true.",
  },
  invalidCursor: {
    status: 400,
    title: "The cursor is not valid for this request",
    detail: "Send the nextCursor of the previous response, unchanged, with the same filters.",
  },
  idempotencyKeyNotAccepted: {
    status: 400,
    title: "This endpoint does not accept an Idempotency-Key",
    detail: "Send the request without the header Idempotency-Key.",
  },
  signInStale: {
    status: 400,
    title: "This sign-in can't be completed",
    detail: "Start again: complete the sign-in within ten minutes, once, in the browser in which you started it.",
  },
  signInFailed: {
    status: 400,
    title: "The sign-in failed",
    detail: "Try again. If it persists, give an administrator this request ID.",
  },
  unauthorized: {
    status: 401,
    title: "Authentication is required",
    detail: "Send a valid token: Authorization: Bearer <token>.",
  },
  invalidCredentials: { status: 401, title: "The username or password is wrong", detail: "Check both and try again." },
  passwordExpired: {
    status: 401,
    title: "The password has expired",
    detail: "An administrator set this password, and it was not used in time. Ask an administrator for a new one.",
  },
  secondFactorRequired: {
    status: 401,
    title: "A second factor is required",
    detail:
      "Send the same request with a second factor: totp, recoveryCode or passkey. methods lists those of the user.",
  },
  secondFactorFailed: {
    status: 401,
    title: "The second factor is wrong",
    detail: "The second factor is wrong, expired, or was used before. Send the same request with another one.",
  },
  forbidden: { status: 403, title: "Your role does not allow this", detail: "This requires the role admin." },
  interactiveOnly: {
    status: 403,
    title: "A token or session of a signed-in person is required",
    detail: "Sign in and use that token: API tokens and Entra tokens are not accepted here.",
  },
  sessionOnly: {
    status: 403,
    title: "A browser session is required",
    detail: "Sign in on the page of this service and decide there: tokens are not accepted here.",
  },
  programTokenOnly: {
    status: 403,
    title: "An API token or Entra token is required",
    detail: "Create an API token with POST /auth/tokens and send it: Authorization: Bearer <token>.",
  },
  passwordChangeRequired: {
    status: 403,
    title: "Your password must be changed first",
    detail: "Choose another password with POST /auth/password.",
  },
  secondFactorEnrollmentRequired: {
    status: 403,
    title: "You must add a second factor first",
    detail: "Add an authenticator app with POST /auth/me/second-factor/totp, or a passkey.",
  },
  stepUpRequired: {
    status: 403,
    title: "You must confirm your identity first",
    detail: "Confirm your identity with POST /auth/step-up and a second factor, then send the same request again.",
  },
  approvalRequired: {
    status: 403,
    title: "Another administrator must approve this",
    detail:
      "Ask another administrator to approve the request (approvalId), then send the same request again within 24 hours.",
  },
  ssoOnly: { status: 403, title: "Password sign-in is disabled", detail: "Sign in at /auth/sso/login." },
  signInRefused: {
    status: 403,
    title: "You are not allowed to sign in",
    detail: "Ask an administrator for access and give them this request ID.",
  },
  crossSite: {
    status: 403,
    title: "The request came from another site",
    detail: "Send it from a page of this service, or with a token.",
  },
  licenseRequired: {
    status: 403,
    title: "Your license does not include this",
    detail: "This requires the tier pro. GET /system/license/status returns the available tier.",
  },
  notFound: {
    status: 404,
    title: "There is no such resource",
    detail: "The asset kv-payments-prod.secret.no-such-secret does not exist.",
  },
  unknownPath: { status: 404, title: "There is no such path", detail: "GET /openapi.json lists the paths." },
  methodNotAllowed: {
    status: 405,
    title: "This path does not support that method",
    detail: "The header Allow lists the supported methods.",
  },
  conflict: {
    status: 409,
    title: "The request conflicts with the current state",
    detail: "Read the resource again: its state does not allow this now.",
  },
  alreadyExists: {
    status: 409,
    title: "The resource already exists",
    detail: "This name is already in use. Choose another name, or change the existing resource.",
  },
  serviceVault: {
    status: 409,
    title: "The service's own key vault can't be used here",
    detail: "Choose another vault: this one stores the secrets of the service itself.",
  },
  rotationUnfinished: {
    status: 409,
    title: "Another rotation of this resource is unfinished",
    detail: "Wait for the rotation that is in progress, or finish or cancel it.",
  },
  willBreak: {
    status: 409,
    title: "A consumer would keep using the old value",
    detail: "Leave the consumer out, or let it reference the secret without a version.",
  },
  notRotatable: {
    status: 409,
    title: "This can't be rotated",
    detail: "Only secrets that do not back a certificate can be rotated.",
  },
  noRoomForSecret: {
    status: 409,
    title: "The application can't have another client secret",
    detail: "Remove a client secret, or send removeExpired: true if one has expired.",
  },
  notFinishable: {
    status: 409,
    title: "The old secret can't be removed yet",
    detail: "A consumer still uses the old secret; the rotation names it in reasons.",
  },
  syncLoop: {
    status: 409,
    title: "The sync would form a loop",
    detail: "Choose another target: this one is copied back to the source.",
  },
  scanRunning: {
    status: 409,
    title: "A scan is already in progress",
    detail: "Wait for the scan in progress, cancel it, or send the mode force.",
  },
  requestInProgress: {
    status: 409,
    title: "The first request with this Idempotency-Key is in progress",
    detail: "Send the request again after the time in Retry-After.",
  },
  outcomeUnknown: {
    status: 409,
    title: "The first request with this Idempotency-Key may have taken effect",
    detail: "Find out whether it took effect, then send what is missing with a new key.",
  },
  preconditionFailed: {
    status: 412,
    title: "The resource was changed in the meantime",
    detail: "The alert rule was changed since you read it. Read it again and repeat the request.",
  },
  bodyTooLarge: {
    status: 413,
    title: "The request body is too large",
    detail: "A body can have up to 1048576 bytes (1 MiB).",
  },
  unsupportedMediaType: {
    status: 415,
    title: "The content type is not supported",
    detail: "Send the body as JSON with the header Content-Type: application/json.",
  },
  idempotencyKeyReused: {
    status: 422,
    title: "The Idempotency-Key was used for another request",
    detail: "Use a new key for each request.",
  },
  rateLimited: { status: 429, title: "Too many requests", detail: "Wait for the time in Retry-After." },
  tooManyAttempts: { status: 429, title: "Too many failed sign-ins", detail: "Wait for the time in Retry-After." },
  internal: {
    status: 500,
    title: "Something went wrong in the service",
    detail: "Try again. If it persists, report this request ID.",
  },
  unavailable: {
    status: 503,
    title: "A service this one depends on is unavailable",
    detail: "Try again after the time in Retry-After.",
  },
  rowUnreadable: {
    status: 503,
    title: "Stored data that the answer needs can't be read",
    detail:
      "A row of the table AlertRules can't be read: it was changed outside of this service. An administrator finds it in the audit log (storage.rowUnreadable), and restores it from a backup, deletes it, or accepts it (npm run store -- sign).",
  },
  storeIsNewer: {
    status: 503,
    title: "A newer version of the service has used its storage",
    detail:
      "Deploy the newer version again, or stop the app, run npm run store -- prepare-rollback with the newer version, and then start this version.",
  },
} as const;

export type ProblemCode = keyof typeof PROBLEMS;

/** An error of the input: its location (`body.mode`, `query.limit`) and description. */
export interface ProblemPart {
  path: string;
  message: string;
}

/** Optional parts of a problem. */
export interface ProblemExtras {
  /** Errors of the input. Omitted from the document if empty. */
  errors?: ProblemPart[];
  /** Headers of the answer, such as `{ Allow: "GET, HEAD" }`. */
  headers?: Record<string, string>;
  /** Further members of the document (RFC 9457, 3.2), such as `{ scanId }` of the scan that is running. */
  members?: Record<string, unknown>;
}

/**
 * An answer other than success. Any module can throw it, and the HTTP module converts it to an RFC 9457 document. `detail` says
 * how the caller can fix the request and never contains a secret or a stack trace.
 */
export class Problem extends Error {
  /** Stable. Callers distinguish problems by this code. */
  readonly code: ProblemCode;
  readonly errors: ProblemPart[] | undefined;
  readonly headers: Record<string, string>;
  readonly members: Record<string, unknown>;

  /**
   * @param code - Determines the status and the title (see `PROBLEMS`).
   * @param detail - How the caller can fix the request, in sentences: "Send the same request with a name that is not used."
   */
  constructor(code: ProblemCode, detail: string, more: ProblemExtras = {}) {
    super(detail);
    this.name = "Problem";
    this.code = code;
    this.errors = more.errors;
    this.headers = more.headers ?? {};
    this.members = more.members ?? {};
  }

  /** HTTP status, 400 or higher. */
  get status(): number {
    return PROBLEMS[this.code].status;
  }

  /**
   * Returns the problem document (RFC 9457, 3.1).
   *
   * @param instance - The request id, which is also in the log.
   */
  document(instance: string): Record<string, unknown> {
    return {
      type: `/problems/${this.code}`,
      title: PROBLEMS[this.code].title,
      status: this.status,
      detail: this.message,
      instance,
      code: this.code,
      ...(this.errors ? { errors: this.errors } : {}),
      ...this.members,
    };
  }
}

/**
 * Creates a 404.
 *
 * @param what - Names the resource at the start of a sentence: "The alert rule payments".
 */
export const notFound = (what: string): Problem => new Problem("notFound", `${what} does not exist.`);

/**
 * Creates a 400 for one member of the body.
 *
 * @param member - Location in the body: `filters.vault`.
 * @param message - Continues after the member: "must be a vault's name".
 */
export const invalidBody = (
  member: string,
  message: string,
  { members }: Pick<ProblemExtras, "members"> = {},
): Problem =>
  new Problem("invalidRequest", `Correct this and send the request again: body.${member}: ${message}`, {
    errors: [{ path: `body.${member}`, message }],
    ...(members && { members }),
  });

/**
 * Creates a 429 with `Retry-After` (RFC 6585, 4), or a 503 for the other codes (RFC 9110, 15.6.4).
 *
 * @param seconds - Rounded up to at least one whole second.
 */
export function retryLater(
  code: "rateLimited" | "tooManyAttempts" | "unavailable" | "rowUnreadable" | "storeIsNewer",
  detail: string,
  seconds: number,
) {
  return new Problem(code, detail, { headers: { "Retry-After": String(Math.max(1, Math.ceil(seconds))) } });
}
