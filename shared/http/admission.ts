import { type Access, type Actor, type Caller, type Endpoint, mayCall, type Tier } from "./endpoint.ts";
import type { Pace } from "./pace.ts";
import { Problem, retryLater } from "./problem.ts";
import type { Decision, RateLimiter } from "./rate-limit.ts";

/** What stands before every endpoint, from the rooms that know of access, licence and audit. */
export interface Gate {
  /** The actor behind a token that holds now, else undefined. */
  authenticate(token: string): Promise<Actor | undefined>;
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
}

type Wanted = Pick<Endpoint<never>, "method" | "route" | "rateLimit" | "tier"> & { access: Access };

/**
 * Who is calling, counted against the limit and allowed to. The token is looked at first, so that a caller with one is
 * counted as such.
 *
 * @param answerHeaders - Gets the headers that say what is left of the limit.
 * @returns Undefined for an open endpoint.
 * @throws {Problem} rateLimited, unauthorized, forbidden, licenseRequired
 */
export async function admit(
  endpoint: Wanted,
  { headers, address, requestId }: Arrival,
  gate: Gate,
  answerHeaders: Record<string, string>,
): Promise<Actor | undefined> {
  const token = bearerToken(headers);
  const actor = token === undefined || endpoint.access === "open" ? undefined : await gate.authenticate(token);
  if (endpoint.rateLimit !== "none") {
    const limiter = endpoint.rateLimit === "signIn" ? gate.signInLimiter : gate.limiter;
    const decision = await limiter.take(actor ? `user:${actor.username}` : `address:${address}`);
    Object.assign(answerHeaders, limitHeaders(decision));
    if (!decision.allowed) {
      throw retryLater("rateLimited", "Wait as long as Retry-After says.", decision.retryAfterSeconds);
    }
  }
  if (endpoint.access === "open") return undefined;
  const caller = { actor: actor?.username ?? "anonymous", address, requestId };
  if (!actor) {
    if (token === undefined) throw noToken();
    await gate.refused(caller, endpoint, "unauthorized");
    throw badToken();
  }
  if (!mayCall(actor.role, endpoint.access)) {
    await gate.refused(caller, endpoint, "forbidden");
    throw roleNeeded(endpoint.access, actor.role);
  }
  if (endpoint.tier === "pro" && (await gate.tier()) !== "pro") {
    await gate.refused(caller, endpoint, "licenseRequired");
    throw new Problem("licenseRequired", "This needs the tier pro. GET /system/license/status says what is licensed.", {
      members: { requiredTier: "pro" },
    });
  }
  return actor;
}

/** 403: names the least role that may do it. @param more - What the caller can do instead. */
export function roleNeeded(least: Access, role: string, more = ""): Problem {
  const detail = `This needs the role ${least}; yours is ${role}.${more === "" ? "" : ` ${more}`}`;
  return new Problem("forbidden", detail, { members: { requiredRole: least } });
}

const noToken = () =>
  new Problem("unauthorized", "Send the header Authorization: Bearer <token> with a token from POST /auth/login.", {
    headers: { "WWW-Authenticate": "Bearer" },
  });

const badToken = () =>
  new Problem("unauthorized", "The token is not valid or no longer valid. Sign in again with POST /auth/login.", {
    headers: { "WWW-Authenticate": 'Bearer error="invalid_token"' },
  });

/** RFC 6750, 2.1. A malformed header counts as a token that does not hold. */
function bearerToken(headers: Headers): string | undefined {
  const match = /^Bearer +(\S+) *$/i.exec(headers.get("authorization") ?? "");
  return match?.[1] ?? (headers.has("authorization") ? "" : undefined);
}

function limitHeaders(decision: Decision): Record<string, string> {
  if (decision.limit === 0) return {};
  return {
    "RateLimit-Limit": String(decision.limit),
    "RateLimit-Remaining": String(decision.remaining),
    "RateLimit-Reset": String(decision.resetSeconds),
  };
}
