// Lists the resource types of each separately deployed part of the templates.

import type { BicepFile } from "./bicep/parse.ts";
import { dotted, type Expression, property, text } from "./expression.ts";
import { KINDS, TERRAFORM_ONLY } from "./parity/resource-kinds.ts";
import { argumentOf, blocks, type TerraformModule } from "./terraform/check.ts";

/** The resource types that one separately deployed part of the templates creates, in Bicep and Terraform together. */
export interface DeployedPart {
  /** Folder in `infra/azure` and `infra/terraform`. `main.bicep` for the service itself. */
  name: string;
  /** Resource types, such as `Microsoft.KeyVault/vaults`. */
  types: Set<string>;
  /** Whether Bicep deploys the part. A Bicep deployment is a resource itself. */
  hasBicep: boolean;
}

/** Returns the separately deployed parts of the templates, each with the types that it creates. */
export function deployedParts(
  bicep: ReadonlyMap<string, BicepFile>,
  modules: readonly TerraformModule[],
): DeployedPart[] {
  const parts = new Map<string, DeployedPart>();
  const partOf = (folder: string): DeployedPart => {
    const top = folder.split("/")[2] ?? "modules";
    const name = top === "modules" ? "main.bicep" : top;
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

export const bicepTypes = (files: Iterable<BicepFile>): string[] =>
  [...files].flatMap(({ resources }) => resources.filter(({ existing }) => !existing).map(({ type }) => type));

/** Returns the Azure resource types of a module's own resources. */
export const terraformTypes = (module: TerraformModule): string[] =>
  blocks(module, "resource").flatMap(({ block }) => {
    const type = block.labels[0]!;
    const only = TERRAFORM_ONLY[type]?.arm;
    return only ? [only] : KINDS.filter(({ azurerm }) => azurerm === type).map(({ arm }) => arm);
  });

/** Returns the services that subnets are delegated to, such as `Microsoft.App/environments`. */
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

export const terraformDelegations = (module: TerraformModule): string[] =>
  blocks(module, "resource").flatMap(
    ({ block }) => text(argumentOf(block, "delegation.service_delegation.name")) ?? [],
  );

/** Returns the provider alias that a module call passes. Empty for the caller's default provider. */
export function providerOf(call: Expression | undefined): string {
  const given = property(call, "azurerm");
  return (given && dotted(given)?.[1]) ?? "";
}
