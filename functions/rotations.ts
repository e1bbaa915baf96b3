import type * as z from "zod";
import type { Repeat } from "../shared/platform/http/endpoint.ts";
import { pageOf, pageRequest, pageView, requireOrder } from "../shared/platform/http/paging.ts";
import { created, ok } from "../shared/platform/http/reply.ts";
import {
  FinishRequest,
  planView,
  RotateRequest,
  RotationParams,
  RotationQuery,
  RotationSummaryView,
  RotationView,
  rotationSummaryView,
  rotationView,
} from "../shared/rotation/api.ts";
import { dryRun } from "../shared/rotation/dry-run.ts";
import { ISSUERS } from "../shared/rotation/issuers/issuers.ts";
import { IssuerList, IssuersQuery, issuerView } from "../shared/rotation/issuers-api.ts";
import { namedPlaces } from "../shared/rotation/named-places.ts";
import { throwAsProblem } from "../shared/rotation/problems.ts";
import { ROTATION_QUEUE, RotationMessage } from "../shared/rotation/rotation.ts";
import { endpoint, poison, queue, timer } from "./declare.ts";
import { confirmationsFor } from "./rotation-confirmations.ts";
import type { Services } from "./services.ts";

/*
 * Endpoints, timers and queue handlers of rotations. A rotation replaces a secret in steps, in the background. A place is a
 * vault secret to which the rotation writes the new value.
 */

const tag = "Rotation";
const base = "api/automation/rotation";
const READABLE_WITHOUT_LICENSE =
  "A rotation that started under a PRO license can be read and ended without one. Otherwise, a PRO license is required (403).";

/**
 * A repeat with the same Idempotency-Key returns the current state of the first request's rotation. The plan of a dry run has no
 * ID, so its repeat plans again.
 */
const repeat: Repeat<Services, unknown, z.input<typeof RotationView>> = {
  idOf: ({ rotationId }) => rotationId,
  answer: async ({ id, services }) => rotationView(await services.rotations.get(id)),
};

const rotate = endpoint({
  name: "rotateSecret",
  method: "POST",
  route: `${base}/rotate`,
  summary: "Rotate a client secret",
  description:
    "Adds a new secret, checks that it signs in, writes it to the key vault secrets that store the old one, keeps both valid during the overlap period, and then removes the old one. Writes to the key vault secrets that a user confirmed or an earlier rotation wrote. If there are none, writes to the one that has stored the value longest. `notUpdated` lists the others. The rotation runs in the background; follow it with GET. Only one rotation of an application can run at a time (409 with the ID of that rotation). With dryRun: true the answer is always a plan, and `needs` lists the missing information. Returns 503 with Retry-After if a vault, Microsoft Graph or Microsoft Entra does not respond clearly; nothing was changed.",
  tag,
  access: "admin",
  tier: "pro",
  body: RotateRequest,
  // Guarded requests need the confirmations that the settings requireStepUp and requireApproval require: here those that name
  // the vault secrets to which the new value is written.
  guarded: ({ body }) => !body.dryRun && body.targets !== undefined,
  example: {
    body: {
      appId: "97471835-12cd-444d-ae9b-dc205f8336bf",
      secretId: "116f5804-91fd-429e-a627-7912a2486d82",
      expiryDays: 180,
      dryRun: true,
    },
  },
  responds: { 200: RotationView, 201: RotationView },
  problems: [
    "notFound",
    "conflict",
    "rotationUnfinished",
    "notRotatable",
    "willBreak",
    "noRoomForSecret",
    "serviceVault",
    "unavailable",
  ],
  repeat,
  handle: async ({ body, actor, caller, services }) => {
    const { dryRun: isDryRun, ...options } = body;
    const request = { ...options, targets: namedPlaces(body.targets) };
    if (isDryRun) {
      const { rotations, clock } = services;
      const subject = { appId: body.appId, oldKeyId: body.secretId };
      const confirmations = await confirmationsFor(body.targets, actor, services);
      return ok(planView(await dryRun(subject, async () => request, confirmations, { rotations, now: clock.now() })));
    }
    const rotation = await services.rotations.begin(request, caller);
    return created(rotationView(rotation), `/${base}/rotations/${rotation.rotationId}`);
  },
});

const getRotation = endpoint({
  name: "getRotation",
  method: "GET",
  route: `${base}/rotations/{rotation_id}`,
  summary: "Get a rotation with its steps",
  description: READABLE_WITHOUT_LICENSE,
  tag,
  access: "user",
  tier: "core",
  params: RotationParams,
  responds: { 200: RotationView },
  problems: ["licenseRequired"],
  handle: async ({ params, services }) => ok(rotationView(await services.rotations.get(params.rotation_id))),
});

