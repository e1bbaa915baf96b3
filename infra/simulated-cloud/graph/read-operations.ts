// Read operations of the simulated Microsoft Graph.

import type { IncomingRequest, ServiceResponse } from "../http.ts";
import type { Directory, DirectoryView } from "./directory.ts";
import { notFound, resyncRequired } from "./errors.ts";
import { applicationJson, ownerJson, ownersOf, servicePrincipalJson } from "./json.ts";
import {
  decodeToken,
  encodeToken,
  expandOf,
  filterOf,
  linkWithToken,
  optionsOf,
  QueryProblem,
  requiresNonEmpty,
  selectMembers,
  selectOf,
  topOf,
} from "./odata.ts";
import { assignedPolicyJson } from "./policies.ts";
import { type ApplicationRecord, DEFAULT_AUDIENCE } from "./records.ts";
import { identityProviderJson, type Tenant, type Tenants } from "./tenants.ts";

/** Arguments of every Graph operation. */
export interface GraphCall {
  directory: Directory;
  view: DirectoryView;
  /** `https://graph.localhost:port` */
  origin: string;
  tenant: Tenant;
  /** Object ID of the caller's service principal, and its application permissions. */
  caller: string;
  permissions: readonly string[];
  request: IncomingRequest;
}

type Kind = "application" | "servicePrincipal";

/**
 * Delta tokens of directory objects expire after seven days:
 * https://learn.microsoft.com/graph/api/resources/delta-query-overview#tokens
 */
const DELTA_LIFETIME_MS = 7 * 86_400_000;

/** Maximum number of owners in an expansion. */
const MAX_EXPANDED_OWNERS = 20;

/** An application whose formatted members are the valid names in `$select`. */
const EMPTY_APPLICATION: ApplicationRecord = {
  objectId: "",
  appId: "",
  servicePrincipalId: "",
  displayName: "",
  audience: "AzureADMyOrg",
  createdAt: 0,
  owners: [],
  serviceOwns: false,
  signIn: "enabled",
  secrets: [],
  removed: [],
  keys: [],
  samlKeys: [],
  federated: [],
  tags: [],
};

function toJson(kind: Kind, application: ApplicationRecord, names?: readonly string[]) {
  const keysSelected = names?.includes("keyCredentials") ?? false;
  return kind === "application"
    ? applicationJson(application, keysSelected)
    : servicePrincipalJson(application, keysSelected);
}

const context = (call: GraphCall, set: string, names?: readonly string[]) => ({
  "@odata.context": `${call.origin}/v1.0/$metadata#${set}${names === undefined ? "" : `(${names.join(",")})`}`,
});

/** Lists all objects, or the object that `$filter` names. */
export function list(call: GraphCall, kind: Kind): ServiceResponse {
  const { request, view, origin } = call;
  const query = optionsOf(request, ["$select", "$top", "$filter", "$expand", "$skiptoken", "$count"]);
  if (query.has("$count") && call.tenant.type === "AAD B2C") {
    throw new QueryProblem("Advanced queries are not available in this tenant.");
  }
  const names = selectOf(query, kind, toJson(kind, EMPTY_APPLICATION));
  const expanded = expandOf(query, "owners");
  const federatedOnly = kind === "application" && requiresNonEmpty(request, "federatedIdentityCredentials");
  const [top, appId] = [topOf(query), federatedOnly ? undefined : filterOf(query, "appId")];
  const skip = query.get("$skiptoken");
  const from = skip === null ? 0 : Number(decodeToken(skip).from);
  if (!Number.isInteger(from)) throw new QueryProblem("The skip token is not valid.");

  const candidates = appId === undefined ? view.applications() : [view.byAppId(appId)];
  const matching: ApplicationRecord[] = [];
  let position = from;
  for (; position < candidates.length && matching.length < top; position++) {
    const application = candidates[position];
    if (application === undefined || (federatedOnly && application.federated.length === 0)) continue;
    if (kind === "application" && application.otherTenant) continue;
    // `none`: the application has no service principal.
    if (kind === "application" || application.signIn !== "none") matching.push(application);
  }
  const value = matching.map((application) => ({
    ...selectMembers(toJson(kind, application, names), names),
    ...(expanded && { owners: ownersIn(call, application, expanded.select).slice(0, MAX_EXPANDED_OWNERS) }),
  }));
  const nextLink = linkWithToken(origin, request, "$skiptoken", encodeToken({ from: position }));
  return {
    status: 200,
    body: {
      ...context(call, `${kind}s`, names),
      ...(position < candidates.length && { "@odata.nextLink": nextLink }),
      value,
    },
  };
}

