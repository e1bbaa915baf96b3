import type { Answer, Incoming } from "../http.ts";
import { apiManagementRoute, namedValueResource } from "./api-management-routes.ts";
import { webRoute } from "./app-service-routes.ts";
import { appResource, appRoute } from "./container-app-routes.ts";
import { isContainerApp } from "./container-apps.ts";
import { operationRoute } from "./operation-route.ts";
import { type ArmOptions, page, type Route } from "./request-context.ts";
import { resourceGraphRoute } from "./resource-graph.ts";
import { notFound, type ResourceCall, refusedSubscription, resourceRoute, unauthorized } from "./resource-route.ts";
import type { ArmResource } from "./resource-store.ts";
import { type ResourceType, resourceType } from "./resource-types.ts";
import { roleAssignmentsRoute } from "./role-assignments.ts";

const PLACE = /^\/subscriptions\/([^/]+)(?:\/resourcegroups\/([^/]+))?\/providers\/([^/]+)\/(.+?)\/?$/i;
const LISTED_AT_ONCE = 100;

/** Finds the route for a request that is not about subscriptions, vaults or deployments. Undefined if there is none. */
export function resourcesRoute(options: ArmOptions, request: Incoming): Route | undefined {
  const other =
    resourceGraphRoute(options, request) ?? roleAssignmentsRoute(options, request) ?? operationRoute(options, request);
  if (other !== undefined) return other;
  const [, subscription, group, namespace, tail] = PLACE.exec(decodeURI(request.path)) ?? [];
  if (subscription === undefined || tail === undefined) return undefined;
  const found = findType(namespace!, tail.split("/"));
  if (found === undefined) return undefined;
  const { type, length, parts } = found;
  const provider = `/subscriptions/${subscription}${group === undefined ? "" : `/resourceGroups/${group}`}/providers/${namespace}`;
  const id = [provider, ...tail.split("/").slice(0, length)].join("/");
  const call = { options, request, subscription, id, type, rest: parts.join("/").toLowerCase(), parts };
  if (length % 2 === 1) return parts.length === 0 && request.method === "GET" ? list(call, group) : undefined;
  if (group === undefined) return undefined;
  const own = TYPE_ROUTES[type.noun]?.(call);
  if (own !== undefined || parts.length > 0 || request.method !== "GET") return own;
  const route = {
    name: `arm.get${type.noun}`,
    versions: type.versions,
    action: `${type.type}/read`,
    self: isTop(type),
  };
  return resourceRoute(call, route, (resource) => ({ status: 200, body: options.store.body(resource) }));
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
    : call.options.store.body(resource);
}

/** Finds the longest prefix of a path that names a resource or a list. `parts` is the rest of the path. */
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

/** A site is readable even if its configuration is not. */
const isTop = ({ type, noun }: ResourceType): boolean => type.split("/").length === 2 || noun === "Slot";

/** Lists the resources of a type in a subscription, in a resource group, or below a parent resource. */
function list({ options, request, subscription, id, type }: ResourceCall, group: string | undefined): Route {
  const parent = isTop(type) && type.noun !== "Slot" ? undefined : id.split("/").slice(0, -1).join("/");
  const action = `${type.type}/read`;
  return {
    name: `arm.list${type.noun}s`,
    versions: type.versions,
    action,
    subscription,
    ...(parent !== undefined && { resource: parent }),
    answer(claims): Answer {
      const refused = refusedSubscription(options, subscription, claims, action);
      if (refused !== undefined) return refused;
      options.consumers.settle();
      const { store } = options;
      if (parent === undefined) {
        const inGroup = ({ id: own }: ArmResource) => own.split("/")[4]!.toLowerCase() === group?.toLowerCase();
        const all = [...store.in(subscription)].filter((one) => one.type === type).map((one) => one.read());
        const found = group === undefined ? all : all.filter(inGroup);
        return page(options, request, found, LISTED_AT_ONCE, (one) => resourceBody({ options }, one));
      }
      const owner = store.get(parent);
      if (owner === undefined) return notFound(parent, resourceType(type.type.split("/").slice(0, -1).join("/"))!);
      if (owner.denied) return unauthorized(claims, action, owner.id);
      return page(options, request, store.below(owner, type), LISTED_AT_ONCE, (one) => resourceBody({ options }, one));
    },
  };
}
