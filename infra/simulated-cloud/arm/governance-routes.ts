// Simulates the requests of Azure Resource Manager with which a client finds out, before a deployment, whether it would
// succeed. Each route links its documentation. Requests that differ from it are rejected.

import type { IncomingRequest, ServiceResponse } from "../http.ts";
import { GLOBAL_TYPES, type Governance, PROVIDERS, REGIONS } from "./governance.ts";
import { type GovernanceCall, governedRoute, noSuchLocation } from "./governance-call.ts";
import { nameRoute } from "./name-routes.ts";
import { policyRoute } from "./policy-routes.ts";
import { type ArmOptions, failure, page, type Route } from "./request-context.ts";

const PAGE_SIZE = 100;
/** https://learn.microsoft.com/rest/api/resources/resource-groups */
const RESOURCES_VERSIONS = ["2020-10-01", "2021-04-01", "2022-09-01", "2024-03-01"];
const LOCK_VERSIONS = ["2016-09-01", "2020-05-01"];
const PERMISSION_VERSIONS = ["2015-07-01", "2018-07-01", "2022-04-01"];
const WEB_VERSIONS = ["2023-12-01", "2024-04-01", "2024-11-01"];

/** Returns the route of a request about permissions, providers, policies, locks, regions, quotas, names or resource groups. */
export function governanceRoute(options: ArmOptions, request: IncomingRequest): Route | undefined {
  const [, subscription, rest] = /^\/subscriptions\/([^/]+)\/(.+?)\/?$/i.exec(decodeURI(request.path)) ?? [];
  if (subscription === undefined || rest === undefined) return undefined;
  const call = {
    options,
    request,
    subscription,
    path: rest.toLowerCase(),
    rules: options.governance.rulesOf(subscription),
  };
  return (
    policyRoute(call) ??
    nameRoute(call) ??
    (request.method === "GET" ? (listRoute(call) ?? groupRoute(call)) : undefined)
  );
}

function listRoute(call: GovernanceCall): Route | undefined {
  const { options, request, subscription, path, rules } = call;
  /** Returns the route of a list. Permissions are checked at `scope`, by default at the subscription. */
  const list = (name: string, versions: readonly string[], action: string, entries: () => object[], scope?: string) =>
    governedRoute(call, { name, versions, action, ...(scope !== undefined && { scope }) }, () =>
      page(options, request, entries(), PAGE_SIZE, (one) => one),
    );
  // https://learn.microsoft.com/rest/api/resources/providers/list
  if (path === "providers") {
    return list("arm.listProviders", RESOURCES_VERSIONS, "Microsoft.Resources/subscriptions/providers/read", () =>
      Object.keys(PROVIDERS).map((namespace) => providerResource(subscription, namespace, rules)),
    );
  }
  // https://learn.microsoft.com/rest/api/resources/management-locks/list-at-subscription-level
  if (path === "providers/microsoft.authorization/locks") {
    return list("arm.listLocks", LOCK_VERSIONS, "Microsoft.Authorization/locks/read", () =>
      (rules.locks ?? []).map(({ name, level, scope = `/subscriptions/${subscription}` }) => ({
        id: `${scope}/providers/Microsoft.Authorization/locks/${name}`,
        name,
        type: "Microsoft.Authorization/locks",
        properties: { level },
      })),
    );
  }
  // https://learn.microsoft.com/rest/api/appservice/list-geo-regions
  if (path === "providers/microsoft.web/georegions") {
    const flex = request.query.get("sku") === "FlexConsumption";
    const regions = REGIONS.filter(({ name }) => !flex || !rules.withoutFlexConsumption?.includes(name));
    return list("arm.listGeoRegions", WEB_VERSIONS, "Microsoft.Web/geoRegions/read", () =>
      regions.map(({ name, displayName }) => ({
        id: `/subscriptions/${subscription}/providers/Microsoft.Web/geoRegions/${displayName}`,
        name: displayName,
        type: "Microsoft.Web/geoRegions",
        properties: {
          name: displayName,
          displayName,
          orgDomain: `PUBLIC;FLEXCONSUMPTION${rules.withoutZones?.includes(name) ? "" : ";FCZONEREDUNDANCY"}`,
        },
      })),
    );
  }
  return usageRoute(call) ?? permissionRoute(call);
}

/**
 * Returns the route of a list of quotas:
 * https://learn.microsoft.com/rest/api/storagerp/usages/list-by-location,
 * https://learn.microsoft.com/rest/api/virtualnetwork/usages/list
 */
function usageRoute(call: GovernanceCall): Route | undefined {
  const [, namespace, location] =
    /^providers\/microsoft\.(storage|network)\/locations\/([^/]+)\/usages$/.exec(call.path) ?? [];
  if (namespace === undefined) return undefined;
  const provider = namespace === "storage" ? "Microsoft.Storage" : "Microsoft.Network";
  const names =
    namespace === "storage"
      ? ["StorageAccounts"]
      : ["VirtualNetworks", "NatGateways", "StandardSkuPublicIpAddresses", "PrivateEndpoints"];
  const versions = namespace === "storage" ? ["2023-05-01", "2024-01-01", "2025-01-01"] : ["2024-05-01", "2024-07-01"];
  const route = { name: "arm.listUsages", versions, action: `${provider}/locations/usages/read` };
  return governedRoute(call, route, () => {
    if (!REGIONS.some(({ name }) => name === location)) return noSuchLocation(location!);
    const value = names.map((name) => ({
      unit: "Count",
      currentValue: 0,
      limit: 250,
      ...call.rules.quotas?.[name],
      name: { value: name, localizedValue: name },
    }));
    return { status: 200, body: { value } };
  });
}

