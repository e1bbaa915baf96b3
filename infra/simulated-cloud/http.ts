import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";

/** A request as the services see it. */
export interface Incoming {
  method: string;
  /** Without the port, in lower case. */
  host: string;
  /** As the client wrote it, with the port. */
  authority: string;
  /** The path's segments, percent-decoded. */
  segments: string[];
  /** Path and query exactly as they came, for signatures. */
  target: string;
  path: string;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** A service's answer; `body` goes out as JSON, `text` as it is. */
export interface Answer {
  status: number;
  headers?: Record<string, string>;
  body?: unknown;
  text?: { type: string; content: string };
  /** The connection ends half-way through the JSON body. */
  cut?: boolean;
}

/**
 * What a request asks for, found before anything is done about it, so that it can be counted, delayed or refused under
 * its name.
 */
export interface Operation {
  /** Such as `keyvault.listSecrets`. */
  name: string;
  vault?: string;
  subscription?: string;
  /** The id of a resource of the resource manager other than a vault. */
  resource?: string;
  /** What a role must allow for it, where that does not follow from the name. */
  action?: string;
  /** The name of a secret, key, certificate or setting. */
  item?: string;
  /** How the service says each refusal, in its own words. */
  refusals: Refusals;
  /** True when the request carries no proof of who sends it: answered before any refusal would be looked at. */
  anonymous?: boolean;
  answer(): Answer | Promise<Answer>;
}

export interface Refusals {
  throttled(retryAfterSeconds?: number): Answer;
  denied(): Answer;
  firewalled(): Answer;
  failed(status: number): Answer;
  /** Refusals that only this service has, by the names that a fault asks for them with. */
  named?: Record<string, () => Answer>;
}

/** Finds the operation a request asks for; undefined when the service has none at that path. */
export type Service = (request: Incoming) => Operation | undefined;

/** Larger than anything the services take: an e-mail of 10 MB with its attachments in base64. */
const MAX_BODY_BYTES = 16 * 1024 * 1024;

/** @throws {RangeError} when the body is too large. */
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

/** A request whose body nobody has read yet. */
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
    // Past the response, which would close the connection.
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

/** `Retry-After`, for the refusals that have one. */
export function retryAfter(seconds: number | undefined): Record<string, string> {
  return seconds === undefined ? {} : { "retry-after": String(seconds) };
}

/** The body as a JSON object; undefined when it is none. */
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
