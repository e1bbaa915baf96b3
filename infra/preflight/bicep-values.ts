// Evaluates expressions of the Bicep templates with the parameters of a deployment, as far as they are known before it.

import { readFileSync } from "node:fs";
import path from "node:path";
import type { BicepFile } from "../template-checks/bicep/parse.ts";
import type { Expression } from "../template-checks/expression.ts";
import { ROOT } from "../template-checks/files.ts";
import { isObject, memberOf, SHARED_FUNCTIONS, sameValue, UNKNOWN, type Value } from "./values.ts";

/** The surroundings of an expression. */
export interface Scope {
  file: BicepFile;
  /** ID of the subscription, resource group or management group that the file deploys to. */
  deployedTo: string;
  /**
   * Values by name: parameters, loop variables, resources and modules. Variables of the file are evaluated when used. The value
   * of a resource or module has the member `deployed`, which marks that its missing members are UNKNOWN and not absent.
   */
  names: Map<string, Value>;
  cloud: DeploymentCloud;
}

/** Facts about the cloud that template functions return. */
export interface DeploymentCloud {
  /** `AzureCloud`, `AzureUSGovernment` or `AzureChinaCloud`. */
  name: string;
  tenantId: string;
  location: string;
  uniqueString(...values: string[]): string;
  /** Called if a template rejects its parameters with the function `fail`. */
  refuse(message: string): void;
}

/** Returns the value of an expression. UNKNOWN if it depends on a value or function that is not known before the deployment. */
export function evaluate(expression: Expression, scope: Scope): Value {
  const evaluateInScope = (one: Expression): Value => evaluate(one, scope);
  switch (expression.kind) {
    case "literal":
      return expression.value;
    case "template": {
      const parts = expression.parts.map(evaluateInScope);
      return parts.some((part) => part === UNKNOWN || isObject(part)) ? UNKNOWN : parts.join("");
    }
    case "array":
      return expression.items.map(evaluateInScope);
    case "object":
      return objectOf(expression.entries, evaluateInScope);
    case "name":
      return valueOfName(expression.name, scope);
    case "member":
      return memberOrUnknown(evaluateInScope(expression.of), expression.name);
    case "index": {
      const list = evaluateInScope(expression.of);
      const index = evaluateInScope(expression.index);
      if (index === UNKNOWN || list === UNKNOWN) return UNKNOWN;
      return Array.isArray(list) ? list[Number(index)] : memberOrUnknown(list, String(index));
    }
    case "conditional": {
      const test = evaluateInScope(expression.test);
      return test === UNKNOWN ? UNKNOWN : evaluateInScope(test ? expression.whenTrue : expression.whenFalse);
    }
    case "for": {
      const items = loopScopes(expression.variables, evaluateInScope(expression.over), scope);
      return items?.map((inner) => evaluate(expression.result[0]!, inner)) ?? UNKNOWN;
    }
    case "call":
      return call(expression.name, expression.args, scope);
    case "operation":
      return operation(expression.operator, expression.parts, evaluateInScope);
  }
}

/** Returns a scope for each item of a loop, whose last variable can be an index. Undefined if the list is unknown. */
export function loopScopes(variables: readonly string[], list: Value, scope: Scope): Scope[] | undefined {
  if (!Array.isArray(list)) return undefined;
  return list.map((item, index) => {
    const names = new Map(scope.names).set(variables[0]!, item);
    if (variables[1] !== undefined) names.set(variables[1], index);
    return { ...scope, names };
  });
}

function objectOf(
  entries: (Expression & { kind: "object" })["entries"],
  evaluateInScope: (one: Expression) => Value,
): Value {
  const object: { [name: string]: Value } = {};
  for (const { key, keyExpression, value } of entries) {
    const name = key ?? (keyExpression && evaluateInScope(keyExpression));
    // An unknown name, for example an identity's ID. The member is kept under a name that no template uses.
    object[typeof name === "string" ? name : "?"] = evaluateInScope(value);
  }
  return object;
}

function valueOfName(name: string, scope: Scope): Value {
  if (scope.names.has(name)) return scope.names.get(name);
  const variable = scope.file.variables.find((one) => one.name === name);
  return variable ? evaluate(variable.value, scope) : UNKNOWN;
}

/** Returns a member. Missing members of resources and modules are known only after the deployment. */
function memberOrUnknown(value: Value, name: string): Value {
  const found = memberOf(value, name);
  return found === undefined && isObject(value) && Object.hasOwn(value, "deployed") ? UNKNOWN : found;
}

/** Evaluates an operator of one or two operands. UNKNOWN for other operators. */
function operation(operator: string, parts: Expression[], evaluateInScope: (one: Expression) => Value): Value {
  if (operator === "!" && parts.length === 1) {
    const value = evaluateInScope(parts[0]!);
    // The sign `!` also follows a value that is not null, such as in `network!.outputs`. It then changes nothing.
    return typeof value === "boolean" ? !value : value;
  }
  const [left, right] = parts.map(evaluateInScope);
  if (operator === "==") return left === UNKNOWN || right === UNKNOWN ? UNKNOWN : sameValue(left, right);
  if (operator === "!=") return left === UNKNOWN || right === UNKNOWN ? UNKNOWN : !sameValue(left, right);
  if (operator === "??") return left ?? right;
  if (operator === "&&")
    return left === false || right === false ? false : left === true && right === true ? true : UNKNOWN;
  if (operator === "||")
    return left === true || right === true ? true : left === false && right === false ? false : UNKNOWN;
  // Parentheses around one expression.
  return parts.length === 1 && operator === "()" ? left : UNKNOWN;
}

/** Calls a function of Bicep: those that need the scope of the deployment here, the others of `SHARED_FUNCTIONS`. */
function call(name: string, args: Expression[], scope: Scope): Value {
  const { cloud, deployedTo, file } = scope;
  const values = args.map((one) => evaluate(one, scope));
  switch (name) {
    case "subscription": {
      const subscriptionId = values[0] ?? deployedTo.split("/")[2];
      if (typeof subscriptionId !== "string") return UNKNOWN;
      return { id: `/subscriptions/${subscriptionId}`, subscriptionId, tenantId: cloud.tenantId, deployed: true };
    }
    case "resourceGroup": {
      const [, , subscription, , group] = deployedTo.split("/");
      const [groupSubscription, groupName] =
        values.length === 0 ? [subscription, group] : [subscription, ...values].slice(-2);
      if (typeof groupSubscription !== "string" || typeof groupName !== "string") return UNKNOWN;
      const id = `/subscriptions/${groupSubscription}/resourceGroups/${groupName}`;
      return { id, name: groupName, location: cloud.location, deployed: true };
    }
    case "fail":
      cloud.refuse(String(values[0]));
      return UNKNOWN;
    case "environment":
      return { name: cloud.name };
    case "uniqueString":
      return values.every((one) => typeof one === "string") ? cloud.uniqueString(...(values as string[])) : UNKNOWN;
    case "items": {
      const [object] = values;
      return isObject(object) ? Object.entries(object).map(([key, value]) => ({ key, value })) : UNKNOWN;
    }
    case "flatten":
      return Array.isArray(values[0]) && !values[0].includes(UNKNOWN) ? (values[0] as Value[][]).flat() : UNKNOWN;
    case "loadJsonContent":
      return JSON.parse(readFileSync(path.join(ROOT, path.dirname(file.path), String(values[0])), "utf8")) as Value;
    default:
      return SHARED_FUNCTIONS[name.toLowerCase()]?.(values) ?? UNKNOWN;
  }
}
