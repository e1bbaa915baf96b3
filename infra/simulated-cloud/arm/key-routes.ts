import { randomUUID } from "node:crypto";
import { type IncomingRequest, jsonObject, type ServiceResponse } from "../http.ts";
import type { Claims } from "../tokens.ts";
import { configurationKeyId, type KeyKind, type KeyListing, keyKind } from "./key-kinds.ts";
import { failure, page, type Route } from "./request-context.ts";
import { type ResourceCall, resourceRoute } from "./resource-route.ts";
import type { ArmResource } from "./resource-store.ts";

/** Keys of App Configuration per page. Azure documents the pages, not their size. */
const CONFIGURATION_PAGE = 3;

/**
 * Returns the route of a request that lists or regenerates the keys of a resource, for all kinds in key-kinds.ts. Undefined for
 * other requests.
 */
export function keyRoute(call: ResourceCall): Route | undefined {
  const kind = keyKind(call.type.type);
  if (kind === undefined) return undefined;
  const { request, rest, type } = call;
  const { versions } = type;
  const [segment = "", key, ...more] = rest.split("/");
  if (segment === kind.list.toLowerCase() && key === undefined && listsBy(kind, request)) {
    const route = { name: `arm.list${type.noun}Keys`, versions, action: `${type.type}/${kind.list}/action` };
    return resourceRoute(call, route, (resource) => list(call, kind, resource));
  }
  // Only where the path names the key, the regenerate call has a further segment.
  const hasSegments = kind.parameter === undefined ? key !== undefined && more.length === 0 : key === undefined;
  if (request.method !== "POST" || segment !== kind.regenerate.toLowerCase() || !hasSegments) return undefined;
  const action = `${type.type}/${kind.regenerate}/action`;
  const route = { name: `arm.regenerate${type.noun}Key`, versions, action };
  return resourceRoute(call, route, (resource, claims) => regenerate(call, kind, resource, claims));
}

/** Lists are POST requests. Only the later pages of App Configuration's list are GET requests, as its SDKs send them. */
const listsBy = ({ type }: KeyKind, { method, query }: IncomingRequest): boolean =>
  method === "POST" || (method === "GET" && isConfigurationStore(type) && query.has("$skiptoken"));

const isConfigurationStore = (type: string) => type === "Microsoft.AppConfiguration/configurationStores";

const listingOf = ({ options }: ResourceCall, resource: ArmResource): KeyListing => ({
  resource,
  keys: options.keys.current(resource),
  createdAt: (key) => options.keys.createdAt(resource, key),
  origin: options.originOf,
});

function list(call: ResourceCall, kind: KeyKind, resource: ArmResource): ServiceResponse {
  const refusal = adminUserProblem(resource);
  if (refusal !== undefined) return refusal;
  call.options.keys.listed(resource);
  const body = kind.body(listingOf(call, resource));
  return Array.isArray(body)
    ? page(call.options, call.request, body, CONFIGURATION_PAGE, (one) => one as object)
    : { status: 200, body };
}

function regenerate(call: ResourceCall, kind: KeyKind, resource: ArmResource, claims: Claims): ServiceResponse {
  const { options, request, subscription } = call;
  const refusal = adminUserProblem(resource);
  if (refusal !== undefined) return refusal;
  const key = requestedKey(call, kind, resource);
  if (typeof key !== "string") return key;
  if (options.keys.isBusy(resource)) {
    return failure(409, "Conflict", "Another operation on the resource is in progress. Retry when it has ended.");
  }
  const requestId = randomUUID();
  const clientRequestId = request.headers["x-ms-client-request-id"];
  options.keys.regenerate(resource, key, {
    by: claims.oid,
    requestId,
    ...(typeof clientRequestId === "string" && { clientRequestId }),
  });
  const result = (): ServiceResponse => {
    options.keys.finish(resource);
    const listing = listingOf(call, resource);
    const body = kind.regenerated === undefined ? kind.body(listing) : kind.regenerated(listing, key);
    return { status: 200, ...(body !== undefined && { body }) };
  };
  const [version, namespace] = [request.query.get("api-version")!, kind.type.split("/")[0]!];
  const answer = kind.asynchronous
    ? options.operations.start(options, { subscription, namespace, version, name: resource.name }, result)
    : result();
  return { ...answer, headers: { ...answer.headers, "x-ms-request-id": requestId } };
}

/** Returns the key that a request names, or the 400 response for a wrong body or path. */
function requestedKey(
  { request, parts }: ResourceCall,
  kind: KeyKind,
  resource: ArmResource,
): string | ServiceResponse {
  const { parameter } = kind;
  const code = kind.invalidCode ?? "BadRequest";
  const body = jsonObject(request);
  if (parameter !== undefined && body === undefined) return failure(400, code, "The body is not a JSON object.");
  const unknown = parameter === undefined ? undefined : Object.keys(body!).find((member) => member !== parameter);
  if (unknown !== undefined) return failure(400, code, `The body has the unknown member '${unknown}'.`);
  const named = parameter === undefined ? parts[1] : body![parameter];
  const nameOf = (key: string) => (isConfigurationStore(kind.type) ? configurationKeyId(resource.name, key) : key);
  const key = kind.keys.find((one) => nameOf(one) === named);
  return (
    key ??
    failure(
      400,
      code,
      `Values for request parameters are invalid: ${parameter ?? "keyKind"}. Expected one of ${kind.keys.map(nameOf).join(", ")}.`,
    )
  );
}

/**
 * Returns the error of a container registry whose admin user is disabled, which is the default:
 * https://learn.microsoft.com/azure/container-registry/container-registry-authentication#admin-account
 */
function adminUserProblem({ type, id, properties }: ArmResource): ServiceResponse | undefined {
  if (type.type !== "Microsoft.ContainerRegistry/registries" || properties.adminUserEnabled === true) return undefined;
  return failure(
    400,
    "UnAuthorizedForCredentialOperations",
    `Cannot perform credential operations for ${id} as admin user is disabled. Kindly enable admin user as per docs: https://docs.microsoft.com/en-us/azure/container-registry/container-registry-authentication#admin-account`,
  );
}
