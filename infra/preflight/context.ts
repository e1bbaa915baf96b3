// The inputs that all checks share: the deployment, and read access to the cloud.

import * as z from "zod";
import type { Arm } from "../../shared/platform/azure/arm.ts";
import { CloudFailure, unlessMissing } from "../../shared/platform/azure/failure.ts";
import type { IdentityDescription } from "../../shared/platform/azure/identity.ts";
import { snake } from "../template-checks/parity/normalize.ts";
import { type Finding, quoteAlways } from "./finding.ts";
import type { Parameters, TemplateLanguage } from "./parameters.ts";
import { type Plan, RESOURCE_GROUP } from "./plan.ts";
import type { Value } from "./values.ts";

export interface Context {
  arm: Arm;
  /** The command of this run, without the options that only affect its output. */
  command: string;
  language: TemplateLanguage;
  subscription: Subscription;
  signedIn: IdentityDescription;
  parameters: Parameters;
  plan: Plan;
  /** The service's resource group. */
  group: ResourceGroup;
  /** Roles that the templates assign, by name. */
  assignedRoles: readonly string[];
  /**
   * False if the subscription does not have the region, which the check of the region finds. Other checks then skip the region.
   */
  hasRegion: boolean;
  /** Returns whether the templates have a parameter. */
  hasParameter(name: string): boolean;
  /** Returns the plan with changed parameters. */
  planWith(changes: Record<string, Value>): Plan;
  /**
   * Values of parameters that avoid a finding, which `proposeValue` collects. The parameters file that preflight writes
   * contains them, and later checks plan the deployment with them.
   */
  proposed: Map<string, Value>;
}

export interface Subscription {
  id: string;
  name: string;
  state: string;
  tenantId: string;
}

export interface ResourceGroup {
  id: string;
  name: string;
  /** Undefined if the group does not exist. */
  existing: { location: string; state: string; resourceIds: ReadonlySet<string> } | undefined;
}

/** https://learn.microsoft.com/rest/api/resources */
export const RESOURCES_VERSION = "2021-04-01";
export const SUBSCRIPTION_VERSION = "2022-12-01";

const SubscriptionAnswer = z.object({
  displayName: z.string().nullish(),
  state: z.string().nullish(),
  tenantId: z.string().nullish(),
});

/** @throws {CloudFailure} if the subscription can't be read. */
export async function readSubscription(arm: Arm, id: string, tenantId: string): Promise<Subscription> {
  const path = `/subscriptions/${id}`;
  const target = { operation: "read the subscription", resource: id };
  const answer = await arm.call({ path, apiVersion: SUBSCRIPTION_VERSION, target }, SubscriptionAnswer);
  return {
    id,
    name: answer.displayName ?? id,
    state: answer.state ?? "Enabled",
    tenantId: answer.tenantId ?? tenantId,
  };
}

const GroupAnswer = z.object({
  location: z.string(),
  properties: z.object({ provisioningState: z.string().nullish() }).nullish(),
});

/**
 * Reads the service's resource group and its resources.
 * @throws {CloudFailure}
 */
export async function readResourceGroup(arm: Arm, plan: Plan): Promise<ResourceGroup> {
  const planned = plan.resources.find(({ type }) => type === RESOURCE_GROUP);
  const id = planned?.id ?? plan.scopes.find((one) => one.includes("/resourceGroups/"))!;
  const name = id.split("/").at(-1)!;
  const target = { operation: "read the resource group", resource: name };
  const path = id.replace("/resourceGroups/", "/resourcegroups/");
  const answer = await unlessMissing(arm.call({ path, apiVersion: RESOURCES_VERSION, target }, GroupAnswer)).catch(
    (error: unknown) => {
      // Without permission to read it, the group counts as absent. The check of permissions reports what is missing.
      if (error instanceof CloudFailure && error.code === "accessDenied") return undefined;
      throw error;
    },
  );
  if (!answer) return { id, name, existing: undefined };
  const call = { path: `${id}/resources`, apiVersion: RESOURCES_VERSION, target };
  const { entries } = await arm.list(call, z.object({ id: z.string() }));
  const resourceIds = new Set(entries.map((one) => one.id.toLowerCase()));
  return {
    id,
    name,
    existing: { location: answer.location, state: answer.properties?.provisioningState ?? "", resourceIds },
  };
}

/**
 * Returns the scope whose permissions, policies and locks apply: those of the subscription for a resource group that the
 * deployment creates. These are the service's group, if it does not exist, and `rg-NAME-events` in each further watched
 * subscription.
 */
export function existingScope({ group, parameters }: Pick<Context, "group" | "parameters">, scope: string): string {
  const isNewGroup =
    scope.toLowerCase() === group.id.toLowerCase()
      ? !group.existing
      : scope.endsWith(`/resourceGroups/rg-${parameters.environmentName}-events`);
  // The first two segments: `/subscriptions/GUID`.
  return isNewGroup ? scope.split("/").slice(0, 3).join("/") : scope;
}

/** Returns the ids of the subscriptions that the service would watch. Empty: a management group decides. */
export function watchedSubscriptions({ parameters, subscription }: Context): string[] {
  const subscriptionIds = parameters.values.watchedSubscriptionIds;
  return Array.isArray(subscriptionIds) ? subscriptionIds.map(String) : [subscription.id];
}

/** Returns a text parameter. Empty if it is not set. */
export function textParameter({ parameters }: Pick<Context, "parameters">, name: string): string {
  const value = parameters.values[name];
  return typeof value === "string" ? value : "";
}

/** Adds a value of a parameter to `context.proposed`. Returns the command that writes the parameters file with it. */
export function proposeValue(context: Context, name: string, value: Value): string {
  context.proposed.set(name, value);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return rerunCommand(context, name, text);
}

/** Returns the command that runs preflight again with a text for one parameter, and writes the parameters file. */
export const rerunCommand = ({ command, language }: Context, name: string, text: string): string =>
  `${command} --set ${quoteAlways(`${name}=${text}`)} --write ${language}`;

/** Returns the name of a parameter in the language of the templates. */
export const parameterName = ({ language }: Pick<Context, "language">, name: string): string =>
  language === "bicep" ? name : snake(name);

/**
 * Returns the result of a call, or undefined if the subscription is not registered for the resource provider that would answer.
 * The check of resource providers reports that.
 */
export async function unlessUnregistered<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof CloudFailure && error.cloudCode === "MissingSubscriptionRegistration") return undefined;
    throw error;
  }
}

/** Returns the finding for a call that failed, because of which something was not checked. */
export function notChecked(code: string, subject: string, failure: CloudFailure, command: string): Finding {
  const remedy =
    failure.code === "accessDenied"
      ? "Run preflight with an account that has the role Reader here, or ask its owner for the answer of the command."
      : "Run preflight again, or run the command.";
  return { code, severity: "notChecked", subject, message: failure.message, remedy, command };
}
