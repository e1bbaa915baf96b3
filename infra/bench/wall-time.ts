import { ESTATE, leastChain, VAULTS } from "../../test/support/estate.ts";
import { Service } from "../../test/support/service.ts";
import { ratio, type Section } from "./section.ts";

const LATENCY_MS = 40;
const WORKERS = 10;

/** Wall time of a full scan, over what its longest chain of calls would take if nothing but the cloud's latency cost time. */
export async function wallTime(): Promise<Section> {
  const service = await Service.start({ company: ESTATE, env: { DISCOVERY_MAX_WORKERS: String(WORKERS) } });
  try {
    service.cloud.control.addFault({ action: { kind: "latency", milliseconds: LATENCY_MS } });
    const begun = Date.now();
    const scan = await service.scan({ mode: "full" }, 300_000);
    const seconds = (Date.parse(scan.finishedAt) - Date.parse(scan.startedAt)) / 1000;
    const ideal = (Math.ceil(VAULTS / WORKERS) * leastChain() * LATENCY_MS) / 1000;
    return {
      title: "Wall time of a scan",
      how: `A full scan of ${VAULTS} vaults with ${WORKERS} workers and ${LATENCY_MS} ms added to every call. The ideal is the longest chain of calls of a vault (the pages of its longest list, then its keys' details, eight at once), times the rounds the workers need.`,
      figures: [
        {
          what: "seconds, start to end",
          value: `${seconds.toFixed(2)}, ${ratio(seconds, ideal)}`,
          comparedWith: `${ideal.toFixed(2)} s, the ideal`,
        },
        {
          what: "seconds, request to end as a caller sees it",
          value: ((Date.now() - begun) / 1000).toFixed(2),
          comparedWith: "",
        },
      ],
    };
  } finally {
    await service.stop();
  }
}
