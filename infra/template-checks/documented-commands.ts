// Checks the shell commands in the documentation against the templates: the variables, working directories, outputs and names
// that they use. No test runs these commands, because they need an Azure subscription.

import path from "node:path";
import { SETTING_NAMES } from "../../shared/platform/config/config.ts";
import type { BicepFile } from "./bicep/parse.ts";
import type { Finding } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { bicepResources } from "./parity/declared-resources.ts";
import { bicepSettings } from "./parity/settings.ts";
import { bicepValue } from "./parity/values.ts";
import { blocks, type TerraformModule } from "./terraform/check.ts";

/** Variables that the reader sets, because the text of the pages says so. */
const SET_BY_READER = ["TOKEN", "SERVICE", "ID", "USERNAME", "PASSWORD"];

/** A setting of `npm run doctor`, which no deployment has. */
const COMMAND_SETTINGS = ["SERVICE_TOKEN"];

/** A name in a command, with the resource type that it must name. */
const NAMED: readonly [command: RegExp, type: string][] = [
  [/--policy-assignment ([\w-]+)/g, "Microsoft.Authorization/policyAssignments"],
  [/az policy assignment \w+ [^\n]*?--name ([\w-]+)/g, "Microsoft.Authorization/policyAssignments"],
  [/az policy definition \w+ [^\n]*?--name ([\w-]+)/g, "Microsoft.Authorization/policyDefinitions"],
  [/az group \w+ [^\n]*?--name ([\w-]+)/g, "Microsoft.Resources/resourceGroups"],
  [/queueServices\/default\/queues\/([\w-]+)/g, "Microsoft.Storage/storageAccounts/queueServices/queues"],
];

/** A line of a shell block, with the lines that a backslash continues. */
interface Command {
  text: string;
  line: number;
}

interface Context {
  files: InfraFiles;
  modules: readonly TerraformModule[];
  /** Names of the scripts in package.json. */
  scripts: readonly string[];
  /** Outputs of main.bicep, which `azd env get-values` lists. */
  outputs: readonly string[];
}

/** Checks the commands of every page. */
export function checkDocumentedCommands(input: {
  files: InfraFiles;
  bicep: ReadonlyMap<string, BicepFile>;
  modules: readonly TerraformModule[];
  scripts: readonly string[];
}): Finding[] {
  const { files, bicep } = input;
  const outputs = (bicep.get("infra/azure/main.bicep")?.outputs ?? []).map(({ name }) => name);
  const settings = [...SETTING_NAMES, ...bicepSettings(bicep).map(({ name }) => name)];
  const pages = [...files.text].filter(([file]) => file.startsWith("docs/"));
  return pages.flatMap(([file, page]) => [
    ...shellBlocks(page).flatMap((block) => checkBlock(block, { ...input, outputs }).map((one) => ({ file, ...one }))),
    ...checkNames(page, bicep).map((one) => ({ file, ...one })),
    ...checkOutputNames(page, [...outputs, ...settings, ...COMMAND_SETTINGS]).map((one) => ({ file, ...one })),
  ]);
}

type PageFinding = Omit<Finding, "file">;

