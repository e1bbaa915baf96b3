import type { HttpClient, PipelineRequest, PipelineResponse } from "@azure/core-rest-pipeline";
import type { StoreClock } from "./clock.ts";
import { ANSWER_TIMEOUT_MS } from "./limits.ts";

/**
 * What a storage SDK sends its requests with. The SDK's retry policy sends a request again when its error is one that the
 * policy knows. This client gives every unclear end of a try such an error: no connection, a connection that broke before
 * or within the answer, no whole answer in time.
 *
 * @param clock - Takes the service's time from each answer.
 */
export async function createTransport({ clock }: { clock?: StoreClock | undefined } = {}): Promise<HttpClient> {
  const { createDefaultHttpClient, RestError } = await import("@azure/core-rest-pipeline");
  const http = createDefaultHttpClient();
  return {
    async sendRequest(request) {
      if (sent.has(request)) resent.add(request);
      sent.add(request);
      const sentAt = performance.now();
      try {
        const answer = await withinTime(request, http);
        clock?.saw(Date.parse(answer.headers.get("date") ?? ""), sentAt, performance.now());
        return answer;
      } catch (error) {
        const { name, code } = error as { name?: string; code?: string };
        if (name !== "AbortError" && !isBroken(code)) throw error;
        throw new RestError(`No whole answer from ${new URL(request.url).host} (${code ?? "timeout"}).`, {
          code: "ETIMEDOUT",
          request,
        });
      }
    },
  };
}

const sent = new WeakSet<PipelineRequest>();
const resent = new WeakSet<PipelineRequest>();

/** True when a request was sent more than once, so that an earlier try may have been applied. */
export const wasSentAgain = (request: PipelineRequest): boolean => resent.has(request);

/** Errors of the connection that the SDKs' retry policies don't know as such. */
const CONNECTION_ERRORS = new Set(["EPIPE", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"]);

/** `PARSE_ERROR` is the SDK's code for a body that ended early, `HPE_…` are Node's for a head that did. */
const isBroken = (code: string | undefined): boolean =>
  code !== undefined && (CONNECTION_ERRORS.has(code) || code === "PARSE_ERROR" || code.startsWith("HPE_"));

/**
 * Limits the time of one try, its body included. The SDK's own limit ends with the head, and a compressed body that stops
 * half-way is never given up by it, hence the race.
 */
async function withinTime(request: PipelineRequest, http: HttpClient): Promise<PipelineResponse> {
  const given = request.abortSignal;
  const controller = new AbortController();
  let expire: () => void = () => {};
  const expired = new Promise<never>((_, reject) => {
    expire = () => {
      reject(Object.assign(new Error("No whole answer in time."), { name: "AbortError" }));
      controller.abort();
    };
  });
  const timer = setTimeout(expire, ANSWER_TIMEOUT_MS);
  request.abortSignal = given ? AbortSignal.any([given as AbortSignal, controller.signal]) : controller.signal;
  try {
    return await Promise.race([http.sendRequest(request), expired]);
  } finally {
    clearTimeout(timer);
    // The retry policy takes a request with an aborted signal for one that its caller gave up.
    if (given) request.abortSignal = given;
    else delete request.abortSignal;
  }
}
