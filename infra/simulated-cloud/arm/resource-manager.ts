import { randomUUID } from "node:crypto";
import { actionOf } from "../authorization.ts";
import { type ErrorResponses, type IncomingRequest, retryAfter, type Service, type ServiceResponse } from "../http.ts";
import { bearerToken, type Claims, type Tokens } from "../tokens.ts";
import type { Vault } from "../vaults/vault.ts";
import type { Subscription } from "../vaults/vault-store.ts";
import { deploymentRoute } from "./deployment-secrets.ts";
import { dnsRoute } from "./dns-routes.ts";
import { governanceRoute } from "./governance-routes.ts";
import { locations, vaultItems } from "./lists.ts";
import { type ArmOptions, failure, KEY_VAULT_VERSIONS, page, type Route } from "./request-context.ts";
import { unauthorized } from "./resource-route.ts";
import { resourcesRoute } from "./route-table.ts";
import { diagnosticSettings, vaultResource } from "./vault-resource.ts";

/** Accepted API versions by kind of resource. */
const SUBSCRIPTION_VERSIONS = ["2016-06-01", "2018-06-01", "2019-11-01", "2020-01-01", "2021-01-01", "2022-12-01"];
const ALERT_VERSIONS = ["2017-03-01-preview", "2017-04-01", "2020-10-01"];
const INSIGHTS_VERSIONS = ["2016-09-01", "2017-05-01-preview", "2021-05-01-preview"];

/**
 * Simulates Azure Resource Manager: reads subscriptions, key vaults and diagnostic settings, reads and writes vault secrets as
 * deployments do, and serves the other resources of the company (route-table.ts).
 */
export function arm(options: ArmOptions): Service {
  return (request) => {
    const matchedRoute =
      deploymentRoute(options, request) ??
      (request.method === "GET" ? readRoute(options, request) : undefined) ??
      governanceRoute(options, request) ??
      dnsRoute(options, request) ??
      resourcesRoute(options, request);
    if (matchedRoute === undefined) return undefined;
    const { versions, answer, ...operation } = matchedRoute;
    const token = bearerToken(request.headers.authorization);
    const claims = token === undefined ? undefined : options.tokens.check(token, [options.origin]);
    const scope =
      matchedRoute.resource ??
      (matchedRoute.subscription === undefined ? "/" : `/subscriptions/${matchedRoute.subscription}`);
    return {
      ...operation,
      anonymous: claims === undefined || typeof claims === "string",
      errorResponses: errorResponsesFor(options.tokens, matchedRoute, scope, claims),
      answer() {
        if (claims === undefined || typeof claims === "string") return unauthenticated(options, claims);
        return versionProblem(request, versions) ?? withHeaders(answer(claims));
      },
    };
  };
}

/**
 * Returns the route of a request that reads the tenant, subscriptions, vaults or their keys and secrets. Undefined for other
 * requests.
 */
function readRoute(options: ArmOptions, request: IncomingRequest): Route | undefined {
  const { resources } = options;
  // Azure Resource Manager treats two slashes as one.
  const [root, id, ...rest] = request.segments.filter((segment) => segment !== "");
  if (root?.toLowerCase() === "tenants" && id === undefined) {
    const { tenantId } = options.tokens;
    const body = { value: [{ id: `/tenants/${tenantId}`, tenantId }] };
    return { name: "arm.listTenants", versions: SUBSCRIPTION_VERSIONS, answer: () => ({ status: 200, body }) };
  }
  if (root?.toLowerCase() !== "subscriptions") return undefined;
  if (id === undefined) {
    return {
      name: "arm.listSubscriptions",
      versions: SUBSCRIPTION_VERSIONS,
      answer: () => {
        const visible = [...resources.subscriptions.values()].filter(({ id }) =>
          options.authorization.canSeeSubscription(id),
        );
        return page(options, request, visible, options.pageSizes.subscriptions, (one) =>
          subscriptionResource(one, options.tokens.tenantId),
        );
      },
    };
  }

  return subscriptionRoute(options, request, id, rest.join("/").toLowerCase());
}

/** Runs the answer of a route with the subscription that it names, unless the caller may not read the subscription. */
type InSubscription = (
  action: string,
  answer: (subscription: Subscription) => ServiceResponse,
) => (claims: Claims) => ServiceResponse;

