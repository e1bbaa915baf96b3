// Lists the resources of the Bicep files and of the Terraform module in a comparable form.

import path from "node:path";
import type { BicepFile, Resource } from "../bicep/parse.ts";
import { type Finding, text } from "../expression.ts";
import { blocks, type TerraformModule } from "../terraform/check.ts";
import type { Block } from "../terraform/parse.ts";
import { bicepNormalizer, callsOf, type Normalize, snake, terraformNormalizer } from "./normalize.ts";

/** A resource of one side, with the data that the comparison needs. */
export interface Side {
  file: string;
  line: number;
  normal: Normalize;
  condition: string;
}
export type BicepResource = Side & {
  resource: Resource;
  /** True if the file is deployed separately, so that no caller sets its parameters. */
  alone: boolean;
};
export type TerraformResource = Side & { block: Block };

/** Resources by `type name`. Lists, because the permission files for subscriptions and management groups use the same names. */
export function bicepResources(files: ReadonlyMap<string, BicepFile>): Map<string, BicepResource[]> {
  const found = new Map<string, BicepResource[]>();
  for (const file of files.values()) {
    const normal = bicepNormalizer(files, file);
    const calls = callsOf(files, file.path);
    const around = conditionsOfCalls(files, file);
    for (const resource of file.resources) {
      if (resource.existing) continue;
      const own = resource.condition ? [normal(resource.condition)] : [];
      const key = `${resource.type.toLowerCase()} ${snake(resource.name)}`;
      const one = {
        resource,
        alone: calls.length === 0,
        normal,
        file: file.path,
        line: resource.line,
        condition: [...own, ...around].join(" and "),
      };
      found.set(key, [...(found.get(key) ?? []), one]);
    }
  }
  return found;
}

/** Returns the conditions under which a file is deployed: the conditions of its calls, of the callers' calls, and so on. */
function conditionsOfCalls(files: ReadonlyMap<string, BicepFile>, file: BicepFile): string[] {
  return callsOf(files, file.path).flatMap(({ file: caller, module }) => [
    ...(module.condition ? [bicepNormalizer(files, caller)(module.condition)] : []),
    ...conditionsOfCalls(files, caller),
  ]);
}

export function terraformResources(modules: readonly TerraformModule[]): Map<string, TerraformResource> {
  const found = new Map<string, TerraformResource>();
  for (const module of modules.filter(({ folder }) => !folder.includes("/examples/"))) {
    const normal = terraformNormalizer(module, modules);
    const around = callsOfModule(modules, module).map((call) => conditionOf(call, module, normal));
    for (const { block, file } of blocks(module, "resource")) {
      found.set(block.labels.join(" "), {
        block,
        normal,
        file,
        line: block.line,
        condition: [conditionOf(block, module, normal), ...around].filter((one) => one !== "").join(" and "),
      });
    }
  }
  return found;
}

/** Returns the calls of a module, except those in examples. */
function callsOfModule(modules: readonly TerraformModule[], { folder }: TerraformModule): Block[] {
  return modules
    .filter((caller) => !caller.folder.includes("/examples/"))
    .flatMap((caller) =>
      blocks(caller, "module")
        .map(({ block }) => block)
        .filter(
          ({ attributes }) => path.posix.join(caller.folder, text(attributes.get("source")?.value) ?? "") === folder,
        ),
    );
}

/** Returns the condition of `count = var.x ? 1 : 0`, and of `for_each` over a local with `if var.x`. */
function conditionOf(block: Block, module: TerraformModule, normal: Normalize): string {
  const count = block.attributes.get("count")?.value;
  if (count?.kind === "conditional") return normal(count.test);
  const each = block.attributes.get("for_each")?.value;
  const local = each?.kind === "member" ? each.name : undefined;
  const value = blocks(module, "locals").find(({ block: one }) => local !== undefined && one.attributes.has(local));
  const loop = local === undefined ? undefined : value?.block.attributes.get(local)?.value;
  const filter =
    loop?.kind === "for"
      ? loop.result.find((part) => part.kind === "operation" && part.operator === "for_cond")
      : undefined;
  return filter?.kind === "operation" ? filter.parts.map(normal).join(" and ") : "";
}

export const findingAt = (side: { file: string; line: number }, message: string): Finding => ({
  file: side.file,
  line: side.line,
  message,
});