/** Members that the declarations of the actions for operators share. */
const rotationAction = {
  tag,
  access: "operator",
  tier: "core",
  params: RotationParams,
  responds: { 200: RotationView },
  problems: ["licenseRequired", "conflict"],
  repeat,
} as const;

const cancelRotation = endpoint({
  name: "cancelRotation",
  method: "POST",
  route: `${base}/rotations/{rotation_id}/cancel`,
  summary: "Cancel a rotation",
  description: `Restores the previous values and removes the new secret. Not possible once the old secret is being removed (409). ${READABLE_WITHOUT_LICENSE}`,
  ...rotationAction,
  handle: async ({ params, caller, services }) =>
    ok(rotationView(await services.rotations.cancel(params.rotation_id, caller))),
});

const retryRotation = endpoint({
  name: "retryRotation",
  method: "POST",
  route: `${base}/rotations/{rotation_id}/retry`,
  summary: "Retry a rotation that needs attention",
  description: READABLE_WITHOUT_LICENSE,
  ...rotationAction,
  handle: async ({ params, caller, services }) =>
    ok(rotationView(await services.rotations.retry(params.rotation_id, caller))),
});

const finishRotation = endpoint({
  name: "finishRotation",
  method: "POST",
  route: `${base}/rotations/{rotation_id}/finish`,
  summary: "End the overlap and remove the old secret",
  description: `Checks that all places and consumers have the new secret, and returns 409 with the reasons if they do not. With force, the old secret is removed anyway. ${READABLE_WITHOUT_LICENSE}`,
  tag,
  access: "admin",
  tier: "core",
  params: RotationParams,
  body: FinishRequest,
  bodyOptional: true,
  example: { body: { force: false } },
  responds: { 200: RotationView },
  problems: ["licenseRequired", "conflict", "notFinishable", "unavailable"],
  repeat,
  handle: async ({ params, body, caller, services }) =>
    ok(rotationView(await services.rotations.finish(params.rotation_id, body.force, caller))),
});

const listRotations = endpoint({
  name: "listRotations",
  method: "GET",
  route: `${base}/history`,
  summary: "List rotations, newest first",
  tag,
  access: "user",
  tier: "pro",
  query: RotationQuery,
  example: { query: { limit: "10" } },
  responds: { 200: pageOf(RotationSummaryView, "RotationList") },
  handle: async ({ query, services }) => {
    requireOrder({ start_date: query.start_date, end_date: query.end_date });
    const subject = query.appId ?? query.assetId ?? query.credentialId ?? query.resourceId;
    const filter = { status: query.status, subject, start: query.start_date, end: query.end_date };
    const page = await services.rotations.history(filter, pageRequest(query));
    return ok(pageView(page, rotationSummaryView));
  },
});

const listIssuers = endpoint({
  name: "listRotationIssuers",
  method: "GET",
  route: `${base}/issuers`,
  summary: "List the kinds of credentials that can be rotated",
  description:
    "Returns each kind of credential whose new value a rotation creates itself, with the permissions that the service's identity needs. Vault secrets of any other kind are rotated with a value that the request brings.",
  tag,
  access: "user",
  tier: "pro",
  query: IssuersQuery,
  responds: { 200: IssuerList },
  handle: async ({ query, services }) => {
    const checked = query.check ? await services.keyPermissions().catch(throwAsProblem) : undefined;
    const items = Object.values(ISSUERS).map((issuer) => issuerView(issuer, checked?.kinds));
    return ok({ items, coverage: checked?.coverage ?? [] });
  },
});

export const endpoints = [
  rotate,
  getRotation,
  cancelRotation,
  retryRotation,
  finishRotation,
  listRotations,
  listIssuers,
];

export const timers = [
  timer({
    name: "wakeRotations",
    schedule: { setting: "ROTATION_SCHEDULE" },
    handle: ({ services }) => services.rotations.continueOverdue(),
  }),
];

export const queues = [
  queue({
    name: "workRotation",
    queue: ROTATION_QUEUE,
    message: RotationMessage,
    handle: ({ rotationId }, { services, requestId }) => services.rotations.work(rotationId, requestId),
  }),
  poison({
    name: "workRotationPoison",
    of: ROTATION_QUEUE,
    message: RotationMessage,
    handle: ({ rotationId }, { services }) => services.rotations.giveUp(rotationId),
  }),
];
