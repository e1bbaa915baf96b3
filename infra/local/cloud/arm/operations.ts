import { randomUUID } from "node:crypto";
import { type ArmOptions, failure, type Route } from "../arm-call.ts";
import type { Answer, Incoming } from "../http.ts";
import { refusedSubscription } from "./route.ts";

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
    { origin }: Pick<ArmOptions, "origin">,
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

  route(options: ArmOptions, { method, path }: Incoming): Route | undefined {
    const [, subscription, kind, id] =
      /^\/subscriptions\/([^/]+)\/providers\/[^/]+\/locations\/[^/]+\/operation(results|statuses)\/([^/]+)$/i.exec(
        path,
      ) ?? [];
    if (method !== "GET" || subscription === undefined) return undefined;
    return {
      name: "arm.getOperation",
      versions: [],
      subscription,
      answer: (claims) => {
        const refused = refusedSubscription(options, subscription, claims, "Microsoft.Resources/subscriptions/read");
        if (refused !== undefined) return refused;
        const found = this.#operations.get(id!);
        if (found === undefined) return failure(404, "NotFound", "The operation was not found.");
        const done = found.polls++ >= UNDER_WAY;
        if (kind!.toLowerCase() === "statuses") {
          const status = done ? (found.result().status < 400 ? "Succeeded" : "Failed") : "InProgress";
          return { status: 200, body: { id: path, name: id, status } };
        }
        return done
          ? found.result()
          : { status: 202, headers: { "retry-after": "0", location: `${options.origin}${path}` } };
      },
    };
  }
}
