import { mkdir, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { openStorage, type TestStorage } from "../../../test/support/storage.ts";
import { parseSchedule } from "../schedule.ts";
import { createTimerLease } from "../timer-lease.ts";
import { startStatus } from "../timer-status.ts";
import { type RunningHost, runHost } from "./run-host.ts";

// Tests the timer triggers of the local Functions host: schedules, stored status, retries, and the lease that lets only one of
// several hosts run a timer. Most tests start host processes that run the app in `fixture-app`.

/** Long enough for a machine that runs many tests at once. */
const POLL_OPTIONS = { timeout: 150_000 };

/** Timer object that a function of the fixture app received and reported. */
interface ReportedTimer {
  schedule: object;
  scheduleStatus?: { last: string; next: string; lastUpdated: string } | null;
  isPastDue: boolean;
  /** Number of runs of this timer that were in progress when it was reported. */
  running?: number;
}

const hosts: RunningHost[] = [];
afterEach(async () => {
  for (const host of hosts.splice(0)) await host.stop("SIGKILL");
});

/** Starts a host with this data folder. The host is killed after the test. */
async function startHost(data: string, env: Record<string, string> = {}, args: string[] = []): Promise<RunningHost> {
  const host = await runHost({ env, args: ["--data", data, ...args] });
  hosts.push(host);
  return host;
}

const createDataFolder = () => mkdtemp(join(tmpdir(), "host-data-"));
/** Path of the status file of the timer `daily`. */
const statusFileOf = (data: string) => join(data, "timers", "fixture-app", "daily.json");

/** Writes the status of the timer `daily`, as an earlier host would have stored it. The timer runs at 03:00. */
async function storeStatus(data: string, status: { Last: string; Next: string }): Promise<void> {
  await mkdir(join(data, "timers", "fixture-app"), { recursive: true });
  await writeFile(statusFileOf(data), JSON.stringify({ ...status, LastUpdated: status.Last }));
}

describe("a timer", () => {
  it("that missed its time fires at the start of the host with isPastDue, but not at the next start", async () => {
    const data = await createDataFolder();
    await storeStatus(data, { Last: "2026-01-01T03:00:00.000Z", Next: "2026-01-02T03:00:00.000Z" });
    const host = await startHost(data);
    const [reports] = await host.waitForReports<ReportedTimer>("daily", 1);
    expect(reports).toMatchObject({
      isPastDue: true,
      scheduleStatus: { last: "2026-01-01T03:00:00.000Z", next: "2026-01-02T03:00:00.000Z" },
    });
    await expect
      .poll(async () => Date.parse(JSON.parse(await readFile(statusFileOf(data), "utf8")).Next), POLL_OPTIONS)
      .toBeGreaterThan(Date.now());
    await host.stop();
    const again = await startHost(data);
    await (await fetch(`${again.url}/plain`)).text();
    expect(again.lines.some((line) => line.startsWith('{"saw":"daily"'))).toBe(false);
  });

  it("without a stored status does not fire at the start, and its next time is stored", async () => {
    const data = await createDataFolder();
    const host = await startHost(data);
    await expect
      .poll(() => readFile(statusFileOf(data), "utf8").catch(() => ""), POLL_OPTIONS)
      .toContain("T03:00:00.000Z");
    expect(host.lines.some((line) => line.startsWith('{"saw":"daily"'))).toBe(false);
  });

  it("that fires more than once a minute has no stored status", async () => {
    const host = await startHost(await createDataFolder(), { OFTEN: "00:00:00.2" });
    const reports = await host.waitForReports<ReportedTimer>("often", 2);
    expect(reports[0]).toMatchObject({ schedule: { adjustForDST: true }, scheduleStatus: null, isPastDue: false });
  });

  it("never runs twice at once, even if a run takes longer than the interval", async () => {
    const host = await startHost(await createDataFolder(), { OFTEN: "00:00:00.1", OFTEN_MS: "250" });
    const reports = await host.waitForReports<ReportedTimer>("often", 3);
    expect(reports.map(({ running }) => running)).toEqual([1, 1, 1]);
  });

  it("with runOnStartup fires at the start, without isPastDue", async () => {
    const host = await startHost(await createDataFolder(), { AT_START: "true" });
    expect(await host.waitForReports<ReportedTimer>("atStart", 1)).toMatchObject([
      { isPastDue: false, scheduleStatus: null },
    ]);
  });

  it("is retried as often as its retry policy says", async () => {
    const host = await startHost(await createDataFolder(), {}, ["--inspect-modules"]);
    const answer = await fetch(`${host.url}/__host/timers/retried`, { method: "POST" });
    expect(await answer.json()).toEqual({ succeeded: false });
    // The first run, and the two retries of the fixture app's policy.
    expect(await host.waitForReports("retried", 3)).toEqual([0, 1, 2]);
  });

  it("can be fired through the admin route", async () => {
    const host = await startHost(await createDataFolder());
    const answer = await fetch(`${host.url}/admin/functions/daily`, { method: "POST", body: "{}" });
    expect(answer.status).toBe(202);
    expect(await host.waitForReports<ReportedTimer>("daily", 1)).toMatchObject([{ isPastDue: false }]);
  });

  it("with an invalid schedule is reported, and the other functions run", async () => {
    const host = await startHost(await createDataFolder());
    await host.waitForLine((line) => line.includes("The listener for function 'badSchedule' was unable to start"));
    expect((await fetch(`${host.url}/plain`)).status).toBe(200);
  });
});

describe("the stored status", () => {
  const now = new Date("2026-05-05T12:00:00Z");
  const dailyAt3 = parseSchedule("0 0 3 * * *", now);
  const record = (last: string, next: string) => ({ Last: last, Next: next, LastUpdated: last });

  it("is past due if the next time is in the past", () => {
    const { pastDue } = startStatus(record("2026-05-04T03:00:00Z", "2026-05-05T03:00:00.000Z"), dailyAt3, now);
    expect(pastDue).toBe(true);
  });

  it("is not past due if the next time does not follow from the schedule, which has then changed", () => {
    const { pastDue, status } = startStatus(record("2026-05-04T03:00:00Z", "2026-05-04T04:00:00.000Z"), dailyAt3, now);
    expect(pastDue).toBe(false);
    expect(status.Next).toBe("2026-05-06T03:00:00.000Z");
  });
});

describe("hosts that share a storage account", () => {
  let azurite: TestStorage;
  beforeAll(async () => {
    azurite = await openStorage(["hosttimers"]);
  });
  afterAll(() => azurite.stop());

  it("fire a timer in one host only, and in the other host after the first stops", async () => {
    const data = await createDataFolder();
    const env = { AzureWebJobsStorage: azurite.connectionString(), OFTEN: "00:00:00.2" };
    const first = await startHost(data, env, ["--timer-lease", "10"]);
    await first.waitForReports("often", 1);
    const second = await startHost(data, env, ["--timer-lease", "10"]);
    await first.waitForReports("often", 4);
    expect(second.lines.some((line) => line.startsWith('{"saw":"often"'))).toBe(false);
    expect(await first.stop()).toBe(0);
    await second.waitForReports("often", 1);
  });

  it("take over the lease of a killed host only after it expired", async () => {
    const connection = azurite.connectionString();
    const [killed, other] = [1, 2].map(() => createTimerLease(connection, "takeover", 4)) as [
      ReturnType<typeof createTimerLease>,
      ReturnType<typeof createTimerLease>,
    ];
    expect(await killed.acquire("t")).toBe(true);
    expect(await other.acquire("t")).toBe(false);
    // The host renews its lease once. Then it is killed, so the lease of 4 seconds expires.
    expect(await killed.acquire("t")).toBe(true);
    await expect.poll(() => other.acquire("t"), POLL_OPTIONS).toBe(true);
    expect(await killed.acquire("t")).toBe(false);
  });
});
