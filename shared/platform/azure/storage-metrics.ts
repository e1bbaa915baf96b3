import * as z from "zod";
import { DAY_MS } from "../time.ts";
import type { Arm } from "./arm.ts";
import { resourceName, resourcePath } from "./resource-id.ts";
import { DEPENDENCY_READER } from "./watch-roles.ts";

/** Reads metrics of storage accounts. https://learn.microsoft.com/rest/api/monitor/metrics/list */
export interface StorageMetrics {
  /**
   * Returns the last day on which a storage account answered a request with a key or a shared access signature, ISO 8601.
   * Undefined if there was none.
   *
   * @param end - End of the period.
   * @param days - Length of the period, at most 93: Azure Monitor keeps metrics for that long.
   * @throws {CloudFailure}
   */
  lastKeyUse(accountId: string, end: Date, days: number, signal?: AbortSignal): Promise<string | undefined>;
}

const Metrics = z.object({
  value: z.array(
    z.object({
      timeseries: z.array(
        z.object({
          metadatavalues: z.array(z.object({ name: z.object({ value: z.string() }), value: z.string() })).nullish(),
          data: z.array(z.object({ timeStamp: z.iso.datetime({ offset: true }), total: z.number().nullish() })),
        }),
      ),
    }),
  ),
});
/** Values of the dimension `Authentication` that need a key: https://learn.microsoft.com/azure/storage/common/monitor-storage-reference */
const WITH_KEY = ["AccountKey", "SAS"];

export function createStorageMetrics(arm: Pick<Arm, "call">): StorageMetrics {
  return {
    async lastKeyUse(accountId, end, days, signal) {
      const start = new Date(end.getTime() - days * DAY_MS);
      const answer = await arm.call(
        {
          path: `${resourcePath(accountId, "microsoft.storage/storageaccounts")}/providers/Microsoft.Insights/metrics`,
          apiVersion: "2023-10-01",
          query: {
            metricnames: "Transactions",
            metricnamespace: "Microsoft.Storage/storageAccounts",
            aggregation: "Total",
            interval: "P1D",
            timespan: `${start.toISOString()}/${end.toISOString()}`,
            $filter: "Authentication eq '*'",
          },
          target: {
            operation: "read the metric of a storage account",
            resource: `storage account ${resourceName(accountId)}`,
            grant: DEPENDENCY_READER,
          },
          signal,
        },
        Metrics,
      );
      const used = answer.value.flatMap(({ timeseries }) =>
        timeseries
          .filter(({ metadatavalues }) =>
            metadatavalues?.some(
              ({ name, value }) => name.value.toLowerCase() === "authentication" && WITH_KEY.includes(value),
            ),
          )
          .flatMap(({ data }) => data.flatMap(({ timeStamp, total }) => ((total ?? 0) > 0 ? timeStamp : []))),
      );
      return used.sort().at(-1);
    },
  };
}
