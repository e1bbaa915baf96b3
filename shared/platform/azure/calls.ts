import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { PipelinePolicy, PipelineRequest, PipelineResponse, SendRequest } from "@azure/core-rest-pipeline";
import * as z from "zod";
import { loadOnce } from "../load-once.ts";
import type { Logger, Randomness } from "../runtime.ts";
import { recordMetric } from "../telemetry.ts";
import { AnswerTimeout, AnswerTooLarge, createTransport, type Transport } from "../transport.ts";
import { CONNECTION_LIMITS, type VaultConnections } from "./connections.ts";
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
import type { PacedRequests } from "./key-vault-pace.ts";

/** Limits of one call to the cloud, which can send several requests. */
export interface CallLimits {
  /** Maximum number of requests while responses are 429, or 503 with a `Retry-After`. */
  throttledTries: number;
  /** Maximum number of requests while responses say that another write was in progress. */
  concurrencyTries: number;
  /** Maximum number of requests while there is no response, or a 5xx. */
  unreachableTries: number;
  /** Maximum duration of one request in milliseconds, including the body of its response. */
  requestTimeoutMs: number;
  /** Maximum total wait between the requests of one call in milliseconds. A longer `Retry-After` fails the call at once. */
  totalWaitMs: number;
  /** First wait in milliseconds if the response names none. Each further wait doubles, with jitter. */
  firstWaitMs: number;
}

/**
 * Key Vault requires exponential backoff (https://learn.microsoft.com/azure/key-vault/general/overview-throttling), and counts
 * requests in periods of ten seconds. A call that fails for a minute throws, and a later queue message repeats the work.
 */
export const CALL_LIMITS: CallLimits = {
  throttledTries: 5,
  concurrencyTries: 4,
  unreachableTries: 3,
  requestTimeoutMs: 30_000,
  totalWaitMs: 60_000,
  firstWaitMs: 1_000,
};

/** Describes the calls to one path of a service: their failure messages and the expected response. */
export interface Route {
  target: CallTarget;
  /**
   * Schema of a successful response with status 200. `nothing`: success is 204, without a body. `accepted`: success is 200, 201,
   * 202 or 204, and the body is not checked. `parsedByClient`: success is 200, and the SDK client parses the body.
   */
  answer: z.ZodType | "nothing" | "accepted" | "parsedByClient";
  /**
   * True if the response is a page of a list. A link to a page that was read before, or more than `MAX_PAGES` pages, fail the
   * call.
   */
  paged?: boolean;
  /** Schema of each entry of a page. Without it the entries are not checked. */
  entry?: z.ZodType;
}

/** Schema of a page of a list, with entries that are not checked. The link is missing, null or empty on the last page. */
export const page = z.object({
  value: z.array(z.unknown()),
  nextLink: z
    .string()
    .refine((link) => link === "" || URL.canParse(link))
    .nullish(),
});

/**
 * Maximum number of pages of one list. Key Vault returns at most 25 entries a page, and documents no limit of entries. A list
 * with more than 100,000 entries fails, because it may be endless and would fill the memory.
 */
const MAX_PAGES = 4_000;

interface CallPolicyOptions {
  /** The only origin to which requests with the token are sent, such as `https://kv-payments.vault.azure.net`. */
  origin: string;
  /** Scope of the token, such as `https://vault.azure.net/.default`. */
  scope: string;
  identity: Pick<Identity, "credential">;
  /** Returns the route of a path, or undefined if no call uses that path. */
  route(path: string): Route | undefined;
  /** Resource that the failure names if a link leads to another origin or to an unknown path. */
  resource: string;
  /**
   * Aborts the requests of the client. The signal is an option of the client, because the SDKs pass a call's signal only to the
   * request of a list's first page.
   */
  signal?: AbortSignal | undefined;
  /** Receives the entries of a list that do not match `Route.entry`. Without it such an entry fails the list. */
  unreadable?: ((entry: unknown, failure: CloudFailure) => void) | undefined;
  /** Connections of one vault. Without them, the requests use the connections of the process. */
  connections?: VaultConnections | undefined;
  /** Delays requests that would exceed the rate limits of the service. */
  pace?: PacedRequests | undefined;
  /**
   * Returns the failure that an unsuccessful response, or a response that is not JSON, means in this service. If it returns
   * undefined, or is missing, the response means what it means in any Azure service.
   */
  failureOf?: ((answer: FailedAnswer, target: CallTarget) => CloudFailure | undefined) | undefined;
  log: Logger;
  randomness: Randomness;
  limits: CallLimits;
}

/** Connections of the process for calls without `connections`. Scans open separate connections for each vault. */
const sharedTransport = loadOnce(() => createTransport(CONNECTION_LIMITS));

