import { setTimeout as delay } from "node:timers/promises";
import { Service } from "../../test/support/service.ts";
import { median, megabytes, ratio, type Section } from "./section.ts";

/** 571 vaults of 140 assets and one of 20,000: 99,940 in all. */
const COMPANY = { vaults: 571, secrets: 100, keys: 15, certificates: 25, bigVault: 20_000, subscriptions: 8 };
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

/** A scan of 100,000 assets: memory on the way, then what each query of them costs. */
export async function large(): Promise<Section> {
  const service = await Service.start({ company: COMPANY });
  try {
    let peak = 0;
    let scanning = true;
    const watching = (async () => {
      while (scanning) {
        const { memory } = (await (await fetch(`${service.url}/__host/modules`)).json()) as { memory: { rss: number } };
        peak = Math.max(peak, memory.rss);
        await delay(250);
      }
    })();
    service.forgetTables();
    const scan = await service.scan({ mode: "full" }, 1_500_000);
    scanning = false;
    await watching;
    const requests = service.tableRequests().length;
    const found = scan.progress.assetsFound as number;
    const seconds = (Date.parse(scan.finishedAt) - Date.parse(scan.startedAt)) / 1000;
    const figures = [
      { what: "assets found", value: `${found}, ${scan.status}`, comparedWith: "" },
      {
        what: "peak resident memory of the functions process",
        value: megabytes(peak),
        comparedWith: "",
        bound: "< 300 MB",
      },
      { what: "table requests per asset", value: ratio(requests, found), comparedWith: `${requests}` },
      {
        what: "seconds",
        value: seconds.toFixed(0),
        comparedWith: "Azurite's writes, which slow down as its tables grow",
      },
    ];
    for (const query of QUERIES) {
      const times: number[] = [];
      let count = 0;
      for (let run = 0; run < 3; run++) {
        service.forgetTables();
        const begun = performance.now();
        await service.admin("GET", `/api/assets/discovery/assets${query}`);
        times.push(performance.now() - begun);
        count = service.tableRequests().length;
      }
      figures.push({
        what: `assets${query}`,
        value: `${count} table requests, ${Math.round(median(times))} ms`,
        comparedWith: "authentication included (rate limit off)",
        bound: query.includes("offset") ? "≤ 10" : "≤ 7",
      });
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
