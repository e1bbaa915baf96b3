import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type RunningHost, runHost } from "functions-host/test/run-host.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import type { ReceivedRequest } from "simulated-cloud/webhook-sink.ts";
import { startAzurite } from "../../infra/local/azurite.ts";
import { jsonLine, start } from "../../infra/local/processes.ts";
import { startTableProxy } from "./table-proxy.ts";
import { TEST_APP } from "./test-app.ts";

const DAY_MS = 86_400_000;
const INFRA = path.resolve(import.meta.dirname, "../../infra");
const ADMIN = { username: "admin", password: "correct-horse-battery" };
/** Longer than a moved clock takes a process to notice. */
const NOTICED_MS = 150;
/** More milliseconds than a process needs to notice a moved clock. */
const AFTER_A_KILL_MS = 3 * 60_000;
const DRAINED_MS = 150_000;
/** Milliseconds that the simulated cloud delays the operation during which the process is killed. */
const OPERATION_MS = 5000;
const TYPES = ["secrets", "keys", "certificates"] as const;
/** The first asset expires this many days before the first day. Expiry times lie halfway between two evaluations. */
const FIRST_EXPIRY_DAY = -2.5;
const EXPIRY_DAYS = 100;

/** A `kill -9` of the functions process on one day, during an evaluation of alerts or a scan. */
export interface Kill {
  day: number;
  during: "alerts" | "scan";
  /**
   * The kill happens at the n-th write to the tables, counted from 1, which is applied or not. Or it happens during an
   * operation of the simulated cloud, which completes, such as `mail.getOperation`, the first status request of an accepted
   * mail.
   */
  at: { write: number; applied: boolean } | { operation: string };
}

export interface DaysOptions {
  days: number;
  assets: number;
  vaults: number;
  kills: readonly Kill[];
  /**
   * Days on which a scan runs before the evaluation. Before each of these scans, every fiftieth secret or key gets a new expiry
   * date.
   */
  scans: readonly number[];
  thresholds: { immediate: number[]; digest: number[]; webhook: number[] };
}

export interface RuleOutcome {
  rule: keyof DaysOptions["thresholds"];
  expected: number;
  told: number;
  /** Notifications (asset, expiry, threshold) that are missing, and notifications that are duplicates or unexpected. */
  missing: string[];
  extra: string[];
  /** Number of stored mails, or of requests to the webhook. */
  messages: number;
  /** Number of different webhook IDs, or of different operation IDs of mails. */
  distinct: number;
  deliveries: number;
  /** Differences between the alert history and the received notifications. */
  historyDiffers: string[];
}

export interface DaysOutcome {
  rules: RuleOutcome[];
  assets: number;
  renewed: number;
  scans: number;
  /** Day and place of each kill. */
  kills: string[];
  mailFiles: number;
}

/** An expiry date of an asset, and the days on which the service knows this date. */
interface Life {
  name: string;
  expires: number;
  from: number;
  until: number;
}

/**
 * Runs the built app over many days within minutes, with three alert rules: immediate mail, daily digest by mail, and webhook.
 * Storage, the functions process and the simulated cloud are separate processes, and their clocks are moved day by day.
 */
