import type { IncomingRequest, ServiceResponse } from "../http.ts";
import { apiManagementRoute, namedValueResource } from "./api-management-routes.ts";
import { webRoute } from "./app-service-routes.ts";
import { appResource, appRoute } from "./container-app-routes.ts";
import { isContainerApp } from "./container-apps.ts";
import { keyRoute } from "./key-routes.ts";
import { metricsRoute } from "./metrics-route.ts";
import { operationRoute } from "./operation-route.ts";
import { type ArmOptions, page, type Route } from "./request-context.ts";
import { resourceGraphRoute } from "./resource-graph.ts";
import { notFound, type ResourceCall, resourceRoute, subscriptionError, unauthorized } from "./resource-route.ts";
import type { ArmResource } from "./resource-store.ts";
import { type ResourceType, resourceType } from "./resource-types.ts";
import { roleAssignmentsRoute } from "./role-assignments.ts";

/** Path of a resource: subscription, resource group, provider namespace, and the rest. */
const RESOURCE_PATH = /^\/subscriptions\/([^/]+)(?:\/resourcegroups\/([^/]+))?\/providers\/([^/]+)\/(.+?)\/?$/i;
const PAGE_SIZE = 100;

/** Finds the route for a request that is not about subscriptions, vaults or deployments. Undefined if there is none. */
export function resourcesRoute(options: ArmOptions, request: IncomingRequest): Route | undefined {
  const specialRoute =
    resourceGraphRoute(options, request) ?? roleAssignmentsRoute(options, request) ?? operationRoute(options, request);
  if (specialRoute !== undefined) return specialRoute;
  const [, subscription, group, namespace, tail] = RESOURCE_PATH.exec(decodeURI(request.path)) ?? [];
  if (subscription === undefined || tail === undefined) return undefined;
  const match = findType(namespace!, tail.split("/"));
  if (match === undefined) return undefined;
  const { type, length, parts } = match;
  const provider = `/subscriptions/${subscription}${group === undefined ? "" : `/resourceGroups/${group}`}/providers/${namespace}`;
  const id = [provider, ...tail.split("/").slice(0, length)].join("/");
  const call = { options, request, subscription, id, type, rest: parts.join("/").toLowerCase(), parts };
  // An odd number of segments (a type without a name at the end) is a list.
  if (length % 2 === 1) return parts.length === 0 && request.method === "GET" ? list(call, group) : undefined;
  if (group === undefined) return undefined;
  const typeRoute = TYPE_ROUTES[type.noun]?.(call) ?? metricsRoute(call) ?? keyRoute(call);
  if (typeRoute !== undefined || parts.length > 0 || request.method !== "GET") return typeRoute;
  const route = {
    name: `arm.get${type.noun}`,
    versions: type.versions,
    action: `${type.type}/read`,
    self: isTopLevel(type),
  };
  return resourceRoute(call, route, (resource) => ({ status: 200, body: options.store.toArmBody(resource) }));
}

/** Routes of each resource type beyond reading and listing. */
const TYPE_ROUTES: Record<string, (call: ResourceCall) => Route | undefined> = {
  Site: webRoute,
  Slot: webRoute,
  ContainerApp: appRoute,
  ContainerAppJob: appRoute,
  NamedValue: apiManagementRoute,
  ApiManagementCertificate: apiManagementRoute,
};

/** Formats a resource for a response. Some types add computed fields or hide declared ones. */
function resourceBody(call: Pick<ResourceCall, "options">, resource: ArmResource): object {
  if (isContainerApp(resource)) return appResource(call, resource);
  return resource.type.noun === "NamedValue" || resource.type.noun === "ApiManagementCertificate"
    ? namedValueResource(call, resource)
    : call.options.store.toArmBody(resource);
}

/**
 * Finds the longest prefix of a path that names a resource or a list. Types and names alternate. `length` is the number of
 * segments of the prefix, and `parts` is the rest of the path.
 */
function findType(
  namespace: string,
  segments: string[],
): { type: ResourceType; length: number; parts: string[] } | undefined {
  for (let length = segments.length; length > 0; length--) {
    const names = segments.slice(0, length).filter((_, index) => index % 2 === 0);
    const type = resourceType([namespace, ...names].join("/"));
    if (type !== undefined) return { type, length, parts: segments.slice(length) };
  }
  return undefined;
}

/**
 * Returns whether a type is a top-level resource or a slot. Such a resource is readable even if it is `denied`: only its
 * configuration is not.
 */
const isTopLevel = ({ type, noun }: ResourceType): boolean => type.split("/").length === 2 || noun === "Slot";

/** Lists the resources of a type in a subscription, in a resource group, or below a parent resource. */
function list({ options, request, subscription, id, type }: ResourceCall, group: string | undefined): Route {
  // `id` ends with the type that is listed. Without it, the ID is that of the parent.
  const parent = isTopLevel(type) && type.noun !== "Slot" ? undefined : id.split("/").slice(0, -1).join("/");
  const action = `${type.type}/read`;
  return {
    name: `arm.list${type.noun}s`,
    versions: type.versions,
    action,
    subscription,
    ...(parent !== undefined && { resource: parent }),
    answer(claims): ServiceResponse {
      const error = subscriptionError(options, subscription, claims, action);
      if (error !== undefined) return error;
      options.consumers.runDueWork();
      const { store } = options;
      if (parent === undefined) {
        const inGroup = ({ id: resourceId }: ArmResource) =>
          resourceId.split("/")[4]!.toLowerCase() === group?.toLowerCase();
        const ofType = [...store.resourcesIn(subscription)].filter((one) => one.type === type).map((one) => one.read());
        const selected = group === undefined ? ofType : ofType.filter(inGroup);
        return page(options, request, selected, PAGE_SIZE, (one) => resourceBody({ options }, one));
      }
      const owner = store.get(parent);
      if (owner === undefined) return notFound(parent, resourceType(type.type.split("/").slice(0, -1).join("/"))!);
      if (owner.denied) return unauthorized(claims, action, owner.id);
      return page(options, request, store.childrenOf(owner, type), PAGE_SIZE, (one) => resourceBody({ options }, one));
    },
  };
}
