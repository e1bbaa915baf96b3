import { setTimeout as delay } from "node:timers/promises";
import { parseCrontab } from "functions-host/ncrontab.ts";
import { scheduleOf } from "../../functions/declare.ts";
import { declarations } from "../../functions/functions.ts";
import { loadConfig } from "../../shared/platform/config/config.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { licence } from "../../test/support/licence.ts";
import { MEASURED_COMPANY, PER_VAULT, VAULTS } from "../../test/support/measured-company.ts";
import { Service } from "../../test/support/service.ts";
import { atMost, type Figure, type Section } from "./section.ts";

/** Timers that are not run here, because other benchmarks count the work that they start. */
const COUNTED_ELSEWHERE = [
  "startDeltaScan",
  "startFullScan",
  "discoverAllApplications",
  "discoverChangedApplications",
  "discoverAllDependencies",
  "discoverChangedDependencies",
];
/** Timers that send a message. The host processes it within five seconds. */
const SEND_MESSAGE = ["startReconciliation", "evaluateDueCompliance"];
/** Runs of each timer. Other timers of the host can run during a measurement, so the smallest count is used. */
const ROUNDS = 3;
/** A timer's work is done when no table request arrives for this long, or for `MESSAGE_MS` if the timer sends a message. */
const QUIET_MS = 300;
const MESSAGE_MS = 6000;

/**
 * Benchmark `rest` (the service at rest): counts the table requests that the timers of a service cause on a day without
 * changes.
 */
export async function measureIdleDay(): Promise<Section> {
  const service = await Service.start({
    tableProxy: true,
    company: MEASURED_COMPANY,
    env: { LICENSE_KEY: await licence() },
  });
  try {
    await service.scan({ mode: "full" }, 300_000);
    const defaults = loadConfig({
      AzureWebJobsStorage: "unused",
      JWT_SIGNING_KEYS: service.environment.JWT_SIGNING_KEYS,
    });
    const timers: { name: string; times: number; requests: number | undefined }[] = [];
    for (const { name, schedule } of (await declarations()).timers) {
      const requests = COUNTED_ELSEWHERE.includes(name) ? undefined : await countRequests(service, name);
      timers.push({ name, times: timesADay(scheduleOf({ schedule }, defaults)), requests });
    }
    const executions = timers.reduce((sum, { times }) => sum + times, 0);
    const requests = timers.reduce((sum, { times, requests = 0 }) => sum + times * requests, 0);
    return {
      title: "A day without changes",
      how: `${VAULTS} vaults of ${PER_VAULT} assets, scanned and evaluated, with a PRO license, without alert rules, rotations and sync records. Table requests of each timer and its messages: the least of ${ROUNDS} runs, times the default schedule. Nothing is due: sealing ten minutes of the audit log, and each part of the reconciliation, cost more.`,
      figures: [
        {
          what: "executions of timers a day",
          value: String(executions),
          comparedWith: "",
          bound: atMost(executions, 4000),
        },
        {
          what: "table requests of timers a day",
          value: String(requests),
          comparedWith: "scans and discoveries left out",
          bound: atMost(requests, 30_000),
        },
        ...timers.map(
          ({ name, times, requests }): Figure => ({
            what: `timer ${name}`,
            value: requests === undefined ? `${times} a day` : `${times} a day, ${requests} table requests each`,
            comparedWith: requests === undefined ? "starts work that is counted separately" : String(times * requests),
          }),
        ),
      ],
    };
  } finally {
    await service.stop();
  }
}

/** Runs a timer several times and returns the smallest number of table requests of a run. */
async function countRequests(service: Service, timer: string): Promise<number> {
  let fewestRequests = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round++) {
    service.clearTableRequests();
    const response = await fetch(`${service.url}/__host/timers/${timer}`, { method: "POST" });
    if (!response.ok) throw new Error(`The timer ${timer} answered ${response.status}.`);
    // Waits until no further table request arrives during a pause.
    for (
      let countBefore = -1;
      countBefore !== service.tableRequests().length;
      await delay(SEND_MESSAGE.includes(timer) ? MESSAGE_MS : QUIET_MS)
    ) {
      countBefore = service.tableRequests().length;
    }
    fewestRequests = Math.min(fewestRequests, service.tableRequests().length);
  }
  return fewestRequests;
}

/** Returns how often a schedule runs on an ordinary day: a Wednesday, not the first day of a month. */
function timesADay(expression: string): number {
  const schedule = parseCrontab(expression);
  const dayStart = Date.UTC(2027, 2, 10);
  let times = 0;
  let run = schedule.next(new Date(dayStart - 1));
  for (; run && run.getTime() < dayStart + DAY_MS; run = schedule.next(run)) times++;
  return times;
}
