import { cookieOf } from "./cookies.ts";
import {
  type Access,
  type Actor,
  type Caller,
  type Confirmations,
  type Endpoint,
  isInteractive,
  mayCall,
  type Tier,
} from "./endpoint.ts";
import type { IdempotencyStore } from "./idempotency.ts";
import { requireOwnOrigin, requireSameOrigin } from "./origin.ts";
import type { Pace } from "./pace.ts";
import { Problem, retryLater } from "./problem.ts";
import type { Decision, RateLimiter } from "./rate-limit.ts";

/** Cookie of a browser session. The prefix prevents other hosts of the domain from setting it (RFC 6265bis, 4.1.3.2). */
export const SESSION_COOKIE = "__Host-session";

/** The credential of a request. */
export type Credential = { kind: "bearer"; token: string } | { kind: "session"; cookie: string };

/** The checks before an endpoint runs. The modules for access, licensing and audit implement them. */
export interface Gate {
  /** Throws an error that `translate` converts to a Problem if this build can't work with the store. */
  checkStore(): Promise<void>;
  /** Returns the actor that a credential authenticates, or the problem to answer with. */
  authenticate(credential: Credential): Promise<Actor | Problem>;
  /** Returns the current license tier. */
  tier(): Promise<Tier>;
  /** Records a 401 for an invalid token, or a 403, in the audit log. */
  recordRejection(caller: Caller, endpoint: { method: string; route: string }, code: string): Promise<void>;
  /**
   * Returns the confirmations that the settings require now. While App Configuration can't be read, its last known values count.
   *
   * @throws if the settings are not known, so that no guarded request runs without its confirmation.
   */
  confirmations(): Promise<Confirmations>;
  /** Uses the confirmations of a guarded request up. @throws {Problem} stepUpRequired, approvalRequired, conflict */
  confirm(request: GuardedRequest, needed: Confirmations): Promise<void>;
  /** The requests with an `Idempotency-Key`. */
  idempotency: IdempotencyStore;
  /** Counts calls per caller. */
  limiter: RateLimiter;
  /** Counts sign-ins per address. */
  signInLimiter: RateLimiter;
  /** Spaces out 429 answers and the answers of paced endpoints. */
  pace: Pace;
  /** Converts an expected error that is not a Problem (such as a cloud failure) to a Problem. Undefined for other errors. */
  translate(error: unknown): Problem | undefined;
}

/** A validated request of a `guarded` endpoint. */
export interface GuardedRequest {
  endpoint: Pick<Endpoint<never>, "name" | "method" | "route" | "summary" | "body" | "approverSees">;
  actor: Actor;
  caller: Caller;
  params: unknown;
  query: unknown;
  body: unknown;
  /** See `GuardDecision`. */
  boundTo?: unknown;
}

/**
 * Returns whether requests to an endpoint are rejected while the store does not respond or was written by a newer version. Static
 * files, unknown paths and the liveness check (open, without a limit) are answered. An open GET with a limit can write, such as
 * the last request of a single sign-on.
 */
export const needsStore = ({ access, method, rateLimit }: AdmissionRules): boolean =>
  access !== "open" || method !== "GET" || rateLimit !== "none";

/** A request before authentication. */
export interface UnauthenticatedRequest {
  headers: Headers;
  /** See `clientAddress`. */
  address: string;
  requestId: string;
  /** See `ownOrigin`. */
  origin: string | undefined;
}

type AdmissionRules = Pick<
  Endpoint<never>,
  | "method"
  | "route"
  | "rateLimit"
  | "tier"
  | "interactive"
  | "credential"
  | "via"
  | "beforePasswordChange"
  | "beforeEnrollment"
> & { access: Access };

/**
 * Authenticates, counts and authorizes a request. Authentication comes first, so that an authenticated caller is counted by
 * user. A bearer token takes precedence over a cookie.
 *
 * @param answerHeaders - Receives the headers with the remaining calls.
 * @returns the actor; undefined for an open endpoint.
 * @throws {Problem} rateLimited, unauthorized, crossSite, and the problems of `authorize`
 */
