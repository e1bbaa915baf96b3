// The command `npm run check:infra`. See HELP.

import { spawnSync } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";
import { commandLine } from "../build/command-line.ts";
import type { Finding } from "./expression.ts";
import { ROOT, readInfraFiles } from "./files.ts";
import { compareWithProvider, type ProviderSchemas } from "./terraform/provider-schema.ts";

const HELP = `npm run check:infra [-- --write]

Checks the Bicep and Terraform files against Azure's resource types, against each other and against the settings that the service
reads. Prints a table of the resources, roles and settings in both languages, the findings with file and line, and what was not
checked. The exit code is 1 if there is a finding.

  --write   format the Terraform files and write the tables of each module's README.md, with terraform and terraform-docs

Environment variables:
  TF_CLI_CONFIG_FILE   path of a Terraform CLI configuration that provides the azurerm provider; enables "terraform validate"
                       and "terraform test"`;
const TERRAFORM_DOCS = ["--config", path.join(ROOT, "infra/terraform/.terraform-docs.yml")];
const { write } = commandLine(HELP, { options: { write: { type: "boolean" } } }).values;
if (write) writeTerraform();

const { checkInfra, parseTemplates, typesIn } = await import("./check.ts");
const { compileBicep } = await import("./bicep/compiler.ts");
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
const allFindings = [...compilerFindings(), ...terraformFindings(), ...terraformDocsFindings(), ...findings];
for (const { file, line, message } of allFindings) console.error(`${file}:${line}  ${message}`);
console.log(`${table.length} resources, roles and settings on both sides; ${allFindings.length} findings.`);
console.log("Not checked: the deployment itself (see docs/deploy.md for checks that need Azure).");
process.exit(allFindings.length === 0 ? 0 : 1);

/** Runs Bicep's compiler if it is installed, on each file that can be deployed on its own. */
function compilerFindings(): Finding[] {
  const compiled = compileBicep(globSync("infra/azure/**/*.bicep", { cwd: ROOT, exclude: ["**/modules/**"] }));
  if (!compiled)
    console.log(
      "Not checked: errors that only Bicep's compiler finds, because neither bicep nor az bicep is installed.",
    );
  return compiled ?? [];
}

/** Runs Terraform if it is installed: `fmt`, and `validate` and `test` if the provider is available. */
function terraformFindings(): Finding[] {
  const format = run("terraform", ["fmt", "-check", "-recursive", "-list=true"]);
  if (format.error) {
    console.log("Not checked: terraform fmt, validate and test, because terraform is not installed.");
    return [];
  }
  const findings = format.stdout
    .split("\n")
    .filter((file) => file !== "")
    .map((file) => ({ file: `infra/terraform/${file}`, line: 1, message: "terraform fmt would change it" }));
  if (!existsSync(process.env.TF_CLI_CONFIG_FILE ?? "")) {
    console.log(
      "Not checked: terraform validate and terraform test. Set TF_CLI_CONFIG_FILE to a configuration that provides the azurerm provider.",
    );
    return findings;
  }
  const invalid = [...moduleFolders().flatMap(validate), ...schemaFindings()];
  return [...findings, ...invalid, ...(invalid.length === 0 ? testModule() : [])];
}

/** Compares the excerpt of the provider's schema with the provider. */
function schemaFindings(): Finding[] {
  const { stdout } = run("terraform", ["providers", "schema", "-json"]);
  const { resources } = JSON.parse(readFileSync(path.join(import.meta.dirname, "terraform/azurerm.json"), "utf8"));
  return compareWithProvider(resources, JSON.parse(stdout) as ProviderSchemas);
}

/** Runs a program in a folder, by default that of the main module. `error` is set if the program is not installed. */
function run(program: string, args: readonly string[], folder = "infra/terraform") {
  // A plan with the schema of its provider takes several megabytes.
  const maxBuffer = 256 * 1024 * 1024;
  return spawnSync(program, args, { cwd: path.join(ROOT, folder), encoding: "utf8", maxBuffer });
}

/** Formats the Terraform files and writes the tables of each module's README.md. */
function writeTerraform(): void {
  run("terraform", ["fmt", "-recursive"]);
  for (const folder of moduleFolders()) {
    const { error, status, stderr } = run("terraform-docs", [...TERRAFORM_DOCS, "."], folder);
    if (error) throw new Error("terraform-docs is not installed: see https://terraform-docs.io.");
    if (status !== 0) throw new Error(`terraform-docs failed in ${folder}: ${stderr}`);
  }
}

