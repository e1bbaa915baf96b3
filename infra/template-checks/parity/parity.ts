// The parity check: compares the Bicep files with the Terraform modules, which must create the same resources with the same
// values.

import type { BicepFile } from "../bicep/parse.ts";
import type { Finding } from "../expression.ts";
import { roleOfName } from "../roles.ts";
import { argumentOf, defaultsOf, type TerraformModule } from "../terraform/check.ts";
import type { Block } from "../terraform/parse.ts";
import {
  type BicepResource,
  bicepResources,
  findingAt,
  type TerraformResource,
  terraformResources,
} from "./declared-resources.ts";
import { compareEndpoints } from "./endpoints.ts";
import { checkModuleCalls } from "./module-calls.ts";
import { snake } from "./normalize.ts";
import { KINDS, type Kind, TERRAFORM_ONLY } from "./resource-kinds.ts";
import { bicepSettings, preventsStorageKey, STORAGE_KEY_SETTING, terraformSettings } from "./settings.ts";
import { argumentsOf, bicepValue, leavesOf, terraformValue } from "./values.ts";

/** One row of the parity table, which lists the resources, roles and settings of Bicep with their counterparts in Terraform. */
export interface ParityRow {
  what: "resource" | "role" | "setting";
  name: string;
  bicep: string;
  /** `MISSING` if Terraform has no counterpart. */
  terraform: string;
}

/** Compares the resources, properties, role assignments, settings and private endpoints of both languages. */
export function checkParity(
  files: ReadonlyMap<string, BicepFile>,
  modules: readonly TerraformModule[],
): { findings: Finding[]; table: ParityRow[] } {
  const findings: Finding[] = [];
  const table: ParityRow[] = [];
  const bicep = bicepResources(files);
  const terraform = terraformResources(modules);
  for (const [key, declared] of bicep) {
    const [type, ownName] = key.split(" ") as [string, string];
    const kinds = kindsOf(ownName, ({ arm }) => arm.toLowerCase() === type);
    // `inside` is set if Terraform has no separate resource, but an argument of the resource `inside.name`.
    const nameOf = ({ inside }: Kind) => (inside ? inside.name : ownName);
    // For some Azure types, Terraform has one type per scope.
    const kind = kinds.find((one) => terraform.has(`${one.azurerm} ${nameOf(one)}`)) ?? kinds[0];
    if (!kind) {
      findings.push(
        findingAt(declared[0]!, `${declared[0]!.resource.type} is not in the parity table (parity/resource-kinds.ts)`),
      );
      continue;
    }
    const name = nameOf(kind);
    const other = terraform.get(`${kind.azurerm} ${name}`);
    if (!other) findings.push(findingAt(declared[0]!, `Terraform has no ${kind.azurerm}.${name}`));
    table.push(rowOf(kind, declared[0]!, other, name));
    for (const one of declared) if (other) findings.push(...compareResource(kind, one, other));
  }
  for (const [key, resource] of terraform) {
    const [type, name] = key.split(" ") as [string, string];
    findings.push(...checkTerraformResource(type, name, resource, bicep));
  }
  findings.push(...compareWatchScopes(files), ...compareSeparateResources(bicep, terraform));
  const settings = compareSettings(files, modules);
  return {
    findings: [
      ...findings,
      ...settings.findings,
      ...compareEndpoints(files, modules),
      ...checkModuleCalls(files, modules),
    ],
    table: [...table, ...settings.table],
  };
}

