import type { CallOptions } from "../support/service.ts";
import type { Fault } from "../support/table-proxy.ts";

/*
 * An entry of the outcome tests. For each fault of storage, outcomes.test.ts prepares a new change and sends it during the
 * fault. Then the response, `state()` and the audit entries must agree. After an outage, it sends the change once more.
 */

/** One request that changes something, and how to find out whether it did. */
export interface Change {
  method: string;
  path: string;
  options?: CallOptions;
  /** Status code of success. */
  status: number;
  /** Allowed status codes of a repeated request, if the outcome of the first one was unknown. */
  allowedOnRepeat: number[];
  /** Reads whether the change happened. `begun`: it is in progress, the API shows that, and a repeated request completes it. */
  state(): Promise<"done" | "undone" | "begun">;
  /** Type of the audit entries. `belongsToRequest` selects those of this request if the request's ID is not enough. */
  event: string;
  belongsToRequest?: (entry: { details?: Record<string, unknown>; target?: { id: string } }) => boolean;
  /** Outcomes of the audit entries with the type `event` of one successful request. Default: `intent` and `success`. */
  outcomes?: string[];
  /** Waits until no background work of the request is left. */
  waitForBackgroundWork?(): Promise<void>;
}

/** An endpoint and how to prepare a request to it. */
export interface ChangingEndpoint {
  /** Method and path as in the OpenAPI document. */
  endpoint: string;
  prepare(): Promise<Change>;
  /** The tested faults. Default: all. Endpoints that hash a password are slow and get fewer. */
  faults?: readonly Fault[];
  /** Maximum number of writes that are tested, from the first. Default: 20. Further writes repeat these for other rows. */
  maxWrites?: number;
}
