import http from "node:http";

/** Status, duration and size of an HTTP response. The body itself is discarded. */
export interface TimedResponse {
  /** HTTP status. 0 if the connection failed. */
  status: number;
  /** Time from the call until the last byte arrived. */
  milliseconds: number;
  /** Bytes of the body as they were sent, which may be compressed. */
  bytes: number;
}

/**
 * Sends a request and measures the response. Uses `node:http` instead of `fetch` so that a compressed body is not decompressed:
 * decompression would cost the client more processor time than the request.
 */
export async function sendTimedRequest(
  agent: http.Agent,
  url: string,
  { method = "GET", headers = {}, body }: { method?: string; headers?: Record<string, string>; body?: string } = {},
): Promise<TimedResponse> {
  const started = performance.now();
  return await new Promise((resolve) => {
    let bytes = 0;
    const finish = (status: number) => resolve({ status, milliseconds: performance.now() - started, bytes });
    const request = http.request(url, { agent, method, headers }, (response) => {
      response.on("data", (part: Buffer) => {
        bytes += part.length;
      });
      response.on("end", () => finish(response.statusCode!)).on("error", () => finish(0));
    });
    request.on("error", () => finish(0)).end(body);
  });
}
