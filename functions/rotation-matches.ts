import { PageQuery, pageOfAll, pageRequest, pageView } from "../shared/platform/http/paging.ts";
import { Deleted, deleted, ok, resource } from "../shared/platform/http/reply.ts";
import { DUE_QUEUE, DueMessage } from "../shared/rotation/automatic.ts";
import { sortKeyOf } from "../shared/rotation/matches.ts";
import {
  AppParams,
  ConfirmedMatch,
  MatchToConfirm,
  MatchToVerify,
  matchView,
  RotationMatchList,
  VerifiedMatch,
  verifiedMatchView,
} from "../shared/rotation/matches-api.ts";
import { Policy, PolicyChange } from "../shared/rotation/policies-api.ts";
import { policyView } from "../shared/rotation/views.ts";
import { endpoint, poison, queue, timer } from "./declare.ts";

/*
 * Endpoints, timers and queue handlers of rotation matches and policies. A match is a vault secret that holds, or may hold, a
 * client secret of an application. A rotation writes the new client secret to the certain matches. A policy says how the client
 * secrets of an application are rotated, and whether automatically.
 */

const tag = "Rotation";

/**
 * Returns whether a policy is the first one, starts to rotate automatically, or names another vault secret to write. Only such a
 * change can send new secret values to a further vault secret, so only it is guarded.
 */
const widensPolicy = (
  change: PolicyChange,
  current: Pick<PolicyChange, "automatic" | "targets"> | undefined,
): boolean =>
  current === undefined ||
  (change.automatic && !current.automatic) ||
  change.targets.some((target) => !current.targets.includes(target.toLowerCase()));

const params = AppParams;

const listRotationMatches = endpoint({
  name: "listRotationMatches",
  method: "GET",
  route: "api/automation/rotation/apps/{app_id}/matches",
  summary: "List vault secrets that may store an application's client secrets",
  description:
    "Compares tags, content types, names and dates in the inventory, without reading values. Excludes vault secrets whose tags or content type name another application. Ordered by confidence, highest first.",
  tag,
  access: "user",
  tier: "pro",
  params,
  query: PageQuery,
  responds: { 200: RotationMatchList },
  handle: async ({ params, query, services }) => {
    const { matches, coverage } = await services.matches.listMatches(params.app_id);
    const page = pageOfAll(matches, pageRequest(query), sortKeyOf);
    return ok({ ...pageView(page, matchView), coverage });
  },
});

const verifyRotationMatch = endpoint({
  name: "verifyRotationMatch",
  method: "POST",
  route: "api/automation/rotation/apps/{app_id}/matches/verify",
  summary: "Verify whether a vault secret stores a client secret of an application",
  description:
    "Reads the value of the vault secret, compares its beginning with the hints of the application's client secrets, and signs in with the value unless every hint rules it out. The value is neither stored nor returned. Limited to 20 calls an hour for each application, because a wrong value causes a failed sign-in in the tenant's sign-in log.",
  tag,
  access: "operator",
  tier: "pro",
  params,
  body: MatchToVerify,
  problems: ["serviceVault"],
  example: { body: { assetId: "kv-payments-prod.secret.payments-api-client-secret" } },
  harmlessRepeat: true,
  responds: { 200: VerifiedMatch },
  handle: async ({ params, body, caller, services }) =>
    ok(verifiedMatchView(await services.matches.verify(params.app_id, body, caller))),
});

