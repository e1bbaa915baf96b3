import type { HttpClient, PipelineRequest } from "@azure/core-rest-pipeline";
import { loadOnce } from "../load-once.ts";
import { MINUTE_MS } from "../time.ts";
import { AnswerTimeout, createTransport } from "../transport.ts";
import type { StoreClock } from "./clock.ts";
import { ANSWER_TIMEOUT_MS } from "./limits.ts";

/** Loads the pipeline module once, because even an `import` of a loaded module takes as long as encoding an operation. */
export const restPipeline = loadOnce(() => import("@azure/core-rest-pipeline"));

/**
 * One transport for all tables of the process. Connections stay open for a minute, because requests to storage can be further
 * apart than those of a scan to a vault.
 */
const transport = loadOnce(() => createTransport({ idleMs: MINUTE_MS }));

/**
 * Creates the HTTP client of the storage SDKs. The SDK's retry policy retries only errors that it recognizes. So this client
 * converts every failure without a clear answer to such an error. These failures are no connection, a connection that broke
 * before or during the answer, and no complete answer in time.
 *
 * @param clock - Adjusted by each answer's `Date`.
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
        clock?.adjust(Date.parse(answer.headers.get("date") ?? ""), sentAt, performance.now());
        return answer;
      } catch (error) {
        const { code } = error as { code?: string };
        if (!(error instanceof AnswerTimeout) && !isBroken(code)) throw error;
        throw new RestError(`No complete response from ${new URL(request.url).host} (${code ?? "timeout"}).`, {
          code: "ETIMEDOUT",
          request,
        });
      }
    },
  };
}

const sent = new WeakSet<PipelineRequest>();
const resent = new WeakSet<PipelineRequest>();

/** Returns whether a request was sent more than once, so that an earlier attempt may have been applied. */
export const wasSentAgain = (request: PipelineRequest): boolean => resent.has(request);

/** Connection errors that the SDKs' retry policies do not recognize. */
const CONNECTION_ERRORS = new Set(["EPIPE", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"]);

/** `PARSE_ERROR` is the SDK's code for a truncated body. Node reports truncated headers as `HPE_…`. */
const isBroken = (code: string | undefined): boolean =>
  code !== undefined && (CONNECTION_ERRORS.has(code) || code === "PARSE_ERROR" || code.startsWith("HPE_"));
