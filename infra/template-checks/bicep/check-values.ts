// Checks values against their Bicep types.

import { type Entry, type Expression, property, text } from "../expression.ts";
import { allowedValues, type FileScope } from "./file-scope.ts";
import type { ObjectType, ResourceType, TypedProperty, VariantType } from "./library.ts";

/** Resource members that Bicep itself defines. */
const RESOURCE_META = new Set(["name", "parent", "scope", "dependsOn"]);

/**
 * Checks an object against its type.
 * @param whole whether required properties must be present; false for one part of a union
 */
export function checkObject(
  scope: FileScope,
  expression: Extract<Expression, { kind: "object" }>,
  type: ObjectType,
  resource: ResourceType,
  local: ReadonlySet<string>,
  isBody = false,
  whole = true,
): void {
  for (const entry of expression.entries) {
    if (isBody && entry.key !== "name" && RESOURCE_META.has(entry.key ?? "")) continue;
    const known = type.properties.find(({ name }) => name === entry.key);
    if (known) checkProperty(scope, entry, known, resource, local);
    else if (type.additionalPropertiesType) checkValue(scope, entry, type.additionalPropertiesType, resource, local);
    else scope.add(entry.line, `${type.name} has no property ${entry.key ?? "of a computed name"}`);
  }
  if (!whole) return;
  for (const { name, flags } of type.properties) {
    const given = expression.entries.some(({ key }) => key === name);
    if (flags?.includes("Required") && !given) scope.add(expression.line, `${type.name} needs ${name}`);
  }
}

function checkProperty(
  scope: FileScope,
  entry: Entry,
  known: TypedProperty,
  resource: ResourceType,
  local: ReadonlySet<string>,
): void {
  if (known.flags?.includes("ReadOnly")) {
    scope.add(entry.line, `${known.name} can only be read`);
    return;
  }
  checkValue(scope, entry, known.type, resource, local, known.modifiers);
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
      else scope.matches(part, "object", line, key ?? "", local);
    }
  } else if (type.endsWith("[]")) {
    const items = (value.kind === "array" ? value.items : [value]).flatMap((item) =>
      item.kind === "for" ? item.result : value.kind === "array" ? [item] : [],
    );
    for (const item of items)
      checkValue(scope, { key, value: item, line: item.line }, type.slice(0, -2), resource, local);
    if (value.kind !== "array" && value.kind !== "for") scope.matches(value, "array", line, key ?? "", local);
  } else if (["string", "int", "bool"].includes(type)) {
    scope.matches(value, type, line, key ?? "", local);
    const problem = boundProblem(value, modifiers);
    if (problem) scope.add(line, `${key} ${problem}`);
  } else if (type !== "any" && type !== "object") checkEnumeration(scope, value, type, line, key ?? "", local);
}

/** Returns the variant of an object that its discriminator selects. No match is a finding. */
function formOf(
  scope: FileScope,
  value: Expression,
  { discriminator, forms }: VariantType,
  type: string,
  line: number,
): ObjectType | undefined {
  const named = text(property(value, discriminator));
  const form = forms.find(({ properties }) =>
    properties.some(({ name, type: only }) => name === discriminator && only === named),
  );
  if (!form) scope.add(line, `${type} has no form whose ${discriminator} is ${named ?? "not said"}`);
  return form;
}

/** Checks a value against the values of its type. A value outside of an extensible list is also a finding. */
function checkEnumeration(
  scope: FileScope,
  value: Expression,
  type: string,
  line: number,
  key: string,
  local: ReadonlySet<string>,
): void {
  const listed = type.split(" | ").filter((one) => one !== "string");
  const parameter = value.kind === "name" && scope.file.parameters.find(({ name }) => name === value.name);
  const values = parameter
    ? parameter.decorators.flatMap((decorator) => allowedValues(decorator) ?? [])
    : value.kind === "literal"
      ? [value.value]
      : [];
  for (const one of values) {
    if (!listed.includes(String(one)))
      scope.add(line, `${key} is ${JSON.stringify(one)}, not one of ${listed.join(", ")}`);
  }
  if (values.length === 0) scope.matches(value, "string", line, key, local);
}

/** Returns both branches of a condition, so that each is checked. */
function branches(expression: Expression): Expression[] {
  return expression.kind === "conditional"
    ? [expression.whenTrue, expression.whenFalse].flatMap(branches)
    : [expression];
}

function boundProblem(value: Expression, modifiers: string | undefined): string | undefined {
  if (!modifiers || value.kind !== "literal") return undefined;
  const bound = (name: string) => {
    const found = new RegExp(`${name}: (-?\\d+)`).exec(modifiers)?.[1];
    return found === undefined ? undefined : Number(found);
  };
  const size = typeof value.value === "string" ? value.value.length : value.value;
  const [least, most] =
    typeof value.value === "string" ? [bound("minLength"), bound("maxLength")] : [bound("minValue"), bound("maxValue")];
  if (typeof size !== "number") return undefined;
  if (least !== undefined && size < least) return `is below ${least}`;
  return most !== undefined && size > most ? `is above ${most}` : undefined;
}
