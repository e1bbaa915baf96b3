import { mkdir, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { openStorage, type TestStorage } from "../../../test/support/storage.ts";
import { parseSchedule } from "../schedule.ts";
import { createTimerLease } from "../timer-lease.ts";
import { startStatus } from "../timer-status.ts";
import { type RunningHost, runHost } from "./run-host.ts";

// Every test starts processes: time for a machine that is busy with others.
const PATIENTLY = { timeout: 150_000 };

interface SeenTimer {
  schedule: object;
  scheduleStatus?: { last: string; next: string; lastUpdated: string } | null;
  isPastDue: boolean;
  running?: number;
}

const hosts: RunningHost[] = [];
afterEach(async () => {
  for (const host of hosts.splice(0)) await host.stop("SIGKILL");
});

async function start(data: string, env: Record<string, string> = {}, args: string[] = []): Promise<RunningHost> {
  const host = await runHost({ env, args: ["--data", data, ...args] });
  hosts.push(host);
  return host;
}

const freshData = () => mkdtemp(join(tmpdir(), "host-data-"));
const statusFile = (data: string) => join(data, "timers", "fixture-app", "daily.json");

async function recordStatus(data: string, status: { Last: string; Next: string }): Promise<void> {
  await mkdir(join(data, "timers", "fixture-app"), { recursive: true });
  await writeFile(statusFile(data), JSON.stringify({ ...status, LastUpdated: status.Last }));
}

describe("a timer", () => {
  it("fires once at the start if it missed its time, with isPastDue, and its next time is stored", async () => {
    const data = await freshData();
    await recordStatus(data, { Last: "2026-01-01T03:00:00.000Z", Next: "2026-01-02T03:00:00.000Z" });
    const host = await start(data);
    const [seen] = await host.saw<SeenTimer>("daily", 1);
    expect(seen).toMatchObject({
      isPastDue: true,
      scheduleStatus: { last: "2026-01-01T03:00:00.000Z", next: "2026-01-02T03:00:00.000Z" },
    });
    await expect
      .poll(async () => Date.parse(JSON.parse(await readFile(statusFile(data), "utf8")).Next), PATIENTLY)
      .toBeGreaterThan(Date.now());
    await host.stop();
    const again = await start(data);
    await (await fetch(`${again.url}/plain`)).text();
    expect(again.lines.some((line) => line.startsWith('{"saw":"daily"'))).toBe(false);
  });

  it("does not fire at its first start, and its next time is stored", async () => {
    const data = await freshData();
    const host = await start(data);
    await expect.poll(() => readFile(statusFile(data), "utf8").catch(() => ""), PATIENTLY).toContain("T03:00:00.000Z");
    expect(host.lines.some((line) => line.startsWith('{"saw":"daily"'))).toBe(false);
  });

  it("has no stored status when it fires more than once a minute", async () => {
    const host = await start(await freshData(), { OFTEN: "00:00:00.2" });
    const seen = await host.saw<SeenTimer>("often", 2);
    expect(seen[0]).toMatchObject({ schedule: { adjustForDST: true }, scheduleStatus: null, isPastDue: false });
  });

  it("never overlaps with itself and continues when a run overruns its interval or fails", async () => {
    const host = await start(await freshData(), { OFTEN: "00:00:00.1", OFTEN_MS: "250" });
    const seen = await host.saw<SeenTimer>("often", 3);
    expect(seen.map(({ running }) => running)).toEqual([1, 1, 1]);
  });

  it("with runOnStartup fires immediately, without isPastDue", async () => {
    const host = await start(await freshData(), { AT_START: "true" });
    expect(await host.saw<SeenTimer>("atStart", 1)).toMatchObject([{ isPastDue: false, scheduleStatus: null }]);
  });

  it("is retried in memory by its retry policy", async () => {
    const host = await start(await freshData(), {}, ["--inspect-modules"]);
    const answer = await fetch(`${host.url}/__host/timers/retried`, { method: "POST" });
    expect(await answer.json()).toEqual({ succeeded: false });
    expect(await host.saw("retried", 3)).toEqual([0, 1, 2]);
  });

  it("can be fired through the admin route", async () => {
    const host = await start(await freshData());
    const answer = await fetch(`${host.url}/admin/functions/daily`, { method: "POST", body: "{}" });
    expect(answer.status).toBe(202);
    expect(await host.saw<SeenTimer>("daily", 1)).toMatchObject([{ isPastDue: false }]);
  });

  it("with an invalid schedule is reported, and the other functions run", async () => {
    const host = await start(await freshData());
    await host.line((line) => line.includes("The listener for function 'badSchedule' was unable to start"));
    expect((await fetch(`${host.url}/plain`)).status).toBe(200);
  });
});

describe("the stored status", () => {
  const daily = parseSchedule("0 0 3 * * *", new Date("2026-05-05T12:00:00Z"));
  const now = new Date("2026-05-05T12:00:00Z");
  const record = (last: string, next: string) => ({ Last: last, Next: next, LastUpdated: last });

  it("is past due when the next time is in the past", () => {
    const { pastDue } = startStatus(record("2026-05-04T03:00:00Z", "2026-05-05T03:00:00.000Z"), daily, now);
    expect(pastDue).toBe(true);
  });

  it("is not past due when the schedule has changed", () => {
    const { pastDue, status } = startStatus(record("2026-05-04T03:00:00Z", "2026-05-04T04:00:00.000Z"), daily, now);
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

  it("fire a timer in one host, and in the other when the first stops", async () => {
    const data = await freshData();
    const env = { AzureWebJobsStorage: azurite.connectionString(), OFTEN: "00:00:00.2" };
    const first = await start(data, env, ["--timer-lease", "10"]);
    await first.saw("often", 1);
    const second = await start(data, env, ["--timer-lease", "10"]);
    await first.saw("often", 4);
    expect(second.lines.some((line) => line.startsWith('{"saw":"often"'))).toBe(false);
    expect(await first.stop()).toBe(0);
    await second.saw("often", 1);
  });

  it("take over an expired lease, but not a valid one", async () => {
    const connection = azurite.connectionString();
    const [killed, other] = [1, 2].map(() => createTimerLease(connection, "takeover", 4)) as [
      ReturnType<typeof createTimerLease>,
      ReturnType<typeof createTimerLease>,
    ];
    expect(await killed.acquire("t")).toBe(true);
    expect(await other.acquire("t")).toBe(false);
    expect(await killed.acquire("t")).toBe(true);
    await expect.poll(() => other.acquire("t"), PATIENTLY).toBe(true);
    expect(await killed.acquire("t")).toBe(false);
  });
});
