// HTTP requests, responses and operations as all simulated services use them.

import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";

/** A received HTTP request. */
export interface Incoming {
  method: string;
  /** Host name without the port, in lower case. */
  host: string;
  /** Host header as the client sent it, with the port. */
  authority: string;
  /** Path segments, percent-decoded. */
  segments: string[];
  /** Path and query as received, for signatures. */
  target: string;
  path: string;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** A response. `body` is sent as JSON, `text` unchanged. */
export interface Answer {
  status: number;
  headers?: Record<string, string>;
  body?: unknown;
  text?: { type: string; content: string };
  /** Close the connection in the middle of the JSON body. */
  cut?: boolean;
}

/**
 * The operation that a request calls. It is determined before anything runs, so that the request can be counted, delayed or
 * rejected by operation.
 */
export interface Operation {
  /** Name of the operation, such as `keyvault.listSecrets`. */
  name: string;
  vault?: string;
  subscription?: string;
  /** ID of a resource other than a vault. */
  resource?: string;
  /** The action that a role must allow, if it does not follow from the operation's name. */
  action?: string;
  /** The name of a secret, key, certificate or setting. */
  item?: string;
  /** The service's own error responses. */
  refusals: Refusals;
  /** True if the request has no valid credential. The service rejects it before any fault applies. */
  anonymous?: boolean;
  answer(): Answer | Promise<Answer>;
}

export interface Refusals {
  throttled(retryAfterSeconds?: number): Answer;
  denied(): Answer;
  firewalled(): Answer;
  failed(status: number): Answer;
  /** Errors that only this service has, by the name that a fault uses. */
  named?: Record<string, () => Answer>;
}

/** Finds the operation of a request. Undefined if the service has none at that path. */
export type Service = (request: Incoming) => Operation | undefined;

/** Maximum body size. It is larger than every limit of the services: an e-mail of 10 MB with base64 attachments. */
const MAX_BODY_BYTES = 16 * 1024 * 1024;

/**
 * Reads a request with its body.
 * @throws {RangeError} if the body is too large.
 */
export async function readRequest(message: IncomingMessage): Promise<Incoming> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of message) {
    length += part.length;
    if (length > MAX_BODY_BYTES) throw new RangeError("The body is too large");
    parts.push(part);
  }
  return { ...requestHead(message), body: Buffer.concat(parts) };
}

/** Returns a request whose body has not been read. */
export function requestHead(message: IncomingMessage): Omit<Incoming, "body"> {
  const authority = message.headers.host ?? "";
  const target = message.url ?? "/";
  const question = target.indexOf("?");
  const path = question < 0 ? target : target.slice(0, question);
  return {
    method: message.method ?? "GET",
    host: authority.replace(/:\d+$/, "").toLowerCase(),
    authority,
    segments: path.split("/").slice(1).map(decode),
    target,
    path,
    query: new URLSearchParams(question < 0 ? "" : target.slice(question + 1)),
    headers: message.headers,
  };
}

export function send(response: ServerResponse, answer: Answer): void {
  const { status, headers = {}, body, text } = answer;
  if (status === 101) {
    // Written to the socket directly, because the response object would close the connection.
    response.socket?.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n");
  } else if (text !== undefined) {
    response.writeHead(status, { ...headers, "content-type": text.type });
    response.end(text.content);
  } else if (body !== undefined) {
    const content = Buffer.from(JSON.stringify(body));
    response.writeHead(status, {
      "content-type": "application/json; charset=utf-8",
      ...headers,
      "content-length": content.length,
    });
    if (answer.cut) response.write(content.subarray(0, content.length / 2), () => response.destroy());
    else response.end(content);
  } else {
    response.writeHead(status, status === 204 ? headers : { ...headers, "content-length": 0 });
    response.end();
  }
}

/** `Retry-After`, for the errors that have it. */
export function retryAfter(seconds: number | undefined): Record<string, string> {
  return seconds === undefined ? {} : { "retry-after": String(seconds) };
}

/** Returns the body as a JSON object. Undefined if it is not one. */
export function jsonObject(request: Incoming): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(request.body.toString("utf8"));
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch (error) {
    if (error instanceof URIError) return segment;
    throw error;
  }
}
