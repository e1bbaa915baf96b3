import { collectLeftOut } from "../incomplete-answer.ts";
import type { Clock, Logger, Randomness } from "../runtime.ts";
import { watchChanges } from "../sent-changes.ts";
import { admit, type Gate, type GuardedRequest, needsStore, type UnauthenticatedRequest } from "./admission.ts";
import { codedVersion, currentVersion, versionOf } from "./answer-version.ts";
import { clientAddress } from "./client-address.ts";
import { acceptsGzip, compressed, isCompressible } from "./compression.ts";
import { type Actor, acceptsKey, type Caller, type Confirmations, type Endpoint, isVersioned } from "./endpoint.ts";
import type { KeyedRequest } from "./idempotency.ts";
import { IDEMPOTENCY_HEADER, REPLAYED_HEADER } from "./idempotency-headers.ts";
import { ownOrigin } from "./origin.ts";
import { missingBody, parse, readBody, readQuery } from "./parse-request.ts";
import { Problem } from "./problem.ts";
import { acceptsHtml, problemPage } from "./problem-page.ts";
import { type Cookie, etagOf, type Reply } from "./reply.ts";

/** A request as received from the Azure Functions host. */
export interface IncomingRequest {
  method: string;
  url: string;
  headers: Headers;
  params: Record<string, string>;
  bytes(): Promise<Uint8Array>;
}

/** A response for the Azure Functions host. */
export interface Answer {
  status: number;
  headers: Record<string, string>;
  cookies: Cookie[];
  /** Undefined for HEAD. */
  body: string | Uint8Array | undefined;
}

/** Dependencies of `serve`. */
export interface Serving<Services> {
  /** Loads the app's modules on first use. */
  loadServices: () => Promise<{ gate: Gate; services: Services }>;
  /** See `clientAddress`. */
  trustedProxyHops: number;
  /** See `ownOrigin`. */
  publicBaseUrl: string | undefined;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
  /** Runs the request so that every line logged meanwhile contains the request id. */
  within<T>(requestId: string, work: () => Promise<T>): Promise<T>;
}

const REQUEST_ID = /^[A-Za-z0-9._-]{1,128}$/;

/** https://cheatsheetseries.owasp.org/cheatsheets/REST_Security_Cheat_Sheet.html#security-headers */
const SECURITY_HEADERS: Record<string, string> = {
  "Cache-Control": "no-store",
  "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "Referrer-Policy": "no-referrer",
  "Strict-Transport-Security": "max-age=63072000; includeSubDomains",
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
};

/**
 * Serves one request: authentication, authorization, validation of the input, then the handler. Any error, also one of loading
 * the endpoint, becomes a problem document. HEAD is answered like GET, without the body (RFC 9110, 9.3.2).
 */
export async function serve<Services>(
  load: () => Promise<Endpoint<Services>>,
  request: IncomingRequest,
  deps: Serving<Services>,
): Promise<Answer> {
  const requestedId = request.headers.get("x-request-id") ?? "";
  const requestId = REQUEST_ID.test(requestedId) ? requestedId : deps.randomness.ulid(deps.clock.now());
  return await deps.within(requestId, async () => {
    const headers: Record<string, string> = { ...SECURITY_HEADERS, "X-Request-Id": requestId };
    let endpoint: Endpoint<Services> | undefined;
    let reply: Reply;
    try {
      endpoint = await load();
      const answer = () => handleRequest(endpoint!, request, requestId, headers, deps);
      reply =
        request.method === "GET" || request.method === "HEAD" ? await withoutUnreadableRows(answer) : await answer();
    } catch (error) {
      reply = await problemOf(error, endpoint, request, requestId, deps);
    }
    return await answerOf(reply, headers, request, endpoint);
  });
}

/**
 * Returns the reply of `handle` to a GET request. If rows could not be read and were left out, the header `X-Unreadable-Rows`
 * has their number, and a list names them in `unreadableRows`.
 */
export async function withoutUnreadableRows(handle: () => Promise<Reply>): Promise<Reply> {
  const { result: reply, leftOut } = await collectLeftOut(handle);
  if (leftOut === undefined) return reply;
  const headers = { ...reply.headers, "X-Unreadable-Rows": String(leftOut.count) };
  return isList(reply.json)
    ? { ...reply, headers, json: { ...reply.json, unreadableRows: leftOut } }
    : { ...reply, headers };
}

/** Returns whether a reply is a list. The OpenAPI document uses the same rule (`addUnreadableRows`). */
const isList = (json: unknown): json is { items: unknown[] } =>
  typeof json === "object" && json !== null && "items" in json && Array.isArray(json.items);

