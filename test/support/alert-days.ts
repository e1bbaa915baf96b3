import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type RunningHost, runHost } from "functions-host/test/run-host.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import type { ReceivedRequest } from "simulated-cloud/webhook-sink.ts";
import { startAzurite } from "../../infra/local/azurite.ts";
import { parseJsonLine, startProcess } from "../../infra/local/processes.ts";
import { startTableProxy } from "./table-proxy.ts";
import { TEST_APP } from "./test-app.ts";

/*
 * Runs the built app over many simulated days, to check that each alert rule sends each notification exactly once, also if the
 * process is killed. Tests and benchmarks of alerts call `runDays`.
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
const ASSET_KINDS = ["secrets", "keys", "certificates"] as const;
/** Names of the alert rules: immediate mail, daily digest by mail, and webhook. */
const RULES = ["immediate", "digest", "webhook"] as const;
/** The day on which the first asset expires, counted from the first day. Expiry times lie halfway between two evaluations. */
const FIRST_EXPIRY_DAY = -2.5;
/** The expiry dates of the assets are spread over this many days. */
const EXPIRY_DAYS = 100;

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
  /** Number of notifications that the rule should have sent, and of those that it sent. */
  expected: number;
  notified: number;
  /** Notifications (asset, expiry, threshold) that are missing, and notifications that are duplicates or unexpected. */
  missing: string[];
  extra: string[];
  /** Number of stored mails, or of requests to the webhook. */
  messages: number;
  /** Number of different webhook IDs, or of different operation IDs of mails. Less than `messages` if one was sent twice. */
  distinct: number;
  deliveries: number;
  /** Differences between the alert history and the received notifications. */
  historyDiffers: string[];
}

export interface DaysOutcome {
  rules: RuleOutcome[];
  assets: number;
  /** Number of expiry dates that were renewed between scans. */
  renewed: number;
  /** Number of scans, including the one before the first day. */
  scans: number;
  /** Day and place of each kill. */
  kills: string[];
  /** Number of mails that the simulated cloud stored. */
  mailFiles: number;
}

/** An expiry date of an asset. The service knows this date from the day `from` until before the day `until`. */
interface ExpiryDate {
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
      if (!(error instanceof HttpError && error.status === 401)) throw error;
      await signIn();
      return await json<T>(method, host!.url + at, body, token);
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

