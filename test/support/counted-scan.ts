import { setTimeout as delay } from "node:timers/promises";
import { TableClient } from "@azure/data-tables";
import type { Service } from "./service.ts";

/**
 * Runs a scan and counts its requests. The scan's status is read directly from Azurite instead of through the counting proxy, so
 * that only requests of the scan and of the call that started it are counted.
 *
 * @returns The scan's status, the calls to the cloud by operation with their `total`, and the requests to the tables.
 */
export async function runCountedScan(service: Service, request: object, timeoutMs = 300_000) {
  const client = TableClient.fromConnectionString(service.azurite.connectionString(), "Scans", {
    allowInsecureConnection: true,
  });
  await service.admin("GET", "/auth/me"); // Signs in once, before counting starts.
  service.cloud.control.resetCounts();
  service.clearTableRequests();
  const started = await service.admin("POST", "/api/assets/discovery/scan", request);
  if (started.status !== 201) throw new Error(`Starting a scan answered ${started.status}: ${started.text}`);
  const { scanId } = started.body as { scanId: string };

  const deadline = Date.now() + timeoutMs;
  for (let hasEnded = false; !hasEnded; ) {
    // The scan's own row.
    const { status } = await client.getEntity<{ status: string }>(`scan:${scanId}`, "0");
    hasEnded = status !== "queued" && status !== "running";
    if (Date.now() > deadline) throw new Error(`The scan is still ${status}`);
    await delay(100);
  }
  await service.waitForEmptyQueues(timeoutMs);
  const calls = service.cloud.control.counts();
  const tables = [...started.tableRequests(), ...service.queueRequests()];
  const { body: scan } = await service.admin("GET", `/api/assets/discovery/scan/${scanId}/status`);
  return { scan, calls, tables };
}
