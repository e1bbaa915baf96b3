// Compares the Bicep files with the Terraform module.

import path from "node:path";
import type { BicepFile } from "../bicep/parse.ts";
import { type Expression, type Finding, property } from "../expression.ts";
import { roleOfId, roleOfName } from "../roles.ts";
import { argumentOf, type TerraformModule } from "../terraform/check.ts";
import type { Block } from "../terraform/parse.ts";
import {
  type BicepResource,
  bicepResources,
  findingAt,
  type TerraformResource,
  terraformResources,
} from "./declared-resources.ts";
import { compareEndpoints } from "./endpoints.ts";
import { type Normalize, snake } from "./normalize.ts";
import { KINDS, type Kind, type Pair, TERRAFORM_ONLY } from "./resource-kinds.ts";
import { bicepSettings, EMPTIED, emptiesStorageKey, terraformSettings } from "./settings.ts";

/** One row of the parity table: something that both sides have, or that one side lacks. */
export interface ParityRow {
  what: "resource" | "role" | "setting";
  name: string;
  bicep: string;
  terraform: string;
}

/** Compares resources, properties, roles and settings of the Bicep files and the Terraform module. */
export function checkParity(
  files: ReadonlyMap<string, BicepFile>,
  modules: readonly TerraformModule[],
): { findings: Finding[]; table: ParityRow[] } {
  const findings: Finding[] = [];
  const table: ParityRow[] = [];
  const bicep = bicepResources(files);
  const terraform = terraformResources(modules);
  for (const [key, found] of bicep) {
    const kinds = KINDS.filter(({ arm }) => arm.toLowerCase() === found[0]!.resource.type.toLowerCase());
    const nameOf = ({ inside }: Kind) => (inside ? inside.name : key.split(" ")[1]!);
    // For some Azure types, Terraform has one type per scope.
    const kind = kinds.find((one) => terraform.has(`${one.azurerm} ${nameOf(one)}`)) ?? kinds[0];
    if (!kind) {
      findings.push(
        findingAt(found[0]!, `${found[0]!.resource.type} is not in the parity table (parity/resource-kinds.ts)`),
      );
      continue;
    }
    const name = nameOf(kind);
    const other = terraform.get(`${kind.azurerm} ${name}`);
    if (!other) findings.push(findingAt(found[0]!, `Terraform has no ${kind.azurerm}.${name}`));
    table.push(rowOf(kind, found[0]!, other, name));
    for (const one of found) if (other) findings.push(...compare(kind, one, other));
  }
  for (const [key, found] of terraform) {
    const [type, name] = key.split(" ") as [string, string];
    findings.push(...onlyTerraform(type, name, found, bicep));
  }
  findings.push(...permissionsOfBothScopes(files), ...ownResources(bicep, terraform));
  const settings = compareSettings(files, modules);
  return {
    findings: [...findings, ...settings.findings, ...compareEndpoints(files, modules)],
    table: [...table, ...settings.table],
  };
}

function compare(kind: Kind, bicep: BicepResource, terraform: TerraformResource): Finding[] {
  const findings: Finding[] = [];
  const both = `${bicep.resource.name} (${terraform.file}:${terraform.line})`;
  if (bicep.condition !== terraform.condition && !kind.inside) {
    findings.push(
      findingAt(
        bicep,
        `${both}: made under the condition "${bicep.condition}" here, "${terraform.condition}" in Terraform`,
      ),
    );
  }
  const [waits, waitsToo] = [property(bicep.resource.body, "dependsOn"), terraform.block.attributes.has("depends_on")];
  if (!kind.inside && !SELF_ORDERED.has(kind.azurerm) && (waits !== undefined) !== waitsToo)
    findings.push(findingAt(bicep, `${both}: only ${waits ? "Bicep" : "Terraform"} declares its dependencies`));
  if (kind.inside && !hasProperty(terraform.block, kind.inside.argument))
    findings.push(findingAt(bicep, `${both}: Terraform has no ${kind.inside.argument}`));
  for (const pair of kind.pairs) {
    const [left, right] = [bicepValue(bicep, pair.bicep), terraformValue(terraform, pair)];
    const given = bicep.alone && left !== undefined && /^\{\w+\}$/.test(left);
    const same = pair.presence || given ? (left === undefined) === (right === undefined) : left === right;
    // The default scope of a role assignment is the scope of its file. A scope that is given by ID can be the same one.
    const sameScope = left === undefined ? right === "{scope}" : left.replace(".", "_") === right;
    if (!same && !(pair.bicep === "scope" && sameScope)) {
      findings.push(
        findingAt(bicep, `${both}: ${pair.bicep} is ${left ?? "not set"}, ${pair.terraform} is ${right ?? "not set"}`),
      );
    }
  }
  const known = [
    ...kind.pairs.map((pair) => pair.bicep),
    ...Object.keys(kind.only?.bicep ?? {}),
    "parent",
    "dependsOn",
    "scope",
  ];
  const leaves = bicepLeaves(bicep.resource.body);
  for (const leaf of leaves) {
    if (!isCompared(leaf, known)) findings.push(findingAt(bicep, `${both}: ${leaf} has no counterpart in Terraform`));
  }
  for (const [leaf, reason] of Object.entries(kind.only?.bicep ?? {})) {
    const [fixed, value] = [/^always (\S+)$/.exec(reason)?.[1], bicepValue(bicep, leaf)];
    if (fixed !== undefined && value !== undefined && value !== fixed) {
      findings.push(findingAt(bicep, `${both}: ${leaf} is ${value}, not ${fixed}`));
    }
  }
  const missing = missingFrom(leaves, Object.keys(kind.only?.bicep ?? {}));
  return [...findings, ...missing.map((one) => findingAt(bicep, `${both}: ${one} is not set`))];
}

