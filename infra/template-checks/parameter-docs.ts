// Checks the defaults and limits of the parameters against the tables in the documentation.

import { allowedValues } from "./bicep/file-scope.ts";
import type { BicepFile, Parameter } from "./bicep/parse.ts";
import type { Finding } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { cellsOf } from "./markdown-sections.ts";

const MAIN_TEMPLATE = "infra/azure/main.bicep";
const PAGES = ["docs/deploy.md", "docs/bring-your-own.md"];

/** A row of a table: some parameters with their defaults and a description. */
interface Row {
  file: string;
  line: number;
  names: string[];
  defaults: string[];
  description: string;
}

/**
 * Checks that each parameter has a row with its default and its limits. The row of a parameter that is empty by default can have
 * any text as the default, such as `none` or the service's own default, but not `true` or `false`.
 */
export function checkParameterDocs(files: InfraFiles, bicep: ReadonlyMap<string, BicepFile>): Finding[] {
  const rows = PAGES.flatMap((file) => rowsOf(file, files.text.get(file) ?? ""));
  return (bicep.get(MAIN_TEMPLATE)?.parameters ?? []).flatMap((parameter) => {
    const row = rows.find(({ names }) => names.includes(parameter.name));
    if (!row) return [{ file: PAGES[0]!, line: 1, message: `has no row for the parameter ${parameter.name}` }];
    const finding = (message: string): Finding => ({
      file: row.file,
      line: row.line,
      message: `${parameter.name}: ${message}`,
    });
    // One default applies to all parameters of a row.
    const documented = row.defaults[row.names.indexOf(parameter.name)] ?? row.defaults[0] ?? "";
    const actual = defaultOf(parameter);
    const isWrong = actual === "" ? /^(true|false)$/.test(documented) : documented !== actual;
    return [
      ...(isWrong ? [finding(`its default is ${actual || "empty"}, here ${documented || "nothing"}`)] : []),
      ...numbersOf(parameter)
        .filter((limit) => !new RegExp(`\\b${limit}\\b`).test(row.description))
        .map((limit) => finding(`this row does not name the limit ${limit}`)),
    ];
  });
}

/** Checks the documented commands that deploy a template: they must have its target scope and pass only its parameters. */
export function checkCommands(files: InfraFiles, bicep: ReadonlyMap<string, BicepFile>): Finding[] {
  return [...files.text]
    .filter(([file]) => file.startsWith("docs/"))
    .flatMap(([file, page]) =>
      [...page.matchAll(COMMAND)].flatMap(({ 0: command, 1: kind, 2: template, index }) => {
        const parameters = bicep.get(template!)?.parameters.map(({ name }) => name);
        const scope = bicep.get(template!)?.scope;
        const passedNames = [...command.slice(command.indexOf("--parameters")).matchAll(/(?<=\s)(\w+)=/g)].map(
          ([, name]) => name!,
        );
        const line = page.slice(0, index).split("\n").length;
        if (!parameters) return [{ file, line, message: `there is no template ${template}` }];
        const isOtherScope = scope !== COMMAND_SCOPES[kind!];
        return [
          ...(isOtherScope
            ? [{ file, line, message: `${template} has the target scope ${scope}, not that of az deployment ${kind}` }]
            : []),
          ...passedNames
            .filter((name) => !parameters.includes(name))
            .map((name) => ({ file, line, message: `${template} has no parameter ${name}` })),
        ];
      }),
    );
}

/** Target scopes by the kind of deployment: https://learn.microsoft.com/cli/azure/deployment */
const COMMAND_SCOPES: Record<string, string> = {
  group: "resourceGroup",
  sub: "subscription",
  mg: "managementGroup",
  tenant: "tenant",
};

/** A command with a template and parameters, over several lines that end with a backslash. */
const COMMAND =
  /az deployment (\w+) create(?:[^\n]*\\\n)*?[^\n]*--template-file (infra\/azure\/\S+\.bicep)(?:[^\n]*\\\n)*[^\n]*/g;

/** Returns the rows of the tables of parameters, whose first two cells are the names in Bicep and in Terraform. */
function rowsOf(file: string, page: string): Row[] {
  return page.split("\n").flatMap((text, index) => {
    const [bicep = "", terraform = "", defaults = "", description = ""] = cellsOf(text);
    const names = namesIn(bicep);
    return names.length > 0 && namesIn(terraform).length === names.length
      ? [
          {
            file,
            line: index + 1,
            names,
            defaults: defaults.split(", ").map((one) => one.replaceAll("`", "")),
            description,
          },
        ]
      : [];
  });
}

const namesIn = (cell: string): string[] =>
  /^`\w+`(, `\w+`)*$/.test(cell) ? cell.split(", ").map((name) => name.slice(1, -1)) : [];

/** Returns the default as the tables write it. Empty for an empty text, list or object, and for none. */
function defaultOf({ defaultValue }: Parameter): string {
  return defaultValue?.kind === "literal" ? String(defaultValue.value) : "";
}

/** Returns the numbers that limit a parameter. */
const numbersOf = ({ decorators }: Parameter): (string | number | boolean | null)[] =>
  decorators.flatMap((decorator) => {
    if (decorator.kind !== "call") return [];
    const limits = /^(min|max)(Value|Length)$/.test(decorator.name) ? decorator.args : [];
    return [
      ...limits.flatMap((limit) => (limit.kind === "literal" ? [limit.value] : [])),
      ...(allowedValues(decorator) ?? []).filter((value) => /^\d+$/.test(String(value))),
    ];
  });
