// The command `npm run check:infra`. See HELP.

import { spawnSync } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";
import { commandLine } from "../build/command-line.ts";
import type { Finding } from "./expression.ts";
import { ROOT, readInfraFiles } from "./files.ts";

const HELP = `npm run check:infra

Checks the Bicep and Terraform files against Azure's resource types, against each other and against the settings that the service
reads. Prints a table of the resources, roles and settings in both languages, the findings with file and line, and what was not
checked. The exit code is 1 if there is a finding.

Environment variables:
  TF_CLI_CONFIG_FILE   path of a Terraform CLI configuration that provides the azurerm provider; enables "terraform validate"`;
commandLine(HELP, {});

const { checkInfra, parseTemplates, typesIn } = await import("./check.ts");
const { loadTypes } = await import("./bicep/types.ts");
const files = readInfraFiles();
const templates = await parseTemplates(files);
const types = await loadTypes(typesIn(templates));
const { scripts } = JSON.parse(readFileSync(path.join(ROOT, "package.json"), "utf8")) as { scripts: object };
const { findings, table } = checkInfra({ templates, types, scripts: Object.keys(scripts) });

const width = Math.max(...table.map(({ name }) => name.length));
for (const { what, name, bicep, terraform } of table) {
  console.log(`${what.padEnd(9)}${name.padEnd(width + 2)}${bicep.padEnd(62)}${terraform}`);
}
const allFindings = [...terraformFindings(), ...findings];
for (const { file, line, message } of allFindings) console.error(`${file}:${line}  ${message}`);
console.log(`${table.length} resources, roles and settings on both sides; ${allFindings.length} findings.`);
console.log(
  "Not checked: errors that only Bicep's compiler finds, and the deployment itself (see docs/deploy.md for checks that need Azure).",
);
process.exit(allFindings.length === 0 ? 0 : 1);

/** Runs Terraform if it is installed: `terraform fmt`, and `terraform validate` if the provider is available. */
function terraformFindings(): Finding[] {
  const folder = path.join(ROOT, "infra/terraform");
  const run = (...args: string[]) => spawnSync("terraform", args, { cwd: folder, encoding: "utf8" });
  const format = run("fmt", "-check", "-recursive", "-list=true");
  if (format.error) {
    console.log("Not checked: terraform fmt and terraform validate, because terraform is not installed.");
    return [];
  }
  const findings = format.stdout
    .split("\n")
    .filter((file) => file !== "")
    .map((file) => ({ file: `infra/terraform/${file}`, line: 1, message: "terraform fmt would change it" }));
  if (!existsSync(process.env.TF_CLI_CONFIG_FILE ?? "")) {
    console.log(
      "Not checked: terraform validate. Set TF_CLI_CONFIG_FILE to a configuration that provides the azurerm provider.",
    );
    return findings;
  }
  return [...findings, ...moduleFolders().flatMap(validate)];
}

/** Returns the folders with a Terraform module: the main module, its submodules and the examples. */
function moduleFolders(): string[] {
  const versions = globSync("infra/terraform/**/versions.tf", { cwd: ROOT });
  return versions.map((file) => path.dirname(file)).sort();
}

function validate(folder: string): Finding[] {
  const options = { cwd: path.join(ROOT, folder), encoding: "utf8" } as const;
  // `terraform get` makes the called modules available. The provider comes from the CLI configuration.
  spawnSync("terraform", ["get"], options);
  const { stdout } = spawnSync("terraform", ["validate", "-json"], options);
  const { diagnostics } = JSON.parse(stdout) as {
    diagnostics: { severity: string; summary: string; range?: { filename: string; start: { line: number } } }[];
  };
  return diagnostics
    .filter(({ severity }) => severity === "error")
    .map(({ summary, range }) => ({
      file: range ? `${folder}/${range.filename}` : folder,
      line: range?.start.line ?? 1,
      message: summary,
    }));
}
