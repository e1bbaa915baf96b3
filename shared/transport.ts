import { type Agent, request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest, type RequestOptions } from "node:https";
import { buffer } from "node:stream/consumers";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";
import type { HttpClient, PipelineRequest } from "@azure/core-rest-pipeline";

/** There was no whole answer within the time of `PipelineRequest.timeout`. */
export class AnswerTimeout extends Error {
  override readonly name = "AnswerTimeout";
}

/** A request as it goes out. */
export interface OutgoingRequest {
  url: string;
  method: string;
  headers: Record<string, string>;
  body?: string | Uint8Array | undefined;
  /** A proxy's; without it, the transport's connections. */
  agent?: Agent | undefined;
  /** Milliseconds for the whole answer; 0 for no limit. */
  timeout: number;
  signal?: PipelineRequest["abortSignal"] | undefined;
}

export interface ReceivedAnswer {
  status: number;
  /** By lower-case names. */
  headers: IncomingHttpHeaders;
  text: string;
}

export interface Transport {
  /** @throws the network's error as a RestError, AnswerTimeout, or an AbortError. */
  exchange(request: OutgoingRequest): Promise<ReceivedAnswer>;
  /** The same for the SDKs' clients. */
  client: HttpClient;
}

/**
 * Connections that are all made alike, so that a host's are told by its name and port. Node tells them by some twenty options,
 * which it puts together for each request: an eighth of what a small one costs.
 */
export class HostConnections extends HttpsAgent {
  override getName({ host, port }: RequestOptions = {}): string {
    return `${host}:${port}`;
  }
}

/**
 * Sends requests by `node:https`, over the given connections, and reads each answer to its end as text. The SDKs'
 * own client spends several times the processor time on streams, progress and signals that nothing here uses, counts a
 * request's time only to the headers, and can't be stopped amid a compressed body.
 *
 * @param connections - Of `http:`, which none but a store on the same machine has, Node's own unless they are given.
 */
export async function createTransport(connections: { https: HostConnections; http?: Agent }): Promise<Transport> {
  const { createHttpHeaders, RestError } = await import("@azure/core-rest-pipeline");

  function exchange({ url, method, headers, body, agent, timeout, signal }: OutgoingRequest): Promise<ReceivedAnswer> {
    return new Promise((resolve, reject) => {
      const { protocol, hostname, port, pathname, search } = new URL(url);
      const secure = protocol === "https:";
      // Of an address, Node would make the same options and eight more.
      const outgoing = (secure ? httpsRequest : httpRequest)({
        host: hostname.startsWith("[") ? hostname.slice(1, -1) : hostname,
        port: port === "" ? undefined : Number(port),
        path: pathname + search,
        method,
        headers,
        agent: agent ?? (secure ? connections.https : connections.http),
      });
      const stop = (error: Error) => {
        settle();
        reject(error);
        outgoing.destroy();
      };
      const fail = (error: NodeJS.ErrnoException) =>
        stop(new RestError(error.message, { code: error.code ?? RestError.REQUEST_SEND_ERROR }));
      const onAbort = () => stop(new DOMException("The request was aborted.", "AbortError"));
      const timer = timeout > 0 ? setTimeout(() => stop(new AnswerTimeout()), timeout) : undefined;
      const settle = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
      };
      signal?.addEventListener("abort", onAbort);
      outgoing.on("error", fail);
      outgoing.on("response", (answer) => {
        readBody(answer).then((text) => {
          settle();
          resolve({ status: answer.statusCode ?? 0, headers: answer.headers, text });
        }, fail);
      });
      outgoing.end(body);
    });
  }

  return {
    exchange,
    client: {
      async sendRequest(request) {
        try {
          const { status, headers, text } = await exchange({
            url: request.url,
            method: request.method,
            headers: request.headers.toJSON({ preserveCase: true }),
            body: (request.body ?? undefined) as string | Uint8Array | undefined,
            // The SDK's type has fewer members than Node's.
            agent: request.agent as Agent | undefined,
            timeout: request.timeout,
            signal: request.abortSignal,
          });
          return { request, status, headers: createHttpHeaders(headers as Record<string, string>), bodyAsText: text };
        } catch (error) {
          // By it the storage's rooms tell whether a request was sent before.
          if (error instanceof RestError) error.request = request;
          throw error;
        }
      },
    },
  };
}

/** We ask for no compression; a proxy on the way may do it all the same. */
const DECODERS = { gzip: createGunzip, deflate: createInflate, br: createBrotliDecompress };

async function readBody(answer: IncomingMessage): Promise<string> {
  const decoder = DECODERS[answer.headers["content-encoding"] as keyof typeof DECODERS];
  if (decoder) {
    const decoded = decoder();
    answer.on("error", (error) => decoded.destroy(error));
    return (await buffer(answer.pipe(decoded))).toString();
  }
  return await new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    answer.on("data", (part: Buffer) => void parts.push(part));
    answer.on("end", () => resolve((parts.length === 1 ? parts[0]! : Buffer.concat(parts)).toString()));
    answer.on("error", reject);
  });
}
