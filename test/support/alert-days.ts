import { readdirSync } from "node:fs";
import type { Company } from "simulated-cloud/company/company.ts";
import type { ReceivedRequest } from "simulated-cloud/webhook-sink.ts";
import { type Kill, type KillableApp, startKillableApp } from "./killable-app.ts";

/*
 * Runs the built app over many simulated days, to check that each alert rule sends each notification exactly once, also if the
 * process is killed. Tests and benchmarks of alerts call `runDays`.
 */

const DAY_MS = 86_400_000;
const ASSET_KINDS = ["secrets", "keys", "certificates"] as const;
/** Names of the alert rules: immediate mail, daily digest by mail, and webhook. */
const RULES = ["immediate", "digest", "webhook"] as const;
/** The day on which the first asset expires, counted from the first day. Expiry times lie halfway between two evaluations. */
const FIRST_EXPIRY_DAY = -2.5;
/** The expiry dates of the assets are spread over this many days. */
const EXPIRY_DAYS = 100;

export interface DaysOptions {
  days: number;
  assets: number;
  vaults: number;
  kills: readonly Kill[];
  /**
   * Days on which a scan runs before the evaluation. Before each of these scans, every fiftieth asset that is no certificate
   * gets a new expiry date.
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
  /** When each kill happened: the day, and the write or operation. */
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
  const app = await startKillableApp(companyOf(options));
  const { clock, control, admin, evaluateRules, waitForDeliveries, startScan, waitForScan, runWithKill } = app;
  try {
    await waitForScan((await startScan("full")).scanId);
    const expiryDates = new Map<string, ExpiryDate[]>();
    for (const { name, expires } of await itemsOf(options, control))
      expiryDates.set(name, [{ name, expires, from: 0, until: Number.POSITIVE_INFINITY }]);

    const created = clock.now();
    const ids = await createRules(app, options);

    const evaluations: number[] = [];
    let renewed = 0;
    for (let day = 0; day < options.days; day++) await runDay(day);
    await expectNoFurtherNotification();

    const mails = await control<{ to: string[]; plainText: string; operationId: string }[]>("GET", "mails");
    const webhookRequests = await control<ReceivedRequest[]>("GET", "sink/days");
    const rules: RuleOutcome[] = [];
    for (const rule of RULES) rules.push(await compareRule(rule));
    const mailFiles = readdirSync(app.mailFolder).filter((name) => name.endsWith(".json")).length;
    return { rules, assets: expiryDates.size, renewed, scans: options.scans.length + 1, kills: app.kills, mailFiles };

    /**
     * Moves the clock to a day, runs its scan if it has one, and evaluates the rules. Kills the process if the options say so.
     */
    async function runDay(day: number): Promise<void> {
      await clock.set(day * DAY_MS);
      // The service reads the time from storage's responses. A response makes the service notice the new day.
      await admin("GET", "/auth/me");
      const killOf = (during: Kill["during"]) => options.kills.find((one) => one.day === day && one.during === during);
      if (options.scans.includes(day)) {
        renewed += await renew(app, options, expiryDates, day);
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
      const history = await historyOf(app, ids[rule]!);
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

    /** Evaluates the rules again at the same time, and expects that they send no further notification. */
    async function expectNoFurtherNotification(): Promise<void> {
      const countEntries = async () => (await admin<{ total: number }>("GET", "/alerts/history?limit=1")).total;
      const countBefore = await countEntries();
      await evaluateRules();
      await waitForDeliveries();
      if ((await countEntries()) !== countBefore)
        throw new Error("Another evaluation of the last day sent notifications again");
    }
  } finally {
    await app.stop();
  }
}

/** Creates the three rules. Returns their IDs by name. */
async function createRules(
  { admin, controlUrl }: KillableApp,
  { thresholds }: DaysOptions,
): Promise<Record<string, string>> {
  const ids: Record<string, string> = {};
  for (const rule of RULES) {
    const createdRule = await admin<{ id: string }>("POST", "/alerts/rules", {
      name: rule,
      alertType: "expiration",
      // Only thresholds: other tests cover renewals.
      tellRecovery: false,
      thresholds: thresholds[rule],
      ...(rule === "webhook"
        ? { deliveryMethod: "webhook", webhookUrl: `${new URL(controlUrl).origin}/sink/days` }
        : { deliveryMethod: "email", recipients: [`${rule}@acme.example`] }),
      ...(rule === "digest" ? { deliveryMode: "digest", digestFrequency: "daily" } : { deliveryMode: "immediate" }),
    });
    ids[rule] = createdRule.id;
  }
  return ids;
}

/**
 * Sets the expiry date of every fiftieth asset except certificates to 40.5 days ahead, halfway between two evaluations. Returns
 * the number of these assets.
 */
async function renew(
  { control }: KillableApp,
  options: DaysOptions,
  expiryDates: ReadonlyMap<string, ExpiryDate[]>,
  day: number,
): Promise<number> {
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

/** Returns the number of entries in a rule's alert history, the notifications that they report, and the undelivered ones. */
async function historyOf({ admin }: KillableApp, ruleId: string) {
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

const nameOf = (index: number): string => `asset-${String(index).padStart(4, "0")}`;
const vaultOf = (index: number, { vaults }: DaysOptions): string =>
  `kv-days-${Math.floor(index / ASSET_KINDS.length) % vaults}`;

function companyOf(options: DaysOptions): Company {
  const vaults = Array.from({ length: options.vaults }, (_, vault) => {
    const name = `kv-days-${vault}`;
    const items = (kind: (typeof ASSET_KINDS)[number]) =>
      Array.from({ length: options.assets }, (_, index) => index)
        .filter((index) => vaultOf(index, options) === name && ASSET_KINDS[index % ASSET_KINDS.length] === kind)
        // Steps of 37 days spread neighboring assets, and reach each of the 100 days, because 37 and 100 have no common factor.
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
 * Returns the notifications that a rule must send for one expiry date. On each day this is the lowest crossed threshold, unless
 * the rule has notified for it or for a lower one.
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

/** Matches the number of days in the reason of a notification about an expiry. */
export const NOTIFIED_THRESHOLD = /because: it (?:expires within|has expired, and the rule notifies) (\d+)/;

/** Returns the notifications in a mail. */
function notificationsInMail({ plainText }: { plainText: string }): string[] {
  const lines = plainText.matchAll(/^(?:EXPIRED|WITHIN \d+ (?:HOURS|DAYS)|LATER): [^/\s]+\/(\S+).*\n(.*)$/gm);
  return [...lines].flatMap(([, name, facts]) => {
    const expires = /Expire[sd]: (.+?), (\d\d:\d\d) UTC/.exec(facts!);
    const threshold = NOTIFIED_THRESHOLD.exec(facts!)?.[1];
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
