/**
 * The API client, typed by the OpenAPI document. The browser sends the session cookie, because the page and the API share an
 * origin.
 */
import createFetchClient from "openapi-fetch";
import createQueries from "openapi-react-query";
import { onChangesDropped, type StepUpRequest, sessionEnded, stepUpRequired, waitingUntil } from "./events.ts";
import type { components, paths } from "./schema.d.ts";

export type Schemas = components["schemas"];
/** An error response of the API: a problem document. Its `detail` says how to fix the error. */
export type Problem = Schemas["Problem"];

/**
 * Maximum time that a rate-limited change waits to be sent again. A change that would wait longer fails, so that it does not
 * happen when the user no longer expects it. Reads wait for any time.
 */
const MAX_CHANGE_WAIT_SECONDS = 120;

/**
 * Sends a request, and sends it again after a 429 response, while the page shows the wait. Returns a problem document with the
 * request id if the connection is lost, if the body is truncated, or if a proxy wrote the response.
 */
async function fetchWithRetry(request: Request): Promise<Response> {
  // The page creates the id, so that a request without a response has one too.
  request.headers.set(REQUEST_ID, createRequestId());
  const dropped = new AbortController();
  // Subscribed before the first attempt: a rate-limited change whose form was closed is not sent again. Reads are.
  const unsubscribe = onChangesDropped(() => request.method === "GET" || dropped.abort());
  const send = () => sendUntilAccepted(request, dropped.signal);
  try {
    const response = await send();
    return (await isConfirmedNow(response)) ? await send() : response;
  } finally {
    unsubscribe();
  }
}

/** Lets the user confirm the session if a request needs that and the user can. Returns true if the user did. */
async function isConfirmedNow(response: Response): Promise<boolean> {
  if (response.status !== 403) return false;
  const problem = (await response.clone().json()) as StepUpRequest["problem"];
  const canConfirm = problem.signInUrl !== undefined || (Array.isArray(problem.methods) && problem.methods.length > 0);
  if (problem.code !== "stepUpRequired" || !canConfirm) return false;
  return await new Promise((finish) => stepUpRequired({ problem, finish }));
}

/** Sends a request until the response is no 429, or until the request may not wait. `dropped` aborts a wait. */
async function sendUntilAccepted(request: Request, dropped: AbortSignal): Promise<Response> {
  for (;;) {
    const response = await fetch(request.clone()).catch((error: unknown) => unreachable(error, request));
    // 0 without the header. The response is then returned like any other error.
    const seconds = Number(response.headers.get("retry-after"));
    const mayWait = request.method === "GET" || seconds <= MAX_CHANGE_WAIT_SECONDS;
    if (response.status !== 429 || !(seconds > 0) || !mayWait || isSignIn(request) || dropped.aborted)
      return normalize(response, request);
    waitingUntil(new Date(Date.now() + seconds * 1000));
    await wait(seconds, AbortSignal.any([request.signal, dropped])).catch((reason: unknown) => {
      if (request.signal.aborted) throw reason;
    });
    // The form was closed during the wait: its 429 response becomes the result.
    if (dropped.aborted) return normalize(response, request);
  }
}

/** @throws the reason of `signal` when it aborts. */
function wait(seconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/**
 * Sign-ins and step-ups are never sent again, and their 401 responses say that the password or the second factor is wrong, not
 * that the session ended.
 */
const isSignIn = ({ url }: Request): boolean => ["/auth/login", "/auth/step-up"].includes(new URL(url).pathname);

/** Header with the id of a request, which the service writes into its logs and problem documents. */
const REQUEST_ID = "X-Request-Id";
const createRequestId = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Returns the response if the service wrote it, otherwise a problem document. */
async function normalize(response: Response, request: Request): Promise<Response> {
  if (response.status === 401 && !isSignIn(request)) sessionEnded();
  const type = response.headers.get("content-type") ?? "";
  if (/\bjson\b/.test(type)) return await validateJson(response, request);
  // The API returns JSON and files, never HTML. An HTML response comes from a proxy, whatever its status.
  if (response.ok && !/\bhtml\b/.test(type)) return response;
  return unexpected(response.status, request);
}

/** Returns the response if its body is complete JSON and, for an error, a problem document. */
async function validateJson(response: Response, request: Request): Promise<Response> {
  const { status, statusText, headers, ok } = response;
  try {
    const text = await response.text();
    const body: unknown = text === "" ? undefined : JSON.parse(text);
    const isProblem = typeof (body as Partial<Problem> | undefined)?.title === "string";
    if (ok || isProblem) return new Response(text || null, { status, statusText, headers });
  } catch (error) {
    if (request.signal.aborted) throw error;
  }
  return unexpected(status, request);
}

/** Returns the problem for a response that the service did not write. */
const unexpected = (status: number, request: Request): Response =>
  problemResponse(status, request, {
    title: "The service returned an unexpected response",
    detail: request.method === "GET" ? "Try again in a minute." : MAY_BE_DONE,
  });

/** Returns the problem for a request without a response. @throws the error if the page itself aborted the request. */
function unreachable(error: unknown, request: Request): Response {
  if (request.signal.aborted) throw error;
  return problemResponse(503, request, {
    title: "Can't reach the service",
    detail: `Check your network connection, or try again in a minute.${request.method === "GET" ? "" : ` ${MAY_BE_DONE}`}`,
  });
}

/** Detail of a failed change: without a response, it is unknown whether the service has saved the change. */
const MAY_BE_DONE = "The change may have been saved. Check before you try again.";

/** Returns a response like an error of the service. The id in `instance` lets support find the request. */
function problemResponse(status: number, request: Request, text: { title: string; detail: string }): Response {
  const instance = request.headers.get(REQUEST_ID) ?? "";
  const problem = { type: "about:blank", ...text, status, instance, code: "unreachable" };
  // An HTML response of a proxy can have the status 200. The callers need an error.
  return Response.json(problem, { status: Math.max(400, status) });
}

/** Returns a thrown value as a problem document. An error of the page itself becomes one with the error's message. */
export const asProblem = (thrown: unknown): Problem =>
  thrown instanceof Error
    ? {
        type: "about:blank",
        title: "The page failed",
        status: 0,
        detail: `${thrown.message}. Reload the page.`,
        instance: "",
        code: "unavailable",
      }
    : (thrown as Problem);

export const client = createFetchClient<paths, "application/json" | "application/problem+json">({
  baseUrl: location.origin,
  fetch: fetchWithRetry,
});
/** Query and mutation hooks. Their errors are of type `Problem`. */
export const api = createQueries(client);
