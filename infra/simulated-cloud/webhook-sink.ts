import type { ErrorResponses, IncomingRequest, Operation, ServiceResponse } from "./http.ts";
import { retryAfter } from "./http.ts";

/** A request that a sink received. */
export interface ReceivedRequest {
  /** ISO 8601. */
  at: string;
  method: string;
  headers: Record<string, string>;
  body: string;
}

/** Receives webhooks for tests. A request to `/sink/<name>` on the control port is stored under the name. */
export class WebhookSinks {
  readonly #received = new Map<string, ReceivedRequest[]>();

  operation(request: IncomingRequest): Operation {
    const name = request.segments[1] ?? "";
    return { name: "sink.receive", item: name, errorResponses, answer: () => this.#receive(name, request) };
  }

  list(name: string): ReceivedRequest[] {
    return [...(this.#received.get(name) ?? [])];
  }

  clear(name: string): void {
    this.#received.delete(name);
  }

  #receive(name: string, request: IncomingRequest): ServiceResponse {
    const headers = Object.fromEntries(
      Object.entries(request.headers).map(([key, value]) => [key, [value].flat().join(", ")]),
    );
    const received = this.#received.get(name) ?? [];
    const body = request.body.toString("utf8");
    received.push({ at: new Date().toISOString(), method: request.method, headers, body });
    this.#received.set(name, received);
    return { status: 200, text: { type: "text/plain", content: "ok" } };
  }
}

const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({ status: 429, headers: retryAfter(seconds) }),
  denied: () => ({ status: 403 }),
  firewalled: () => ({ status: 403 }),
  failed: (status) => ({ status }),
};
