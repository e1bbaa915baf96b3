import type { Clock, Logger, Randomness } from "../runtime.ts";
import { clientAddress } from "./address.ts";
import type { Access, Actor, Caller, Endpoint, Tier } from "./endpoint.ts";
import { missingBody, parse, readJson, readQuery } from "./input.ts";
import { Problem, retryLater } from "./problem.ts";
import type { Decision, RateLimiter } from "./rate-limit.ts";
import type { Reply } from "./reply.ts";

/** A request as the platform hands it over. */
export interface IncomingRequest {
  method: string;
  url: string;
  headers: Headers;
  params: Record<string, string>;
  bytes(): Promise<Uint8Array>;
}

/** What the pipeline needs to know of access, licence and audit, without knowing those rooms. */
export interface Gate {
  /** The actor behind a token that holds now, else undefined. */
  authenticate(token: string): Promise<Actor | undefined>;
  tier(): Promise<Tier>;
  /** Told of every 401 and 403, for the audit log. */
  refused(caller: Caller, endpoint: { name: string; method: string; route: string }, code: string): Promise<void>;
  limiter: RateLimiter;
  signInLimiter: RateLimiter;
  /** A thrown error that is no Problem but has a known answer (a cloud failure), or undefined. */
  translate(error: unknown): Problem | undefined;
}

const RANK: Record<Access, number> = { open: 0, user: 1, auditor: 2, admin: 3 };
const REQUEST_ID = /^[A-Za-z0-9._-]{1,128}$/;

/** https://cheatsheetseries.owasp.org/cheatsheets/REST_Security_Cheat_Sheet.html#security-headers */
const SECURITY_HEADERS: Record<string, string> = {
  "Cache-Control": "no-store",
  "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
  "Referrer-Policy": "no-referrer",
  "Strict-Transport-Security": "max-age=63072000; includeSubDomains",
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
};

export interface Serving<Services> {
  /** The app's rooms, brought in when they are first needed. */
  rooms: () => Promise<{ gate: Gate; services: Services }>;
  trustedProxyHops: number;
  clock: Clock;
  randomness: Randomness;
  log: (requestId: string) => Logger;
}

/** Takes one request through the endpoint: who is it, may it, is the input good, then the handler; errors to problems. */
export async function serve<Services>(
  endpoint: Endpoint<Services>,
  request: IncomingRequest,
  deps: Serving<Services>,
): Promise<Reply> {
  const requestId = requestIdOf(request.headers, deps);
  const log = deps.log(requestId);
  const headers: Record<string, string> = { ...SECURITY_HEADERS, "X-Request-Id": requestId };
  let reply: Reply;
  try {
    reply = await answer(endpoint, request, requestId, headers, { ...deps, log });
  } catch (error) {
    const problem = error instanceof Problem ? error : (await deps.rooms()).gate.translate(error);
    if (!problem) log.error("The request failed", { endpoint: endpoint.name, error: describe(error) });
    reply = problemReply(
      problem ?? new Problem("internal", "Try again; if it stays, report this request id."),
      requestId,
    );
  }
  return { ...reply, headers: { ...headers, ...reply.headers } };
}

async function answer<Services>(
  endpoint: Endpoint<Services>,
  request: IncomingRequest,
  requestId: string,
  headers: Record<string, string>,
  deps: Omit<Serving<Services>, "log"> & { log: Logger },
): Promise<Reply> {
  const rooms = endpoint.standalone ? undefined : await deps.rooms();
  const address = clientAddress(request.headers, deps.trustedProxyHops);
  const actor = rooms && (await letIn(endpoint, request, { requestId, address }, headers, rooms.gate));
  const url = new URL(request.url);
  const params = endpoint.params ? parse(endpoint.params, request.params, "path") : undefined;
  const query = endpoint.query ? parse(endpoint.query, readQuery(url), "query") : undefined;
  const body = endpoint.body ? await readBody(endpoint, request) : undefined;
  return await endpoint.handle({
    params,
    query,
    body,
    // An open endpoint's type has no use for the actor; every other one was let in as somebody.
    actor: actor as Actor,
    caller: { actor: actor?.username ?? "anonymous", address, requestId },
    ifMatch: request.headers.get("if-match") ?? undefined,
    headers: request.headers,
    url,
    // A standalone endpoint asks for them by `load`.
    services: rooms?.services as Services,
    load: async () => (await deps.rooms()).services,
    log: deps.log,
  });
}

