/**
 * Clients of the benchmark `frontDoor`, in a process of their own so that they don't slow the measuring process. Executes the
 * messages of its parent one after the other until the parent ends it or its limits are reached.
 */
import http from "node:http";
import { type Answered, answered } from "./answered.ts";

export interface Crowd {
  /** URL of the service on this machine. */
  url: string;
  /** Client addresses, sent in `X-Forwarded-For`. */
  clients: string[];
  /** Requests that each client repeats in this order, without a pause. */
  requests: CrowdRequest[];
  /** Maximum number of requests of one client, and the milliseconds after which no request is started. */
  most: number;
  forMs: number;
}

export interface CrowdRequest {
  method: string;
  path: string;
  /** `{client}` and `{round}` are replaced by their numbers. */
  body?: string;
}

/** Number of responses by status, and the bytes of all responses. */
export interface CrowdDone {
  seconds: number;
  statuses: Record<string, number>;
  bytes: number;
}

let isEnough = false;

async function gather({ url, clients, requests, most, forMs }: Crowd): Promise<CrowdDone> {
  const agent = new http.Agent({ keepAlive: true, maxSockets: clients.length });
  const done: CrowdDone = { seconds: 0, statuses: {}, bytes: 0 };
  const started = performance.now();
  isEnough = false;
  const mayContinue = (round: number) => !isEnough && round < most && performance.now() - started < forMs;
  const count = ({ status, bytes }: Answered) => {
    done.statuses[status] = (done.statuses[status] ?? 0) + 1;
    done.bytes += bytes;
  };
  await Promise.all(
    clients.map(async (address, client) => {
      const headers = { "X-Forwarded-For": address, "Accept-Encoding": "gzip" };
      for (let round = 0; mayContinue(round); round++) {
        // Each client starts at another request, so that the clients do not send the same request at the same time.
        const { method, path, body } = requests[(client + round) % requests.length]!;
        const filled = body?.replace("{client}", String(client)).replace("{round}", String(round));
        const typed = filled === undefined ? headers : { ...headers, "Content-Type": "application/json" };
        count(await answered(agent, url + path, { method, headers: typed, ...(filled && { body: filled }) }));
      }
    }),
  );
  agent.destroy();
  done.seconds = (performance.now() - started) / 1000;
  return done;
}

process.on("message", (message: Crowd | "enough") => {
  if (message === "enough") isEnough = true;
  // Failed requests are counted. Any other error ends this process, which its parent notices.
  else void gather(message).then((done) => process.send!(done));
});
process.on("disconnect", () => process.exit());
