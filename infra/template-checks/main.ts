/**
 * Command that checks the Bicep and Terraform files against Azure's types, against each other and against the service's
 * settings. See HELP.
 */
import { spawnSync } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";
import { commandLine } from "../build/command-line.ts";
import type { Finding } from "./expression.ts";
import { ROOT, readInfraFiles } from "./files.ts";

const HELP = `npm run check:infra

Holds the Bicep and Terraform files to Azure's types, to each other and to what the service reads. Prints the parity table,
every finding with its file and line, and what could not be checked. Ends with 1 on a finding.

  TF_CLI_CONFIG_FILE   a configuration of Terraform that has the provider: "terraform validate" runs, too`;
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
const real = [...withTerraform(), ...findings];
for (const { file, line, message } of real) console.error(`${file}:${line}  ${message}`);
console.log(`${table.length} resources, roles and settings on both sides; ${real.length} findings.`);
console.log(
  "Not checked here: what Bicep's own compiler says, and that the templates deploy (docs/deploy.md says what needs Azure).",
);
process.exit(real.length === 0 ? 0 : 1);

/** Runs Terraform if it is installed: `fmt` always, `validate` if the provider is available. */
function withTerraform(): Finding[] {
  const folder = path.join(ROOT, "infra/terraform");
  const run = (...args: string[]) => spawnSync("terraform", args, { cwd: folder, encoding: "utf8" });
  const format = run("fmt", "-check", "-recursive", "-list=true");
  if (format.error) {
    console.log("Not checked: Terraform's own format and validation, since terraform is not installed.");
    return [];
  }
  const findings = format.stdout
    .split("\n")
    .filter((file) => file !== "")
    .map((file) => ({ file: `infra/terraform/${file}`, line: 1, message: "terraform fmt would change it" }));
  if (!existsSync(process.env.TF_CLI_CONFIG_FILE ?? "")) {
    console.log("Not checked: terraform validate. Set TF_CLI_CONFIG_FILE to a configuration that has the provider.");
    return findings;
  }
  return [...findings, ...modules().flatMap(validate)];
}

/** Returns the folders of the module, its submodules and the examples. */
function modules(): string[] {
  const versions = globSync("infra/terraform/**/versions.tf", { cwd: ROOT });
  return versions.map((file) => path.dirname(file)).sort();
}

function validate(folder: string): Finding[] {
  const options = { cwd: path.join(ROOT, folder), encoding: "utf8" } as const;
  // Links the example's modules. The provider comes from the CLI configuration.
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
