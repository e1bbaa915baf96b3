import { randomUUID, timingSafeEqual } from "node:crypto";
import type { ApiTokens } from "./api-tokens.ts";
import type { Directory } from "./graph/directory.ts";
import type { ApplicationRecord } from "./graph/records.ts";
import type { Tenants } from "./graph/tenants.ts";
import {
  type ErrorResponses,
  type IncomingRequest,
  type Operation,
  retryAfter,
  type Service,
  type ServiceResponse,
} from "./http.ts";
import type { Workspaces } from "./logs/workspaces.ts";
import { issuerOf, type Principal, type Tokens } from "./tokens.ts";

/** AADSTS codes for a client secret. */
const SECRET_EXPIRED = 7000222;
const SECRET_UNKNOWN = 7000215;

/** An application with its client secret. */
export interface AppRegistration extends Principal {
  clientSecret: string;
}

export interface EntraOptions {
  tokens: Tokens;
  /** Issues tokens for the service's API. */
  api: ApiTokens;
  /** `https://login.localhost:port` */
  origin: string;
  /** Resources that clients can request tokens for, without a trailing slash. */
  resources: readonly string[];
  /** Address of Graph, the only resource for which clients get tokens in other tenants than the service's own. */
  graph: string;
  /** The service's own applications. They are not in the directory. */
  apps: readonly AppRegistration[];
  /** All tenants. The service's own tenant is first. */
  tenants: Tenants;
  /** The workspaces that log sign-ins. */
  workspaces: Workspaces;
}

/**
 * Simulates Microsoft Entra ID: the token endpoint for applications with a secret, the discovery document and the keys.
 * https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow; error codes:
 * https://learn.microsoft.com/entra/identity-platform/reference-error-codes
 */
export function entra(options: EntraOptions): Service {
  return (request) => {
    const [tenant = "", ...rest] = request.segments;
    const path = rest.join("/");
    const operation = (name: string, answer: Operation["answer"]): Operation => ({ name, errorResponses, answer });
    const version = path === "v2.0/.well-known/openid-configuration" || path === "discovery/v2.0/keys" ? 2 : 1;
    if (request.method === "GET" && /^(v2\.0\/)?\.well-known\/openid-configuration$/.test(path)) {
      return operation("entra.openidConfiguration", () => {
        const namedTenant = options.tenants.find(tenant);
        return namedTenant ? discovery(options, namedTenant.id, version) : unknownTenant(tenant);
      });
    }
    if (request.method === "GET" && (path === "discovery/v2.0/keys" || path === "discovery/keys")) {
      return operation("entra.keys", async () => ({ status: 200, body: await options.api.jwks(version) }));
    }
    if (request.method === "POST" && path === "oauth2/v2.0/token") {
      const item = new URLSearchParams(request.body.toString("utf8")).get("client_id");
      return { ...operation("entra.token", () => token(options, tenant, request)), ...(item && { item }) };
    }
    return undefined;
  };
}

function discovery({ origin }: EntraOptions, tenantId: string, version: 1 | 2): ServiceResponse {
  const tenant = `${origin}/${tenantId}`;
  const path = version === 1 ? "oauth2" : "oauth2/v2.0";
  return {
    status: 200,
    body: {
      token_endpoint: `${tenant}/${path}/token`,
      token_endpoint_auth_methods_supported: ["client_secret_post", "private_key_jwt", "client_secret_basic"],
      jwks_uri: `${tenant}/discovery/${version === 1 ? "" : "v2.0/"}keys`,
      response_modes_supported: ["query", "fragment", "form_post"],
      subject_types_supported: ["pairwise"],
      id_token_signing_alg_values_supported: ["RS256"],
      response_types_supported: ["code", "id_token", "code id_token", "id_token token"],
      scopes_supported: ["openid", "profile", "email", "offline_access"],
      issuer: version === 1 ? issuerOf(tenantId) : `${tenant}/v2.0`,
      authorization_endpoint: `${tenant}/${path}/authorize`,
      end_session_endpoint: `${tenant}/${path}/logout`,
      tenant_region_scope: "EU",
      cloud_instance_name: "localhost",
    },
  };
}

