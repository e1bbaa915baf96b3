import type { IncomingHttpHeaders } from "node:http";
import { promisify } from "node:util";
import { brotliDecompress, gunzip, inflate } from "node:zlib";
import type { HttpClient, PipelineRequest } from "@azure/core-rest-pipeline";
import type { Dispatcher } from "undici";
import { type ConnectionLimits, MOST_ANSWER_BYTES, openConnections } from "./connections.ts";

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
 * Sends requests over connections of its own, and reads each answer to its end as text. The SDKs' own client spends several
 * times the processor time on streams, progress and signals that nothing here uses, counts a request's time only to the
 * headers, and can't be stopped amid a compressed body.
 */
export async function createTransport(limits: ConnectionLimits): Promise<Transport> {
  const { createHttpHeaders, RestError } = await import("@azure/core-rest-pipeline");
  const connections = openConnections(limits);

  function exchange({ url, method, headers, body, timeout, signal }: OutgoingRequest): Promise<ReceivedAnswer> {
    return new Promise((resolve, reject) => {
      const { origin, pathname, search } = new URL(url);
      const parts: Buffer[] = [];
      let status = 0;
      let received: IncomingHttpHeaders = {};
      let giveUp: (() => void) | undefined;
      let stopped = false;

      const stop = (error: Error) => {
        settle();
        reject(error);
        stopped = true;
        giveUp?.();
      };
      const fail = (error: NodeJS.ErrnoException) =>
        stop(error.code === MISUSED ? error : new RestError(error.message, { code: nodeCode(error) }));
      const onAbort = () => stop(new DOMException("The request was aborted.", "AbortError"));
      const timer = timeout > 0 ? setTimeout(() => stop(new AnswerTimeout()), timeout) : undefined;
      const settle = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
      };
      signal?.addEventListener("abort", onAbort);

      const outgoing = { origin, path: pathname + search, method: method as Dispatcher.HttpMethod, headers };
      giveUp = connections(origin, body === undefined ? outgoing : { ...outgoing, body }, {
        head(statusCode, answered) {
          status = statusCode;
          received = withoutRepetitions(answered);
        },
        data: (part) => void parts.push(part),
        end() {
          decoded(parts, received["content-encoding"]).then((text) => {
            settle();
            resolve({ status, headers: received, text });
          }, fail);
        },
        failed: fail,
      });
      if (stopped) giveUp();
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

/** `undici`'s code for what can't be sent at all. */
const MISUSED = "UND_ERR_INVALID_ARG";

/** What Node calls the same: https://nodejs.org/api/errors.html#common-system-errors */
const NODE_CODES: Record<string, string> = {
  UND_ERR_SOCKET: "ECONNRESET",
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: "ECONNRESET",
  UND_ERR_CONNECT_TIMEOUT: "ETIMEDOUT",
  UND_ERR_HEADERS_OVERFLOW: "HPE_HEADER_OVERFLOW",
};

function nodeCode({ code, name, message }: NodeJS.ErrnoException): string {
  // It has no code of its own. An answer in chunks that ends with its connection amid them was cut.
  if (name === "HTTPParserError") return message.includes("EOF") ? "ECONNRESET" : "HPE_INVALID";
  return code === undefined ? "REQUEST_SEND_ERROR" : (NODE_CODES[code] ?? code);
}

/** Of a header that came more than once the first counts, as with Node for those that may come once only. */
function withoutRepetitions(headers: Record<string, string | string[] | undefined>): IncomingHttpHeaders {
  for (const name in headers) {
    const value = headers[name];
    if (typeof value === "object") headers[name] = value[0];
  }
  return headers as IncomingHttpHeaders;
}

/** We ask for no compression; a proxy on the way may do it all the same. */
const DECODERS = { gzip: promisify(gunzip), deflate: promisify(inflate), br: promisify(brotliDecompress) };

async function decoded(parts: Buffer[], encoding: string | undefined): Promise<string> {
  const bytes = parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  const decode = DECODERS[encoding as keyof typeof DECODERS];
  return (decode ? await decode(bytes, { maxOutputLength: MOST_ANSWER_BYTES }) : bytes).toString();
}
