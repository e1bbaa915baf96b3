// Faults make the simulated cloud misbehave for matching requests: errors, delays, lost or malformed responses. Tests add them.

import { setTimeout as sleep } from "node:timers/promises";
import { type IncomingRequest, type Operation, retryAfter, type ServiceResponse } from "./http.ts";

/**
 * The requests to which a fault applies. A request must match every given member. Without members, the fault matches every
 * request.
 */
interface FaultMatch {
  host?: string;
  /** An operation such as `keyvault.listSecrets`, or a prefix such as `keyvault.*`. */
  operation?: string;
  vault?: string;
  subscription?: string;
  /** ID of a resource other than a vault. */
  resource?: string;
  /** Name of a secret, key, certificate or setting, or of a webhook sink. */
  item?: string;
}

export type FaultAction =
  /** Waits, then continues with the next matching fault or the normal response. */
  | { kind: "latency"; milliseconds: number }
  /** 429, with the header `Retry-After` only if it is given. */
  | { kind: "throttle"; retryAfterSeconds?: number }
  /** 403: missing permission. */
  | { kind: "deny" }
  /** 403: the firewall blocks the client's address. */
  | { kind: "firewall" }
  /** An error that only one service has, by its name in `ErrorResponses.named` of that service. */
  | { kind: "refuse"; as: string }
  /** 500, 502, 503, 504 or any other status. */
  | { kind: "fail"; status: number }
  /** No response. The connection stays open until the client gives up. */
  | { kind: "hang" }
  /** Runs the operation, then sends no response. */
  | { kind: "hangAfter" }
  /** Closes the connection before the operation runs. Clients see a connection reset. */
  | { kind: "reset" }
  /** 101 (Switching Protocols) to a request that did not ask for it, and nothing after it. */
  | { kind: "switchProtocols" }
  /** Runs the operation, then closes the connection without a response, so that the client does not know the outcome. */
  | { kind: "loseAnswer" }
  /** Runs the operation, then closes the connection in the middle of the response body. */
  | { kind: "cutAnswer" }
  /** Runs the operation, then returns 500 or 503, with the header `Retry-After` only if it is given. */
  | { kind: "failAfter"; status: number; retryAfterSeconds?: number }
  /** 200 with a page that is not JSON, truncated JSON, or JSON of another shape. */
  | { kind: "garbage"; as: "html" | "truncated" | "otherShape" }
  /** The normal response, but its next link points to `https://evil.localhost`. */
  | { kind: "foreignNextLink" };

export interface Fault {
  match?: FaultMatch;
  action: FaultAction;
  /** Number of times the fault applies. Default: always. */
  times?: number;
  /** Number of matching requests that pass before the fault applies. */
  after?: number;
}

export interface ActiveFault extends Fault {
  id: string;
  /** Number of times the fault has applied. */
  happened: number;
}

/** Result of a request. Without a response, the server closes the connection. `fault` is the ID of the fault that applied. */
export type Outcome = { answer: ServiceResponse | undefined; fault?: string };

/** Faults of the network. They also apply to requests without a token, unlike errors of a service. */
const NETWORK_FAULTS = new Set<FaultAction["kind"]>([
  "latency",
  "hang",
  "hangAfter",
  "reset",
  "switchProtocols",
  "loseAnswer",
  "cutAnswer",
]);

/** Stores the faults in the order in which they were added. The first matching fault applies. Latencies before it are added. */
export class Faults {
  /** `matched` is the number of matching requests so far, also those to which the fault did not apply. */
  #rules: (ActiveFault & { matched: number })[] = [];
  #nextId = 1;

  add(fault: Fault): string {
    const id = `fault-${this.#nextId++}`;
    this.#rules.push({ ...fault, id, happened: 0, matched: 0 });
    return id;
  }

  remove(id: string): boolean {
    const countBefore = this.#rules.length;
    this.#rules = this.#rules.filter((rule) => rule.id !== id);
    return this.#rules.length < countBefore;
  }

  clear(): void {
    this.#rules = [];
  }

  list(): ActiveFault[] {
    return this.#rules.map(({ matched: _, ...rule }) => rule);
  }

