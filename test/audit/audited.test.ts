import { RestError } from "@azure/core-rest-pipeline";
import { expect, test } from "vitest";
import type { AuditEvent } from "../../shared/audit/audit.ts";
import { audited } from "../../shared/audit/audited.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { markResent } from "../../shared/platform/storage/errors.ts";
import { RowChanged, RowExists, RowMissing } from "../../shared/platform/storage/tables.ts";
import { event } from "./support.ts";

/** Runs an effect with that end and returns the audit entries after its intent. */
async function entered(effect: () => Promise<unknown>) {
  const events: AuditEvent[] = [];
  const append = async (one: AuditEvent) => void events.push(one);
  const { outcome: _, ...intent } = event({ details: { mode: "full" } });
  const error = await audited({ append }, intent, effect).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(events.shift()).toEqual({ ...intent, outcome: "intent" });
  return { error, outcomes: events.map(({ outcome, details }) => ({ outcome, details })) };
}

test.each<[string, Error, "refused" | "failure", string]>([
  ["an error that the caller can fix", new Problem("invalidRequest", "Mend it."), "refused", "invalidRequest"],
  ["another writer who was faster", new RowChanged("T", "p", "r"), "refused", "RowChanged"],
  ["a row that is there already", new RowExists("T", "p", "r"), "refused", "RowExists"],
  ["a row that is gone", new RowMissing("T", "p", "r"), "refused", "RowMissing"],
  ["a fault of this service", new Problem("internal", "Try again."), "failure", "internal"],
  ["a service that is not there", new Problem("unavailable", "Try again."), "failure", "unavailable"],
  ["a mistake of this program", new TypeError("x is undefined"), "failure", "TypeError"],
])(
  "an effect that ends with %s is recorded with the reason and the event's own details",
  async (_, error, outcome, reason) => {
    expect(await entered(() => Promise.reject(error))).toEqual({
      error,
      outcomes: [{ outcome, details: { mode: "full", reason } }],
    });
  },
);

test("a definite rejection by storage is a failure", async () => {
  const error = new RestError("Not allowed.", { statusCode: 403 });
  const { outcomes } = await entered(() => Promise.reject(error));
  expect(outcomes).toEqual([{ outcome: "failure", details: { mode: "full", reason: "RestError" } }]);
});

const refusedAgain = new RestError("It is there already.", { statusCode: 409 });
markResent(refusedAgain);
test.each([
  ["gives no answer", new RestError("The connection was lost.", { code: "ECONNRESET" })],
  ["is busy", new RestError("Later.", { statusCode: 503 })],
  ["rejects a write that an earlier attempt may have applied", refusedAgain],
])("if storage %s during an effect, only the intent is recorded", async (_, error) => {
  expect(await entered(() => Promise.reject(error))).toEqual({ error, outcomes: [] });
});

test("if a cloud service left the effect open, only the intent is recorded", async () => {
  const unclear = new CloudFailure("unreachable", "No answer.", { remedy: "Look." });
  expect(unclear.unclear).toBe(true);
  expect(await entered(() => Promise.reject(unclear))).toEqual({ error: unclear, outcomes: [] });
});

test("without its intent the effect does not run", async () => {
  let happened = false;
  const append = () => Promise.reject(new Error("the log is out of reach"));
  const effect = async () => {
    happened = true;
  };
  await expect(audited({ append }, event(), effect)).rejects.toThrow("the log is out of reach");
  expect(happened).toBe(false);
});
