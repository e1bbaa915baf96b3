import { expect, test } from "vitest";
import { repeatOnConflict } from "../../shared/platform/storage/conflict.ts";
import { RowChanged } from "../../shared/platform/storage/errors.ts";

/**
 * Returns work that throws an error in its first attempts and then returns the number of the attempt, and a list of its
 * attempts.
 */
function failingWork(times: number, error: Error) {
  const attempts: number[] = [];
  const work = async (attempt: number) => {
    attempts.push(attempt);
    if (attempt <= times) throw error;
    return attempt;
  };
  return { attempts, work };
}
const conflict = new RowChanged("Things", "p", "r");

test("work that conflicts with another writer is repeated up to five times, then the conflict is thrown", async () => {
  expect(await repeatOnConflict(failingWork(4, conflict).work)).toBe(5);
  const { attempts, work } = failingWork(9, conflict);
  await expect(repeatOnConflict(work)).rejects.toBe(conflict);
  expect(attempts).toEqual([1, 2, 3, 4, 5]);
  await expect(repeatOnConflict(failingWork(2, conflict).work, 2)).rejects.toBe(conflict);
});

test("other errors are thrown at once", async () => {
  const broken = new Error("broken");
  const { attempts, work } = failingWork(1, broken);
  await expect(repeatOnConflict(work)).rejects.toBe(broken);
  expect(attempts).toEqual([1]);
});
