import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { PipelinePolicy, PipelineRequest } from "@azure/core-rest-pipeline";
import * as z from "zod";
import { loadOnce } from "../load-once.ts";
import type { Logger, Randomness } from "../runtime.ts";
import { recordMetric } from "../telemetry.ts";
import { AnswerTimeout, createTransport } from "../transport.ts";
import { CONNECTIONS, type HostLimit } from "./connections.ts";
import {
  asCloudFailure,
  type CallTarget,
  type CloudFailure,
  type FailedAnswer,
  failureOfAnswer,
  foreignHost,
  malformedAnswer,
  noAnswer,
  ranOutOfTime,
} from "./failure.ts";
import type { Identity } from "./identity.ts";

/** How long and how often one call is tried. */
export interface CallLimits {
  /** Requests in all while the answer is 429, or 503 with a Retry-After. */
  throttledTries: number;
  /** Requests in all while the answer is that another write was under way. */
  concurrencyTries: number;
  /** Requests in all while there is no answer, or a 5xx. */
  unreachableTries: number;
  /** Milliseconds one request may take, its body included. */
  requestTimeoutMs: number;
  /** Milliseconds of waiting between the tries of one call, all together. A longer Retry-After fails at once. */
  totalWaitMs: number;
  /** Milliseconds of the first wait where the service names none; each further one doubles, with jitter. */
  firstWaitMs: number;
}

/**
 * Key Vault asks for exponential backoff (https://learn.microsoft.com/azure/key-vault/general/overview-throttling) and its
 * windows are ten seconds long; a call that a minute doesn't help is better taken up by a later message.
 */
export const CALL_LIMITS: CallLimits = {
  throttledTries: 5,
  concurrencyTries: 4,
  unreachableTries: 3,
  requestTimeoutMs: 30_000,
  totalWaitMs: 60_000,
  firstWaitMs: 1_000,
};

/** What a path of a service stands for. */
export interface Route {
  target: CallTarget;
  /**
   * The members of a successful answer without which it is not usable; of a page, without those of its entries. `nothing`:
   * success is 204, without a body. `accepted`: success is 200, 202 or 204, whose JSON, if there is any, is not looked at.
   */
  answer: z.ZodType | "nothing" | "accepted";
  /** The answer is one page of a list, whose links must not lead in a circle and must come to an end. */
  paged?: boolean;
  /** The members of each entry of a page's `value`; without it the entries are not looked at. */
  entry?: z.ZodType;
  /** The answer is handed on as it came. Who wants to know what it says uses `readAnswer`. */
  asText?: boolean;
}

/** A page of a list, its entries not looked at. A link may be empty at the end of a list. */
export const page = z.object({
  value: z.array(z.unknown()),
  nextLink: z
    .string()
    .refine((link) => link === "" || URL.canParse(link))
    .nullish(),
});

/**
 * Pages of one list. Key Vault gives at most 25 entries a page and documents no most per vault; a list of 100,000 that still
 * goes on is one that does not end, and would fill the memory.
 */
const MOST_PAGES = 4_000;

interface CallPolicyOptions {
  /** The only origin a request, and so a token, may go to, such as `https://kv-payments.vault.azure.net`. */
  origin: string;
  /** Of the token, such as `https://vault.azure.net/.default`. */
  scope: string;
  identity: Pick<Identity, "credential">;
  /** The route of a path; undefined when the service has none such. */
  route(path: string): Route | undefined;
  /** Named in the failure when a request would leave the origin. */
  resource: string;
  /**
   * Ends every request of the client. It belongs to the client and not to its calls because the SDKs' lists pass a call's
   * signal to their first page only. What serves many calls is given a `Call` with each request instead.
   */
  signal?: AbortSignal | undefined;
  /** Gets the entries of a list that are not what the service documents; without it such an entry fails the list. */
  unreadable?: Call["unreadable"];
  /** Told when a list goes on behind its first page. */
  hostLimit?: HostLimit | undefined;
  /** What an answer that is no success, or no JSON, means in this service alone; undefined for what it means everywhere. */
  failureOf?: ((answer: FailedAnswer, target: CallTarget) => CloudFailure | undefined) | undefined;
  log: Logger;
  randomness: Randomness;
  limits: CallLimits;
}

/** What a single request, or all pages of one list, are held to. Made by `newCall`. */
export interface Call {
  signal: AbortSignal | undefined;
  /** Gets the entries of a list that are not what the service documents; without it such an entry fails the list. */
  unreadable: ((entry: unknown, failure: CloudFailure) => void) | undefined;
  /** Of the list. */
  pagesAsked: Set<string>;
}

export const newCall = ({ signal, unreadable }: Partial<Omit<Call, "pagesAsked">> = {}): Call => ({
  signal,
  unreadable,
  pagesAsked: new Set(),
});

const transport = loadOnce(() => createTransport(CONNECTIONS));