const transportOf = ({ connections }: CallPolicyOptions): Promise<Transport> =>
  connections ? connections.transport() : sharedTransport();

/**
 * Returns the options of an SDK client whose requests get the token, retries and checks of `createCall`. The client's own
 * retries are disabled. Create a new client for each list, because a client reads only one list.
 */
export async function clientOptions(options: CallPolicyOptions) {
  const bodies: Bodies = new WeakMap();
  return {
    retryOptions: { maxRetries: 0 },
    userAgentOptions: { userAgentPrefix: USER_AGENT },
    httpClient: (await transportOf(options)).client,
    additionalPolicies: [
      { policy: keepBodyPolicy(bodies), position: "perCall" as const },
      { policy: callPolicy(options, bodies), position: "perRetry" as const },
    ],
  };
}

const USER_AGENT = "credential-lifecycle";

/** Returns the User-Agent header, in the format of the SDKs. */
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

/** A request without an SDK client, for `createSender`. */
export interface SentRequest {
  method?: "GET" | "POST" | "PUT" | "PATCH";
  url: string;
  /** Sent as JSON. */
  body?: object | undefined;
  headers?: Record<string, string>;
  /** Receives the headers of the response. */
  answered?: (header: FailedAnswer["header"]) => void;
}

/**
 * Returns a function that sends requests without an SDK client, with the token, retries and checks of `createCall`, and returns
 * the parsed response. Used for services without an SDK, and for lists of which the SDK rejects a whole page because of one
 * entry.
 */
export async function createSender(options: CallPolicyOptions, requestIdHeader = "x-ms-client-request-id") {
  const [{ client }, common, { createHttpHeaders, createPipelineRequest }] = await Promise.all([
    transportOf(options),
    commonHeaders(),
    import("@azure/core-rest-pipeline"),
  ]);
  const send = createCall(options);
  return async ({ method = "GET", url, body, headers, answered }: SentRequest): Promise<unknown> => {
    const type = body && { "content-type": "application/json" };
    const request = createPipelineRequest({
      url,
      method,
      headers: createHttpHeaders({ ...common, [requestIdHeader]: randomUUID(), ...headers, ...type }),
      ...(body && { body: JSON.stringify(body) }),
    });
    const { response, json } = await send(request, (each) => client.sendRequest(each));
    answered?.((name) => response.headers.get(name));
    return json;
  };
}

type Bodies = WeakMap<PipelineRequest, PipelineRequest["body"]>;

/**
 * Stores the body of each request in `bodies`. The SDK's Key Vault policy removes the body of a client's first request, because
 * it expects an authentication challenge as the response. Here the first request already has a token, so `callPolicy` adds the
 * body.
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

/** Policy of an SDK client that sends each request as `createCall` does. It runs after all other policies. */
function callPolicy(options: CallPolicyOptions, bodies: Bodies): PipelinePolicy {
  const send = createCall(options);
  return {
    name: "cloudCallPolicy",
    async sendRequest(request, next) {
      const body = bodies.get(request);
      if (body !== undefined) request.body = body;
      return (await send(request, next)).response;
    },
  };
}

/**
 * Returns a function that sends a request with a token to the configured origin only, and retries while the service is busy. It
 * returns successful responses. Other responses and errors become a `CloudFailure`, so the SDKs' policies do not see a 401 or a
 * redirect.
 */
