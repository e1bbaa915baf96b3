// Checks that the templates reject invalid parameters. The invalid values come from the runs of `terraform test` with
// `expect_failures` (infra/terraform/tests). Those runs need the provider, so this check evaluates the conditions of both
// languages with the values instead. It finds a condition that always holds, and a condition without a test. The checks in
// evaluation/ find a condition that rejects valid values.

import path from "node:path";
import type { BicepFile } from "./bicep/parse.ts";
import { deployBicep } from "./evaluation/bicep.ts";
import type { Place } from "./evaluation/deployed.ts";
import { EvaluationError, evaluate, type Names, type Value } from "./evaluation/evaluate.ts";
import { exceededLimits, isLimited } from "./evaluation/limits.ts";
import { conditionHolds } from "./evaluation/terraform.ts";
import { children, dotted, type Expression, type Finding, text } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { snake } from "./parity/normalize.ts";
import { blocks, type TerraformModule } from "./terraform/check.ts";
import type { Block, TerraformFile } from "./terraform/parse.ts";

const MAIN_MODULE = "infra/terraform";
const SERVICE_TEMPLATE = "infra/azure/service.bicep";

/** A run of `terraform test`. */
interface Run {
  file: string;
  line: number;
  name: string;
  /** Folder of the tested module. */
  folder: string;
  variables: { [name: string]: Value };
  /** Names that the run expects to fail: `var.name`, `check.name` or `type.name` of a resource with a precondition. */
  failures: string[];
}

/** The templates, and the parsed files of infra/terraform/tests. */
export interface RefusalCheckInput {
  files: InfraFiles;
  bicep: ReadonlyMap<string, BicepFile>;
  modules: readonly TerraformModule[];
  tests: ReadonlyMap<string, TerraformFile>;
}

/** The conditions of one variable, check or resource. `subject`: what fails if one does not hold, as in `expect_failures`. */
interface Requirement {
  folder: string;
  subject: string;
  file: string;
  line: number;
  conditions: Expression[];
}

/** Checks every validation, check and precondition. */
export function checkRefusals({ files, bicep, modules, tests }: RefusalCheckInput): Finding[] {
  const runs = [...tests.values()].flatMap(runsOf);
  const requirements = modules
    .filter(({ folder }) => !folder.includes("/examples/"))
    .flatMap((module) => requirementsOf(module));
  const holds = ({ folder, conditions }: Requirement, { variables }: Run): boolean => {
    const place = PLACE;
    return conditions.every((condition) => {
      try {
        return conditionHolds({ modules, read: files.read, folder, variables, place }, condition);
      } catch (error) {
        // Terraform rejects values for which a condition can't be evaluated.
        if (error instanceof EvaluationError) return false;
        throw error;
      }
    });
  };
  return requirements.flatMap((requirement) => {
    const { file, line, subject } = requirement;
    const moduleRuns = runs.filter(({ folder }) => folder === requirement.folder);
    const refused = moduleRuns.filter(({ failures }) => failures.includes(subject));
    return [
      ...(refused.length === 0
        ? [{ file, line, message: `no test in infra/terraform/tests expects that ${subject} fails` }]
        : []),
      ...refused
        .filter((run) => holds(requirement, run))
        .map((run) => ({ file, line, message: `${subject} does not refuse the values of the test ${run.name}` })),
      ...moduleRuns
        .filter((run) => !refused.includes(run) && !holds(requirement, run))
        .map((run) => ({ file, line, message: `${subject} refuses the values of the test ${run.name}` })),
      ...(requirement.folder === MAIN_MODULE
        ? refused.flatMap((run) => checkBicep(requirement, run, bicep, files))
        : []),
    ];
  });
}

const PLACE: Place = {
  tenantId: "tenant",
  subscriptionId: "subscription",
  cloud: "AzureCloud",
  deployerObjectId: "deployer",
};

/** The values in the tests are literals. */
const LITERALS: Names = {
  reference: () => undefined,
  call: ({ name }) => {
    throw new EvaluationError(`the function ${name} is not supported in a test`);
  },
  bind: () => LITERALS,
};

const valuesOf = (block: Block | undefined): { [name: string]: Value } =>
  Object.fromEntries([...(block?.attributes ?? [])].map(([name, { value }]) => [name, evaluate(value, LITERALS)]));