/** Returns an application, with its owners or policies if `$expand` names them. */
export function getApplication(call: GraphCall, application: ApplicationRecord): ServiceResponse {
  const query = optionsOf(call.request, ["$select", "$expand"]);
  const names = selectOf(query, "application", toJson("application", EMPTY_APPLICATION));
  const policies = query.get("$expand") === "appManagementPolicies";
  const expanded = policies ? undefined : expandOf(query, "owners");
  return {
    status: 200,
    body: {
      ...context(call, "applications", names),
      ...selectMembers(toJson("application", application, names), names),
      ...(expanded && { owners: ownersIn(call, application, expanded.select).slice(0, MAX_EXPANDED_OWNERS) }),
      ...(policies && { appManagementPolicies: assignedPolicyJson(call.directory, application) }),
    },
  };
}

/** Lists the owners of an application. */
export function owners(call: GraphCall, application: ApplicationRecord): ServiceResponse {
  const query = optionsOf(call.request, ["$select", "$top", "$skiptoken"]);
  const names = query.get("$select")?.split(",");
  const allOwners = ownersIn(call, application, names);
  const skip = query.get("$skiptoken");
  const from = skip === null ? 0 : Number(decodeToken(skip).from);
  const to = from + topOf(query);
  const nextLink = linkWithToken(call.origin, call.request, "$skiptoken", encodeToken({ from: to }));
  return {
    status: 200,
    body: {
      ...context(call, "directoryObjects"),
      ...(to < allOwners.length && { "@odata.nextLink": nextLink }),
      value: allOwners.slice(from, to),
    },
  };
}

function ownersIn({ directory, permissions }: GraphCall, application: ApplicationRecord, names?: string[]) {
  return ownersOf(application, directory.owningIdentities()).map((owner) => {
    const ownerMembers: Record<string, unknown> = ownerJson(owner, permissions);
    const selectedNames = names && ["@odata.type", ...names].filter((name) => name in ownerMembers);
    return selectMembers(ownerMembers, selectedNames);
  });
}

/** Lists the federated identity credentials of an application. */
export function federatedCredentials(call: GraphCall, application: ApplicationRecord): ServiceResponse {
  optionsOf(call.request, ["$select", "$top"]);
  const value = application.federated.map(({ id, name, issuer, subject, audience = DEFAULT_AUDIENCE }) => {
    return { id, name, issuer, subject, audiences: [audience], description: null };
  });
  const set = `applications('${application.objectId}')/federatedIdentityCredentials`;
  return { status: 200, body: { ...context(call, set), value } };
}

/**
 * Lists the changes since a token, or all applications without a token. `$deltatoken=latest` returns only a delta link that
 * starts now. https://learn.microsoft.com/graph/api/application-delta
 */
