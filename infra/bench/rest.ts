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

/** Timers that start work that other benchmarks count. */
const BEGIN_WORK = [
  "startDeltaScan",
  "startFullScan",
  "discoverAllApplications",
  "discoverChangedApplications",
  "discoverAllDependencies",
  "discoverChangedDependencies",
];
/** Timers that send a message. The host processes it within five seconds. */
const BY_MESSAGE = ["startReconciliation", "evaluateDueCompliance"];
/** Number of runs. Other timers of the host can run during a measurement, so the smallest count is used. */
const ROUNDS = 3;
const QUIET_MS = 300;
const MESSAGE_MS = 6000;

/** Measures the timers of a service for a day without changes. */
export async function rest(): Promise<Section> {
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
    const counted: { name: string; times: number; requests: number | undefined }[] = [];
    for (const { name, schedule } of (await declarations()).timers) {
      const requests = BEGIN_WORK.includes(name) ? undefined : await requestsOf(service, name);
      counted.push({ name, times: timesADay(scheduleOf({ schedule }, defaults)), requests });
    }
    const executions = counted.reduce((sum, { times }) => sum + times, 0);
    const requests = counted.reduce((sum, { times, requests = 0 }) => sum + times * requests, 0);
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
        ...counted.map(
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

async function requestsOf(service: Service, timer: string): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round++) {
    service.forgetTables();
    const answer = await fetch(`${service.url}/__host/timers/${timer}`, { method: "POST" });
    if (!answer.ok) throw new Error(`The timer ${timer} answered ${answer.status}.`);
    for (
      let seen = -1;
      seen !== service.tableRequests().length;
      await delay(BY_MESSAGE.includes(timer) ? MESSAGE_MS : QUIET_MS)
    ) {
      seen = service.tableRequests().length;
    }
    least = Math.min(least, service.tableRequests().length);
  }
  return least;
}

/** Returns how often a schedule runs on an ordinary day. */
function timesADay(expression: string): number {
  const schedule = parseCrontab(expression);
  const day = Date.UTC(2027, 2, 10);
  let times = 0;
  for (let at = schedule.next(new Date(day - 1)); at && at.getTime() < day + DAY_MS; at = schedule.next(at)) times++;
  return times;
}
