import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type RunningHost, runHost } from "functions-host/test/run-host.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import { startAzurite } from "../../infra/local/azurite.ts";
import { parseJsonLine, startProcess } from "../../infra/local/processes.ts";
import { startTableProxy } from "./table-proxy.ts";
import { TEST_APP } from "./test-app.ts";

/*
 * Starts the built app with storage and a simulated cloud as separate processes, whose clocks a test moves. The functions process
 * can be killed at a write or during an operation of the simulated cloud.
 */

const DAY_MS = 86_400_000;
const INFRA = path.resolve(import.meta.dirname, "../../infra");
const ADMIN = { username: "admin", password: "correct-horse-battery" };
/** Milliseconds after which the other processes use a moved clock. */
const CLOCK_MOVED_MS = 150;
/** Time by which the clock moves ahead after a kill, so that the leases of the killed process expire. */
const AFTER_A_KILL_MS = 3 * 60_000;
/** Maximum time in milliseconds until all pending deliveries are sent. */
const DELIVERY_TIMEOUT_MS = 150_000;
/** Milliseconds that the simulated cloud delays the operation during which the process is killed. */
const OPERATION_MS = 5000;

/** A `kill -9` of the functions process on one day, during an evaluation of alerts or a scan. */
export interface Kill {
  day: number;
  during: "alerts" | "scan";
  /**
   * The moment of the kill: at a write to the tables, counted from 1, which is applied or not, or during an operation of the
   * simulated cloud, which completes. For example, `mail.getOperation` is the first status request of an accepted mail.
   */
  at: { write: number; applied: boolean } | { operation: string };
}

export type KillableApp = Awaited<ReturnType<typeof startKillableApp>>;