/** Returns the route of a path in a subscription. The path is in lower case and has no leading slash. */
function subscriptionRoute(options: ArmOptions, request: IncomingRequest, id: string, path: string): Route | undefined {
  const { resources } = options;
  /** Finds the subscription before `answer` runs. A denied one can be read itself (no action), but nothing in it. */
  const inSubscription: InSubscription = (action, answer) => (claims) => {
    if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(id)) {
      const message = `The provided subscription identifier '${id}' is malformed or invalid.`;
      return failure(400, "InvalidSubscriptionId", message);
    }
    const subscription = resources.subscriptions.get(id.toLowerCase());
    if (subscription === undefined) {
      return failure(404, "SubscriptionNotFound", `The subscription '${id}' could not be found.`);
    }
    if (subscription.declared.denied && action !== "") return unauthorized(claims, action, `/subscriptions/${id}`);
    return answer(subscription);
  };

  if (path === "") {
    const answer = inSubscription("", (one) => ({
      status: 200,
      body: subscriptionResource(one, options.tokens.tenantId),
    }));
    return { name: "arm.getSubscription", versions: SUBSCRIPTION_VERSIONS, subscription: id, answer };
  }
  if (path === "locations") {
    const answer = inSubscription("Microsoft.Resources/subscriptions/locations/read", (one) =>
      locations(one.id, options.governance.rulesOf(one.id)),
    );
    return { name: "arm.listLocations", versions: SUBSCRIPTION_VERSIONS, subscription: id, answer };
  }
  // The company has no alert rules, and its subscriptions have no diagnostic settings.
  const emptyList = () => ({ status: 200, body: { value: [] } });
  if (path === "providers/microsoft.insights/activitylogalerts") {
    const answer = inSubscription("Microsoft.Insights/activityLogAlerts/read", emptyList);
    return { name: "arm.listActivityLogAlerts", versions: ALERT_VERSIONS, subscription: id, answer };
  }
  if (path === "providers/microsoft.insights/diagnosticsettings") {
    const answer = inSubscription("Microsoft.Insights/diagnosticSettings/read", emptyList);
    return { name: "arm.diagnosticSettings", versions: INSIGHTS_VERSIONS, subscription: id, answer };
  }
  if (path === "providers/microsoft.keyvault/vaults") {
    const answer = inSubscription("Microsoft.KeyVault/vaults/read", (subscription) => {
      const top = Number(request.query.get("$top") ?? options.pageSizes.vaults);
      if (!Number.isInteger(top) || top < 1 || top > 1000) {
        return failure(400, "InvalidTopParameter", "The value of $top must be between 1 and 1000.");
      }
      return page(options, request, [...subscription.vaults], top, (name) => {
        const vault = resources.vault(name)!;
        return vaultResource(
          vault,
          options.tokens.tenantId,
          options.vaultUri(vault),
          options.store.access.readersOf(vault),
        );
      });
    });
    return { name: "arm.listVaults", versions: KEY_VAULT_VERSIONS, subscription: id, answer };
  }

  return vaultRoute(options, request, id, path, inSubscription);
}

/** Returns the route of a vault, or of its keys, secrets or diagnostic settings. */
function vaultRoute(
  options: ArmOptions,
  request: IncomingRequest,
  id: string,
  path: string,
  inSubscription: InSubscription,
): Route | undefined {
  const { resources } = options;
  const match =
    /^resourcegroups\/([^/]+)\/providers\/microsoft\.keyvault\/vaults\/([^/]+)(?:\/(keys|secrets|providers\/microsoft\.insights\/diagnosticsettings))?$/.exec(
      path,
    );
  if (match === null) return undefined;
  const [, group, name, part] = match;
  const inVault = (action: string, answer: (vault: Vault) => ServiceResponse) =>
    inSubscription(action, (subscription) => {
      const vault = resources.vault(name!);
      if (
        vault === undefined ||
        vault.subscriptionId !== subscription.id ||
        vault.id.split("/")[4]!.toLowerCase() !== group
      ) {
        return failure(
          404,
          "ResourceNotFound",
          `The Resource 'Microsoft.KeyVault/vaults/${name}' under resource group '${group}' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix`,
        );
      }
      return answer(vault);
    });
  if (part === "keys" || part === "secrets") {
    return {
      name: part === "keys" ? "arm.listKeys" : "arm.listSecrets",
      versions: KEY_VAULT_VERSIONS,
      subscription: id,
      vault: name!,
      answer: inVault(`Microsoft.KeyVault/vaults/${part}/read`, (vault) => vaultItems(options, request, vault, part)),
    };
  }
  if (part !== undefined) {
    return {
      name: "arm.diagnosticSettings",
      versions: INSIGHTS_VERSIONS,
      subscription: id,
      vault: name!,
      answer: inVault("Microsoft.Insights/diagnosticSettings/read", (vault) => ({
        status: 200,
        body: { value: diagnosticSettings(vault) },
      })),
    };
  }
  return {
    name: "arm.getVault",
    versions: KEY_VAULT_VERSIONS,
    subscription: id,
    vault: name!,
    answer: inVault("Microsoft.KeyVault/vaults/read", (vault) => ({
      status: 200,
      body: vaultResource(
        vault,
        options.tokens.tenantId,
        options.vaultUri(vault),
        options.store.access.readersOf(vault),
      ),
    })),
  };
}

