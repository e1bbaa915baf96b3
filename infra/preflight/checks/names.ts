// Checks that names which are unique in all of Azure are free: not taken by others, and not of a deleted resource.

import * as z from "zod";
import { unlessMissing } from "../../../shared/platform/azure/failure.ts";
import { type Context, proposeValue, unlessUnregistered } from "../context.ts";
import { type CheckResult, type Finding, quote } from "../finding.ts";
import type { PlannedResource } from "../plan.ts";

/** How to check the names of a resource type. */
interface NameCheck {
  /** Resource type of the templates. */
  type: string;
  apiVersion: string;
  /** Path of the check, if it is not `checkNameAvailability`. */
  path?: string;
  /** Path segment of deleted resources, which keep their name. */
  deleted?: string;
  /** Command group of the Azure CLI. */
  cli: string;
}

/** https://learn.microsoft.com/rest/api/azure: `Check Name Availability` and `Get Deleted` of each service */
const NAME_CHECKS: readonly NameCheck[] = [
  { type: "Microsoft.Storage/storageAccounts", apiVersion: "2025-01-01", cli: "storage account" },
  { type: "Microsoft.KeyVault/vaults", apiVersion: "2026-02-01", deleted: "deletedVaults", cli: "keyvault" },
  { type: "Microsoft.Web/sites", apiVersion: "2024-11-01", path: "checknameavailability", cli: "functionapp" },
  {
    type: "Microsoft.AppConfiguration/configurationStores",
    apiVersion: "2024-06-01",
    deleted: "deletedConfigurationStores",
    cli: "appconfig",
  },
  { type: "Microsoft.Communication/communicationServices", apiVersion: "2025-05-01", cli: "communication" },
];

const Availability = z.object({
  nameAvailable: z.boolean(),
  reason: z.string().nullish(),
  message: z.string().nullish(),
});
const Deleted = z.object({
  properties: z.object({
    vaultId: z.string().nullish(),
    configurationStoreId: z.string().nullish(),
    scheduledPurgeDate: z.string().nullish(),
    purgeProtectionEnabled: z.boolean().nullish(),
  }),
});

export async function checkNames(context: Context): Promise<CheckResult> {
  const findings = groupFindings(context);
  const names: string[] = [];
  /** Resource names that can't be checked, because their resource provider is not registered. */
  const unchecked: string[] = [];
  for (const check of NAME_CHECKS) {
    for (const resource of context.plan.resources.filter(({ type }) => type === check.type)) {
      // The deployment updates a resource of an earlier deployment.
      if (resource.name === undefined || context.group.existing?.resourceIds.has((resource.id ?? "").toLowerCase()))
        continue;
      const answer = await unlessUnregistered(findingsFor(context, check, resource.name, resource));
      if (answer === undefined) unchecked.push(resource.name);
      else names.push(resource.name);
      findings.push(...(answer ?? []));
    }
  }
  if (unchecked.length > 0) names.push(`after registration: ${unchecked.join(", ")}`);
  return { summary: names.join(", ") || "all exist from an earlier deployment", findings };
}

async function findingsFor(
  context: Context,
  { type, apiVersion, path = "checkNameAvailability", deleted, cli }: NameCheck,
  name: string,
  resource: PlannedResource,
): Promise<Finding[]> {
  const { arm, subscription, parameters } = context;
  const provider = `/subscriptions/${subscription.id}/providers/${type.split("/")[0]}`;
  const target = { operation: "check the name", resource: name };
  const body = { name, type };
  const answer = await arm.call(
    { method: "POST", path: `${provider}/${path}`, apiVersion, body, target },
    Availability,
  );
  if (answer.nameAvailable) return [];
  const deletedPath = `${provider}/locations/${parameters.location}/${deleted}/${name}`;
  const deletedResource =
    deleted && (await unlessMissing(arm.call({ path: deletedPath, apiVersion, target }, Deleted)));
  if (!deletedResource) {
    return [
      {
        code: "name.taken",
        severity: "stops",
        subject: name,
        message: `The name is not available: ${answer.message ?? answer.reason ?? "no reason given"}`,
        remedy: "Choose another environment name, from which the names follow.",
        command: proposeValue(context, "environmentName", otherEnvironmentName(parameters.environmentName)),
      },
    ];
  }
  const { vaultId, configurationStoreId, scheduledPurgeDate, purgeProtectionEnabled } = deletedResource.properties;
  const isOwn = (vaultId ?? configurationStoreId ?? "").toLowerCase() === (resource.id ?? "").toLowerCase();
  const message = `A deleted resource has the name until ${scheduledPurgeDate ?? "it is purged"}.`;
  const location = `--location ${parameters.location}`;
  if (!purgeProtectionEnabled) {
    return [
      {
        code: "name.deleted",
        severity: "stops",
        subject: name,
        message,
        remedy: "Purge the deleted resource if you don't need its content.",
        command: `az ${cli} purge --name ${quote(name)} ${location}`,
      },
    ];
  }
  return [
    {
      code: "name.deletedProtected",
      severity: "stops",
      subject: name,
      message: `${message} Purge protection forbids purging it.`,
      remedy: isOwn
        ? "Recover the deleted resource. The deployment then updates it."
        : "Choose another environment name, from which the names follow.",
      command: isOwn
        ? `az ${cli} recover --name ${quote(name)} ${location}`
        : proposeValue(context, "environmentName", otherEnvironmentName(parameters.environmentName)),
    },
  ];
}

/** Returns another name of at most 20 characters, the maximum of `environmentName`. */
const otherEnvironmentName = (name: string): string => `${name.slice(0, 18)}-2`;

/** Checks the service's resource group: its region can't change, and it must not be in deletion. */
function groupFindings(context: Context): Finding[] {
  const { group, parameters } = context;
  const isPlanned = context.plan.resources.some(({ id }) => id?.toLowerCase() === group.id.toLowerCase());
  if (!group.existing && !isPlanned) {
    return [
      {
        code: "group.missing",
        severity: "stops",
        subject: group.name,
        message: "There is no such resource group.",
        remedy: "Create the resource group, or let the templates create one.",
        command: `az group create --name ${quote(group.name)} --location ${parameters.location}`,
      },
    ];
  }
  if (!group.existing) return [];
  const location = group.existing.location.toLowerCase().replaceAll(" ", "");
  if (group.existing.state === "Deleting") {
    return [
      {
        code: "group.deleting",
        severity: "stops",
        subject: group.name,
        message: "The resource group is being deleted.",
        remedy: "Wait until it is deleted.",
        command: `az group wait --deleted --name ${quote(group.name)}`,
      },
    ];
  }
  if (location === parameters.location || !isPlanned) return [];
  return [
    {
      code: "group.otherRegion",
      severity: "stops",
      subject: group.name,
      message: `The resource group exists in ${location}, and its region can't change.`,
      remedy: "Deploy to the region of the resource group, or choose another environment name.",
      command: proposeValue(context, "location", location),
    },
  ];
}
