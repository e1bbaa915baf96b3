// Helpers for routes to a resource: permission checks and error responses.

import type { IncomingRequest, ServiceResponse } from "../http.ts";
import type { Claims } from "../tokens.ts";
import { type ArmOptions, failure, type Route } from "./request-context.ts";
import type { ArmResource } from "./resource-store.ts";
import type { ResourceType } from "./resource-types.ts";

/** A request to a resource, or to a list of resources. Requests to vaults have routes of their own (resource-manager.ts). */
export interface ResourceCall {
  options: ArmOptions;
  request: IncomingRequest;
  subscription: string;
  /** The path up to the resource, in the client's spelling. */
  id: string;
  type: ResourceType;
  /** The path after the resource, joined by slashes, in lower case, such as `config/appsettings/list`. */
  rest: string;
  /** Segments of the path after the resource, in the client's spelling. */
  parts: string[];
}

/**
 * Creates a route to a resource. The route first checks that the subscription and the resource exist and are readable, then
 * calls `answer`.
 *
 * @param route `action`: the permission that the request needs. `item`: the setting or other part of the resource that the
 * request names. `self`: the request reads only the resource itself, which is permitted even if the resource is `denied`.
 * Actions: https://learn.microsoft.com/azure/role-based-access-control/resource-provider-operations
 */
export function resourceRoute(
  { options, subscription, id, type }: ResourceCall,
  route: { name: string; versions: readonly string[]; action: string; item?: string; self?: boolean },
  answer: (resource: ArmResource, claims: Claims) => ServiceResponse,
): Route {
  return {
    name: route.name,
    versions: route.versions,
    action: route.action,
    subscription,
    resource: id,
    ...(route.item !== undefined && { item: route.item }),
    answer(claims) {
      const error = subscriptionError(options, subscription, claims, route.action);
      if (error !== undefined) return error;
      // Apps read secrets on a schedule. The reads that are due by now happen first, so that the response shows their result.
      options.consumers.runDueWork();
      const resource = options.store.get(id);
      if (resource === undefined) return notFound(id, type);
      if (!route.self && isDenied(options, resource)) return unauthorized(claims, route.action, resource.id);
      return answer(resource, claims);
    },
  };
}

/** Checks that a subscription exists and is readable. Returns the error response, or undefined. */
export function subscriptionError(
  { resources }: ArmOptions,
  id: string,
  claims: Claims,
  action: string,
): ServiceResponse | undefined {
  const subscription = resources.subscriptions.get(id.toLowerCase());
  if (subscription === undefined) {
    return failure(404, "SubscriptionNotFound", `The subscription '${id}' could not be found.`);
  }
  return subscription.declared.denied ? unauthorized(claims, action, `/subscriptions/${id}`) : undefined;
}

/**
 * Returns whether access is denied to the resource or to one of its parents. The ID of a top-level resource has nine segments,
 * the first of which is empty. Each level below adds a type and a name.
 */
function isDenied({ store }: ArmOptions, resource: ArmResource): boolean {
  if (resource.denied) return true;
  const parts = resource.id.split("/");
  for (let length = parts.length - 2; length >= 9; length -= 2) {
    if (store.get(parts.slice(0, length).join("/"))?.denied) return true;
  }
  return false;
}

/** Creates the 403 response for a missing permission. */
export function unauthorized(claims: Claims, action: string, scope: string): ServiceResponse {
  return failure(
    403,
    "AuthorizationFailed",
    `The client '${claims.appid}' with object id '${claims.oid}' does not have authorization to perform action '${action}' over scope '${scope}' or the scope is invalid. If access was recently granted, please refresh your credentials.`,
  );
}

/** Creates the 404 response for a resource. */
export function notFound(id: string, { type }: ResourceType): ServiceResponse {
  // `/subscriptions/S/resourceGroups/G/providers/N/TYPE/NAME/TYPE/NAME…`
  const [, , , , group, , , ...rest] = id.split("/");
  const names = rest.filter((_, index) => index % 2 === 1).join("/");
  return failure(
    404,
    "ResourceNotFound",
    `The Resource '${type}/${names}' under resource group '${group}' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix`,
  );
}

/** Creates the 400 response for an invalid body. */
export const malformed = (message: string): ServiceResponse => failure(400, "InvalidRequestContent", message);
