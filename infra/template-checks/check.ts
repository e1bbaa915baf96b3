// Runs the offline checks of the templates (Bicep, Terraform, the event policy) and of the documentation pages that describe
// them. The command `npm run check:infra` and the tests call it.

import { checkApiVersions } from "./api-versions.ts";
import { checkAzureYaml } from "./azure-yaml.ts";
import { checkBicep } from "./bicep/check.ts";
import type { TypeLibrary } from "./bicep/library.ts";
import { type BicepFile, parseBicep } from "./bicep/parse.ts";
import { checkClouds } from "./clouds.ts";
import { checkDefaults } from "./default-values.ts";
import { checkDeployerRoles } from "./deployer.ts";
import { checkDocumentedCommands } from "./documented-commands.ts";
import { checkEvaluated } from "./evaluation/check.ts";
import type { Finding } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { checkInvariants } from "./invariants.ts";
import { checkKeyActions } from "./key-actions.ts";
import { checkOrderings } from "./orderings.ts";
import { checkCommands, checkParameterDocs } from "./parameter-docs.ts";
import {
  checkDeployPage,
  checkModulePages,
  checkParametersFile,
  compareEntryPoints,
  compareParameters,
  compareRefusals,
} from "./parameters.ts";
import { checkParity, type ParityRow } from "./parity/parity.ts";
import { checkPolicy, type ParsedPolicy, parsePolicy } from "./policy.ts";
import { checkProviderSettings, checkProviders } from "./providers.ts";
import { checkQueries } from "./queries.ts";
import { checkRefusals } from "./refusals.ts";
import { checkRoleActions } from "./role-actions.ts";
import { checkAssignmentNames, checkPermissionsPage, checkRemovePage, checkRoleNames } from "./role-names.ts";
import { checkSettings, checkSettingsPages } from "./settings.ts";
import { checkAddresses, withRecordedNames } from "./terraform/addresses.ts";
import { checkTerraform, modulesOf } from "./terraform/check.ts";
import { parseTerraform, type TerraformFile } from "./terraform/parse.ts";
import { checkWiring } from "./wiring.ts";

/** The parsed template files. */
export interface Templates {
  files: InfraFiles;
  bicep: ReadonlyMap<string, BicepFile>;
  terraform: ReadonlyMap<string, TerraformFile>;
  /** Tests of the Terraform modules, which have the syntax of modules. */
  tests: ReadonlyMap<string, TerraformFile>;
  policy: ParsedPolicy;
}

/**
 * Parses the template files.
 *
 * @param previous - An earlier result. Bicep and Terraform files that have not changed since then are not parsed again.
 */
export async function parseTemplates(files: InfraFiles, previous?: Templates): Promise<Templates> {
  const bicep = new Map<string, BicepFile>();
  const [terraform, tests] = [new Map<string, TerraformFile>(), new Map<string, TerraformFile>()];
  for (const [path, text] of files.text) {
    const isUnchanged = previous?.files.text.get(path) === text;
    if (path.endsWith(".bicep")) {
      bicep.set(path, (isUnchanged && previous.bicep.get(path)) || (await parseBicep(path, text)));
    } else if (path.endsWith(".tf") || path.endsWith(".tftest.hcl")) {
      const unchangedFile = isUnchanged ? (previous.terraform.get(path) ?? previous.tests.get(path)) : undefined;
      (path.endsWith(".tf") ? terraform : tests).set(path, unchangedFile ?? (await parseTerraform(path, text)));
    }
  }
  return { files, bicep, terraform, tests, policy: await parsePolicy(files) };
}

/** Returns the ARM resource types in the Bicep and policy files. */
export function typesIn({ bicep, policy }: Templates): string[] {
  return [
    ...new Set([...bicep.values(), ...policy.files.values()].flatMap((file) => file.resources.map(({ type }) => type))),
  ];
}

/**
 * Runs all checks that need neither an Azure subscription nor the Terraform provider.
 * @returns `findings`: the problems, empty if there are none. `table`: each resource, role and setting with its place in Bicep
 * and in Terraform.
 */
export function checkInfra(input: {
  templates: Templates;
  types: TypeLibrary;
  /** Names of the scripts in package.json. */
  scripts: readonly string[];
}): { findings: Finding[]; table: ParityRow[] } {
  const { files, bicep, terraform, tests, policy } = input.templates;
  const written = modulesOf([...terraform.values()]);
  const modules = withRecordedNames(written, bicep);
  const mainModule = modules.find(({ folder }) => folder === "infra/terraform");
  const parity = checkParity(bicep, modules);
  const findings = [
    ...checkBicep({ files: bicep, types: input.types, exists: files.exists }),
    ...checkBicep({ files: policy.files, types: input.types, exists: files.exists }),
    ...checkApiVersions([...bicep.values(), ...policy.files.values()]),
    ...checkPolicy(policy, bicep),
    ...checkTerraform([...terraform.values()], files.exists),
    ...checkAddresses(written),
    ...checkAzureYaml(files, input.scripts),
    ...checkParametersFile(files, bicep),
    ...compareParameters(bicep, mainModule),
    ...checkDefaults(bicep, mainModule),
    ...compareRefusals(bicep, mainModule),
    ...compareEntryPoints(bicep),
    ...checkRoleNames(files),
    ...checkAssignmentNames(bicep),
    ...checkPermissionsPage(files, bicep),
    ...checkRemovePage(files, bicep),
    ...checkDeployerRoles(files, bicep, modules),
    ...checkProviders({ files, bicep, modules, policy: policy.files }),
    ...checkProviderSettings(modules),
    ...checkInvariants(bicep, modules, policy.files),
    ...checkRoleActions(files, bicep, modules),
    ...checkKeyActions(files),
    ...checkOrderings(bicep, modules),
    ...checkWiring(bicep, modules),
    ...checkRefusals({ files, bicep, modules, tests }),
    ...checkEvaluated({ files, bicep, modules }),
    ...checkParameterDocs(files, bicep),
    ...checkCommands(files, bicep),
    ...checkDocumentedCommands({ files, bicep, modules, scripts: input.scripts }),
    ...checkClouds(files),
    ...checkQueries(files, bicep),
    ...checkSettings(bicep, modules),
    ...checkSettingsPages(files, bicep),
    ...checkDeployPage(files, bicep),
    ...checkModulePages(files, modules),
    ...parity.findings,
  ];
  return { findings, table: parity.table };
}
