// HTTP requests, responses and operations: the common interface of the simulated services. server.ts dispatches requests to
// them.

import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";

/** A received HTTP request. */
export interface IncomingRequest {
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
export interface ServiceResponse {
  status: number;
  headers?: Record<string, string>;
  body?: unknown;
  text?: { type: string; content: string };
  /** Close the connection in the middle of the JSON body. */
  cut?: boolean;
}

/**
 * The operation that a request calls, for example "list the secrets of a vault". A service determines the operation before it
 * runs, so that requests can be counted, and faults can apply, by operation.
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
  /** Error responses in the format of the service. */
  errorResponses: ErrorResponses;
  /**
   * True if the request has no valid credential. The service then rejects it, and mostly only faults of the network apply to it
   * (faults.ts).
   */
  anonymous?: boolean;
  /** Runs the operation. Returns the response. */
  answer(): ServiceResponse | Promise<ServiceResponse>;
}

/** Error responses of a service, which faults and role assignments cause. Each service has its own format. */
export interface ErrorResponses {
  throttled(retryAfterSeconds?: number): ServiceResponse;
  denied(): ServiceResponse;
  firewalled(): ServiceResponse;
  failed(status: number): ServiceResponse;
  /** Errors that only this service has, by the name that a fault uses. */
  named?: Record<string, () => ServiceResponse>;
}

/** A simulated service: returns the operation of a request. Undefined if the service has no operation at that path. */
export type Service = (request: IncomingRequest) => Operation | undefined;

/** Maximum body size. It is larger than every limit of the services: an e-mail of 10 MB with base64 attachments. */
const MAX_BODY_BYTES = 16 * 1024 * 1024;

/**
 * Reads a request with its body.
 * @throws {RangeError} if the body is too large.
 */
export async function readRequest(message: IncomingMessage): Promise<IncomingRequest> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of message) {
    length += part.length;
    if (length > MAX_BODY_BYTES) throw new RangeError("The body is too large");
    parts.push(part);
  }
  return { ...requestHead(message), body: Buffer.concat(parts) };
}

/** Returns a request without its body. */
export function requestHead(message: IncomingMessage): Omit<IncomingRequest, "body"> {
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

/** Sends a response. */
export function send(response: ServerResponse, answer: ServiceResponse): void {
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

/** Returns the header `Retry-After`. No header if `seconds` is undefined. */
export function retryAfter(seconds: number | undefined): Record<string, string> {
  return seconds === undefined ? {} : { "retry-after": String(seconds) };
}

/** Returns the body as a JSON object. Undefined if it is not one. */
export function jsonObject(request: IncomingRequest): Record<string, unknown> | undefined {
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

/** Decodes a path segment. An invalid escape is unchanged. */
function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch (error) {
    if (error instanceof URIError) return segment;
    throw error;
  }
}
