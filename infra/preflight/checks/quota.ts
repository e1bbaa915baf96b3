// Checks the quotas of the region that Azure reports. It reports none for the memory of Flex Consumption.

import * as z from "zod";
import { type Context, unlessUnregistered } from "../context.ts";
import { type CheckResult, counted, type Finding } from "../finding.ts";

/** An entry of the operation `Usages - List` of a resource provider. */
const Usage = z.object({ name: z.object({ value: z.string() }), currentValue: z.number(), limit: z.number() });

/** Quotas by resource type: the provider that reports it, its API version, and the quota's name. */
const QUOTAS = [
  {
    type: "Microsoft.Storage/storageAccounts",
    provider: "Microsoft.Storage",
    version: "2025-01-01",
    name: "StorageAccounts",
  },
  {
    type: "Microsoft.Network/virtualNetworks",
    provider: "Microsoft.Network",
    version: "2024-07-01",
    name: "VirtualNetworks",
  },
  { type: "Microsoft.Network/natGateways", provider: "Microsoft.Network", version: "2024-07-01", name: "NatGateways" },
  {
    type: "Microsoft.Network/publicIPAddresses",
    provider: "Microsoft.Network",
    version: "2024-07-01",
    name: "StandardSkuPublicIpAddresses",
  },
  {
    type: "Microsoft.Network/privateEndpoints",
    provider: "Microsoft.Network",
    version: "2024-07-01",
    name: "PrivateEndpoints",
  },
] as const;

export async function checkQuota(context: Context): Promise<CheckResult> {
  const { arm, parameters, plan, subscription, group } = context;
  if (!context.hasRegion) return { summary: "not checked: there is no such region", findings: [] };
  const findings: Finding[] = [];
  const usages = new Map<string, z.infer<typeof Usage>[]>();
  let checked = 0;
  for (const { type, provider, version, name } of QUOTAS) {
    const created = plan.resources.filter(
      (one) => one.type === type && !group.existing?.resourceIds.has((one.id ?? "").toLowerCase()),
    );
    if (created.length === 0) continue;
    const path = `/subscriptions/${subscription.id}/providers/${provider}/locations/${parameters.location}/usages`;
    const target = { operation: `list quotas of ${provider}`, resource: parameters.location };
    if (!usages.has(path)) {
      const list = await unlessUnregistered(arm.list({ path, apiVersion: version, target }, Usage));
      usages.set(path, list?.entries ?? []);
    }
    const usage = usages.get(path)!.find((one) => one.name.value.toLowerCase() === name.toLowerCase());
    // Azure does not report the quota, or the resource provider is not registered.
    if (!usage) continue;
    checked++;
    if (usage.currentValue + created.length <= usage.limit) continue;
    findings.push({
      code: "quota.exceeded",
      severity: "stops",
      subject: `${name} in ${parameters.location}`,
      message: `The deployment creates ${created.length}, but ${usage.currentValue} of ${usage.limit} are in use.`,
      remedy: "Ask for a higher quota, or choose another region.",
      command: `az quota create --resource-name ${name} --scope /subscriptions/${subscription.id}/providers/${provider}/locations/${parameters.location} --limit-object value=${usage.limit + 10}`,
    });
  }
  return { summary: counted(checked, "quota"), findings };
}
