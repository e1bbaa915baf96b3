// Runs preflight in this process against the simulated cloud, with rules that a test plants in the subscription.

import type { Governance, GovernancePolicy } from "simulated-cloud/arm/governance.ts";
import { type Cloud, startCloud } from "simulated-cloud/cloud.ts";
import type { Context } from "../../infra/preflight/context.ts";
import type { Finding } from "../../infra/preflight/finding.ts";
import { createParameters, parameterDefinitions, type TemplateLanguage } from "../../infra/preflight/parameters.ts";
import { type Plan, planDeployment } from "../../infra/preflight/plan.ts";
import { preflight } from "../../infra/preflight/preflight.ts";
import { parseBicepTemplates } from "../../infra/preflight/templates.ts";
import type { Value } from "../../infra/preflight/values.ts";
import { CLOUD_KEYS } from "../support/test-app.ts";

export const SUBSCRIPTION = "11111111-2222-4333-8444-555555555555";
export const OTHER_SUBSCRIPTION = "22222222-2222-4333-8444-555555555555";
export const SUBSCRIPTION_ID = `/subscriptions/${SUBSCRIPTION}`;
export const GROUP_ID = `${SUBSCRIPTION_ID}/resourceGroups/rg-lifecycle`;
/** A network of another team. */
export const NETWORK_ID = `${SUBSCRIPTION_ID}/resourceGroups/rg-network/providers/Microsoft.Network/virtualNetworks/vnet-hub`;
/** Parameters of a deployment to the subnets of this network. */
export const OWN_SUBNETS = {
  networkEnabled: true,
  functionSubnetResourceId: `${NETWORK_ID}/subnets/functions`,
  privateEndpointSubnetResourceId: `${NETWORK_ID}/subnets/endpoints`,
};

export interface Run {
  context: Context;
  findings: Finding[];
}

/** A simulated cloud with two subscriptions, in which every deployment succeeds until a test plants rules. */
export class PlannedSubscription {
  readonly cloud: Cloud;
  readonly #templates: Awaited<ReturnType<typeof parseBicepTemplates>>;

  private constructor(cloud: Cloud, templates: Awaited<ReturnType<typeof parseBicepTemplates>>) {
    this.cloud = cloud;
    this.#templates = templates;
  }

  static async start(): Promise<PlannedSubscription> {
    const cloud = await startCloud({
      keys: CLOUD_KEYS,
      company: {
        subscriptions: [
          { name: "Platform", id: SUBSCRIPTION },
          { name: "Other", id: OTHER_SUBSCRIPTION },
        ],
      },
    });
    return new PlannedSubscription(cloud, await parseBicepTemplates());
  }

  /** Sets the rules of a subscription. Undefined restores the defaults, with which every deployment succeeds. */
  plant(rules: Governance | undefined, subscription = SUBSCRIPTION): void {
    this.cloud.control.governance.set(subscription, rules);
  }

  /** Runs preflight. Throws `CloudFailure` as the command does. */
  async run(values: Record<string, Value> = {}, language: TemplateLanguage = "bicep"): Promise<Run> {
    const { clientId, clientSecret } = this.cloud.app;
    const { context, results } = await preflight({
      templates: this.#templates,
      subscriptionId: SUBSCRIPTION,
      language,
      parameters: this.#parameters(values),
      command: "npm run preflight --",
      environment: { ...this.cloud.environment, AZURE_CLIENT_ID: clientId, AZURE_CLIENT_SECRET: clientSecret },
    });
    return { context, findings: results.flatMap(({ findings }) => findings) };
  }

  /** Returns the plan of a deployment. */
  plan(values: Record<string, Value> = {}, language: TemplateLanguage = "bicep"): Plan {
    return planDeployment({
      bicep: this.#templates,
      language,
      parameters: this.#parameters(values),
      subscriptionId: SUBSCRIPTION,
      tenantId: this.cloud.app.tenantId,
      cloudName: "AzureCloud",
    });
  }

  /** Returns the name of the planned resource of a type. */
  nameOf(type: string, values: Record<string, Value> = {}): string {
    return this.plan(values).resources.find((one) => one.type === type)!.name!;
  }

  /** Creates the network of another team, with changes to its subnets. */
  putNetwork(changes: { functions?: object; endpoints?: object; location?: string } = {}): void {
    this.cloud.control.consumers.put(SUBSCRIPTION, {
      type: "Microsoft.Network/virtualNetworks",
      name: "vnet-hub",
      resourceGroup: "rg-network",
      location: changes.location ?? "westeurope",
      children: {
        subnets: [
          {
            name: "functions",
            properties: {
              addressPrefix: "10.0.0.0/26",
              delegations: [{ name: "flex", properties: { serviceName: "Microsoft.App/environments" } }],
              serviceEndpoints: [{ service: "Microsoft.KeyVault" }],
              ...changes.functions,
            },
          },
          { name: "endpoints", properties: { addressPrefix: "10.0.1.0/26", ...changes.endpoints } },
        ],
      },
    });
  }

  #parameters(values: Record<string, Value>) {
    const given = { environmentName: "lifecycle", location: "westeurope", ...values };
    return createParameters(parameterDefinitions(this.#templates), given);
  }
}

/** Returns a policy that denies every resource that matches the condition. */
export const denies = (name: string, condition: object, more: Partial<GovernancePolicy> = {}): GovernancePolicy => ({
  name,
  displayName: name,
  mode: "All",
  // biome-ignore lint/suspicious/noThenProperty: the word of a policy.
  policyRule: { if: condition, then: { effect: "deny" } },
  ...more,
});

/** Returns the condition that a resource has a type and matches a second condition. */
export const ofType = (type: string, condition: object): object => ({
  allOf: [{ field: "type", equals: type }, condition],
});