async function handleRequest<Services>(
  endpoint: Endpoint<Services>,
  request: IncomingRequest,
  requestId: string,
  answerHeaders: Record<string, string>,
  deps: Serving<Services>,
): Promise<Reply> {
  const address = clientAddress(request.headers, deps.trustedProxyHops);
  const url = new URL(request.url);
  const origin = ownOrigin(url, deps.publicBaseUrl);
  const unauthenticatedRequest: UnauthenticatedRequest = { headers: request.headers, address, requestId, origin };
  const loadedServices = endpoint.standalone ? undefined : await deps.loadServices();
  if (endpoint.paced !== undefined) await loadedServices?.gate.pace.waitForSlot(endpoint.paced);
  if (needsStore(endpoint)) await loadedServices?.gate.checkStore();
  const actor = loadedServices && (await admit(endpoint, unauthenticatedRequest, loadedServices.gate, answerHeaders));
  const key = request.method === "POST" ? request.headers.get(IDEMPOTENCY_HEADER) : null;
  if (key !== null && !acceptsKey(endpoint)) throw keyNotAccepted(endpoint);
  const params = endpoint.params ? parse(endpoint.params, request.params, "path") : undefined;
  const query = endpoint.query ? parse(endpoint.query, readQuery(url), "query") : undefined;
  const body = endpoint.body ? await parseBody(endpoint, request) : undefined;
  // Handlers of open endpoints don't use the actor. For other endpoints, `admit` returned one.
  const input = { params, query, body, actor: actor as Actor };
  const { via } = endpoint;
  const name = actor?.username ?? "anonymous";
  const caller = { actor: name, ...(actor && { role: actor.role }), ...(via && { via }), address, requestId };
  const run = async () => {
    const confirmed =
      endpoint.guarded && loadedServices
        ? await confirm({ ...endpoint, guarded: endpoint.guarded }, input, caller, loadedServices)
        : NO_CONFIRMATIONS;
    return await endpoint.handle({
      ...input,
      confirmed,
      caller,
      ifMatch: request.headers.get("if-match") ?? undefined,
      headers: request.headers,
      url,
      origin,
      // A standalone endpoint gets the services from `admit`.
      services: loadedServices?.services as Services,
      admit: async (access) => {
        const { gate, services } = await deps.loadServices();
        if (access !== "open") await gate.checkStore();
        const admitted = await admit(
          { ...endpoint, access, rateLimit: "caller" },
          unauthenticatedRequest,
          gate,
          answerHeaders,
        );
        return { actor: admitted as Actor, services };
      },
      log: deps.log,
    });
  };
  const { repeat } = endpoint;
  if (key === null || repeat === undefined || loadedServices === undefined) return await run();
  const keyed = { caller: caller.actor, key, requestId, content: [endpoint.name, params, query, body] };
  return await runOnce(keyed, { ...loadedServices, repeat, params, run, log: deps.log });
}

/** Creates a 400 for an endpoint that does not accept an `Idempotency-Key`. */
const keyNotAccepted = ({ route }: Pick<Endpoint<never>, "route">): Problem =>
  new Problem(
    "idempotencyKeyNotAccepted",
    `POST /${route} does not accept the header ${IDEMPOTENCY_HEADER}: its answer shows a secret once, it belongs to a sign-in, or it sends a message. Send the request without the header.`,
  );

/**
 * Runs a request with an `Idempotency-Key`, or answers from the resource of the same earlier request.
 *
 * @throws {Problem} of `IdempotencyStore.begin`, or the error of the request
 */
async function runOnce<Services>(
  request: KeyedRequest,
  {
    gate,
    services,
    repeat,
    params,
    run,
    log,
  }: {
    gate: Gate;
    services: Services;
    repeat: NonNullable<Endpoint<Services>["repeat"]>;
    params: unknown;
    run: () => Promise<Reply>;
    log: Logger;
  },
): Promise<Reply> {
  const store = gate.idempotency;
  const begun = await store.begin(request);
  if ("result" in begun) {
    const { status, resourceId: id, location } = begun.result;
    const json: unknown = await repeat.answer({ id, params, services });
    const etag = etagOf(json);
    const headers = {
      [REPLAYED_HEADER]: "true",
      ...(location !== undefined && { Location: location }),
      ...(etag !== undefined && { ETag: etag }),
    };
    return { status, headers, json };
  }
  const { reserved } = begun;
  // If the outcome can't be stored, the reservation stays, and a repeat answers that the outcome is unknown, which is true.
  const recordOutcome = async (write: Promise<void>) =>
    await write.catch((error: unknown) =>
      log.warn("The outcome of a request with an Idempotency-Key was not stored", { error: describe(error) }),
    );
  const { result, sentChange } = watchChanges(run);
  let reply: Reply;
  try {
    reply = await result;
  } catch (error) {
    // A problem rejects a request that changed nothing. After any other error the request may have taken effect if it sent a
    // change.
    const hadNoEffect = error instanceof Problem || !sentChange();
    await recordOutcome(hadNoEffect ? store.release(reserved) : store.markUnknown(reserved));
    throw error;
  }
  const resourceId = repeat.idOf(reply.json);
  const { Location: location } = reply.headers ?? {};
  await recordOutcome(
    resourceId === null
      ? store.release(reserved)
      : store.complete(reserved, { status: reply.status, resourceId, location }),
  );
  return reply;
}

export const NO_CONFIRMATIONS: Confirmations = { stepUp: false, approval: false };

