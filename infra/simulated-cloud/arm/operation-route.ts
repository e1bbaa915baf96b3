import type { IncomingRequest } from "../http.ts";
import { type ArmOptions, failure, type Route } from "./request-context.ts";
import { subscriptionError } from "./resource-route.ts";

/** Path of the result or the status of an operation. */
const OPERATION_PATH =
  /^\/subscriptions\/([^/]+)\/providers\/[^/]+\/locations\/[^/]+\/operation(results|statuses)\/([^/]+)$/i;

/**
 * Returns the route of a request that polls an asynchronous operation. The response is 202 while the operation is in progress,
 * then the result of the operation or its status. Undefined for other requests.
 */
export function operationRoute(options: ArmOptions, { method, path }: IncomingRequest): Route | undefined {
  const [, subscription, kind, id] = OPERATION_PATH.exec(path) ?? [];
  if (method !== "GET" || subscription === undefined) return undefined;
  return {
    name: "arm.getOperation",
    versions: [],
    subscription,
    answer: (claims) => {
      const error = subscriptionError(options, subscription, claims, "Microsoft.Resources/subscriptions/read");
      if (error !== undefined) return error;
      const operation = options.operations.poll(id!);
      if (operation === undefined) return failure(404, "NotFound", "The operation was not found.");
      const { name, done, result } = operation;
      if (kind!.toLowerCase() === "statuses") {
        const status = done ? (result().status < 400 ? "Succeeded" : "Failed") : "InProgress";
        return { status: 200, body: { id: path, name, status } };
      }
      return done ? result() : { status: 202, headers: { "retry-after": "0", location: `${options.origin}${path}` } };
    },
  };
}
