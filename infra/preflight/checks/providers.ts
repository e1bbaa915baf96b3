// Checks that resource providers are registered, and offer the resource types of the templates in the region.

import * as z from "zod";
import { namespacesOf } from "../../template-checks/providers.ts";
import { type Context, RESOURCES_VERSION } from "../context.ts";
import { type CheckResult, counted, type Finding, listOf } from "../finding.ts";
import type { PlannedResource } from "../plan.ts";
import { isPermitted } from "./permissions.ts";

/** Provider of the delegation of the app's subnet. The templates create no resource of it. */
const DELEGATION_NAMESPACE = "Microsoft.App";

const Provider = z.object({
  namespace: z.string(),
  registrationState: z.string(),
  resourceTypes: z.array(z.object({ resourceType: z.string(), locations: z.array(z.string()).nullish() })).nullish(),
});
type Provider = z.infer<typeof Provider>;

export async function checkProviders(context: Context): Promise<CheckResult> {
  const findings: Finding[] = [];
  const subscriptions = [...new Set(context.plan.scopes.map((scope) => scope.split("/")[2]!))];
  let checked = 0;
  for (const subscription of subscriptions) {
    const resources = context.plan.resources.filter(({ scope }) => scope.split("/")[2] === subscription);
    const delegations = subscription === context.subscription.id ? context.plan.delegations : [];
    const namespaces = namespacesOf([...resources.map(({ type }) => type), ...delegations]);
    if (namespaces.length === 0) continue;
    const { entries: providers } = await context.arm.list(
      {
        path: `/subscriptions/${subscription}/providers`,
        apiVersion: RESOURCES_VERSION,
        target: { operation: "list resource providers", resource: subscription },
      },
      Provider,
    );
    checked += namespaces.length;
    for (const namespace of namespaces) {
      const provider = providers.find((one) => sameText(one.namespace, namespace));
      if (provider?.registrationState !== "Registered")
        findings.push(await unregistered(context, subscription, namespace, provider?.registrationState));
    }
    findings.push(...missingTypes(context, resources, providers));
  }
  return { summary: counted(checked, "resource provider"), findings };
}

/** Returns the finding for a resource provider that is not registered. */
async function unregistered(
  context: Context,
  subscription: string,
  namespace: string,
  state = "NotRegistered",
): Promise<Finding> {
  // Bicep registers the providers of the resources that it creates, if the person may. Nothing registers that of a delegation.
  const isRegisteredByBicep =
    context.language === "bicep" &&
    namespace !== DELEGATION_NAMESPACE &&
    (await isPermitted(context, `/subscriptions/${subscription}`, `${namespace}/register/action`));
  return {
    code: "provider.notRegistered",
    severity: isRegisteredByBicep ? "degrades" : "stops",
    subject: namespace,
    message: `The resource provider is not registered in subscription ${subscription} (${state}). ${
      isRegisteredByBicep
        ? "The deployment registers it. Its first run can fail while that takes minutes."
        : `The deployment does not register it${context.language === "terraform" ? ", unless resource_providers_to_register lists it" : ""}.`
    }`,
    remedy: "Register the resource provider, and run preflight again: some names and quotas can be checked only then.",
    command: `az provider register --namespace ${namespace} --subscription ${subscription} --wait`,
  };
}

/** Finds the resource types that a provider does not offer in the region. */
function missingTypes(context: Context, resources: PlannedResource[], providers: Provider[]): Finding[] {
  const { hasRegion, parameters } = context;
  if (!hasRegion) return [];
  const regional = resources.filter(({ location }) => location === parameters.location);
  const missing = [...new Set(regional.map(({ type }) => type))].filter((type) => {
    const [namespace, ...rest] = type.split("/");
    const provider = providers.find((one) => sameText(one.namespace, namespace!));
    const locations = provider?.resourceTypes?.find((one) => sameText(one.resourceType, rest.join("/")))?.locations;
    return locations?.length && !locations.some((one) => sameText(one.replaceAll(" ", ""), parameters.location));
  });
  if (missing.length === 0) return [];
  return [
    {
      code: "region.type",
      severity: "stops",
      subject: parameters.location,
      message: `The region does not offer ${listOf(missing)}.`,
      remedy: "Choose another region.",
      command: `az provider show --namespace ${missing[0]!.split("/")[0]} --query "resourceTypes[?resourceType=='${missing[0]!.split("/").slice(1).join("/")}'].locations"`,
    },
  ];
}

const sameText = (left: string, right: string): boolean => left.toLowerCase() === right.toLowerCase();