/** Runs a token request: the client credentials flow. */
function token(
  { tokens, api, resources, graph, apps, tenants, workspaces }: EntraOptions,
  tenantName: string,
  request: IncomingRequest,
): ServiceResponse {
  const tenant = tenants.find(tenantName);
  if (!tenant) return unknownTenant(tenantName);
  const isOwnTenant = tenant === tenants.all[0];
  const { directory } = tenant;
  const form = new URLSearchParams(request.body.toString("utf8"));
  const missing = (name: string) =>
    failure(400, "invalid_request", 900144, `The request body must contain the following parameter: '${name}'.`);
  const grant = form.get("grant_type");
  if (!grant) return missing("grant_type");
  if (grant !== "client_credentials") {
    return failure(400, "unsupported_grant_type", 70003, `The app requested an unsupported grant type '${grant}'.`);
  }
  const clientId = form.get("client_id");
  if (!clientId) return missing("client_id");
  const application =
    (isOwnTenant ? apps.find((one) => one.clientId === clientId) : undefined) ?? directory.currentState(clientId);
  if (application === undefined) {
    return failure(
      400,
      "unauthorized_client",
      700016,
      `Application with identifier '${clientId}' was not found in the directory '${tenant.name}'. This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant. You may have sent your authentication request to the wrong tenant.`,
    );
  }
  const secret = form.get("client_secret");
  const assertion = form.get("client_assertion");
  if (assertion !== null && form.get("client_assertion_type") !== ASSERTION_TYPE)
    return failure(400, "invalid_request", 900144, "The request body must contain: 'client_assertion_type'.");
  if (!secret && !assertion) {
    return failure(
      401,
      "invalid_client",
      7000218,
      "The request body must contain the following parameter: 'client_assertion' or 'client_secret'.",
    );
  }
  const signInError = assertion
    ? assertionError(tokens, directory, application, assertion)
    : "clientSecret" in application
      ? ownAppError(application, secret!)
      : applicationError(directory, application, secret!);
  // Only sign-ins of applications in the directory are logged, not those of the service itself.
  if (isOwnTenant && !("clientSecret" in application)) {
    // A sign-in with a federated credential names no key.
    const keyId = secret ? (directory.secretWithValue(secret)?.keyId ?? "") : "";
    // The result of a successful sign-in is 0.
    const { error_codes: [code] = [0] } = (signInError?.body ?? {}) as { error_codes?: number[] };
    workspaces.recordSignIn({ appId: application.appId, keyId, name: application.displayName, result: String(code) });
  }
  if (signInError !== undefined) return signInError;
  const app =
    "clientSecret" in application
      ? application
      : { clientId: application.appId, objectId: application.servicePrincipalId };
  const scope = form.get("scope")?.trim();
  if (!scope) return missing("scope");
  const scopes = scope.split(/\s+/).filter((one) => !["openid", "profile", "offline_access", "email"].includes(one));
  if (scopes.length !== 1) {
    return failure(
      400,
      "invalid_scope",
      70011,
      `The provided request must include a 'scope' input parameter. The provided value for the input parameter 'scope' is not valid. The scope ${scope} is not valid.`,
    );
  }
  if (!scopes[0]!.endsWith("/.default")) {
    return failure(
      400,
      "invalid_scope",
      1002012,
      `The provided value for scope ${scope} is not valid. Client credential flows must have a scope value with /.default suffixed to the resource identifier (application ID URI).`,
    );
  }
  const audience = scopes[0]!.slice(0, -"/.default".length);
  const resource = audience.replace(/\/$/, "");
  const resourceExists = isOwnTenant ? resources.includes(resource) || api.isFor(resource) : resource === graph;
  if (!resourceExists) {
    return failure(
      400,
      "invalid_resource",
      500011,
      `The resource principal named ${audience} was not found in the tenant named ${tenant.name}. This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant. You might have sent your authentication request to the wrong tenant.`,
    );
  }
  const { lifetimeSeconds } = tokens;
  return {
    status: 200,
    headers: { "cache-control": "no-store, no-cache", pragma: "no-cache" },
    body: {
      token_type: "Bearer",
      expires_in: lifetimeSeconds,
      ext_expires_in: lifetimeSeconds,
      access_token: (api.isFor(resource) ? api.issue(app, resource) : tokens.issue(app, audience, tenant.id)).token,
    },
  };
}

/** https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow */
const ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/** Messages of the codes for a token that no federated credential matches. */
const FEDERATED_MESSAGES = { 700211: "issuer", 700212: "audience", 700213: "subject" };

