// Lists the resources of the Bicep files and of the Terraform modules in a comparable form, for the parity check (parity.ts).

import path from "node:path";
import type { BicepFile, Resource } from "../bicep/parse.ts";
import { type Finding, text } from "../expression.ts";
import { blocks, STATE_ONLY, type TerraformModule } from "../terraform/check.ts";
import type { Block } from "../terraform/parse.ts";
import { bicepNormalizer, callsOf, type Normalize, snake, terraformNormalizer } from "./normalize.ts";

/** Where a resource is declared, and how to compare its values. "Side" means Bicep or Terraform. */
export interface Side {
  file: string;
  line: number;
  /** Converts an expression of this file to the common text that is compared. */
  normalize: Normalize;
  /** Condition under which the resource is created, in the common text. Empty if it is always created. */
  condition: string;
}
export type BicepResource = Side & {
  resource: Resource;
  /** True if no other file calls this file as a module, so that its parameters have no known value. */
  isEntryPoint: boolean;
};
export type TerraformResource = Side & {
  block: Block;
  /** The condition without those of the module calls. */
  ownCondition: string;
};

/**
 * Returns the Bicep resources by key `<type in lower case> <name in snake_case>`. A key can have several resources, because the
 * permission files for subscriptions and for management groups use the same names.
 */
export function bicepResources(files: ReadonlyMap<string, BicepFile>): Map<string, BicepResource[]> {
  const resources = new Map<string, BicepResource[]>();
  for (const file of files.values()) {
    const normalize = bicepNormalizer(files, file);
    const calls = callsOf(files, file.path);
    const callConditions = conditionsOfCalls(files, file);
    for (const resource of file.resources) {
      if (resource.existing) continue;
      const ownCondition = resource.condition ? [normalize(resource.condition)] : [];
      const key = `${resource.type.toLowerCase()} ${snake(resource.name)}`;
      const bicepResource = {
        resource,
        isEntryPoint: calls.length === 0,
        normalize,
        file: file.path,
        line: resource.line,
        condition: [...ownCondition, ...callConditions].join(" and "),
      };
      resources.set(key, [...(resources.get(key) ?? []), bicepResource]);
    }
  }
  return resources;
}

/** Returns the conditions under which a file is deployed: the conditions of its calls, of the callers' calls, and so on. */
function conditionsOfCalls(files: ReadonlyMap<string, BicepFile>, file: BicepFile): string[] {
  return callsOf(files, file.path).flatMap(({ file: caller, module }) => [
    ...(module.condition ? [bicepNormalizer(files, caller)(module.condition)] : []),
    ...conditionsOfCalls(files, caller),
  ]);
}

/** Returns the Terraform resources by key `<type> <name>`, without the examples. */
export function terraformResources(modules: readonly TerraformModule[]): Map<string, TerraformResource> {
  const resources = new Map<string, TerraformResource>();
  for (const module of modules.filter(({ folder }) => !folder.includes("/examples/"))) {
    const normalize = terraformNormalizer(module, modules);
    const callConditions = callsOfModule(modules, module).map(({ call, caller }) =>
      conditionOf(call, caller, terraformNormalizer(caller, modules)),
    );
    for (const { block, file } of blocks(module, "resource")) {
      // Terraform's own resource creates nothing in Azure.
      if (block.labels[0] === STATE_ONLY) continue;
      resources.set(block.labels.join(" "), {
        block,
        normalize,
        file,
        line: block.line,
        ownCondition: conditionOf(block, module, normalize),
        condition: [conditionOf(block, module, normalize), ...callConditions].filter((one) => one !== "").join(" and "),
      });
    }
  }
  return resources;
}

/** Returns the calls of a module with the calling modules, except those in examples. */
function callsOfModule(
  modules: readonly TerraformModule[],
  { folder }: TerraformModule,
): { call: Block; caller: TerraformModule }[] {
  return modules
    .filter((caller) => !caller.folder.includes("/examples/"))
    .flatMap((caller) =>
      blocks(caller, "module")
        .map(({ block }) => ({ call: block, caller }))
        .filter(
          ({ call }) => path.posix.join(caller.folder, text(call.attributes.get("source")?.value) ?? "") === folder,
        ),
    );
}

/**
 * Returns the condition of a resource or module call: `var.x` for `count = var.x ? 1 : 0`, and for `for_each` over a local with
 * `if var.x`. Empty if there is none.
 */
function conditionOf(block: Block, module: TerraformModule, normalize: Normalize): string {
  const count = block.attributes.get("count")?.value;
  if (count?.kind === "conditional") return normalize(count.test);
  const each = block.attributes.get("for_each")?.value;
  const local = each?.kind === "member" ? each.name : undefined;
  const value = blocks(module, "locals").find(
    ({ block: locals }) => local !== undefined && locals.attributes.has(local),
  );
  const loop = local === undefined ? undefined : value?.block.attributes.get(local)?.value;
  // `for_cond` is the grammar's name of the `if` in a `for` expression.
  const filter =
    loop?.kind === "for"
      ? loop.result.find((part) => part.kind === "operation" && part.operator === "for_cond")
      : undefined;
  return filter?.kind === "operation" ? filter.parts.map(normalize).join(" and ") : "";
}

/** Creates a finding at the place of a declaration. */
export const findingAt = (side: { file: string; line: number }, message: string): Finding => ({
  file: side.file,
  line: side.line,
  message,
});