/** Returns the confirmations that a guarded request needed. Throws if the request does not have them. */
export async function confirm<Services>(
  endpoint: Endpoint<Services> & Required<Pick<Endpoint<Services>, "guarded">>,
  input: Pick<GuardedRequest, "params" | "query" | "body" | "actor">,
  caller: Caller,
  { gate, services }: { gate: Gate; services: Services },
): Promise<Confirmations> {
  const required = await gate.confirmations();
  if (!required.stepUp && !required.approval) return required;
  const decision = await endpoint.guarded({ ...input, services }, required);
  if (decision === false) return NO_CONFIRMATIONS;
  const needed = decision === "stepUp" ? { ...required, approval: false } : required;
  const boundTo = typeof decision === "object" ? decision.boundTo : undefined;
  await gate.confirm({ endpoint, ...input, caller, boundTo }, needed);
  return needed;
}

async function parseBody<Services>(endpoint: Endpoint<Services>, request: IncomingRequest): Promise<unknown> {
  const body = await readBody(request, endpoint.form ?? false);
  if (!body.present && !endpoint.bodyOptional) throw missingBody();
  return parse(endpoint.body!, body.present ? body.value : {}, "body");
}

/** Returns the problem document of an error. An unexpected error is logged, and the document contains only the request id. */
async function problemOf<Services>(
  error: unknown,
  endpoint: Endpoint<Services> | undefined,
  request: IncomingRequest,
  requestId: string,
  deps: Serving<Services>,
): Promise<Reply> {
  // Loading the modules may be the step that failed.
  const gate = await deps.loadServices().then(
    (loaded) => loaded.gate,
    () => undefined,
  );
  const knownProblem = error instanceof Problem ? error : gate?.translate(error);
  if (!knownProblem) deps.log.error("The request failed", { endpoint: endpoint?.name, error: describe(error) });
  // A caller that repeats rejected requests without a pause waits for a slot, so that it does not use up the processor.
  if (knownProblem?.status === 429) await gate?.pace.waitForSlot();
  const problem = knownProblem ?? new Problem("internal", "Try again; if it stays, report this request id.");
  if (endpoint?.page && acceptsHtml(request.headers)) return problemPage(problem, requestId);
  return {
    status: problem.status,
    headers: problem.headers,
    content: { type: "application/problem+json", data: JSON.stringify(problem.document(requestId)) },
  };
}

/**
 * Returns the headers of an answer that has a version. Caches may keep the answer and must revalidate it. If the answer depends on
 * the caller, only the caller's own cache may keep it.
 */
const versionHeaders = (version: string, coding: string | undefined, { access }: Pick<Endpoint<never>, "access">) => ({
  ETag: codedVersion(version, coding),
  "Cache-Control": access === "open" ? "public, no-cache" : "private, no-cache",
  Vary: access === "open" ? "Accept-Encoding" : "Accept-Encoding, Authorization, Cookie",
});

/** Converts a reply to the answer for the host: with an ETag, compressed, or without a body for HEAD and 304. */
async function answerOf<Services>(
  reply: Reply,
  headers: Record<string, string>,
  request: IncomingRequest,
  endpoint: Endpoint<Services> | undefined,
): Promise<Answer> {
  const json = reply.json === undefined ? undefined : JSON.stringify(reply.json);
  const content =
    reply.content ?? (json === undefined ? undefined : { type: "application/json; charset=utf-8", data: json });
  const allHeaders: Record<string, string> = {
    ...headers,
    ...reply.headers,
    ...(content && { "Content-Type": content.type }),
  };
  const { status, cookies = [] } = reply;
  if (endpoint && content && status === 200 && isVersioned(endpoint)) {
    // A file brings its own ETag.
    const version = json === undefined ? allHeaders.ETag! : versionOf(allHeaders.ETag ?? etagOf(reply.json), json);
    const isCoded =
      allHeaders["Content-Encoding"] === "gzip" || (isCompressible(content) && acceptsGzip(request.headers));
    Object.assign(allHeaders, versionHeaders(version, isCoded ? "gzip" : undefined, endpoint));
    const tagOfCaller = currentVersion(version, request.headers.get("if-none-match"));
    if (tagOfCaller !== undefined) {
      const { "Content-Type": _type, "Content-Encoding": _coding, ...others } = allHeaders;
      // A proxy may have made the caller's tag weak (`W/`). The tags of this service are strong.
      return { status: 304, headers: { ...others, ETag: tagOfCaller.replace(/^W\//, "") }, cookies, body: undefined };
    }
  }
  if (content === undefined || request.method === "HEAD")
    return { status, headers: allHeaders, cookies, body: undefined };
  if (allHeaders["Content-Encoding"] !== undefined) return { status, headers: allHeaders, cookies, body: content.data };
  const encoded = await compressed(content, request.headers);
  // `allHeaders` last: `Vary` of an answer with a version also names the headers of the caller.
  return { status, headers: { ...encoded.headers, ...allHeaders }, cookies, body: encoded.data };
}

/** Formats an unexpected error for the log. */
function describe(error: unknown): string {
  return error instanceof Error ? (error.stack ?? `${error.name}: ${error.message}`) : String(error);
}