export async function runDays(options: DaysOptions): Promise<DaysOutcome> {
  const folder = mkdtempSync(path.join(tmpdir(), "days-"));
  const clock = movedClock(path.join(folder, "clock"));
  const preload = `--import=${new URL("../../infra/local/moved-clock.mjs", import.meta.url).href}`;
  await clock.set(0);
  writeFileSync(path.join(folder, "company.json"), JSON.stringify(companyOf(options)));
  const azurite = await startAzurite({ environment: { ...clock.environment, NODE_OPTIONS: preload } });
  const tables = await startTableProxy(azurite.connectionString());
  const data = path.join(folder, "cloud");
  mkdirSync(data);
  const cloud = await start(
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
    { environment: { PATH: process.env.PATH, ...clock.environment, NODE_OPTIONS: preload }, isReady: jsonLine },
  );
  const { environment, controlUrl } = cloud.ready as { environment: Record<string, string>; controlUrl: string };
  const control = <T>(method: string, at: string, body?: object) => json<T>(method, `${controlUrl}/${at}`, body);

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
  const admin = async <T>(method: string, at: string, body?: object): Promise<T> => {
    try {
      return await json<T>(method, host!.url + at, body, token);
    } catch (error) {
      if (!(error instanceof Refused && error.status === 401)) throw error;
      await signIn();
      return await json<T>(method, host!.url + at, body, token);
    }
  };
  const fire = async () => {
    const { succeeded } = await json<{ succeeded: boolean }>("POST", `${host!.url}/__host/timers/evaluateAlerts`);
    if (!succeeded) throw new Error(`The rules could not be evaluated:\n${host!.lines.slice(-20).join("\n")}`);
  };
  const drained = async () => {
    const end = performance.now() + DRAINED_MS;
    for (;;) {
      const { total } = await admin<{ total: number }>("GET", "/alerts/history?status=pending&limit=1");
      if (total === 0) return;
      if (performance.now() > end) throw new Error(`${total} deliveries are still pending`);
      await delay(100);
    }
  };
  const startScan = (mode: string) => admin<{ scanId: string }>("POST", "/api/assets/discovery/scan", { mode });
  const scanEnds = async (scanId: string) => {
    for (;;) {
      const { status } = await admin<{ status: string }>("GET", `/api/assets/discovery/scan/${scanId}/status`);
      if (status === "completed") return;
      if (status !== "queued" && status !== "running") throw new Error(`The scan ended as ${status}`);
      await delay(200);
    }
  };

  const killed: string[] = [];
  const kill = (how: string): Promise<unknown> => {
    killed.push(how);
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
  const killInFault = async (fault: string, how: string, through: AbortSignal): Promise<void> => {
    while (!through.aborted) {
      const faults = await control<{ id: string; happened: number }[]>("GET", "faults");
      if (faults.some(({ id, happened }) => id === fault && happened > 0)) {
        await kill(how);
        return;
      }
      await delay(20);
    }
  };
  const holdBack = async (operation: string): Promise<string> => {
    const fault = { match: { operation }, action: { kind: "latency", milliseconds: OPERATION_MS }, times: 1 };
    return (await control<{ id: string }>("POST", "faults", fault)).id;
  };
  /** Runs the work while a kill is pending, and then starts a new process. */
  const killedIn = async ({ day, during, at }: Kill, work: () => Promise<void>) => {
    await admin("GET", "/alerts/rules"); // Signs in first, so that the following writes belong to the work.
    const before = killed.length;
    const when = `day ${day}, ${during},`;
    const through = new AbortController();
    const death =
      "write" in at
        ? killAtWrite(at.write, at.applied, when)
        : killInFault(await holdBack(at.operation), `${when} in ${at.operation}`, through.signal);
    // A failure of the work is expected after the kill. Success after the kill, or a failure before it, is an error.
    try {
      await work();
    } catch (error) {
      if (killed.length === before) throw error;
    } finally {
      through.abort();
    }
    if (killed.length === before) throw new Error(`${when} the process was through before it could be killed`);
    await death;
    await clock.set(day * DAY_MS + AFTER_A_KILL_MS);
    await startHost();
  };

  try {
    await startHost();
    await signIn();
    await scanEnds((await startScan("full")).scanId);
    const lives = new Map<string, Life[]>();
    for (const { name, expires } of await itemsOf(options, control))
      lives.set(name, [{ name, expires, from: 0, until: Number.POSITIVE_INFINITY }]);

    const created = clock.now();
    const ids: Record<string, string> = {};
    for (const rule of ["immediate", "digest", "webhook"] as const) {
      const made = await admin<{ id: string }>("POST", "/alerts/rules", {
        name: rule,
        alertType: "expiration",
        // Only thresholds: other tests cover renewals.
        tellRecovery: false,
        thresholds: options.thresholds[rule],
        ...(rule === "webhook"
          ? { deliveryMethod: "webhook", webhookUrl: `${new URL(controlUrl).origin}/sink/days` }
          : { deliveryMethod: "email", recipients: [`${rule}@acme.example`] }),
        ...(rule === "digest" ? { deliveryMode: "digest", digestFrequency: "daily" } : { deliveryMode: "immediate" }),
      });
      ids[rule] = made.id;
    }

    const evaluations: number[] = [];
    let renewed = 0;
    for (let day = 0; day < options.days; day++) {
      await clock.set(day * DAY_MS);
      // The service reads the time from storage's responses. A response makes the service notice the new day.
      await admin("GET", "/auth/me");
      const killOf = (during: Kill["during"]) => options.kills.find((one) => one.day === day && one.during === during);
      if (options.scans.includes(day)) {
        renewed += await renew(day);
        let scanId = "";
        const scan = async () => {
          scanId = (await startScan("delta")).scanId;
          await scanEnds(scanId);
        };
        const inTheWay = killOf("scan");
        if (inTheWay) {
          await killedIn(inTheWay, scan);
          await scanEnds(scanId === "" ? (await startScan("delta")).scanId : scanId);
        } else await scan();
      }
      evaluations.push(clock.now());
      const tell = async () => {
        await fire();
        await drained();
      };
      const inTheWay = killOf("alerts");
      if (inTheWay) {
        await killedIn(inTheWay, tell);
        // Past due timers evaluate at the same time as this call, so another evaluation runs when they have ended.
        await tell();
      }
      await tell();
    }
    await tellNothingMore();

    const mails = await control<{ to: string[]; plainText: string; operationId: string }[]>("GET", "mails");
    const sunk = await control<ReceivedRequest[]>("GET", "sink/days");
    const rules: RuleOutcome[] = [];
    for (const rule of ["immediate", "digest", "webhook"] as const) {
      // The digest of a day is created at 06:00, and the first day starts after that.
      const from = rule === "digest" ? 1 : 0;
      const expected = [...lives.values()]
        .flat()
        .flatMap((life) => tellingsOf(life, options.thresholds[rule], [...evaluations.entries()].slice(from), created));
      const mine = mails.filter(({ to }) => to[0] === `${rule}@acme.example`);
      const posts = new Map(sunk.map(({ headers, body }) => [headers["webhook-id"]!, body]));
      const history = await historyOf(ids[rule]!);
      const named = rule === "webhook" ? [...posts.values()].flatMap(tellingsPosted) : mine.flatMap(tellingsMailed);
      // Items that don't fit into a mail are in the history.
      const counted = mine.reduce(
        (sum, mail) => sum + Number(/^(\d+) more items? (?:is|are) not shown/m.exec(mail.plainText)?.[1] ?? 0),
        0,
      );
      const told = [...named, ...without(history.told, named).slice(0, counted)];
      const received = rule === "webhook" ? posts.size : mine.length;
      rules.push({
        rule,
        expected: expected.length,
        told: told.length,
        missing: without(expected, told),
        extra: without(told, expected),
        messages: rule === "webhook" ? sunk.length : mine.length,
        distinct: rule === "webhook" ? posts.size : new Set(mine.map(({ operationId }) => operationId)).size,
        deliveries: history.entries,
        historyDiffers: [
          ...without(told, history.told).map((telling) => `lacks ${telling}`),
          ...without(history.told, told).map((telling) => `has ${telling}`),
          ...history.undelivered.map((id) => `${id} is not delivered`),
          ...(history.entries === received ? [] : [`${history.entries} entries for ${received} messages`]),
        ],
      });
    }
    const mailFiles = readdirSync(path.join(data, "mails")).filter((name) => name.endsWith(".json")).length;
    return { rules, assets: lives.size, renewed, scans: options.scans.length + 1, kills: killed, mailFiles };

    /** Sets the expiry date of every fiftieth asset except certificates to 40 days ahead. The name stays the same. */
    async function renew(day: number): Promise<number> {
      let count = 0;
      for (let index = day % 50; index < options.assets; index += 50) {
        const kind = TYPES[index % TYPES.length]!;
        const name = nameOf(index);
        if (kind === "certificates") continue;
        const vault = vaultOf(index, options);
        const items = await control<{ name: string; expires: string }[]>("POST", `vaults/${vault}/${kind}`, {
          name,
          expiresInDays: 40.5,
        });
        const expires = Date.parse(items.find((item) => item.name === name)!.expires);
        const known = lives.get(name)!;
        known.at(-1)!.until = day;
        known.push({ name, expires, from: day, until: Number.POSITIVE_INFINITY });
        count++;
      }
      return count;
    }

    /**
     * A repeated evaluation at the same time has nothing to send. If the last run was interrupted by another one, this shows
     * it.
     */
    async function tellNothingMore(): Promise<void> {
      const count = async () => (await admin<{ total: number }>("GET", "/alerts/history?limit=1")).total;
      const before = await count();
      await fire();
      await drained();
      if ((await count()) !== before) throw new Error("Another evaluation of the last day sent notifications again");
    }

    async function historyOf(ruleId: string) {
      const entries: { id: string; status: string }[] = [];
      let cursor: string | null = null;
      do {
        const page: { items: typeof entries; nextCursor: string | null } = await admin(
          "GET",
          `/alerts/history?rule_id=${ruleId}&limit=25${cursor === null ? "" : `&cursor=${cursor}`}`,
        );
        entries.push(...page.items);
        cursor = page.nextCursor;
      } while (cursor !== null);
      const told: string[] = [];
      for (const { id } of entries) {
        const { items } = await admin<{ items: { id: string; expiresOn: string; thresholdDays: number }[] }>(
          "GET",
          `/alerts/history/${id}`,
        );
        told.push(...items.map((one) => telling(one.id.split(".")[2]!, Date.parse(one.expiresOn), one.thresholdDays)));
      }
      const undelivered = entries.filter(({ status }) => status !== "delivered").map(({ id }) => id);
      return { entries: entries.length, told, undelivered };
    }
  } finally {
    await host?.stop("SIGKILL");
    await cloud.stop();
    await tables.stop();
    await azurite.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A clock of other processes. The clock starts at the last 10:00 UTC, so that results don't depend on the hour of the run. */
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
      await delay(NOTICED_MS);
    },
  };
}