/**
 * Returns the error with which a workload's token does not sign an application in. The simulated platforms of all issuers sign with the
 * same keys, `control.workloadToken` issues their tokens.
 */
function assertionError(
  tokens: Tokens,
  directory: Directory,
  application: AppRegistration | ApplicationRecord,
  assertion: string,
): ServiceResponse | undefined {
  if ("clientSecret" in application)
    return failure(401, "invalid_client", 7000218, "There is no federated credential.");
  const claims = tokens.checkWorkload(assertion);
  if (claims === "malformed") return failure(400, "invalid_request", 50027, "JWT token is invalid or malformed.");
  if (claims === "signature")
    return failure(401, "invalid_client", 5000611, "The signature of the client assertion is not valid.");
  if (claims === "expired")
    return failure(401, "invalid_client", 700024, "Client assertion is not within its valid time range.");
  const code = directory.signInFederated(application, claims);
  if (code === "accepted") return undefined;
  return failure(
    401,
    "invalid_client",
    code,
    `No matching federated identity record found for presented assertion ${FEDERATED_MESSAGES[code]}.`,
  );
}

/** Returns the error of an application of the service itself. Undefined if the secret is correct. */
function ownAppError({ clientId, clientSecret }: AppRegistration, secret: string): ServiceResponse | undefined {
  return equal(secret, clientSecret) ? undefined : wrongSecret(clientId);
}

/** Returns the error with which an application of the tenant can't sign in with a secret. Undefined if it can. */
function applicationError(
  directory: Directory,
  application: ApplicationRecord,
  secret: string,
): ServiceResponse | undefined {
  const { appId, displayName, signIn } = application;
  if (signIn === "none") {
    return failure(
      401,
      "invalid_client",
      7000229,
      `The client application ${appId} is missing service principal in the tenant. See instructions here: https://go.microsoft.com/fwlink/?linkid=2225119`,
    );
  }
  if (signIn === "disabled") {
    return failure(400, "unauthorized_client", 7000112, `Application '${appId}'(${displayName}) is disabled.`);
  }
  const result = directory.signIn(application, secret);
  if (result === SECRET_EXPIRED) {
    return failure(
      401,
      "invalid_client",
      7000222,
      `The provided client secret keys for app '${appId}' are expired. Visit the Azure portal to create new keys for your app: https://aka.ms/NewClientSecret, or consider using certificate credentials for added security: https://aka.ms/certCreds.`,
    );
  }
  if (result === SECRET_UNKNOWN) return wrongSecret(appId);
  // Conditional Access is evaluated only after the client has authenticated.
  return signIn === "blocked" ? errorResponses.firewalled() : undefined;
}

function wrongSecret(clientId: string): ServiceResponse {
  return failure(
    401,
    "invalid_client",
    7000215,
    `Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '${clientId}'.`,
  );
}

function unknownTenant(tenant: string): ServiceResponse {
  return failure(
    400,
    "invalid_request",
    90002,
    `Tenant '${tenant}' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud. Check with your subscription administrator, this may happen if there are no active subscriptions for the tenant.`,
  );
}

/** Creates an error response with an AADSTS code. */
function failure(status: number, error: string, code: number, message: string): ServiceResponse {
  const [traceId, correlationId] = [randomUUID(), randomUUID()];
  const timestamp = `${new Date().toISOString().slice(0, 19).replace("T", " ")}Z`;
  return {
    status,
    headers: { "cache-control": "no-store, no-cache" },
    body: {
      error,
      error_description: `AADSTS${code}: ${message}\r\nTrace ID: ${traceId}\r\nCorrelation ID: ${correlationId}\r\nTimestamp: ${timestamp}`,
      error_codes: [code],
      timestamp,
      trace_id: traceId,
      correlation_id: correlationId,
      error_uri: `https://login.localhost/error?code=${code}`,
    },
  };
}

const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({
    ...failure(429, "temporarily_unavailable", 90055, "Tenant throttling: there are too many requests."),
    headers: retryAfter(seconds),
  }),
  denied: () => failure(400, "unauthorized_client", 7000112, "Application is disabled."),
  firewalled: () =>
    failure(
      400,
      "access_denied",
      53003,
      "Access has been blocked by Conditional Access policies. The access policy does not allow token issuance.",
    ),
  failed: (status) =>
    failure(status, "temporarily_unavailable", 90033, "A transient error has occurred. Please try again."),
};

function equal(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}
