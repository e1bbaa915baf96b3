// Checks the parameters of the service's templates: the parameters file of the Azure Developer CLI (azd), the documentation,
// and the parameters of Bicep against the variables of Terraform.

import { allowedValues } from "./bicep/file-scope.ts";
import type { BicepFile, Parameter } from "./bicep/parse.ts";
import type { Expression, Finding } from "./expression.ts";
import { children, property, text } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { snake } from "./parity/normalize.ts";
import { failMessages, variablesIn } from "./refusals.ts";
import { blocks, type TerraformModule } from "./terraform/check.ts";

const MAIN_TEMPLATE = "infra/azure/main.bicep";
const SERVICE_TEMPLATE = "infra/azure/service.bicep";
const PARAMETERS_FILE = "infra/azure/main.parameters.json";

/** Variables that only Terraform has. */
const TERRAFORM_ONLY = new Set(["azure_cloud"]);

/** Variables that azd sets: https://learn.microsoft.com/azure/developer/azure-developer-cli/manage-environment-variables */
const AZD_VARIABLES = new Set(["AZURE_ENV_NAME", "AZURE_LOCATION"]);

/**
 * Checks azd's parameters file against the parameters of main.bicep. A parameter with a default can be a variable of the azd
 * environment, with the parameter's name and the same default: `${EVENTS_ENABLED=false}`. Every parameter must be in
 * the file, except lists and objects with a default.
 */
export function checkParametersFile(files: InfraFiles, bicep: ReadonlyMap<string, BicepFile>): Finding[] {
  const parameters = bicep.get(MAIN_TEMPLATE)?.parameters ?? [];
  const finding = (message: string): Finding => ({ file: PARAMETERS_FILE, line: 1, message });
  let fileParameters: Record<string, { value?: unknown }>;
  try {
    const content = JSON.parse(files.text.get(PARAMETERS_FILE) ?? "") as {
      contentVersion: string;
      parameters: typeof fileParameters;
    };
    if (content.contentVersion !== "1.0.0.0") return [finding("contentVersion must be 1.0.0.0")];
    fileParameters = content.parameters;
  } catch (error) {
    return [finding(error instanceof Error ? error.message : "is not JSON")];
  }
  const findings: Finding[] = [];
  for (const [name, { value }] of Object.entries(fileParameters ?? {})) {
    const parameter = parameters.find((one) => one.name === name);
    if (!parameter) findings.push(finding(`main.bicep has no parameter ${name}`));
    // A variable with an optional default: `${NAME}` or `${NAME=default}`.
    const [, variable, variableDefault] = /^\$\{(\w+)(?:=([^}]*))?\}$/.exec(String(value)) ?? [];
    if (value === undefined) findings.push(finding(`${name} has no value`));
    else if (variable === undefined) {
      if (parameter && typeof value !== JSON_KINDS[parameter.type])
        findings.push(finding(`${name} must be ${parameter.type}`));
    } else if (!AZD_VARIABLES.has(variable) && parameter)
      findings.push(...checkVariable(parameter, variable, variableDefault));
  }
  for (const { name, type, defaultValue } of parameters) {
    const mustBeInFile = SCALARS.has(type) || !defaultValue;
    if (mustBeInFile && !(name in (fileParameters ?? {}))) findings.push(finding(`the parameter ${name} is missing`));
  }
  return findings;
}

/** Checks a parameter that is read from a variable of the azd environment: the variable's name, type and default. */
function checkVariable({ name, type, defaultValue }: Parameter, variable: string, variableDefault?: string): Finding[] {
  const finding = (message: string): Finding[] => [{ file: PARAMETERS_FILE, line: 1, message }];
  const expected = snake(name).toUpperCase();
  if (variable !== expected) return finding(`${name} is read from ${variable}, not from ${expected}`);
  if (!SCALARS.has(type)) return finding(`${name}: azd cannot convert a variable to ${type}`);
  const templateDefault = defaultValue?.kind === "literal" ? String(defaultValue.value) : undefined;
  return variableDefault === templateDefault
    ? []
    : finding(
        `${name} is ${variableDefault ?? "required"} if ${expected} is not set, but ${templateDefault} in main.bicep`,
      );
}

