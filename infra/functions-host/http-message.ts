// Converts between Node's HTTP messages and the HTTP data of the worker protocol.

import type { IncomingMessage, ServerResponse } from "node:http";
import { decodeEscapes, encodePath } from "./request-path.ts";
import type { HttpCookie, HttpData, InvocationResponse } from "./worker-protocol.ts";

/**
 * Default of the platform, `ScriptConstants.DefaultMaxRequestBodySize`. The app setting FUNCTIONS_REQUEST_BODY_SIZE_LIMIT
 * overrides it.
 */
const MAX_REQUEST_BODY_BYTES = 104_857_600;

/** The request body exceeds the limit. The caller responds with 413. */
export class BodyTooLarge extends Error {}

/**
 * Converts a request to the worker protocol, as the host does (`GrpcMessageConversionExtensions.ToRpcHttp`).
 * @throws BodyTooLarge
 */
export async function toHttpData(
  request: IncomingMessage,
  path: string,
  params: Record<string, string>,
): Promise<HttpData> {
  const headers = requestHeaders(request);
  const query = /\?([^#]*)/.exec(request.url ?? "")?.[1] ?? "";
  const body = await readBody(request);
  return {
    method: request.method ?? "GET",
    url: `http://${headers.get("host") ?? "localhost"}${encodePath(path)}${query === "" ? "" : `?${query}`}`,
    nullableHeaders: nullable(headers),
    nullableQuery: nullable(parseQuery(query)),
    nullableParams: nullable(Object.entries(params)),
    body: body === undefined ? null : { bytes: body },
  };
}

/**
 * Returns the headers with lower-case names. Repeated headers are joined by "," without a space. Like the platform's web
 * server, this host reads values as UTF-8, although Node.js decodes them as Latin-1. The app's library rejects characters
 * beyond Latin-1, so such a header results in a 500, as on the platform.
 */
function requestHeaders(request: IncomingMessage): Map<string, string> {
  const headers = new Map<string, string>();
  for (let i = 0; i + 1 < request.rawHeaders.length; i += 2) {
    const name = request.rawHeaders[i]!.toLowerCase();
    const value = Buffer.from(request.rawHeaders[i + 1]!, "latin1").toString("utf8");
    const previous = headers.get(name);
    headers.set(name, previous === undefined ? value : `${previous},${value}`);
  }
  // The platform's front end appends the client's address and port to the header that the client sent.
  const sentByCaller = headers.get("x-forwarded-for");
  const address = clientAddress(request);
  headers.set("x-forwarded-for", sentByCaller === undefined ? address : `${sentByCaller}, ${address}`);
  return headers;
}

function clientAddress({ socket: { remoteAddress = "", remotePort } }: IncomingMessage): string {
  const address = remoteAddress.replace(/^::ffff:/, "");
  return address.includes(":") ? `[${address}]:${remotePort}` : `${address}:${remotePort}`;
}

/** Returns the query parameters. Names ignore case and keep their first spelling. Repeated parameters are joined by ",". */
function parseQuery(query: string): Map<string, string> {
  const spelling = new Map<string, string>();
  const values = new Map<string, string>();
  for (const pair of query.split("&")) {
    if (pair === "") continue;
    const [rawName, ...valueParts] = pair.split("=") as [string, ...string[]];
    const [name, value] = [rawName, valueParts.join("=")].map((text) =>
      decodeEscapes(text.replaceAll("+", " "), { keepSlash: false }),
    ) as [string, string];
    const key = spelling.get(name.toLowerCase()) ?? name;
    spelling.set(name.toLowerCase(), key);
    const previous = values.get(key);
    values.set(key, previous === undefined ? value : `${previous},${value}`);
  }
  return values;
}

/** Reads the body if Content-Length is above 0. A chunked body is lost, as on the platform while HTTP streaming is off. */
async function readBody(request: IncomingMessage): Promise<Buffer | undefined> {
  const length = Number(request.headers["content-length"] ?? 0);
  if (!(length > 0)) return undefined;
  const limit = Number(process.env.FUNCTIONS_REQUEST_BODY_SIZE_LIMIT ?? MAX_REQUEST_BODY_BYTES);
  if (length > limit) throw new BodyTooLarge(`${length} bytes are more than ${limit}`);
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function nullable(entries: Iterable<[string, string]>): Record<string, { value: string }> {
  return Object.fromEntries([...entries].map(([name, value]) => [name, { value }]));
}

/** Writes a function's response. No response is a 204. */
export function sendResponse(response: ServerResponse, { returnValue }: InvocationResponse): void {
  const http = returnValue?.http;
  if (http === undefined) {
    response.writeHead(204).end();
    return;
  }
  response.statusCode = Number(http.statusCode);
  for (const [name, value] of Object.entries(http.headers ?? {})) {
    // The host sends the whole body at once and sets these headers itself.
    if (!["content-length", "transfer-encoding", "connection"].includes(name)) response.setHeader(name, value);
  }
  for (const cookie of http.cookies ?? []) response.appendHeader("set-cookie", cookieText(cookie));
  const bytes = http.body?.bytes;
  response.end(bytes !== undefined && bytes.byteLength > 0 ? bytes : undefined);
}

/** Formats a cookie as `Response.Cookies.Append` of ASP.NET Core does: the value is escaped, and the default is `path=/`. */
function cookieText({ name, value, domain, path, expires, secure, httpOnly, sameSite, maxAge }: HttpCookie): string {
  const parts = [`${name}=${escapeData(value)}`];
  if (expires?.value) parts.push(`expires=${new Date(expires.value.seconds * 1000).toUTCString()}`);
  if (typeof maxAge?.value === "number") parts.push(`max-age=${Math.trunc(maxAge.value)}`);
  if (domain?.value) parts.push(`domain=${domain.value}`);
  parts.push(`path=${path?.value ?? "/"}`);
  if (secure?.value) parts.push("secure");
  if (sameSite !== undefined && sameSite !== "none") {
    parts.push(`samesite=${sameSite === "explicitNone" ? "none" : sameSite}`);
  }
  if (httpOnly?.value) parts.push("httponly");
  return parts.join("; ");
}

/** Escapes text as .NET's `Uri.EscapeDataString` does, which escapes more characters than `encodeURIComponent`. */
function escapeData(text: string): string {
  return encodeURIComponent(text).replaceAll(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}
