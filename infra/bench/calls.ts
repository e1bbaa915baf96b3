import { ESTATE, leastCalls, PER_VAULT, VAULTS } from "../../test/support/estate.ts";
import { Service } from "../../test/support/service.ts";
import { ratio, type Section } from "./section.ts";

/** Cloud calls and table requests of a full, an unchanged and a delta scan over 36 vaults of 140 assets. */
export async function calls(): Promise<Section> {
  const service = await Service.start({ company: ESTATE });
  try {
    const least = leastCalls();
    const assets = VAULTS * PER_VAULT;
    const scan = async (mode: string) => {
      service.cloud.control.resetCounts();
      service.forgetTables();
      await service.scan({ mode }, 300_000);
      return { calls: service.cloud.control.counts().total!, tables: service.tableRequests().filter(isScans).length };
    };
    const full = await scan("full");
    const unchanged = await scan("delta");
    service.cloud.control.putSecret("kv-0001", { name: "changed-secret", expiresInDays: 9 });
    const delta = await scan("delta");
    const again = await scan("full");
    return {
      title: "Cloud calls and table requests of a scan",
      how: `${VAULTS} vaults of ${PER_VAULT} assets. Every request that reached the cloud is counted, tokens and the resource manager included, and every request to the tables but those of the waiting itself.`,
      figures: [
        {
          what: "calls, first full scan",
          value: `${full.calls}, ${ratio(full.calls, least.full)}`,
          comparedWith: `${least.full}, the least possible`,
          bound: "≤ 1.05",
        },
        {
          what: "calls, unchanged delta",
          value: `${unchanged.calls}, ${ratio(unchanged.calls, least.lists)}`,
          comparedWith: `${least.lists}, the list pages alone`,
          bound: "≤ 1.05",
        },
        {
          what: "calls, delta with one new secret",
          value: `${delta.calls}, ${ratio(delta.calls, least.lists)}`,
          comparedWith: `${least.lists}`,
          bound: "≤ 1.05",
        },
        {
          what: "calls, unchanged full scan",
          value: `${again.calls}, ${ratio(again.calls, least.full)}`,
          comparedWith: `${least.full}`,
          bound: "≤ 1.05",
        },
        {
          what: "table requests per asset, first scan",
          value: ratio(full.tables, assets),
          comparedWith: `${full.tables} for ${assets} assets`,
          bound: "≤ 0.15",
        },
        {
          what: "table requests per vault, unchanged delta",
          value: (unchanged.tables / VAULTS).toFixed(2),
          comparedWith: `${unchanged.tables} for ${VAULTS} vaults`,
          bound: "≤ 6",
        },
        {
          what: "table requests per vault, unchanged full scan",
          value: (again.tables / VAULTS).toFixed(2),
          comparedWith: `${again.tables} for ${VAULTS} vaults`,
        },
      ],
    };
  } finally {
    await service.stop();
  }
}

/** What the measurement itself asks while it waits (its token's user, the scan and its progress) is not the scan's. */
const isScans = ({ path, filter }: { path: string; filter?: string | undefined }): boolean =>
  !path.startsWith("Users(") &&
  !/^Scans\(PartitionKey='scan:.*RowKey='0'\)/.test(path) &&
  !(path === "Scans()" && /ge '3!' and RowKey lt '4'/.test(filter ?? ""));