/** Types to which azd can convert the text of a variable. */
const SCALARS = new Set(["string", "int", "bool"]);
/** `typeof` of a JSON value, by Bicep type. */
const JSON_KINDS: Record<string, string> = {
  string: "string",
  int: "number",
  bool: "boolean",
  "string[]": "object",
  object: "object",
};

/**
 * Checks the parameters of service.bicep, the entry point of a resource group, against main.bicep, which deploys it: the same
 * types, defaults, limits and descriptions, and each passed on. Only the location has another default.
 */
export function compareEntryPoints(bicep: ReadonlyMap<string, BicepFile>): Finding[] {
  const service = bicep.get(SERVICE_TEMPLATE);
  const main = bicep.get(MAIN_TEMPLATE);
  const call = main?.modules.find(({ path }) => path === "service.bicep");
  const passed = property(call?.body, "params");
  const entries = passed?.kind === "object" ? passed.entries : [];
  return (service?.parameters ?? []).flatMap((parameter) => {
    const { name, line } = parameter;
    const other = main?.parameters.find((one) => one.name === name);
    const isEqual = other && describeParameter(parameter) === describeParameter(other);
    return [
      ...(isEqual ? [] : [{ file: SERVICE_TEMPLATE, line, message: `the parameter ${name} differs in main.bicep` }]),
      ...(entries.some(({ key }) => key === name)
        ? []
        : [{ file: MAIN_TEMPLATE, line: call?.line ?? 1, message: `does not pass the parameter ${name}` }]),
    ];
  });
}

const describeParameter = ({ name, type, decorators, defaultValue }: Parameter): string =>
  JSON.stringify([type, decorators, name === "location" ? "" : defaultValue], (key, value: unknown) =>
    key === "line" ? undefined : value,
  );

/**
 * Checks that both languages reject the same combinations of parameters. Terraform does so with a validation that reads other
 * variables, service.bicep with `fail`, whose message names the parameter.
 */
export function compareRefusals(bicep: ReadonlyMap<string, BicepFile>, module: TerraformModule | undefined): Finding[] {
  const service = bicep.get(SERVICE_TEMPLATE);
  const messages = (service?.variables ?? []).flatMap(({ value }) => failMessages(value));
  const refused = (module ? blocks(module, "variable") : []).filter(({ block }) => {
    const conditions = block.blocks.flatMap(({ attributes }) => attributes.get("condition") ?? []);
    return conditions.some(({ value }) => variablesIn(value).some((name) => name !== block.labels[0]));
  });
  const names = refused.map(({ block }) => block.labels[0]!);
  return [
    ...refused
      .filter(({ block }) => !messages.some((message) => namesIn(message).includes(block.labels[0]!)))
      .map(({ block, file }) => ({
        file,
        line: block.line,
        message: `service.bicep does not refuse what ${block.labels[0]} refuses here`,
      })),
    ...messages
      .filter((message) => !namesIn(message).some((name) => names.includes(name)))
      .map((message) => ({ file: SERVICE_TEMPLATE, line: 1, message: `Terraform does not refuse: ${message}` })),
  ];
}

/** Returns the parameters that a message names, in snake_case. */
const namesIn = (message: string): string[] => message.split(/\W+/).map(snake);

/** Checks that a page about deployments mentions every parameter by its Bicep name and by its Terraform name. */
export function checkDeployPage(files: InfraFiles, bicep: ReadonlyMap<string, BicepFile>): Finding[] {
  const file = "docs/deploy.md";
  const page = [file, "docs/bring-your-own.md"].map((one) => files.text.get(one) ?? "").join("\n");
  return (bicep.get(MAIN_TEMPLATE)?.parameters ?? [])
    .flatMap(({ name }) => [name, snake(name)])
    .filter((name) => !page.includes(`\`${name}\``))
    .map((name) => ({ file, line: 1, message: `does not mention the parameter ${name}` }));
}

/**
 * Checks that each module's README.md has a row for every input and output, with its description. terraform-docs writes the
 * tables (infra/terraform/.terraform-docs.yml), but is not needed for this check.
 */