/** Properties that only one side writes. They count as written wherever their object is. */
function missingFrom(leaves: readonly string[], only: readonly string[]): string[] {
  return only.filter((one) => {
    const around = one.split(".").slice(0, -1).join(".");
    const expected = around === "" || leaves.some((leaf) => leaf.startsWith(`${around}.`));
    return expected && !leaves.some((leaf) => isCompared(leaf, [one]));
  });
}

/** Checks that the permission files for a subscription and for a management group assign the same roles. */
function permissionsOfBothScopes(files: ReadonlyMap<string, BicepFile>): Finding[] {
  const watch = [...files.values()].filter(({ path }) => path.startsWith("infra/azure/watch/"));
  const names = new Set(watch.flatMap(({ resources }) => resources.map(({ name }) => name)));
  return watch.flatMap((file) =>
    [...names]
      .filter((name) => !file.resources.some((resource) => resource.name === name))
      .map((name) => ({ file: file.path, line: 1, message: `has no ${name}, which the other scope has` })),
  );
}

/** Properties of Bicep that are separate resources in Terraform. */
function ownResources(
  bicep: ReadonlyMap<string, BicepResource[]>,
  terraform: ReadonlyMap<string, TerraformResource>,
): Finding[] {
  return Object.entries(TERRAFORM_ONLY).flatMap(([type, { arm, property }]) => {
    const owner = [...bicep.values()].flat().find((one) => one.resource.type === arm && bicepValue(one, property));
    const other = [...terraform].find(([key]) => key.startsWith(`${type} `))?.[1];
    if (owner && !other) return [findingAt(owner, `Terraform has no ${type}, which ${property} is`)];
    if (other && !owner) return [findingAt(other, `Bicep has no ${property}, which ${type} is`)];
    const same = owner?.condition === other?.condition;
    return same
      ? []
      : [
          findingAt(
            other!,
            `${type} is made under the condition "${other!.condition}", in Bicep "${owner!.condition}"`,
          ),
        ];
  });
}

function onlyTerraform(
  type: string,
  name: string,
  found: TerraformResource,
  bicep: ReadonlyMap<string, BicepResource[]>,
): Finding[] {
  if (TERRAFORM_ONLY[type]) return [];
  const kinds = KINDS.filter((kind) => kind.azurerm === type);
  const kind = kinds.find(({ inside }) => !inside);
  if (!kind) return [findingAt(found, `${type} is not in the parity table (parity/resource-kinds.ts)`)];
  if (!bicep.has(`${kind.arm.toLowerCase()} ${name}`)) return [findingAt(found, `Bicep has no ${kind.arm} ${name}`)];
  const missing = kinds.filter(
    ({ inside }) =>
      inside &&
      hasProperty(found.block, inside.argument) &&
      ![...bicep.keys()].some((key) =>
        key.startsWith(`${KINDS.find((one) => one.inside === inside)!.arm.toLowerCase()} `),
      ),
  );
  const known = kinds.flatMap((one) => [
    ...one.pairs.map((pair) => pair.terraform),
    ...Object.keys(one.only?.terraform ?? {}),
  ]);
  const leaves = terraformLeaves(found.block);
  return [
    ...missing.map(({ arm }) => findingAt(found, `Bicep has no ${arm}`)),
    ...missingFrom(leaves, Object.keys(kind.only?.terraform ?? {})).map((one) =>
      findingAt(found, `${name}: ${one} is not set`),
    ),
    ...leaves
      .filter((leaf) => !isCompared(leaf, [...known, ...EXPRESSED_DIFFERENTLY]))
      .map((leaf) => findingAt(found, `${name}: ${leaf} has no counterpart in Bicep`)),
  ];
}

/** Arguments that are scopes or keywords in Bicep. */
const EXPRESSED_DIFFERENTLY = [
  "role_definition_id",
  "subscription_id",
  "management_group_id",
  "count",
  "for_each",
  "depends_on",
];

/** Resources that the Terraform provider creates one after the other without `depends_on`. */
const SELF_ORDERED = new Set(["azurerm_subnet"]);

const hasProperty = (block: Block, argument: string): boolean =>
  block.attributes.has(argument) ||
  block.blocks.some(({ type, labels }) => type === argument || labels[0] === argument);