export async function admit(
  endpoint: AdmissionRules,
  { headers, address, requestId, origin }: UnauthenticatedRequest,
  gate: Gate,
  answerHeaders: Record<string, string>,
): Promise<Actor | undefined> {
  const isForPrograms = endpoint.credential === "programToken";
  const credential = isForPrograms ? bearerOf(headers) : credentialOf(headers);
  const authenticated =
    credential && endpoint.access !== "open" ? await gate.authenticate(credential) : noCredential(isForPrograms);
  // For an open endpoint `authenticated` is a problem that is never thrown.
  const actor = authenticated instanceof Problem ? undefined : authenticated;
  if (endpoint.rateLimit !== "none") {
    const limiter = endpoint.rateLimit === "signIn" ? gate.signInLimiter : gate.limiter;
    const decision = await limiter.take(actor ? `user:${actor.username}` : ADDRESS + address);
    Object.assign(answerHeaders, limitHeaders(decision));
    if (!decision.allowed) {
      const seconds = decision.retryAfterSeconds;
      throw retryLater("rateLimited", `Wait ${seconds} seconds, then try again.`, seconds);
    }
  }
  const via = endpoint.via;
  const caller = { actor: actor?.username ?? "anonymous", ...(via && { via }), address, requestId };
  try {
    if (isForPrograms) requireOwnOrigin(headers, origin);
    if (endpoint.access !== "open") {
      if (authenticated instanceof Problem)
        throw isForPrograms && origin !== undefined ? withMetadata(authenticated, origin) : authenticated;
      const readsOnly = endpoint.method === "GET";
      if (credential?.kind === "session" && !readsOnly) requireSameOrigin(headers, origin);
    }
    await authorize(endpoint, actor, gate);
  } catch (error) {
    // A failure to check the credential (5xx) is not a rejected call.
    if (credential && error instanceof Problem && error.status < 500)
      await gate.recordRejection(caller, endpoint, error.code);
    throw error;
  }
  return actor;
}

/**
 * Checks that an authenticated caller may call an endpoint.
 *
 * @param actor - Undefined for an open endpoint.
 * @throws {Problem} passwordChangeRequired, secondFactorEnrollmentRequired, forbidden, interactiveOnly, sessionOnly,
 *   programTokenOnly, licenseRequired
 */
export async function authorize(
  endpoint: AdmissionRules,
  actor: Actor | undefined,
  gate: Pick<Gate, "tier">,
): Promise<void> {
  if (endpoint.access !== "open" && actor) {
    if (actor.mustChangePassword && !endpoint.beforePasswordChange) throw passwordChangeRequired();
    if (actor.mustEnrollSecondFactor && !endpoint.beforePasswordChange && !endpoint.beforeEnrollment)
      throw enrollmentRequired();
    if (!mayCall(actor.role, endpoint.access)) throw roleRequired(endpoint.access, actor.role);
    if (endpoint.interactive) requireInteractive(actor);
    if (endpoint.credential) requireCredential(endpoint.credential, actor);
  }
  if (endpoint.tier === "pro" && (await gate.tier()) !== "pro") throw licenseRequired();
}

/** Prefix of a rate limiter's caller key for callers that are counted by address. */
const ADDRESS = "address:";

/** Returns the address in a rate limiter's caller key, or "" for a caller that is counted by user. */
export const addressOfCaller = (caller: string): string =>
  caller.startsWith(ADDRESS) ? caller.slice(ADDRESS.length) : "";

/**
 * Creates a 403 that names the required role.
 *
 * @param more - Alternative action for the caller.
 */
export function roleRequired(least: Access, role: string, more = ""): Problem {
  const detail = `This needs the role ${least}; yours is ${role}.${more === "" ? "" : ` ${more}`}`;
  return new Problem("forbidden", detail, { members: { requiredRole: least } });
}

/** Creates a 401 for a request without a credential. @param isForPrograms - True for an endpoint that takes no sign-in. */
const noCredential = (isForPrograms: boolean) => {
  const token = isForPrograms ? "an API token or an Entra token" : "a token from POST /auth/login";
  return new Problem("unauthorized", `Send the header Authorization: Bearer <token> with ${token}.`, {
    headers: { "WWW-Authenticate": "Bearer" },
  });
};

