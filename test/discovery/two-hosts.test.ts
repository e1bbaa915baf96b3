import { setTimeout as delay } from "node:timers/promises";
import { TableClient } from "@azure/data-tables";
import type { Company } from "simulated-cloud/company/company.ts";
import type { LoggedRequest } from "simulated-cloud/request-log.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { CLAIMED, DONE } from "../../shared/discovery/scan.ts";
import { Service } from "../support/service.ts";

const VAULTS = 40;
/** Vaults that the scan's first message scans at once. The other vaults up to the limit have messages. */
const IN_ONE_INVOCATION = 10;
const MESSAGES = 4;
const company: Company = {
  subscriptions: [
    {
      name: "Only",
      vaults: Array.from({ length: VAULTS }, (_, index) => ({ name: `kv-${index}`, generate: { secrets: 30 } })),
    },
  ],
};

let service: Service;
beforeAll(async () => {
  service = await Service.start({
    company,
    hosts: 2,
    env: {
      DISCOVERY_MAX_WORKERS: String(IN_ONE_INVOCATION + MESSAGES),
      AzureFunctionsJobHost__extensions__queues__maxPollingInterval: "00:00:00.3000000",
      // Each host takes three messages at a time: neither can take all, and both together could exceed the limit.
      AzureFunctionsJobHost__extensions__queues__batchSize: String(MESSAGES - 1),
      AzureFunctionsJobHost__extensions__queues__newBatchThreshold: "0",
    },
  });
});
afterAll(() => service?.stop());

test("two hosts on one queue scan every vault exactly once, and never more at once than allowed", async () => {
  service.cloud.control.resetCounts();
  service.cloud.control.addFault({ action: { kind: "latency", milliseconds: 300 } });
  let over = false;
  const scanning = service.scan({ mode: "full" }).finally(() => {
    over = true;
  });
  let claimed = 0;
  while (!over) {
    claimed = Math.max(claimed, await claimedNow());
    await delay(100);
  }
  const scan = await scanning;
  expect(scan).toMatchObject({
    status: "completed",
    progress: { vaultsDone: VAULTS, assetsFound: VAULTS * 30, assetsAdded: VAULTS * 30 },
  });
  const results = await service.all(`/api/assets/discovery/scan/${scan.scanId}/results`);
  expect(results.map((item) => item.vaultName).sort()).toEqual(
    Array.from({ length: VAULTS }, (_, index) => `kv-${index}`).sort(),
  );
  const counts = service.cloud.control.counts();
  expect(counts["keyvault.listSecrets"]).toBe(VAULTS * 2);
  const worked = service.hosts.map(
    (host) => host.lines.filter((line) => line.includes("Executed 'Functions.scanVault' (Succeeded)")).length,
  );
  expect(worked.every((chains) => chains > 0)).toBe(true);
  // The number of claimed vaults equals the limit while any vault waits. They rarely all call the cloud at the same time.
  expect(claimed).toBe(IN_ONE_INVOCATION + MESSAGES);
  expect(mostAtOnce(service.cloud.control.requests())).toBeLessThanOrEqual(IN_ONE_INVOCATION + MESSAGES);
});

/** Number of claimed vaults, read without the proxy. */
async function claimedNow(): Promise<number> {
  const scans = TableClient.fromConnectionString(service.azurite.connectionString(), "Scans", {
    allowInsecureConnection: true,
  });
  const filter = `PartitionKey ge 'scan:' and PartitionKey lt 'scan;' and RowKey ge '${CLAIMED}' and RowKey lt '${DONE}'`;
  let count = 0;
  try {
    for await (const _ of scans.listEntities({ queryOptions: { filter, select: ["RowKey"] } })) count++;
  } catch (error) {
    // Before the first scan is written, there is no table.
    if ((error as { statusCode?: number }).statusCode !== 404) throw error;
  }
  return count;
}

/** Returns the largest number of vaults in progress at once, each from its first request to its last. */
function mostAtOnce(requests: LoggedRequest[]): number {
  const read = requests.filter(({ operation }) => operation.startsWith("keyvault."));
  const events = [...Map.groupBy(read, ({ vault }) => vault).values()]
    .flatMap((of) => [
      { at: Date.parse(of[0]!.at), by: 1 },
      { at: Date.parse(of.at(-1)!.at), by: -1 },
    ])
    .sort((a, b) => a.at - b.at || a.by - b.by);
  let now = 0;
  let most = 0;
  for (const event of events) {
    now += event.by;
    most = Math.max(most, now);
  }
  return most;
}
