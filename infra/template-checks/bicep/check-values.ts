// Checks the values of a Bicep resource against the types of its properties.

import { type Entry, type Expression, property, text } from "../expression.ts";
import { allowedValues, type FileScope } from "./file-scope.ts";
import type { ObjectType, ResourceType, TypedProperty, VariantType } from "./library.ts";

/** Members of a resource that Bicep itself defines, not the resource type. */
const BICEP_MEMBERS = new Set(["name", "parent", "scope", "dependsOn"]);

/**
 * Checks an object against its type. Adds findings to the scope.
 * @param resource Resource type that defines the types of nested objects.
 * @param local Names of loop variables around the object.
 * @param isBody Whether the object is the body of the resource.
 * @param isComplete Whether required properties must be present. False for one argument of `union()`.
 */
export function checkObject(
  scope: FileScope,
  expression: Extract<Expression, { kind: "object" }>,
  type: ObjectType,
  resource: ResourceType,
  local: ReadonlySet<string>,
  isBody = false,
  isComplete = true,
): void {
  for (const entry of expression.entries) {
    // `name` has a type of its own in the resource type, so it is checked like a property.
    if (isBody && entry.key !== "name" && BICEP_MEMBERS.has(entry.key ?? "")) continue;
    const propertyType = type.properties.find(({ name }) => name === entry.key);
    if (propertyType) checkProperty(scope, entry, propertyType, resource, local);
    else if (type.additionalPropertiesType) checkValue(scope, entry, type.additionalPropertiesType, resource, local);
    else scope.add(entry.line, `${type.name} has no property ${entry.key ?? "of a computed name"}`);
  }
  if (!isComplete) return;
  for (const { name, flags } of type.properties) {
    const isSet = expression.entries.some(({ key }) => key === name);
    if (flags?.includes("Required") && !isSet) scope.add(expression.line, `${type.name} needs ${name}`);
  }
}

function checkProperty(
  scope: FileScope,
  entry: Entry,
  propertyType: TypedProperty,
  resource: ResourceType,
  local: ReadonlySet<string>,
): void {
  if (propertyType.flags?.includes("ReadOnly")) {
    scope.add(entry.line, `${propertyType.name} can only be read`);
    return;
  }
  checkValue(scope, entry, propertyType.type, resource, local, propertyType.modifiers);
}

function checkValue(
  scope: FileScope,
  { key, value, line }: Pick<Entry, "key" | "value" | "line">,
  type: string,
  resource: ResourceType,
  local: ReadonlySet<string>,
  modifiers?: string,
): void {
  if (value.kind === "conditional") {
    for (const branch of [value.whenTrue, value.whenFalse])
      checkValue(scope, { key, value: branch, line }, type, resource, local, modifiers);
    return;
  }
  if (value.kind === "literal" && value.value === null) return;
  const variant = resource.variants.get(type);
  const object = resource.objects.get(type) ?? (variant && formOf(scope, value, variant, type, line));
  if (variant && !object) return;
  if (object) {
    const parts = value.kind === "call" && value.name === "union" ? value.args.flatMap(branches) : [value];
    for (const part of parts) {
      if (part.kind === "object") checkObject(scope, part, object, resource, local, false, parts.length === 1);
      else scope.requireType(part, "object", line, key ?? "", local);
    }
  } else if (type.endsWith("[]")) {
    // Values of the items: those in an array, and the result of a `for` loop, also of a loop in place of the array.
    const items = (value.kind === "array" ? value.items : [value]).flatMap((item) =>
      item.kind === "for" ? item.result : value.kind === "array" ? [item] : [],
    );
    for (const item of items)
      checkValue(scope, { key, value: item, line: item.line }, type.slice(0, -2), resource, local);
    if (value.kind !== "array" && value.kind !== "for") scope.requireType(value, "array", line, key ?? "", local);
  } else if (["string", "int", "bool"].includes(type)) {
    scope.requireType(value, type, line, key ?? "", local);
    const problem = boundProblem(value, modifiers);
    if (problem) scope.add(line, `${key} ${problem}`);
  } else if (type !== "any" && type !== "object") checkEnumeration(scope, value, type, line, key ?? "", local);
}

/**
 * Returns the variant of the type that the discriminator of the object selects, for example by `endpointType`. No match is a
 * finding.
 */
function formOf(
  scope: FileScope,
  value: Expression,
  { discriminator, forms }: VariantType,
  type: string,
  line: number,
): ObjectType | undefined {
  const selected = text(property(value, discriminator));
  const form = forms.find(({ properties }) =>
    properties.some(({ name, type: only }) => name === discriminator && only === selected),
  );
  if (!form) scope.add(line, `${type} has no form whose ${discriminator} is ${selected ?? "not set"}`);
  return form;
}

/**
 * Checks a value against the values that its type lists. A list can be extensible (`A | B | string`). A value that such a list
 * does not contain is a finding too, because it is probably misspelled.
 */
function checkEnumeration(
  scope: FileScope,
  value: Expression,
  type: string,
  line: number,
  key: string,
  local: ReadonlySet<string>,
): void {
  const listedValues = type.split(" | ").filter((one) => one !== "string");
  const parameter = value.kind === "name" && scope.file.parameters.find(({ name }) => name === value.name);
  const values = parameter
    ? parameter.decorators.flatMap((decorator) => allowedValues(decorator) ?? [])
    : value.kind === "literal"
      ? [value.value]
      : [];
  for (const one of values) {
    if (!listedValues.includes(String(one)))
      scope.add(line, `${key} is ${JSON.stringify(one)}, not one of ${listedValues.join(", ")}`);
  }
  if (values.length === 0) scope.requireType(value, "string", line, key, local);
}

/** Returns the possible results of a conditional expression, so that each is checked. */
function branches(expression: Expression): Expression[] {
  return expression.kind === "conditional"
    ? [expression.whenTrue, expression.whenFalse].flatMap(branches)
    : [expression];
}

/** Returns how a literal violates the minimum or maximum of its type. `modifiers` is for example `minValue: 1, maxValue: 7`. */
function boundProblem(value: Expression, modifiers: string | undefined): string | undefined {
  if (!modifiers || value.kind !== "literal") return undefined;
  const bound = (name: string) => {
    const match = new RegExp(`${name}: (-?\\d+)`).exec(modifiers)?.[1];
    return match === undefined ? undefined : Number(match);
  };
  const size = typeof value.value === "string" ? value.value.length : value.value;
  const [minimum, maximum] =
    typeof value.value === "string" ? [bound("minLength"), bound("maxLength")] : [bound("minValue"), bound("maxValue")];
  if (typeof size !== "number") return undefined;
  if (minimum !== undefined && size < minimum) return `is below ${minimum}`;
  return maximum !== undefined && size > maximum ? `is above ${maximum}` : undefined;
}
