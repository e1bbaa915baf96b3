import { expect, test } from "vitest";
import type { AutomationType } from "../../shared/alerts/automation-events.ts";
import { createKeyRotationNotices } from "../../shared/alerts/key-rotation-notices.ts";
import { keyRotationView } from "../../shared/key-rotation/api.ts";
import type { RunConsumer, RunRecord } from "../../shared/key-rotation/run.ts";
import { DAY_MS } from "../../shared/platform/time.ts";

// Tests of the alert texts about rotations of vault keys.

const NOW = new Date("2026-11-20T10:00:00.000Z");
const daysAgo = (days: number) => new Date(NOW.getTime() - days * DAY_MS).toISOString();

const consumer = (name: string, state: RunConsumer["state"]): RunConsumer => ({
  id: `/subscriptions/one/resourceGroups/one/providers/Microsoft.Storage/storageAccounts/${name}`,
  kind: "storageAccount",
  name,
  state,
});

const runOf = (members: Partial<RunRecord>): RunRecord => ({
  runId: "01M83W0CN6SDG6BGCAGDABN0C3",
  status: "done",
  vaultName: "kv-data",
  vaultUri: "https://kv-data.vault.azure.net",
  vaultId: "/subscriptions/one/resourceGroups/one/providers/Microsoft.KeyVault/vaults/kv-data",
  subscriptionId: "one",
  name: "data",
  requestedBy: "boss",
  requestId: "request",
  createdAt: daysAgo(2),
  endedAt: daysAgo(1),
  oldVersion: "old-version",
  newVersion: "new-version",
  consumers: [],
  dueAt: daysAgo(1),
  failures: 0,
  ...members,
});

/** Returns the events of a rule that was last evaluated two days ago, with their texts. */
async function noticesOf(run: RunRecord, type: AutomationType) {
  const source = createKeyRotationNotices({
    async *since(from) {
      yield [run].filter(({ createdAt }) => Date.parse(createdAt) >= from.getTime());
    },
  });
  const notices: object[] = [];
  for await (const page of source.notices(type, new Date(daysAgo(2))))
    for (const { id, at, notice } of page) notices.push({ id, at, ...(await notice()) });
  return notices;
}

test("a completed rotation is reported with the number of consumers that use the new version", async () => {
  const consumers = [consumer("stone", "followed"), consumer("sttwo", "followed"), consumer("stgone", "unlinked")];
  const run = runOf({ consumers });
  expect(await noticesOf(run, "rotationDone")).toEqual([
    {
      id: `key.${run.runId}.done`,
      at: run.endedAt,
      vaultName: "kv-data",
      title: "kv-data/data",
      urgency: "notice",
      what: "has a new version, and all known consumers use it",
      why: "",
      done: "The version new-version was added. Number of known consumers that use it: 2.",
      safe: "The earlier version old-version is unchanged.",
      next: "No action is needed. Keep the earlier version: backups can need it.",
    },
  ]);
  expect(await noticesOf(run, "rotationFailed")).toEqual([]);
  expect(await noticesOf(run, "rotationDue")).toEqual([]);
  const [, step] = keyRotationView(run).steps;
  expect(step!.text).toBe("2 of 2 known consumers use the new version.");
});

test.each(["notAllSearched", "limit"] as const)(
  "with the incomplete discovery %s, the alert says that further consumers may exist",
  async (incompleteReason) => {
    const [notice] = await noticesOf(runOf({ incompleteReason }), "rotationDone");
    expect(notice).toMatchObject({
      what: "has a new version, and further consumers may still use the earlier one",
      why: "Discovery could not read everything, so further consumers may exist.",
      done: "The version new-version was added. Number of known consumers that use it: 0.",
      next: expect.stringContaining("Do not disable the earlier version."),
    });
  },
);

test("a rotation that is done months after its start is reported", async () => {
  const run = runOf({ createdAt: daysAgo(100), consumers: [consumer("stone", "followed")] });
  expect(await noticesOf(run, "rotationDone")).toHaveLength(1);
});

test("a late rotation is reported with the consumers that were not seen on the new version", async () => {
  const names = ["st1", "st2", "st3", "st4", "st5", "st6"];
  const consumers = [...names.map((name) => consumer(name, "pinned")), consumer("stone", "followed")];
  const run = runOf({ status: "late", endedAt: undefined, lateSince: daysAgo(1), consumers });
  const [notice] = await noticesOf(run, "rotationFailed");
  expect(notice).toMatchObject({
    id: `key.${run.runId}.late`,
    at: run.lateSince,
    urgency: "warning",
    what: "has a new version that not all consumers use in time",
    why: "Not seen on the new version: st1, st2, st3, st4, st5 and 1 more.",
    safe: "The earlier version old-version stays enabled, so its consumers continue to work.",
  });
  const [incomplete] = await noticesOf({ ...run, incompleteReason: "notAllSearched" }, "rotationFailed");
  expect(incomplete).toMatchObject({
    why: "Not seen on the new version: st1, st2, st3, st4, st5 and 1 more. Discovery could not read everything, so further consumers may exist.",
  });
  const [unknown] = await noticesOf({ ...run, consumers: [], incompleteReason: "neverSearched" }, "rotationFailed");
  expect(unknown).toMatchObject({
    why: "No discovery of dependencies has completed, so its consumers are unknown.",
  });
});

test("a failed rotation is reported with its failure and remedy", async () => {
  const failure = { code: "accessDenied", message: "The permission is missing.", remedy: "Deploy the role." };
  const [notice] = await noticesOf(runOf({ status: "failed", newVersion: undefined, failure }), "rotationFailed");
  expect(notice).toMatchObject({
    urgency: "critical",
    what: "was not rotated",
    why: failure.message,
    done: "No consumer was changed.",
    safe: "The version old-version is unchanged.",
    next: failure.remedy,
  });
});

test.each(["rotating", "waiting", "superseded"] as const)("a rotation that is %s is not reported", async (status) => {
  const run = runOf({ status });
  expect([await noticesOf(run, "rotationDone"), await noticesOf(run, "rotationFailed")]).toEqual([[], []]);
});