/** Starts the processes and signs in as the administrator. */
export async function startKillableApp(company: Company) {
  const folder = mkdtempSync(path.join(tmpdir(), "killable-app-"));
  const clock = movedClock(path.join(folder, "clock"));
  const preload = `--import=${new URL("../../infra/local/moved-clock.mjs", import.meta.url).href}`;
  await clock.set(0);
  writeFileSync(path.join(folder, "company.json"), JSON.stringify(company));
  const azurite = await startAzurite({ environment: { ...clock.environment, NODE_OPTIONS: preload } });
  const tables = await startTableProxy(azurite.connectionString());
  const data = path.join(folder, "cloud");
  mkdirSync(data);
  const cloud = await startProcess(
    "The simulated cloud",
    [
      process.execPath,
      path.join(INFRA, "simulated-cloud/main.ts"),
      "--data",
      data,
      "--ready-json",
      "--company",
      path.join(folder, "company.json"),
    ],
    { environment: { PATH: process.env.PATH, ...clock.environment, NODE_OPTIONS: preload }, isReady: parseJsonLine },
  );
  const { environment, controlUrl } = cloud.ready as { environment: Record<string, string>; controlUrl: string };
  const control = <T>(method: string, route: string, body?: object) => json<T>(method, `${controlUrl}/${route}`, body);

  let host: RunningHost | undefined;
  const startHost = async () => {
    host = await runHost({
      app: TEST_APP,
      env: {
        ...environment,
        ...clock.environment,
        NODE_OPTIONS: `${environment.NODE_OPTIONS} ${preload}`,
        AzureWebJobsStorage: tables.connectionString,
        ...secrets,
        BOOTSTRAP_ADMIN_USERNAME: ADMIN.username,
        BOOTSTRAP_ADMIN_PASSWORD: ADMIN.password,
        RATE_LIMIT_PER_MINUTE: "0",
        RATE_LIMIT_PER_HOUR: "0",
        // Once a year, so that only the requested scans run.
        DELTA_SCAN_SCHEDULE: "0 0 0 1 7 *",
        FULL_SCAN_SCHEDULE: "0 0 0 1 7 *",
        SCHEDULE_JITTER_SECONDS: "0",
        FIRST_SCAN: "off",
        ALLOW_PRIVATE_WEBHOOK_ADDRESSES: "true",
        // Days are short here, so queues are polled often.
        AzureFunctionsJobHost__extensions__queues__maxPollingInterval: "00:00:00.3000000",
      },
      // One data folder: timers that were due while no host ran are past due at the next start, as on the platform.
      args: ["--data", path.join(folder, "host"), "--lease", "1", "--inspect-modules", "--quiet"],
    });
  };
  const secrets = {
    JWT_SIGNING_KEYS: `test:${randomBytes(32).toString("base64")}`,
    AUDIT_SIGNING_KEYS: `test:${randomBytes(32).toString("base64")}`,
  };

  let token = "";
  const signIn = async () => {
    token = (await json<{ access_token: string }>("POST", `${host!.url}/auth/login`, ADMIN)).access_token;
  };
  /** Calls the API as the administrator, and signs in again when the moved clock has passed the token's expiry. */
  const admin = async <T>(method: string, route: string, body?: object): Promise<T> => {
    try {
      return await json<T>(method, host!.url + route, body, token);
    } catch (error) {
      if (!(error instanceof HttpError && error.status === 401)) throw error;
      await signIn();
      return await json<T>(method, host!.url + route, body, token);
    }
  };
  /** Runs the timer that evaluates the alert rules. */
  const evaluateRules = async () => {
    const { succeeded } = await json<{ succeeded: boolean }>("POST", `${host!.url}/__host/timers/evaluateAlerts`);
    if (!succeeded) throw new Error(`The rules could not be evaluated:\n${host!.lines.slice(-20).join("\n")}`);
  };
  /** Waits until all notifications are delivered. */
  const waitForDeliveries = async () => {
    const deadline = performance.now() + DELIVERY_TIMEOUT_MS;
    for (;;) {
      const { total } = await admin<{ total: number }>("GET", "/alerts/history?status=pending&limit=1");
      if (total === 0) return;
      if (performance.now() > deadline) throw new Error(`${total} deliveries are still pending`);
      await delay(100);
    }
  };
  const startScan = (mode: string) => admin<{ scanId: string }>("POST", "/api/assets/discovery/scan", { mode });
  const waitForScan = async (scanId: string) => {
    for (;;) {
      const { status } = await admin<{ status: string }>("GET", `/api/assets/discovery/scan/${scanId}/status`);
      if (status === "completed") return;
      if (status !== "queued" && status !== "running") throw new Error(`The scan ended as ${status}`);
      await delay(200);
    }
  };

  const kills: string[] = [];
  const kill = (how: string): Promise<unknown> => {
    kills.push(how);
    return host!.stop("SIGKILL");
  };
  /** Kills the process at its n-th write to the tables, counted from now. */
  const killAtWrite = (write: number, applied: boolean, when: string) =>
    new Promise<unknown>((resolve, reject) => {
      let writes = 0;
      tables.fail([applied ? "LostAnswer" : "ServerBusy"], ({ method, path: table }) => {
        if (method === "GET" || table.startsWith("LocalHostLeases") || ++writes < write) return false;
        kill(`${when} at write ${write} to the tables, ${applied ? "made" : "not made"}`).then(resolve, reject);
        return true;
      });
    });
  /** Kills the process while it waits for a response that a fault delays, unless the work completes first. */
  const killInFault = async (fault: string, how: string, workEnded: AbortSignal): Promise<void> => {
    while (!workEnded.aborted) {
      const faults = await control<{ id: string; happened: number }[]>("GET", "faults");
      if (faults.some(({ id, happened }) => id === fault && happened > 0)) {
        await kill(how);
        return;
      }
      await delay(20);
    }
  };
  /** Delays the next call of an operation of the simulated cloud, and returns the id of the fault. */
  const delayOperation = async (operation: string): Promise<string> => {
    const fault = { match: { operation }, action: { kind: "latency", milliseconds: OPERATION_MS }, times: 1 };
    return (await control<{ id: string }>("POST", "faults", fault)).id;
  };
  /** Runs the work, kills the process during it, and then starts a new process. */
  const runWithKill = async ({ day, during, at }: Kill, work: () => Promise<void>) => {
    await admin("GET", "/alerts/rules"); // Signs in first, so that the following writes belong to the work.
    const killsBefore = kills.length;
    const when = `day ${day}, ${during},`;
    const workEnded = new AbortController();
    const killing =
      "write" in at
        ? killAtWrite(at.write, at.applied, when)
        : killInFault(await delayOperation(at.operation), `${when} in ${at.operation}`, workEnded.signal);
    // A failure of the work is expected after the kill. Success after the kill, or a failure before it, is an error.
    try {
      await work();
    } catch (error) {
      if (kills.length === killsBefore) throw error;
    } finally {
      workEnded.abort();
    }
    if (kills.length === killsBefore) throw new Error(`${when} the work ended before the process could be killed`);
    await killing;
    await clock.set(day * DAY_MS + AFTER_A_KILL_MS);
    await startHost();
  };

  const stop = async () => {
    await host?.stop("SIGKILL");
    await cloud.stop();
    await tables.stop();
    await azurite.stop();
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await startHost();
    await signIn();
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    clock,
    control,
    controlUrl,
    /** The folder with one JSON file for each mail that the simulated cloud accepted. */
    mailFolder: path.join(data, "mails"),
    /** Day and moment of each kill. */
    kills,
    admin,
    evaluateRules,
    waitForDeliveries,
    startScan,
    waitForScan,
    runWithKill,
    stop,
  };
}

/**
 * Creates a clock for the other processes. The clock starts at the last 10:00 UTC, so that results don't depend on the hour of
 * the run.
 */
function movedClock(file: string) {
  const ten = new Date();
  ten.setUTCHours(10, 0, 0, 0);
  const first = ten.getTime() - (ten.getTime() > Date.now() ? DAY_MS : 0) - Date.now();
  let offset = first;
  return {
    environment: { MOVED_CLOCK_FILE: file },
    now: () => Date.now() + offset,
    /** @param milliseconds - Offset from the start. */
    async set(milliseconds: number): Promise<void> {
      offset = first + milliseconds;
      writeFileSync(`${file}.new`, String(offset));
      renameSync(`${file}.new`, file);
      await delay(CLOCK_MOVED_MS);
    },
  };
}

class HttpError extends Error {
  readonly status: number;
  constructor(what: string, status: number, text: string) {
    super(`${what} answered ${status}: ${text}`);
    this.status = status;
  }
}

async function json<T>(method: string, address: string, body?: object, token?: string): Promise<T> {
  const answer = await fetch(address, {
    method,
    headers: {
      ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new HttpError(`${method} ${address}`, answer.status, text);
  return JSON.parse(text) as T;
}
