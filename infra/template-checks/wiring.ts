// Checks that calls of modules pass values of the right kind: the name of a passed value must end like the name of the parameter.
// Values of the same type can be swapped without any other sign.

import type { BicepFile } from "./bicep/parse.ts";
import { dotted, type Expression, type Finding, property } from "./expression.ts";
import { snake } from "./parity/normalize.ts";
import { blocks, type TerraformModule } from "./terraform/check.ts";

/** Passed values whose names differ from the parameter's, each with the reason. */
const RENAMED: Record<string, string> = {
  "scope_name = var.management_group_name": "the module's scope can also be a subscription",
  "scope = var.resource_group_id": "the module's permissions are in this resource group",
};

/** Checks the calls in all Bicep files, in all Terraform modules and in the examples. */
export function checkWiring(bicep: ReadonlyMap<string, BicepFile>, modules: readonly TerraformModule[]): Finding[] {
  return [
    ...[...bicep.values()].flatMap((file) =>
      file.modules.flatMap(({ body }) => {
        const params = property(body, "params");
        return params?.kind === "object"
          ? params.entries.flatMap(({ key, value }) => checkValue(file.path, snake(key ?? ""), value, bicepName(value)))
          : [];
      }),
    ),
    ...modules.flatMap((module) => [
      ...blocks(module, "module").flatMap(({ block, file }) =>
        [...block.attributes].flatMap(([name, { value }]) => checkArgument(file, name, value)),
      ),
      ...(module.folder.includes("/examples/") ? checkExampleOutputs(module) : []),
    ]),
  ];
}

/** Checks an argument of a module call, and each member if it is an object. */
function checkArgument(file: string, name: string, value: Expression): Finding[] {
  if (name === "providers") return [];
  if (value.kind === "object")
    return value.entries.flatMap(({ key, value: inner }) => checkArgument(file, snake(key ?? ""), inner));
  return checkValue(file, name, value, terraformName(value));
}

/** Checks a passed value. Values other than references are checked by parity and by evaluation. */
function checkValue(file: string, parameter: string, value: Expression, name: string | undefined): Finding[] {
  if (name === undefined || parameter === "") return [];
  const isAlike = endsLike(name, parameter) || endsLike(parameter, name);
  const written = `${parameter} = ${dotted(value)?.join(".")}`;
  return isAlike || written in RENAMED
    ? []
    : [
        {
          file,
          line: value.line,
          message: `${parameter} gets ${dotted(value)?.join(".")}, which is another value by its name`,
        },
      ];
}

/** Returns whether one name ends with the other one, by whole words. */
const endsLike = (longer: string, shorter: string): boolean => `_${longer}`.endsWith(`_${shorter}`);

/** Returns the name of a reference in Bicep: of a parameter or variable, or of an output of a module. */
function bicepName(value: Expression): string | undefined {
  const names = dotted(value);
  return names && snake(names.at(-1)!);
}

/** Returns the name of a reference in Terraform. An attribute of a resource has the name of the resource before it. */
function terraformName(value: Expression): string | undefined {
  const names = dotted(value);
  if (!names || names[0] === "each" || names[0] === "local") return undefined;
  return names[0]!.startsWith("azurerm_") ? names.slice(1).join("_") : names.at(-1)!;
}

/** Checks that an output of an example is the output of a module with the same name. */
function checkExampleOutputs(module: TerraformModule): Finding[] {
  return blocks(module, "output").flatMap(({ block, file }) => {
    const value = block.attributes.get("value")?.value;
    const names = (value && dotted(value)) ?? [];
    const name = block.labels[0]!;
    return names[0] === "module" && names.at(-1) === name
      ? []
      : [{ file, line: block.line, message: `the output ${name} must be the module's output of this name` }];
  });
}