function createCall(options: CallPolicyOptions) {
  const { connections, limits, log, pace, randomness } = options;
  const requestedPages = new Set<string>();
  let listOperation: string | undefined;

  /** Throws if the request is for another list, for a page that was read before, or for a page after `MAX_PAGES`. */
  function checkPage(url: string, { target, paged }: Route): void {
    if (listOperation !== undefined && listOperation !== target.operation)
      throw malformedAnswer(target, "the next-page link points to another list");
    if (!paged) return;
    listOperation = target.operation;
    if (requestedPages.has(url)) throw malformedAnswer(target, "the next-page links form a loop");
    if (requestedPages.size === MAX_PAGES) throw malformedAnswer(target, `the list has more than ${MAX_PAGES} pages`);
    // A second page shows that the vault is large, so its requests may use all connections.
    if (requestedPages.size > 0) connections?.useAll();
    requestedPages.add(url);
  }

  return async (
    request: PipelineRequest,
    next: SendRequest,
  ): Promise<{ response: PipelineResponse; json: unknown }> => {
    const route = routeOf(request.url, options);
    const { target } = route;
    checkPage(request.url, route);
    if (options.signal) request.abortSignal = options.signal;
    const signal = request.abortSignal as AbortSignal | undefined;
    request.timeout = limits.requestTimeoutMs;
    const sendNow = async () => {
      if (signal?.aborted) throw ranOutOfTime(target);
      const response = await next(request);
      return { response, json: readResponse(response, route, options) };
    };
    const send = pace ? () => pace(new URL(request.url).pathname, sendNow, signal) : sendNow;
    let waited = 0;
    for (let tries = 1; ; tries++) {
      if (signal?.aborted) throw ranOutOfTime(target);
      const credential = await options.identity.credential();
      const token = await credential.getToken(options.scope, signal ? { abortSignal: signal } : {});
      request.headers.set("authorization", `Bearer ${token?.token}`);
      try {
        return await (connections ? connections.run(send) : send());
      } catch (error) {
        const isTimeout = error instanceof AnswerTimeout;
        // If the vault does not respond, calls for its other lists must not wait for this connection.
        if (isTimeout) connections?.useAll();
        const failure = failureOfError(error, target, limits);
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
  };
}

function failureOfError(error: unknown, target: CallTarget, { requestTimeoutMs }: CallLimits): CloudFailure {
  if (error instanceof AnswerTimeout) return noAnswer(target, `no answer within ${requestTimeoutMs / 1000} s`);
  if (error instanceof AnswerTooLarge) return malformedAnswer(target, "the answer is too large");
  return asCloudFailure(error, target);
}

function routeOf(address: string, { origin, resource, route }: CallPolicyOptions): Route {
  const url = new URL(address);
  if (url.origin !== origin || url.username !== "" || url.password !== "") {
    throw foreignHost({ operation: "follow a link", resource }, url.origin);
  }
  const matchingRoute = route(url.pathname);
  if (!matchingRoute)
    throw malformedAnswer({ operation: "follow a link", resource }, "the next-page link does not point to a list");
  return matchingRoute;
}

/**
 * Returns the JSON of a successful response, without a page's unreadable entries. Returns undefined if there is no JSON, or if
 * the SDK client parses it.
 * @throws {CloudFailure} if the response is unsuccessful, or does not match the schema of its route.
 */
function readResponse(
  { status, bodyAsText, headers }: PipelineResponse,
  { target, answer, entry }: Route,
  { failureOf, unreadable }: CallPolicyOptions,
): unknown {
  const received: FailedAnswer = { status, body: bodyAsText ?? "", header: (name) => headers.get(name) };
  if (!successOf(answer).includes(status)) {
    throw failureOf?.(received, target) ?? failureOfAnswer(received, target);
  }
  if (answer === "nothing" || answer === "parsedByClient" || (answer === "accepted" && received.body === "")) {
    return undefined;
  }
  let json: unknown;
  try {
    json = JSON.parse(received.body);
  } catch {
    throw failureOf?.(received, target) ?? malformedAnswer(target, "the answer is not JSON");
  }
  if (answer === "accepted") return json;
  const { error } = answer.safeParse(json);
  if (error) throw undocumented(target, error);
  if (!entry) return json;
  const pageOfList = json as { value: unknown[] };
  const readable = pageOfList.value.filter((listed) => {
    const { error } = entry.safeParse(listed);
    if (!error) return true;
    const failure = undocumented(target, error);
    if (!unreadable) throw failure;
    unreadable(listed, failure);
    return false;
  });
  return { ...pageOfList, value: readable };
}

function successOf(answer: Route["answer"]): readonly number[] {
  if (answer === "nothing") return [204];
  return answer === "accepted" ? [200, 201, 202, 204] : [200];
}

/** Returns the failure of a response, or a part of a response, that does not match its documented schema. */
export function undocumented(target: CallTarget, error: z.ZodError): CloudFailure {
  const path = error.issues[0]?.path.join(".") || "the answer";
  return malformedAnswer(target, `the answer is not what the service documents, at ${path.slice(0, 100)}`);
}

/** Returns the milliseconds to wait before the next request, or undefined if the call must not be retried. */
function waitBefore(
  failure: CloudFailure,
  tries: number,
  limits: CallLimits,
  randomness: Randomness,
): number | undefined {
  const { throttledTries: throttled, concurrencyTries: concurrency, unreachableTries: unreachable } = limits;
  const maximumTries = { throttled, concurrency, unreachable }[failure.code as string] ?? 1;
  if (tries >= maximumTries) return undefined;
  const jittered = limits.firstWaitMs * (0.5 + randomness.number() / 2);
  // Jitter is added to a `Retry-After` too, so that calls that were rejected together do not return together.
  if (failure.retryAfterSeconds !== undefined) return failure.retryAfterSeconds * 1000 + jittered;
  return jittered * 2 ** (tries - 1);
}
