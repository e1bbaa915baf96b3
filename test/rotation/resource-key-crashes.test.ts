import type { FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { unknownConsumers } from "../../shared/rotation/consumer.ts";
import { KEY_KINDS, type KeyKind } from "../../shared/rotation/resource-keys/kinds.ts";
import { isOver, type RotationStatus } from "../../shared/rotation/rotation.ts";
import { IS_CAMPAIGN, SEED, sampled } from "../support/sampling.ts";
import { SimulatedConsumers } from "./consumers.ts";
import { expectNoValueStored } from "./invariants.ts";
import { openKeyWorld } from "./resource-key-world.ts";
import { BOSS, type SimulatedCrash } from "./world.ts";

/**
 * Tests that a rotation of a key of each kind survives crashes at any call, lost responses and duplicate deliveries. The history of
 * the simulated cloud decides: every place and every consumer always had a valid key, the key in use was never regenerated, and one
 * rotation regenerated one key once. The campaign `keys`, a long test run, crashes at each call of each kind.
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
  keys.world.consumers = unknownConsumers();
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

/** All kinds whose keys are rotated. A normal run uses some of them besides storage accounts. */
const KINDS = KEY_KINDS.filter(({ reportOnly }) => reportOnly === undefined);
const OTHER_KINDS = KINDS.filter(({ name }) => name !== "storage");
/** Test cases with the names of kinds, for `test.each`. */
const titled = (kinds: readonly KeyKind[]) => kinds.map((kind) => [kind.title, kind] as const);

/** Adds a resource with a consumer of the first place, and watches both. */
function addWatched(kind: string) {
  const resource = keys.addResource(kind);
  const consumers = new SimulatedConsumers(keys.world);
  consumers.add(`app-${resource.places[0]!.secretName}`, resource.places[0]!.secretName, "action");
  keys.world.consumers = consumers;
  values.push(...resource.kind.pairs[0]!.map((name) => keys.currentKey(resource.id, name)));
  return { resource, violations: keys.recordViolations(resource, consumers) };
}

/** Returns whether the worker crashed, and the calls that the workers made, in order. */
async function rotateWithCrash(
  { finalStatus, isCancelled }: Scenario,
  crash: SimulatedCrash | undefined,
  kind = "storage",
) {
  const { world } = keys;
  world.messages.length = 0;
  world.advanceClock(MINUTE_MS);
  const { resource, violations } = addWatched(kind);
  const { rotationId } = await world.start().begin(resource.request, BOSS);
  if (isCancelled) {
    const first = await world.run(rotationId, { until: ({ status }) => status === "overlapping" });
    expect(first.row.status).toBe("overlapping");
    await world.start().cancel(rotationId, BOSS);
  }
  const callsBefore = world.calls.length;
  const { row, crashCount } = await world.run(rotationId, crash ? { crash } : {});
  // Only the test reads the rotation with `tables.get`, between two deliveries.
  const calls = world.calls.slice(callsBefore).filter((call) => call !== "tables.get");
  // A delayed call of a crashed worker may arrive after the end.
  for (const call of world.callsAfterCrash.splice(0)) await call().catch(() => {});
  expect(row.status, JSON.stringify(row.failure ?? row.attention)).toBe(finalStatus);
  await keys.expectInvariants(resource, row, violations);
  values.push(keys.currentKey(resource.id, resource.kind.pairs[0]![1]));
  return { reached: crashCount > 0, calls };
}

/** Rotates with a crash. An error names the crash, so that the run can be repeated. */
const crashAt = async (scenario: Scenario, crash: SimulatedCrash, kind?: string): Promise<boolean> => {
  try {
    return (await rotateWithCrash(scenario, crash, kind)).reached;
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    throw new Error(`SEED=${SEED}, ${crash.crashKind} call ${crash.callNumber}: ${text}`, { cause: error });
  }
};

/** Returns the calls of the worker of a rotation without a crash, in order. */
const callsOfWorker = async (kind: string, scenario = scenarios[0]!): Promise<string[]> =>
  (await rotateWithCrash(scenario, undefined, kind)).calls;

test.each(scenarios)(
  "$name ends correctly after a crash at a sampled call",
  { timeout: 7_200_000 },
  async (scenario) => {
    const calls = (await callsOfWorker("storage", scenario)).length;
    let crashCount = 0;
    for (
      let callNumber = 1 + (SEED % Math.min(CALLS_BETWEEN_CRASHES, calls - 1)), round = 0;
      callNumber < calls;
      callNumber += CALLS_BETWEEN_CRASHES, round++
    ) {
      for (const crashKind of IS_CAMPAIGN ? CRASH_KINDS : [CRASH_KINDS[(SEED + round) % 3]!]) {
        const reached = await crashAt(scenario, { callNumber, crashKind });
        if (reached) crashCount++;
      }
    }
    expect(crashCount).toBeGreaterThan(0);
    if (IS_CAMPAIGN) console.log(`${scenario.name}: ${crashCount} crashes, ${calls} calls of a rotation without one`);
  },
);

/** Crashes at every call to the keys of the resource and to the service's own vault, where the one request is decided. */
test("a rotation regenerates one key once after a crash at each call about keys", { timeout: 7_200_000 }, async () => {
  const regenerate = (await callsOfWorker("storage")).indexOf("keys.regenerate") + 1;
  expect(regenerate).toBeGreaterThan(0);
  let crashes = 0;
  for (const callNumber of [regenerate - 1, regenerate, regenerate + 1, regenerate + 2, regenerate + 3])
    for (const crashKind of CRASH_KINDS) if (await crashAt(scenarios[0]!, { callNumber, crashKind })) crashes++;
  expect(crashes).toBe(15);
});

/** Both writes add a version with the same value. The version of the delayed write is then the current one. */
test.each(scenarios)(
  "$name ends correctly if the write of a place takes effect after another worker repeated it",
  { timeout: 600_000 },
  async (scenario) => {
    const calls = await callsOfWorker("storage", scenario);
    const writes = calls.flatMap((call, index) => (call === "vault.write" ? [index + 1] : []));
    expect(writes).toHaveLength(2);
    for (const callNumber of writes) expect(await crashAt(scenario, { callNumber, crashKind: "late" })).toBe(true);
  },
);

test.each(titled(sampled(OTHER_KINDS, 4)))(
  "a rotation of a key of a %s ends correctly after a crash at a sampled call",
  { timeout: 14_400_000 },
  async (_, kind) => {
    const calls = await callsOfWorker(kind.name);
    const last = calls.lastIndexOf(kind.proof.by === "list" ? "keys.keys" : "keys.test") + 1;
    const regenerate = calls.indexOf("keys.regenerate") + 1;
    expect(Math.min(regenerate, last)).toBeGreaterThan(0);
    let crashes = 0;
    if (IS_CAMPAIGN) {
      for (let callNumber = 1; callNumber <= calls.length; callNumber++)
        for (const crashKind of CRASH_KINDS)
          for (const scenario of scenarios)
            if (await crashAt(scenario, { callNumber, crashKind }, kind.name)) crashes++;
      console.log(`${kind.title}: ${crashes} crashes, ${calls.length} calls of a rotation without one`);
    } else {
      const crashKind = CRASH_KINDS[(SEED + KINDS.indexOf(kind)) % CRASH_KINDS.length]!;
      for (const callNumber of [regenerate, last])
        if (await crashAt(scenarios[0]!, { callNumber, crashKind }, kind.name)) crashes++;
    }
    expect(crashes).toBeGreaterThan(1);
  },
);

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
const LOST_KINDS = IS_CAMPAIGN ? KINDS : KINDS.filter(({ name }) => name === "storage");
test.each(
  LOST_KINDS.flatMap(({ name }) => LOST.map(([operation, fault, action]) => [name, operation, fault, action] as const)),
)("%s: one rotation regenerates one key if the answer to %s fails (%s)", async (kind, operation, _, action) => {
  const { resource, violations } = addWatched(kind);
  const { rotationId } = await keys.world.start().begin(resource.request, BOSS);
  keys.control.addFault({ match: { operation }, action, times: 1 });
  const { row } = await keys.world.run(rotationId);
  expect(row.status, JSON.stringify(row.failure ?? row.attention)).toBe("completed");
  await keys.expectInvariants(resource, row, violations);
});

test.each(titled(IS_CAMPAIGN ? KINDS : [KINDS[0]!, ...sampled(OTHER_KINDS, 1)]))(
  "%s: three workers that get each message at the same time regenerate one key once",
  async (_, kind) => {
    const { resource, violations } = addWatched(kind.name);
    const { world } = keys;
    const { rotationId } = await world.start().begin(resource.request, BOSS);
    const workers = [world.start(), world.start(), world.start()];
    let row = await workers[0]!.get(rotationId);
    for (let round = 0; round < 100 && !isOver(row.status); round++) {
      const wait = Date.parse(row.dueAt) - world.clock.now().getTime();
      if (wait > 0) world.advanceClock(wait);
      await Promise.all(workers.map((worker) => worker.work(rotationId, "request-of-worker")));
      row = await workers[0]!.get(rotationId);
    }
    expect(row.status).toBe("completed");
    await keys.expectInvariants(resource, row, violations);
  },
);

test("no key is logged, stored, sent or audited", () =>
  expectNoValueStored(keys.world, keys.azurite.connectionString(), values));
