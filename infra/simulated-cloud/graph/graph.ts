import type { Answer, Incoming, Operation, Service } from "../http.ts";
import { bearerToken, type Claims, type Tokens } from "../tokens.ts";
import type { Directory } from "./directory.ts";
import { badRequest, denied, failure, refusalsOf, unauthorized, withHeaders } from "./errors.ts";
import { QueryProblem } from "./odata.ts";
import { tenantPolicyJson } from "./policies.ts";
import type { GraphCall } from "./read-operations.ts";
import * as reads from "./read-operations.ts";
import type { ApplicationRecord } from "./records.ts";
import type { Tenant, Tenants } from "./tenants.ts";
import { addPassword, removePassword } from "./write-operations.ts";

export interface GraphOptions {
  tenants: Tenants;
  tokens: Tokens;
  /** `https://graph.localhost:port`, also the audience of its tokens. */
  origin: string;
}

const READ = [
  "Application.Read.All",
  "Application.ReadWrite.All",
  "Application.ReadWrite.OwnedBy",
  "Directory.Read.All",
] as const;
/**
 * Microsoft's documentation names different least-privileged permissions in different years. Application.ReadWrite.OwnedBy was
 * never sufficient.
 */
const DELTA = READ.filter((permission) => permission !== "Application.ReadWrite.OwnedBy");
const POLICIES = [
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
  answer(call: GraphCall): Answer;
}

/** Simulates Microsoft Graph for applications and their credentials. The tenant follows from the token. */
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
    const other = tenant === options.tenants.all[0] ? undefined : tenant.id;
    const item = route.id === undefined ? other : appIdOf(tenant.directory, route.id);
    return {
      name: route.name,
      ...(item !== undefined && { item }),
      refusals: refusalsOf(request),
      anonymous: typeof claims === "string",
      answer: () =>
        withHeaders(
          request,
          typeof claims === "string"
            ? unauthorized(
                claims === "missing" ? "Access token is empty." : `Access token validation failure: ${claims}.`,
              )
            : answerOf(options, tenant, { request, route, claims }),
        ),
    };
  };
}

function answerOf(
  { origin }: GraphOptions,
  tenant: Tenant,
  { request, route, claims }: { request: Incoming; route: Route; claims: Claims },
): Answer {
  const { directory } = tenant;
  const permissions = directory.permissionsOf(claims.oid);
  if (route.permissions?.some((one) => permissions.includes(one)) === false) return denied();
  const call = { directory, view: directory.view(), origin, tenant, caller: claims.oid, request };
  try {
    return route.answer(call);
  } catch (error) {
    if (error instanceof QueryProblem) return failure(400, "Request_UnsupportedQuery", error.message);
    throw error;
  }
}

/** Returns the client ID of the application in the path. Faults match this ID. */
function appIdOf(directory: Directory, id: string): string {
  const named = /^\(appId='([^']*)'\)$/.exec(id)?.[1] ?? id;
  return directory.currentState(named)?.appId ?? named;
}

/** The only supported operation that exists only in the beta version. */
function betaRouteOf({ method, segments }: Incoming, tenants: Tenants): Route {
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

function routeOf({ method, segments, query }: Incoming): Route {
  const [, set = "", second, third, ...more] = segments;
  const unknown: Route = {
    name: "unknown",
    answer: () => failure(400, "BadRequest", `Resource not found for the segment '${set}'.`),
  };
  if (more.length > 0) return unknown;
  const bySecond = set === "applications" && second !== undefined;
  const id = /^applications(\(appId='[^']*'\))$/.exec(set)?.[1] ?? (bySecond ? second : undefined);
  const action = bySecond ? third : second;
  if (bySecond && third === undefined && /^(microsoft\.graph\.)?delta(\(\))?$/.test(second)) {
    return only("GET", { name: "graph.applicationsDelta", permissions: DELTA, answer: reads.delta });
  }
  if (id !== undefined) return applicationRoute(id, action);
  if (second !== undefined && !(["policies", "identity"].includes(set) && third === undefined)) return unknown;
  switch (set) {
    case "applications":
      return only("GET", {
        name: query.has("$count") ? "graph.listFederatedApplications" : "graph.listApplications",
        permissions: READ,
        answer: (call) => reads.list(call, "application"),
      });
    case "servicePrincipals":
      return only("GET", {
        name: "graph.listServicePrincipals",
        permissions: READ,
        answer: (call) => reads.list(call, "servicePrincipal"),
      });
    case "organization":
      return only("GET", {
        name: "graph.getOrganization",
        permissions: ["Organization.Read.All", "Directory.Read.All"],
        answer: reads.organization,
      });
    case "identity":
      if (second !== "identityProviders") return unknown;
      return only("GET", {
        name: "graph.listIdentityProviders",
        permissions: ["IdentityProvider.Read.All", "IdentityProvider.ReadWrite.All"],
        answer: reads.identityProviders,
      });
    case "policies":
      if (second !== "defaultAppManagementPolicy") return unknown;
      return only("GET", {
        name: "graph.getTenantPolicy",
        permissions: POLICIES,
        answer: ({ directory }) => ({ status: 200, body: tenantPolicyJson(directory) }),
      });
    default:
      return unknown;
  }

  function applicationRoute(id: string, action: string | undefined): Route {
    const withOne = (answer: (call: GraphCall, application: ApplicationRecord) => Answer) => (call: GraphCall) => {
      const found = reads.find(call, id);
      return "status" in found ? found : answer(call, found);
    };
    switch (action) {
      case undefined:
        return only("GET", { name: "graph.getApplication", permissions: READ, id, answer: withOne(reads.one) });
      case "owners":
        return only("GET", { name: "graph.listOwners", permissions: READ, id, answer: withOne(reads.owners) });
      case "federatedIdentityCredentials": {
        const answer = withOne(reads.federatedCredentials);
        return only("GET", { name: "graph.listFederatedCredentials", permissions: READ, id, answer });
      }
      case "addPassword":
        return only("POST", { name: "graph.addPassword", id, answer: (call) => addPassword(call, id) });
      case "removePassword":
        return only("POST", { name: "graph.removePassword", id, answer: (call) => removePassword(call, id) });
      default:
        return unknown;
    }
  }

  function only(wanted: string, route: Route): Route {
    if (method === wanted) return route;
    return {
      ...route,
      answer: () => ({ ...badRequest("Specified HTTP method is not allowed for the request target."), status: 405 }),
    };
  }
}
