/**
 * Load generator of the benchmark `frontDoor`: a child process, so that its clients don't slow the measuring process. The
 * parent sends a `Crowd` to start the clients and `"enough"` to stop them. The child then sends a `CrowdDone` back. Clients
 * also stop when they reach the limits of their crowd.
 */
import http from "node:http";
import { sendTimedRequest, type TimedResponse } from "./timed-request.ts";

export interface Crowd {
  /** URL of the service on this machine. */
  url: string;
  /** Client addresses, sent in `X-Forwarded-For`. */
  clients: string[];
  /** Requests that each client repeats in this order, without a pause. */
  requests: CrowdRequest[];
  /** Maximum number of requests of one client. */
  maxRequests: number;
  /** Duration in milliseconds after which no request is started. */
  durationMs: number;
}

export interface CrowdRequest {
  method: string;
  path: string;
  /** Body text. `{client}` is replaced by the client's index and `{round}` by the number of its earlier requests. */
  body?: string;
}

/** Number of responses by status, and the bytes of all responses. */
export interface CrowdDone {
  seconds: number;
  statuses: Record<string, number>;
  bytes: number;
}

let isStopRequested = false;

async function runCrowd({ url, clients, requests, maxRequests, durationMs }: Crowd): Promise<CrowdDone> {
  const agent = new http.Agent({ keepAlive: true, maxSockets: clients.length });
  const totals: CrowdDone = { seconds: 0, statuses: {}, bytes: 0 };
  const started = performance.now();
  isStopRequested = false;
  const mayContinue = (round: number) =>
    !isStopRequested && round < maxRequests && performance.now() - started < durationMs;
  const count = ({ status, bytes }: TimedResponse) => {
    totals.statuses[status] = (totals.statuses[status] ?? 0) + 1;
    totals.bytes += bytes;
  };
  await Promise.all(
    clients.map(async (address, client) => {
      const headers = { "X-Forwarded-For": address, "Accept-Encoding": "gzip" };
      for (let round = 0; mayContinue(round); round++) {
        // Each client starts at another request, so that the clients do not send the same request at the same time.
        const { method, path, body } = requests[(client + round) % requests.length]!;
        const filledBody = body?.replace("{client}", String(client)).replace("{round}", String(round));
        const allHeaders = filledBody === undefined ? headers : { ...headers, "Content-Type": "application/json" };
        const options = { method, headers: allHeaders, ...(filledBody && { body: filledBody }) };
        count(await sendTimedRequest(agent, url + path, options));
      }
    }),
  );
  agent.destroy();
  totals.seconds = (performance.now() - started) / 1000;
  return totals;
}

process.on("message", (message: Crowd | "enough") => {
  if (message === "enough") isStopRequested = true;
  // Failed requests are counted with status 0. Any other error ends this process, which its parent notices.
  else void runCrowd(message).then((totals) => process.send!(totals));
});
process.on("disconnect", () => process.exit());
