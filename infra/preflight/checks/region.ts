// Checks that the region exists, offers Flex Consumption, and has zones if the storage account needs them.

import * as z from "zod";
import { type Context, parameterName, proposeValue, SUBSCRIPTION_VERSION, unlessUnregistered } from "../context.ts";
import type { CheckResult, Finding } from "../finding.ts";

/** https://learn.microsoft.com/rest/api/appservice/list-geo-regions */
const WEB_VERSION = "2024-11-01";
const Location = z.object({
  name: z.string(),
  metadata: z.object({ regionType: z.string().nullish(), geography: z.string().nullish() }).nullish(),
  availabilityZoneMappings: z.array(z.object({ logicalZone: z.string() })).nullish(),
});
const GeoRegion = z.object({
  name: z.string(),
  properties: z.object({ orgDomain: z.string().nullish() }).nullish(),
});

export async function checkRegion(context: Context): Promise<CheckResult> {
  const { arm, parameters, subscription } = context;
  const { location } = parameters;
  const target = { operation: "list regions", resource: subscription.id };
  const base = `/subscriptions/${subscription.id}`;
  const [{ entries: locations }, flexList] = await Promise.all([
    arm.list({ path: `${base}/locations`, apiVersion: SUBSCRIPTION_VERSION, target }, Location),
    unlessUnregistered(
      arm.list(
        {
          path: `${base}/providers/Microsoft.Web/geoRegions`,
          apiVersion: WEB_VERSION,
          query: { sku: "FlexConsumption" },
          target: { ...target, operation: "list regions with Flex Consumption" },
        },
        GeoRegion,
      ),
    ),
  ]);
  const region = locations.find(({ name }) => name === location);
  if (!region) {
    context.hasRegion = false;
    const finding: Finding = {
      code: "region.unknown",
      severity: "stops",
      subject: location,
      message: `Subscription ${subscription.name} has no region ${location}.`,
      remedy: "Choose a region of this list.",
      command: "az account list-locations --query '[].name' -o tsv",
    };
    return { summary: location, findings: [finding] };
  }
  const flexRegions = flexList?.entries ?? [];
  const flexNames = flexRegions.map(({ name }) => name.toLowerCase().replaceAll(" ", ""));
  const findings: Finding[] = [];
  if (flexList && !flexNames.includes(location)) {
    const inGeography = locations.filter(({ metadata }) => metadata?.geography === region.metadata?.geography);
    const nearest = inGeography.find(({ name }) => flexNames.includes(name))?.name ?? flexNames[0];
    findings.push({
      code: "region.noFlexConsumption",
      severity: "stops",
      subject: location,
      message: "The region does not offer the plan Flex Consumption.",
      remedy: nearest ? `Choose another region, such as ${nearest}.` : "Choose another region.",
      command: nearest ? proposeValue(context, "location", nearest) : "az functionapp list-flexconsumption-locations",
    });
  }
  const flexRegion = flexRegions.find((one) => one.name.toLowerCase().replaceAll(" ", "") === location);
  // The same marker as `az functionapp list-flexconsumption-locations --zone-redundant=true` reads.
  if (
    flexList &&
    parameters.values.zoneRedundant === true &&
    !flexRegion?.properties?.orgDomain?.includes("FCZONEREDUNDANCY")
  ) {
    findings.push({
      code: "region.noZoneRedundancy",
      severity: "stops",
      subject: location,
      message: "The region does not offer zone-redundant Flex Consumption.",
      remedy: `Set ${parameterName(context, "zoneRedundant")} to false, or choose another region.`,
      command: proposeValue(context, "zoneRedundant", false),
    });
  }
  const zones = region.availabilityZoneMappings?.length ?? 0;
  const replication = String(parameters.values.storageReplication ?? "ZRS");
  if (zones === 0 && replication.endsWith("ZRS")) {
    const value = replication === "GZRS" ? "GRS" : "LRS";
    findings.push({
      code: "region.noZones",
      severity: "stops",
      subject: location,
      message: `The region has no availability zones, which ${replication} needs.`,
      remedy: `Set ${parameterName(context, "storageReplication")} to ${value}.`,
      command: proposeValue(context, "storageReplication", value),
    });
  }
  const flexNote = flexList ? "" : "; Flex Consumption can be checked after Microsoft.Web is registered";
  return { summary: `${location}: ${zones === 0 ? "no" : zones} zones${flexNote}`, findings };
}
