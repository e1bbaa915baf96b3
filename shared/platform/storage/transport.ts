import type { HttpClient, PipelineRequest } from "@azure/core-rest-pipeline";
import { once } from "../once.ts";
import { MINUTE_MS } from "../time.ts";
import { AnswerTimeout, createTransport } from "../transport.ts";
import type { StoreClock } from "./clock.ts";
import { ANSWER_TIMEOUT_MS } from "./limits.ts";

/** Asked for with every request, and each `import` of what is there already costs as much as a part of a transaction. */
export const restPipeline = once(() => import("@azure/core-rest-pipeline"));

/** The process's one, for all tables. A next request may come much later than one of a scan to a vault. */
const transport = once(() => createTransport({ idleMs: MINUTE_MS }));

/**
 * What a storage SDK sends its requests with. The SDK's retry policy sends a request again when its error is one that the
 * policy knows. This client gives every unclear end of a try such an error: no connection, a connection that broke before
 * or within the answer, no whole answer in time.
 *
 * @param clock - Takes the service's time from each answer.
 */
export async function createStorageTransport({ clock }: { clock?: StoreClock | undefined } = {}): Promise<HttpClient> {
  const [{ client }, { RestError }] = await Promise.all([transport(), restPipeline()]);
  return {
    async sendRequest(request) {
      if (sent.has(request)) resent.add(request);
      sent.add(request);
      request.timeout = ANSWER_TIMEOUT_MS;
      const sentAt = performance.now();
      try {
        const answer = await client.sendRequest(request);
        clock?.saw(Date.parse(answer.headers.get("date") ?? ""), sentAt, performance.now());
        return answer;
      } catch (error) {
        const { code } = error as { code?: string };
        if (!(error instanceof AnswerTimeout) && !isBroken(code)) throw error;
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
