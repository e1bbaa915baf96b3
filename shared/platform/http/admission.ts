import { cookieOf } from "./cookies.ts";
import { type Access, type Actor, type Caller, type Endpoint, isInteractive, mayCall, type Tier } from "./endpoint.ts";
import { requireSameOrigin } from "./origin.ts";
import type { Pace } from "./pace.ts";
import { Problem, retryLater } from "./problem.ts";
import type { Decision, RateLimiter } from "./rate-limit.ts";

/** The cookie of a browser's session. The prefix keeps other hosts of the domain from setting it (RFC 6265bis, 4.1.3.2). */
export const SESSION_COOKIE = "__Host-session";

/** What a request brings to say who it is made by. */
export type Credential = { kind: "bearer"; token: string } | { kind: "session"; cookie: string };

/** What stands before every endpoint, from the rooms that know of access, licence and audit. */
export interface Gate {
  /** Who a credential stands for now, else what its bearer is told. */
  authenticate(credential: Credential): Promise<Actor | Problem>;
  /** The tier that is licensed now. */
  tier(): Promise<Tier>;
  /** Enters every 401 of a bad token and every 403 in the audit log. */
  refused(caller: Caller, endpoint: { method: string; route: string }, code: string): Promise<void>;
  /** Counts calls by caller. */
  limiter: RateLimiter;
  /** Counts sign-ins by address. */
  signInLimiter: RateLimiter;
  /** Spaces every 429 and the answers of paced endpoints. */
  pace: Pace;
  /** What a caller is told of an error that is no Problem but has a known answer (a cloud failure), or undefined. */
  translate(error: unknown): Problem | undefined;
}

/** A request before anybody knows whose it is. */
export interface Arrival {
  headers: Headers;
  /** See `clientAddress`. */
  address: string;
  requestId: string;
  /** See `ownOrigin`. */
  origin: string | undefined;
}

type Wanted = Pick<
  Endpoint<never>,
  "method" | "route" | "rateLimit" | "tier" | "interactive" | "beforePasswordChange"
> & { access: Access };

/**
 * Who is calling, counted against the limit and allowed to. The credential is looked at first, so that a caller with one is
 * counted as such. A bearer token beside a cookie counts instead of it.
 *
 * @param answerHeaders - Gets the headers that say what is left of the limit.
 * @returns Undefined for an open endpoint.
 * @throws {Problem} rateLimited, unauthorized, crossSite, passwordChangeRequired, forbidden, interactiveOnly, licenseRequired
 */
export async function admit(
  endpoint: Wanted,
  { headers, address, requestId, origin }: Arrival,
  gate: Gate,
  answerHeaders: Record<string, string>,
): Promise<Actor | undefined> {
  const credential = credentialOf(headers);
  const found = credential && endpoint.access !== "open" ? await gate.authenticate(credential) : noCredential();
  const actor = found instanceof Problem ? undefined : found;
  if (endpoint.rateLimit !== "none") {
    const limiter = endpoint.rateLimit === "signIn" ? gate.signInLimiter : gate.limiter;
    const decision = await limiter.take(actor ? `user:${actor.username}` : ADDRESS + address);
    Object.assign(answerHeaders, limitHeaders(decision));
    if (!decision.allowed) {
      const seconds = decision.retryAfterSeconds;
      throw retryLater("rateLimited", `Wait ${seconds} seconds, then try again.`, seconds);
    }
  }
  const caller = { actor: actor?.username ?? "anonymous", address, requestId };
  try {
    if (endpoint.access !== "open") {
      if (found instanceof Problem) throw found;
      const readsOnly = endpoint.method === "GET";
      if (credential?.kind === "session" && !readsOnly) requireSameOrigin(headers, origin);
      if (found.mustChangePassword && !endpoint.beforePasswordChange) throw passwordChangeRequired();
      if (!mayCall(found.role, endpoint.access)) throw roleNeeded(endpoint.access, found.role);
      if (endpoint.interactive) requireInteractive(found);
    }
    if (endpoint.tier === "pro" && (await gate.tier()) !== "pro") throw licenseRequired();
  } catch (error) {
    // Who could not be looked at was not refused.
    if (credential && error instanceof Problem && error.status < 500) await gate.refused(caller, endpoint, error.code);
    throw error;
  }
  return actor;
}

/** What a limiter's name of a caller begins with who is counted by address. */
const ADDRESS = "address:";

/** The address in a limiter's name of a caller; of no address where the caller is counted as a user. */
export const addressOfCaller = (caller: string): string =>
  caller.startsWith(ADDRESS) ? caller.slice(ADDRESS.length) : "";

/** 403: names the least role that may do it. @param more - What the caller can do instead. */
export function roleNeeded(least: Access, role: string, more = ""): Problem {
  const detail = `This needs the role ${least}; yours is ${role}.${more === "" ? "" : ` ${more}`}`;
  return new Problem("forbidden", detail, { members: { requiredRole: least } });
}

const noCredential = () =>
  new Problem("unauthorized", "Send the header Authorization: Bearer <token> with a token from POST /auth/login.", {
    headers: { "WWW-Authenticate": "Bearer" },
  });

/** 401 for a credential that does not hold, or no longer. */
export const badCredential = (kind: keyof typeof ENDED): Problem =>
  new Problem("unauthorized", ENDED[kind], { headers: { "WWW-Authenticate": 'Bearer error="invalid_token"' } });

const ENDED = {
  session: "Your session has ended. Sign in again.",
  bearer: "The token is not valid or no longer valid. Sign in again with POST /auth/login.",
  apiToken:
    "This API token has expired, was revoked, or is incomplete. Its owner can create another one with POST /auth/tokens.",
};

const passwordChangeRequired = () =>
  new Problem("passwordChangeRequired", "An administrator set your password. Choose another with POST /auth/password.");

/** @throws {Problem} interactiveOnly */
export function requireInteractive(actor: Actor): void {
  if (isInteractive(actor)) return;
  throw new Problem(
    "interactiveOnly",
    "Passwords, tokens and sessions can be changed only after a sign-in: use a token from POST /auth/login or a session.",
  );
}

/** What an endpoint of the tier pro, or a room that opens only a part without a licence, refuses with. */
export const licenseRequired = () =>
  new Problem(
    "licenseRequired",
    "This requires the tier pro: a PRO license in LICENSE_KEY. GET /system/license/status returns the license status.",
    {
      members: { requiredTier: "pro" },
    },
  );

/** RFC 6750, 2.1. A malformed header counts as a token that does not hold. */
function credentialOf(headers: Headers): Credential | undefined {
  if (headers.has("authorization")) {
    const match = /^Bearer +(\S+) *$/i.exec(headers.get("authorization")!);
    return { kind: "bearer", token: match?.[1] ?? "" };
  }
  const cookie = cookieOf(headers, SESSION_COOKIE);
  return cookie === undefined ? undefined : { kind: "session", cookie };
}

function limitHeaders(decision: Decision): Record<string, string> {
  if (decision.limit === 0) return {};
  return {
    "RateLimit-Limit": String(decision.limit),
    "RateLimit-Remaining": String(decision.remaining),
    "RateLimit-Reset": String(decision.resetSeconds),
  };
}
