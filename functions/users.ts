import * as z from "zod";
import { AccountView, NewUser, RefusedIdentity, UserChange } from "../shared/access/api.ts";
import { requireInteractive } from "../shared/platform/http/admission.ts";
import type { Endpoint } from "../shared/platform/http/endpoint.ts";
import { PageQuery, pageOf, pageRequest } from "../shared/platform/http/paging.ts";
import { created, Deleted, deleted, ok, resource } from "../shared/platform/http/reply.ts";
import { endpoint } from "./declare.ts";
import type { Services } from "./services.ts";

// Endpoints for administrators: users, and the SSO identities that deleted users leave blocked. `guarded` returns whether a
// request needs the confirmations that the settings requireStepUp and requireApproval require. `conditional`: `If-Match` is
// supported.

const tag = "Users";
const params = z.object({ user_id: z.string() });

const listUsers = endpoint({
  name: "listUsers",
  method: "GET",
  route: "auth/users",
  summary: "List users",
  description: "Returns users ordered by name.",
  tag,
  access: "admin",
  tier: "pro",
  query: PageQuery,
  responds: { 200: pageOf(AccountView, "UserAccountList") },
  handle: async ({ query, services }) => ok(await services.access.users.list(pageRequest(query))),
});

const getUser = endpoint({
  name: "getUser",
  method: "GET",
  route: "auth/users/{user_id}",
  summary: "Get a user",
  tag,
  access: "admin",
  tier: "pro",
  params,
  responds: { 200: AccountView },
  problems: ["notFound"],
  handle: async ({ params, services }) => resource(await services.access.users.get(params.user_id)),
});

const createUser = endpoint({
  name: "createUser",
  method: "POST",
  route: "auth/users",
  summary: "Create a user",
  description: "Names that start with `sso-`, `system` and `anonymous` are reserved.",
  tag,
  access: "admin",
  tier: "pro",
  body: NewUser,
  guarded: ({ body }) => body.role === "admin",
  example: {
    body: {
      username: "maria.lopez",
      email: "maria.lopez@acme.example",
      password: "seven green bicycles uphill",
      role: "user",
    },
  },
  responds: { 201: AccountView },
  problems: ["alreadyExists"],
  handle: async ({ body, caller, services }) => {
    const user = await services.access.users.create(body, caller);
    return created(user, `/auth/users/${encodeURIComponent(user.id)}`);
  },
});

const changeUser = endpoint({
  name: "changeUser",
  method: "PUT",
  route: "auth/users/{user_id}",
  summary: "Update a user",
  description:
    "Accepts any subset of the fields; other fields stay unchanged. Changing the role, password or identity of a user, or disabling the user, ends all tokens and sessions on every instance at once; a new password and disabling also revoke the API tokens. Setting a password is a reset and can't be done with an API token or an Entra token. Returns 409 for the last active administrator with a password, for your own password, for an identity that another user has, and for the role of an SSO user while roleMapping sets it.",
  tag,
  access: "admin",
  tier: "pro",
  conditional: true,
  params,
  body: UserChange,
  guarded: async ({ params, body, services }) => {
    const { administrators } = services.access;
    const { role, state, password, sso, email } = body;
    const isSensitive = [role, state, password, sso, email].some((member) => member !== undefined);
    const isGuarded = role === "admin" || (isSensitive && (await administrators.isAdministrator(params.user_id)));
    // An approval counts only while the account is unchanged (`boundTo`). Otherwise, the requester could give the account to
    // another person, or delete and create it again, after the approval.
    return isGuarded && { boundTo: await administrators.accountOf(params.user_id) };
  },
  example: { body: { email: "maria.lopez@acme.example" } },
  responds: { 200: AccountView },
  problems: ["notFound", "conflict", "interactiveOnly"],
  handle: async ({ params, body, actor, caller, ifMatch, services }) => {
    if (body.password !== undefined) requireInteractive(actor);
    return resource(await services.access.users.update(params.user_id, body, ifMatch, caller));
  },
});

const deleteUser = endpoint({
  name: "deleteUser",
  method: "DELETE",
  route: "auth/users/{user_id}",
  summary: "Delete a user",
  description:
    "Ends all tokens and sessions on every instance at once. Returns 409 for the last active administrator with a password. If the user signed in by SSO, the identity is blocked: GET /auth/sso/refused lists blocked identities, and DELETE /auth/sso/refused/{identity_id} unblocks one.",
  tag,
  access: "admin",
  tier: "pro",
  conditional: true,
  params,
  guarded: ({ params, services }) => services.access.administrators.isAdministrator(params.user_id),
  // An unknown user, so that the example deletes no one's account.
  example: { params: { user_id: "no.such.user" } },
  responds: { 200: Deleted },
  problems: ["notFound", "conflict"],
  handle: async ({ params, caller, ifMatch, services }) => {
    await services.access.users.remove(params.user_id, ifMatch, caller);
    return deleted();
  },
});

const unlockUser = endpoint({
  name: "unlockUser",
  method: "POST",
  route: "auth/users/{user_id}/unlock",
  summary: "Unlock a user",
  description: "Clears the failed sign-ins of the user from every address.",
  tag,
  access: "admin",
  tier: "pro",
  params,
  responds: { 200: AccountView },
  problems: ["notFound"],
  handle: async ({ params, caller, services }) => ok(await services.access.users.unlock(params.user_id, caller)),
});

const listRefusedIdentities = endpoint({
  name: "listRefusedIdentities",
  method: "GET",
  route: "auth/sso/refused",
  summary: "List identities that SSO blocks",
  description: "Returns identities of deleted users, ordered by ID.",
  tag,
  access: "admin",
  tier: "pro",
  query: PageQuery,
  responds: { 200: pageOf(RefusedIdentity, "RefusedIdentityList") },
  handle: async ({ query, services }) => ok(await services.access.identities.refusals(pageRequest(query))),
});

const allowIdentity = endpoint({
  name: "allowIdentity",
  method: "DELETE",
  route: "auth/sso/refused/{identity_id}",
  summary: "Unblock an identity",
  description:
    "The identity is then treated as unknown: it can be linked to a user, or gets a new user if autoCreateUsers is true.",
  tag,
  access: "admin",
  tier: "pro",
  params: z.object({ identity_id: z.string().max(64) }),
  // With role mapping or a default role, the person can get a new user, also as an administrator.
  guarded: () => true,
  responds: { 200: Deleted },
  problems: ["notFound"],
  handle: async ({ params, caller, services }) => {
    await services.access.identities.allow(params.identity_id, caller);
    return deleted();
  },
});

export const endpoints: Endpoint<Services>[] = [
  listUsers,
  getUser,
  createUser,
  changeUser,
  deleteUser,
  unlockUser,
  listRefusedIdentities,
  allowIdentity,
];
