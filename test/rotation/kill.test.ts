import { secretValueOf } from "simulated-cloud/company/applications.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import type { RotationStatus } from "../../shared/rotation/rotation.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { SimulatedConsumers } from "./consumers.ts";
import { expectNoValueStored, expectRotationInvariants } from "./invariants.ts";
import { BOSS, type SimulatedCrash, VAULT, World } from "./world.ts";

// Tests that a rotation ends correctly after its worker crashed at any call to storage or the cloud. A campaign, the long test run,
// crashes at each call.

/** Number of calls to storage and the cloud between crashes. */
const CALLS_BETWEEN_CRASHES = IS_CAMPAIGN ? 1 : 97;
/**
 * The call at which a worker crashes is never carried out, is carried out, or is carried out after another worker continued.
 */
const CRASH_KINDS: SimulatedCrash["crashKind"][] = ["before", "after", "late"];

let world: World;
let azurite: TestStorage;
const values: string[] = [];

beforeAll(async () => {
  azurite = await openStorage();
  const subscriptions = [{ id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }] }];
  const { cloud, config } = await startTestCloud({ company: { subscriptions } });
  world = new World(cloud, config, azurite.connectionString());
});
afterAll(async () => {
  await world.cloud.stop();
  await azurite.stop();
});

/** A rotation, the delays of the simulated Microsoft Entra directory, and the status with which the rotation must end. */
interface Scenario {
  name: string;
  /** Adds consumers of the application's first vault secret, which the rotation updates. */
  addConsumers(consumers: SimulatedConsumers, secretName: string): void;
  finalStatus: RotationStatus;
  directory: { readLagSeconds: number; writesLag: boolean; signInDelaySeconds: number; flappingSeconds: number };
}

const NO_DELAYS = { readLagSeconds: 0, writesLag: false, signInDelaySeconds: 0, flappingSeconds: 0 };
const DELAYED_DIRECTORY = { readLagSeconds: 300, writesLag: true, signInDelaySeconds: 60, flappingSeconds: 240 };

const scenarios: Scenario[] = [
  { name: "a rotation", addConsumers: () => {}, finalStatus: "completed", directory: NO_DELAYS },
  {
    name: "a rotation while the directory lags and new secrets flap",
    addConsumers: () => {},
    finalStatus: "completed",
    directory: DELAYED_DIRECTORY,
  },
  {
    name: "a rotation that is rolled back",
    addConsumers: (consumers, secretName) => {
      // "action": the service must refresh the consumer. It refreshes the consumer with the smaller blast radius first, so the
      // rollback must also refresh `web-good` with the old value.
      consumers.add("web-good", secretName, "action", { blast: 1 });
      consumers.add("web-bad", secretName, "action", { blast: 2, refreshFault: "never takes it" });
    },
    finalStatus: "rolledBack",
    directory: DELAYED_DIRECTORY,
  },
];

/** Runs a rotation whose first worker crashes, and checks the result. Returns whether the worker reached the crash. */
async function rotateWithCrash(scenario: Scenario, crash: SimulatedCrash | undefined): Promise<boolean> {
  const name = `${scenarios.indexOf(scenario)}-${crash?.crashKind ?? "no"}-${crash?.callNumber ?? 0}`;
  world.targets = [];
  world.messages.length = 0;
  world.inventoryUpdates.length = 0;
  const consumers = new SimulatedConsumers(world);
  world.consumers = consumers;
  const app = world.addApplication(name, { places: 2 });
  scenario.addConsumers(consumers, app.places[0]!);
  world.cloud.control.directory.set(scenario.directory);
  world.advanceClock(10 * MINUTE_MS);
  const { rotationId } = await world.start().begin(app.request, BOSS);
  const { row, crashCount } = await world.run(rotationId, crash ? { crash } : {});
  expect(row.status, `${name}: ${JSON.stringify(row.attention)}`).toBe(scenario.finalStatus);
  await expectRotationInvariants(world, app, row);
  // The rotation asked the inventory to read everything that it changed, regardless of the call that crashed. The last request
  // of a rollback names no client secret, so the inventory reads the whole application.
  const { appId, objectId, newKeyId, oldKeyId } = row;
  const lastRequest = row.status === "completed" ? { appId, objectId, removed: oldKeyId } : { appId, objectId };
  for (const request of [{ appId, objectId, added: newKeyId }, VAULT, lastRequest])
    expect(world.inventoryUpdates).toContainEqual(request);
  values.push(secretValueOf(name, "old"), world.cloud.control.secretValue(VAULT, app.places[0]!)!);
  return crashCount > 0;
}

test.each(scenarios)(
  "$name ends correctly after a crash at a sampled call",
  { timeout: 2 * HOUR_MS },
  async (scenario) => {
    const callsBefore = world.calls.length;
    await rotateWithCrash(scenario, undefined);
    const calls = world.calls.length - callsBefore;
    let crashCount = 0;
    // Each scenario starts at another call and with another kind of crash.
    const offset = SEED + 31 * scenarios.indexOf(scenario);
    for (
      let callNumber = 1 + (offset % Math.min(CALLS_BETWEEN_CRASHES, calls - 1)), round = 0;
      callNumber < calls;
      callNumber += CALLS_BETWEEN_CRASHES, round++
    ) {
      for (const crashKind of IS_CAMPAIGN ? CRASH_KINDS : [CRASH_KINDS[(offset + round) % 3]!]) {
        const reachedCrash = await rotateWithCrash(scenario, { callNumber, crashKind }).catch((error: unknown) => {
          throw new Error(
            `SEED=${SEED}, ${crashKind} call ${callNumber}: ${error instanceof Error ? error.message : error}`,
            {
              cause: error,
            },
          );
        });
        if (reachedCrash) crashCount++;
      }
    }
    expect(crashCount).toBeGreaterThan(0);
    if (IS_CAMPAIGN) console.log(`${scenario.name}: ${crashCount} crashes, ${calls} calls of a rotation without one`);
  },
);

test("no secret value is logged, stored, sent or audited", () =>
  expectNoValueStored(world, azurite.connectionString(), values));
