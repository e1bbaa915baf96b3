import * as z from "zod";
import { ApiTokenView, CreatedApiToken, NewApiToken, UserPageQuery } from "../shared/access/api.ts";
import type { Endpoint } from "../shared/platform/http/endpoint.ts";
import { pageOf, pageRequest } from "../shared/platform/http/paging.ts";
import { created, Deleted, deleted, ok } from "../shared/platform/http/reply.ts";
import { endpoint } from "./declare.ts";
import type { Services } from "./services.ts";

// Endpoints of API tokens, with which programs call the API in the name of a user.

const tag = "API tokens";

const listTokens = endpoint({
  name: "listTokens",
  method: "GET",
  route: "auth/tokens",
  summary: "List API tokens",
  description:
    "Returns your own tokens by name. Administrators get all tokens ordered by ID, or those of one user. Revoked tokens are not included; expired tokens are included for 30 days.",
  tag,
  access: "user",
  tier: "core",
  query: UserPageQuery,
  responds: { 200: pageOf(ApiTokenView, "ApiTokenList") },
  handle: async ({ query, actor, services }) =>
    ok(await services.access.apiTokens.list(actor, query.user, pageRequest(query))),
});

const createToken = endpoint({
  name: "createToken",
  method: "POST",
  route: "auth/tokens",
  summary: "Create an API token",
  description:
    "API tokens are for programs: send the token as `Authorization: Bearer`. The token is returned only once. It becomes invalid when it expires or is revoked, when its user is disabled or deleted, and when an administrator resets the user's password. Changing your own password or signing out everywhere revokes it only on request. A token never grants more than the user's current role. Each user can have up to 50 tokens.",
  tag,
  access: "user",
  tier: "core",
  // Only people who signed in here can create tokens: API tokens and Entra tokens are rejected.
  interactive: true,
  body: NewApiToken,
  // Guarded requests need the confirmations that the settings requireStepUp and requireApproval require.
  guarded: ({ actor }) => actor.role === "admin",
  example: { body: { name: "nightly report", role: "user", expiresInDays: 90 } },
  responds: { 201: CreatedApiToken },
  problems: ["alreadyExists", "conflict"],
  handle: async ({ body, actor, caller, services }) => {
    const token = await services.access.apiTokens.create(actor, body, caller);
    return created(token, `/auth/tokens?user=${encodeURIComponent(token.user)}`);
  },
});

const endToken = endpoint({
  name: "endToken",
  method: "DELETE",
  route: "auth/tokens/{token_id}",
  summary: "Revoke an API token",
  description:
    "You can revoke your own tokens; administrators can revoke any token. All instances reject the token from its next request on.",
  tag,
  access: "user",
  tier: "core",
  interactive: true,
  params: z.object({ token_id: z.string().max(64) }),
  responds: { 200: Deleted },
  problems: ["notFound"],
  handle: async ({ params, actor, caller, services }) => {
    await services.access.apiTokens.end(actor, params.token_id, caller);
    return deleted();
  },
});

export const endpoints: Endpoint<Services>[] = [listTokens, createToken, endToken];
