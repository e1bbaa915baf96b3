import { afterAll, beforeAll, expect, test } from "vitest";
import type { Company } from "../../infra/local/cloud/company/company.ts";
import { Service } from "../support/service.ts";

const VAULTS = 24;
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
      DISCOVERY_MAX_WORKERS: "4",
      // Each host takes two messages at a time, so that neither can take all.
      AzureFunctionsJobHost__extensions__queues__batchSize: "2",
      AzureFunctionsJobHost__extensions__queues__newBatchThreshold: "0",
    },
  });
});
afterAll(() => service?.stop());

test("two hosts on one queue scan every vault exactly once, and never more at once than allowed", async () => {
  service.cloud.control.addFault({ action: { kind: "latency", milliseconds: 30 } });
  const scan = await service.scan({ mode: "full" });
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
  expect(mostAtOnce(service.hosts.flatMap((host) => host.lines))).toBeLessThanOrEqual(4);
});

/** The most invocations of scanVault under way at one moment, from the hosts' logs. */
function mostAtOnce(lines: string[]): number {
  const events = lines
    .filter((line) => line.includes("'Functions.scanVault'"))
    .map((line) => ({ at: Date.parse(line.slice(1, line.indexOf("]"))), by: line.includes("Executing") ? 1 : -1 }))
    .sort((a, b) => a.at - b.at || a.by - b.by);
  let now = 0;
  let most = 0;
  for (const event of events) {
    now += event.by;
    most = Math.max(most, now);
  }
  return most;
}