const isCompared = (leaf: string, known: readonly string[]): boolean =>
  known.some((one) => leaf === one || leaf.startsWith(`${one}.`));

function bicepValue({ resource, normal, file }: BicepResource, at: string): string | undefined {
  let value: Expression | undefined = resource.body;
  for (const key of at.split(".")) {
    value = /^\d$/.test(key)
      ? value?.kind === "array"
        ? value.items[Number(key)]
        : undefined
      : value?.kind === "object"
        ? value.entries.find((entry) => entry.key === key)?.value
        : undefined;
  }
  if (!value) return undefined;
  if (at === "scope") return `{${snake(path.basename(normal(value).slice(1, -1)))}.id}`;
  if (at === "properties.roleDefinitionId") return roleName(value, normal);
  return file ? normal(value) : undefined;
}

/** Returns a role's name for its ID, or the resource of a custom role. */
function roleName(value: Expression, normal: Normalize): string {
  const id = value.kind === "call" ? value.args.at(-1) : undefined;
  return id?.kind === "literal" ? (roleOfId(String(id.value))?.name ?? String(id.value)) : normal(value);
}

function terraformValue({ block, normal }: TerraformResource, { terraform, words = {} }: Pair): string | undefined {
  const value =
    argumentOf(block, terraform) ??
    (terraform === "role_definition_name" ? argumentOf(block, "role_definition_id") : undefined);
  if (!value) return undefined;
  const written = normal(value);
  if (words[written] !== undefined) return words[written];
  return written.replace(/\b(true|false)\b/g, (word) => words[word] ?? word);
}

function bicepLeaves(value: Expression, prefix = ""): string[] {
  if (value.kind === "object")
    return value.entries.flatMap((entry) => bicepLeaves(entry.value, join(prefix, entry.key ?? "?")));
  if (value.kind === "array")
    return value.items.flatMap((item, index) =>
      item.kind === "object" ? bicepLeaves(item, join(prefix, String(index))) : [prefix],
    );
  return [prefix];
}

function terraformLeaves(block: Block, prefix = ""): string[] {
  const own = [...block.attributes.keys()]
    .filter((name) => block.type !== "dynamic" || name !== "for_each")
    .map((name) => join(prefix, name));
  return [
    ...own,
    ...block.blocks.flatMap((inner) => {
      const name = inner.type === "dynamic" ? inner.labels[0]! : inner.type;
      return terraformLeaves(inner, inner.type === "content" ? prefix : join(prefix, name));
    }),
  ];
}

const join = (prefix: string, name: string): string => (prefix === "" ? name : `${prefix}.${name}`);

function rowOf(kind: Kind, bicep: BicepResource, terraform: TerraformResource | undefined, name: string): ParityRow {
  const role = kind.azurerm === "azurerm_role_assignment";
  const written = terraform && argumentOf(terraform.block, "role_definition_name");
  const named = written && roleOfName(terraform.normal(written))?.name;
  return {
    what: role ? "role" : "resource",
    name: role
      ? `${bicepValue(bicep, "properties.roleDefinitionId")} on ${bicepValue(bicep, "scope") ?? "{scope}"}`
      : snake(bicep.resource.name),
    bicep: bicep.resource.type,
    terraform: terraform
      ? `${kind.azurerm}.${name}${kind.inside ? ` (${kind.inside.argument})` : ""}${named ? ` (${named})` : ""}`
      : "MISSING",
  };
}

function compareSettings(
  files: ReadonlyMap<string, BicepFile>,
  modules: readonly TerraformModule[],
): { findings: Finding[]; table: ParityRow[] } {
  const [left, right] = [bicepSettings(files), terraformSettings(modules)];
  const findings = left.flatMap((one) => {
    const other = right.find(({ name }) => name === one.name);
    if (!other) return [findingAt(one, `Terraform does not write the setting ${one.name}`)];
    const same = one.value === other.value && one.condition === other.condition;
    return same
      ? []
      : [
          findingAt(
            one,
            `${one.name} is ${displayName(one)}, in Terraform (${other.file}:${other.line}) ${displayName(other)}`,
          ),
        ];
  });
  if (!emptiesStorageKey(modules)) {
    findings.push({ file: "infra/terraform/app.tf", line: 1, message: `app_settings must set ${EMPTIED} to ""` });
  }
  const missing = right.filter(({ name }) => !left.some((one) => one.name === name));
  const written = (name: string): string => (right.some((one) => one.name === name) ? "written" : "MISSING");
  return {
    findings: [...findings, ...missing.map((one) => findingAt(one, `Bicep does not write the setting ${one.name}`))],
    table: left.map(({ name, condition }) => ({
      what: "setting",
      name,
      bicep: condition === "" ? "written" : `if ${condition}`,
      terraform: written(name),
    })),
  };
}

const displayName = ({ value, condition }: { value: string; condition: string }): string =>
  `"${value}"${condition === "" ? "" : ` if ${condition}`}`;
