import { randomUUID } from "node:crypto";
import type { ApiTokens } from "./api-tokens.ts";
import { type ErrorResponses, type IncomingRequest, type Operation, retryAfter, type ServiceResponse } from "./http.ts";
import type { Principal, Tokens } from "./tokens.ts";

export interface ManagedIdentityOptions {
  tokens: Tokens;
  /** Issues tokens for the service's own API. */
  api: ApiTokens;
  /** Required value of `X-IDENTITY-HEADER`. */
  secret: string;
  identity: Principal;
  /** Resources for which the identity gets tokens, without a trailing slash. */
  resources: readonly string[];
}

/**
 * Simulates the managed identity endpoint of App Service and Functions, api-version 2019-08-01:
 * https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference
 */
export function managedIdentityToken(options: ManagedIdentityOptions, request: IncomingRequest): Operation {
  return { name: "identity.token", errorResponses, answer: () => token(options, request) };
}

function token(
  { tokens, api, secret, identity, resources }: ManagedIdentityOptions,
  request: IncomingRequest,
): ServiceResponse {
  if (request.headers["x-identity-header"] !== secret) {
    // The header proves that the request comes from the app and not from server-side request forgery.
    return failure(401, "The X-IDENTITY-HEADER header is missing or does not match.");
  }
  if (request.query.get("api-version") !== "2019-08-01") {
    return failure(400, `The API version '${request.query.get("api-version") ?? ""}' is not supported.`);
  }
  const resource = request.query.get("resource");
  if (!resource) return failure(400, "The parameter resource is missing.");
  const identityId = request.query.get("client_id") ?? request.query.get("principal_id");
  if (identityId !== null && identityId !== identity.clientId && identityId !== identity.objectId) {
    return failure(400, "Unable to load the proper Managed Identity.");
  }
  const audience = resource.replace(/\/$/, "");
  if (!resources.includes(audience) && !api.isFor(audience)) {
    return failure(
      400,
      `AADSTS500011: The resource principal named ${resource} was not found in the tenant named Acme.`,
    );
  }
  const { token: accessToken, claims } = api.isFor(audience)
    ? api.issue(identity, audience)
    : tokens.issue(identity, resource);
  return {
    status: 200,
    body: {
      access_token: accessToken,
      expires_on: String(claims.exp),
      resource,
      token_type: "Bearer",
      client_id: identity.clientId,
    },
  };
}

function failure(statusCode: number, message: string): ServiceResponse {
  return { status: statusCode, body: { statusCode, message, correlationId: randomUUID() } };
}

const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({
    ...failure(429, "Too many requests."),
    headers: retryAfter(seconds),
  }),
  denied: () => failure(400, "Unable to load the proper Managed Identity."),
  firewalled: () => failure(403, "The request is not allowed."),
  failed: (status) => failure(status, "The identity service is not available."),
};