/** Compares a Bicep resource with its counterpart: condition and values. A leaf is the path of a property. */
function compareResource(kind: Kind, bicep: BicepResource, terraform: TerraformResource): Finding[] {
  const findings: Finding[] = [];
  const subject = `${bicep.resource.name} (${terraform.file}:${terraform.line})`;
  // No Bicep file calls an entry point, but Terraform calls the same module. So the conditions of Terraform's calls
  // are not compared.
  const terraformCondition = bicep.isEntryPoint ? terraform.ownCondition : terraform.condition;
  if (bicep.condition !== terraformCondition && !kind.inside) {
    findings.push(
      findingAt(
        bicep,
        `${subject}: created under the condition "${bicep.condition}" here, "${terraformCondition}" in Terraform`,
      ),
    );
  }
  if (kind.inside && !hasProperty(terraform.block, kind.inside.argument))
    findings.push(findingAt(bicep, `${subject}: Terraform has no ${kind.inside.argument}`));
  for (const pair of kind.pairs) {
    const [left, right] = [bicepValue(bicep, pair.bicep), terraformValue(terraform, pair)];
    // A parameter of an entry point, for example `{location}`, has no known value, so only its presence is compared.
    const isOpenParameter = bicep.isEntryPoint && left !== undefined && /^\{\w+\}$/.test(left);
    // `presence`: the two languages write the value too differently to compare it.
    const isEqual = pair.presence || isOpenParameter ? (left === undefined) === (right === undefined) : left === right;
    // A Bicep role assignment without a scope applies to the target scope of its file, which Terraform passes as the variable
    // `scope`. The ID of a resource is passed as a variable: `{vault.id}` in Bicep is then `{vault_id}` in Terraform.
    const isSameScope = left === undefined ? right === "{scope}" : left.replace(".", "_") === right;
    if (!isEqual && !(pair.bicep === "scope" && isSameScope)) {
      findings.push(
        findingAt(
          bicep,
          `${subject}: ${pair.bicep} is ${left ?? "not set"}, ${pair.terraform} is ${right ?? "not set"}`,
        ),
      );
    }
  }
  const comparedProperties = [
    ...kind.pairs.map((pair) => pair.bicep),
    ...Object.keys(kind.only?.bicep ?? {}),
    ...Object.values(TERRAFORM_ONLY).flatMap(({ arm, property }) => (arm === kind.arm ? [property] : [])),
    "parent",
    "dependsOn",
    "scope",
  ];
  const properties = leavesOf(bicep.resource.body);
  for (const leaf of properties) {
    if (!isCompared(leaf, comparedProperties))
      findings.push(findingAt(bicep, `${subject}: ${leaf} has no counterpart in Terraform`));
  }
  for (const [leaf, reason] of Object.entries(kind.only?.bicep ?? {})) {
    // The reason `always x` requires the value x (resource-kinds.ts).
    const [required, value] = [/^always (\S+)$/.exec(reason)?.[1], bicepValue(bicep, leaf)];
    if (required !== undefined && value !== undefined && value !== required) {
      findings.push(findingAt(bicep, `${subject}: ${leaf} is ${value}, not ${required}`));
    }
  }
  const missing = missingFrom(properties, Object.keys(kind.only?.bicep ?? {}));
  return [...findings, ...missing.map((one) => findingAt(bicep, `${subject}: ${one} is not set`))];
}

/**
 * Returns the properties of `only` (properties that only one language has) that a resource does not set. A property in an
 * object is expected only if the resource sets another property of that object.
 */
function missingFrom(leaves: readonly string[], only: readonly string[]): string[] {
  return only.filter((one) => {
    const parent = one.split(".").slice(0, -1).join(".");
    // Arguments of `lifecycle` are always expected. Those of another block are expected only if the block is there.
    const expected = parent === "" || parent === "lifecycle" || leaves.some((leaf) => leaf.startsWith(`${parent}.`));
    return expected && !leaves.some((leaf) => isCompared(leaf, [one]));
  });
}

/**
 * Checks that the files in infra/azure/watch, one for a subscription and one for a management group, declare the same
 * resources.
 */
