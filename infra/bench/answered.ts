import http from "node:http";

/** A response without its body. */
export interface Answered {
  /** HTTP status. 0 if the connection failed. */
  status: number;
  /** Time from the call until the last byte arrived. */
  milliseconds: number;
  /** Bytes of the body as they were sent, which may be compressed. */
  bytes: number;
}

/**
 * Sends a request with `node:http` and discards the compressed body, because decompression would cost the client more than the
 * request.
 */
export async function answered(
  agent: http.Agent,
  url: string,
  { method = "GET", headers = {}, body }: { method?: string; headers?: Record<string, string>; body?: string } = {},
): Promise<Answered> {
  const started = performance.now();
  return await new Promise((resolve) => {
    let bytes = 0;
    const end = (status: number) => resolve({ status, milliseconds: performance.now() - started, bytes });
    const request = http.request(url, { agent, method, headers }, (answer) => {
      answer.on("data", (part: Buffer) => {
        bytes += part.length;
      });
      answer.on("end", () => end(answer.statusCode!)).on("error", () => end(0));
    });
    request.on("error", () => end(0)).end(body);
  });
}
