import pMap from "p-map";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { type MovedClock, movedClock } from "../support/moved-clock.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { createWorkers, differences, readAllRows } from "./inventory-fixture.ts";
import { type Reached, runSchedule, SITUATIONS } from "./random-schedule.ts";

// Runs random schedules of scans with crashes and delayed writes (see random-schedule.ts). Compares the final state of the
// tables with the state that a first scan of the cloud writes into an empty storage account.

// Delays between the attempts of one request don't matter here and would take most of the time.
vi.mock("../../shared/platform/storage/limits.ts", async (original) => ({
  ...(await original<object>()),
  FIRST_RETRY_MS: 5,
  MAX_RETRY_MS: 20,
}));
afterAll(() => {
  // Otherwise later files of the process would use the modules loaded here.
  vi.doUnmock("../../shared/platform/storage/limits.ts");
  vi.resetModules();
});

const SCHEDULES = IS_CAMPAIGN ? 200 : 10;
const CONCURRENCY = 4;

let azurite: Azurite;
let cloud: Cloud;
let time: MovedClock;
let workers: ReturnType<typeof createWorkers>;
beforeAll(async () => {
  time = movedClock();
  azurite = await startAzurite({
    accounts: Array.from({ length: SCHEDULES }, (_, index) => [`tested${index}`, `expected${index}`]).flat(),
    environment: time.environment,
  });
  const testCloud = await startTestCloud({ company: { subscriptions: [{ name: "Empty" }] } });
  cloud = testCloud.cloud;
  workers = createWorkers(testCloud);
});
afterAll(async () => {
  await cloud?.stop();
  await azurite?.stop();
  time?.remove();
});

test(`after ${SCHEDULES} random schedules, all rows are those that a first scan writes`, {
  timeout: 150_000 + SCHEDULES * 10_000,
}, async () => {
  console.log(`Schedules of the seed ${SEED}`);
  const reached = Object.fromEntries(SITUATIONS.map((kind) => [kind, 0])) as Reached;
  const wrong: string[] = [];
  let done = 0;
  await pMap(
    Array.from({ length: SCHEDULES }, (_, index) => index),
    async (index) => {
      const subscriptions = [1, 2].map((one) =>
        cloud.control.putSubscription({
          name: `Schedule ${index}-${one}`,
          id: `00000000-0000-4000-800${one}-${String(index).padStart(12, "0")}`,
        }),
      ) as [string, string];
      const connectionString = azurite.connectionString(`tested${index}`);
      const environment = { cloud, workers, time, connectionString, subscriptions, tag: String(index), reached };
      const log = await runSchedule(environment, SEED + index);
      const expectedConnection = azurite.connectionString(`expected${index}`);
      await workers.runDeltaScan(expectedConnection, subscriptions, time);
      const [actual, expected] = [await readAllRows(connectionString), await readAllRows(expectedConnection)];
      // Each asset has six rows: by name and by expiry date, in the partitions of all assets, its subscription and its vault.
      const assets = subscriptions.flatMap((id) => assetsIn(id)).length;
      if ([...expected.keys()].filter((key) => key.startsWith("Assets")).length !== assets * 6)
        wrong.push(`schedule ${index}: a first scan did not find the ${assets} assets of the cloud`);
      const different = differences(actual, expected);
      if (different.length > 0) {
        wrong.push(`schedule ${index} (seed ${SEED + index}):\n${log.join("\n")}\n${different.join("\n")}`);
        console.log(wrong.at(-1));
      }
      for (const id of subscriptions) cloud.control.removeSubscription(id);
      if (++done % 50 === 0) console.log(`${done} schedules, ${wrong.length} ended wrong`);
    },
    { concurrency: CONCURRENCY },
  );
  console.log(
    Object.entries(reached)
      .map(([kind, count]) => `${String(count).padStart(6)} ${kind}`)
      .join("\n"),
  );
  expect(wrong.length, `schedules of the seed ${SEED} that ended wrong`).toBe(0);
  for (const kind of SITUATIONS) expect(reached[kind], kind).toBeGreaterThan(0);
});

const assetsIn = (subscriptionId: string) =>
  cloud.control
    .vaults()
    .filter((vault) => vault.subscriptionId.toLowerCase() === subscriptionId.toLowerCase())
    .flatMap(({ name }) => (["secrets", "keys"] as const).flatMap((kind) => cloud.control.items(name, kind)));
