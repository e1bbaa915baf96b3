/** Writes docs/settings.md from what the code reads. See HELP. */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import * as z from "zod";
import { FORMS, GROUPS } from "../../shared/config/environment.ts";
import { DEFINITIONS, type Definition, expectation } from "../../shared/settings/definitions.ts";
import { commandLine } from "./command-line.ts";
import { code, table } from "./markdown.ts";

const HELP = `npm run settings-page

Writes docs/settings.md: every setting with its default, bounds and unit, from shared/config and shared/settings.`;

const FILE = path.resolve(import.meta.dirname, "../../docs/settings.md");

const INTRODUCTION = `# Settings

Written by \`npm run settings-page\` from \`shared/config/environment.ts\` and \`shared/settings/definitions.ts\`, and held to them by a
test. [deploy.md](deploy.md#choices) says which parameter of the templates sets which.

The environment is read once, when a process starts; a bad value stops the start with every problem named, and no value is ever
printed. An empty value counts as none. All of these are in version 1.0.0; one that came later says so.

**Needed** are \`JWT_SIGNING_KEYS\` and one of the three ways to name the storage account; all others have the default that is
told, or may be left out. In Azure, give a secret as \`@Microsoft.KeyVault(SecretUri=…)\`.
`;

const TITLES: Record<keyof typeof GROUPS, string> = {
  storage: "Storage",
  cloud: "The cloud that is watched",
  services: "Other services",
  alerts: "Alerts",
  access: "Access",
  audit: "Audit",
  telemetry: "Telemetry",
  schedules: "Schedules",
};

const RUNTIME = `## Runtime settings

An administrator may override these without a restart (\`PUT /api/settings/{category}\`); in force is an override, else what App
Configuration says, else the environment, else the default. Every instance feels a change within 30 seconds.

`;

/** What docs/settings.md has to be. */
export function settingsPage(): string {
  const groups = Object.entries(GROUPS).map(([group, settings]) => {
    const rows = Object.entries<z.ZodType>(settings).map(([name, schema]) => rowOf(name, schema));
    return `## ${TITLES[group as keyof typeof GROUPS]}\n\n${table(["setting", "default", "takes", "is"], rows)}`;
  });
  const runtime = Object.entries<Definition>(DEFINITIONS).map(([key, definition]) => [
    code(definition.environmentVariable),
    `${code(key)} (${definition.category})`,
    code(String(definition.default)),
    expectation(definition),
    definition.description,
  ]);
  const columns = ["setting", "in the API (category)", "default", "takes", "is"];
  return [INTRODUCTION, ...groups, RUNTIME + table(columns, runtime)].join("\n");
}

function rowOf(name: string, schema: z.ZodType): string[] {
  const { description } = z.globalRegistry.get(schema) ?? {};
  if (!description) throw new Error(`${name} has no description in shared/config/environment.ts.`);
  return [code(name), defaultOf(schema), formOf(schema), description];
}

function defaultOf(schema: z.ZodType): string {
  if (schema instanceof z.ZodOptional) return "none";
  if (!(schema instanceof z.ZodDefault)) return "**needed**";
  const value: unknown = schema.def.defaultValue;
  return Array.isArray(value) && value.length === 0 ? "none" : code(String(value));
}

/** Of the innermost schema that says it. */
function formOf(schema: z.ZodType): string {
  const said = FORMS.get(schema)?.form;
  if (said !== undefined) return said;
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodDefault) return formOf(schema.unwrap() as z.ZodType);
  if (schema instanceof z.ZodPipe) return formOf(schema.in as z.ZodType);
  if (schema instanceof z.ZodEnum) return schema.options.map((option) => code(String(option))).join(", ");
  throw new Error(`A schema of the type ${schema.type} says no form in shared/config/environment.ts.`);
}

if (import.meta.main) {
  commandLine(HELP, {});
  const text = settingsPage();
  const isNew = readFileSync(FILE, "utf8") !== text;
  writeFileSync(FILE, text);
  console.log(isNew ? "docs/settings.md is written." : "docs/settings.md was as it has to be.");
}
