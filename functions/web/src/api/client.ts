/**
 * The API as its own description types it. The browser sends the session's cookie by itself, since the page and the API
 * have one origin.
 */
import createFetchClient from "openapi-fetch";
import createQueries from "openapi-react-query";
import { onChangesDropped, sessionEnded, waitingUntil } from "./events.ts";
import type { components, paths } from "./schema.d.ts";

export type Schemas = components["schemas"];
/** What an error of the API is: a problem document, whose `detail` says what to do. */
export type Problem = Schemas["Problem"];

/** A change that would wait longer is refused after all: later it may be a surprise. What only reads waits as long as it must. */
const LONGEST_WAIT_OF_CHANGES_SECONDS = 120;

/**
 * Waits where the API says that it is called too often, and says so on the page. What is neither JSON nor a problem document,
 * such as the words of a proxy, half an answer or a lost connection, becomes a problem with the id of the request.
 */
async function patientFetch(request: Request): Promise<Response> {
  // An id of the page's own, since what never answered is asked about as well.
  request.headers.set(REQUEST_ID, createRequestId());
  const dropped = new AbortController();
  // From the start: what is refused once its form was closed is not sent again.
  const forget = onChangesDropped(() => request.method === "GET" || dropped.abort());
  return await untilHeard(request, dropped.signal).finally(forget);
}

async function untilHeard(request: Request, dropped: AbortSignal): Promise<Response> {
  for (;;) {
    const response = await fetch(request.clone()).catch((error: unknown) => unreachable(error, request));
    const seconds = Number(response.headers.get("retry-after"));
    const mayWait = request.method === "GET" || seconds <= LONGEST_WAIT_OF_CHANGES_SECONDS;
    if (response.status !== 429 || !(seconds > 0) || !mayWait || isSignIn(request) || dropped.aborted)
      return seen(response, request);
    waitingUntil(new Date(Date.now() + seconds * 1000));
    await passed(seconds, AbortSignal.any([request.signal, dropped])).catch((reason: unknown) => {
      if (request.signal.aborted) throw reason;
    });
    if (dropped.aborted) return seen(response, request);
  }
}

/** @throws the signal's reason, once nobody waits for the answer any more. */
function passed(seconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

const isSignIn = ({ url }: Request): boolean => new URL(url).pathname === "/auth/login";

const REQUEST_ID = "X-Request-Id";
const createRequestId = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

async function seen(response: Response, request: Request): Promise<Response> {
  if (response.status === 401 && !isSignIn(request)) sessionEnded();
  const type = response.headers.get("content-type") ?? "";
  if (/\bjson\b/.test(type)) return await checked(response, request);
  // The API answers files and JSON, never a page: that is a proxy's, whatever its status says.
  if (response.ok && !/\bhtml\b/.test(type)) return response;
  return unexpected(response.status, request);
}

/** The answer if it is all there: JSON, and where it is an error a problem document. */
async function checked(response: Response, request: Request): Promise<Response> {
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

const unexpected = (status: number, request: Request): Response =>
  problemResponse(status, request, {
    title: "The service answered something unexpected.",
    detail: request.method === "GET" ? "Try again in a minute." : LOOK_FIRST,
  });

function unreachable(error: unknown, request: Request): Response {
  if (request.signal.aborted) throw error;
  return problemResponse(503, request, {
    title: "The service can't be reached.",
    detail: `Check the network, or try again in a minute.${request.method === "GET" ? "" : ` ${LOOK_FIRST}`}`,
  });
}

const LOOK_FIRST = "It may have been done all the same: look before you do it again.";

function problemResponse(status: number, request: Request, words: { title: string; detail: string }): Response {
  const instance = request.headers.get(REQUEST_ID) ?? "";
  const problem = { type: "about:blank", ...words, status, instance, code: "unreachable" };
  return Response.json(problem, { status: Math.max(400, status) });
}

/** What was thrown, as a problem: an error of the page itself is told of by its message. */
export const asProblem = (thrown: unknown): Problem =>
  thrown instanceof Error
    ? {
        type: "about:blank",
        title: "The page could not do this.",
        status: 0,
        detail: `${thrown.message}. Load the page again.`,
        instance: "",
        code: "unavailable",
      }
    : (thrown as Problem);

export const client = createFetchClient<paths, "application/json" | "application/problem+json">({
  baseUrl: location.origin,
  fetch: patientFetch,
});
/** Queries and changes as hooks; an error they throw is a `Problem`. */
export const api = createQueries(client);