function runsOf({ path: file, blocks: all }: TerraformFile): Run[] {
  const common = valuesOf(all.find(({ type }) => type === "variables"));
  return all
    .filter(({ type }) => type === "run")
    .map((run) => {
      const inner = (type: string) => run.blocks.find((block) => block.type === type);
      const source = text(inner("module")?.attributes.get("source")?.value) ?? ".";
      const expected = run.attributes.get("expect_failures")?.value;
      return {
        file,
        line: run.line,
        name: run.labels[0]!,
        folder: path.posix.join(MAIN_MODULE, source),
        variables: { ...common, ...valuesOf(inner("variables")) },
        failures: expected?.kind === "array" ? expected.items.map((item) => dotted(item)?.join(".") ?? "") : [],
      };
    });
}

function requirementsOf(module: TerraformModule): Requirement[] {
  const conditionsIn = (block: Block): Expression[] =>
    block.blocks.flatMap((inner) => [
      ...(CONDITION_BLOCKS.has(inner.type) ? [inner.attributes.get("condition")?.value ?? []].flat() : []),
      ...conditionsIn(inner),
    ]);
  return Object.entries(SUBJECTS).flatMap(([type, subjectOf]) =>
    blocks(module, type).flatMap(({ block, file }) => {
      const conditions = conditionsIn(block);
      const subject = subjectOf(block);
      return conditions.length > 0 ? [{ folder: module.folder, subject, file, line: block.line, conditions }] : [];
    }),
  );
}

/** Blocks with a condition that must hold. */
const CONDITION_BLOCKS = new Set(["validation", "assert", "precondition"]);
/** The name that fails (see `Run.failures`) if a condition in a block does not hold, by the type of the block. */
const SUBJECTS: Record<string, (block: Block) => string> = {
  variable: ({ labels }) => `var.${labels[0]}`,
  check: ({ labels }) => `check.${labels[0]}`,
  resource: ({ labels }) => labels.join("."),
};

/**
 * Checks that service.bicep also rejects the values, if Bicep can check the parameter: with a decorator, or with `fail` for a
 * combination of parameters.
 */
function checkBicep(
  { subject, conditions }: Requirement,
  { name: run, variables }: Run,
  bicep: ReadonlyMap<string, BicepFile>,
  { read }: InfraFiles,
): Finding[] {
  const service = bicep.get(SERVICE_TEMPLATE);
  const parameter = service?.parameters.find(({ name }) => `var.${snake(name)}` === subject);
  // Bicep can't match a text against a pattern, so a condition about this parameter alone may have no counterpart.
  const dependsOnOthers = conditions.flatMap(variablesIn).some((name) => `var.${name}` !== subject);
  if (!service || !parameter || !(isLimited(parameter) || dependsOnOthers)) return [];
  const parameters = Object.fromEntries(
    service.parameters.flatMap(({ name }) => (snake(name) in variables ? [[name, variables[snake(name)]!]] : [])),
  );
  const { findings } = deployBicep({
    files: bicep,
    read,
    file: SERVICE_TEMPLATE,
    parameters,
    place: { ...PLACE, resourceGroup: "rg" },
  });
  const isRefused =
    exceededLimits(parameter, parameters[parameter.name] ?? null).length > 0 ||
    findings.some(({ message }) => message.split(/\W+/).includes(parameter.name));
  return isRefused
    ? []
    : [
        {
          file: SERVICE_TEMPLATE,
          line: parameter.line,
          message: `${parameter.name}: does not refuse the values of the test ${run}`,
        },
      ];
}

/** Returns the names of the variables in an expression: `name` of `var.name`. */
export function variablesIn(expression: Expression): string[] {
  const isVariable = expression.kind === "member" && expression.of.kind === "name" && expression.of.name === "var";
  return isVariable ? [expression.name] : children(expression).flatMap(variablesIn);
}

/** Returns the messages of the calls of `fail` in an expression. */
export function failMessages(expression: Expression): string[] {
  if (expression.kind === "call" && expression.name === "fail") return [text(expression.args[0]) ?? ""];
  if (expression.kind !== "conditional") return [];
  return [expression.whenTrue, expression.whenFalse].flatMap(failMessages);
}
