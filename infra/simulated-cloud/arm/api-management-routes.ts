import { readsVault } from "./api-management.ts";
import type { Route } from "./request-context.ts";
import { type ResourceCall, resourceRoute } from "./resource-route.ts";
import type { ArmResource } from "./resource-store.ts";

/**
 * Returns the route of a request to a named value or certificate of API Management. Undefined for other requests:
 * https://learn.microsoft.com/rest/api/apimanagement/named-value
 */
export function apiManagementRoute(call: ResourceCall): Route | undefined {
  const { request, rest, type, options } = call;
  const { versions } = type;
  const { apiManagement } = options.consumers;
  if (request.method === "GET" && rest === "") {
    return resourceRoute(call, { name: `arm.get${type.noun}`, versions, action: `${type.type}/read` }, (resource) => ({
      status: 200,
      body: namedValueResource(call, resource),
    }));
  }
  if (request.method === "POST" && rest === "listvalue" && type.noun === "NamedValue") {
    const route = { name: "arm.listNamedValueSecret", versions, action: `${type.type}/listValue/action` };
    return resourceRoute(call, route, (resource) => ({
      status: 200,
      body: { value: apiManagement.valueOf(resource) },
    }));
  }
  if (request.method !== "POST" || rest !== "refreshsecret") return undefined;
  const route = { name: `arm.refresh${type.noun}`, versions, action: `${type.type}/refreshSecret/action` };
  return resourceRoute(call, route, (resource) => {
    if (!readsVault(resource)) {
      const message = `The ${type.noun} '${resource.name}' does not use a secret of a key vault.`;
      return { status: 400, body: { error: { code: "ValidationError", message, details: [] } } };
    }
    apiManagement.refresh(resource);
    const version = request.query.get("api-version")!;
    const operation = {
      subscription: call.subscription,
      namespace: "Microsoft.ApiManagement",
      version,
      name: resource.name,
    };
    return options.operations.start(options, operation, () => ({
      status: 200,
      body: namedValueResource(call, resource),
    }));
  });
}

/** Returns a named value. The value itself is included only if it is not marked as secret. */
export function namedValueResource({ options }: Pick<ResourceCall, "options">, resource: ArmResource): object {
  const { value, keyVault, ...properties } = resource.properties;
  const lastStatus = options.consumers.apiManagement.lastStatus(resource);
  return {
    ...options.store.toArmBody(resource),
    properties: {
      ...properties,
      ...(properties.secret !== true && value !== undefined && { value }),
      ...(keyVault !== undefined && { keyVault: { ...(keyVault as object), ...(lastStatus && { lastStatus }) } }),
    },
  };
}