/** Returns the shell blocks of a page: for each, its commands and the variables that earlier blocks of the section set. */
function shellBlocks(page: string): { commands: Command[]; earlier: string[] }[] {
  const result: { commands: Command[]; earlier: string[] }[] = [];
  let currentBlock: Command[] | undefined;
  let earlier: string[] = [];
  let continues = false;
  for (const [index, text] of page.split("\n").entries()) {
    if (currentBlock === undefined) {
      if (/^#+ /.test(text)) earlier = [];
      if (/^\s*```(sh|bash)$/.test(text)) currentBlock = [];
    } else if (/^\s*```$/.test(text)) {
      result.push({ commands: currentBlock, earlier: [...earlier] });
      earlier.push(...currentBlock.flatMap((command) => assignedIn(command.text)));
      currentBlock = undefined;
      continues = false;
    } else {
      const command = text.replace(/\s#.*$/, "");
      if (continues) currentBlock.at(-1)!.text += ` ${command}`;
      else currentBlock.push({ text: command, line: index + 1 });
      continues = command.endsWith("\\");
      if (continues) currentBlock.at(-1)!.text = currentBlock.at(-1)!.text.slice(0, -1);
    }
  }
  return result;
}

/** Returns the variables that a command sets. */
const assignedIn = (command: string): string[] => [
  ...[...command.matchAll(/(?<![\w.])([A-Z][A-Z0-9_]*)=/g)].map(([, name]) => name!),
  ...[...command.matchAll(/\bread (?:-\w+ )*([A-Z][A-Z0-9_]*)/g)].map(([, name]) => name!),
];

/** The loop that exports Terraform outputs as variables in capitals. */
const EXPORTS = /for name in ([\w ]+); do .*tr a-z A-Z/;

/** Checks the commands of one block in their order: where they run, and which variables they read. */
function checkBlock(
  { commands, earlier }: { commands: readonly Command[]; earlier: readonly string[] },
  { files, modules, scripts, outputs }: Context,
): PageFinding[] {
  const findings: PageFinding[] = [];
  const definedVariables = new Set([...SET_BY_READER, ...outputs, ...earlier]);
  /** Folder in the repository. Undefined after a command that leads elsewhere. */
  let folder: string | undefined = ".";
  for (const { text, line } of commands) {
    const add = (message: string) => findings.push({ line, message });
    const exported = EXPORTS.exec(text)?.[1]?.trim().split(/\s+/);
    if (exported) {
      // Terraform's outputs are not in the environment, unlike those of azd.
      for (const name of outputs) definedVariables.delete(name);
      const module = modules.find((one) => one.folder === folder);
      const names = module ? blocks(module, "output").map(({ block }) => block.labels[0]!) : [];
      for (const name of exported) {
        definedVariables.add(name.toUpperCase());
        if (module && !names.includes(name)) add(`${folder} has no output ${name}`);
      }
    }
    for (const part of text.split(/&&|;/)) {
      const [, target] = /^\s*cd (\S+)/.exec(part) ?? [];
      const [, createdFolder] = /^\s*(?:mkdir|git clone) (.*)/.exec(part) ?? [];
      const [, script] = /\bnpm run ([\w:-]+)/.exec(part) ?? [];
      if (createdFolder !== undefined) folder = undefined;
      if (folder === undefined) continue;
      if (target !== undefined) {
        folder = path.posix.join(folder, target);
        if (folder.startsWith("..")) add(`cd ${target} leads out of the repository`);
        else if (!files.exists(folder)) add(`cd ${target} leads to ${folder}, which does not exist`);
      }
      if (script === undefined) continue;
      if (folder !== ".") add(`npm run ${script} is in ${folder}, not in the folder of the repository`);
      else if (!scripts.includes(script)) add(`package.json has no script ${script}`);
    }
    for (const [, name] of text.matchAll(/\$\{?([A-Z][A-Z0-9_]*)/g))
      if (!definedVariables.has(name!) && !assignedIn(text).includes(name!))
        add(`nothing before this command sets ${name}: neither the section nor an output of the deployment`);
    for (const name of assignedIn(text)) definedVariables.add(name);
  }
  return findings;
}

/**
 * Checks that the names in commands are names that the templates give. The environment's name in a command can be any word,
 * because pages use a placeholder for it.
 */
function checkNames(page: string, bicep: ReadonlyMap<string, BicepFile>): PageFinding[] {
  const resources = [...bicepResources(bicep).values()].flat();
  return NAMED.flatMap(([command, type]) => {
    const matches = [...page.matchAll(command)];
    if (matches.length === 0) return [];
    const names = resources
      .filter(({ resource }) => resource.type === type)
      .map((one) => bicepValue(one, "name") ?? "");
    // A name with a condition counts with its last alternative, the name that the templates give.
    const patterns = names.map((name) => name.replace(/^.* \? .* : /, "").replace(/\{\w+\}/g, "[A-Za-z]+"));
    return matches
      .filter(([, name]) => !patterns.some((pattern) => new RegExp(`^${pattern}$`).test(name!)))
      .map(({ 1: name, index }) => ({
        line: page.slice(0, index).split("\n").length,
        message: `no ${type} of the templates has the name ${name}: they are ${[...new Set(names)].join(", ")}`,
      }));
  });
}

/** Checks that each output that a page names exists. */
function checkOutputNames(page: string, known: readonly string[]): PageFinding[] {
  return page
    .split("\n")
    .flatMap((text, index) =>
      [...new Set(text.match(/\bSERVICE_[A-Z_]+\b/g))]
        .filter((name) => !known.includes(name))
        .map((name) => ({ line: index + 1, message: `${name} is neither an output of main.bicep nor a setting` })),
    );
}
