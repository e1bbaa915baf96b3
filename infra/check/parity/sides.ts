import type { BicepFile, Resource } from "../bicep/parse.ts";
import type { Finding } from "../expression.ts";
import { blocks, type TerraformModule } from "../terraform/check.ts";
import type { Block } from "../terraform/parse.ts";
import { bicepNormal, callsOf, type Normal, snake, terraformNormal } from "./normal.ts";

/** A resource of either side, with what is needed to compare it. */
export interface Side {
  file: string;
  line: number;
  normal: Normal;
  condition: string;
}
export type BicepResource = Side & {
  resource: Resource;
  /** The file is deployed by itself, so nothing gives its parameters. */
  alone: boolean;
};
export type TerraformResource = Side & { block: Block };

/** By `type name`; the subscription's and the management group's permissions share their names, so a list. */
export function bicepResources(files: ReadonlyMap<string, BicepFile>): Map<string, BicepResource[]> {
  const found = new Map<string, BicepResource[]>();
  for (const file of files.values()) {
    const normal = bicepNormal(files, file);
    const calls = callsOf(files, file.path);
    for (const resource of file.resources) {
      if (resource.existing) continue;
      const conditions = [resource.condition, ...calls.map(({ module }) => module.condition)].filter(
        (one) => one !== undefined,
      );
      const key = `${resource.type.toLowerCase()} ${snake(resource.name)}`;
      const one = {
        resource,
        alone: calls.length === 0,
        normal,
        file: file.path,
        line: resource.line,
        condition: conditions.map(normal).join(" and "),
      };
      found.set(key, [...(found.get(key) ?? []), one]);
    }
  }
  return found;
}

export function terraformResources(modules: readonly TerraformModule[]): Map<string, TerraformResource> {
  const found = new Map<string, TerraformResource>();
  for (const module of modules.filter(({ folder }) => !folder.includes("/examples/"))) {
    const normal = terraformNormal(module, modules);
    for (const { block, file } of blocks(module, "resource")) {
      found.set(block.labels.join(" "), {
        block,
        normal,
        file,
        line: block.line,
        condition: conditionOf(block, module, normal),
      });
    }
  }
  return found;
}

/** `count = var.x ? 1 : 0`, and `for_each` over a local with `if var.x`. */
function conditionOf(block: Block, module: TerraformModule, normal: Normal): string {
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

export const at = (side: { file: string; line: number }, message: string): Finding => ({
  file: side.file,
  line: side.line,
  message,
});
