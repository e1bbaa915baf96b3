import { secretValueOf } from "simulated-cloud/company/applications.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import type { RotationStatus } from "../../shared/rotation/rotation.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { Company } from "./consumers.ts";
import { holds, keepsSecrets } from "./invariants.ts";
import { BOSS, type SimulatedCrash, VAULT, World } from "./world.ts";

/** Number of calls to storage and the cloud between crashes. */
const STRIDE = IS_CAMPAIGN ? 1 : 97;
/** Before the call is sent, after it was carried out, and so that it is carried out after another worker has gone on. */
const HOW: SimulatedCrash["how"][] = ["before", "after", "late"];

let world: World;
let azurite: TestStorage;
const values: string[] = [];

beforeAll(async () => {
  azurite = await openStorage();
  const subscriptions = [{ id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }] }];
  const { cloud, config } = await liveIn({ company: { subscriptions } });
  world = new World(cloud, config, azurite.connectionString());
});
afterAll(async () => {
  await world.cloud.stop();
  await azurite.stop();
});

interface Scenario {
  name: string;
  /** Adds those who use the first of the application's places. */
  prepare(company: Company, place: string): void;
  ends: RotationStatus;
  directory: { readLagSeconds: number; writesLag: boolean; signInDelaySeconds: number; flappingSeconds: number };
}

const calm = { readLagSeconds: 0, writesLag: false, signInDelaySeconds: 0, flappingSeconds: 0 };
const lagging = { readLagSeconds: 300, writesLag: true, signInDelaySeconds: 60, flappingSeconds: 240 };

const scenarios: Scenario[] = [
  { name: "a rotation", prepare: () => {}, ends: "completed", directory: calm },
  {
    name: "a rotation while the directory lags and new secrets flap",
    prepare: () => {},
    ends: "completed",
    directory: lagging,
  },
  {
    name: "a rotation that is rolled back",
    prepare: (company, place) => {
      company.add("web-good", place, "action", { blast: 1 });
      company.add("web-bad", place, "action", { blast: 2, trouble: "never takes it" });
    },
    ends: "rolledBack",
    directory: lagging,
  },
];

/** Runs a rotation whose first worker crashes. Returns whether it reached the crash. */
async function dies(scenario: Scenario, death: SimulatedCrash | undefined): Promise<boolean> {
  const name = `${scenarios.indexOf(scenario)}-${death?.how ?? "no"}-${death?.at ?? 0}`;
  world.targets = [];
  world.messages.length = 0;
  const company = new Company(world);
  world.consumers = company;
  const app = world.application(name, { places: 2 });
  scenario.prepare(company, app.places[0]!);
  world.cloud.control.directory.set(scenario.directory);
  world.pass(10 * MINUTE_MS);
  const { rotationId } = await world.start().begin(app.request, BOSS);
  const { row, deaths } = await world.run(rotationId, death ? { death } : {});
  expect(row.status, `${name}: ${JSON.stringify(row.attention)}`).toBe(scenario.ends);
  await holds(world, app, row);
  values.push(secretValueOf(name, "old"), world.cloud.control.secretValue(VAULT, app.places[0]!)!);
  return deaths > 0;
}

test.each(scenarios)("$name continues after a crash at any call", { timeout: 7_200_000 }, async (scenario) => {
  const before = world.calls.length;
  await dies(scenario, undefined);
  const calls = world.calls.length - before;
  let died = 0;
  // Each scenario begins elsewhere, and otherwise.
  const turn = SEED + 31 * scenarios.indexOf(scenario);
  for (let at = 1 + (turn % Math.min(STRIDE, calls - 1)), round = 0; at < calls; at += STRIDE, round++) {
    for (const how of IS_CAMPAIGN ? HOW : [HOW[(turn + round) % 3]!]) {
      const happened = await dies(scenario, { at, how }).catch((error: unknown) => {
        throw new Error(`SEED=${SEED}, ${how} call ${at}: ${error instanceof Error ? error.message : error}`, {
          cause: error,
        });
      });
      if (happened) died++;
    }
  }
  expect(died).toBeGreaterThan(0);
  if (IS_CAMPAIGN) console.log(`${scenario.name}: ${died} crashes, ${calls} calls of a rotation without one`);
});

test("no value was written down on the way", () => keepsSecrets(world, azurite.connectionString(), values));
