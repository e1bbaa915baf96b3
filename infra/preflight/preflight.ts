// Signs in, reads the facts that all checks need, and runs the checks.

import { createArm } from "../../shared/platform/azure/arm.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { cloudEndpoints } from "../../shared/platform/config/clouds.ts";
import type { BicepFile } from "../template-checks/bicep/parse.ts";
import { grantsOf } from "../template-checks/grants.ts";
import { type NamedResult, runChecks } from "./checks.ts";
import { type Context, readResourceGroup, readSubscription } from "./context.ts";
import { createParameters, type Parameters, parameterDefinitions, type TemplateLanguage } from "./parameters.ts";
import { planDeployment } from "./plan.ts";

/** Writes nothing: preflight reports failures itself. */
const SILENT = { debug() {}, info() {}, warn() {}, error() {} };

/**
 * Runs all checks.
 * @throws {CloudFailure} if nobody is signed in, or the subscription can't be read.
 */
export async function preflight(input: {
  templates: ReadonlyMap<string, BicepFile>;
  subscriptionId: string;
  language: TemplateLanguage;
  parameters: Parameters;
  /** The command of this run, for remedies. */
  command: string;
  /** Variables that select the cloud and the sign-in. */
  environment: NodeJS.ProcessEnv;
}): Promise<{ context: Context; results: NamedResult[] }> {
  const { templates, subscriptionId, language, parameters, environment } = input;
  const setting = (name: string) => environment[name] || undefined;
  const settings = {
    AZURE_CLOUD: setting("AZURE_CLOUD") ?? "AzureCloud",
    AZURE_AUTHORITY_HOST: setting("AZURE_AUTHORITY_HOST"),
    AZURE_RESOURCE_MANAGER_ENDPOINT: setting("AZURE_RESOURCE_MANAGER_ENDPOINT"),
  };
  const config = {
    AZURE_CLOUD: settings.AZURE_CLOUD as "AzureCloud",
    AZURE_TENANT_ID: setting("AZURE_TENANT_ID"),
    AZURE_CLIENT_ID: setting("AZURE_CLIENT_ID"),
    AZURE_CLIENT_SECRET: setting("AZURE_CLIENT_SECRET"),
    cloud: cloudEndpoints(settings),
  };
  const identity = createIdentity(config);
  const arm = createArm({ config, identity, log: SILENT });
  const signedIn = await identity.describe();
  const subscription = await readSubscription(arm, subscriptionId, signedIn.tenantId ?? "");
  const definitions = parameterDefinitions(templates);
  const planOf = (one: Parameters) =>
    planDeployment({
      bicep: templates,
      language,
      parameters: one,
      subscriptionId,
      tenantId: subscription.tenantId,
      cloudName: config.AZURE_CLOUD,
    });
  const plan = planOf(parameters);
  const context: Context = {
    arm,
    command: input.command,
    language,
    subscription,
    signedIn,
    parameters,
    plan,
    hasRegion: true,
    group: await readResourceGroup(arm, plan),
    assignedRoles: [...new Set(grantsOf(templates).map(({ role }) => role))].filter((role) => role.includes(" ")),
    hasParameter: (name) => definitions.some((one) => one.name === name),
    planWith: (changes) => planOf(createParameters(definitions, { ...parameters.values, ...changes })),
    proposed: new Map(),
  };
  return { context, results: await runChecks(context) };
}
