// Compares azurerm.json, the excerpt of the provider's schema that is read on every machine, with the schema that the provider
// itself prints where it is installed. https://developer.hashicorp.com/terraform/cli/commands/providers/schema

import type { Finding } from "../expression.ts";
import type { Argument, Arguments } from "./check.ts";

/** A block in the output of `terraform providers schema -json`. */
interface SchemaBlock {
  attributes?: Record<string, { type?: string | [string, ...unknown[]]; required?: boolean }>;
  block_types?: Record<string, { block: SchemaBlock; min_items?: number }>;
}
export interface ProviderSchemas {
  provider_schemas: Record<string, { resource_schemas: Record<string, { block: SchemaBlock }> }>;
}

const FILE = "infra/template-checks/terraform/azurerm.json";

/** Checks that each resource type, argument and attribute of the excerpt is in the provider's schema, with the same type. */
export function compareWithProvider(
  excerpt: Record<string, { arguments: Arguments; attributes: string[] }>,
  { provider_schemas }: ProviderSchemas,
): Finding[] {
  const [schema] = Object.entries(provider_schemas).flatMap(([name, one]) => (name.endsWith("/azurerm") ? [one] : []));
  const messages = Object.entries(excerpt).flatMap(([type, { arguments: args, attributes }]) => {
    const block = schema?.resource_schemas[type]?.block;
    if (!block) return [`the provider has no resource ${type}`];
    return [
      ...argumentsIn(args, block, type),
      ...attributes
        .filter((name) => !block.attributes?.[name] && !block.block_types?.[name])
        .map((name) => `the provider's ${type} has no attribute ${name}`),
    ];
  });
  return messages.map((message) => ({ file: FILE, line: 1, message }));
}

function argumentsIn(args: Arguments, block: SchemaBlock, place: string): string[] {
  const required = [
    ...Object.entries(block.attributes ?? {}).flatMap(([name, one]) => (one.required ? [name] : [])),
    ...Object.entries(block.block_types ?? {}).flatMap(([name, one]) => ((one.min_items ?? 0) > 0 ? [name] : [])),
  ];
  return [
    ...required.filter((name) => !args[name]).map((name) => `the provider's ${place} needs ${name}`),
    ...Object.entries(args).flatMap(([name, argument]) => compareArgument(name, argument, block, place, required)),
  ];
}

function compareArgument(
  name: string,
  argument: Argument,
  block: SchemaBlock,
  place: string,
  required: readonly string[],
): string[] {
  const inner = block.block_types?.[name]?.block;
  const attribute = block.attributes?.[name];
  if (argument.block)
    return inner
      ? argumentsIn(argument.block, inner, `${place}.${name}`)
      : [`the provider's ${place} has no block ${name}`];
  if (!attribute) return [`the provider's ${place} has no argument ${name}`];
  const kind = kindOf(attribute.type);
  return [
    ...(kind === argument.type ? [] : [`the provider's ${place}.${name} is ${kind}, not ${argument.type}`]),
    ...(required.includes(name) === (argument.required ?? false)
      ? []
      : [`the provider's ${place}.${name} is ${argument.required ? "optional" : "required"}`]),
  ];
}

/** Returns the kind of a type as azurerm.json has it: a set is a list there. */
function kindOf(type: string | [string, ...unknown[]] | undefined): string | undefined {
  const kind = Array.isArray(type) ? type[0] : type;
  return kind === "set" ? "list" : kind;
}
