import http, { type IncomingMessage } from "node:http";
import https from "node:https";
import { addAbortSignal } from "node:stream";
import tls from "node:tls";
import type { HttpClient, PipelineRequest } from "@azure/core-rest-pipeline";
import { loadOnce } from "./load-once.ts";
import { noteRequest } from "./sent-changes.ts";

/** Thrown if the response is not complete within `PipelineRequest.timeout`. */
export class AnswerTimeout extends Error {
  override readonly name = "AnswerTimeout";
}

/** Thrown if a response has more than `MAX_ANSWER_BYTES`. */
export class AnswerTooLarge extends Error {
  override readonly name = "AnswerTooLarge";
}

export interface ConnectionLimits {
  /**
   * Maximum number of connections to one host. Further requests wait. Undefined: one connection for each request in progress.
   */
  perHost?: number;
  /** Milliseconds after which an idle connection is closed. */
  idleMs: number;
}

/** An HTTP client with its own connections. */
export interface Transport {
  /** Sends requests. Throws `AnswerTimeout`, `AnswerTooLarge`, an `AbortError`, or a network error as a `RestError`. */
  client: HttpClient;
  /** Closes all connections. A later request opens a new connection. */
  close(): void;
}

/** Maximum size of a response in bytes. An instance has about 500 MB of memory. */
export const MAX_ANSWER_BYTES = 128 * 1024 * 1024;

/** Shared by all connections: creating one for each connection costs as much processor time as several requests. */
const secureContext = loadOnce(async () => tls.createSecureContext());

/** Makes the SDK's client return every body as a stream: it reads infinity as "all statuses". */
const ALL_STATUSES = new Set([Number.POSITIVE_INFINITY]);

/**
 * Creates an HTTP client with its own connections, for the SDKs of Azure and Azure Storage. It uses the SDKs' default client,
 * but `timeout` also covers the body of the response, and the size of a response is limited.
 */
export async function createTransport({ perHost = Infinity, idleMs }: ConnectionLimits): Promise<Transport> {
  const { createDefaultHttpClient, createPipelineRequest, RestError } = await import("@azure/core-rest-pipeline");
  const defaultClient = createDefaultHttpClient();
  const options = { keepAlive: true, maxSockets: perHost, timeout: idleMs, proxyEnv: proxyOf(process.env) };
  const httpAgent = new http.Agent(options);
  const httpsAgent = new https.Agent({ ...options, secureContext: await secureContext() });

  async function sendRequest(request: PipelineRequest) {
    const stop = new AbortController();
    const abort = () => stop.abort();
    const timer = request.timeout > 0 ? setTimeout(() => stop.abort(new AnswerTimeout()), request.timeout) : undefined;
    request.abortSignal?.addEventListener("abort", abort);
    if (request.abortSignal?.aborted) abort();
    // A compressed response could not be aborted while its body is read.
    request.headers.set("accept-encoding", "identity");
    const { url, method, headers, body } = request;
    noteRequest(method);
    try {
      const sent = createPipelineRequest({
        url,
        method,
        headers,
        body,
        abortSignal: stop.signal,
        // The environment names the addresses, and those of emulators use plain http.
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

/** Error code of a response whose connection was closed before its end. */
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
  // A response without a length ends when its connection is closed. A broken connection is not a valid end.
  if (socket.errored) throw socket.errored;
  return Buffer.concat(parts).toString();
}

/** Returns the proxy settings of the environment for Node's agents. As in Azure's clients, one proxy serves all addresses. */
function proxyOf(environment: NodeJS.ProcessEnv) {
  const names = ["HTTPS_PROXY", "ALL_PROXY", "HTTP_PROXY"].flatMap((name) => [name, name.toLowerCase()]);
  const proxy = names.map((name) => environment[name]).find(Boolean);
  const noProxy = environment.NO_PROXY || environment.no_proxy;
  return proxy === undefined ? {} : { HTTPS_PROXY: proxy, HTTP_PROXY: proxy, ...(noProxy && { NO_PROXY: noProxy }) };
}
