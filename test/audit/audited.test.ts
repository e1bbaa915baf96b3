import { RestError } from "@azure/core-rest-pipeline";
import { expect, test } from "vitest";
import type { AuditEvent } from "../../shared/audit/audit.ts";
import { audited } from "../../shared/audit/audited.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { markResent } from "../../shared/platform/storage/errors.ts";
import { RowChanged, RowExists, RowMissing } from "../../shared/platform/storage/tables.ts";
import { event } from "./support.ts";

/**
 * Tests of `audited`, which runs an effect (a change in storage or in the cloud) between two audit entries: the intent before
 * it and the outcome after it.
 */

/** Runs an effect and returns its error, and the audit entries that follow the intent. */
async function runAudited(effect: () => Promise<unknown>) {
  const events: AuditEvent[] = [];
  const append = async (event: AuditEvent) => void events.push(event);
  const { outcome: _, ...intent } = event({ details: { mode: "full" } });
  const error = await audited({ append }, intent, effect).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(events.shift()).toEqual({ ...intent, outcome: "intent" });
  return { error, outcomes: events.map(({ outcome, details }) => ({ outcome, details })) };
}

test.each<[string, Error, "refused" | "failure", string]>([
  ["an error that the caller can fix", new Problem("invalidRequest", "Fix it."), "refused", "invalidRequest"],
  ["a concurrent change of the row", new RowChanged("T", "p", "r"), "refused", "RowChanged"],
  ["a row that already exists", new RowExists("T", "p", "r"), "refused", "RowExists"],
  ["a missing row", new RowMissing("T", "p", "r"), "refused", "RowMissing"],
  ["an internal error", new Problem("internal", "Try again."), "failure", "internal"],
  ["an unavailable service", new Problem("unavailable", "Try again."), "failure", "unavailable"],
  ["a programming error", new TypeError("x is undefined"), "failure", "TypeError"],
])(
  "the outcome of an effect that throws %s contains the reason and the details of the event",
  async (_, error, outcome, reason) => {
    expect(await runAudited(() => Promise.reject(error))).toEqual({
      error,
      outcomes: [{ outcome, details: { mode: "full", reason } }],
    });
  },
);

test("a definite rejection by storage is recorded as failure", async () => {
  const error = new RestError("Not allowed.", { statusCode: 403 });
  const { outcomes } = await runAudited(() => Promise.reject(error));
  expect(outcomes).toEqual([{ outcome: "failure", details: { mode: "full", reason: "RestError" } }]);
});

/** A conflict in response to a second attempt. The first attempt may have written the row. */
const conflictAfterRetry = new RestError("It already exists.", { statusCode: 409 });
markResent(conflictAfterRetry);
test.each([
  ["does not answer", new RestError("The connection was lost.", { code: "ECONNRESET" })],
  ["is busy", new RestError("Later.", { statusCode: 503 })],
  ["rejects a write that an earlier attempt may have applied", conflictAfterRetry],
])("if storage %s during an effect, only the intent is recorded", async (_, error) => {
  expect(await runAudited(() => Promise.reject(error))).toEqual({ error, outcomes: [] });
});

test("if it is unknown whether a cloud service applied the effect, only the intent is recorded", async () => {
  const unclear = new CloudFailure("unreachable", "No answer.", { remedy: "Check." });
  expect(unclear.unclear).toBe(true);
  expect(await runAudited(() => Promise.reject(unclear))).toEqual({ error: unclear, outcomes: [] });
});

test("the effect does not run if its intent can't be recorded", async () => {
  let effectRan = false;
  const append = () => Promise.reject(new Error("the log is unreachable"));
  const effect = async () => {
    effectRan = true;
  };
  await expect(audited({ append }, event(), effect)).rejects.toThrow("the log is unreachable");
  expect(effectRan).toBe(false);
});
