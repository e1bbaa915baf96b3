import { MEASURED_COMPANY, minimumCallChain, minimumListChain, VAULTS } from "../../test/support/measured-company.ts";
import { Service } from "../../test/support/service.ts";
import { withProcessorTime } from "./process.ts";
import { atMost, type Figure, median, ratio, type Section } from "./section.ts";

const LATENCY_MS = 40;
const WORKERS = 10;
/** Number of scans. A queue is polled every 0.1 to 5 s, so the duration of a single scan varies by chance. */
const RUNS = 5;
/** Bound of a scan's duration. It is several times the usual duration, because other work on the machine slows a scan. */
const LIMIT_SECONDS = 40;

/**
 * Benchmark `wallTime`: measures the duration of a scan and divides it by an ideal duration. In the ideal, the scan only waits
 * for the cloud's latency: the number of calls in its longest sequential chain, times the latency of a call.
 */
export async function wallTime(): Promise<Section> {
  const service = await Service.start({ company: MEASURED_COMPANY, env: { DISCOVERY_MAX_WORKERS: String(WORKERS) } });
  try {
    await service.admin("GET", "/auth/me"); // Signs in once, before the measurement.
    service.cloud.control.addFault({ action: { kind: "latency", milliseconds: LATENCY_MS } });
    const rounds = Math.ceil(VAULTS / WORKERS);
    const idealSeconds = {
      full: (rounds * minimumCallChain() * LATENCY_MS) / 1000,
      delta: (rounds * minimumListChain() * LATENCY_MS) / 1000,
    };
    const measureScans = async (what: string, mode: "full" | "delta", runs: number): Promise<Figure> => {
      const seconds: number[] = [];
      const processorSeconds: number[] = [];
      for (let run = 0; run < runs; run++) {
        const started = performance.now();
        const { ms } = await withProcessorTime(service.url, () => service.scan({ mode }, 300_000));
        seconds.push((performance.now() - started) / 1000);
        processorSeconds.push(ms / 1000);
      }
      const medianSeconds = median(seconds);
      const range = runs > 1 ? ` (${Math.min(...seconds).toFixed(1)} to ${Math.max(...seconds).toFixed(1)} s)` : "";
      return {
        what,
        value: `${medianSeconds.toFixed(2)} s${range}, ${ratio(medianSeconds, idealSeconds[mode])}; processor ${median(processorSeconds).toFixed(2)} s`,
        comparedWith: `${idealSeconds[mode].toFixed(2)} s, the ideal`,
        bound: atMost(medianSeconds, LIMIT_SECONDS, " s"),
      };
    };
    return {
      title: "Wall time of a scan",
      how: `${VAULTS} vaults, ${WORKERS} workers, ${LATENCY_MS} ms added to every cloud call. Time from the request that starts the scan until its status is final, polled every 100 ms: median, shortest and longest of ${RUNS} scans. The ideal is a vault's longest chain of calls (the pages of its longest list, then its details, eight at a time), times the rounds of the workers. Time beyond it is waiting for the next queue poll if little is read, and processor time if much is read.`,
      figures: [
        await measureScans("first full scan, everything written", "full", 1),
        await measureScans("full scan, nothing changed", "full", RUNS),
        await measureScans("delta scan, nothing changed", "delta", RUNS),
      ],
    };
  } finally {
    await service.stop();
  }
}