/** Checks that the tables of each module's README.md are current, if terraform-docs is installed. */
function terraformDocsFindings(): Finding[] {
  if (run("terraform-docs", ["--version"]).error) {
    console.log("Not checked: whether terraform-docs would change a README.md, because it is not installed.");
    return [];
  }
  return moduleFolders()
    .filter((folder) => run("terraform-docs", [...TERRAFORM_DOCS, "--output-check", "."], folder).status !== 0)
    .map((folder) => ({
      file: `${folder}/README.md`,
      line: 1,
      message: "terraform-docs would change it: npm run check:infra -- --write",
    }));
}

/** Runs the tests of the main module: plans with a mocked provider. */
function testModule(): Finding[] {
  const events = testEvents();
  const failures = events.flatMap(({ diagnostic, ...event }) =>
    diagnostic?.severity === "error"
      ? [
          {
            file: `infra/terraform/${event["@testfile"] ?? "tests"}`,
            line: diagnostic.range?.start.line ?? 1,
            message: `${event["@testrun"] ?? "terraform test"}: ${diagnostic.summary}: ${diagnostic.detail}`,
          },
        ]
      : [],
  );
  const passed = events.find(({ test_summary }) => test_summary)?.test_summary?.passed ?? 0;
  console.log(`${passed} tests of the Terraform module passed.`);
  const nothingRan = { file: "infra/terraform/tests", line: 1, message: "terraform test ran no test" };
  if (failures.length > 0) return failures;
  return passed === 0 ? [nothingRan] : changesOfSecondPlan();
}

/**
 * Checks that a plan after an apply changes nothing. `terraform test` can't assert that, so this reads the last plan of the test
 * file.
 */
function changesOfSecondPlan(): Finding[] {
  const file = "tests/unchanged.tftest.hcl";
  const plan = testEvents(["-verbose", `-filter=${file}`]).findLast(({ test_plan }) => test_plan)?.test_plan;
  const finding = (message: string): Finding => ({ file: `infra/terraform/${file}`, line: 1, message });
  if (!plan) return [finding("terraform test printed no plan")];
  const outputs = Object.entries(plan.output_changes).map(([name, change]) => ({ address: `output.${name}`, change }));
  const changes = [...plan.resource_changes, ...outputs].filter(({ change }) => change.actions.join() !== "no-op");
  console.log(`${plan.resource_changes.length} resources in a second plan, ${changes.length} changes.`);
  return changes.map(({ address, change }) =>
    finding(`a second plan without any change would ${change.actions.join(" and ")} ${address}`),
  );
}

/** Runs `terraform test` in the main module and returns its events. */
function testEvents(args: readonly string[] = []): TestEvent[] {
  const { stdout } = run("terraform", ["test", "-json", ...args]);
  return stdout
    .split("\n")
    .filter((text) => text.startsWith("{"))
    .map((text) => JSON.parse(text) as TestEvent);
}

/** A line of `terraform test -json`: https://developer.hashicorp.com/terraform/internals/machine-readable-ui */
interface TestEvent {
  "@testfile"?: string;
  "@testrun"?: string;
  diagnostic?: { severity: string; summary: string; detail: string; range?: { start: { line: number } } };
  test_summary?: { passed: number };
  test_plan?: {
    resource_changes: { address: string; change: Change }[];
    output_changes: { [name: string]: Change };
  };
}

/** The actions of a plan for a resource or output: one of `create`, `update`, `delete`, `read`, `no-op`, or two of them. */
interface Change {
  actions: string[];
}

/** Returns the folders with a Terraform module: the main module, its submodules and the examples. */
function moduleFolders(): string[] {
  const versions = globSync("infra/terraform/**/versions.tf", { cwd: ROOT });
  return versions.map((file) => path.dirname(file)).sort();
}

function validate(folder: string): Finding[] {
  // `terraform get` makes the called modules available. The provider comes from the CLI configuration.
  run("terraform", ["get"], folder);
  const { stdout } = run("terraform", ["validate", "-json"], folder);
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
