// A scan on a host with a wrong clock: times come from the storage clock, and a killed host delays the scan only for minutes.
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { movedClock } from "../support/moved-clock.ts";
import { Service } from "../support/service.ts";

const VAULT_COUNT = 6;
/** A message of a crashed process stays hidden for this time, as on the platform. */
const MESSAGE_LEASE_SECONDS = 600;

const storageClock = movedClock();
const hostClock = movedClock();
let service: Service;
beforeAll(async () => {
  service = await Service.start({
    company: {
      subscriptions: [
        {
          name: "Only",
          vaults: Array.from({ length: VAULT_COUNT }, (_, index) => ({
            name: `kv-${index}`,
            generate: { secrets: 10 },
          })),
        },
      ],
    },
    hosts: 0,
    lease: MESSAGE_LEASE_SECONDS,
    storageEnv: storageClock.environment,
    env: { DISCOVERY_MAX_WORKERS: "2", DISCOVERY_SCAN_TIMEOUT: "1800" },
  });
});
afterAll(async () => {
  await service?.stop();
  storageClock.remove();
  hostClock.remove();
});

/** Adds a host whose clock the test moves. */
async function addHostWithMovedClock(): Promise<void> {
  const options = `${service.environment.NODE_OPTIONS} ${hostClock.environment.NODE_OPTIONS}`;
  await service.addHost({ ...hostClock.environment, NODE_OPTIONS: options });
}

test("a killed host with a wrong clock delays its scan by at most three minutes", async () => {
  // The host's clock is first ahead of the real time, then 50 minutes behind it. The scan's times must follow neither.
  await hostClock.add(10 * MINUTE_MS);
  await addHostWithMovedClock();
  // The lists of secrets after the first two don't return before the host is killed.
  service.cloud.control.addFault({
    match: { operation: "keyvault.listSecrets" },
    action: { kind: "latency", milliseconds: 600_000 },
    after: 2,
  });
  const startedMs = Date.now();
  const started = await service.admin("POST", "/api/assets/discovery/scan", { mode: "full" });
  const status = async () =>
    (await service.admin("GET", `/api/assets/discovery/scan/${started.body.scanId}/status`)).body;
  await expect.poll(async () => (await status()).progress.vaultsDone, { timeout: 150_000 }).toBeGreaterThan(0);
  await hostClock.add(-HOUR_MS);
  // Time for the host to write rows with the wrong clock.
  await delay(SECOND_MS);
  await service.hosts[0]!.stop("SIGKILL");
  service.hosts.length = 0;
  service.cloud.control.clearFaults();

  await service.addHost();
  expect((await status()).status).toBe("running");
  let movedMs = 0;
  for (; (await status()).status === "running" && movedMs < 12 * MINUTE_MS; movedMs += 30 * SECOND_MS) {
    await storageClock.add(30 * SECOND_MS);
    await fetch(`${service.url}/__host/timers/watchScans`, { method: "POST" });
    await service.waitUntilIdle();
  }
  // The watch sends a vault's message again if the vault's row was not renewed for a minute of the storage clock. Three minutes
  // leave time for the next runs of the watch, and are less than the message's own lease.
  expect(movedMs).toBeLessThanOrEqual(3 * MINUTE_MS);
  const scan = await status();
  expect(scan).toMatchObject({
    status: "completed",
    progress: { vaultsDone: VAULT_COUNT, assetsFound: VAULT_COUNT * 10 },
  });

  // Every time comes from the storage clock, not from the clock of the host that wrote it.
  const endedMs = Date.now() + movedMs;
  for (const instantMs of [scan.createdAt, scan.startedAt, scan.finishedAt].map((instant) => Date.parse(instant))) {
    expect(instantMs).toBeGreaterThanOrEqual(startedMs - 2 * SECOND_MS);
    expect(instantMs).toBeLessThanOrEqual(endedMs + 2 * SECOND_MS);
  }
  expect(Date.parse(scan.deadline) - Date.parse(scan.startedAt)).toBe(1800 * SECOND_MS);
  const entries = await service.listAll("/audit/entries");
  const times = entries.map((entry) => Date.parse(entry.occurredAt));
  expect(times).toEqual([...times].sort((a, b) => b - a));
  for (const time of times) expect(time).toBeGreaterThanOrEqual(startedMs - MINUTE_MS);
  expect(entries.filter((entry) => entry.eventType === "scan.finished")).toHaveLength(1);
});
