// Finds the planned resources that a policy would deny.

import { type Plan, type PlannedResource, RESOURCE_GROUP } from "../plan.ts";
import { memberOf, textOf, UNKNOWN, type Value } from "../values.ts";
import type { AssignedPolicy } from "./assignments.ts";
import { evaluateCondition, type Truth } from "./conditions.ts";
import { type Functions, resolve } from "./expressions.ts";
import { fieldValues } from "./fields.ts";

export interface Denials {
  denied: PlannedResource[];
  /** Resources for which the result is not known, because the policy uses a function or field that preflight can't evaluate. */
  unclear: PlannedResource[];
}

/** Returns the effect of a policy in lower case, such as `deny`. Undefined if it depends on an unknown value. */
export function effectOf(policy: AssignedPolicy): string | undefined {
  const override = policy.assignment.properties.overrides?.find(
    ({ kind, selectors }) =>
      kind === "policyEffect" && (selectors ?? []).every((one) => selects(one, policy.referenceId)),
  );
  const effect = override?.value ?? resolve(policy.rule.effect, { parameters: parameterReader(policy) });
  return textOf(effect)?.toLowerCase();
}

/** Evaluates a policy for the resources of a plan at a scope. */
export function denialsOf(policy: AssignedPolicy, plan: Plan, scope: string): Denials {
  const resources = plan.resources.filter((one) => one.scope === scope && isEvaluated(policy, one));
  const truths = resources.map((resource): [PlannedResource, Truth] => [resource, appliesTo(policy, resource, plan)]);
  const withTruth = (wanted: Truth) => truths.filter(([, truth]) => truth === wanted).map(([resource]) => resource);
  return { denied: withTruth(true), unclear: withTruth(undefined) };
}

/**
 * Returns whether the policy's mode includes a resource. The mode `Indexed` has only resources with tags and a location,
 * without resource groups.
 */
function isEvaluated({ mode }: AssignedPolicy, { type, location }: PlannedResource): boolean {
  if (mode.toLowerCase() === "all") return true;
  return mode.toLowerCase() === "indexed" && location !== undefined && type !== RESOURCE_GROUP;
}

/** Returns whether the policy's resource selectors and its condition apply to a resource. */
function appliesTo(policy: AssignedPolicy, resource: PlannedResource, plan: Plan): Truth {
  const { resourceSelectors } = policy.assignment.properties;
  const values: Record<string, string | undefined> = {
    resourceType: resource.type,
    resourceLocation: resource.location,
  };
  for (const { selectors } of resourceSelectors ?? []) {
    if ((selectors ?? []).some((one) => !(one.kind in values))) return undefined;
    if (!(selectors ?? []).every((one) => selects(one, values[one.kind]))) return false;
  }
  return evaluateCondition(policy.rule.if, { resource, functions: functionsFor(policy, resource, plan) });
}

/** Returns whether a selector includes a value: the value is in `in`, or not in `notIn`. */
function selects(
  { in: included, notIn: excluded }: { in?: string[] | null | undefined; notIn?: string[] | null | undefined },
  value = "",
): boolean {
  const isListed = (list: string[]) => list.some((one) => one.toLowerCase() === value.toLowerCase());
  return included ? isListed(included) : !(excluded && isListed(excluded));
}

/** Returns the function `parameters` of a policy. A value of an initiative can refer to the initiative's own parameters. */
function parameterReader({ parameters, outer }: AssignedPolicy): (args: Value[]) => Value {
  const outerFunctions: Functions = {
    parameters: ([name]) => (outer === undefined ? UNKNOWN : memberOf(outer, String(name))),
  };
  return ([name]) => resolve(memberOf(parameters, String(name)), outerFunctions);
}

function functionsFor(policy: AssignedPolicy, resource: PlannedResource, plan: Plan): Functions {
  const [, , subscriptionId, , group] = resource.scope.split("/");
  const planned = plan.resources.find((one) => one.type === RESOURCE_GROUP && one.name === group);
  return {
    parameters: parameterReader(policy),
    field: ([name]) => {
      const values = fieldValues(resource, String(name));
      return String(name).includes("[*]") ? values : values[0];
    },
    resourcegroup: () =>
      planned === undefined
        ? UNKNOWN
        : { name: group, id: resource.scope, location: planned.location, tags: memberOf(planned.body, "tags") },
    subscription: () => ({
      subscriptionId,
      id: `/subscriptions/${subscriptionId}`,
      displayName: UNKNOWN,
      tags: UNKNOWN,
    }),
    current: () => UNKNOWN,
  };
}