const confirmRotationMatch = endpoint({
  name: "confirmRotationMatch",
  method: "POST",
  route: "api/automation/rotation/apps/{app_id}/matches/confirm",
  summary: "Confirm that a vault secret stores a client secret of an application",
  description:
    "Confirms the current version of the secret. Rotations then write the new value to it, including a rotation in its overlap period. A version that is written later needs a new confirmation. With `confirmed: false`, withdraws the confirmation and records that the current version is no copy: its tags and other metadata then no longer keep an old secret from being removed. A value that signs in still does.",
  tag,
  access: "admin",
  tier: "pro",
  params,
  body: MatchToConfirm,
  // Guarded requests need the confirmations that the settings requireStepUp and requireApproval require: here those after which
  // rotations write the new value to the vault secret.
  guarded: ({ body }) => body.confirmed,
  problems: ["serviceVault", "conflict"],
  example: { body: { assetId: "kv-payments-prod.secret.payments-api-client-secret", confirmed: false } },
  responds: { 200: ConfirmedMatch },
  repeat: {
    // An answer without a match has no resource, so its repeat confirms again.
    idOf: ({ match }) => match?.assetId ?? null,
    async answer({ id, params, services }) {
      const { matches } = await services.matches.listMatches(params.app_id);
      return { match: matches.map(matchView).find(({ assetId }) => assetId === id) ?? null };
    },
  },
  handle: async ({ params, body, caller, services }) => {
    const match = await services.matches.confirm(params.app_id, body, caller);
    // An unfinished rotation of the application then writes this vault secret too, or no longer waits for it.
    await services.rotations.placeReviewed(params.app_id);
    return ok({ match: match ? matchView(match) : null });
  },
});

const getRotationPolicy = endpoint({
  name: "getRotationPolicy",
  method: "GET",
  route: "api/automation/rotation/apps/{app_id}/policy",
  summary: "Get the rotation policy of an application",
  description: "Returns 404 if the application has no policy. Its client secrets are then rotated only on request.",
  tag,
  access: "user",
  tier: "pro",
  params,
  responds: { 200: Policy },
  handle: async ({ params, services }) => resource(policyView(await services.policies.get(params.app_id))),
});

const setRotationPolicy = endpoint({
  name: "setRotationPolicy",
  method: "PUT",
  route: "api/automation/rotation/apps/{app_id}/policy",
  summary: "Set the rotation policy of an application",
  description:
    "Replaces the policy; omitted members get their default. `automatic` is rejected (400) if a rotation could never complete: no certain match to write to, secrets without expiry, or a new secret whose lifetime (after the tenant's limit) would not exceed `rotationTriggerDays` plus `overlapDays` plus one day.",
  tag,
  access: "admin",
  tier: "pro",
  params,
  body: PolicyChange,
  // As above. `getMany`, unlike `get`, does not throw if there is no policy yet.
  guarded: async ({ params, body, services }) =>
    widensPolicy(body, (await services.policies.getMany([params.app_id])).values().next().value),
  conditional: true,
  problems: ["serviceVault"],
  example: { body: { automatic: false, overlapDays: 7 } },
  responds: { 200: Policy },
  handle: async ({ params, body, caller, ifMatch, services }) =>
    resource(policyView(await services.policies.set(params.app_id, body, caller, ifMatch))),
});

const deleteRotationPolicy = endpoint({
  name: "deleteRotationPolicy",
  method: "DELETE",
  route: "api/automation/rotation/apps/{app_id}/policy",
  summary: "Delete the rotation policy of an application",
  description: "A rotation that is in progress continues.",
  tag,
  access: "admin",
  tier: "pro",
  params,
  conditional: true,
  responds: { 200: Deleted },
  handle: async ({ params, caller, ifMatch, services }) => {
    await services.policies.remove(params.app_id, caller, ifMatch);
    return deleted();
  },
});

export const endpoints = [
  listRotationMatches,
  verifyRotationMatch,
  confirmRotationMatch,
  getRotationPolicy,
  setRotationPolicy,
  deleteRotationPolicy,
];

export const timers = [
  timer({
    name: "beginDueRotations",
    schedule: { setting: "ROTATION_SCHEDULE" },
    handle: ({ services }) => services.automaticRotation.enqueueDue(),
  }),
  timer({
    name: "indexRotationMatches",
    schedule: "20 */15 * * * *",
    handle: async ({ services }) => {
      if ((await services.licensing.tier()) === "pro") await services.matches.index.update();
    },
  }),
];

export const queues = [
  queue({
    name: "beginDueRotation",
    queue: DUE_QUEUE,
    message: DueMessage,
    handle: ({ appId }, { services, requestId }) => services.automaticRotation.begin(appId, requestId),
  }),
  poison({
    name: "beginDueRotationFailed",
    of: DUE_QUEUE,
    message: DueMessage,
    handle: ({ appId }, { services }) => services.automaticRotation.recordFailedMessage(appId),
  }),
];