const nameOf = (index: number): string => `asset-${String(index).padStart(4, "0")}`;
const vaultOf = (index: number, { vaults }: DaysOptions): string =>
  `kv-days-${Math.floor(index / TYPES.length) % vaults}`;

function companyOf(options: DaysOptions): Company {
  const vaults = Array.from({ length: options.vaults }, (_, vault) => {
    const name = `kv-days-${vault}`;
    const items = (kind: (typeof TYPES)[number]) =>
      Array.from({ length: options.assets }, (_, index) => index)
        .filter((index) => vaultOf(index, options) === name && TYPES[index % TYPES.length] === kind)
        .map((index) => ({ name: nameOf(index), expiresInDays: FIRST_EXPIRY_DAY + ((index * 37) % EXPIRY_DAYS) }));
    return { name, secrets: items("secrets"), keys: items("keys"), certificates: items("certificates") };
  });
  return { subscriptions: [{ name: "Days", vaults }] };
}

/** Returns every asset of the cloud, as the expected state of the service. */
async function itemsOf(options: DaysOptions, control: <T>(method: string, at: string) => Promise<T>) {
  const found: { name: string; expires: number }[] = [];
  for (let vault = 0; vault < options.vaults; vault++) {
    for (const kind of TYPES) {
      const items = await control<{ name: string; expires: string }[]>("GET", `vaults/kv-days-${vault}/${kind}`);
      found.push(...items.map(({ name, expires }) => ({ name, expires: Date.parse(expires) })));
    }
  }
  return found;
}

