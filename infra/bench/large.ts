import { runCountedScan } from "../../test/support/counted-scan.ts";
import { Service } from "../../test/support/service.ts";
import { processFigures, smallInstance, withProcessorTime } from "./process.ts";
import { atMost, equalTo, type Figure, median, peakMemory, processorTime, ratio, type Section } from "./section.ts";

/** 571 vaults with 140 assets and one with 20,000: 99,940 assets. */
const COMPANY = { vaults: 571, secrets: 100, keys: 15, certificates: 25, bigVault: 20_000, subscriptions: 8 };
const ASSETS = 571 * 140 + 20_000;
/** Number of times that each query is sent. */
const RUNS = 5;
/** Maximum bytes that the summary reads from tables. Most of them are the totals of 572 vaults. */
const MAX_SUMMARY_BYTES = 1_048_576;
/** Queries of the inventory, with the maximum number of table requests and the maximum processor time in milliseconds. */
const QUERIES: readonly (readonly [query: string, requests: number, ms: number])[] = [
  ["", 7, 200],
  ["?type=secret", 7, 200],
  // Also reads the renewed certificates that are late or expired, one request per 1,000. Here these are 4,000.
  ["?status=critical", 12, 330],
  ["?vault=kv-big", 7, 200],
  ["?type=key&status=warning", 7, 200],
  ["?type=secret&status=expired&vault=kv-big", 7, 200],
  ["?sort=expiresOn", 7, 200],
  // Skips 3,000 rows to find the first asset of the page.
  ["?offset=3000", 10, 330],
];

/** Benchmark `large`: measures the first full scan of 100,000 assets, and then the cost of each query of the inventory. */
export async function large(): Promise<Section> {
  const service = await Service.start({ tableProxy: true, company: COMPANY, hosts: 0 });
  await service.addHost(smallInstance(service.environment));
  try {
    const { result, ms } = await withProcessorTime(service.url, () =>
      runCountedScan(service, { mode: "full" }, 1_500_000),
    );
    const { scan, tables } = result;
    const { memory } = await processFigures(service.url);
    const assetsFound = scan.progress.assetsFound as number;
    const seconds = (Date.parse(scan.finishedAt) - Date.parse(scan.startedAt)) / 1000;
    const figures: Figure[] = [
      {
        what: "assets found",
        value: `${assetsFound}, ${scan.status}`,
        comparedWith: `${ASSETS} in the vaults`,
        bound: equalTo(assetsFound, ASSETS),
      },
      peakMemory("peak resident memory of the functions process", memory.peak),
      {
        what: "table requests per asset",
        value: ratio(tables.length, assetsFound),
        comparedWith: `${tables.length} requests`,
        bound: atMost(tables.length / assetsFound, 0.15),
      },
      processorTime(
        "processor time per 1,000 assets",
        (1000 * ms) / assetsFound,
        1000,
        `${(ms / 1000).toFixed(0)} s in all`,
      ),
      {
        what: "seconds",
        value: seconds.toFixed(0),
        comparedWith: "Azurite's writes, which slow down as its tables grow",
        bound: atMost(seconds, 900, " s"),
      },
    ];
    for (const [query, requests, ms] of QUERIES) {
      const path = `/api/assets/discovery/assets${query}`;
      figures.push(...(await measureQuery(service, `assets${query}`, path, { requests, ms })));
    }
    // Six requests, in addition to the one for authentication.
    const most = { requests: 7, ms: 200, bytes: MAX_SUMMARY_BYTES };
    figures.push(...(await measureQuery(service, "summary", "/api/assets/summary", most)));
    return {
      title: "100,000 assets",
      how: "One vault has 20,000 assets. V8's heap and the memory of the C library are limited as on an instance with 512 MB. Azurite is in memory. The bounds are about table requests per query. Azurite reads its whole table for every page, so its times don't apply to Azure.",
      figures,
    };
  } finally {
    await service.stop();
  }
}

/**
 * Sends a GET request several times and returns its figures: table requests of the last run, including authentication, and the
 * mean processor time.
 *
 * @param most - The bounds. `bytes`: of all table responses of the last run, not measured if omitted.
 */
async function measureQuery(
  service: Service,
  what: string,
  path: string,
  most: { requests: number; ms: number; bytes?: number },
): Promise<Figure[]> {
  const times: number[] = [];
  const { result: requests, ms } = await withProcessorTime(service.url, async () => {
    service.clearTableRequests();
    for (let run = 1; ; run++) {
      const started = performance.now();
      const { tableRequests } = await service.admin("GET", path);
      times.push(performance.now() - started);
      if (run === RUNS) return tableRequests();
    }
  });
  const bytes = requests.reduce((sum, request) => sum + request.answered, 0);
  const figures: Figure[] = [
    {
      what: `${what}: table requests`,
      value: `${requests.length}, in ${Math.round(median(times))} ms`,
      comparedWith: "authentication included (rate limit off)",
      bound: atMost(requests.length, most.requests),
    },
    processorTime(`${what}: processor time`, ms / RUNS, most.ms, `of ${RUNS} the mean`),
  ];
  if (most.bytes !== undefined) {
    figures.push({
      what: `${what}: bytes read`,
      value: `${Math.round(bytes / 1024)} KiB`,
      comparedWith: "all answers of the tables",
      bound: atMost(Math.round(bytes / 1024), most.bytes / 1024, " KiB"),
    });
  }
  return figures;
}