function compareWatchScopes(files: ReadonlyMap<string, BicepFile>): Finding[] {
  const watch = [...files.values()].filter(({ path }) => path.startsWith("infra/azure/watch/"));
  const names = new Set(watch.flatMap(({ resources }) => resources.map(({ name }) => name)));
  return watch.flatMap((file) =>
    [...names]
      .filter((name) => !file.resources.some((resource) => resource.name === name))
      .map((name) => ({ file: file.path, line: 1, message: `has no ${name}, which the other scope has` })),
  );
}

/** Compares the properties of Bicep that are separate resources in Terraform (TERRAFORM_ONLY). */
function compareSeparateResources(
  bicep: ReadonlyMap<string, BicepResource[]>,
  terraform: ReadonlyMap<string, TerraformResource>,
): Finding[] {
  return Object.entries(TERRAFORM_ONLY).flatMap(([type, { arm, property, condition }]) => {
    const owners = [...bicep.values()].flat().filter((one) => one.resource.type === arm && bicepValue(one, property));
    const others = [...terraform].filter(([key]) => key.startsWith(`${type} `)).map(([, resource]) => resource);
    const [owner, other] = [owners[0], others[0]];
    if (owner && other && owners.length !== others.length)
      return [findingAt(other, `there are ${others.length} ${type}, but ${owners.length} ${property} in Bicep`)];
    if (owner && !other) return [findingAt(owner, `Terraform has no ${type}, which ${property} is`)];
    if (other && !owner) return [findingAt(other, `Bicep has no ${property}, which ${type} is`)];
    const ownerCondition = owner && (condition ?? owner.condition);
    const isEqual = ownerCondition === other?.condition;
    return isEqual
      ? []
      : [
          findingAt(
            other!,
            `${type} is created under the condition "${other!.condition}", in Bicep "${ownerCondition}"`,
          ),
        ];
  });
}

/** Checks that a Terraform resource and its arguments have counterparts in Bicep. */
function checkTerraformResource(
  type: string,
  name: string,
  resource: TerraformResource,
  bicep: ReadonlyMap<string, BicepResource[]>,
): Finding[] {
  if (TERRAFORM_ONLY[type]) return [];
  const kinds = kindsOf(name, (kind) => kind.azurerm === type);
  const kind = kinds.find(({ inside }) => !inside);
  if (!kind) return [findingAt(resource, `${type} is not in the parity table (parity/resource-kinds.ts)`)];
  if (!bicep.has(`${kind.arm.toLowerCase()} ${name}`)) return [findingAt(resource, `Bicep has no ${kind.arm} ${name}`)];
  const missing = KINDS.filter(
    ({ arm, azurerm, resource: ownName, inside }) =>
      azurerm === type &&
      inside?.name === name &&
      hasProperty(resource.block, inside.argument) &&
      ![...bicep.keys()].some((key) => {
        const [bicepType, bicepName] = key.split(" ");
        // A kind without a name is that of all resources of the type for which there is no kind with their name.
        const namedKind = KINDS.find((one) => one.arm === arm && one.resource === bicepName);
        return bicepType === arm.toLowerCase() && namedKind?.resource === ownName;
      }),
  );
  const comparedArguments = kinds.flatMap((one) => [
    ...one.pairs.map((pair) => pair.terraform),
    ...Object.keys(one.only?.terraform ?? {}),
  ]);
  const argumentPaths = argumentsOf(resource.block);
  return [
    ...missing.map(({ arm }) => findingAt(resource, `Bicep has no ${arm}`)),
    ...defaultsOf(resource.block)
      .filter((one) => one.value !== kind.azureDefaults?.[one.name])
      .map((one) => {
        const ofAzure = kind.azureDefaults?.[one.name] ?? "not in the parity table";
        const message = `${name}: ${one.name} is not set. The provider's default is ${one.value}, Azure's ${ofAzure}`;
        return findingAt(resource, message);
      }),
    ...missingFrom(argumentPaths, Object.keys(kind.only?.terraform ?? {})).map((one) =>
      findingAt(resource, `${name}: ${one} is not set (${kind.only?.terraform?.[one]})`),
    ),
    ...argumentPaths
      .filter((leaf) => !isCompared(leaf, [...comparedArguments, ...EXPRESSED_DIFFERENTLY]))
      .map((leaf) => findingAt(resource, `${name}: ${leaf} has no counterpart in Bicep`)),
  ];
}

