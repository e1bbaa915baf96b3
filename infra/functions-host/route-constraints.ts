/**
 * Inline route constraints of ASP.NET Core, such as `int` in the route `orders/{id:int}`. A route matches only if each
 * parameter satisfies its constraints. Azure Functions supports these constraints in the route of an HTTP function:
 * https://learn.microsoft.com/aspnet/core/fundamentals/routing#route-constraints
 */

/** Returns whether the value of a route parameter satisfies the constraint. */
export type Constraint = (value: string) => boolean;

const INT32_LIMIT = 2n ** 31n;
const INT64_LIMIT = 2n ** 63n;
/** A decimal number with optional thousands separators, for example `-1,234.5` or `.5`. */
const DECIMAL = /^\s*[+-]?(\d[\d,]*\.?\d*|\.\d+)\s*$/;
/** A GUID with hyphens, plain or in braces or parentheses, or without hyphens. A single brace is accepted, too. */
const GUID = /^(\{?[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}\}?|\([\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}\)|[\da-f]{32})$/i;

/**
 * Creates a constraint from its text in a route, for example `int`, `length(2,5)` or `regex(^a+$)`.
 * @throws Error if the name is unknown or the arguments are invalid. The host then rejects the route.
 */
export function parseConstraint(text: string): Constraint {
  const match = /^(\w+)(?:\((.*)\))?$/s.exec(text);
  if (match === null) throw new Error(`"${text}" is not a constraint`);
  const [, name, argument] = match as unknown as [string, string, string | undefined];
  if (name.toLowerCase() === "regex" && argument !== undefined) {
    const pattern = new RegExp(argument, "i");
    return (value) => pattern.test(value);
  }
  const constraints = argument === undefined ? constraintsWithoutArguments : constraintsWithArguments;
  const key = name.toLowerCase();
  // Own properties only, so that names such as `constructor` are unknown.
  if (!Object.hasOwn(constraints, key)) throw new Error(`the constraint "${text}" could not be resolved`);
  return constraints[key]!(...(argument?.split(",").map(toInteger) ?? []));
}

const constraintsWithoutArguments: Record<string, (...numbers: bigint[]) => Constraint> = {
  int: () => (value) => isIntegerBetween(value, -INT32_LIMIT, INT32_LIMIT - 1n),
  long: () => (value) => isIntegerBetween(value, -INT64_LIMIT, INT64_LIMIT - 1n),
  bool: () => (value) => /^\s*(true|false)\s*$/i.test(value),
  guid: () => (value) => GUID.test(value.trim()),
  alpha: () => (value) => /^[a-z]*$/i.test(value),
  required: () => (value) => value !== "",
  decimal: () => (value) => DECIMAL.test(value),
  float: () => isDouble,
  double: () => isDouble,
  // An approximation: .NET accepts more date formats.
  datetime: () => (value) => /\d/.test(value) && !Number.isNaN(Date.parse(value)),
};

const constraintsWithArguments: Record<string, (...numbers: bigint[]) => Constraint> = {
  length: (from, to = from) => {
    requireArguments(from, to);
    return (value) => value.length >= from! && value.length <= to!;
  },
  minlength: (from) => {
    requireArguments(from);
    return (value) => value.length >= from!;
  },
  maxlength: (to) => {
    requireArguments(to);
    return (value) => value.length <= to!;
  },
  min: (from) => {
    requireArguments(from);
    return (value) => isIntegerBetween(value, from!, INT64_LIMIT - 1n);
  },
  max: (to) => {
    requireArguments(to);
    return (value) => isIntegerBetween(value, -INT64_LIMIT, to!);
  },
  range: (from, to) => {
    requireArguments(from, to);
    return (value) => isIntegerBetween(value, from!, to!);
  },
};

function requireArguments(...numbers: (bigint | undefined)[]): void {
  if (numbers.includes(undefined)) throw new Error("a constraint lacks an argument");
}

function toInteger(text: string): bigint {
  if (!/^\s*[+-]?\d+\s*$/.test(text)) throw new Error(`"${text}" is not a number`);
  return BigInt(text.trim().replace(/^\+/, ""));
}

function isIntegerBetween(text: string, from: bigint, to: bigint): boolean {
  if (!/^\s*[+-]?\d+\s*$/.test(text)) return false;
  const value = toInteger(text);
  return value >= from && value <= to;
}

function isDouble(text: string): boolean {
  return /^\s*[+-]?(\d[\d,]*\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i.test(text);
}
