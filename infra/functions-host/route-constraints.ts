/**
 * Inline route constraints of ASP.NET Core by name:
 * https://learn.microsoft.com/aspnet/core/fundamentals/routing#route-constraints
 */

export type Constraint = (value: string) => boolean;

const INT32 = 2n ** 31n;
const INT64 = 2n ** 63n;
const DECIMAL = /^\s*[+-]?(\d[\d,]*\.?\d*|\.\d+)\s*$/;
const GUID = /^(\{?[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}\}?|\([\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}\)|[\da-f]{32})$/i;

/**
 * Creates the constraint with this name.
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
  const build = argument === undefined ? plain[name.toLowerCase()] : withArguments[name.toLowerCase()];
  if (build === undefined) throw new Error(`the constraint "${text}" could not be resolved`);
  return build(...(argument?.split(",").map(toInteger) ?? []));
}

const plain: Record<string, () => Constraint> = {
  int: () => (value) => within(value, -INT32, INT32 - 1n),
  long: () => (value) => within(value, -INT64, INT64 - 1n),
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

const withArguments: Record<string, (...numbers: bigint[]) => Constraint> = {
  length: (from, to = from) => {
    need(from, to);
    return (value) => value.length >= from! && value.length <= to!;
  },
  minlength: (from) => {
    need(from);
    return (value) => value.length >= from!;
  },
  maxlength: (to) => {
    need(to);
    return (value) => value.length <= to!;
  },
  min: (from) => {
    need(from);
    return (value) => within(value, from!, INT64 - 1n);
  },
  max: (to) => {
    need(to);
    return (value) => within(value, -INT64, to!);
  },
  range: (from, to) => {
    need(from, to);
    return (value) => within(value, from!, to!);
  },
};

function need(...numbers: (bigint | undefined)[]): void {
  if (numbers.includes(undefined)) throw new Error("a constraint lacks an argument");
}

function toInteger(text: string): bigint {
  if (!/^\s*[+-]?\d+\s*$/.test(text)) throw new Error(`"${text}" is not a number`);
  return BigInt(text.trim().replace(/^\+/, ""));
}

function within(text: string, from: bigint, to: bigint): boolean {
  if (!/^\s*[+-]?\d+\s*$/.test(text)) return false;
  const value = toInteger(text);
  return value >= from && value <= to;
}

function isDouble(text: string): boolean {
  return /^\s*[+-]?(\d[\d,]*\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i.test(text);
}
