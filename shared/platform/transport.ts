import http, { type IncomingMessage } from "node:http";
import https from "node:https";
import { addAbortSignal } from "node:stream";
import type { HttpClient, PipelineRequest } from "@azure/core-rest-pipeline";

/** Thrown when there is no whole answer within `PipelineRequest.timeout`. */
export class AnswerTimeout extends Error {
  override readonly name = "AnswerTimeout";
}

/** Thrown when an answer has more than `MAX_ANSWER_BYTES`. */
export class AnswerTooLarge extends Error {
  override readonly name = "AnswerTooLarge";
}

export interface ConnectionLimits {
  /** Most connections to one host; further requests wait. Without it there is one connection for each request in progress. */
  perHost?: number;
  /** Milliseconds after which an idle connection is closed. */
  idleMs: number;
}

export interface Transport {
  /** Throws `AnswerTimeout`, `AnswerTooLarge`, an `AbortError`, or the network's error as a `RestError`. */
  client: HttpClient;
  /** Closes all connections. A later request opens a new connection. */
  close(): void;
}

/** Largest answer in bytes. An instance has about 500 MB of memory. */
export const MAX_ANSWER_BYTES = 128 * 1024 * 1024;

const ALL_STATUSES = new Set([Number.POSITIVE_INFINITY]);

/**
 * Creates an HTTP client with connections of its own. The default client of Azure's SDKs sends the requests. Unlike that
 * client alone, `timeout` covers the body of the answer, and the size of an answer is limited.
 */
export async function createTransport({ perHost = Infinity, idleMs }: ConnectionLimits): Promise<Transport> {
  const { createDefaultHttpClient, createPipelineRequest, RestError } = await import("@azure/core-rest-pipeline");
  const defaultClient = createDefaultHttpClient();
  const options = { keepAlive: true, maxSockets: perHost, timeout: idleMs, proxyEnv: proxyOf(process.env) };
  const [httpAgent, httpsAgent] = [new http.Agent(options), new https.Agent(options)];

  async function sendRequest(request: PipelineRequest) {
    const stop = new AbortController();
    const abort = () => stop.abort();
    const timer = request.timeout > 0 ? setTimeout(() => stop.abort(new AnswerTimeout()), request.timeout) : undefined;
    request.abortSignal?.addEventListener("abort", abort);
    if (request.abortSignal?.aborted) abort();
    // The answer is not compressed, so that an abort in the middle of it takes effect.
    request.headers.set("accept-encoding", "identity");
    const { url, method, headers, body } = request;
    try {
      const sent = createPipelineRequest({
        url,
        method,
        headers,
        body,
        abortSignal: stop.signal,
        allowInsecureConnection: true,
        streamResponseStatusCodes: ALL_STATUSES,
      });
      // `createPipelineRequest` ignores an agent.
      sent.agent = url.startsWith("https:") ? httpsAgent : httpAgent;
      const answer = await defaultClient.sendRequest(sent);
      const text = await textOf(answer.readableStreamBody as IncomingMessage, stop.signal);
      return { request, status: answer.status, headers: answer.headers, bodyAsText: text };
    } catch (error) {
      if (stop.signal.reason instanceof AnswerTimeout) throw stop.signal.reason;
      const { code, message } = error as NodeJS.ErrnoException;
      // The storage module reads from `request` whether an earlier attempt was sent.
      if (error instanceof RestError) error.request = request;
      else if (code === CUT_ANSWER) throw new RestError(message, { code, request });
      throw error;
    } finally {
      clearTimeout(timer);
      request.abortSignal?.removeEventListener("abort", abort);
    }
  }

  return {
    client: { sendRequest },
    close() {
      httpAgent.destroy();
      httpsAgent.destroy();
    },
  };
}

/** Code of an answer that ended early. */
const CUT_ANSWER = "ECONNRESET";

async function textOf(body: IncomingMessage, signal: AbortSignal): Promise<string> {
  const { socket } = body;
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of addAbortSignal(signal, body)) {
    size += part.length;
    if (size > MAX_ANSWER_BYTES) throw new AnswerTooLarge("The answer is too large.");
    parts.push(part);
  }
  // An answer without a length ends with its connection, which must not be broken.
  if (socket.errored) throw socket.errored;
  return Buffer.concat(parts).toString();
}

/** Returns the environment's proxy under the names that Node reads. Azure's clients use one proxy for all addresses. */
function proxyOf(environment: NodeJS.ProcessEnv) {
  const names = ["HTTPS_PROXY", "ALL_PROXY", "HTTP_PROXY"].flatMap((name) => [name, name.toLowerCase()]);
  const proxy = names.map((name) => environment[name]).find(Boolean);
  const noProxy = environment.NO_PROXY || environment.no_proxy;
  return proxy === undefined ? {} : { HTTPS_PROXY: proxy, HTTP_PROXY: proxy, ...(noProxy && { NO_PROXY: noProxy }) };
}
