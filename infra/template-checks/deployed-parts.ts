// Lists the resource types that the templates create, by part. A part is a set of templates that is deployed on its own: the
// service itself, or an optional folder such as `events`.

import type { BicepFile } from "./bicep/parse.ts";
import { dotted, type Expression, property, text } from "./expression.ts";
import { KINDS, TERRAFORM_ONLY } from "./parity/resource-kinds.ts";
import { argumentOf, blocks, type TerraformModule } from "./terraform/check.ts";

/** One part with the resource types that it creates, in Bicep and Terraform together. */
export interface DeployedPart {
  /** Folder of the part in `infra/azure` and `infra/terraform`, or `main.bicep` for the service itself. */
  name: string;
  /** Resource types, such as `Microsoft.KeyVault/vaults`. */
  types: Set<string>;
  /** Whether Bicep deploys the part. Deploying Bicep creates a deployment resource, which needs a permission of its own. */
  hasBicep: boolean;
}

/** Returns the parts of the templates. The Terraform examples create no part. */
export function deployedParts(
  bicep: ReadonlyMap<string, BicepFile>,
  modules: readonly TerraformModule[],
): DeployedPart[] {
  const parts = new Map<string, DeployedPart>();
  const partOf = (folder: string): DeployedPart => {
    // The third segment of `infra/azure/events`. The root folder and `modules` belong to the service itself.
    const topFolder = folder.split("/")[2] ?? "modules";
    const name = topFolder === "modules" ? "main.bicep" : topFolder;
    const part = parts.get(name) ?? { name, types: new Set<string>(), hasBicep: false };
    parts.set(name, part);
    return part;
  };
  for (const file of bicep.values()) {
    const part = partOf(file.path.split("/").slice(0, -1).join("/"));
    part.hasBicep = true;
    for (const type of bicepTypes([file])) part.types.add(type);
  }
  for (const module of modules.filter(({ folder }) => !folder.includes("/examples/"))) {
    for (const type of terraformTypes(module)) partOf(module.folder).types.add(type);
  }
  return [...parts.values()];
}

/** Returns the Azure resource types that the Bicep files create. */
export const bicepTypes = (files: Iterable<BicepFile>): string[] =>
  [...files].flatMap(({ resources }) => resources.filter(({ existing }) => !existing).map(({ type }) => type));

/** Returns the Azure resource types that a Terraform module creates, without the modules that it calls. */
export const terraformTypes = (module: TerraformModule): string[] =>
  blocks(module, "resource").flatMap(({ block }) => {
    const type = block.labels[0]!;
    const terraformOnly = TERRAFORM_ONLY[type]?.arm;
    return terraformOnly ? [terraformOnly] : KINDS.filter(({ azurerm }) => azurerm === type).map(({ arm }) => arm);
  });

/** Returns the services to which the subnets in the Bicep files are delegated, such as `Microsoft.App/environments`. */
export function bicepDelegations(files: Iterable<BicepFile>): string[] {
  const subnets = [...files].flatMap(({ resources }) =>
    resources.filter(({ type }) => type === "Microsoft.Network/virtualNetworks/subnets"),
  );
  return subnets.flatMap(({ body }) => {
    const list = property(body, "properties", "delegations");
    const items: Expression[] = list?.kind === "array" ? list.items : [];
    return items.flatMap((item) => text(property(item, "properties", "serviceName")) ?? []);
  });
}

/** Returns the services to which the subnets in a Terraform module are delegated. */
export const terraformDelegations = (module: TerraformModule): string[] =>
  blocks(module, "resource").flatMap(
    ({ block }) => text(argumentOf(block, "delegation.service_delegation.name")) ?? [],
  );

/**
 * Returns the alias of the azurerm provider that a module call passes. Empty for the default provider.
 * @param providers Value of the argument `providers`, for example `{ azurerm = azurerm.other }`.
 */
export function providerAlias(providers: Expression | undefined): string {
  const provider = property(providers, "azurerm");
  return (provider && dotted(provider)?.[1]) ?? "";
}
