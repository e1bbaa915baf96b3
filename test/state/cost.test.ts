import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { type MovedClock, movedClock } from "../support/moved-clock.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { createWorkers, type Worker } from "./inventory-fixture.ts";

const HERE = "11111111-1111-4111-8111-111111111111";
const secrets = (count: number) => Array.from({ length: count }, (_, at) => ({ name: `s-${at}`, expiresInDays: at }));

let azurite: Azurite;
let proxy: TableProxy;
let cloud: Cloud;
let time: MovedClock;
let workers: ReturnType<typeof createWorkers>;
let worker: Worker;
beforeAll(async () => {
  time = movedClock();
  azurite = await startAzurite({ environment: time.environment });
  proxy = await startTableProxy(azurite.connectionString());
  const vaults = [{ name: "kv-warm-up", secrets: secrets(1) }];
  const live = await liveIn({ company: { subscriptions: [{ name: "Here", id: HERE, vaults }] } });
  cloud = live.cloud;
  workers = createWorkers(live);
  worker = workers.worker(proxy.connectionString);
  await asked("kv-warm-up");
});
afterAll(async () => {
  await cloud?.stop();
  await proxy?.stop();
  await azurite?.stop();
  time?.remove();
});

/** Counts the table requests of one worker for this vault. */
async function asked(name: string): Promise<string[]> {
  const { tables, scan } = worker;
  const planned = (await workers.plan(tables, [HERE])).find((one) => one.name.toLowerCase() === name)!;
  proxy.requests.length = 0;
  await scan(planned);
  return proxy.requests.map(({ method, path }) => `${method} ${path.replace(/\(.+\)$/, "(row)")}`).sort();
}

test("fences cost no additional request after a worker that ended normally", async () => {
  cloud.control.putVault(HERE, { name: "kv-cost", secrets: secrets(140) });
  // The vault's row, its removal marker, the claim, three transactions in each of three partitions, the results, the end.
  const rows = ["GET Vaults(row)", "GET Vaults(row)"];
  expect(await asked("kv-cost")).toEqual([...rows, ...Array.from({ length: 12 }, () => "POST $batch")]);
  expect(await asked("kv-cost")).toEqual(["GET Vaults(row)", "POST $batch"]);

  cloud.control.putSecret("kv-cost", { name: "s-7", expiresInDays: 400 });
  expect(await asked("kv-cost")).toEqual([
    // The stored secrets, and the results with their fence. The end and the results are written twice, because the vault's
    // marks for the totals exist already.
    "GET Assets()",
    "GET Compliance()",
    "GET Compliance(row)",
    "GET Vaults(row)",
    ...Array.from({ length: 8 }, () => "POST $batch"),
  ]);

  cloud.control.putVault(HERE, { name: "kv-none" });
  expect(await asked("kv-none")).toEqual([...rows, "POST $batch", "POST $batch", "POST $batch"]);
});

test("taking over costs one request per partition, and so does a vault that returns", async () => {
  cloud.control.removeVault("kv-cost");
  await asked("kv-cost");
  cloud.control.putVault(HERE, { name: "kv-cost", secrets: secrets(3) });
  const requests = await asked("kv-cost");
  expect(requests.filter((request) => request.endsWith("Assets(row)"))).toEqual([
    "PUT Assets(row)",
    "PUT Assets(row)",
    "PUT Assets(row)",
  ]);
});