/** What every SDK client here is made with: the SDK's own retries are off, the policy has them. */
export async function clientOptions(options: CallPolicyOptions) {
  const bodies: Bodies = new WeakMap();
  return {
    retryOptions: { maxRetries: 0 },
    userAgentOptions: { userAgentPrefix: USER_AGENT },
    httpClient: (await transport()).client,
    additionalPolicies: [
      { policy: keepBodyPolicy(bodies), position: "perCall" as const },
      { policy: callPolicy(options, bodies), position: "perRetry" as const },
    ],
  };
}

const USER_AGENT = "credential-lifecycle";

/** What the SDKs put on every request: who asks. */
const commonHeaders = loadOnce(async (): Promise<Record<string, string>> => {
  const { createEmptyPipeline, createHttpHeaders, createPipelineRequest, userAgentPolicy } = await import(
    "@azure/core-rest-pipeline"
  );
  const pipeline = createEmptyPipeline();
  pipeline.addPolicy(userAgentPolicy({ userAgentPrefix: USER_AGENT }));
  const { request } = await pipeline.sendRequest(
    { sendRequest: async (request) => ({ request, status: 200, headers: createHttpHeaders() }) },
    createPipelineRequest({ url: "https://localhost" }),
  );
  return request.headers.toJSON({ preserveCase: true });
});

export interface SentRequest {
  method?: "GET" | "POST" | "PUT" | "PATCH";
  url: string;
  /** Becomes JSON. */
  body?: object | undefined;
  headers?: Record<string, string>;
  /** Gets the headers of its answer. */
  answered?: (header: FailedAnswer["header"]) => void;
  /** Which call it belongs to; without it, to the sender's one. */
  call?: Call;
}

/**
 * Sends requests as the call policy does, without an SDK's client, and gives each answer as it came but for a page's odd
 * entries. For services without an SDK, for those whose SDK throws a whole page away for one entry that lacks a member, and
 * for reading key vaults: there the layers of an SDK's client are most of what a scan costs.
 */
export async function createSender(options: CallPolicyOptions, requestIdHeader = "x-ms-client-request-id") {
  const [{ exchange }, common] = await Promise.all([transport(), commonHeaders()]);
  const own = newCall(options);
  return async ({ method = "GET", url, body, headers, answered, call = own }: SentRequest): Promise<unknown> => {
    const sent: Record<string, string> = { ...common, [requestIdHeader]: randomUUID(), ...headers };
    if (body) sent["content-type"] = "application/json";
    const request = {
      url,
      method,
      headers: sent,
      body: body && JSON.stringify(body),
      timeout: options.limits.requestTimeoutMs,
      signal: call.signal,
    };
    return await tried(url, call, options, async (route, authorization) => {
      sent.authorization = authorization;
      const { status, headers: received, text } = await exchange(request);
      const header = (name: string) => received[name.toLowerCase()]?.toString();
      const { json } = usable({ status, body: text, header }, route, options, call);
      answered?.(header);
      return json;
    });
  };
}

type Bodies = WeakMap<PipelineRequest, PipelineRequest["body"]>;

/**
 * Key Vault's own policy takes the body off a client's first request, which it means to be refused with a challenge. Ours
 * is accepted, so it must be whole.
 */
function keepBodyPolicy(bodies: Bodies): PipelinePolicy {
  return {
    name: "keepBodyPolicy",
    sendRequest(request, next) {
      bodies.set(request, request.body);
      return next(request);
    },
  };
}

/**
 * Sends one SDK client's requests: to its own origin only, with a token from the start (so that no request is spent on a
 * challenge), patiently where the service is busy, and hands on none but usable answers. Everything else becomes a
 * `CloudFailure`, thrown here, inside every other policy: the SDKs' own ones never see a 401 or a redirect to act on.
 *
 * It reads one list from its beginning; make a new one for each list.
 */
function callPolicy(options: CallPolicyOptions, bodies: Bodies): PipelinePolicy {
  const call = newCall(options);
  return {
    name: "cloudCallPolicy",
    sendRequest(request, next) {
      const body = bodies.get(request);
      if (body !== undefined) request.body = body;
      if (call.signal) request.abortSignal = call.signal;
      request.timeout = options.limits.requestTimeoutMs;
      return tried(request.url, call, options, async (route, authorization) => {
        request.headers.set("authorization", authorization);
        const response = await next(request);
        const header = (name: string) => response.headers.get(name);
        const answer = { status: response.status, body: response.bodyAsText ?? "", header };
        const { json, isWhole } = usable(answer, route, options, call);
        return isWhole ? response : { ...response, bodyAsText: JSON.stringify(json) };
      });
    },
  };
}

