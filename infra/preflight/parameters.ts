// The parameters of a deployment: the definitions in main.bicep, values from a file and from options, and the file that
// preflight writes. Names are those of Bicep. Terraform has the same in snake case.

import { readFileSync } from "node:fs";
import type { BicepFile, Parameter } from "../template-checks/bicep/parse.ts";
import type { Expression } from "../template-checks/expression.ts";
import { snake } from "../template-checks/parity/normalize.ts";
import { parseTerraform } from "../template-checks/terraform/parse.ts";
import type { Value } from "./values.ts";

export type TemplateLanguage = "bicep" | "terraform";

/** Values of parameters by Bicep name. A parameter without a value has the default of the template. */
export interface Parameters {
  environmentName: string;
  /** Region in the form of its name, such as `westeurope`. */
  location: string;
  values: Readonly<Record<string, Value>>;
}

/** The values can't be used. The message says which one and why. */
export class ParameterError extends Error {}

/** Returns the parameters of main.bicep. */
export const parameterDefinitions = (bicep: ReadonlyMap<string, BicepFile>): Parameter[] =>
  bicep.get("infra/azure/main.bicep")!.parameters;

/**
 * Checks values against the definitions in the template.
 * @throws {ParameterError} if a value is missing, unknown, or has the wrong type.
 */
export function createParameters(definitions: readonly Parameter[], given: Record<string, Value>): Parameters {
  for (const [name, value] of Object.entries(given)) {
    const definition = definitions.find((one) => one.name === name);
    if (!definition) throw new ParameterError(`The templates have no parameter ${name}`);
    if (!matchesType(definition.type, value)) throw new ParameterError(`${name} must be ${definition.type}`);
  }
  const { environmentName, location } = given;
  if (typeof environmentName !== "string" || !/^[A-Za-z0-9-]{2,20}$/.test(environmentName))
    throw new ParameterError("--name must have 2 to 20 letters, digits and hyphens");
  if (typeof location !== "string") throw new ParameterError("--location is missing");
  // Azure accepts the display name too: `West Europe`.
  const region = location.toLowerCase().replaceAll(" ", "");
  // Commands of the report contain it.
  if (!/^[a-z0-9]+$/.test(region)) throw new ParameterError("--location must be a region, such as westeurope");
  return { environmentName, location: region, values: { ...given, location: region } };
}

/** Returns whether a value has a type of Bicep, such as `string`, `bool?` or `string[]`. */
function matchesType(type: string, value: Value): boolean {
  if (value === null) return type.endsWith("?");
  if (type.endsWith("[]") || type === "array") return Array.isArray(value);
  const kind = { string: "string", int: "number", bool: "boolean" }[type.replace(/\?$/, "")];
  return kind === undefined ? typeof value === "object" : typeof value === kind;
}

/** Parses the text of an option `NAME=VALUE` by the parameter's type: lists and objects are JSON. */
export function parseAssignment(definitions: readonly Parameter[], text: string): [string, Value] {
  const [, name = "", value = ""] = /^(\w+)=(.*)$/s.exec(text) ?? [];
  const definition = definitions.find((one) => one.name === name || snake(one.name) === name);
  if (!definition) throw new ParameterError(`--set ${text}: the templates have no such parameter`);
  return [definition.name, parseText(definition.type, value)];
}

/** Parses text as JSON, unless the parameter is a text. Text that is no JSON is returned, so that the type check reports it. */
function parseText(type: string, text: string): Value {
  if (type === "string" || type === "string?") return text;
  try {
    return JSON.parse(text) as Value;
  } catch {
    return text;
  }
}

/**
 * Reads a parameters file of Bicep (JSON, with or without variables of azd) or of Terraform (`.tfvars`).
 * @throws {ParameterError} if the file can't be read.
 */
export async function readParametersFile(
  definitions: readonly Parameter[],
  file: string,
): Promise<{ language: TemplateLanguage; values: Record<string, Value> }> {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new ParameterError((error as Error).message);
  }
  if (file.endsWith(".tfvars"))
    return { language: "terraform", values: await readTerraformVariables(definitions, file, text) };
  let content: { parameters?: Record<string, { value?: Value }> };
  try {
    content = JSON.parse(text) as typeof content;
  } catch {
    throw new ParameterError(`${file} is neither JSON nor a .tfvars file`);
  }
  const values: Record<string, Value> = {};
  for (const [name, { value }] of Object.entries(content.parameters ?? {})) {
    const definition = definitions.find((one) => one.name === name);
    // azd replaces `${NAME}` and `${NAME=default}` by the text of an environment variable.
    const variable = typeof value === "string" ? /^\$\{(\w+)(?:=([^}]*))?\}$/.exec(value) : null;
    const givenValue = variable ? (process.env[variable[1]!] ?? variable[2]) : value;
    // An empty variable sets only a string. A parameter of another type keeps the default of the template.
    if (givenValue === undefined || (variable && givenValue === "" && definition?.type !== "string")) continue;
    values[name] = variable ? parseText(definition?.type ?? "string", String(givenValue)) : givenValue;
  }
  return { language: "bicep", values };
}

async function readTerraformVariables(
  definitions: readonly Parameter[],
  file: string,
  text: string,
): Promise<Record<string, Value>> {
  // The parser keeps attributes only inside a block.
  const { blocks, findings } = await parseTerraform(file, `variables {\n${text}\n}\n`);
  if (findings.length > 0) throw new ParameterError(`${file}: ${findings[0]!.message}`);
  const values: Record<string, Value> = {};
  for (const [name, { value }] of blocks[0]!.attributes) {
    const definition = definitions.find((one) => snake(one.name) === name);
    // Variables that only Terraform or an example has, such as azure_cloud and subscription_id.
    if (definition) values[definition.name] = literalOf(value);
  }
  return values;
}

/** Returns the value of an expression without variables or functions. */
function literalOf(expression: Expression): Value {
  if (expression.kind === "literal") return expression.value;
  if (expression.kind === "template") return expression.parts.map(literalOf).join("");
  if (expression.kind === "array") return expression.items.map(literalOf);
  if (expression.kind !== "object") throw new ParameterError("A .tfvars file can contain only values");
  return Object.fromEntries(expression.entries.map(({ key, value }) => [key ?? "", literalOf(value)]));
}

/** Returns the content of a parameters file for `az deployment` and azd, or of a `terraform.tfvars`. */
export function formatParameters(language: TemplateLanguage, values: Record<string, Value>): string {
  if (language === "bicep") {
    const parameters = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { value }]));
    const $schema = "https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#";
    return `${JSON.stringify({ $schema, contentVersion: "1.0.0.0", parameters }, null, 2)}\n`;
  }
  // JSON is also the syntax of Terraform's values, except `${` and `%{`, which start a template and are escaped as `$${` and
  // `%%{`. (`$$` in a replacement text of JavaScript is one `$`.)
  const lines = Object.entries(values).map(([name, value]) => {
    const text = JSON.stringify(value, null, 2).replaceAll("${", "$$${").replaceAll("%{", "%%{");
    return `${snake(name)} = ${text}\n`;
  });
  return lines.join("");
}
