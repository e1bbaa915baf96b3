import type { HttpClient } from "@azure/core-rest-pipeline";
import type { Outgoing, OutgoingRequest } from "./outgoing.ts";

/**
 * Wraps an `Outgoing` client as the HTTP client of Azure's SDKs, for requests without a body.
 *
 * @returns a client that throws `Unreachable`, also for a response over the size limit.
 */
export const guardedHttpClient = (outgoing: Outgoing): HttpClient => ({
  async sendRequest(request) {
    const { createHttpHeaders } = await import("@azure/core-rest-pipeline");
    const { method, url } = request;
    if (method !== "GET") throw new TypeError(`The method ${method} is not sent.`);
    const { status, headers, body } = await outgoing.send(url, {
      method,
      headers: request.headers.toJSON(),
    } satisfies OutgoingRequest);
    const responseHeaders = createHttpHeaders();
    for (const [name, value] of Object.entries(headers))
      if (value !== undefined) responseHeaders.set(name, [value].flat().join(", "));
    return { request, status, headers: responseHeaders, bodyAsText: body.toString("utf8") };
  },
});