function subscriptionResource({ id, declared }: Subscription, tenantId: string): object {
  return {
    id: `/subscriptions/${id}`,
    authorizationSource: "RoleBased",
    managedByTenants: [],
    ...(declared.tags && { tags: declared.tags }),
    subscriptionId: id,
    tenantId: declared.tenantId ?? tenantId,
    displayName: declared.name,
    state: declared.state ?? "Enabled",
    subscriptionPolicies: {
      locationPlacementId: "Public_2014-09-01",
      quotaId: "EnterpriseAgreement_2014-09-01",
      spendingLimit: "Off",
    },
  };
}

/**
 * Adds the headers of all responses:
 * https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
 */
function withHeaders(answer: ServiceResponse): ServiceResponse {
  return {
    ...answer,
    headers: {
      ...answer.headers,
      "cache-control": "no-cache",
      "x-ms-ratelimit-remaining-subscription-reads": "249",
      "x-ms-ratelimit-remaining-subscription-global-reads": "3749",
      "x-ms-correlation-request-id": randomUUID(),
      "x-ms-routing-request-id": `WESTEUROPE:${new Date().toISOString().slice(0, 19)}Z:${randomUUID()}`,
    },
  };
}

/** Checks the API version. Returns the error response, or undefined if the version is accepted. */
function versionProblem(request: IncomingRequest, versions: readonly string[]): ServiceResponse | undefined {
  const version = request.query.get("api-version");
  if (!version) {
    return failure(
      400,
      "MissingApiVersionParameter",
      "The api-version query parameter (?api-version=) is required for all requests.",
    );
  }
  // Clients poll an operation with the API version of the request that started the operation.
  if (versions.length === 0 || versions.includes(version)) return undefined;
  const supported = `The supported api-versions are '${versions.join(", ")}'.`;
  return versions === SUBSCRIPTION_VERSIONS
    ? failure(400, "InvalidApiVersionParameter", `The api-version '${version}' is invalid. ${supported}`)
    : failure(
        400,
        "NoRegisteredProviderFound",
        `No registered resource provider found for API version '${version}'. ${supported}`,
      );
}

/** Creates the 401 response for a missing or invalid token. */
function unauthenticated({ authority, origin, tokens }: ArmOptions, problem: string | undefined): ServiceResponse {
  const challenge = `Bearer authorization_uri="${authority}/${tokens.tenantId}", error="invalid_token", error_description=`;
  if (problem === undefined) {
    const description = "The authentication failed because of missing 'Authorization' header.";
    return {
      ...failure(401, "AuthenticationFailed", `Authentication failed. ${description}`),
      headers: { "www-authenticate": `${challenge}"${description}"` },
    };
  }
  const [code, description] =
    problem === "expired"
      ? ["ExpiredAuthenticationToken", "The access token expiry UTC time is earlier than current UTC time."]
      : problem === "audience"
        ? [
            "InvalidAuthenticationTokenAudience",
            `The access token has been obtained for wrong audience or resource. It should exactly match with one of the allowed audiences '${origin}','${origin}/'.`,
          ]
        : ["InvalidAuthenticationToken", "The access token is invalid."];
  return { ...failure(401, code!, description!), headers: { "www-authenticate": `${challenge}"${description}"` } };
}

function errorResponsesFor(
  tokens: Tokens,
  { name, action }: Route,
  scope: string,
  claims: Claims | string | undefined,
): ErrorResponses {
  const caller =
    typeof claims === "object"
      ? claims
      : { aud: "", iss: tokens.issuer, tid: tokens.tenantId, oid: "", appid: "", iat: 0, exp: 0 };
  const denied = () => unauthorized(caller, action ?? actionOf(name) ?? `${name}/read`, scope);
  return {
    throttled: (seconds) => ({
      ...failure(
        429,
        "TooManyRequests",
        "The request is being throttled as the limit has been reached for operation type - Read. For more information, see - https://aka.ms/srpthrottlinglimits",
      ),
      headers: {
        "x-ms-ratelimit-remaining-subscription-reads": "0",
        ...retryAfter(seconds),
      },
    }),
    denied,
    firewalled: denied,
    failed: (status) =>
      status === 503
        ? failure(503, "ServerTimeout", "The request timed out. Please retry.")
        : failure(status, "InternalServerError", "Encountered internal server error. Please retry."),
  };
}