/** Returns the kinds that apply to a resource, the kinds for its name alone first. */
const kindsOf = (name: string, matches: (kind: Kind) => boolean): Kind[] => [
  ...KINDS.filter((kind) => matches(kind) && kind.resource === name),
  ...KINDS.filter((kind) => matches(kind) && kind.resource === undefined),
];

/** Arguments without a Bicep property: Bicep has a scope or a keyword instead. */
const EXPRESSED_DIFFERENTLY = [
  "role_definition_id",
  "subscription_id",
  "management_group_id",
  "count",
  "for_each",
  "depends_on",
];

const hasProperty = (block: Block, argument: string): boolean =>
  block.attributes.has(argument) ||
  block.blocks.some(({ type, labels }) => type === argument || labels[0] === argument);

/** Returns whether a path is one of the known paths, or below one. */
const isCompared = (leaf: string, known: readonly string[]): boolean =>
  known.some((one) => leaf === one || leaf.startsWith(`${one}.`));

function rowOf(kind: Kind, bicep: BicepResource, terraform: TerraformResource | undefined, name: string): ParityRow {
  const isRole = kind.azurerm === "azurerm_role_assignment";
  const roleArgument = terraform && argumentOf(terraform.block, "role_definition_name");
  const terraformRole = roleArgument && roleOfName(terraform.normalize(roleArgument))?.name;
  return {
    what: isRole ? "role" : "resource",
    name: isRole
      ? `${bicepValue(bicep, "properties.roleDefinitionId")} on ${bicepValue(bicep, "scope") ?? "{scope}"}`
      : snake(bicep.resource.name),
    bicep: bicep.resource.type,
    terraform: terraform
      ? `${kind.azurerm}.${name}${kind.inside ? ` (${kind.inside.argument})` : ""}${terraformRole ? ` (${terraformRole})` : ""}`
      : "MISSING",
  };
}

/** Compares the app settings of both languages: names, values and conditions. */
function compareSettings(
  files: ReadonlyMap<string, BicepFile>,
  modules: readonly TerraformModule[],
): { findings: Finding[]; table: ParityRow[] } {
  const [bicepList, terraformList] = [bicepSettings(files), terraformSettings(modules)];
  const findings = bicepList.flatMap((one) => {
    const other = terraformList.find(({ name }) => name === one.name);
    if (!other) return [findingAt(one, `Terraform does not set ${one.name}`)];
    const isEqual = one.value === other.value && one.condition === other.condition;
    return isEqual
      ? []
      : [
          findingAt(
            one,
            `${one.name} is ${describeSetting(one)}, in Terraform (${other.file}:${other.line}) ${describeSetting(other)}`,
          ),
        ];
  });
  if (!preventsStorageKey(modules)) {
    findings.push({
      file: "infra/terraform/app.tf",
      line: 1,
      message: `app_settings must set ${STORAGE_KEY_SETTING} to ""`,
    });
  }
  const missing = terraformList.filter(({ name }) => !bicepList.some((one) => one.name === name));
  const terraformState = (name: string): string => (terraformList.some((one) => one.name === name) ? "set" : "MISSING");
  return {
    findings: [...findings, ...missing.map((one) => findingAt(one, `Bicep does not set ${one.name}`))],
    table: bicepList.map(({ name, condition }) => ({
      what: "setting",
      name,
      bicep: condition === "" ? "set" : `if ${condition}`,
      terraform: terraformState(name),
    })),
  };
}

/** Formats the value and condition of a setting for a finding. */
const describeSetting = ({ value, condition }: { value: string; condition: string }): string =>
  `"${value}"${condition === "" ? "" : ` if ${condition}`}`;