export function delta(call: GraphCall): ServiceResponse {
  const { request, view, directory, origin } = call;
  const query = optionsOf(request, ["$select", "$skiptoken", "$deltatoken"]);
  const names = selectOf(query, "application", toJson("application", EMPTY_APPLICATION));
  const now = directory.clock.now();
  const position = positionOf(query, view.sequence, now);
  if (position === "expired") return resyncRequired();
  const { since, until, from } = position;
  // A replica that lags behind the token (`until` before `since`) has no changes, and must not move the next token back.
  const ids =
    since < 0
      ? view.applications().map((application) => application?.objectId)
      : directory.changedBetween(since, Math.max(since, until));
  const to = from + topOf(query);
  const value = ids.slice(from, to).flatMap((id): unknown[] => {
    const application = id === undefined ? undefined : view.byObjectId(id);
    if (application !== undefined) {
      const shape = selectMembers(toJson("application", application, names), names);
      return [{ ...shape, id: application.objectId }];
    }
    return since < 0 ? [] : [{ id, "@removed": { reason: "deleted" } }];
  });
  const link =
    to < ids.length
      ? {
          "@odata.nextLink": linkWithToken(
            origin,
            request,
            "$skiptoken",
            encodeToken({ since, until, from: to, at: now }),
          ),
        }
      : {
          "@odata.deltaLink": linkWithToken(
            origin,
            request,
            "$deltatoken",
            encodeToken({ since: Math.max(since, until), at: now, generation: directory.deltaGeneration }),
          ),
        };
  return { status: 200, body: { ...context(call, "applications", names), ...link, value } };

  /**
   * Returns the range of the log of changes that the request is about. `since` is the position after which changes are listed,
   * -1 for all applications. `until` is where the list ends, and `from` the index of the page's first entry in the list.
   */
  function positionOf(options: URLSearchParams, sequence: number, at: number) {
    const [skip, deltaToken] = [options.get("$skiptoken"), options.get("$deltatoken")];
    if (skip !== null) {
      const content = decodeToken(skip);
      return { since: Number(content.since), until: Number(content.until), from: Number(content.from) };
    }
    if (deltaToken === null) return { since: -1, until: sequence, from: 0 };
    if (deltaToken === "latest") return { since: sequence, until: sequence, from: 0 };
    const content = decodeToken(deltaToken);
    if (content.generation !== directory.deltaGeneration || at - Number(content.at) > DELTA_LIFETIME_MS)
      return "expired";
    return { since: Number(content.since), until: sequence, from: 0 };
  }
}

/** Returns the tenant's organization. */
export function organization(call: GraphCall): ServiceResponse {
  const { id, name: displayName, type: tenantType, domain } = call.tenant;
  const verified = { capabilities: "Email", isDefault: true, isInitial: true, name: domain, type: "Managed" };
  const members = { id, displayName, tenantType, verifiedDomains: [verified] };
  const names = selectOf(optionsOf(call.request, ["$select"]), "organization", members);
  return { status: 200, body: { ...context(call, "organization", names), value: [selectMembers(members, names)] } };
}

/** Lists the identity providers of the tenant. */
export function identityProviders(call: GraphCall): ServiceResponse {
  optionsOf(call.request, []);
  const value = call.tenant.identityProviders.map(identityProviderJson);
  return { status: 200, body: { ...context(call, "identity/identityProviders"), value } };
}

/** Lists the key sets of an Azure AD B2C tenant. Other tenants return an error. */
export function keySets(call: GraphCall, tenants: Tenants): ServiceResponse {
  if (call.tenant.type !== "AAD B2C") return notFound("trustFramework");
  optionsOf(call.request, []);
  const value = call.tenant.keySets.map((keySet) => tenants.keySetJson(keySet));
  return { status: 200, body: { "@odata.context": `${call.origin}/beta/$metadata#trustFramework/keySets`, value } };
}

/** Finds an application by object ID or `(appId='…')`. Returns the error response if there is none. */
export function find({ view }: GraphCall, id: string): ApplicationRecord | ServiceResponse {
  const appId = /^\(appId='([^']*)'\)$/.exec(id)?.[1];
  const application = appId === undefined ? view.byObjectId(id) : view.byAppId(appId);
  return application === undefined || application.otherTenant ? notFound(appId ?? id) : application;
}
