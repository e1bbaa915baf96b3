import { assetId } from "../inventory/asset.ts";
import { DAY_MS } from "../platform/time.ts";
import { issuerOf } from "./issuers/issuers.ts";
import type { OnObstacle } from "./obstacles.ts";
import { planConsumers } from "./plan-consumers.ts";
import { type PlanDependencies, planPublication } from "./plan-places.ts";
import type {
  PlanRequest,
  PlanWithoutConsumers,
  RotationPlan,
  RotationRequest,
  VaultSecretRequest,
} from "./request.ts";

/**
 * Plans a rotation without any change. Finding the targets (places that may store the old value) can read values of vault
 * secrets, and `currentVersion` reads one if two versions have the same date.
 *
 * @param onObstacle - Called for each reason why the rotation can't start as requested.
 * @throws {Problem} if no plan is possible.
 * @throws {CloudFailure} if the directory, a vault or a consumer can't be read.
 */
export async function planRotation(
  deps: PlanDependencies,
  request: PlanRequest<RotationRequest>,
  now: Date,
  onObstacle: OnObstacle,
): Promise<RotationPlan> {
  const plan =
    "secret" in request
      ? await planVaultSecret(deps, request, now, onObstacle)
      : await issuerOf(request).plan(deps, request, now, onObstacle);
  return { ...plan, ...(await planConsumers(deps.consumers, plan, request, onObstacle)) };
}

async function planVaultSecret(
  deps: PlanDependencies,
  { secret, expiryDays, overlapDays, reason, skipVerification, restartApps }: PlanRequest<VaultSecretRequest>,
  now: Date,
  onObstacle: OnObstacle,
): Promise<PlanWithoutConsumers> {
  const { vaultName, secretName: name } = secret;
  return {
    assetId: assetId({ vaultName, type: "secret", name }),
    expiryDays,
    newExpiresAt: new Date(now.getTime() + expiryDays * DAY_MS).toISOString(),
    overlapDays,
    updateKeyVaults: true,
    reason,
    knownKeyIds: [],
    publications: [await planPublication(deps, secret, { kind: "secret" }, onObstacle)],
    skipVerification,
    restartApps,
    notUpdated: [],
    notes: [],
  };
}
