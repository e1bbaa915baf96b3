import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { movedClock } from "../support/moved-clock.ts";
import { Service } from "../support/service.ts";

const VAULTS = 6;
/** As on the platform: the message of a crashed process stays hidden for this time. */
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
          vaults: Array.from({ length: VAULTS }, (_, index) => ({ name: `kv-${index}`, generate: { secrets: 10 } })),
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

/** A host whose clock the test moves. */
async function addWrongHost(): Promise<void> {
  const options = `${service.environment.NODE_OPTIONS} ${hostClock.environment.NODE_OPTIONS}`;
  await service.addHost({ ...hostClock.environment, NODE_OPTIONS: options });
}

test("a host whose clock is ten minutes ahead, then set back by an hour, and that is killed during a scan delays it by two minutes", async () => {
  await hostClock.add(10 * MINUTE_MS);
  await addWrongHost();
  // The second vault of each worker never responds. Then the host is killed.
  const hanging = service.cloud.control.addFault({
    match: { operation: "keyvault.listSecrets" },
    action: { kind: "latency", milliseconds: 600_000 },
    after: 2,
  });
  const begun = Date.now();
  const started = await service.admin("POST", "/api/assets/discovery/scan", { mode: "full" });
  const status = async () =>
    (await service.admin("GET", `/api/assets/discovery/scan/${started.body.scanId}/status`)).body;
  await expect.poll(async () => (await status()).progress.vaultsDone, { timeout: 150_000 }).toBeGreaterThan(0);
  await hostClock.add(-HOUR_MS);
  await delay(SECOND_MS);
  await service.hosts[0]!.stop("SIGKILL");
  service.hosts.length = 0;
  service.cloud.control.clearFaults();
  expect(hanging).toBeDefined();

  await service.addHost();
  expect((await status()).status).toBe("running");
  let moved = 0;
  for (; (await status()).status === "running" && moved < 12 * MINUTE_MS; moved += 30 * SECOND_MS) {
    await storageClock.add(30 * SECOND_MS);
    await fetch(`${service.url}/__host/timers/watchScans`, { method: "POST" });
    await service.idle();
  }
  expect(moved).toBeLessThanOrEqual(3 * MINUTE_MS);
  const scan = await status();
  expect(scan).toMatchObject({ status: "completed", progress: { vaultsDone: VAULTS, assetsFound: VAULTS * 10 } });

  // All times are the store's, whichever host wrote them.
  const ended = Date.now() + moved;
  for (const at of [scan.createdAt, scan.startedAt, scan.finishedAt].map((instant) => Date.parse(instant))) {
    expect(at).toBeGreaterThanOrEqual(begun - 2 * SECOND_MS);
    expect(at).toBeLessThanOrEqual(ended + 2 * SECOND_MS);
  }
  expect(Date.parse(scan.deadline) - Date.parse(scan.startedAt)).toBe(1800 * SECOND_MS);
  const entries = await service.all("/audit/entries");
  const times = entries.map((entry) => Date.parse(entry.occurredAt));
  expect(times).toEqual([...times].sort((a, b) => b - a));
  for (const at of times) expect(at).toBeGreaterThanOrEqual(begun - MINUTE_MS);
  expect(entries.filter((entry) => entry.eventType === "scan.finished")).toHaveLength(1);
});