const telling = (name: string, expires: number, threshold: number): string =>
  `${name}, expires ${new Date(expires).toISOString().slice(0, 16)}, threshold ${threshold}`;

/**
 * Returns the notifications that a rule must send for one expiry date: on each day the lowest crossed threshold, unless the
 * rule has notified for it or for a lower one.
 */
function tellingsOf(
  { name, expires, from, until }: Life,
  thresholds: readonly number[],
  evaluations: [day: number, instant: number][],
  created: number,
): string[] {
  const told: number[] = [];
  let last = created;
  for (const [day, now] of evaluations) {
    const crossed = thresholds.filter((days) => expires - now <= days * DAY_MS);
    const lowest = Math.min(...crossed);
    // An asset that had expired before the rule's last evaluation belongs to rules for `expired`.
    if (day >= from && day < until && expires > last && crossed.length > 0 && lowest < Math.min(...told))
      told.push(lowest);
    last = now;
  }
  return told.map((threshold) => telling(name, expires, threshold));
}

/** Returns the notifications in a mail. */
function tellingsMailed({ plainText }: { plainText: string }): string[] {
  const lines = plainText.matchAll(/^(?:ACT NOW|URGENT|SOON|NOTICE): [^/\s]+\/(\S+).*\n(.*)$/gm);
  return [...lines].flatMap(([, name, facts]) => {
    const expires = /Expire[sd]: (.+?), (\d\d:\d\d) UTC/.exec(facts!);
    const threshold = /Threshold: (\d+)/.exec(facts!)?.[1];
    // A renewal has no threshold.
    if (!expires || threshold === undefined) return [];
    return [telling(name!, Date.parse(`${expires[1]} ${expires[2]} UTC`), Number(threshold))];
  });
}

function tellingsPosted(body: string): string[] {
  const { data } = JSON.parse(body) as {
    data: { items: { name: string; expiresOn: string; thresholdDays: number }[] };
  };
  return data.items.map((item) => telling(item.name, Date.parse(item.expiresOn), item.thresholdDays));
}

/** Returns the items that occur more often in the first list than in the second. */
function without(list: readonly string[], taken: readonly string[]): string[] {
  const left = new Map<string, number>();
  for (const one of taken) left.set(one, (left.get(one) ?? 0) + 1);
  return list.filter((one) => {
    const count = left.get(one) ?? 0;
    left.set(one, count - 1);
    return count <= 0;
  });
}

class Refused extends Error {
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
  if (!answer.ok) throw new Refused(`${method} ${address}`, answer.status, text);
  return JSON.parse(text) as T;
}
