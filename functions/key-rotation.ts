import type * as z from "zod";
import {
  KeyParams,
  KeyRotationList,
  KeyRotationParams,
  KeyRotationPolicyRequest,
  KeyRotationPolicyView,
  KeyRotationQuery,
  KeyRotationView,
  keyRotationPlanView,
  keyRotationPolicyView,
  keyRotationView,
  policyOf,
  RotateKeyRequest,
} from "../shared/key-rotation/api.ts";
import { KeyRotationMessage, QUEUE } from "../shared/key-rotation/run.ts";
import type { Repeat } from "../shared/platform/http/endpoint.ts";
import { pageRequest, pageView } from "../shared/platform/http/paging.ts";
import { created, ok } from "../shared/platform/http/reply.ts";
import { endpoint, poison, queue, timer } from "./declare.ts";
import type { Services } from "./services.ts";

/*
 * Endpoints, timers and queue handlers of rotations of vault keys, and of their rotation policies in Key Vault. A consumer is a
 * resource that encrypts its data with the key.
 */

const tag = "Rotation";
const base = "api/automation/keys";
const EXAMPLE_ID = "kv-platform-backup.key.data-encryption";

const repeat: Repeat<Services, unknown, z.input<typeof KeyRotationView>> = {
  idOf: ({ runId }) => runId,
  answer: async ({ id, services }) => keyRotationView(await services.keyRotation.get(id)),
};

const rotateKey = endpoint({
  name: "rotateKey",
  method: "POST",
  route: `${base}/{asset_id}/rotate`,
  summary: "Rotate a key and wait for its consumers",
  description:
    "Adds a version to a key of a key vault, by the key's own rotation policy, and then reads the resources that encrypt data with the key until all of them use the new version. Never disables a version, and never changes a resource: a resource that is pinned to a version is listed with the command that updates it. The rotation runs in the background; follow it with GET /api/automation/keys/rotations/{run_id}. Only one rotation of a key can run at a time (409), but a late one is replaced. With dryRun: true the answer is a plan.",
  tag,
  access: "admin",
  tier: "pro",
  params: KeyParams,
  body: RotateKeyRequest,
  bodyOptional: true,
  example: { params: { asset_id: EXAMPLE_ID }, body: { dryRun: true } },
  responds: { 200: KeyRotationView, 201: KeyRotationView },
  problems: ["notFound", "conflict", "rotationUnfinished", "notRotatable", "serviceVault", "unavailable"],
  repeat,
  handle: async ({ params, body, caller, services }) => {
    if (body.dryRun) return ok(keyRotationPlanView(await services.keyRotation.plan(params.asset_id)));
    const run = await services.keyRotation.begin(params.asset_id, caller);
    return created(keyRotationView(run), `/${base}/rotations/${run.runId}`);
  },
});

const listKeyRotations = endpoint({
  name: "listKeyRotations",
  method: "GET",
  route: `${base}/rotations`,
  summary: "List rotations of keys, newest first",
  tag,
  access: "user",
  tier: "pro",
  query: KeyRotationQuery,
  example: { query: { limit: "10" } },
  responds: { 200: KeyRotationList },
  handle: async ({ query, services }) => {
    const { status, assetId } = query;
    return ok(pageView(await services.keyRotation.list({ status, assetId }, pageRequest(query)), keyRotationView));
  },
});

const getKeyRotation = endpoint({
  name: "getKeyRotation",
  method: "GET",
  route: `${base}/rotations/{run_id}`,
  summary: "Get a rotation of a key with its consumers",
  description: "Works without a PRO license, so that you can follow rotations that started under one.",
  tag,
  access: "user",
  tier: "core",
  params: KeyRotationParams,
  responds: { 200: KeyRotationView },
  problems: ["notFound"],
  handle: async ({ params, services }) => ok(keyRotationView(await services.keyRotation.get(params.run_id))),
});

const getKeyRotationPolicy = endpoint({
  name: "getKeyRotationPolicy",
  method: "GET",
  route: `${base}/{asset_id}/rotation-policy`,
  summary: "Get the rotation policy of a key",
  description: "Reads the policy from Key Vault. A key without a policy has the default policy, which only notifies.",
  tag,
  access: "user",
  tier: "pro",
  params: KeyParams,
  example: { params: { asset_id: EXAMPLE_ID } },
  responds: { 200: KeyRotationPolicyView },
  problems: ["notFound", "notRotatable", "serviceVault", "unavailable"],
  handle: async ({ params, services }) => ok(keyRotationPolicyView(await services.keyRotation.policy(params.asset_id))),
});

const setKeyRotationPolicy = endpoint({
  name: "setKeyRotationPolicy",
  method: "PUT",
  route: `${base}/{asset_id}/rotation-policy`,
  summary: "Replace the rotation policy of a key",
  description:
    "Replaces the policy in Key Vault, by which Key Vault itself adds versions and sets their expiry date. Existing versions keep their dates. Safe to repeat.",
  tag,
  access: "admin",
  tier: "pro",
  params: KeyParams,
  body: KeyRotationPolicyRequest,
  example: {
    params: { asset_id: EXAMPLE_ID },
    body: {
      expiresIn: "P2Y",
      lifetimeActions: [
        { action: "Rotate", timeAfterCreate: "P18M" },
        { action: "Notify", timeBeforeExpiry: "P30D" },
      ],
    },
  },
  responds: { 200: KeyRotationPolicyView },
  problems: ["notFound", "notRotatable", "serviceVault", "unavailable"],
  handle: async ({ params, body, caller, services }) =>
    ok(keyRotationPolicyView(await services.keyRotation.setPolicy(params.asset_id, policyOf(body), caller))),
});

export const endpoints = [rotateKey, listKeyRotations, getKeyRotation, getKeyRotationPolicy, setKeyRotationPolicy];

export const timers = [
  timer({
    name: "continueKeyRotations",
    schedule: { setting: "ROTATION_SCHEDULE" },
    handle: ({ services }) => services.keyRotation.continueDue(),
  }),
];

export const queues = [
  queue({
    name: "workKeyRotation",
    queue: QUEUE,
    message: KeyRotationMessage,
    handle: (message, { services, requestId }) => services.keyRotation.handle(message, { actor: "system", requestId }),
  }),
  poison({
    name: "workKeyRotationPoison",
    of: QUEUE,
    message: KeyRotationMessage,
    handle: (message, { services, requestId }) => services.keyRotation.failed(message, { actor: "system", requestId }),
  }),
];
