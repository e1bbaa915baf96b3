import { randomUUID } from "node:crypto";
import type { Answer } from "../http.ts";

interface Operation {
  /** How often it was asked about. */
  polls: number;
  name: string;
  result: () => Answer;
}

/** How often an operation says that it is under way. */
const UNDER_WAY = 1;

/** What the resource manager does after it answered: https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations */
export class Operations {
  readonly #operations = new Map<string, Operation>();

  /** The answer to who began one. What is asked for is done already; only its end is told later. */
  begun(
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

  /** What an operation comes to, and whether it says so already; undefined when there is none. Each question counts. */
  asked(id: string): { name: string; done: boolean; result: () => Answer } | undefined {
    const found = this.#operations.get(id);
    return found && { name: found.name, done: found.polls++ >= UNDER_WAY, result: found.result };
  }
}
