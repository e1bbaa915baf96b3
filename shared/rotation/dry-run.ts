import type { Confirmations } from "../platform/http/endpoint.ts";
import { PROBLEMS, Problem } from "../platform/http/problem.ts";
import { draftRotation } from "./draft.ts";
import { isNeed, type Need, needOf, type OnObstacle } from "./obstacles.ts";
import type { RotationRequest } from "./request.ts";
import type { RotationRecord } from "./rotation.ts";
import { NOBODY, type Rotations } from "./rotations.ts";

/** The subject of a dry run: a client secret of an application, a key of a resource, a login of a database, or an asset. */
type PlannedSubject =
  | { appId: string; oldKeyId: string }
  | { issuer: "resourceKey"; resourceId: string; keyKind: string }
  | { loginId: string; resourceId: string; keyKind: string }
  | { assetId: string };

/**
 * Plans a rotation without any change, even if the request lacks something that the rotation needs.
 *
 * @param requestOf - Returns the request of the rotation, and calls `onObstacle` for everything that the request lacks.
 * @param confirmations - The confirmations that the rotation would need.
 * @returns the plan, without steps if the subject can't be rotated at all, and what the rotation needs before it can start.
 * @throws {Problem} if the request is invalid, its subject does not exist, or a cloud service does not respond clearly.
 */
export async function dryRun(
  subject: PlannedSubject,
  requestOf: (onObstacle: OnObstacle) => Promise<RotationRequest>,
  confirmations: Confirmations,
  { rotations, now }: { rotations: Pick<Rotations, "plan">; now: Date },
): Promise<{ record: RotationRecord; needs: Need[] }> {
  const needs: Need[] = [];
  const onObstacle = (obstacle: Problem) => void needs.push(needOf(obstacle));
  let record: RotationRecord;
  try {
    record = await rotations.plan(await requestOf(onObstacle), onObstacle);
  } catch (error) {
    if (!(error instanceof Problem) || !isNeed(error)) throw error;
    onObstacle(error);
    record = planWithoutSteps(subject, now);
  }
  if (confirmations.stepUp) onObstacle(new Problem("stepUpRequired", PROBLEMS.stepUpRequired.detail));
  if (confirmations.approval) onObstacle(new Problem("approvalRequired", PROBLEMS.approvalRequired.detail));
  return { record, needs };
}

/** Returns the plan of a rotation that is not possible. */
function planWithoutSteps(subject: PlannedSubject, now: Date): RotationRecord {
  const plan = {
    ...subject,
    expiryDays: 0,
    overlapDays: 0,
    updateKeyVaults: false,
    knownKeyIds: [],
    publications: [],
    consumers: [],
    notUpdated: [],
    notes: [],
    coverage: [],
  };
  return {
    ...draftRotation(plan, { rotationId: "", caller: NOBODY, automatic: undefined, now }),
    steps: [],
    writeId: "",
  };
}
