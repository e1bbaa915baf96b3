import { randomUUID } from "node:crypto";
import type { ApiTokens } from "./api-tokens.ts";
import { type Answer, type Incoming, type Operation, type Refusals, retryAfter } from "./http.ts";
import type { Principal, Tokens } from "./tokens.ts";

export interface ManagedIdentityOptions {
  tokens: Tokens;
  api: ApiTokens;
  /** Required value of `X-IDENTITY-HEADER`. */
  secret: string;
  identity: Principal;
  resources: readonly string[];
}

/**
 * Simulates the managed identity endpoint of App Service and Functions, api-version 2019-08-01:
 * https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference
 */
export function managedIdentityToken(options: ManagedIdentityOptions, request: Incoming): Operation {
  return { name: "identity.token", refusals, answer: () => token(options, request) };
}

function token({ tokens, api, secret, identity, resources }: ManagedIdentityOptions, request: Incoming): Answer {
  if (request.headers["x-identity-header"] !== secret) {
    // The header proves that the request comes from the app and not from server-side request forgery.
    return failure(401, "The X-IDENTITY-HEADER header is missing or does not match.");
  }
  if (request.query.get("api-version") !== "2019-08-01") {
    return failure(400, `The API version '${request.query.get("api-version") ?? ""}' is not supported.`);
  }
  const resource = request.query.get("resource");
  if (!resource) return failure(400, "The parameter resource is missing.");
  const named = request.query.get("client_id") ?? request.query.get("principal_id");
  if (named !== null && named !== identity.clientId && named !== identity.objectId) {
    return failure(400, "Unable to load the proper Managed Identity.");
  }
  const name = resource.replace(/\/$/, "");
  if (!resources.includes(name) && !api.isFor(name)) {
    return failure(
      400,
      `AADSTS500011: The resource principal named ${resource} was not found in the tenant named Acme.`,
    );
  }
  const { token: accessToken, claims } = api.isFor(name) ? api.issue(identity, name) : tokens.issue(identity, resource);
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

function failure(statusCode: number, message: string): Answer {
  return { status: statusCode, body: { statusCode, message, correlationId: randomUUID() } };
}

const refusals: Refusals = {
  throttled: (seconds) => ({
    ...failure(429, "Too many requests."),
    headers: retryAfter(seconds),
  }),
  denied: () => failure(400, "Unable to load the proper Managed Identity."),
  firewalled: () => failure(403, "The request is not allowed."),
  failed: (status) => failure(status, "The identity service is not available."),
};
