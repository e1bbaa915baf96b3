import * as z from "zod";
import type { KeyVaultContract } from "../../platform/azure/api-management.ts";
import { CloudFailure } from "../../platform/azure/failure.ts";
import { HOUR_SECONDS } from "../../platform/time.ts";
import type { Edge } from "../edge.ts";
import { type ConfigLocation, type Finder, propertiesOf, usesIn } from "./finder.ts";

const text = z.string().nullish();
const properties = z.object({
  hostnameConfigurations: z
    .array(
      z.object({
        /** `Proxy`, `DeveloperPortal`, `Management` … */
        type: text,
        hostName: text,
        keyVaultId: text,
        certificateStatus: text,
      }),
    )
    .nullish(),
});

/**
 * Interval at which API Management refreshes named values: "regularly within 4 hours".
 * https://learn.microsoft.com/azure/api-management/api-management-howto-properties
 */
const SLOWEST_SECONDS = 4 * HOUR_SECONDS;

/**
 * Finds references of API Management services to key vaults: named values, which can be refreshed on request, certificates
 * of backends, and certificates of host names. Resource Graph returns the services with their host names, but not their named
 * values and backend certificates.
 *
 * subscription-reading.ts calls `find` for each service that Resource Graph returns.
 */
export const apiManagement: Finder = {
  types: ["microsoft.apimanagement/service"],
  childTypes: ["microsoft.apimanagement/service/namedvalues", "microsoft.apimanagement/service/certificates"],
  kind: () => "apiManagement",
  properties: "all",

  async find(row, { names, apiManagement, signal }) {
    const automatic = { how: "automatic", slowestSeconds: SLOWEST_SECONDS } as const;
    const locations: ConfigLocation[] = [];
    for (const { type, hostName, keyVaultId } of propertiesOf(row, properties).hostnameConfigurations ?? []) {
      // Despite its name this is the address of a secret.
      locations.push({
        evidence: `hostnameConfigurations/${hostName ?? "?"}`,
        text: keyVaultId,
        refresh: automatic,
        // The management endpoint is served at another port.
        ...(type?.toLowerCase() !== "management" && { hosts: [hostName] }),
      });
    }
    const lists = await Promise.allSettled([
      apiManagement.namedValues(row.id, signal),
      apiManagement.certificates(row.id, signal),
    ]);
    const failures: CloudFailure[] = [];
    for (const [index, list] of lists.entries()) {
      // A list that could not be read does not hide the entries of the other list.
      if (list.status === "rejected") {
        if (!(list.reason instanceof CloudFailure)) throw list.reason;
        failures.push(list.reason);
        continue;
      }
      // Only a named value has an API to refresh it, so only its `how` is `action`. Both have the same maximum delay.
      const [listName, refresh] =
        index === 0 ? ["namedValues", { ...automatic, how: "action" } as const] : ["certificates", automatic];
      failures.push(...list.value.unreadable);
      for (const { name, keyVault } of list.value.entries) {
        if (!keyVault) continue;
        locations.push({
          evidence: `${listName}/${name}`,
          text: keyVault.secretIdentifier,
          refresh,
          ...stateOf(keyVault),
        });
      }
    }
    const found = usesIn(row, locations, names.ofUrl);
    return { uses: found.uses, failures: [...failures, ...found.failures] };
  },
};

function stateOf({ lastStatus }: KeyVaultContract): { state?: NonNullable<Edge["state"]> } {
  return lastStatus ? { state: { resolved: lastStatus.code === "Success", status: lastStatus.code } } : {};
}