/** Who is calling, counted against the limit and allowed to; undefined for an open endpoint. */
async function letIn<Services>(
  endpoint: Endpoint<Services>,
  request: IncomingRequest,
  from: { requestId: string; address: string },
  headers: Record<string, string>,
  gate: Gate,
): Promise<Actor | undefined> {
  const token = bearerToken(request.headers);
  const actor = token === undefined || endpoint.access === "open" ? undefined : await gate.authenticate(token);
  if (endpoint.rateLimit !== "none") {
    const limiter = endpoint.rateLimit === "signIn" ? gate.signInLimiter : gate.limiter;
    const decision = await limiter.take(actor ? `user:${actor.username}` : `address:${from.address}`);
    Object.assign(headers, rateLimitHeaders(decision));
    if (!decision.allowed) {
      throw retryLater("rateLimited", "Wait as long as Retry-After says.", decision.retryAfterSeconds);
    }
  }
  if (endpoint.access !== "open") {
    await admit(endpoint, actor, token !== undefined, { actor: actor?.username ?? "anonymous", ...from }, gate);
  }
  return actor;
}

async function admit<Services>(
  endpoint: Endpoint<Services>,
  actor: Actor | undefined,
  tokenSent: boolean,
  caller: Caller,
  gate: Gate,
): Promise<void> {
  if (!actor) {
    if (tokenSent) await gate.refused(caller, endpoint, "unauthorized");
    throw new Problem(
      "unauthorized",
      tokenSent
        ? "The token is not valid or no longer valid. Sign in again with POST /auth/login."
        : "Send the header Authorization: Bearer <token> with a token from POST /auth/login.",
      { headers: { "WWW-Authenticate": tokenSent ? 'Bearer error="invalid_token"' : "Bearer" } },
    );
  }
  if (RANK[actor.role] < RANK[endpoint.access]) {
    await gate.refused(caller, endpoint, "forbidden");
    throw new Problem("forbidden", `This needs the role ${endpoint.access}; yours is ${actor.role}.`, {
      members: { requiredRole: endpoint.access },
    });
  }
  if (endpoint.tier === "pro" && (await gate.tier()) !== "pro") {
    await gate.refused(caller, endpoint, "licenseRequired");
    throw new Problem("licenseRequired", "This needs the tier pro. GET /system/license/status says what is licensed.", {
      members: { requiredTier: "pro" },
    });
  }
}

async function readBody<Services>(endpoint: Endpoint<Services>, request: IncomingRequest): Promise<unknown> {
  const body = await readJson(request);
  if (!body.present && !endpoint.bodyOptional) throw missingBody();
  return parse(endpoint.body!, body.present ? body.value : {}, "body");
}

function bearerToken(headers: Headers): string | undefined {
  const match = /^Bearer +(\S+) *$/i.exec(headers.get("authorization") ?? "");
  // A malformed header counts as a token that does not hold.
  return match?.[1] ?? (headers.has("authorization") ? "" : undefined);
}

function requestIdOf(headers: Headers, deps: { clock: Clock; randomness: Randomness }): string {
  const given = headers.get("x-request-id") ?? "";
  return REQUEST_ID.test(given) ? given : deps.randomness.ulid(deps.clock.now());
}

function rateLimitHeaders(decision: Decision): Record<string, string> {
  if (decision.limit === 0) return {};
  return {
    "RateLimit-Limit": String(decision.limit),
    "RateLimit-Remaining": String(decision.remaining),
    "RateLimit-Reset": String(decision.resetSeconds),
  };
}

function problemReply(problem: Problem, requestId: string): Reply {
  return {
    status: problem.status,
    headers: problem.headers,
    content: { type: "application/problem+json", data: JSON.stringify(problem.document(requestId)) },
  };
}

/** What a log line may say of an error nobody foresaw. */
export function describe(error: unknown): string {
  return error instanceof Error ? (error.stack ?? `${error.name}: ${error.message}`) : String(error);
}
