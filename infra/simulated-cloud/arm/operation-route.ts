import type { Incoming } from "../http.ts";
import { type ArmOptions, failure, type Route } from "./request-context.ts";
import { refusedSubscription } from "./resource-route.ts";

const OPERATION =
  /^\/subscriptions\/([^/]+)\/providers\/[^/]+\/locations\/[^/]+\/operation(results|statuses)\/([^/]+)$/i;

/**
 * Route that reports the state of an asynchronous operation: 202 while it is in progress, then the operation's response or its
 * status.
 */
export function operationRoute(options: ArmOptions, { method, path }: Incoming): Route | undefined {
  const [, subscription, kind, id] = OPERATION.exec(path) ?? [];
  if (method !== "GET" || subscription === undefined) return undefined;
  return {
    name: "arm.getOperation",
    versions: [],
    subscription,
    answer: (claims) => {
      const refused = refusedSubscription(options, subscription, claims, "Microsoft.Resources/subscriptions/read");
      if (refused !== undefined) return refused;
      const found = options.operations.poll(id!);
      if (found === undefined) return failure(404, "NotFound", "The operation was not found.");
      const { name, done, result } = found;
      if (kind!.toLowerCase() === "statuses") {
        const status = done ? (result().status < 400 ? "Succeeded" : "Failed") : "InProgress";
        return { status: 200, body: { id: path, name, status } };
      }
      return done ? result() : { status: 202, headers: { "retry-after": "0", location: `${options.origin}${path}` } };
    },
  };
}
