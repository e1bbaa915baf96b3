// Defaults of the service's parameters, each with its reason. A changed default also applies to existing deployments that don't
// set the parameter, so it can replace resources, move data or cost money. A comparison of Bicep, Terraform and the documentation
// does not find a default that was changed in all of them.

import type { BicepFile } from "./bicep/parse.ts";
import type { Expression, Finding } from "./expression.ts";
import { snake } from "./parity/normalize.ts";
import { blocks, type TerraformModule } from "./terraform/check.ts";

const OPTION = "the option is off until someone chooses it";
const OPEN = "an existing deployment would lose the access that it has";

/** Defaults by parameter, as text. Every other parameter is empty by default. */
const DEFAULTS: Record<string, [value: string, reason: string]> = {
  storageReplication: ["ZRS", "another redundancy converts the existing account, and its data would lose the zones"],
  zoneRedundant: ["false", "turning it on replaces the plan and the app of an existing deployment"],
  watchRolesEnabled: ["true", "without the roles, the service can no longer read what it watches"],
  bootstrapAdminUsername: ["admin", "docs/deploy.md names this user for the first sign-in"],
  instanceMemoryMb: ["512", "the price of the app is proportional to its memory"],
  maximumInstanceCount: ["40", "it limits what the app can cost, and the platform allows no less"],
  alwaysReadyInstances: ["0", "an instance that is always ready costs money without any work"],
  nodeVersion: ["22", "an existing app keeps its version until someone chooses another one"],
  logRetentionDays: ["30", "more days cost money, and fewer delete logs that someone may need"],
  diagnosticSettingsEnabled: ["false", "the logs of each resource cost money"],
  monitoringPublicNetworkAccessEnabled: ["true", OPEN],
  mailEnabled: ["true", "off would delete the email service of an existing deployment, with its sender address"],
  mailDataLocation: ["Europe", "another location replaces the email service, with its sender address"],
  appConfigurationEnabled: ["false", "a store of the standard tier has a price per day"],
  appPublicNetworkAccessEnabled: ["true", OPEN],
  appPrivateEndpointEnabled: ["false", OPTION],
  networkEnabled: ["false", "private endpoints have a price per hour, and storage becomes unreachable from elsewhere"],
  natGatewayEnabled: ["false", "a gateway has a price per hour"],
  privateDnsZonesEnabled: ["true", "off would delete the zones with which the app finds storage and vault"],
  networkAddressPrefix: ["10.20.0.0/24", "another range replaces the network with its private endpoints"],
  eventsEnabled: ["false", OPTION],
};

/** Checks the defaults of main.bicep and of the Terraform module. */
export function checkDefaults(bicep: ReadonlyMap<string, BicepFile>, module: TerraformModule | undefined): Finding[] {
  const file = "infra/azure/main.bicep";
  const variables = module ? blocks(module, "variable") : [];
  return (bicep.get(file)?.parameters ?? []).flatMap(({ name, line, defaultValue }) => {
    // The subscription of the deployment, which each language writes in its own way. The sample "defaults" evaluates it.
    if (name === "watchedSubscriptionIds") return [];
    const variable = variables.find(({ block }) => block.labels[0] === snake(name));
    return [
      { file, line, name, value: defaultValue },
      ...(variable
        ? [
            {
              file: variable.file,
              line: variable.block.line,
              name: snake(name),
              value: variable.block.attributes.get("default")?.value,
            },
          ]
        : []),
    ].flatMap((one) => {
      const [expected, reason] = DEFAULTS[name] ?? ["", ""];
      if (textOf(one.value) === expected) return [];
      const unlisted = `${one.name} has the default ${textOf(one.value)}: if it keeps what an existing deployment has, add it to DEFAULTS with the reason (default-values.ts). Other parameters are empty until someone sets them`;
      if (!DEFAULTS[name]) return [{ file: one.file, line: one.line, message: unlisted }];
      const message = `the default of ${one.name} must be ${expected || "empty"}, but is ${textOf(one.value) || "empty"}: ${reason}. If the new one is intended, change DEFAULTS (default-values.ts)`;
      return [{ file: one.file, line: one.line, message }];
    });
  });
}

/** Returns a default as text. Empty for an empty text, list or object, for null, and for none. */
function textOf(value: Expression | undefined): string {
  if (value?.kind === "literal") return String(value.value ?? "");
  const isEmpty =
    (value?.kind === "object" && value.entries.length === 0) || (value?.kind === "array" && value.items.length === 0);
  return value === undefined || isEmpty ? "" : "an expression";
}
