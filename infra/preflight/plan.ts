// Returns the resources that a deployment of the templates would write: the Bicep files, evaluated with the parameters of the
// deployment. Terraform writes the same resources (npm run check:infra compares them), with another suffix in some names.

import { createHash } from "node:crypto";
import path from "node:path";
import type { BicepFile, Module, Resource } from "../template-checks/bicep/parse.ts";
import { property } from "../template-checks/expression.ts";
import { type DeploymentCloud, evaluate, loopScopes, type Scope } from "./bicep-values.ts";
import type { Parameters, TemplateLanguage } from "./parameters.ts";
import { uniqueString } from "./unique-string.ts";
import { isObject, memberOf, textOf, UNKNOWN, type Value } from "./values.ts";

const MAIN_TEMPLATE = "infra/azure/main.bicep";
/** Type of resource groups in actions and policies. Templates write a shorter one. */
export const RESOURCE_GROUP = "Microsoft.Resources/subscriptions/resourceGroups";

/** A resource that the deployment would write. */
export interface PlannedResource {
  type: string;
  /** Undefined if only the deployment knows it. */
  name: string | undefined;
  /** Undefined if only the deployment knows it. */
  id: string | undefined;
  /** ID of the subscription or resource group that the resource is deployed to. */
  scope: string;
  /** Undefined if the resource has none, such as a subnet. */
  location: string | undefined;
  /** The resource as the template declares it: `name`, `location`, `tags`, `sku`, `properties` … */
  body: Value;
}

/** The resources of a deployment, and the scopes that it creates deployments in. */
export interface Plan {
  resources: PlannedResource[];
  /** IDs of subscriptions and resource groups. */
  scopes: string[];
  /** Messages with which the templates reject the parameters. */
  refusals: string[];
  /** Services to which created subnets are delegated, such as `Microsoft.App/environments`. */
  delegations: string[];
}

/** Input of a plan. */
export interface PlanInput {
  bicep: ReadonlyMap<string, BicepFile>;
  language: TemplateLanguage;
  parameters: Parameters;
  subscriptionId: string;
  tenantId: string;
  /** Name of the Azure cloud. */
  cloudName: string;
}

/** Returns the resources that a deployment with these parameters would write. Reads nothing from Azure. */
export function planDeployment({ bicep, language, parameters, subscriptionId, tenantId, cloudName }: PlanInput): Plan {
  const plan: Plan = { resources: [], scopes: [], refusals: [], delegations: [] };
  const cloud: DeploymentCloud = {
    name: cloudName,
    tenantId,
    location: parameters.location,
    // Terraform has no such function: the suffix in infra/terraform/main.tf is the start of a SHA-1.
    uniqueString: (...values) =>
      language === "bicep"
        ? uniqueString(...values)
        : createHash("sha1").update(values.join("/")).digest("hex").slice(0, 13),
    refuse: (message) => plan.refusals.push(message),
  };
  const main = bicep.get(MAIN_TEMPLATE)!;
  const scope: Scope = { file: main, deployedTo: `/subscriptions/${subscriptionId}`, names: new Map(), cloud };
  for (const { name, defaultValue } of main.parameters) {
    const givenValue = parameters.values[name];
    scope.names.set(name, givenValue !== undefined || !defaultValue ? givenValue : evaluate(defaultValue, scope));
  }
  deploy(scope, bicep, plan);
  plan.scopes = [...new Set(plan.scopes)];
  plan.refusals = [...new Set(plan.refusals)];
  return plan;
}