  /** Returns the operation's response, or the response of a matching fault. */
  async apply(request: IncomingRequest, operation: Operation, foreignHost: string): Promise<Outcome> {
    for (const rule of this.#rules) {
      if (!matchesRequest(rule.match ?? {}, request, operation)) continue;
      // Requests without a token get the normal 401, unless a fault names exactly this operation, such as `keyvault.challenge`.
      const namesOperation = rule.match?.operation === operation.name;
      if (operation.anonymous && !namesOperation && !NETWORK_FAULTS.has(rule.action.kind)) continue;
      rule.matched++;
      if (rule.matched <= (rule.after ?? 0) || rule.happened >= (rule.times ?? Number.POSITIVE_INFINITY)) continue;
      rule.happened++;
      if (rule.action.kind === "latency") {
        await sleep(rule.action.milliseconds);
        continue;
      }
      return { answer: await faultResponse(rule.action, operation, foreignHost), fault: rule.id };
    }
    return { answer: await operation.answer() };
  }
}

/** Returns the response of a fault. */
async function faultResponse(
  action: Exclude<FaultAction, { kind: "latency" }>,
  operation: Operation,
  foreignHost: string,
): Promise<ServiceResponse | undefined> {
  switch (action.kind) {
    case "throttle":
      return operation.errorResponses.throttled(action.retryAfterSeconds);
    case "deny":
      return operation.errorResponses.denied();
    case "firewall":
      return operation.errorResponses.firewalled();
    case "refuse": {
      const refusal = operation.errorResponses.named?.[action.as];
      if (refusal === undefined) throw new Error(`${operation.name} has no refusal "${action.as}"`);
      return refusal();
    }
    case "fail":
      return operation.errorResponses.failed(action.status);
    case "hang":
      // Never settles. The client's timeout or the cloud's stop closes the connection.
      return new Promise(() => {});
    case "hangAfter":
      await operation.answer();
      return new Promise(() => {});
    case "reset":
      return undefined;
    case "switchProtocols":
      return { status: 101 };
    case "loseAnswer":
      await operation.answer();
      return undefined;
    case "cutAnswer":
      return { ...(await operation.answer()), cut: true };
    case "failAfter":
      await operation.answer();
      return withRetryAfter(operation.errorResponses.failed(action.status), action.retryAfterSeconds);
    case "garbage":
      return garbage(action.as);
    case "foreignNextLink": {
      const answer = await operation.answer();
      if (typeof answer.body !== "object" || answer.body === null) return answer;
      const name = "@odata.context" in answer.body ? "@odata.nextLink" : "nextLink";
      return { ...answer, body: { ...answer.body, [name]: `${foreignHost}/stolen?page=2` } };
    }
  }
}

const withRetryAfter = (answer: ServiceResponse, seconds: number | undefined): ServiceResponse => ({
  ...answer,
  headers: { ...answer.headers, ...retryAfter(seconds) },
});

function garbage(as: "html" | "truncated" | "otherShape"): ServiceResponse {
  const json = "application/json; charset=utf-8";
  if (as === "truncated") return { status: 200, text: { type: json, content: '{"value":[{"id":"https://' } };
  if (as === "otherShape") return { status: 200, body: { value: { not: "a list" } } };
  const content = "<!doctype html><title>Proxy</title><p>Please sign in to the network.</p>";
  return { status: 200, text: { type: "text/html", content } };
}

function matchesRequest(match: FaultMatch, request: IncomingRequest, operation: Operation): boolean {
  return (
    equalOrUnset(match.host, request.host) &&
    equalOrUnset(match.vault, operation.vault) &&
    equalOrUnset(match.subscription, operation.subscription) &&
    equalOrUnset(match.resource, operation.resource) &&
    equalOrUnset(match.item, operation.item) &&
    (match.operation === undefined ||
      match.operation === operation.name ||
      (match.operation.endsWith("*") && operation.name.startsWith(match.operation.slice(0, -1))))
  );
}

/** Returns whether the values are equal, ignoring case, or nothing is expected. */
function equalOrUnset(expected: string | undefined, actual: string | undefined): boolean {
  return expected === undefined || expected.toLowerCase() === actual?.toLowerCase();
}