/** Sends a request until there is a usable answer, or no use in another try. */
async function tried<A>(
  url: string,
  { signal, pagesAsked }: Call,
  options: CallPolicyOptions,
  send: (route: Route, authorization: string) => Promise<A>,
): Promise<A> {
  const { hostLimit, limits, log, randomness } = options;
  const route = routeOf(url, options);
  const { target } = route;
  if (route.paged) {
    if (pagesAsked.has(url)) throw malformedAnswer(target, "the pages of the list lead in a circle");
    if (pagesAsked.size === MOST_PAGES) throw malformedAnswer(target, `the list has more than ${MOST_PAGES} pages`);
    pagesAsked.add(url);
  }
  let waited = 0;
  for (let tries = 1; ; tries++) {
    if (signal?.aborted) throw ranOutOfTime(target);
    const credential = await options.identity.credential();
    const token = await credential.getToken(options.scope, signal ? { abortSignal: signal } : {});
    const sending = async () => {
      if (signal?.aborted) throw ranOutOfTime(target);
      return await send(route, `Bearer ${token?.token}`);
    };
    try {
      return await (hostLimit ? hostLimit.run(sending) : sending());
    } catch (error) {
      const late = error instanceof AnswerTimeout;
      // The other lists of a host that does not answer must not wait for their turn, one time-out after the other.
      if (late) hostLimit?.widen();
      const failure = late
        ? noAnswer(target, `no answer within ${limits.requestTimeoutMs / 1000} s`)
        : asCloudFailure(error, target);
      if (failure.code === "throttled") recordMetric("throttled", 1, { operation: target.operation });
      const wait = waitBefore(failure, tries, limits, randomness);
      if (wait === undefined || waited + wait > limits.totalWaitMs) throw failure;
      waited += wait;
      log.debug("A cloud call is tried again.", { ...target, code: failure.code, tries, waitMs: Math.round(wait) });
      await sleep(wait, undefined, signal ? { signal } : {}).catch((reason) => {
        throw asCloudFailure(reason, target);
      });
    }
  }
}

function routeOf(address: string, { origin, resource, route }: CallPolicyOptions): Route {
  const url = new URL(address);
  if (url.origin !== origin || url.username !== "" || url.password !== "") {
    throw foreignHost({ operation: "follow a link", resource }, url.origin);
  }
  const found = route(url.pathname);
  if (!found) throw malformedAnswer({ operation: "follow a link", resource }, "the link leads to no page of a list");
  return found;
}

/**
 * What a usable answer holds, of a page with those entries alone that are what the service documents; `isWhole` says that
 * these are all.
 *
 * @throws {CloudFailure} unless it is a success with the members its route needs.
 */
function usable(
  received: FailedAnswer,
  { target, answer, entry, asText }: Route,
  { failureOf, hostLimit }: CallPolicyOptions,
  { unreadable }: Call,
): { json: unknown; isWhole: boolean } {
  if (!successOf(answer).includes(received.status)) {
    throw failureOf?.(received, target) ?? failureOfAnswer(received, target);
  }
  if (answer === "nothing" || (answer === "accepted" && received.body === ""))
    return { json: undefined, isWhole: true };
  if (asText) return { json: received.body, isWhole: true };
  const json = readAnswer(received.body, { target, answer }, () => failureOf?.(received, target));
  if (!entry) return { json, isWhole: true };
  const page = json as { value: unknown[]; nextLink?: string | null };
  if (page.nextLink) hostLimit?.widen();
  const readable = page.value.filter((one) => {
    const { error } = entry.safeParse(one);
    if (!error) return true;
    const failure = undocumented(target, error);
    if (!unreadable) throw failure;
    unreadable(one, failure);
    return false;
  });
  const isWhole = readable.length === page.value.length;
  return { json: isWhole ? json : { ...page, value: readable }, isWhole };
}

/**
 * What the text of a successful answer says.
 *
 * @param notJson - What it means in this service alone that it is no JSON.
 * @throws {CloudFailure} badResponse unless it has the members that its route needs.
 */
export function readAnswer(
  text: string,
  { target, answer }: Pick<Route, "target" | "answer">,
  notJson?: () => CloudFailure | undefined,
): unknown {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw notJson?.() ?? malformedAnswer(target, "the answer is not JSON");
  }
  if (typeof answer === "string") return json;
  const checked = answer.safeParse(json);
  if (!checked.success) throw undocumented(target, checked.error);
  return json;
}

function successOf(answer: Route["answer"]): readonly number[] {
  if (answer === "nothing") return [204];
  return answer === "accepted" ? [200, 202, 204] : [200];
}

/** The failure of an answer, or a part of one, whose members are not those the service documents. */
export function undocumented(target: CallTarget, error: z.ZodError): CloudFailure {
  const path = error.issues[0]?.path.join(".") || "the answer";
  return malformedAnswer(target, `the answer is not what the service documents, at ${path.slice(0, 100)}`);
}

/** Milliseconds to wait before the next try; undefined when there is none. */
function waitBefore(
  failure: CloudFailure,
  tries: number,
  limits: CallLimits,
  randomness: Randomness,
): number | undefined {
  const { throttledTries: throttled, concurrencyTries: concurrency, unreachableTries: unreachable } = limits;
  const allowed = { throttled, concurrency, unreachable }[failure.code as string] ?? 1;
  if (tries >= allowed) return undefined;
  const jittered = limits.firstWaitMs * (0.5 + randomness.number() / 2);
  // Past a named wait, the jitter keeps the calls that were refused together from coming back together.
  if (failure.retryAfterSeconds !== undefined) return failure.retryAfterSeconds * 1000 + jittered;
  return jittered * 2 ** (tries - 1);
}
