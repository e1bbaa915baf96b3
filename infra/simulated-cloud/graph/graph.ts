import type { IncomingRequest, Operation, Service, ServiceResponse } from "../http.ts";
import { bearerToken, type Claims, type Tokens } from "../tokens.ts";
import type { Directory } from "./directory.ts";
import { badRequest, denied, errorResponsesOf, failure, unauthorized, withHeaders } from "./errors.ts";
import { QueryProblem } from "./odata.ts";
import { tenantPolicyJson } from "./policies.ts";
import type { GraphCall } from "./read-operations.ts";
import * as reads from "./read-operations.ts";
import type { ApplicationRecord } from "./records.ts";
import type { Tenant, Tenants } from "./tenants.ts";
import { addPassword, putFederatedCredential, removeFederatedCredential, removePassword } from "./write-operations.ts";

// The simulated Microsoft Graph: routes requests for applications, service principals and tenant data, and checks
// permissions.

export interface GraphOptions {
  tenants: Tenants;
  tokens: Tokens;
  /** `https://graph.localhost:port`, also the audience of its tokens. */
  origin: string;
}

/** Permissions for reading applications. One is enough. */
const READ_PERMISSIONS = [
  "Application.Read.All",
  "Application.ReadWrite.All",
  "Application.ReadWrite.OwnedBy",
  "Directory.Read.All",
] as const;
/**
 * Permissions for delta queries. One is enough. Microsoft's documentation has named different least-privileged permissions over
 * the years, but never Application.ReadWrite.OwnedBy.
 */
const DELTA_PERMISSIONS = READ_PERMISSIONS.filter((permission) => permission !== "Application.ReadWrite.OwnedBy");
/** Permissions for reading the tenant's policy. One is enough. */
const POLICY_PERMISSIONS = [
  "Policy.Read.ApplicationConfiguration",
  "Policy.ReadWrite.ApplicationConfiguration",
  "Policy.Read.All",
] as const;

interface Route {
  name: string;
  /** Sufficient application permissions; one is enough. Undefined: the operation checks permissions itself. */
  permissions?: readonly string[];
  /** The object ID or `(appId='…')` in the path. */
  id?: string;
  answer(call: GraphCall): ServiceResponse;
}

/** Simulates Microsoft Graph for applications and their credentials. The access token determines the tenant. */
export function graph(options: GraphOptions): Service {
  return (request): Operation | undefined => {
    const [version] = request.segments;
    if (version !== "v1.0" && version !== "beta") return undefined;
    const token = bearerToken(request.headers.authorization);
    const claims = token === undefined ? "missing" : options.tokens.check(token, [options.origin]);
    const tenant =
      (typeof claims === "string" ? undefined : options.tenants.find(claims.tid)) ?? options.tenants.all[0]!;
    const route = version === "beta" ? betaRouteOf(request, options.tenants) : routeOf(request);
    // The resource name that faults match: an application, or another tenant.
    const otherTenantId = tenant === options.tenants.all[0] ? undefined : tenant.id;
    const item = route.id === undefined ? otherTenantId : appIdOf(tenant.directory, route.id);
    return {
      name: route.name,
      ...(item !== undefined && { item }),
      errorResponses: errorResponsesOf(request),
      anonymous: typeof claims === "string",
      answer: () =>
        withHeaders(
          request,
          typeof claims === "string"
            ? unauthorized(
                claims === "missing" ? "Access token is empty." : `Access token validation failure: ${claims}.`,
              )
            : runRoute(options, tenant, { request, route, claims }),
        ),
    };
  };
}

function runRoute(
  { origin }: GraphOptions,
  tenant: Tenant,
  { request, route, claims }: { request: IncomingRequest; route: Route; claims: Claims },
): ServiceResponse {
  const { directory } = tenant;
  directory.recordCaller(claims.oid);
  const permissions = directory.permissionsOf(claims.oid);
  if (route.permissions?.some((one) => permissions.includes(one)) === false) return denied();
  const call = { directory, view: directory.view(), origin, tenant, caller: claims.oid, permissions, request };
  try {
    return route.answer(call);
  } catch (error) {
    if (error instanceof QueryProblem) return failure(400, "Request_UnsupportedQuery", error.message);
    throw error;
  }
}

/** Returns the client ID of the application in the path. Faults match this ID. */
function appIdOf(directory: Directory, id: string): string {
  const idOrAppId = /^\(appId='([^']*)'\)$/.exec(id)?.[1] ?? id;
  return directory.currentState(idOrAppId)?.appId ?? idOrAppId;
}

/** The only supported operation that exists only in the beta version. */
function betaRouteOf({ method, segments }: IncomingRequest, tenants: Tenants): Route {
  const path = segments.slice(1).join("/");
  if (method !== "GET" || path !== "trustFramework/keySets") {
    return {
      name: "unknown",
      answer: () => failure(400, "BadRequest", `Resource not found for the segment '${path}'.`),
    };
  }
  return {
    name: "graph.listKeySets",
    permissions: ["TrustFrameworkKeySet.Read.All", "TrustFrameworkKeySet.ReadWrite.All"],
    answer: (call) => reads.keySets(call, tenants),
  };
}

