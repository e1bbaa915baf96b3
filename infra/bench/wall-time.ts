import { ESTATE, leastChain, leastListing, VAULTS } from "../../test/support/estate.ts";
import { Service } from "../../test/support/service.ts";
import { ratio, type Section } from "./section.ts";

const LATENCY_MS = 40;
const WORKERS = 10;

/** Wall time of a full scan, over what its longest chain of calls would take if nothing but the cloud's latency cost time. */
export async function wallTime(): Promise<Section> {
  const service = await Service.start({ company: ESTATE, env: { DISCOVERY_MAX_WORKERS: String(WORKERS) } });
  try {
    service.cloud.control.addFault({ action: { kind: "latency", milliseconds: LATENCY_MS } });
    const scan = async (mode: string) => {
      const ended = await service.scan({ mode }, 300_000);
      return (Date.parse(ended.finishedAt) - Date.parse(ended.startedAt)) / 1000;
    };
    const rounds = Math.ceil(VAULTS / WORKERS);
    const full = (rounds * leastChain() * LATENCY_MS) / 1000;
    const lists = (rounds * leastListing() * LATENCY_MS) / 1000;
    const compare = (seconds: number, ideal: number) => ({
      value: `${seconds.toFixed(2)} s, ${ratio(seconds, ideal)}`,
      comparedWith: `${ideal.toFixed(2)} s, the ideal`,
    });
    return {
      title: "Wall time of a scan",
      how: `${VAULTS} vaults, ${WORKERS} workers, ${LATENCY_MS} ms added to every call of the cloud. The ideal is the longest chain of calls of a vault (the pages of its longest list, then its details, eight at once), times the rounds the workers need: nothing but the cloud would cost time. The rest is the queue's polling, Azurite, which writes 30,000 rows in the first scan, and the processor time of 2,900 TLS calls, both ends of which run on this machine.`,
      figures: [
        { what: "first full scan, everything written", ...compare(await scan("full"), full) },
        { what: "full scan, nothing changed", ...compare(await scan("full"), full) },
        { what: "delta scan, nothing changed", ...compare(await scan("delta"), lists) },
      ],
    };
  } finally {
    await service.stop();
  }
}
