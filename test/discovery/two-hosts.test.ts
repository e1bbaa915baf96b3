// Two hosts that share one queue scan 40 vaults, within the limit of workers.
import { setTimeout as delay } from "node:timers/promises";
import { TableClient } from "@azure/data-tables";
import type { Company } from "simulated-cloud/company/company.ts";
import type { LoggedRequest } from "simulated-cloud/request-log.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { CLAIMED, DONE } from "../../shared/discovery/scan.ts";
import { Service } from "../support/service.ts";

const VAULT_COUNT = 40;
/** Number of vaults that the scan's first message scans at once. Further vaults, up to the limit of workers, get messages. */
const VAULTS_PER_INVOCATION = 10;
/** Number of these messages. */
const VAULT_MESSAGES = 4;
const company: Company = {
  subscriptions: [
    {
      name: "Only",
      vaults: Array.from({ length: VAULT_COUNT }, (_, index) => ({ name: `kv-${index}`, generate: { secrets: 30 } })),
    },
  ],
};

let service: Service;
// For each try of the test, because a repeated scan of the same data would add no assets.
beforeEach(async () => {
  service = await Service.start({
    company,
    hosts: 2,
    env: {
      DISCOVERY_MAX_WORKERS: String(VAULTS_PER_INVOCATION + VAULT_MESSAGES),
      AzureFunctionsJobHost__extensions__queues__maxPollingInterval: "00:00:00.3000000",
      // Each host takes three messages at a time. So one host can't take all four, and both together could exceed the limit.
      AzureFunctionsJobHost__extensions__queues__batchSize: String(VAULT_MESSAGES - 1),
      AzureFunctionsJobHost__extensions__queues__newBatchThreshold: "0",
    },
  });
});
afterEach(() => service?.stop());

test("two hosts scan each vault once, within the limit of workers", async () => {
  service.cloud.control.resetCounts();
  // Slow enough that the counts below, one each 100 ms, find all workers busy.
  service.cloud.control.addFault({ action: { kind: "latency", milliseconds: 300 } });
  let hasEnded = false;
  const scanning = service.scan({ mode: "full" }).finally(() => {
    hasEnded = true;
  });
  let maxClaimed = 0;
  while (!hasEnded) {
    maxClaimed = Math.max(maxClaimed, await countClaimedVaults());
    await delay(100);
  }
  const scan = await scanning;
  expect(scan).toMatchObject({
    status: "completed",
    progress: { vaultsDone: VAULT_COUNT, assetsFound: VAULT_COUNT * 30, assetsAdded: VAULT_COUNT * 30 },
  });
  const results = await service.listAll(`/api/assets/discovery/scan/${scan.scanId}/results`);
  expect(results.map((item) => item.vaultName).sort()).toEqual(
    Array.from({ length: VAULT_COUNT }, (_, index) => `kv-${index}`).sort(),
  );
  const counts = service.cloud.control.counts();
  // The 30 secrets of a vault are two pages.
  expect(counts["keyvault.listSecrets"]).toBe(VAULT_COUNT * 2);
  const invocationsPerHost = service.hosts.map(
    (host) => host.lines.filter((line) => line.includes("Executed 'Functions.scanVault' (Succeeded)")).length,
  );
  expect(invocationsPerHost.every((invocations) => invocations > 0)).toBe(true);
  // While vaults wait, the number of claimed vaults equals the limit. Their calls to the cloud rarely all overlap.
  expect(maxClaimed).toBe(VAULTS_PER_INVOCATION + VAULT_MESSAGES);
  expect(maxConcurrentVaults(service.cloud.control.requests())).toBeLessThanOrEqual(
    VAULTS_PER_INVOCATION + VAULT_MESSAGES,
  );
});

/** Returns the number of vaults that are claimed by a worker now. The row keys of a scan's vaults start with their state. */
async function countClaimedVaults(): Promise<number> {
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

/**
 * Returns the largest number of vaults in progress at the same time. A vault is in progress from its first to its last request.
 */
function maxConcurrentVaults(requests: LoggedRequest[]): number {
  const read = requests.filter(({ operation }) => operation.startsWith("keyvault."));
  const events = [...Map.groupBy(read, ({ vault }) => vault).values()]
    .flatMap((vaultRequests) => [
      { timeMs: Date.parse(vaultRequests[0]!.at), change: 1 },
      { timeMs: Date.parse(vaultRequests.at(-1)!.at), change: -1 },
    ])
    .sort((a, b) => a.timeMs - b.timeMs || a.change - b.change);
  let active = 0;
  let maximum = 0;
  for (const event of events) {
    active += event.change;
    maximum = Math.max(maximum, active);
  }
  return maximum;
}
