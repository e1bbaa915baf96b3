import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { type MovedClock, movedClock } from "../support/moved-clock.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { createWorkers, type Worker } from "./inventory-fixture.ts";

// Table requests of a worker that scans a vault. The worker protects its writes by fences: rows whose ETag it includes in each
// transaction, so that writes of the worker that scanned the vault before are rejected.

const SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
const secretsOf = (count: number) =>
  Array.from({ length: count }, (_, index) => ({ name: `s-${index}`, expiresInDays: index }));

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
  const vaults = [{ name: "kv-warm-up", secrets: secretsOf(1) }];
  const testCloud = await startTestCloud({ company: { subscriptions: [{ name: "Here", id: SUBSCRIPTION, vaults }] } });
  cloud = testCloud.cloud;
  workers = createWorkers(testCloud);
  worker = workers.worker(proxy.connectionString);
  await scanAndListRequests("kv-warm-up");
});
afterAll(async () => {
  await cloud?.stop();
  await proxy?.stop();
  await azurite?.stop();
  time?.remove();
});

/** Scans a vault and returns the table requests of the worker, sorted. Row keys are replaced by `(row)`. */
async function scanAndListRequests(name: string): Promise<string[]> {
  const { tables, scan } = worker;
  const planned = (await workers.plan(tables, [SUBSCRIPTION])).find((one) => one.name.toLowerCase() === name)!;
  proxy.requests.length = 0;
  await scan(planned);
  return proxy.requests.map(({ method, path }) => `${method} ${path.replace(/\(.+\)$/, "(row)")}`).sort();
}

test("fences cost no additional request after a worker that ended normally", async () => {
  cloud.control.putVault(SUBSCRIPTION, { name: "kv-cost", secrets: secretsOf(140) });
  // Each asset is stored in three partitions: all, its subscription, and its vault. The vault's row and its removal marker are
  // read. The claim, three transactions in each partition, the compliance results, and the release of the claim are written.
  const rows = ["GET Vaults(row)", "GET Vaults(row)"];
  expect(await scanAndListRequests("kv-cost")).toEqual([...rows, ...Array.from({ length: 12 }, () => "POST $batch")]);
  // There are no changes, so the second scan writes only once.
  expect(await scanAndListRequests("kv-cost")).toEqual(["GET Vaults(row)", "POST $batch"]);

  cloud.control.putSecret("kv-cost", { name: "s-7", expiresInDays: 400 });
  expect(await scanAndListRequests("kv-cost")).toEqual([
    // The stored secrets, and the results with their fence. The release of the claim and the results are written twice: the
    // first attempt inserts a row that marks the vault's totals as outdated, which fails because the row exists.
    "GET Assets()",
    "GET Compliance()",
    "GET Compliance(row)",
    "GET Vaults(row)",
    ...Array.from({ length: 8 }, () => "POST $batch"),
  ]);

  // A vault without assets: the nine transactions of the partitions are missing.
  cloud.control.putVault(SUBSCRIPTION, { name: "kv-none" });
  expect(await scanAndListRequests("kv-none")).toEqual([...rows, "POST $batch", "POST $batch", "POST $batch"]);
});

test("a vault that returns after its removal costs one additional request per partition, for its fence", async () => {
  cloud.control.removeVault("kv-cost");
  await scanAndListRequests("kv-cost");
  cloud.control.putVault(SUBSCRIPTION, { name: "kv-cost", secrets: secretsOf(3) });
  const requests = await scanAndListRequests("kv-cost");
  expect(requests.filter((request) => request.endsWith("Assets(row)"))).toEqual([
    "PUT Assets(row)",
    "PUT Assets(row)",
    "PUT Assets(row)",
  ]);
});