/**
 * Returns the route of a list of the caller's permissions: https://learn.microsoft.com/rest/api/authorization/permissions.
 * Azure documents it for resource groups and resources only, but it also works for subscriptions.
 */
function permissionRoute(call: GovernanceCall): Route | undefined {
  const { options, request, subscription, path, rules } = call;
  const match = /^(?:(.+)\/)?providers\/microsoft\.authorization\/permissions$/.exec(path);
  if (match === null) return undefined;
  // The path of a resource group or resource. Undefined for the subscription itself.
  const pathInSubscription = match[1];
  const scope = `/subscriptions/${subscription}${pathInSubscription ? `/${pathInSubscription}` : ""}`.toLowerCase();
  const route = {
    name: "arm.listPermissions",
    versions: PERMISSION_VERSIONS,
    action: "Microsoft.Authorization/permissions/read",
    scope,
  };
  return governedRoute(call, route, () => {
    const group = /^resourcegroups\/([^/]+)/.exec(pathInSubscription ?? "")?.[1];
    if (group !== undefined && findGroup(call, group) === undefined) return noSuchGroup(group);
    const permissions = (rules.permissions ?? [{ actions: ["*"] }]).filter((one) =>
      `${scope}/`.startsWith(`${(one.scope ?? `/subscriptions/${subscription}`).toLowerCase()}/`),
    );
    return page(options, request, permissions, PAGE_SIZE, ({ actions, notActions = [] }) => ({
      actions,
      notActions,
      dataActions: [],
      notDataActions: [],
    }));
  });
}

/**
 * Returns the route of a resource group or of the list of its resources:
 * https://learn.microsoft.com/rest/api/resources/resource-groups/get,
 * https://learn.microsoft.com/rest/api/resources/resources/list-by-resource-group
 */
function groupRoute(call: GovernanceCall): Route | undefined {
  const { options, request, subscription, path } = call;
  const [, name, resources] = /^resourcegroups\/([^/]+)(\/resources)?$/.exec(path) ?? [];
  if (name === undefined) return undefined;
  const action = resources
    ? "Microsoft.Resources/subscriptions/resourceGroups/resources/read"
    : "Microsoft.Resources/subscriptions/resourceGroups/read";
  const scope = `/subscriptions/${subscription}/resourceGroups/${name}`;
  const route = {
    name: resources ? "arm.listGroupResources" : "arm.getResourceGroup",
    versions: RESOURCES_VERSIONS,
    action,
    scope,
  };
  return governedRoute(call, route, () => {
    const group = findGroup(call, name);
    if (group === undefined) return noSuchGroup(name);
    if (resources) return page(options, request, group.resources, PAGE_SIZE, (one) => one);
    const id = `/subscriptions/${subscription}/resourceGroups/${group.name}`;
    const properties = { provisioningState: group.state };
    return {
      status: 200,
      body: { id, name: group.name, type: "Microsoft.Resources/resourceGroups", location: group.location, properties },
    };
  });
}

interface FoundGroup {
  name: string;
  location: string;
  state: string;
  resources: { id: string; name: string; type: string }[];
}

/** Returns a resource group: a declared one, or one that a vault or resource of the company is in. */
function findGroup({ options, subscription, rules }: GovernanceCall, name: string): FoundGroup | undefined {
  const declared = rules.resourceGroups?.find((one) => one.name.toLowerCase() === name);
  const isInGroup = (id: string) => id.split("/")[4]?.toLowerCase() === name;
  const vaults = [...options.resources.vaults.values()]
    .filter((one) => one.subscriptionId === subscription.toLowerCase() && isInGroup(one.id))
    .map(({ id, name: vaultName }) => ({ id, name: vaultName, type: "Microsoft.KeyVault/vaults" }));
  const otherResources = [...options.store.all()]
    .filter((one) => one.subscriptionId === subscription.toLowerCase() && isInGroup(one.id))
    .map(({ id, name: resourceName, type }) => ({ id, name: resourceName, type: type.type }));
  const declaredResources = (declared?.resources ?? []).map(({ type, name: resourceName }) => ({
    id: `/subscriptions/${subscription}/resourceGroups/${declared!.name}/providers/${type}/${resourceName}`,
    name: resourceName,
    type,
  }));
  const resources = [...vaults, ...otherResources, ...declaredResources];
  if (declared === undefined && resources.length === 0) return undefined;
  const spelling = declared?.name ?? resources[0]!.id.split("/")[4]!;
  return {
    name: spelling,
    location: declared?.location ?? "westeurope",
    state: declared?.state ?? "Succeeded",
    resources,
  };
}

function providerResource(subscription: string, namespace: string, rules: Governance): object {
  const isMissing = (type: string, region: string) =>
    rules.missingTypes?.[`${namespace}/${type}`]?.includes(region) ?? false;
  return {
    id: `/subscriptions/${subscription}/providers/${namespace}`,
    namespace,
    registrationPolicy: "RegistrationRequired",
    registrationState: rules.unregistered?.includes(namespace) ? "NotRegistered" : "Registered",
    resourceTypes: PROVIDERS[namespace]!.map((resourceType) => ({
      resourceType,
      locations: GLOBAL_TYPES.has(`${namespace}/${resourceType}`)
        ? ["global"]
        : REGIONS.filter(({ name }) => !isMissing(resourceType, name)).map(({ displayName }) => displayName),
      apiVersions: [],
    })),
  };
}

const noSuchGroup = (name: string): ServiceResponse =>
  failure(404, "ResourceGroupNotFound", `Resource group '${name}' could not be found.`);