/** Returns a 401 of the MCP server with a header that leads to its metadata (RFC 9728, 5.1), and other problems unchanged. */
function withMetadata(problem: Problem, origin: string): Problem {
  const challenge = problem.headers["WWW-Authenticate"];
  if (challenge === undefined) return problem;
  const metadata = `resource_metadata="${origin}/.well-known/oauth-protected-resource/mcp"`;
  const separator = challenge === "Bearer" ? " " : ", ";
  const headers = { ...problem.headers, "WWW-Authenticate": challenge + separator + metadata };
  return new Problem(problem.code, problem.message, { headers });
}

/** Creates a 401 for a credential that is invalid, expired or revoked. */
export const badCredential = (kind: keyof typeof CREDENTIAL_MESSAGES): Problem =>
  new Problem("unauthorized", CREDENTIAL_MESSAGES[kind], {
    headers: { "WWW-Authenticate": 'Bearer error="invalid_token"' },
  });

const CREDENTIAL_MESSAGES = {
  session: "Your session has ended. Sign in again.",
  bearer: "The token is not valid or no longer valid. Sign in again with POST /auth/login.",
  apiToken:
    "This API token has expired, was revoked, or is incomplete. Its owner can create another one with POST /auth/tokens.",
};

const passwordChangeRequired = () =>
  new Problem("passwordChangeRequired", "An administrator set your password. Choose another with POST /auth/password.");

const enrollmentRequired = () =>
  new Problem(
    "secondFactorEnrollmentRequired",
    "An administrator requires a second factor. Add an authenticator app (POST /auth/me/second-factor/totp) or a passkey.",
  );

/** @throws {Problem} interactiveOnly */
export function requireInteractive(actor: Actor): void {
  if (isInteractive(actor)) return;
  throw new Problem(
    "interactiveOnly",
    "Passwords, tokens and sessions can be changed only after a sign-in: use a token from POST /auth/login or a session.",
  );
}

/** @throws {Problem} sessionOnly, programTokenOnly */
function requireCredential(required: NonNullable<Endpoint<never>["credential"]>, { credential }: Actor): void {
  if (required === "session" && credential.kind !== "session")
    throw new Problem("sessionOnly", "Only a person in a browser can send this: sign in on the page of this service.");
  if (required === "programToken" && credential.kind !== "apiToken" && credential.kind !== "entra")
    throw new Problem(
      "programTokenOnly",
      "Send an API token (POST /auth/tokens) or an Entra token: the token of a sign-in can also change passwords and tokens.",
    );
}

/** Creates the problem for a PRO endpoint, or a PRO part of an endpoint, without a license. */
export const licenseRequired = () =>
  new Problem(
    "licenseRequired",
    "This requires the tier pro: a PRO license in LICENSE_KEY. GET /system/license/status returns the license status.",
    {
      members: { requiredTier: "pro" },
    },
  );

/** Reads the credential of a request (RFC 6750, 2.1). A malformed header counts as an invalid token. */
function credentialOf(headers: Headers): Credential | undefined {
  const bearer = bearerOf(headers);
  if (bearer) return bearer;
  const cookie = cookieOf(headers, SESSION_COOKIE);
  return cookie === undefined ? undefined : { kind: "session", cookie };
}

function bearerOf(headers: Headers): Credential | undefined {
  if (!headers.has("authorization")) return undefined;
  const match = /^Bearer +(\S+) *$/i.exec(headers.get("authorization")!);
  return { kind: "bearer", token: match?.[1] ?? "" };
}

/** Returns no headers for the limit 0, which means that the limiter is off. */
function limitHeaders(decision: Decision): Record<string, string> {
  if (decision.limit === 0) return {};
  return {
    "RateLimit-Limit": String(decision.limit),
    "RateLimit-Remaining": String(decision.remaining),
    "RateLimit-Reset": String(decision.resetSeconds),
  };
}
