import * as z from "zod";
import { ApiTokenView, CreatedApiToken, NewApiToken, userParameter } from "../shared/access/api.ts";
import type { Endpoint } from "../shared/http/endpoint.ts";
import { pageOf, pageParameters, pageRequest } from "../shared/http/paging.ts";
import { created, Deleted, deleted, ok } from "../shared/http/reply.ts";
import { endpoint } from "./kit.ts";
import type { Services } from "./services.ts";

const tag = "API tokens";

const listTokens = endpoint({
  name: "listTokens",
  method: "GET",
  route: "auth/tokens",
  summary: "List API tokens",
  description:
    "Your own by name; as an administrator everybody's in the order of their ids, or one user's. Those that ended are not shown, those that expired for 30 days.",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject({ ...userParameter, ...pageParameters }),
  responds: { 200: pageOf(ApiTokenView, "ApiTokenList") },
  handle: async ({ query, actor, services }) =>
    ok(await services.access.apiTokens.list(actor, query.user, pageRequest(query))),
});

const createToken = endpoint({
  name: "createToken",
  method: "POST",
  route: "auth/tokens",
  summary: "Make an API token",
  description:
    "For programs: send it as `Authorization: Bearer`. The answer is the only place that shows it. It ends when it expires, on request, when its user is disabled or deleted or gets a new password from an administrator; and with a new password of one's own or a sign-out everywhere where that is asked for. It counts for no more than its user's role is now. At most 50 a user.",
  tag,
  access: "user",
  tier: "core",
  interactive: true,
  body: NewApiToken,
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
  summary: "End an API token",
  description:
    "One of your own, or as an administrator anybody's. It is refused at its next request, on every instance.",
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
