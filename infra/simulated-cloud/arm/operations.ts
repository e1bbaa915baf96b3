import { randomUUID } from "node:crypto";
import type { Answer } from "../http.ts";

interface Operation {
  /** Number of polls so far. */
  polls: number;
  name: string;
  result: () => Answer;
}

/** Number of polls that return "in progress". */
const POLLS_IN_PROGRESS = 1;

/**
 * Asynchronous operations of Azure Resource Manager:
 * https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
 */
export class Operations {
  readonly #operations = new Map<string, Operation>();

  /**
   * Returns the 202 response to the request that starts an operation. The work is already done; only its completion is reported
   * later.
   */
  start(
    { origin }: { origin: string },
    of: { subscription: string; namespace: string; version: string; name: string },
    result: () => Answer,
  ): Answer {
    const id = randomUUID();
    this.#operations.set(id, { polls: 0, name: of.name, result });
    const place = `${origin}/subscriptions/${of.subscription}/providers/${of.namespace}/locations/westeurope`;
    return {
      status: 202,
      headers: {
        location: `${place}/operationResults/${id}?api-version=${of.version}`,
        "azure-asyncoperation": `${place}/operationStatuses/${id}?api-version=${of.version}`,
        "retry-after": "0",
      },
    };
  }

  /**
   * Returns the final response of an operation and whether the operation is reported as done. Undefined if there is no such
   * operation. Each call counts as a poll.
   */
  poll(id: string): { name: string; done: boolean; result: () => Answer } | undefined {
    const found = this.#operations.get(id);
    return found && { name: found.name, done: found.polls++ >= POLLS_IN_PROGRESS, result: found.result };
  }
}
