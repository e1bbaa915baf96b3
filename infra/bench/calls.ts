import { countedScan } from "../../test/support/counted-scan.ts";
import { leastCalls, MEASURED_COMPANY, PER_VAULT, VAULTS } from "../../test/support/measured-company.ts";
import { Service } from "../../test/support/service.ts";
import { withProcessorTime } from "./process.ts";
import { atMost, type Figure, processorTime, ratio, type Section } from "./section.ts";

const ASSETS = VAULTS * PER_VAULT;

/** Cloud calls, table requests and processor time of a full, an unchanged and a delta scan over 36 vaults of 140 assets. */
export async function calls(): Promise<Section> {
  const service = await Service.start({ tableProxy: true, company: MEASURED_COMPANY });
  try {
    const least = leastCalls();
    const scan = async (mode: string) => {
      const before = service.messages();
      const { result, ms } = await withProcessorTime(service.url, () => countedScan(service, { mode }));
      const messages = service.messages() - before;
      return { calls: result.calls.total!, tables: result.tables.length, messages, ms };
    };
    const full = await scan("full");
    const unchanged = await scan("delta");
    service.cloud.control.putSecret("kv-0001", { name: "changed-secret", expiresInDays: 9 });
    const delta = await scan("delta");
    const again = await scan("full");

    const callsOf = (what: string, of: { calls: number }, possible: number, comparedWith: string): Figure => ({
      what: `calls, ${what}`,
      value: `${of.calls}, ${ratio(of.calls, possible)}`,
      comparedWith: `${possible}, ${comparedWith}`,
      bound: atMost(of.calls / possible, 1.05),
    });
    const tablesPerVault = (what: string, { tables }: { tables: number }, limit: number): Figure => ({
      what: `table requests per vault, ${what}`,
      value: (tables / VAULTS).toFixed(2),
      comparedWith: `${tables} for ${VAULTS} vaults`,
      bound: atMost(tables / VAULTS, limit),
    });
    return {
      title: "Cloud calls and table requests of a scan",
      how: `${VAULTS} vaults of ${PER_VAULT} assets. Counts every request to the cloud, tokens and the resource manager included, and every table request, including those of the call that starts the scan. Workers share reads, so counts vary by 1 to 2 %. Processor time is that of the functions process.`,
      figures: [
        callsOf("first full scan", full, least.full, "the minimum"),
        callsOf("unchanged delta", unchanged, least.lists, "the list pages alone"),
        callsOf("delta with one new secret", delta, least.lists, "the list pages alone"),
        callsOf("unchanged full scan", again, least.full, "the minimum"),
        {
          what: "table requests per asset, first scan",
          value: ratio(full.tables, ASSETS),
          comparedWith: `${full.tables} for ${ASSETS} assets`,
          bound: atMost(full.tables / ASSETS, 0.15),
        },
        tablesPerVault("unchanged delta", unchanged, 6),
        tablesPerVault("unchanged full scan", again, 9),
        {
          what: "messages of a scan, unchanged delta",
          value: String(unchanged.messages),
          comparedWith: "one for the scan, one for the alert rules",
          bound: atMost(unchanged.messages, 4),
        },
        processorTime("processor time, first full scan", full.ms, 15_000, `${ASSETS} assets written`),
        processorTime("processor time, unchanged delta", unchanged.ms, 4_000, `${unchanged.calls} calls`),
        processorTime("processor time, unchanged full scan", again.ms, 10_000, `${again.calls} calls`),
      ],
    };
  } finally {
    await service.stop();
  }
}
