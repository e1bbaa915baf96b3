import { created, ok } from "../shared/platform/http/reply.ts";
import { planView, RotationView, rotationView } from "../shared/rotation/api.ts";
import { RotateAssetParams, RotateAssetRequest } from "../shared/rotation/asset-api.ts";
import { dryRun } from "../shared/rotation/dry-run.ts";
import { endpoint } from "./declare.ts";
import { confirmationsFor } from "./rotation-confirmations.ts";

/*
 * The endpoint that starts a full-stack rotation: it replaces the value of a vault secret and then updates or restarts the
 * resources that use it (the consumers).
 */

const rotateAsset = endpoint({
  name: "rotateAsset",
  method: "POST",
  route: "api/assets/dependencies/rotate/{secret_id}",
  summary: "Rotate a secret and refresh its consumers",
  description:
    "Send newValue, or generate with issuerAccepts: true, unless the secret is a client secret that Entra can create: the asset of an application's client secret, or a vault secret that is a certain match of one. A vault secret that stores a key of an Azure resource needs no newValue either: the resource's other key is regenerated. With dryRun: true the answer is always a plan, and `needs` lists what to send besides. Writes a new value, refreshes the consumers one after the other, and verifies that each has the new value. If one fails, the rotation is rolled back. The rotation runs in the background; follow it with GET /api/automation/rotation/rotations/{rotation_id}.",
  tag: "Dependencies",
  access: "admin",
  tier: "pro",
  params: RotateAssetParams,
  body: RotateAssetRequest,
  bodyOptional: true,
  // Guarded requests need the confirmations that the settings requireStepUp and requireApproval require: here those that name
  // the vault secrets to which the new value is written.
  guarded: ({ body }) => !body.dryRun && body.targets !== undefined,
  example: {
    params: { secret_id: "kv-payments-prod.secret.sql-password" },
    body: { generate: { length: 32, alphabet: "alphanumeric" }, issuerAccepts: true, dryRun: true },
  },
  responds: { 200: RotationView, 201: RotationView },
  problems: [
    "notFound",
    "valueRequired",
    "conflict",
    "rotationUnfinished",
    "notRotatable",
    "willBreak",
    "noRoomForSecret",
    "serviceVault",
    "unavailable",
  ],
  repeat: {
    idOf: ({ rotationId }) => rotationId,
    answer: async ({ id, services }) => rotationView(await services.rotations.get(id)),
  },
  handle: async ({ params, body, actor, caller, services }) => {
    if (body.dryRun) {
      const plan = await dryRun(
        { assetId: params.secret_id },
        (onObstacle) => services.assetRotation.requestFor(params.secret_id, body, onObstacle),
        await confirmationsFor(body.targets, actor, services),
        { rotations: services.rotations, now: services.clock.now() },
      );
      return ok(planView(plan));
    }
    const request = await services.assetRotation.requestFor(params.secret_id, body);
    const rotation = await services.rotations.begin(request, caller);
    return created(rotationView(rotation), `/api/automation/rotation/rotations/${rotation.rotationId}`);
  },
});

export const endpoints = [rotateAsset];
