// Values of template expressions that are evaluated before the deployment.

/** A value that only the deployment knows, such as the output of a created resource. */
export const UNKNOWN = Symbol("known only to the deployment");

/** A value of a template. `undefined` is a missing member. */
export type Value = string | number | boolean | null | undefined | typeof UNKNOWN | Value[] | { [name: string]: Value };

/** Returns whether a value is an object. */
export const isObject = (value: Value): value is { [name: string]: Value } =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Returns a member of an object, whose name ignores case. UNKNOWN if the object is unknown. */
export function memberOf(value: Value, name: string): Value {
  if (value === UNKNOWN) return UNKNOWN;
  if (!isObject(value)) return undefined;
  if (Object.hasOwn(value, name)) return value[name];
  const key = Object.keys(value).find((one) => one.toLowerCase() === name.toLowerCase());
  return key === undefined ? undefined : value[key];
}

/** Returns the text of a value. Undefined if the value is unknown or no text. */
export const textOf = (value: Value): string | undefined => (typeof value === "string" ? value : undefined);

/** Returns whether a value is, or contains, an unknown value. */
export function hasUnknown(value: Value): boolean {
  if (value === UNKNOWN) return true;
  if (Array.isArray(value)) return value.some(hasUnknown);
  return isObject(value) && Object.values(value).some(hasUnknown);
}

type TemplateFunction = (args: Value[]) => Value;

/** Runs a function on texts. UNKNOWN if an argument is no text. */
const onTexts =
  (run: (...texts: string[]) => Value): TemplateFunction =>
  (args) =>
    args.every((one) => typeof one === "string") ? run(...(args as string[])) : UNKNOWN;

/**
 * Functions that Bicep and Azure Policy share, by name in lower case. The others are unknown:
 * https://learn.microsoft.com/azure/azure-resource-manager/bicep/bicep-functions
 */
export const SHARED_FUNCTIONS: Readonly<Record<string, TemplateFunction>> = {
  concat: (args) => {
    if (args.some((one) => one === UNKNOWN)) return UNKNOWN;
    return args.every(Array.isArray) ? (args as Value[][]).flat() : args.join("");
  },
  contains: ([whole, part]) => {
    if (whole === UNKNOWN || part === UNKNOWN) return UNKNOWN;
    if (Array.isArray(whole)) return whole.includes(part);
    return isObject(whole) ? memberOf(whole, String(part)) !== undefined : String(whole).includes(String(part));
  },
  createarray: (args) => args,
  empty: ([value]) => {
    if (value === UNKNOWN) return UNKNOWN;
    if (isObject(value)) return Object.keys(value).length === 0;
    return value === undefined || value === null || value === "" || (Array.isArray(value) && value.length === 0);
  },
  equals: ([left, right]) => (left === UNKNOWN || right === UNKNOWN ? UNKNOWN : sameValue(left, right)),
  first: ([value]) => (value === UNKNOWN ? UNKNOWN : (value as string | Value[])[0]),
  join: ([list, separator]) => (hasUnknown(list) ? UNKNOWN : (list as Value[]).join(String(separator))),
  last: ([value]) => (value === UNKNOWN ? UNKNOWN : (value as string | Value[]).at(-1)),
  length: ([value]) => {
    if (value === UNKNOWN) return UNKNOWN;
    return isObject(value) ? Object.keys(value).length : (value as string | Value[]).length;
  },
  replace: onTexts((text, from, to) => text!.replaceAll(from!, to!)),
  split: onTexts((text, separator) => text!.split(separator!)),
  startswith: onTexts((text, start) => text!.toLowerCase().startsWith(start!.toLowerCase())),
  endswith: onTexts((text, end) => text!.toLowerCase().endsWith(end!.toLowerCase())),
  tolower: onTexts((text) => text!.toLowerCase()),
  toupper: onTexts((text) => text!.toUpperCase()),
  union: (args) => {
    if (args.some((one) => one === UNKNOWN)) return UNKNOWN;
    return args.every(isObject) ? Object.assign({}, ...args) : [...new Set((args as Value[][]).flat())];
  },
};

/** Compares values. Texts ignore case, and a number or Boolean equals its text, as in Azure Policy. */
export function sameValue(left: Value, right: Value): boolean {
  if (left === null || left === undefined || right === null || right === undefined)
    return (left ?? undefined) === (right ?? undefined);
  if (typeof left === "object" || typeof right === "object") return JSON.stringify(left) === JSON.stringify(right);
  return String(left).toLowerCase() === String(right).toLowerCase();
}
