import { type Agent, request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import { text } from "node:stream/consumers";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";
import type { HttpClient, PipelineRequest, PipelineResponse } from "@azure/core-rest-pipeline";

/** There was no whole answer within the time of `PipelineRequest.timeout`. */
export class AnswerTimeout extends Error {
  override readonly name = "AnswerTimeout";
}

/**
 * Sends the SDKs' requests by `node:https`, over the given connections, and reads each answer to its end as text. The SDKs'
 * own client spends several times the processor time on streams, progress and signals that nothing here uses, counts a
 * request's time only to the headers, and can't be stopped amid a compressed body.
 *
 * A request fails with the network's error as a RestError, with AnswerTimeout, or with an AbortError.
 *
 * @param connections - Of `http:`, which none but a store on the same machine has, Node's own unless they are given.
 */
export async function createTransport(connections: { https: Agent; http?: Agent }): Promise<HttpClient> {
  const { createHttpHeaders, RestError } = await import("@azure/core-rest-pipeline");

  function send(request: PipelineRequest): Promise<PipelineResponse> {
    return new Promise((resolve, reject) => {
      const { abortSignal, timeout, body } = request;
      const secure = request.url.startsWith("https:");
      const outgoing = (secure ? httpsRequest : httpRequest)(request.url, {
        method: request.method,
        headers: request.headers.toJSON({ preserveCase: true }),
        // A proxy's, or ours. The SDK's type has fewer members than Node's.
        agent: (request.agent as Agent | undefined) ?? (secure ? connections.https : connections.http),
      });
      const stop = (error: Error) => {
        settle();
        reject(error);
        outgoing.destroy();
      };
      const fail = (error: NodeJS.ErrnoException) =>
        stop(new RestError(error.message, { code: error.code ?? RestError.REQUEST_SEND_ERROR, request }));
      const onAbort = () => stop(new DOMException("The request was aborted.", "AbortError"));
      const timer = timeout > 0 ? setTimeout(() => stop(new AnswerTimeout()), timeout) : undefined;
      const settle = () => {
        clearTimeout(timer);
        abortSignal?.removeEventListener("abort", onAbort);
      };
      abortSignal?.addEventListener("abort", onAbort);
      outgoing.on("error", fail);
      outgoing.on("response", (answer) => {
        readBody(answer).then((bodyAsText) => {
          settle();
          resolve({
            request,
            status: answer.statusCode ?? 0,
            headers: createHttpHeaders(answer.headers as Record<string, string>),
            bodyAsText,
          });
        }, fail);
      });
      outgoing.end(body === undefined || body === null ? undefined : (body as string | Uint8Array));
    });
  }

  return { sendRequest: send };
}

/** We ask for no compression; a proxy on the way may do it all the same. */
const DECODERS = { gzip: createGunzip, deflate: createInflate, br: createBrotliDecompress };

function readBody(answer: IncomingMessage): Promise<string> {
  const decoder = DECODERS[answer.headers["content-encoding"] as keyof typeof DECODERS];
  if (decoder) {
    const decoded = decoder();
    answer.on("error", (error) => decoded.destroy(error));
    return text(answer.pipe(decoded));
  }
  return new Promise((resolve, reject) => {
    let body = "";
    answer.setEncoding("utf8");
    answer.on("data", (part: string) => {
      body += part;
    });
    answer.on("end", () => resolve(body));
    answer.on("error", reject);
  });
}
