// Helpers for routes to a resource: permission checks and error responses.

import type { Answer, Incoming } from "../http.ts";
import type { Claims } from "../tokens.ts";
import { type ArmOptions, failure, type Route } from "./request-context.ts";
import type { ArmResource } from "./resource-store.ts";
import type { ResourceType } from "./resource-types.ts";

/** A request to a resource other than a vault, or to a list of such resources. */
export interface ResourceCall {
  options: ArmOptions;
  request: Incoming;
  subscription: string;
  /** The path up to the resource, in the client's spelling. */
  id: string;
  type: ResourceType;
  /** The path after the resource, in lower case, such as `config/appsettings/list`. */
  rest: string;
  /** The path after the resource, in the client's spelling. */
  parts: string[];
}

/**
 * A route to a resource. The dispatcher checks first that the subscription and the resource exist and are readable, then calls
 * `answer`.
 *
 * @param action - The action in https://learn.microsoft.com/azure/role-based-access-control/resource-provider-operations.
 */
export function resourceRoute(
  { options, subscription, id, type }: ResourceCall,
  route: { name: string; versions: readonly string[]; action: string; item?: string; self?: boolean },
  answer: (resource: ArmResource, claims: Claims) => Answer,
): Route {
  return {
    name: route.name,
    versions: route.versions,
    action: route.action,
    subscription,
    resource: id,
    ...(route.item !== undefined && { item: route.item }),
    answer(claims) {
      const refused = refusedSubscription(options, subscription, claims, route.action);
      if (refused !== undefined) return refused;
      options.consumers.settle();
      const resource = options.store.get(id);
      if (resource === undefined) return notFound(id, type);
      if (!route.self && isDenied(options, resource)) return unauthorized(claims, route.action, resource.id);
      return answer(resource, claims);
    },
  };
}

/** Returns the error response. Undefined when the subscription exists and is readable. */
export function refusedSubscription(
  { resources }: ArmOptions,
  id: string,
  claims: Claims,
  action: string,
): Answer | undefined {
  const subscription = resources.subscriptions.get(id.toLowerCase());
  if (subscription === undefined) {
    return failure(404, "SubscriptionNotFound", `The subscription '${id}' could not be found.`);
  }
  return subscription.declared.denied ? unauthorized(claims, action, `/subscriptions/${id}`) : undefined;
}

/** Returns whether access is denied to the resource or to one of its parents. */
function isDenied({ store }: ArmOptions, resource: ArmResource): boolean {
  if (resource.denied) return true;
  const parts = resource.id.split("/");
  for (let length = parts.length - 2; length >= 9; length -= 2) {
    if (store.get(parts.slice(0, length).join("/"))?.denied) return true;
  }
  return false;
}

export function unauthorized(claims: Claims, action: string, scope: string): Answer {
  return failure(
    403,
    "AuthorizationFailed",
    `The client '${claims.appid}' with object id '${claims.oid}' does not have authorization to perform action '${action}' over scope '${scope}' or the scope is invalid. If access was recently granted, please refresh your credentials.`,
  );
}

export function notFound(id: string, { type }: ResourceType): Answer {
  const [, , , , group, , , ...rest] = id.split("/");
  const names = rest.filter((_, index) => index % 2 === 1).join("/");
  return failure(
    404,
    "ResourceNotFound",
    `The Resource '${type}/${names}' under resource group '${group}' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix`,
  );
}

export const malformed = (message: string): Answer => failure(400, "InvalidRequestContent", message);
