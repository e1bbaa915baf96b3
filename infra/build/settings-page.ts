/** `npm run settings-page`: writes docs/settings.md, the reference of all settings, from their schemas in the code. */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import * as z from "zod";
import { GROUPS, VALUE_FORMATS } from "../../shared/platform/config/environment.ts";
import { DEFINITIONS, type Definition, expectation } from "../../shared/settings/definitions.ts";
import { commandLine } from "./command-line.ts";
import { code, table } from "./markdown.ts";

const HELP = `npm run settings-page

Writes docs/settings.md: every setting with its default, bounds and unit, from shared/platform/config and shared/settings.`;

const FILE = path.resolve(import.meta.dirname, "../../docs/settings.md");

const INTRODUCTION = `# Settings

Generated from \`shared/platform/config/environment.ts\` and \`shared/settings/definitions.ts\` by \`npm run settings-page\`. Don't edit this page.
[deploy.md](deploy.md#parameters) lists the template parameter for each setting.

- **Required**: \`JWT_SIGNING_KEYS\`, and one of the three ways to name the storage account. All other settings have a default or are optional.
- A process reads the environment once, at start. An invalid value stops the start, with every problem named. Values are never printed. An empty
  value counts as missing.
- In Azure, set a secret as \`@Microsoft.KeyVault(SecretUri=…)\`.
- All settings exist since version 1.0.0, unless the description names a later version.
`;

const TITLES: Record<keyof typeof GROUPS, string> = {
  storage: "Storage",
  cloud: "Watched cloud",
  services: "Other services",
  alerts: "Alerts",
  access: "Access",
  audit: "Audit",
  telemetry: "Telemetry",
  schedules: "Schedules",
};

const RUNTIME_INTRODUCTION = `## Runtime settings

An administrator can change these without a restart, in \`#/settings\` or with \`PUT /api/settings/{category}\`. The first of these applies: the
override, App Configuration, the environment, the default. A change takes effect on every instance within 30 seconds.

`;

/** Returns what docs/settings.md must contain. */
export function settingsPage(): string {
  const groups = Object.entries(GROUPS).map(([group, settings]) => {
    const rows = Object.entries<z.ZodType>(settings).map(([name, schema]) => rowOf(name, schema));
    return `## ${TITLES[group as keyof typeof GROUPS]}\n\n${table(["setting", "default", "values", "description"], rows)}`;
  });
  const runtime = Object.entries<Definition>(DEFINITIONS).map(([key, definition]) => [
    code(definition.environmentVariable),
    `${code(key)} (${definition.category})`,
    code(String(definition.default)),
    expectation(definition),
    definition.description,
  ]);
  const columns = ["setting", "in the API (category)", "default", "values", "description"];
  return [INTRODUCTION, ...groups, RUNTIME_INTRODUCTION + table(columns, runtime)].join("\n");
}

function rowOf(name: string, schema: z.ZodType): string[] {
  const { description } = z.globalRegistry.get(schema) ?? {};
  if (!description) throw new Error(`${name} has no description in shared/platform/config/environment.ts.`);
  return [code(name), defaultOf(schema), formOf(schema), description];
}

function defaultOf(schema: z.ZodType): string {
  if (schema instanceof z.ZodOptional) return "none";
  if (!(schema instanceof z.ZodDefault)) return "**required**";
  const value: unknown = schema.def.defaultValue;
  return Array.isArray(value) && value.length === 0 ? "none" : code(String(value));
}

/** Returns the description of the values that a schema accepts: its own, or that of the schema which it wraps. */
function formOf(schema: z.ZodType): string {
  const format = VALUE_FORMATS.get(schema)?.form;
  if (format !== undefined) return format;
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodDefault) return formOf(schema.unwrap() as z.ZodType);
  if (schema instanceof z.ZodPipe) return formOf(schema.in as z.ZodType);
  if (schema instanceof z.ZodEnum) return schema.options.map((option) => code(String(option))).join(", ");
  throw new Error(`A schema of type ${schema.type} has no value format in shared/platform/config/environment.ts.`);
}

if (import.meta.main) {
  commandLine(HELP, {});
  const text = settingsPage();
  const isNew = readFileSync(FILE, "utf8") !== text;
  writeFileSync(FILE, text);
  console.log(isNew ? "docs/settings.md was written." : "docs/settings.md is up to date.");
}