  try {
    await startHost();
    await signIn();
    await waitForScan((await startScan("full")).scanId);
    const expiryDates = new Map<string, ExpiryDate[]>();
    for (const { name, expires } of await itemsOf(options, control))
      expiryDates.set(name, [{ name, expires, from: 0, until: Number.POSITIVE_INFINITY }]);

    const created = clock.now();
    const ids = await createRules();

    const evaluations: number[] = [];
    let renewed = 0;
    for (let day = 0; day < options.days; day++) await runDay(day);
    await expectNoFurtherNotification();

    const mails = await control<{ to: string[]; plainText: string; operationId: string }[]>("GET", "mails");
    const webhookRequests = await control<ReceivedRequest[]>("GET", "sink/days");
    const rules: RuleOutcome[] = [];
    for (const rule of RULES) rules.push(await compareRule(rule));
    const mailFiles = readdirSync(path.join(data, "mails")).filter((name) => name.endsWith(".json")).length;
    return { rules, assets: expiryDates.size, renewed, scans: options.scans.length + 1, kills, mailFiles };

    /** Creates the three rules. Returns their IDs by name. */
    async function createRules(): Promise<Record<string, string>> {
      const ids: Record<string, string> = {};
      for (const rule of RULES) {
        const createdRule = await admin<{ id: string }>("POST", "/alerts/rules", {
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
        ids[rule] = createdRule.id;
      }
      return ids;
    }

    /** Moves the clock to a day, runs its scan if it has one, and evaluates the rules. Kills the process if the options say so. */
    async function runDay(day: number): Promise<void> {
      await clock.set(day * DAY_MS);
      // The service reads the time from storage's responses. A response makes the service notice the new day.
      await admin("GET", "/auth/me");
      const killOf = (during: Kill["during"]) => options.kills.find((one) => one.day === day && one.during === during);
      if (options.scans.includes(day)) {
        renewed += await renew(day);
        let scanId = "";
        const scan = async () => {
          scanId = (await startScan("delta")).scanId;
          await waitForScan(scanId);
        };
        const scanKill = killOf("scan");
        if (scanKill) {
          await runWithKill(scanKill, scan);
          await waitForScan(scanId === "" ? (await startScan("delta")).scanId : scanId);
        } else await scan();
      }
      evaluations.push(clock.now());
      const report = async () => {
        await evaluateRules();
        await waitForDeliveries();
      };
      const alertsKill = killOf("alerts");
      if (alertsKill) {
        await runWithKill(alertsKill, report);
        // Past due timers evaluate at the same time as this call, so another evaluation runs when they have ended.
        await report();
      }
      await report();
    }

    /** Compares the notifications that a rule must have sent with its messages and with the alert history. */
    async function compareRule(rule: (typeof RULES)[number]): Promise<RuleOutcome> {
      // The digest of a day is created at 06:00, and the first day starts after that.
      const from = rule === "digest" ? 1 : 0;
      const expected = [...expiryDates.values()]
        .flat()
        .flatMap((expiryDate) =>
          expectedNotifications(expiryDate, options.thresholds[rule], [...evaluations.entries()].slice(from), created),
        );
      const mailsOfRule = mails.filter(({ to }) => to[0] === `${rule}@acme.example`);
      const posts = new Map(webhookRequests.map(({ headers, body }) => [headers["webhook-id"]!, body]));
      const history = await historyOf(ids[rule]!);
      const namedInMessages =
        rule === "webhook"
          ? [...posts.values()].flatMap(notificationsInPost)
          : mailsOfRule.flatMap(notificationsInMail);
      // Items that don't fit into a mail are in the history.
      const countOfOmittedItems = mailsOfRule.reduce(
        (sum, mail) => sum + Number(/^(\d+) more items? (?:is|are) not shown/m.exec(mail.plainText)?.[1] ?? 0),
        0,
      );
      const reported = [
        ...namedInMessages,
        ...listDifference(history.reported, namedInMessages).slice(0, countOfOmittedItems),
      ];
      const received = rule === "webhook" ? posts.size : mailsOfRule.length;
      return {
        rule,
        expected: expected.length,
        notified: reported.length,
        missing: listDifference(expected, reported),
        extra: listDifference(reported, expected),
        messages: rule === "webhook" ? webhookRequests.length : mailsOfRule.length,
        distinct: rule === "webhook" ? posts.size : new Set(mailsOfRule.map(({ operationId }) => operationId)).size,
        deliveries: history.entries,
        historyDiffers: [
          ...listDifference(reported, history.reported).map((notification) => `lacks ${notification}`),
          ...listDifference(history.reported, reported).map((notification) => `has ${notification}`),
          ...history.undelivered.map((id) => `${id} is not delivered`),
          ...(history.entries === received ? [] : [`${history.entries} entries for ${received} messages`]),
        ],
      };
    }

    /** Sets the expiry date of every fiftieth asset except certificates to 40 days ahead. The name stays the same. */
    async function renew(day: number): Promise<number> {
      let count = 0;
      for (let index = day % 50; index < options.assets; index += 50) {
        const kind = ASSET_KINDS[index % ASSET_KINDS.length]!;
        const name = nameOf(index);
        if (kind === "certificates") continue;
        const vault = vaultOf(index, options);
        const items = await control<{ name: string; expires: string }[]>("POST", `vaults/${vault}/${kind}`, {
          name,
          expiresInDays: 40.5,
        });
        const expires = Date.parse(items.find((item) => item.name === name)!.expires);
        const datesOfAsset = expiryDates.get(name)!;
        datesOfAsset.at(-1)!.until = day;
        datesOfAsset.push({ name, expires, from: day, until: Number.POSITIVE_INFINITY });
        count++;
      }
      return count;
    }

    /** Evaluates the rules again at the same time, and expects that they send no further notification. */
    async function expectNoFurtherNotification(): Promise<void> {
      const countEntries = async () => (await admin<{ total: number }>("GET", "/alerts/history?limit=1")).total;
      const countBefore = await countEntries();
      await evaluateRules();
      await waitForDeliveries();
      if ((await countEntries()) !== countBefore)
        throw new Error("Another evaluation of the last day sent notifications again");
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
      const reported: string[] = [];
      for (const { id } of entries) {
        const { items } = await admin<{ items: { id: string; expiresOn: string; thresholdDays: number }[] }>(
          "GET",
          `/alerts/history/${id}`,
        );
        reported.push(
          ...items.map((one) => notification(one.id.split(".")[2]!, Date.parse(one.expiresOn), one.thresholdDays)),
        );
      }
      const undelivered = entries.filter(({ status }) => status !== "delivered").map(({ id }) => id);
      return { entries: entries.length, reported, undelivered };
    }
  } finally {
    await host?.stop("SIGKILL");
    await cloud.stop();
    await tables.stop();
    await azurite.stop();
    rmSync(folder, { recursive: true, force: true });
  }
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

const nameOf = (index: number): string => `asset-${String(index).padStart(4, "0")}`;
const vaultOf = (index: number, { vaults }: DaysOptions): string =>
  `kv-days-${Math.floor(index / ASSET_KINDS.length) % vaults}`;

function companyOf(options: DaysOptions): Company {
  const vaults = Array.from({ length: options.vaults }, (_, vault) => {
    const name = `kv-days-${vault}`;
    const items = (kind: (typeof ASSET_KINDS)[number]) =>
      Array.from({ length: options.assets }, (_, index) => index)
        .filter((index) => vaultOf(index, options) === name && ASSET_KINDS[index % ASSET_KINDS.length] === kind)
        .map((index) => ({ name: nameOf(index), expiresInDays: FIRST_EXPIRY_DAY + ((index * 37) % EXPIRY_DAYS) }));
    return { name, secrets: items("secrets"), keys: items("keys"), certificates: items("certificates") };
  });
  return { subscriptions: [{ name: "Days", vaults }] };
}

/** Returns every asset of the simulated cloud with its expiry date. */
async function itemsOf(options: DaysOptions, control: <T>(method: string, at: string) => Promise<T>) {
  const assets: { name: string; expires: number }[] = [];
  for (let vault = 0; vault < options.vaults; vault++) {
    for (const kind of ASSET_KINDS) {
      const items = await control<{ name: string; expires: string }[]>("GET", `vaults/kv-days-${vault}/${kind}`);
      assets.push(...items.map(({ name, expires }) => ({ name, expires: Date.parse(expires) })));
    }
  }
  return assets;
}

const notification = (name: string, expires: number, threshold: number): string =>
  `${name}, expires ${new Date(expires).toISOString().slice(0, 16)}, threshold ${threshold}`;

/**
 * Returns the notifications that a rule must send for one expiry date: on each day the lowest crossed threshold, unless the
 * rule has notified for it or for a lower one.
 */
function expectedNotifications(
  { name, expires, from, until }: ExpiryDate,
  thresholds: readonly number[],
  evaluations: [day: number, instant: number][],
  created: number,
): string[] {
  const notifiedThresholds: number[] = [];
  let lastEvaluation = created;
  for (const [day, evaluatedAt] of evaluations) {
    const crossedThresholds = thresholds.filter((days) => expires - evaluatedAt <= days * DAY_MS);
    const lowest = Math.min(...crossedThresholds);
    const isKnown = day >= from && day < until;
    // An asset that had expired before the rule's last evaluation belongs to rules for `expired`.
    const isNotExpiredYet = expires > lastEvaluation;
    if (isKnown && isNotExpiredYet && crossedThresholds.length > 0 && lowest < Math.min(...notifiedThresholds))
      notifiedThresholds.push(lowest);
    lastEvaluation = evaluatedAt;
  }
  return notifiedThresholds.map((threshold) => notification(name, expires, threshold));
}

/** Returns the notifications in a mail. */
function notificationsInMail({ plainText }: { plainText: string }): string[] {
  const lines = plainText.matchAll(/^(?:ACT NOW|URGENT|SOON|NOTICE): [^/\s]+\/(\S+).*\n(.*)$/gm);
  return [...lines].flatMap(([, name, facts]) => {
    const expires = /Expire[sd]: (.+?), (\d\d:\d\d) UTC/.exec(facts!);
    const threshold = /Threshold: (\d+)/.exec(facts!)?.[1];
    // A renewal has no threshold.
    if (!expires || threshold === undefined) return [];
    return [notification(name!, Date.parse(`${expires[1]} ${expires[2]} UTC`), Number(threshold))];
  });
}

/** Returns the notifications in a request to the webhook. */
function notificationsInPost(body: string): string[] {
  const { data } = JSON.parse(body) as {
    data: { items: { name: string; expiresOn: string; thresholdDays: number }[] };
  };
  return data.items.map((item) => notification(item.name, Date.parse(item.expiresOn), item.thresholdDays));
}

/** Returns the items that occur more often in the first list than in the second. */
function listDifference(list: readonly string[], taken: readonly string[]): string[] {
  const remainingCounts = new Map<string, number>();
  for (const item of taken) remainingCounts.set(item, (remainingCounts.get(item) ?? 0) + 1);
  return list.filter((item) => {
    const count = remainingCounts.get(item) ?? 0;
    remainingCounts.set(item, count - 1);
    return count <= 0;
  });
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
