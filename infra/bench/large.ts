import { countedScan } from "../../test/support/counted-scan.ts";
import { Service } from "../../test/support/service.ts";
import { processFigures, withProcessorTime } from "./process.ts";
import { atMost, equalTo, type Figure, median, peakMemory, processorTime, ratio, type Section } from "./section.ts";

/** 571 vaults of 140 assets and one of 20,000: 99,940 in all. */
const COMPANY = { vaults: 571, secrets: 100, keys: 15, certificates: 25, bigVault: 20_000, subscriptions: 8 };
const ASSETS = 571 * 140 + 20_000;
/** How often each query is asked. */
const RUNS = 5;
const QUERIES = [
  "",
  "?type=secret",
  "?status=critical",
  "?vault=kv-big",
  "?type=key&status=warning",
  "?type=secret&status=expired&vault=kv-big",
  "?sort=expiresOn",
  "?offset=3000",
];

/** A scan of 100,000 assets: memory, then what each query of them costs. */
export async function large(): Promise<Section> {
  const service = await Service.start({ company: COMPANY });
  try {
    const { result, ms } = await withProcessorTime(service.url, () =>
      countedScan(service, { mode: "full" }, 1_500_000),
    );
    const { scan, tables } = result;
    const { memory } = await processFigures(service.url);
    const found = scan.progress.assetsFound as number;
    const seconds = (Date.parse(scan.finishedAt) - Date.parse(scan.startedAt)) / 1000;
    const figures: Figure[] = [
      {
        what: "assets found",
        value: `${found}, ${scan.status}`,
        comparedWith: `${ASSETS} there`,
        bound: equalTo(found, ASSETS),
      },
      peakMemory("peak resident memory of the functions process", memory.peak),
      {
        what: "table requests per asset",
        value: ratio(tables.length, found),
        comparedWith: `${tables.length} requests`,
        bound: atMost(tables.length / found, 0.15),
      },
      processorTime("processor time per 1,000 assets", (1000 * ms) / found, 1000, `${(ms / 1000).toFixed(0)} s in all`),
      {
        what: "seconds",
        value: seconds.toFixed(0),
        comparedWith: "Azurite's writes, which slow down as its tables grow",
        bound: atMost(seconds, 900, " s"),
      },
    ];
    for (const query of QUERIES) {
      const times: number[] = [];
      let count = 0;
      const { ms: queryMs } = await withProcessorTime(service.url, async () => {
        for (let run = 0; run < RUNS; run++) {
          service.forgetTables();
          const begun = performance.now();
          await service.admin("GET", `/api/assets/discovery/assets${query}`);
          times.push(performance.now() - begun);
          count = service.tableRequests().length;
        }
      });
      figures.push({
        what: `assets${query}: table requests`,
        value: `${count}, in ${Math.round(median(times))} ms`,
        comparedWith: "authentication included (rate limit off)",
        bound: atMost(count, query.includes("offset") ? 10 : 7),
      });
      figures.push(processorTime(`assets${query}: processor time`, queryMs / RUNS, 200, `of ${RUNS} the mean`));
    }
    return {
      title: "100,000 assets",
      how: "One vault of 20,000 among them, Azurite in memory. Table requests per query are what the bound is about; Azurite reads its whole table for every page, so its milliseconds say nothing of Azure.",
      figures,
    };
  } finally {
    await service.stop();
  }
}
