// Reads a value of a resource in the common text of both languages (normalize.ts).

import path from "node:path";
import { type Expression, property, text } from "../expression.ts";
import { roleOfId } from "../roles.ts";
import { argumentOf } from "../terraform/check.ts";
import type { Block } from "../terraform/parse.ts";
import type { BicepResource, TerraformResource } from "./declared-resources.ts";
import { type Normalize, snake } from "./normalize.ts";
import type { Pair } from "./resource-kinds.ts";

/** Returns the common text of a property by its path, such as `properties.logs.0.category`. Undefined if it is not set. */
export function bicepValue({ resource, normalize, file }: BicepResource, propertyPath: string): string | undefined {
  let value: Expression | undefined = resource.body;
  for (const key of propertyPath.split(".")) {
    value = /^\d$/.test(key)
      ? value?.kind === "array"
        ? value.items[Number(key)]
        : undefined
      : value?.kind === "object"
        ? value.entries.find((entry) => entry.key === key)?.value
        : undefined;
  }
  if (!value) return undefined;
  if (propertyPath === "scope") return `{${snake(path.basename(normalize(value).slice(1, -1)))}.id}`;
  if (propertyPath === "properties.roleDefinitionId") return roleName(value, resource.body, normalize);
  return file ? normalize(value) : undefined;
}

/**
 * Returns the name of a built-in role by its ID, or the common text of a custom role's resource. For a role that is not in
 * roles.ts, takes the name from the last argument of the assignment's name: `guid(scope, principal, 'Name of the role')`.
 */
function roleName(value: Expression, assignment: Expression, normalize: Normalize): string {
  const id = text(value.kind === "call" ? value.args.at(-1) : undefined);
  if (id === undefined) return normalize(value);
  const name = property(assignment, "name");
  const ownName = name?.kind === "call" ? text(name.args.at(-1)) : undefined;
  return roleOfId(id)?.name ?? (ownName ? `${ownName} (${id})` : id);
}

/** Returns the common text of the argument of a pair, in the words of Bicep. Undefined if it is not set. */
export function terraformValue(
  { block, normalize }: TerraformResource,
  { terraform, bicepValues = {} }: Pair,
): string | undefined {
  const argument =
    argumentOf(block, terraform) ??
    (terraform === "role_definition_name" ? argumentOf(block, "role_definition_id") : undefined);
  if (!argument) return undefined;
  const value = normalize(argument);
  if (bicepValues[value] !== undefined) return bicepValues[value];
  return value.replace(/\b(true|false)\b/g, (word) => bicepValues[word] ?? word);
}

/** Returns the paths of the properties that a resource sets, such as `properties.logs.0.category`. */
export function leavesOf(value: Expression, prefix = ""): string[] {
  if (value.kind === "object")
    return value.entries.flatMap((entry) => leavesOf(entry.value, join(prefix, entry.key ?? "?")));
  if (value.kind === "array")
    return value.items.flatMap((item, index) =>
      item.kind === "object" ? leavesOf(item, join(prefix, String(index))) : [prefix],
    );
  return [prefix];
}

/** Returns the paths of the arguments that a resource sets, such as `site_config.minimum_tls_version`. */
export function argumentsOf(block: Block, prefix = ""): string[] {
  const ownArguments = [...block.attributes.keys()]
    .filter((name) => block.type !== "dynamic" || name !== "for_each")
    .map((name) => join(prefix, name));
  return [
    ...ownArguments,
    ...block.blocks.flatMap((inner) => {
      const name = inner.type === "dynamic" ? inner.labels[0]! : inner.type;
      return argumentsOf(inner, inner.type === "content" ? prefix : join(prefix, name));
    }),
  ];
}

const join = (prefix: string, name: string): string => (prefix === "" ? name : `${prefix}.${name}`);