/**
 * Returns the route of a request to version 1.0. The path starts with an OData entity set, such as `applications` or
 * `applications(appId='…')`. An object ID or an action follows, or both.
 */
function routeOf({ method, segments, query }: IncomingRequest): Route {
  const [, set = "", second, third, fourth, ...more] = segments;
  const unknown: Route = {
    name: "unknown",
    answer: () => failure(400, "BadRequest", `Resource not found for the segment '${set}'.`),
  };
  if (more.length > 0) return unknown;
  if (fourth !== undefined && third !== "federatedIdentityCredentials") return unknown;
  const hasId = set === "applications" && second !== undefined;
  const id = /^applications(\(appId='[^']*'\))$/.exec(set)?.[1] ?? (hasId ? second : undefined);
  const action = hasId ? third : second;
  if (hasId && third === undefined && /^(microsoft\.graph\.)?delta(\(\))?$/.test(second)) {
    return onlyMethod("GET", { name: "graph.applicationsDelta", permissions: DELTA_PERMISSIONS, answer: reads.delta });
  }
  if (id !== undefined) return applicationRoute(id, action);
  if (second !== undefined && !(["policies", "identity"].includes(set) && third === undefined)) return unknown;
  switch (set) {
    case "applications":
      return onlyMethod("GET", {
        name: query.has("$count") ? "graph.listFederatedApplications" : "graph.listApplications",
        permissions: READ_PERMISSIONS,
        answer: (call) => reads.list(call, "application"),
      });
    case "servicePrincipals":
      return onlyMethod("GET", {
        name: "graph.listServicePrincipals",
        permissions: READ_PERMISSIONS,
        answer: (call) => reads.list(call, "servicePrincipal"),
      });
    case "organization":
      return onlyMethod("GET", {
        name: "graph.getOrganization",
        permissions: ["Organization.Read.All", "Directory.Read.All"],
        answer: reads.organization,
      });
    case "identity":
      if (second !== "identityProviders") return unknown;
      return onlyMethod("GET", {
        name: "graph.listIdentityProviders",
        permissions: ["IdentityProvider.Read.All", "IdentityProvider.ReadWrite.All"],
        answer: reads.identityProviders,
      });
    case "policies":
      if (second !== "defaultAppManagementPolicy") return unknown;
      return onlyMethod("GET", {
        name: "graph.getTenantPolicy",
        permissions: POLICY_PERMISSIONS,
        answer: ({ directory }) => ({ status: 200, body: tenantPolicyJson(directory) }),
      });
    default:
      return unknown;
  }

  function applicationRoute(id: string, action: string | undefined): Route {
    const withApplication =
      (answer: (call: GraphCall, application: ApplicationRecord) => ServiceResponse) => (call: GraphCall) => {
        const application = reads.find(call, id);
        return "status" in application ? application : answer(call, application);
      };
    const named = /^federatedIdentityCredentials\(name='([^']*)'\)$/.exec(action ?? "")?.[1];
    if (named !== undefined)
      return onlyMethod("PATCH", {
        name: "graph.putFederatedCredential",
        id,
        answer: (call) => putFederatedCredential(call, id, named),
      });
    switch (action) {
      case undefined:
        return onlyMethod("GET", {
          name: "graph.getApplication",
          permissions: READ_PERMISSIONS,
          id,
          answer: withApplication(reads.getApplication),
        });
      case "owners":
        return onlyMethod("GET", {
          name: "graph.listOwners",
          permissions: READ_PERMISSIONS,
          id,
          answer: withApplication(reads.owners),
        });
      case "federatedIdentityCredentials": {
        if (fourth !== undefined)
          return onlyMethod("DELETE", {
            name: "graph.removeFederatedCredential",
            id,
            answer: (call) => removeFederatedCredential(call, id, fourth),
          });
        const answer = withApplication(reads.federatedCredentials);
        return onlyMethod("GET", { name: "graph.listFederatedCredentials", permissions: READ_PERMISSIONS, id, answer });
      }
      case "addPassword":
        return onlyMethod("POST", { name: "graph.addPassword", id, answer: (call) => addPassword(call, id) });
      case "removePassword":
        return onlyMethod("POST", { name: "graph.removePassword", id, answer: (call) => removePassword(call, id) });
      default:
        return unknown;
    }
  }

  function onlyMethod(allowedMethod: string, route: Route): Route {
    if (method === allowedMethod) return route;
    return {
      ...route,
      answer: () => ({ ...badRequest("Specified HTTP method is not allowed for the request target."), status: 405 }),
    };
  }
}
