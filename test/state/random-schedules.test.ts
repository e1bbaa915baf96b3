import pMap from "p-map";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { type MovedClock, movedClock } from "../support/moved-clock.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { createWorkers, differences, everyRow } from "./inventory-fixture.ts";
import { KINDS, type Reached, runSchedule } from "./random-schedule.ts";

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

const COUNT = IS_CAMPAIGN ? 200 : 10;
const AT_ONCE = 4;

let azurite: Azurite;
let cloud: Cloud;
let time: MovedClock;
let workers: ReturnType<typeof createWorkers>;
beforeAll(async () => {
  time = movedClock();
  azurite = await startAzurite({
    accounts: Array.from({ length: COUNT }, (_, at) => [`found${at}`, `wanted${at}`]).flat(),
    environment: time.environment,
  });
  const live = await liveIn({ company: { subscriptions: [{ name: "Empty" }] } });
  cloud = live.cloud;
  workers = createWorkers(live);
});
afterAll(async () => {
  await cloud?.stop();
  await azurite?.stop();
  time?.remove();
});

test(`after ${COUNT} random histories and one more delta scan each, every row is as a first scan of the cloud writes it`, {
  timeout: 150_000 + COUNT * 10_000,
}, async () => {
  console.log(`Schedules of the seed ${SEED}`);
  const reached = Object.fromEntries(KINDS.map((kind) => [kind, 0])) as Reached;
  const wrong: string[] = [];
  let done = 0;
  await pMap(
    Array.from({ length: COUNT }, (_, at) => at),
    async (at) => {
      const subscriptions = [1, 2].map((one) =>
        cloud.control.putSubscription({
          name: `Schedule ${at}-${one}`,
          id: `00000000-0000-4000-800${one}-${String(at).padStart(12, "0")}`,
        }),
      ) as [string, string];
      const connectionString = azurite.connectionString(`found${at}`);
      const place = { cloud, workers, time, connectionString, subscriptions, tag: String(at), reached };
      const log = await runSchedule(place, SEED + at);
      const fresh = azurite.connectionString(`wanted${at}`);
      await workers.delta(fresh, subscriptions, time);
      const [found, wanted] = [await everyRow(connectionString), await everyRow(fresh)];
      const assets = subscriptions.flatMap((id) => assetsIn(id)).length;
      if ([...wanted.keys()].filter((key) => key.startsWith("Assets")).length !== assets * 6)
        wrong.push(`schedule ${at}: a first scan did not find the ${assets} assets of the cloud`);
      const different = differences(found, wanted);
      if (different.length > 0) {
        wrong.push(`schedule ${at} (seed ${SEED + at}):\n${log.join("\n")}\n${different.join("\n")}`);
        console.log(wrong.at(-1));
      }
      for (const id of subscriptions) cloud.control.removeSubscription(id);
      if (++done % 50 === 0) console.log(`${done} schedules, ${wrong.length} ended wrong`);
    },
    { concurrency: AT_ONCE },
  );
  console.log(
    Object.entries(reached)
      .map(([kind, count]) => `${String(count).padStart(6)} ${kind}`)
      .join("\n"),
  );
  expect(wrong.length, `schedules of the seed ${SEED} that ended wrong`).toBe(0);
  for (const kind of KINDS) expect(reached[kind], kind).toBeGreaterThan(0);
});

const assetsIn = (subscriptionId: string) =>
  cloud.control
    .vaults()
    .filter((vault) => vault.subscriptionId.toLowerCase() === subscriptionId.toLowerCase())
    .flatMap(({ name }) => (["secrets", "keys"] as const).flatMap((kind) => cloud.control.items(name, kind)));
