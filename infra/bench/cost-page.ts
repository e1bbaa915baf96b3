import { leastCalls, PER_VAULT, VAULTS } from "../../test/support/measured-company.ts";

/** Figures of BENCHMARKS.md from which the cost is calculated. */
const COUNTED = [
  "calls, first full scan",
  "calls, unchanged full scan",
  "calls, unchanged delta",
  "table requests per asset, first scan",
  "table requests per vault, unchanged full scan",
  "table requests per vault, unchanged delta",
  "messages of a scan, unchanged delta",
  "executions of timers a day",
  "table requests of timers a day",
  "calls of Microsoft Graph, unchanged",
  "table requests, unchanged",
  "first copy, calls per record",
  "nothing changed, calls per record",
  "nothing changed, table requests per record",
  "table requests of a call, by an API token",
];

/** Daily scans of the default schedules: four delta scans and one full scan. The score is recorded every hour. */
const SCANS = 5;
const HOURS = 24;
const DAYS = 30;
/** Billed seconds of a timer run, at least, on an instance with half a gigabyte. A scan takes some seconds more. */
const TIMER_SECONDS = 1;
const SCAN_SECONDS = 20;
const MEMORY_GB = 0.5;
/** Number of pages of subscriptions and vaults that each scan of the measured company reads. */
const PLAN_CALLS = 4;

/** Returns the page `docs/cost.md`, with all parts calculated from the current figures of BENCHMARKS.md. */
export function costPage(page: string, benchmarks: string): string {
  const figures = new Map(
    [...benchmarks.matchAll(/^\| (.+?) +\| (.+?) +\|/gm)].map(([, what, figure]) => [what!, figure!]),
  );
  const figure = (what: string): string => {
    const found = figures.get(what);
    if (found === undefined) throw new Error(`BENCHMARKS.md has no figure "${what}".`);
    return found;
  };
  const number = (what: string): number => Number.parseFloat(figure(what));
  const counted = COUNTED.map((what) => `| ${what} | ${figure(what)} |`);

  const delta = number("table requests per vault, unchanged delta");
  const full = number("table requests per vault, unchanged full scan");
  const asset = number("table requests per asset, first scan");
  const timers = number("executions of timers a day");
  const timerRequests = number("table requests of timers a day");
  const call = number("table requests of a call, by an API token");
  // A scheduled scan has one more message, with which its timer requests it.
  const scanMessages = number("messages of a scan, unchanged delta") + 1;
  const record = number("nothing changed, table requests per record");

  const lists = leastCalls().lists - PLAN_CALLS;
  const all = leastCalls().full - PLAN_CALLS;
  const details = Math.round((all - lists - VAULTS) / 7);
  const operations = SCANS * lists + details;
  const requests = Math.round((SCANS - 1) * delta * VAULTS + full * VAULTS + timerRequests);
  const messages = SCANS * scanMessages + HOURS;
  const executions = timers + messages;
  const seconds = [timers * TIMER_SECONDS * MEMORY_GB, SCANS * SCAN_SECONDS * MEMORY_GB] as const;

  const parts: Record<string, string> = {
    counted: ["| what | figure |", "| --- | --- |", ...counted].join("\n"),
    day: [
      "```",
      "Key Vault operations   = 5 · V · lists + V · details / 7 + 2 · (changed keys) + (changed certificates)",
      `table transactions     = ${SCANS - 1} · ${delta} · V + ${full} · V + ${asset} · (new assets) + ${text(timerRequests)} + calls of the API · (${call} + reads of the answer)`,
      "queue operations       = 3 · messages + polls of empty queues",
      `messages               = ${SCANS} scans · (${scanMessages} + messages for more workers) + ${HOURS} + alerts, rotations and syncs`,
      `executions             = ${text(timers)} + messages + calls of the API`,
      "GB-seconds             = memory · (seconds in which an instance works, at least 1 each time)",
      "```",
    ].join("\n"),
    pro: `PRO adds ${figure("table requests, unchanged")} table transactions a day for applications without changes, and calls of Microsoft Graph, which are free. A sync record without\nchanges costs ${record} table transactions, a message and 2 calls per run: one charged by Key Vault, one by the target's provider. Reads of Azure\nResource Manager, at most one per vault and run, are free. A rotation costs some dozens of each.`,
    example: [
      `${VAULTS} vaults of ${PER_VAULT} assets, no changes, no API calls, ten workers, instances of 512 MB:`,
      "",
      "| | a day | a month of 30 days | price |",
      "| --- | --- | --- | --- |",
      `| Key Vault operations | ${SCANS} · ${lists} + ${details} = ${text(operations)} | ${text(DAYS * operations)} | ${price(operations)} · \`pK\` |`,
      `| table transactions | ${SCANS - 1} · ${delta} · ${VAULTS} + ${full} · ${VAULTS} + ${text(timerRequests)} = ${text(requests)} | ${text(DAYS * requests)} | ${price(requests)} · \`pT\` |`,
      `| messages | ${SCANS} · ${scanMessages} + ${HOURS} = ${text(messages)} | ${text(DAYS * messages)} | ${text(3 * DAYS * messages)} operations: ${price(3 * messages)} · \`pQ\`; plus polls of empty queues |`,
      `| executions | ${text(timers)} + ${messages} = ${text(executions)} | ${text(DAYS * executions)} | ${((DAYS * executions) / 1e6).toFixed(2)} · \`pE\`, minus the free amount |`,
      `| GB-seconds | timers: ${text(timers)} · ${TIMER_SECONDS} · ${MEMORY_GB} = ${text(seconds[0])}; scans: ${SCANS} · ${SCAN_SECONDS} · ${MEMORY_GB} = ${text(seconds[1])} | ${text(DAYS * (seconds[0] + seconds[1]))} | ${text(DAYS * (seconds[0] + seconds[1]))} · \`pG\`, minus the free amount |`,
    ].join("\n"),
    first: `- **The first scan** writes ${asset} · \`A\` transactions once: ${text(asset * 100_000)} for 100,000 assets.`,
  };
  return Object.entries(parts).reduce((whole, [name, part]) => {
    const pattern = new RegExp(`(<!-- ${name} -->\\n)[\\s\\S]*?(\\n<!-- /${name} -->)`);
    if (!pattern.test(whole)) throw new Error(`docs/cost.md has no part "${name}".`);
    return whole.replace(pattern, (_, begin: string, end: string) => `${begin}${part}${end}`);
  }, page);
}

const text = (value: number): string => Math.round(value).toLocaleString("en-US");
/** Price for 10,000 operations, times the operations per month. */
const price = (aDay: number): string => ((DAYS * aDay) / 10_000).toFixed(2);
