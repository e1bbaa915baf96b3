// Checks the parameters of the templates: azd's parameters file, the documentation, and Bicep against Terraform.

import { allowedValues } from "./bicep/file-scope.ts";
import type { BicepFile, Parameter } from "./bicep/parse.ts";
import type { Expression, Finding } from "./expression.ts";
import { children, text } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { snake } from "./parity/normalize.ts";
import { blocks, type TerraformModule } from "./terraform/check.ts";

const MAIN = "infra/azure/main.bicep";
const FILE = "infra/azure/main.parameters.json";

/** Variables that only Terraform needs, each with the reason. */
const TERRAFORM_ONLY = new Set(["azure_cloud"]);

/** Variables that azd sets: https://learn.microsoft.com/azure/developer/azure-developer-cli/manage-environment-variables */
const AZD_VARIABLES = new Set(["AZURE_ENV_NAME", "AZURE_LOCATION"]);

/**
 * Checks azd's parameters file against the parameters of main.bicep. A parameter with a default can be a variable of the azd
 * environment, with the parameter's name and the same default: `${EVENTS_ENABLED=false}`. Every parameter except lists and
 * objects must be in the file.
 */
export function checkParametersFile(files: InfraFiles, bicep: ReadonlyMap<string, BicepFile>): Finding[] {
  const parameters = bicep.get(MAIN)?.parameters ?? [];
  const finding = (message: string): Finding => ({ file: FILE, line: 1, message });
  let given: Record<string, { value?: unknown }>;
  try {
    const written = JSON.parse(files.text.get(FILE) ?? "") as { contentVersion: string; parameters: typeof given };
    if (written.contentVersion !== "1.0.0.0") return [finding("contentVersion must be 1.0.0.0")];
    given = written.parameters;
  } catch (error) {
    return [finding(error instanceof Error ? error.message : "is not JSON")];
  }
  const findings: Finding[] = [];
  for (const [name, { value }] of Object.entries(given ?? {})) {
    const parameter = parameters.find((one) => one.name === name);
    if (!parameter) findings.push(finding(`main.bicep has no parameter ${name}`));
    const [, variable, otherwise] = /^\$\{(\w+)(?:=([^}]*))?\}$/.exec(String(value)) ?? [];
    if (value === undefined) findings.push(finding(`${name} has no value`));
    else if (variable === undefined) {
      if (parameter && typeof value !== JSON_KINDS[parameter.type])
        findings.push(finding(`${name} must be ${parameter.type}`));
    } else if (!AZD_VARIABLES.has(variable) && parameter)
      findings.push(...checkVariable(parameter, variable, otherwise));
  }
  for (const { name, type, defaultValue } of parameters) {
    const settable = SCALARS.has(type) || !defaultValue;
    if (settable && !(name in (given ?? {}))) findings.push(finding(`the parameter ${name} is missing`));
  }
  return findings;
}

function checkVariable({ name, type, defaultValue }: Parameter, variable: string, otherwise?: string): Finding[] {
  const finding = (message: string): Finding[] => [{ file: FILE, line: 1, message }];
  const expected = snake(name).toUpperCase();
  if (variable !== expected) return finding(`${name} is read from ${variable}, not from ${expected}`);
  if (!SCALARS.has(type)) return finding(`${name}: azd cannot convert a variable to ${type}`);
  const known = defaultValue?.kind === "literal" ? String(defaultValue.value) : undefined;
  return otherwise === known
    ? []
    : finding(`${name} is ${otherwise ?? "required"} where ${expected} is not set, in main.bicep ${known}`);
}

/** Converts the text of a variable as azd does. */
const SCALARS = new Set(["string", "int", "bool"]);
const JSON_KINDS: Record<string, string> = {
  string: "string",
  int: "number",
  bool: "boolean",
  "string[]": "object",
  object: "object",
};

/** Checks that docs/deploy.md contains every parameter under both of its names. */
export function checkDeployPage(files: InfraFiles, bicep: ReadonlyMap<string, BicepFile>): Finding[] {
  const file = "docs/deploy.md";
  const page = files.text.get(file) ?? "";
  return (bicep.get(MAIN)?.parameters ?? [])
    .flatMap(({ name }) => [name, snake(name)])
    .filter((name) => !page.includes(`\`${name}\``))
    .map((name) => ({ file, line: 1, message: `does not mention the parameter ${name}` }));
}

/** Compares main.bicep's parameters with the module's variables: names, types, defaults and bounds. */
export function compareParameters(
  bicep: ReadonlyMap<string, BicepFile>,
  module: TerraformModule | undefined,
): Finding[] {
  const parameters = bicep.get(MAIN)?.parameters ?? [];
  const variables = module ? blocks(module, "variable") : [];
  const findings: Finding[] = [];
  for (const parameter of parameters) {
    const name = snake(parameter.name);
    const variable = variables.find(({ block }) => block.labels[0] === name)?.block;
    const finding = (message: string): Finding => ({
      file: MAIN,
      line: parameter.line,
      message: `${parameter.name}: ${message}`,
    });
    if (!variable) {
      findings.push(finding(`Terraform has no variable ${name}`));
      continue;
    }
    const type = typeText(variable.attributes.get("type")?.value);
    if (type !== TYPES[parameter.type]) findings.push(finding(`is ${parameter.type}, in Terraform ${type}`));
    const [left, right] = [literal(parameter.defaultValue), literal(variable.attributes.get("default")?.value)];
    if (left !== undefined && left !== right) findings.push(finding(`its default is ${left}, in Terraform ${right}`));
    if (parameter.defaultValue && !variable.attributes.has("default"))
      findings.push(finding("Terraform has no default"));
    const bounds = boundsOf(parameter);
    const written = variable.blocks.flatMap((block) => literals(block.attributes.get("condition")?.value));
    if (bounds.some((bound) => !written.includes(bound))) {
      findings.push(
        finding(`allows ${bounds.join(", ")}, the validation in Terraform has ${written.join(", ") || "nothing"}`),
      );
    }
  }
  for (const { block, file } of variables) {
    const name = block.labels[0]!;
    if (!TERRAFORM_ONLY.has(name) && !parameters.some((parameter) => snake(parameter.name) === name)) {
      findings.push({ file, line: block.line, message: `Bicep has no parameter for ${name}` });
    }
  }
  return findings;
}

const TYPES: Record<string, string> = {
  string: "string",
  int: "number",
  bool: "bool",
  "string[]": "list(string)",
  object: "map(string)",
};

function typeText(expression: Expression | undefined): string {
  if (expression?.kind === "name") return expression.name;
  return expression?.kind === "call" ? `${expression.name}(${expression.args.map(typeText).join(", ")})` : "";
}

function literal(expression: Expression | undefined): string | undefined {
  if (expression?.kind === "literal") return JSON.stringify(expression.value);
  if (expression?.kind === "object" && expression.entries.length === 0) return "{}";
  return expression?.kind === "array" && expression.items.length === 0 ? "[]" : undefined;
}

/** Returns the arguments of the decorators: numbers and values. */
function boundsOf({ decorators }: Parameter): (string | number | boolean | null)[] {
  return decorators.flatMap((decorator) => {
    if (decorator.kind !== "call" || decorator.name === "description") return [];
    return (
      allowedValues(decorator) ??
      decorator.args.flatMap((argument) => (argument.kind === "literal" ? [argument.value] : []))
    );
  });
}

function literals(expression: Expression | undefined): (string | number | boolean | null)[] {
  if (!expression) return [];
  if (expression.kind === "literal" && text(expression) !== "") return [expression.value];
  return children(expression).flatMap(literals);
}
