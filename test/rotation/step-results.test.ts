import { expect, test } from "vitest";
import type { RotationRecord, Step } from "../../shared/rotation/rotation.ts";
import { resultOf } from "../../shared/rotation/step-results.ts";

const attempt = { displayName: "rotation-1", askedAt: "2026-01-01T00:00:00.000Z" };
const step = (name: Step["name"]): Step => ({ name, status: "done", attempts: 1 });
const recordWith = (changes: Partial<RotationRecord>) =>
  ({ publications: [], attempts: [], notes: [], ...changes }) as unknown as RotationRecord;

test("a rollback that keeps the new secret does not claim to have deleted it", () => {
  const result = (state: "left" | "removed") =>
    resultOf(recordWith({ attempts: [{ ...attempt, state, keyId: "k" }] }), step("removeNew"));
  expect(result("removed")).toBe("Deleted the new client secret in Entra.");
  expect(result("left")).toContain("Kept a new client secret");
  const kept = recordWith({ attempts: [{ ...attempt, state: "left", keyId: "k", isValueKept: true }] });
  expect(resultOf(kept, step("cleanUp"))).toContain("Kept the copy");
});

test("if a user ends the overlap period, the result claims only checks of consumers that can be checked", () => {
  const finish = { by: "ann", at: "2026-01-01T00:00:00.000Z", force: false };
  expect(resultOf(recordWith({ finish }), step("overlap"))).toBe(
    "ann ended it. The checks of places and consumers found no use of the old value.",
  );
  expect(resultOf(recordWith({ finish: { ...finish, force: true } }), step("overlap"))).toContain("without a check");
});
