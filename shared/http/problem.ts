/**
 * Every problem this service answers with, by its stable code. The code is also the last part of the problem's `type`
 * URI (`/problems/<code>`, RFC 9457) and is listed in the OpenAPI document.
 */
export const PROBLEMS = {
  malformedRequest: { status: 400, title: "The request is malformed" },
  invalidRequest: { status: 400, title: "The request is invalid" },
  missingBody: { status: 400, title: "The request has no body" },
  valueRequired: { status: 400, title: "A value is needed" },
  invalidCursor: { status: 400, title: "The cursor is not valid for this request" },
  signInStale: { status: 400, title: "This sign-in can't be completed" },
  signInFailed: { status: 400, title: "The sign-in failed" },
  unauthorized: { status: 401, title: "Authentication is required" },
  invalidCredentials: { status: 401, title: "The username or password is wrong" },
  forbidden: { status: 403, title: "Your role does not allow this" },
  interactiveOnly: { status: 403, title: "This needs a token or session of somebody who signed in" },
  passwordChangeRequired: { status: 403, title: "Your password must be changed first" },
  ssoOnly: { status: 403, title: "Passwords are switched off" },
  signInRefused: { status: 403, title: "You may not sign in" },
  crossSite: { status: 403, title: "The request came from another site" },
  licenseRequired: { status: 403, title: "Your licence does not include this" },
  notFound: { status: 404, title: "There is no such resource" },
  unknownPath: { status: 404, title: "There is no such path" },
  methodNotAllowed: { status: 405, title: "This path does not take that method" },
  conflict: { status: 409, title: "The request conflicts with the current state" },
  alreadyExists: { status: 409, title: "It exists already" },
  serviceVault: { status: 409, title: "The service's own key vault is never touched by this" },
  rotationUnfinished: { status: 409, title: "A rotation of this is not over" },
  willBreak: { status: 409, title: "A consumer would go on with the old value" },
  notRotatable: { status: 409, title: "This can't be rotated" },
  noRoomForSecret: { status: 409, title: "The application can't have another client secret" },
  notFinishable: { status: 409, title: "The old secret can't be removed yet" },
  syncLoop: { status: 409, title: "Secrets would be copied in a circle" },
  scanRunning: { status: 409, title: "A scan is already running" },
  preconditionFailed: { status: 412, title: "The resource was changed in the meantime" },
  bodyTooLarge: { status: 413, title: "The request body is too large" },
  unsupportedMediaType: { status: 415, title: "The content type is not supported" },
  rateLimited: { status: 429, title: "Too many requests" },
  tooManyAttempts: { status: 429, title: "Too many failed sign-ins" },
  internal: { status: 500, title: "Something went wrong on our side" },
  unavailable: { status: 503, title: "A service this one depends on is unavailable" },
} as const;

export type ProblemCode = keyof typeof PROBLEMS;

/** One thing wrong with the input: where (`body.mode`, `query.limit`) and what. */
export interface ProblemPart {
  path: string;
  message: string;
}

/**
 * An answer other than success. Thrown anywhere in the domain; the endpoint kit turns it into an RFC 9457 document.
 * `detail` says what the caller can do about it and never holds a secret or a stack.
 */
export class Problem extends Error {
  readonly code: ProblemCode;
  readonly errors: ProblemPart[] | undefined;
  readonly headers: Record<string, string>;
  /** Further members of the document (RFC 9457 §3.2), such as the id of the scan that is running. */
  readonly members: Record<string, unknown>;

  constructor(
    code: ProblemCode,
    detail: string,
    more: { errors?: ProblemPart[]; headers?: Record<string, string>; members?: Record<string, unknown> } = {},
  ) {
    super(detail);
    this.name = "Problem";
    this.code = code;
    this.errors = more.errors;
    this.headers = more.headers ?? {};
    this.members = more.members ?? {};
  }

  get status(): number {
    return PROBLEMS[this.code].status;
  }

  /** The document itself; `instance` is the request id. */
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

export const notFound = (what: string): Problem => new Problem("notFound", `${what} does not exist.`);

/** 400 for one member of the body, such as `filters.vault`; `message` completes it: "must be a vault's name". */
export const invalidBody = (member: string, message: string): Problem =>
  new Problem("invalidRequest", `Correct this and send the request again: body.${member}: ${message}`, {
    errors: [{ path: `body.${member}`, message }],
  });

/** 429 with `Retry-After` in whole seconds, at least one. */
export function retryLater(code: "rateLimited" | "tooManyAttempts" | "unavailable", detail: string, seconds: number) {
  return new Problem(code, detail, { headers: { "Retry-After": String(Math.max(1, Math.ceil(seconds))) } });
}