/** Adds the resources of a file, and of the modules that it calls, to the plan. */
function deploy(scope: Scope, bicep: ReadonlyMap<string, BicepFile>, plan: Plan): void {
  plan.scopes.push(scope.deployedTo);
  const { resources, modules } = scope.file;
  // Modules are used by resources and by each other only through outputs, which only the deployment knows.
  for (const { name } of modules) scope.names.set(name, { deployed: true });
  // A loop's symbol is a list, whose items are unknown.
  for (const { name, loop } of resources) scope.names.set(name, loop ? UNKNOWN : { deployed: true });
  for (const resource of resources) {
    for (const inner of instances(resource, scope)) {
      const planned = plannedResource(resource, inner);
      if (!resource.loop) scope.names.set(resource.name, referenceTo(planned));
      if (resource.existing) continue;
      plan.resources.push(planned);
      plan.delegations.push(...delegationsOf(planned.body));
    }
  }
  for (const module of modules) {
    for (const inner of instances(module, scope)) deployModule(module, inner, bicep, plan);
  }
}

/** Returns one scope for each copy of a resource or module: none if its condition is false. */
function instances({ condition, loop }: Pick<Resource, "condition" | "loop">, scope: Scope): Scope[] {
  // An unknown list counts as one item.
  const scopes = loop ? (loopScopes(loop.variables, evaluate(loop.over, scope), scope) ?? [scope]) : [scope];
  // An unknown condition counts as true, so that the deployer's permissions suffice in any case.
  return scopes.filter((one) => !condition || evaluate(condition, one) !== false);
}

function plannedResource({ type: declaredType, body: declared }: Resource, scope: Scope): PlannedResource {
  const body = evaluate(declared, scope);
  const type = declaredType === "Microsoft.Resources/resourceGroups" ? RESOURCE_GROUP : declaredType;
  const name = textOf(memberOf(body, "name"));
  const location = textOf(memberOf(body, "location"));
  return { type, name, id: name && idOf(type, name, body, scope), scope: scope.deployedTo, location, body };
}

/** Returns a resource's ID: below its parent, as an extension of another resource, or in the scope that is deployed to. */
function idOf(type: string, name: string, body: Value, { deployedTo }: Scope): string | undefined {
  if (type === RESOURCE_GROUP) return `${deployedTo}/resourceGroups/${name}`;
  const parent = memberOf(body, "parent");
  const outer = memberOf(body, "scope");
  if (isObject(parent)) {
    const parentId = textOf(memberOf(parent, "id"));
    return parentId && `${parentId}/${type.split("/").at(-1)}/${name}`;
  }
  const base = isObject(outer) ? textOf(memberOf(outer, "id")) : deployedTo;
  return base && `${base}/providers/${type}/${name}`;
}

/** Returns the value of a resource's symbol. `deployed` marks it: see `Scope.names`. */
function referenceTo({ id, name, body }: PlannedResource): Value {
  const members = isObject(body) ? body : {};
  return { ...members, id: id ?? UNKNOWN, name: name ?? UNKNOWN, properties: UNKNOWN, deployed: true };
}

function delegationsOf(body: Value): string[] {
  const list = memberOf(memberOf(body, "properties"), "delegations");
  const items = Array.isArray(list) ? list : [];
  return items.flatMap((item) => textOf(memberOf(memberOf(item, "properties"), "serviceName")) ?? []);
}

/** Adds the resources of a module to the plan, at the scope that the call names. */
function deployModule(module: Module, scope: Scope, bicep: ReadonlyMap<string, BicepFile>, plan: Plan): void {
  const file = bicep.get(path.posix.join(path.posix.dirname(scope.file.path), module.path))!;
  const scopeExpression = property(module.body, "scope");
  const target = scopeExpression ? evaluate(scopeExpression, scope) : undefined;
  const deployedTo = target === undefined ? scope.deployedTo : (textOf(memberOf(target, "id")) ?? scope.deployedTo);
  const inner: Scope = { ...scope, file, deployedTo, names: new Map() };
  for (const { name, defaultValue } of file.parameters) {
    const argument = property(module.body, "params", name);
    if (argument) inner.names.set(name, evaluate(argument, scope));
    else inner.names.set(name, defaultValue ? evaluate(defaultValue, inner) : UNKNOWN);
  }
  deploy(inner, bicep, plan);
}
