import { minimumCalls, PER_VAULT, SECRETS_PER_VAULT, VAULTS } from "../../test/support/measured-company.ts";

/** Figures of BENCHMARKS.md that docs/cost.md lists, by the text of their first column. The costs are calculated from them. */
const LISTED_FIGURES = [
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

/** Daily scans of the default schedules: four delta scans and one full scan. */
const SCANS_PER_DAY = 5;
/** Messages that record the compliance score: one every hour. */
const SCORE_MESSAGES_PER_DAY = 24;
const DAYS_PER_MONTH = 30;
/** Billed seconds of one timer run: the platform's minimum. */
const TIMER_SECONDS = 1;
/** Billed seconds of one scan, estimated. */
const SCAN_SECONDS = 20;
/** Memory of the smallest instance, which the platform bills for each second. */
const MEMORY_GB = 0.5;
/** Resource Manager calls of each scan of the measured company: its pages of subscriptions and vaults. They are free. */
const FREE_CALLS_PER_SCAN = 4;
/** Days within which full scans refresh the details of every asset once: the default of DETAIL_REFRESH_DAYS. */
const DETAIL_REFRESH_DAYS = 7;
/** An average message costs three queue operations: send, receive and delete. */
const OPERATIONS_PER_MESSAGE = 3;

/** Vaults in the table of prices. */
const PRICED_VAULTS = [50, 500, 5_000];
/** Seconds for which an instance works on one vault of 140 assets in one scan, estimated. */
const VAULT_SECONDS = 0.25;
/**
 * List prices in US dollars, for the table of prices. docs/cost.md says when and where each was read, and which ones were not
 * verified. Prices of an hour are multiplied by HOURS_PER_MONTH.
 */
const PRICES = {
  keyVaultOperations: 0.03 / 10_000,
  tableTransactions: 0.00045 / 10_000,
  gigabyteSeconds: 0.000026,
  freeGigabyteSeconds: 100_000,
  alertRule: 0.5,
  privateEndpointHour: 0.01,
  privateZone: 0.5,
  awsSecret: 0.4,
  defenderKeyVault: 0.25,
};
const HOURS_PER_MONTH = 730;
/** Alert rules of the templates, and private endpoints with their zones, without App Configuration. */
const [ALERT_RULES, ENDPOINTS] = [4, 4];

/**
 * Returns the text of docs/cost.md with the parts between `<!-- name -->` comments replaced by the current figures of
 * BENCHMARKS.md. `npm run bench` calls it after a measurement.
 */
export function costPage(page: string, benchmarks: string): string {
  const figures = new Map(
    [...benchmarks.matchAll(/^\| (.+?) +\| (.+?) +\|/gm)].map(([, what, figure]) => [what!, figure!]),
  );
  const figure = (what: string): string => {
    const value = figures.get(what);
    if (value === undefined) throw new Error(`BENCHMARKS.md has no figure "${what}".`);
    return value;
  };
  const number = (what: string): number => Number.parseFloat(figure(what));
  const listedRows = LISTED_FIGURES.map((what) => `| ${what} | ${figure(what)} |`);

  const deltaRequestsPerVault = number("table requests per vault, unchanged delta");
  const fullRequestsPerVault = number("table requests per vault, unchanged full scan");
  const requestsPerAsset = number("table requests per asset, first scan");
  const timers = number("executions of timers a day");
  const timerRequests = number("table requests of timers a day");
  const requestsPerApiCall = number("table requests of a call, by an API token");
  // A scheduled scan has one more message: its timer sends it to request the scan.
  const scanMessages = number("messages of a scan, unchanged delta") + 1;
  const requestsPerSyncRecord = number("nothing changed, table requests per record");

  const lists = minimumCalls().lists - FREE_CALLS_PER_SCAN;
  const fullScanCalls = minimumCalls().full - FREE_CALLS_PER_SCAN;
  // A full scan calls Azure Resource Manager once per vault; those calls are free.
  const details = Math.round((fullScanCalls - lists - VAULTS) / DETAIL_REFRESH_DAYS);
  const operations = SCANS_PER_DAY * lists + details;
  const requests = Math.round(
    (SCANS_PER_DAY - 1) * deltaRequestsPerVault * VAULTS + fullRequestsPerVault * VAULTS + timerRequests,
  );
  const messages = SCANS_PER_DAY * scanMessages + SCORE_MESSAGES_PER_DAY;
  const executions = timers + messages;
  const seconds = [timers * TIMER_SECONDS * MEMORY_GB, SCANS_PER_DAY * SCAN_SECONDS * MEMORY_GB] as const;

  // Symbols of the page: V vaults, A assets, and pK, pT, pQ, pE, pG for the prices of operations, transactions and so on.
  const parts: Record<string, string> = {
    counted: ["| what | figure |", "| --- | --- |", ...listedRows].join("\n"),
    day: [
      "```",
      "Key Vault operations   = 5 · V · lists + V · details / 7 + 2 · (changed keys) + 2 · (changed certificates)",
      `table transactions     = ${SCANS_PER_DAY - 1} · ${deltaRequestsPerVault} · V + ${fullRequestsPerVault} · V + ${requestsPerAsset} · (new assets) + ${formatNumber(timerRequests)} + calls of the API · (${requestsPerApiCall} + reads of the answer)`,
      "queue operations       = 3 · messages + polls of empty queues",
      `messages               = ${SCANS_PER_DAY} scans · (${scanMessages} + messages for more workers) + ${SCORE_MESSAGES_PER_DAY} + alerts, rotations and syncs`,
      `executions             = ${formatNumber(timers)} + messages + calls of the API`,
      "GB-seconds             = memory · (seconds in which an instance works, at least 1 each time)",
      "```",
    ].join("\n"),
    pro: `PRO adds ${figure("table requests, unchanged")} table transactions a day for applications without changes, and calls of Microsoft Graph, which are free. A sync record without\nchanges costs ${requestsPerSyncRecord} table transactions, a message and 2 calls per run: one charged by Key Vault, one by the target's provider. Reads of Azure\nResource Manager, at most one per vault and run, are free. A rotation costs some dozens of each.`,
    example: [
      `${VAULTS} vaults of ${PER_VAULT} assets, no changes, no API calls, ten workers, instances of 512 MB:`,
      "",
      "| | a day | a month of 30 days | price |",
      "| --- | --- | --- | --- |",
      `| Key Vault operations | ${SCANS_PER_DAY} · ${lists} + ${details} = ${formatNumber(operations)} | ${formatNumber(DAYS_PER_MONTH * operations)} | ${priceFactor(operations)} · \`pK\` |`,
      `| table transactions | ${SCANS_PER_DAY - 1} · ${deltaRequestsPerVault} · ${VAULTS} + ${fullRequestsPerVault} · ${VAULTS} + ${formatNumber(timerRequests)} = ${formatNumber(requests)} | ${formatNumber(DAYS_PER_MONTH * requests)} | ${priceFactor(requests)} · \`pT\` |`,
      `| messages | ${SCANS_PER_DAY} · ${scanMessages} + ${SCORE_MESSAGES_PER_DAY} = ${formatNumber(messages)} | ${formatNumber(DAYS_PER_MONTH * messages)} | ${formatNumber(OPERATIONS_PER_MESSAGE * DAYS_PER_MONTH * messages)} operations: ${priceFactor(OPERATIONS_PER_MESSAGE * messages)} · \`pQ\`; plus polls of empty queues |`,
      `| executions | ${formatNumber(timers)} + ${messages} = ${formatNumber(executions)} | ${formatNumber(DAYS_PER_MONTH * executions)} | ${((DAYS_PER_MONTH * executions) / 1e6).toFixed(2)} · \`pE\`, minus the free amount |`,
      `| GB-seconds | timers: ${formatNumber(timers)} · ${TIMER_SECONDS} · ${MEMORY_GB} = ${formatNumber(seconds[0])}; scans: ${SCANS_PER_DAY} · ${SCAN_SECONDS} · ${MEMORY_GB} = ${formatNumber(seconds[1])} | ${formatNumber(DAYS_PER_MONTH * (seconds[0] + seconds[1]))} | ${formatNumber(DAYS_PER_MONTH * (seconds[0] + seconds[1]))} · \`pG\`, minus the free amount |`,
    ].join("\n"),
    first: `- **The first scan** writes ${requestsPerAsset} · \`A\` transactions once: ${formatNumber(requestsPerAsset * 100_000)} for 100,000 assets.`,
  };
  const detailsPerVault = fullScanCalls / VAULTS - 1 - lists / VAULTS;
  const rows = PRICED_VAULTS.map((vaults) => {
    const keyVault =
      DAYS_PER_MONTH * vaults * (SCANS_PER_DAY * (lists / VAULTS) + detailsPerVault / DETAIL_REFRESH_DAYS);
    const tables =
      DAYS_PER_MONTH * (vaults * ((SCANS_PER_DAY - 1) * deltaRequestsPerVault + fullRequestsPerVault) + timerRequests);
    const work = DAYS_PER_MONTH * MEMORY_GB * (timers * TIMER_SECONDS + SCANS_PER_DAY * vaults * VAULT_SECONDS);
    const prices = [
      keyVault * PRICES.keyVaultOperations,
      tables * PRICES.tableTransactions,
      Math.max(0, work - PRICES.freeGigabyteSeconds) * PRICES.gigabyteSeconds,
      ALERT_RULES * PRICES.alertRule,
    ];
    const total = prices.reduce((sum, price) => sum + price, 0);
    const network = ENDPOINTS * (PRICES.privateEndpointHour * HOURS_PER_MONTH + PRICES.privateZone);
    const compared = [vaults * SECRETS_PER_VAULT * PRICES.awsSecret, vaults * PRICES.defenderKeyVault];
    const cells = [...prices, total, total + network].map((price) => price.toFixed(2));
    return `| ${formatNumber(vaults)} (${formatNumber(vaults * PER_VAULT)}) | ${[...cells, ...compared.map(formatNumber)].join(" | ")} |`;
  });
  parts.prices = [
    "| vaults (assets) | Key Vault | tables | executions | alert rules | **total** | with `networkEnabled` | AWS Secrets Manager | Defender for Key Vault |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ...rows,
  ].join("\n");
  return Object.entries(parts).reduce((whole, [name, part]) => {
    const pattern = new RegExp(`(<!-- ${name} -->\\n)[\\s\\S]*?(\\n<!-- /${name} -->)`);
    if (!pattern.test(whole)) throw new Error(`docs/cost.md has no part "${name}".`);
    return whole.replace(pattern, (_, begin: string, end: string) => `${begin}${part}${end}`);
  }, page);
}

const formatNumber = (value: number): string => Math.round(value).toLocaleString("en-US");
/** Returns the factor by which a month multiplies the price of 10,000 operations, given the operations per day. */
const priceFactor = (aDay: number): string => ((DAYS_PER_MONTH * aDay) / 10_000).toFixed(2);
