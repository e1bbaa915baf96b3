import { randomUUID } from "node:crypto";
import type { ServiceResponse } from "../http.ts";

interface Operation {
  /** Number of polls so far. */
  polls: number;
  /** Name of the operation, which its status contains. */
  name: string;
  result: () => ServiceResponse;
}

/** Number of polls of each operation that return "in progress". */
const POLLS_IN_PROGRESS = 1;

/**
 * Stores the asynchronous operations of Azure Resource Manager, which clients poll:
 * https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
 */
export class Operations {
  readonly #operations = new Map<string, Operation>();

  /**
   * Returns the 202 response to the request that starts an operation. The caller has already done the work; only its completion
   * is reported later.
   */
  start(
    { origin }: { origin: string },
    operation: { subscription: string; namespace: string; version: string; name: string },
    result: () => ServiceResponse,
  ): ServiceResponse {
    const id = randomUUID();
    this.#operations.set(id, { polls: 0, name: operation.name, result });
    const pathPrefix = `${origin}/subscriptions/${operation.subscription}/providers/${operation.namespace}/locations/westeurope`;
    return {
      status: 202,
      headers: {
        location: `${pathPrefix}/operationResults/${id}?api-version=${operation.version}`,
        "azure-asyncoperation": `${pathPrefix}/operationStatuses/${id}?api-version=${operation.version}`,
        "retry-after": "0",
      },
    };
  }

  /**
   * Returns the final response of an operation and whether the operation is reported as done. Undefined if there is no such
   * operation. Each call counts as a poll.
   */
  poll(id: string): { name: string; done: boolean; result: () => ServiceResponse } | undefined {
    const operation = this.#operations.get(id);
    if (operation === undefined) return undefined;
    const isFinished = operation.polls++ >= POLLS_IN_PROGRESS;
    return { name: operation.name, done: isFinished, result: operation.result };
  }
}
