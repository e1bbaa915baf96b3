import type { FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { isOver, type RotationStatus } from "../../shared/rotation/rotation.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { expectNoValueStored } from "./invariants.ts";
import { openKeyWorld, type RotatedResource } from "./resource-key-world.ts";
import { BOSS, type SimulatedCrash } from "./world.ts";

/**
 * Tests that a rotation of a storage key survives crashes at any call, lost responses and duplicate deliveries. The history of the
 * simulated cloud decides: every place always stored a valid key, the key in use was never regenerated, and one rotation
 * regenerated one key once. A campaign, the long test run, crashes at each call.
 */

/** Number of calls between crashes. */
const CALLS_BETWEEN_CRASHES = IS_CAMPAIGN ? 1 : 41;
const CRASH_KINDS: SimulatedCrash["crashKind"][] = ["before", "after", "late"];

let keys: Awaited<ReturnType<typeof openKeyWorld>>;
const values: string[] = [];
beforeAll(async () => {
  keys = await openKeyWorld();
});
afterAll(() => keys?.stop());
afterEach(() => {
  keys.control.clearFaults();
  keys.world.messages.length = 0;
  keys.world.afterWrite = async () => {};
});

interface Scenario {
  name: string;
  finalStatus: RotationStatus;
  /** Whether a user cancels the rotation in its overlap period. */
  isCancelled: boolean;
}
const scenarios: Scenario[] = [
  { name: "a rotation", finalStatus: "completed", isCancelled: false },
  { name: "a rotation that a user cancels", finalStatus: "cancelled", isCancelled: true },
];

async function rotateWithCrash({ finalStatus, isCancelled }: Scenario, crash: SimulatedCrash | undefined) {
  const { world } = keys;
  world.messages.length = 0;
  const account = keys.addStorageAccount();
  values.push(keys.currentKey(account.id, "key1"), keys.currentKey(account.id, "key2"));
  world.advanceClock(MINUTE_MS);
  const violations = keys.recordViolations(account);
  const { rotationId } = await world.start().begin(account.request, BOSS);
  let crashes = 0;
  if (isCancelled) {
    const first = await world.run(rotationId, { until: ({ status }) => status === "overlapping" });
    expect(first.row.status).toBe("overlapping");
    await world.start().cancel(rotationId, BOSS);
  }
  const { row, crashCount } = await world.run(rotationId, crash ? { crash } : {});
  crashes += crashCount;
  // A delayed call of a crashed worker may arrive after the end.
  for (const call of world.callsAfterCrash.splice(0)) await call().catch(() => {});
  expect(row.status, JSON.stringify(row.failure ?? row.attention)).toBe(finalStatus);
  await keys.expectInvariants(account, row, violations);
  values.push(keys.currentKey(account.id, "key2"));
  return crashes > 0;
}

test.each(scenarios)(
  "$name ends correctly after a crash at a sampled call",
  { timeout: 7_200_000 },
  async (scenario) => {
    const { world } = keys;
    const callsBefore = world.calls.length;
    await rotateWithCrash(scenario, undefined);
    const calls = world.calls.length - callsBefore;
    let crashCount = 0;
    for (
      let callNumber = 1 + (SEED % Math.min(CALLS_BETWEEN_CRASHES, calls - 1)), round = 0;
      callNumber < calls;
      callNumber += CALLS_BETWEEN_CRASHES, round++
    ) {
      for (const crashKind of IS_CAMPAIGN ? CRASH_KINDS : [CRASH_KINDS[(SEED + round) % 3]!]) {
        const reached = await rotateWithCrash(scenario, { callNumber, crashKind }).catch((error: unknown) => {
          const text = error instanceof Error ? error.message : String(error);
          throw new Error(`SEED=${SEED}, ${crashKind} call ${callNumber}: ${text}`, { cause: error });
        });
        if (reached) crashCount++;
      }
    }
    expect(crashCount).toBeGreaterThan(0);
    if (IS_CAMPAIGN) console.log(`${scenario.name}: ${crashCount} crashes, ${calls} calls of a rotation without one`);
  },
);

/** Crashes at the call that regenerates the key, at the call before it and at the three after it. */
test("a rotation regenerates one key once after a crash at any call around it", { timeout: 7_200_000 }, async () => {
  const { world } = keys;
  const callsBefore = world.calls.length;
  await rotateWithCrash(scenarios[0]!, undefined);
  const calls = world.calls.slice(callsBefore);
  // `begin` makes calls before the first delivery, on another worker.
  const begin = calls.lastIndexOf("audit.append", calls.indexOf("queues.send"));
  const ofWorker = calls.slice(begin + 2);
  const regenerate = ofWorker.indexOf("keys.regenerate") + 1;
  expect(regenerate).toBeGreaterThan(0);
  let crashes = 0;
  for (const callNumber of [regenerate - 1, regenerate, regenerate + 1, regenerate + 2, regenerate + 3]) {
    for (const crashKind of CRASH_KINDS) {
      const reached = await rotateWithCrash(scenarios[0]!, { callNumber, crashKind }).catch((error: unknown) => {
        throw new Error(`${crashKind} call ${callNumber} (${ofWorker[callNumber - 1]}): ${String(error)}`, {
          cause: error,
        });
      });
      if (reached) crashes++;
    }
  }
  expect(crashes).toBe(15);
});

const LOST: [string, string, FaultAction][] = (
  [
    { kind: "loseAnswer" },
    { kind: "cutAnswer" },
    { kind: "failAfter", status: 500 },
    { kind: "reset" },
    { kind: "fail", status: 503 },
    { kind: "throttle", retryAfterSeconds: 1 },
  ] satisfies FaultAction[]
).flatMap((action) => [
  ["arm.regenerate*", action.kind, action] as [string, string, FaultAction],
  ["keyvault.setSecret", action.kind, action] as [string, string, FaultAction],
]);
test.each(LOST)("one rotation regenerates one key if the answer to %s fails (%s)", async (operation, _, action) => {
  const account = keys.addStorageAccount();
  const violations = keys.recordViolations(account);
  const { rotationId } = await keys.world.start().begin(account.request, BOSS);
  keys.control.addFault({ match: { operation }, action, times: 1 });
  const { row } = await keys.world.run(rotationId);
  expect(row.status, JSON.stringify(row.failure ?? row.attention)).toBe("completed");
  await keys.expectInvariants(account, row, violations);
});

test("three workers that get each message at the same time regenerate one key once", async () => {
  const account: RotatedResource = keys.addStorageAccount();
  const violations = keys.recordViolations(account);
  const { world } = keys;
  const { rotationId } = await world.start().begin(account.request, BOSS);
  const workers = [world.start(), world.start(), world.start()];
  let row = await workers[0]!.get(rotationId);
  for (let round = 0; round < 100 && !isOver(row.status); round++) {
    const wait = Date.parse(row.dueAt) - world.clock.now().getTime();
    if (wait > 0) world.advanceClock(wait);
    await Promise.all(workers.map((worker) => worker.work(rotationId, "request-of-worker")));
    row = await workers[0]!.get(rotationId);
  }
  expect(row.status).toBe("completed");
  await keys.expectInvariants(account, row, violations);
});

test("no key is logged, stored, sent or audited", () =>
  expectNoValueStored(keys.world, keys.azurite.connectionString(), values));