export function checkModulePages(files: InfraFiles, modules: readonly TerraformModule[]): Finding[] {
  return modules.flatMap((module) => {
    const file = `${module.folder}/README.md`;
    const page = files.text.get(file) ?? "";
    return ["variable", "output"].flatMap((type) =>
      blocks(module, type)
        .map(({ block }) => `| ${block.labels[0]} | ${text(block.attributes.get("description")?.value)} |`)
        .filter((row) => !page.includes(row))
        .map((row) => ({ file, line: 1, message: `has no row ${row}: run npm run check:infra -- --write` })),
    );
  });
}

/** Compares the parameters of main.bicep with the variables of the Terraform module: names, types, defaults and limits. */
export function compareParameters(
  bicep: ReadonlyMap<string, BicepFile>,
  module: TerraformModule | undefined,
): Finding[] {
  const parameters = bicep.get(MAIN_TEMPLATE)?.parameters ?? [];
  const variables = module ? blocks(module, "variable") : [];
  const findings: Finding[] = [];
  for (const parameter of parameters) {
    const name = snake(parameter.name);
    const variable = variables.find(({ block }) => block.labels[0] === name)?.block;
    const finding = (message: string): Finding => ({
      file: MAIN_TEMPLATE,
      line: parameter.line,
      message: `${parameter.name}: ${message}`,
    });
    if (!variable) {
      findings.push(finding(`Terraform has no variable ${name}`));
      continue;
    }
    const type = typeText(variable.attributes.get("type")?.value);
    const isObject = parameter.type === "object" && type === "object()";
    const isMapOfLists = parameter.type === "object" && type === "map(list(string))";
    if (type !== TERRAFORM_TYPES[parameter.type] && !isObject && !isMapOfLists)
      findings.push(finding(`is ${parameter.type}, in Terraform ${type}`));
    const [bicepDefault, terraformDefault] = [
      literal(parameter.defaultValue),
      literal(variable.attributes.get("default")?.value),
    ];
    // An object with fixed members has no empty value in Terraform.
    if (bicepDefault !== undefined && bicepDefault !== terraformDefault && !(isObject && terraformDefault === "null"))
      findings.push(finding(`its default is ${bicepDefault}, in Terraform ${terraformDefault}`));
    if (parameter.defaultValue && !variable.attributes.has("default"))
      findings.push(finding("Terraform has no default"));
    const limits = limitsOf(parameter);
    const terraformLimits = variable.blocks.flatMap((block) => literals(block.attributes.get("condition")?.value));
    if (limits.some((limit) => !terraformLimits.includes(limit))) {
      findings.push(
        finding(
          `allows ${limits.join(", ")}, the validation in Terraform has ${terraformLimits.join(", ") || "nothing"}`,
        ),
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

/** Terraform types by Bicep type. */
const TERRAFORM_TYPES: Record<string, string> = {
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

/** Formats a literal or an empty list or object for comparison. Undefined for other expressions. */
function literal(expression: Expression | undefined): string | undefined {
  if (expression?.kind === "literal") return JSON.stringify(expression.value);
  if (expression?.kind === "object" && expression.entries.length === 0) return "{}";
  return expression?.kind === "array" && expression.items.length === 0 ? "[]" : undefined;
}

/**
 * Returns the limits of a parameter: the numbers of `@minValue`, `@maxLength` and similar decorators, and the values of
 * `@allowed`.
 */
function limitsOf({ decorators }: Parameter): (string | number | boolean | null)[] {
  return decorators.flatMap((decorator) => {
    if (decorator.kind !== "call" || decorator.name === "description") return [];
    return (
      allowedValues(decorator) ??
      decorator.args.flatMap((argument) => (argument.kind === "literal" ? [argument.value] : []))
    );
  });
}

/** Returns all literals in an expression, without empty strings. */
function literals(expression: Expression | undefined): (string | number | boolean | null)[] {
  if (!expression) return [];
  if (expression.kind === "literal" && text(expression) !== "") return [expression.value];
  return children(expression).flatMap(literals);
}
