// The command `npm run preflight`. See HELP.

import { existsSync, writeFileSync } from "node:fs";
import { commandLine, exitWithUsageError } from "../build/command-line.ts";
import type { Value } from "./values.ts";

const HELP = `npm run preflight -- --subscription ID --location REGION [options]

Asks Azure, as the person who is signed in (az login), whether a deployment of the service would succeed: permissions, resource
providers, policies, locks, region, quotas, names, existing networks, and which key vaults the service could not read. Prints
each problem with its fix. Reads only.

Options:
  --subscription ID    subscription to deploy to
  --location REGION    region, such as westeurope
  --name NAME          environmentName of the deployment (default: lifecycle)
  --network            deploys with the private network (networkEnabled)
  --parameters FILE    parameters of the deployment: main.parameters.json or terraform.tfvars
  --set NAME=VALUE     one parameter, lists and objects as JSON; can be repeated
  --write LANGUAGE     writes a parameters file with the findings applied: bicep or terraform
  --out FILE           file to write (default: main.parameters.json or terraform.tfvars in the current folder)
  --overwrite          replaces an existing file
  --json               prints the report as JSON

Exit codes: 0 nothing stops the deployment, 1 something does, 2 the command was used incorrectly, 3 the cloud could not be asked.

Environment variables:
  AZURE_CLOUD, AZURE_AUTHORITY_HOST, AZURE_RESOURCE_MANAGER_ENDPOINT   for a cloud other than the public one
  AZURE_TENANT_ID                                                      tenant to sign in to`;

const text = { type: "string" } as const;
const flag = { type: "boolean", default: false } as const;
const { values: options } = commandLine(HELP, {
  options: {
    subscription: text,
    location: text,
    name: text,
    network: flag,
    parameters: text,
    set: { type: "string", multiple: true },
    write: text,
    out: text,
    overwrite: flag,
    json: flag,
  },
});

/** Exit code if no one is signed in, or the subscription can't be read. */
const CLOUD_FAILED = 3;
const subscriptionId = options.subscription?.toLowerCase() ?? exitWithUsageError("--subscription is missing");
if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(subscriptionId))
  exitWithUsageError("--subscription must be a GUID (az account list)");
const write = options.write === undefined ? undefined : languageOf(options.write);
const file = options.out ?? (write === "terraform" ? "terraform.tfvars" : "main.parameters.json");
if (write && existsSync(file) && !options.overwrite)
  exitWithUsageError(`${file} exists. Use --overwrite to replace it, or --out for another file`);

// The rest is loaded after the options are valid, so that --help and usage errors appear at once.
const { quote, quoteAlways } = await import("./finding.ts");
const { parseBicepTemplates } = await import("./templates.ts");
const parametersModule = await import("./parameters.ts");
const templates = await parseBicepTemplates();
const definitions = parametersModule.parameterDefinitions(templates);

const { language, parameters } = await readParameters().catch((error: unknown) => {
  if (!(error instanceof parametersModule.ParameterError)) throw error;
  return exitWithUsageError(error.message);
});

const { CloudFailure } = await import("../../shared/platform/azure/failure.ts");
const { preflight } = await import("./preflight.ts");
const report = await import("./report.ts");
try {
  const { context, results } = await preflight({
    templates,
    subscriptionId,
    language,
    parameters,
    command: ownCommand(),
    environment: process.env,
  });
  const proposed = { ...parameters.values, ...Object.fromEntries(context.proposed) };
  if (options.json) console.log(JSON.stringify(report.jsonReport(context, results, proposed), null, 2));
  else console.log(report.textReport(context, results).join("\n"));
  if (write) {
    // `wx` fails if another process has created the file since the start.
    writeFileSync(file, parametersModule.formatParameters(write, proposed), { flag: options.overwrite ? "w" : "wx" });
    console.error(`Wrote ${file}. Compare it with your plans before you deploy.`);
  }
  process.exitCode = report.exitCodeOf(results);
} catch (error) {
  if (!(error instanceof CloudFailure)) throw error;
  const signIn =
    "Sign in to the tenant of the subscription: az login --tenant TENANT. Then: az account show --subscription ID";
  console.error(`${error.message}\n${error.code === "unreachable" ? error.remedy : signIn}`);
  process.exitCode = CLOUD_FAILED;
}

/** Returns the command of this run, without the options that only affect its output. */
function ownCommand(): string {
  const texts = (["subscription", "location", "name", "parameters"] as const).flatMap((name) =>
    options[name] === undefined ? [] : [`--${name}`, quote(options[name])],
  );
  const sets = (options.set ?? []).flatMap((one) => ["--set", quoteAlways(one)]);
  return ["npm run preflight --", ...texts, ...(options.network ? ["--network"] : []), ...sets].join(" ");
}

function languageOf(option: string): "bicep" | "terraform" {
  return option === "bicep" || option === "terraform"
    ? option
    : exitWithUsageError("--write must be bicep or terraform");
}

/** Returns the parameters of the file, changed by the options. */
async function readParameters() {
  const fromFile = options.parameters
    ? await parametersModule.readParametersFile(definitions, options.parameters)
    : { language: "bicep" as const, values: {} };
  const assignments = (options.set ?? []).map((one) => parametersModule.parseAssignment(definitions, one));
  const values: Record<string, Value> = {
    environmentName: "lifecycle",
    ...fromFile.values,
    ...(options.name !== undefined && { environmentName: options.name }),
    ...(options.location !== undefined && { location: options.location }),
    ...(options.network && { networkEnabled: true }),
    ...Object.fromEntries(assignments),
  };
  return {
    language: write ?? fromFile.language,
    parameters: parametersModule.createParameters(definitions, values),
  };
}
