import type { Problem, ProblemCode } from "../platform/http/problem.ts";

/**
 * Obstacles: why a rotation can't start as requested, such as a missing value. A rotation that starts throws the first one as
 * its problem. A dry run collects all of them, and answers with the plan and with what is still needed.
 */

/** Called with each obstacle that a plan finds. If it returns, the plan continues without what is missing. */
export type OnObstacle = (obstacle: Problem) => void;

/** The handler of rotations that start: the first obstacle rejects the request. */
export const throwObstacle: OnObstacle = (obstacle) => {
  throw obstacle;
};

/** Codes of thrown problems that a dry run answers as needs. Any other problem rejects the dry run too. */
const NEED_CODES: ReadonlySet<ProblemCode> = new Set<ProblemCode>([
  "conflict",
  "noRoomForSecret",
  "notRotatable",
  "rotationUnfinished",
  "serviceVault",
  "valueRequired",
  "willBreak",
]);
/** Returns whether a dry run answers a problem, after which no plan is possible, as a need. */
export const isNeed = ({ code }: Problem): boolean => NEED_CODES.has(code);

/**
 * Alternative changes of the request's body, each of which removes an obstacle. Null stands for a value that only the caller
 * knows.
 */
type Remedies = Record<string, unknown>[];

/** Something that a rotation still needs. */
export interface Need {
  /** Code of the problem with which the rotation would be rejected. */
  code: ProblemCode;
  message: string;
  /** Members to add to the body. One of the alternatives is enough. */
  send: Remedies;
}

/** Returns the extra members of an obstacle's problem document. */
export const remedies = (...send: Remedies): { members: { send: Remedies } } => ({ members: { send } });

/** Returns the need that an obstacle stands for. */
export const needOf = ({ code, message, members }: Problem): Need => ({
  code,
  message,
  send: (members.send as Remedies | undefined) ?? [],
});
