// Checks the names that the templates give to resources: valid for the longest environment name, unique in a deployment, and
// different in each deployment.

import type { Finding } from "../expression.ts";
import { snake } from "../parity/normalize.ts";
import { KINDS } from "../parity/resource-kinds.ts";
import type { DeployedResource, Deployment } from "./deployed.ts";
import { textOf } from "./evaluate.ts";
import { EVERY_OPTION, type Result, type Sample } from "./samples.ts";

/** Valid names: https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules */
const NAME_RULES: Record<string, RegExp> = {
  "Microsoft.AppConfiguration/configurationStores": /^[A-Za-z0-9-]{5,50}$/,
  "Microsoft.Authorization/policyAssignments": /^[^<>*%&:\\?.+/ ]{1,24}$/,
  "Microsoft.Communication/communicationServices": /^[A-Za-z0-9-]{1,63}$/,
  "Microsoft.Communication/emailServices": /^[A-Za-z0-9-]{1,63}$/,
  "Microsoft.EventGrid/systemTopics": /^[A-Za-z0-9-]{3,50}$/,
  "Microsoft.EventGrid/systemTopics/eventSubscriptions": /^[A-Za-z0-9-]{3,64}$/,
  "Microsoft.KeyVault/vaults": /^[A-Za-z][A-Za-z0-9-]{1,22}[A-Za-z0-9]$/,
  "Microsoft.ManagedIdentity/userAssignedIdentities": /^[A-Za-z0-9][\w-]{2,127}$/,
  "Microsoft.Network/privateEndpoints": /^[A-Za-z0-9][\w.-]{0,62}\w$/,
  "Microsoft.Network/virtualNetworks": /^[A-Za-z0-9][\w.-]{0,62}\w$/,
  "Microsoft.OperationalInsights/workspaces": /^[A-Za-z0-9][A-Za-z0-9-]{2,61}[A-Za-z0-9]$/,
  "Microsoft.Resources/resourceGroups": /^[\w().-]{0,89}[\w()-]$/,
  "Microsoft.Storage/storageAccounts": /^[a-z0-9]{3,24}$/,
  "Microsoft.Web/serverfarms": /^[A-Za-z0-9-]{1,60}$/,
  "Microsoft.Web/sites": /^[A-Za-z0-9-]{2,60}$/,
};

/**
 * Types whose names must be unique in all of Azure, by the source of NAME_RULES. So the names must also depend on the
 * subscription and the region.
 */
const GLOBAL = new Set([
  "Microsoft.AppConfiguration/configurationStores",
  "Microsoft.Communication/communicationServices",
  "Microsoft.Communication/emailServices",
  "Microsoft.KeyVault/vaults",
  "Microsoft.Storage/storageAccounts",
  "Microsoft.Web/sites",
]);

/** Types whose names Azure defines. */
const FIXED = new Set(["Microsoft.Network/privateDnsZones"]);

/** Returns the Azure type of a resource. */
const armTypeOf = ({ type }: DeployedResource): string =>
  KINDS.find(({ azurerm, inside }) => azurerm === type && !inside)?.arm ?? type;

const nameOf = ({ body }: DeployedResource): string => textOf(body.name ?? null);

const findingAt = ({ file, line }: DeployedResource, message: string): Finding => ({ file, line, message });

/**
 * Checks the names of all samples.
 *
 * @param deploy - Evaluates another sample.
 */
export function checkNames(results: readonly Result[], deploy: (sample: Sample) => Result): Finding[] {
  const isGlobal = (one: DeployedResource) => GLOBAL.has(armTypeOf(one));
  const service = results.find(({ sample }) => sample.name === EVERY_OPTION)!;
  return [
    ...results.flatMap(({ bicep, terraform }) => [bicep, terraform].flatMap(checkEach)),
    ...results.flatMap((result) =>
      sharedNames(
        result,
        deploy(changed(result.sample, { environmentName: "another-environment" })),
        mustBeUnshared,
        "environmentName",
      ),
    ),
    ...sharedNames(service, deploy(changed(service.sample, { location: "northeurope" })), isGlobal, "location"),
    ...sharedNames(
      service,
      deploy({
        ...service.sample,
        place: { ...service.sample.place, subscriptionId: "cccccccc-cccc-4ccc-8ccc-cccccccccccc" },
      }),
      isGlobal,
      "the subscription",
    ),
  ];
}

/** Returns the sample with another value of a parameter. */
const changed = (sample: Sample, parameters: { environmentName?: string; location?: string }): Sample => ({
  ...sample,
  parameters: { ...sample.parameters, ...parameters },
  variables: {
    ...sample.variables,
    ...Object.fromEntries(Object.entries(parameters).map(([name, value]) => [snake(name), value])),
  },
});

/** Returns a finding for each resource that has the same name in another deployment. */
function sharedNames(
  result: Result,
  other: Result,
  applies: (resource: DeployedResource) => boolean,
  parameter: string,
): Finding[] {
  return (["bicep", "terraform"] as const).flatMap((language) => {
    const keyOf = (one: DeployedResource) => `${one.type} ${one.symbol} ${nameOf(one)}`;
    const taken = new Set(other[language].resources.map(keyOf));
    return result[language].resources
      .filter((one) => applies(one) && taken.has(keyOf(one)))
      .map((one) => findingAt(one, `${one.symbol}: its name ${nameOf(one)} must depend on ${parameter}`));
  });
}

/**
 * Returns whether two deployments must not give a resource the same name. A resource inside of another resource, or with an
 * identifier of the deployment in its name (`<…>`), can't conflict with that of another deployment.
 */
function mustBeUnshared(one: DeployedResource): boolean {
  const type = armTypeOf(one);
  // A type that is still Terraform's has no Azure type: it is an association or a setting of another resource.
  const isInside = type.split("/").length > 2 || one.scope.startsWith("<") || type.startsWith("azurerm_");
  return !isInside && !FIXED.has(type) && !nameOf(one).includes("<") && nameOf(one) !== "null";
}

/** Checks that the names of a deployment are valid and that none occurs twice. */
function checkEach({ resources }: Deployment): Finding[] {
  const usedKeys = new Set<string>();
  return resources.flatMap((one) => {
    const name = nameOf(one);
    const type = armTypeOf(one);
    const key = `${type} ${one.scope} ${name}`;
    const isTwice = usedKeys.has(key) && name !== "null" && type.split("/").length === 2;
    usedKeys.add(key);
    const rule = NAME_RULES[type];
    return [
      ...(rule && !rule.test(name) ? [findingAt(one, `${one.symbol}: ${name} is no valid name of ${type}`)] : []),
      ...(isTwice ? [findingAt(one, `${one.symbol}: another resource has the name ${name} too`)] : []),
    ];
  });
}
