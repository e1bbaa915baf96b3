import { runCountedScan } from "../../test/support/counted-scan.ts";
import { MEASURED_COMPANY, minimumCalls, PER_VAULT, VAULTS } from "../../test/support/measured-company.ts";
import { Service } from "../../test/support/service.ts";
import { withProcessorTime } from "./process.ts";
import { atMost, type Figure, processorTime, ratio, type Section } from "./section.ts";

const ASSETS = VAULTS * PER_VAULT;

/**
 * Benchmark `calls`: counts cloud calls, table requests and processor time of scans over 36 vaults of 140 assets. A full scan
 * reads the details of keys and certificates; a delta scan reads only the lists and the details of assets whose list entry has
 * changed.
 */
export async function calls(): Promise<Section> {
  const service = await Service.start({ tableProxy: true, company: MEASURED_COMPANY });
  try {
    const minimum = minimumCalls();
    const scan = async (mode: string) => {
      const messagesBefore = service.countMessages();
      const { result, ms } = await withProcessorTime(service.url, () => runCountedScan(service, { mode }));
      const messages = service.countMessages() - messagesBefore;
      return { calls: result.calls.total!, tables: result.tables.length, messages, ms };
    };
    const firstFull = await scan("full");
    const unchangedDelta = await scan("delta");
    service.cloud.control.putSecret("kv-0001", { name: "changed-secret", expiresInDays: 9 });
    const changedDelta = await scan("delta");
    const unchangedFull = await scan("full");

    const callsFigure = (what: string, measured: { calls: number }, minimum: number, comparedWith: string): Figure => ({
      what: `calls, ${what}`,
      value: `${measured.calls}, ${ratio(measured.calls, minimum)}`,
      comparedWith: `${minimum}, ${comparedWith}`,
      bound: atMost(measured.calls / minimum, 1.05),
    });
    const tablesPerVaultFigure = (what: string, { tables }: { tables: number }, limit: number): Figure => ({
      what: `table requests per vault, ${what}`,
      value: (tables / VAULTS).toFixed(2),
      comparedWith: `${tables} for ${VAULTS} vaults`,
      bound: atMost(tables / VAULTS, limit),
    });
    return {
      title: "Cloud calls and table requests of a scan",
      how: `${VAULTS} vaults of ${PER_VAULT} assets. Counts every request to the cloud, tokens and the resource manager included, and every table request, including those of the call that starts the scan. Workers share reads, so counts vary by 1 to 2 %. Processor time is that of the functions process.`,
      figures: [
        callsFigure("first full scan", firstFull, minimum.first, "the minimum"),
        callsFigure("unchanged delta", unchangedDelta, minimum.lists, "the list pages alone"),
        callsFigure("delta with one new secret", changedDelta, minimum.lists, "the list pages alone"),
        callsFigure("unchanged full scan", unchangedFull, minimum.full, "the minimum"),
        {
          what: "table requests per asset, first scan",
          value: ratio(firstFull.tables, ASSETS),
          comparedWith: `${firstFull.tables} for ${ASSETS} assets`,
          bound: atMost(firstFull.tables / ASSETS, 0.17),
        },
        tablesPerVaultFigure("unchanged delta", unchangedDelta, 6),
        tablesPerVaultFigure("unchanged full scan", unchangedFull, 9),
        {
          what: "messages of a scan, unchanged delta",
          value: String(unchangedDelta.messages),
          comparedWith: "one for the scan, one for the alert rules",
          bound: atMost(unchangedDelta.messages, 4),
        },
        processorTime("processor time, first full scan", firstFull.ms, 15_000, `${ASSETS} assets written`),
        processorTime("processor time, unchanged delta", unchangedDelta.ms, 4_000, `${unchangedDelta.calls} calls`),
        processorTime("processor time, unchanged full scan", unchangedFull.ms, 10_000, `${unchangedFull.calls} calls`),
      ],
    };
  } finally {
    await service.stop();
  }
}
